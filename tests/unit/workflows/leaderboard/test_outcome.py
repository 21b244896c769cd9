"""One model's turn that ends before its time."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.core.errors import EvalFactoryError, HelmError, PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import RunDir
from eval_factory.workflows.helm_run import HelmRun
from eval_factory.workflows.leaderboard import run
from eval_factory.workflows.leaderboard.outcome import Failure, Ran, failures_in, stopped_by, what_came
from unit.builders import context, plan

LOG = logging.getLogger("test")
EARLIER = Failure("a", "KeyError: 'x'", False)


def ran(model: str, *failures: Failure) -> Ran:
    return Ran(plan({"target.api_endpoint.model_id": model}), (), failures, {})


def test_the_run_under_way_fails_of_what_stopped_it() -> None:
    error = PrerequisiteError("wrong key\n  set another")
    stopped = stopped_by(ran("m", EARLIER, Failure("b", "wrong key", False)), error)
    assert stopped.failures == (EARLIER, Failure("b", "wrong key", True))
    assert stopped.stopped is error


def test_where_none_was_under_way_what_was_left_fails() -> None:
    stopped = stopped_by(ran("m", EARLIER), HelmError("helm-run ended with -9:\n  | x"))
    assert stopped.failures == (EARLIER, Failure("the runs of m that were left", "helm-run ended with -9:", False))


def turn(returncode: int, *events: dict[str, Any]) -> Ran:
    one = plan()
    job: Any = SimpleNamespace(rundir=one.rundir, left_out=lambda _plan: [])
    return what_came(job, one, HelmRun("run", 1.0, returncode, ("last line",), events), LOG)


def test_what_an_end_without_a_reason_is() -> None:
    assert str(turn(-9).stopped).startswith("helm-run was killed by signal 9:\n  | last line\n  log: ")
    assert str(turn(0).stopped).startswith("helm-run ended without a run; its log: ")
    failed = turn(1, {"event": "run_failed", "run": "a", "error": "KeyError: 'x'"})
    assert (failed.stopped, failed.failures) == (None, (EARLIER,))
    done = turn(0, {"event": "run_done", "run": "a", "path": "runs/s/a"})
    assert (done.stopped, done.failures, [folder.name for folder in done.folders]) == (None, (), ["a"])
    left = turn(0, {"event": "left_out", "run": "a", "asks": "images"})
    assert (left.stopped, left.left_out) == (None, {"a": "images"})


def take_turns(monkeypatch: pytest.MonkeyPatch, *errors: PrerequisiteError | HelmError | None) -> tuple[list[Ran], str]:
    turns = [replace(ran(f"m{number}"), stopped=error) for number, error in enumerate(errors, start=1)]
    to_come = iter(turns)
    monkeypatch.setattr(run, "keep_what_is_whole", lambda *_: None)
    monkeypatch.setattr(run, "run_helm", lambda *_: None)
    monkeypatch.setattr(run, "what_came", lambda *_: next(to_come))
    job: Any = SimpleNamespace(plans=tuple(one.plan for one in turns), run_command=lambda _plan: ["helm-run"])
    screen = io.StringIO()
    found = run.run_each(context(RunDir(Path("out")), screen), job, HelmRunSettings())
    assert found == turns
    return found, screen.getvalue()


def test_the_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    _, told = take_turns(monkeypatch, PrerequisiteError("wrong key"), None, HelmError("it broke"))
    assert told.splitlines() == [
        "model 1 of 3: m1", "m1 was stopped, the next model's turn comes: wrong key", "model 2 of 3: m2", "model 3 of 3: m3",
    ]  # fmt: skip
    _, told = take_turns(monkeypatch, None)
    assert told == ""


@pytest.mark.parametrize(
    ("errors", "kind", "message"),
    [
        ([PrerequisiteError("wrong key")], PrerequisiteError, "wrong key"),
        ([PrerequisiteError("a"), PrerequisiteError("b\n  c")], PrerequisiteError, "m1: a\nm2: b\n  c"),
        ([PrerequisiteError("a"), HelmError("b")], HelmError, "m1: a\nm2: b"),
    ],
)
def test_where_all_are_stopped_nothing_is_reported(
    errors: list[PrerequisiteError | HelmError],
    kind: type[EvalFactoryError],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(kind) as told:
        take_turns(monkeypatch, *errors)
    assert str(told.value) == message


def test_which_failures_are_for_want_of_data() -> None:
    events = [
        {"event": "run_failed", "run": "made not", "error": "URLError: gone"},
        {"event": "phase", "phase": "loading data"},
        {"event": "run_failed", "run": "a", "error": "FileNotFoundError: /x"},
        {"event": "phase", "phase": "loading data"},
        {"event": "phase", "phase": "asking the model"},
        {"event": "run_failed", "run": "b", "error": "ConnectionError: x"},
        {"event": "phase", "phase": "loading data"},
        {"event": "run_done", "run": "c", "path": "runs/s/c"},
        {"event": "run_failed", "run": "d", "error": "KeyError: 'x'"},
    ]
    assert failures_in(events) == (
        Failure("made not", "URLError: gone", True),
        Failure("a", "FileNotFoundError: /x", True),
        Failure("b", "ConnectionError: x", False),
        Failure("d", "KeyError: 'x'", False),
    )
