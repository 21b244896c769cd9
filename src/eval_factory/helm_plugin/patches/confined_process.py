"""A process of its own for each answer that is executed: without keys, in a sandbox (`core/sandbox.py`).

What is executed there is HELM's own check of the answer, or a program (`confined_worker.py`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eval_factory.core import sandbox
from eval_factory.helm_plugin.patches import confined_worker, execution_record

START_LIMIT_S = 60.0
"""For the interpreter and HELM's modules, beside the time of the answer."""
CONFINED_BY = ("bubblewrap", "seccomp", "limits of time, memory and file size")


@contextmanager
def throw_away_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="eval-factory-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def check(question: Mapping[str, Any], seconds: float) -> Any:
    """HELM's check of an answer, or `sandbox.TIMED_OUT`; None where the answer ended its process, which is counted.

    Raises:
        PrerequisiteError: it was not the answer: nothing can be executed here any more.
    """
    with throw_away_folder() as folder:
        ended = _run((), folder, seconds, json.dumps(question).encode(), processes=False)
    try:
        return json.loads(ended.output)
    except (ValueError, RecursionError):
        if ended.returncode == sandbox.TIMED_OUT:
            return sandbox.TIMED_OUT
    sandbox.require("what the model answered cannot be executed any more")
    execution_record.count(execution_record.ENDED)
    return None


def run_program(
    argv: Sequence[str], folder: Path, seconds: float, *, given: bytes = b"", processes: bool
) -> sandbox.Ended:
    """A program with its input.

    Args:
        processes: whether it may start others.

    Raises:
        PrerequisiteError: there is no sandbox here.
    """
    return _run(argv, folder, seconds, given, processes=processes)


def _run(argv: Sequence[str], folder: Path, seconds: float, given: bytes, *, processes: bool) -> sandbox.Ended:
    # A scenario of HELM's raises this limit: its data hold such numbers.
    digits = sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else None
    path = _import_path()
    settings = {"path": path, "int_digits": digits, "argv": list(argv), "seconds": seconds}
    worker = [os.path.realpath(sys.executable), "-I", "-S", confined_worker.__file__, json.dumps(settings)]
    prefixes = {os.path.realpath(sys.base_prefix), sys.base_prefix, sys.prefix} - {"/"}
    libraries = [place for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place.startswith("/")]
    allowed = sandbox.Allowed([*sorted(prefixes), *path, *libraries], processes=processes)
    seconds += 0 if argv else START_LIMIT_S
    return sandbox.run(worker, folder, allowed, env=sandbox.without_secrets(folder), seconds=seconds, given=given)


def _import_path() -> list[str]:
    """Absolute, because the worker has another working directory; without folders that hold more than packages."""
    home = Path.home()
    places = [Path(place).absolute() for place in sys.path if place]
    return [str(place) for place in places if place.exists() and place != home and place not in home.parents]
