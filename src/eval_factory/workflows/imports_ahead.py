"""Imports what comes next while another process works."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.core import events as event_names


BUSY_ELSEWHERE = frozenset({event_names.ASKING, event_names.SCORING})
"""The phases of a helm-run in which this process is idle; what shards asked before is only scored."""


class ImportsAhead:
    """Told of helm-run's events, it imports modules while the model is asked: nobody works then, but the endpoint.

    Two threads that import modules which import each other may see half of one: nothing else may be imported before
    `wait` has returned.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._thread: threading.Thread | None = None
        self._enough = threading.Event()

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == event_names.PHASE and event["phase"] in BUSY_ELSEWHERE and self._thread is None:
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
