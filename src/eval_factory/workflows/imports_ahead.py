"""Imports what comes next while another process works."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

NICENESS = 15
"""helm-run, which asks meanwhile, gets nearly all that it can use."""


class ImportsAhead:
    """Imports modules while helm-run starts and asks: this process is idle then.

    They are done before the first request, for helm-run imports more; so they take nothing of a processor that requests
    need. Two threads that import modules which import each other may see half of one: nothing else may be imported
    before `wait` has returned.
    """

    def __init__(self, modules: Sequence[str], then: Sequence[Callable[[], object]] = ()) -> None:
        """`then`: what is called when they are there, one after the other; each keeps for itself what it finds."""
        self._modules = tuple(modules)
        self._then = tuple(then)
        self._thread: threading.Thread | None = None
        self._enough = threading.Event()

    def begin(self) -> None:
        """In a thread of its own."""
        if self._modules or self._then:
            self._thread = threading.Thread(target=self._do_all, daemon=True)
            self._thread.start()

    def _do_all(self) -> None:
        give_way()
        imports = [partial(importlib.import_module, name) for name in self._modules]
        steps: list[Callable[[], object]] = [*imports, *self._then]
        for step in steps:
            if self._enough.is_set():
                return
            try:
                step()
            except Exception:  # noqa: S112 - whoever needs it does it again, and fails in the open
                continue

    def wait(self) -> None:
        """Until what is being done is done; nothing is begun any more."""
        self._enough.set()
        if self._thread is not None:
            self._thread.join()


def give_way() -> None:
    """Let this thread have what others leave of the processors: on Linux each thread has a priority of its own."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
