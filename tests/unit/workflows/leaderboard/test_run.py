"""Which failures are for want of data, and what changes a run's identity."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.core.errors import HelmError
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.helm.standalone import standalone_judges, standalone_model
from eval_factory.plan.run_plan import slug_of
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.leaderboard import finished_runs
from eval_factory.workflows.leaderboard.finished_runs import Gaps
from eval_factory.workflows.leaderboard.outcome import Failure, failures_in
from eval_factory.workflows.leaderboard.run import SUMMARIZE_TRIES, summarize

MODEL = standalone_model(load_framework(), url="https://h/v1", model_id="m")


FAKE = """
import pathlib, sys
tries = pathlib.Path(sys.argv[1])
tries.write_text(tries.read_text() + "x")
print("try", len(tries.read_text()))
sys.exit(1 if len(tries.read_text()) <= int(sys.argv[2]) else 0)
"""


@pytest.mark.parametrize(("deaths", "tries"), [(0, 1), (1, 2), (2, 2)])
def test_helm_summarize_is_tried_once_more(deaths: int, tries: int, tmp_path: Path) -> None:
    counter, rundir = tmp_path / "tries", RunDir(tmp_path / "out")
    rundir.create()
    counter.write_text("")
    job: Any = SimpleNamespace(
        rundir=rundir, summarize_command=lambda: [sys.executable, "-c", FAKE, str(counter), str(deaths)]
    )

    def run() -> None:
        with rundir.locked() as lock:
            summarize(job, lock, dict(os.environ), Redactor([]), logging.getLogger("test"))

    if deaths < SUMMARIZE_TRIES:
        run()
    else:
        with pytest.raises(HelmError, match=r"helm-summarize ended with 1:\n  \| try 2\n") as caught:
            run()
        assert str(rundir.summarize_log) in str(caught.value)
    assert counter.read_text() == "x" * tries


def test_failures() -> None:
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


def test_identity() -> None:
    def identity(conf: str = "c", instances: int = 5, **changes: object) -> str:
        return finished_runs.identity_of(
            conf,
            [replace(MODEL, **changes)],  # type: ignore[arg-type]
            max_eval_instances=instances,
            num_train_trials=1,
        )

    assert identity() == identity(parallelism=99, key_names=("X",))
    assert len({identity(), identity("d"), identity(instances=6), identity(url="https://other/v1")}) == 4


def test_edited_data_are_other_runs(tmp_path: Path) -> None:
    def identity() -> str:
        return finished_runs.identity_of(
            "c", [MODEL], max_eval_instances=5, num_train_trials=1, data_paths=[str(tmp_path)]
        )

    (tmp_path / "own.csv").write_text("a")
    before = identity()
    assert identity() == before
    (tmp_path / "own.csv").write_text("ab")
    assert identity() != before


def test_coverage() -> None:
    assert Gaps("r", 10, 1, 2).coverage == 0.7
    assert Gaps("r", 10, 0, 0).coverage == 1.0
    assert not Gaps("r", 10, 0, 0)
    assert Gaps("r", 0, 0, 0).coverage == 0.0


def test_a_standalone_model_is_named_by_its_alias() -> None:
    framework = load_framework()
    named = standalone_model(framework, url="https://h/v1", model_id="m", alias="org/name")
    assert (named.model_id, named.slug, MODEL.slug) == ("m", slug_of("org/name"), "m")
    assert [judge.alias for judge in standalone_judges(framework, named)] == ["org/name"] * 3
    assert standalone_model(framework, url="https://h/v1", model_id="m", key_name="X").key_names == ("X",)


def test_helms_judges_have_helms_names_and_keys_of_their_own() -> None:
    framework = load_framework()
    (judge,) = standalone_judges(framework, MODEL, {"gpt": "openai/gpt-4o-2024-05-13"})
    assert (judge.role, judge.helm_name, judge.url) == ("gpt", "openai/gpt-4o-2024-05-13", "https://h/v1")
    assert judge.key_names == ("GPT_JUDGE_API_KEY", "OPENAI_API_KEY")
    demo = standalone_model(framework, url="demo://baseline", model_id="m", key_name="X")
    assert demo.key_names == ()
    assert [j.key_names for j in standalone_judges(framework, demo)] == [(), (), ()]
