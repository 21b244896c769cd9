"""The local executor: helm-run as a child process, watched through its events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from eval_factory.executors.base import Execution, ProcessSpec, ignore
from eval_factory.executors.process import run_logged
from eval_factory.executors.progress import EventTail, ProgressDisplay


class LocalExecutor:
    """On this machine."""

    def run(
        self, spec: ProcessSpec, screen: TextIO, on_event: Callable[[Mapping[str, Any]], None] = ignore
    ) -> Execution:
        tail = EventTail(spec.rundir.events, spec.run_id)
        events: list[Mapping[str, Any]] = []
        started = time.monotonic()
        with ProgressDisplay(screen) as display:

            def tick() -> None:
                for event in tail.new():
                    if event["event"] != "progress":
                        events.append(event)
                        on_event(event)
                    display.show(event)

            finished = run_logged(spec, log=spec.rundir.helm_log, on_tick=tick)
        return Execution(finished, time.monotonic() - started, tuple(events))
