"""What helm-run writes down of itself for the result, in a file that always holds the latest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eval_factory.core.safe_files import write_atomic


class RecordFile:
    """One such file. Whoever changes what it holds does so with `lock` held, and calls `changed`."""

    def __init__(self, document: Callable[[], Mapping[str, Any]]) -> None:
        """
        Args:
            document: what the file is to hold; nothing is written as long as that is empty.
        """
        self.lock = threading.Lock()
        self.file: Path | None = None
        """Where it is; None until somebody says so."""
        self._document = document

    def write_down(self, file: Path) -> None:
        """Now, and again whenever something changes; what an earlier run wrote there is no longer true."""
        with self.lock:
            self.file = file
            if self._document():
                self.changed()
            else:
                file.unlink(missing_ok=True)

    def changed(self) -> None:
        if self.file is not None:
            write_atomic(self.file, json.dumps(self._document(), indent=2) + "\n")
