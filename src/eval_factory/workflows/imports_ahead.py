"""Imports what comes next while another process works."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence


class ImportsAhead:
    """Imports modules while helm-run starts and asks: this process is idle then.

    They are done before the first request, for helm-run imports more; so they take nothing of a processor that requests
    need. Two threads that import modules which import each other may see half of one: nothing else may be imported
    before `wait` has returned.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._thread: threading.Thread | None = None
        self._enough = threading.Event()

    def begin(self) -> None:
        """In a thread of its own."""
        if self._modules:
            self._thread = threading.Thread(target=self._import, daemon=True)
            self._thread.start()

    def _import(self) -> None:
        for name in self._modules:
            if self._enough.is_set():
                return
            try:
                importlib.import_module(name)
            except Exception:  # noqa: S112 - whoever needs it imports it again, and fails in the open
                continue

    def wait(self) -> None:
        """Until the module that is being imported is there; none is begun any more."""
        self._enough.set()
        if self._thread is not None:
            self._thread.join()
