"""The local backend: one helm-run as a child process, watched through its events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from eval_factory.core.redaction import Redactor
from eval_factory.core.rundir import Lock, RunDir
from eval_factory.executors.process import Finished, run_logged
from eval_factory.executors.progress import EventTail, ProgressDisplay


@dataclass
class LocalRun:
    """What came of a run."""

    finished: Finished
    wall_s: float
    events: list[dict[str, Any]] = field(default_factory=list)


def run_locally(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    rundir: RunDir,
    lock: Lock,
    run_id: str,
    redactor: Redactor,
    screen: TextIO,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
) -> LocalRun:
    """Run to the end and show progress on `screen`; `on_event` is told of everything but progress."""
    tail = EventTail(rundir.events, run_id)
    events: list[dict[str, Any]] = []
    started = time.monotonic()
    with ProgressDisplay(screen) as display:

        def tick() -> None:
            for event in tail.new():
                if event["event"] != "progress":
                    events.append(event)
                    on_event(event)
                display.show(event)

        finished = run_logged(argv, env=env, log=rundir.helm_log, redactor=redactor, on_tick=tick, lock=lock)
    return LocalRun(finished, time.monotonic() - started, events)
