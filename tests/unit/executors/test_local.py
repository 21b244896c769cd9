"""A program that is shown, with a process that is none: its events are written by the test."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.executors import progress
from eval_factory.executors.process import FinishedProcess, ProcessSpec
from eval_factory.executors.progress import run_shown


def of_run(run_id: str, event: str, **more: Any) -> dict[str, Any]:
    return {"run_id": run_id, "event": event, "time": 1.0, **more}


TOLD = [
    of_run("mine", "phase", phase="asking the model", total=2),
    of_run("mine", "progress", role="model", total=2, done=1, cached=0, failed=0, prompt_tokens=0, completion_tokens=0),
    of_run("another", "phase", phase="of another run", total=2),
    of_run("mine", "run_done", path="runs/v1/a"),
]


@pytest.fixture
def spec(tmp_path: Path) -> ProcessSpec:
    rundir = RunDir(tmp_path)
    rundir.create()
    return ProcessSpec(["helm-run"], {}, rundir, None, "mine", Redactor())  # type: ignore[arg-type]


def test_events_are_kept_but_those_of_progress(spec: ProcessSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = FinishedProcess(3, ("last",))

    def run_logged(given: ProcessSpec, *, log: Path, on_tick: Callable[[], None]) -> FinishedProcess:
        assert (given, log) == (spec, spec.rundir.helm_log)
        for event in TOLD:
            with spec.rundir.events.open("a") as file:
                file.write(json.dumps(event) + "\n")
            on_tick()
        on_tick()
        return finished

    monkeypatch.setattr(progress, "run_logged", run_logged)
    screen = io.StringIO()
    ended = run_shown(spec, screen)
    assert ended.finished is finished
    assert [event["event"] for event in ended.events] == ["phase", "run_done"]
    assert "asking the model" in screen.getvalue()
    assert "of another run" not in screen.getvalue()
    assert ended.wall_s >= 0
