"""An event of helm-run becomes the right failure."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import MINIMAL, context, plan
from eval_factory.config.evaluation import RunRequest
from eval_factory.core import logs
from eval_factory.core.errors import (
    EndpointRefusedError,
    EndpointUnreachableError,
    PrerequisiteError,
)
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.workflows import evaluate as workflow
from eval_factory.workflows.asking_phase import checked_run
from eval_factory.workflows.evaluate import launch_record
from eval_factory.workflows.helm_run import EndedHelmRun, FinishedRun, raise_if_stopped
from eval_factory.workflows.options import Options
from eval_factory.workflows.resume import read_last_run_state
from facts import says
from finished_folder import finished_folder

FATAL = {
    "event": logs.FATAL,
    "message": "cannot reach http://llm.example:8000/v1: no connection could be made",
}


@pytest.mark.parametrize(
    ("place", "is_told"),
    [("llm.example:8000", True), ("llm.example", True), ("api.github.com", False), ("", False)],
)
def test_who_refused_the_endpoint_is_told(place: str, is_told: bool) -> None:
    blocked: list[dict[str, Any]] = [{"event": logs.BLOCKED, "place": place}] if place else []
    with pytest.raises(PrerequisiteError) as told:
        raise_if_stopped([*blocked, FATAL], None, logging.getLogger("test"))
    assert str(told.value).startswith(FATAL["message"])
    assert (f"refused the connection to {place}" in str(told.value)) is is_told


def test_the_kind_of_a_stop_is_the_kind_of_its_error_and_last_words_count_where_no_event_was_written() -> (
    None
):
    log = logging.getLogger("test")
    kinds = {
        "unreachable": EndpointUnreachableError,
        "refused": EndpointRefusedError,
        None: PrerequisiteError,
    }
    for kind, error in kinds.items():
        with pytest.raises(PrerequisiteError) as told:
            raise_if_stopped([{**FATAL, **({"kind": kind} if kind else {})}], None, log)
        assert type(told.value) is error
    with pytest.raises(PrerequisiteError, match=r"^the disk is full$"):
        raise_if_stopped([], "the disk is full", log)
    raise_if_stopped([], None, log)


def test_a_killed_run_leaves_no_checksums_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go before anything else in the folder is changed."""
    rundir = finished_folder(tmp_path / "out")
    assert rundir.checksums.is_file()
    there: list[bool] = []

    def killed(*_: object, **__: object) -> None:
        there.extend([rundir.checksums.exists(), rundir.attestation.exists()])
        raise KeyboardInterrupt

    monkeypatch.setattr(workflow, "look_for_prerequisites", lambda *_: None)
    monkeypatch.setattr(workflow, "prepare_output_folder", killed)
    request = RunRequest(flags={**MINIMAL, "config.output_dir": str(rundir.root)})
    env = {"OPENAI_API_KEY": "a-key-of-some-length"}
    with pytest.raises(KeyboardInterrupt):
        workflow.evaluate(request, Options(fresh=True), env=env, screen=io.StringIO())
    assert there == [False, False]


def test_a_run_took_as_long_as_its_result_will_say(tmp_path: Path) -> None:
    """Digits that only .run_state.json has could be changed, and nobody would notice."""
    made = plan({"config.output_dir": str(tmp_path / "out")})
    done: Any = [{"event": logs.RUN_DONE, "path": f"runs/s/{name}"} for name in "rq"]
    ran = checked_run(
        context(made.rundir), made, EndedHelmRun("run", 18.45317671599496, 0, (), tuple(done))
    )
    assert ran == FinishedRun(
        (made.rundir.helm / "runs/s/r", made.rundir.helm / "runs/s/q"), "run", 18.45
    )


def test_a_run_that_nothing_has_changed_for_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = finished_folder(tmp_path / "out")
    monkeypatch.setattr("eval_factory.workflows.resume.git_hash", lambda _: "abc123")
    made = plan({"config.output_dir": str(rundir.root)})
    screen = io.StringIO()
    state = read_last_run_state(rundir)
    assert state is not None
    ran = FinishedRun((rundir.root / state.runs[0],), state.run_id, state.wall_s)
    kept = workflow.unchanged_evaluation(context(rundir, screen), made, ran)
    assert kept is not None
    assert kept.summary.splitlines()[0].startswith("pubmed_qa: exact_match = 0.5000")
    says(screen.getvalue(), "its result stands", "--fresh")
    rundir.results_yml.write_text("edited")
    assert workflow.unchanged_evaluation(context(rundir, screen), made, ran) is None
    assert "collecting its results again" in screen.getvalue()


@pytest.mark.parametrize("only_collect", [True, False])
def test_who_only_collects_asks_nobody(
    *, only_collect: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are answers forgotten; the configuration is not read again where it is known."""

    class Asks(Exception):
        pass

    def ask(*_: object, **__: object) -> None:
        raise Asks

    monkeypatch.setattr(workflow, "look_for_prerequisites", lambda *_: None)
    monkeypatch.setattr(workflow, "raise_fd_limit", ask)
    known = plan({"config.output_dir": str(tmp_path / "out")}).evaluation
    with pytest.raises(PrerequisiteError if only_collect else Asks) as caught:
        workflow.evaluate(
            RunRequest(),
            Options(only_collect=only_collect),
            env={"OPENAI_API_KEY": "a-key-of-some-length"},
            screen=io.StringIO(),
            evaluation=known,
        )
    assert ("add --fresh" in str(caught.value)) is only_collect


KEY = "plain-looking-key-77"


def test_a_launch_says_what_will_be_run_and_where_and_tells_no_key(tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path / "out"), "config.params.limit_samples": 7})
    redactor = Redactor()
    redactor.learn(KEY)
    record = launch_record(
        replace(context(here.rundir), redactor=redactor), here, ["helm-run", "--suite", f"a {KEY}"]
    )
    assert KEY not in json.dumps(record)
    assert list(record)[:2] == ["event", "eval_factory"]
    assert record["config"]["params"] == {"limit_samples": 7}
    assert record["target"]["api_endpoint"]["model_id"] == here.model.model_id
    expected = {
        "event": "launch",
        "task": "pubmed_qa",
        "model": here.model.model_id,
        "limit_samples": 7,
        "url": here.model.url,
        "judges": {},
        "output_dir": str(tmp_path / "out"),
        "run_identity": here.identity,
        "command": f"helm-run --suite 'a {REDACTED}'",
    }
    assert {name: record[name] for name in expected} == expected
