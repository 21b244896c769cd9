from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from builders import MINIMAL
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.resolved import Evaluation
from eval_factory.config.suite_model import SlurmSection
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from suites import suite, target

FRAMEWORK = load_framework()
USUAL = FRAMEWORK.defaults.suite["slurm"]


def of(
    document: dict[str, Any], flags: dict[str, Any] | None = None, *overrides: str
) -> Evaluation:
    request = RunRequest(document=document, flags={**MINIMAL, **(flags or {})}, overrides=overrides)
    return build_evaluation(request, FRAMEWORK, {"LAB": "x1"})


def test_the_strongest_layer_counts_key_by_key() -> None:
    document = {
        "executor": "local",
        "slurm": {"account": "${LAB}", "cpus": 2, "mem": "1G", "qos": None},
    }
    found = of(document, {"executor": "slurm"}, "slurm.cpus=4,slurm.qos=long").executor
    assert not found.is_local
    assert found.slurm == {**USUAL, "account": "x1", "cpus": 4, "mem": "1G", "qos": "long"}
    assert of({"executor": "slurm"}, {}, "executor=local").executor.is_local
    assert not of({"executor": "slurm"}, {}, "executor=null").executor.is_local


def test_it_is_no_part_of_what_is_evaluated() -> None:
    plain = of({})
    there = of({"executor": "slurm", "slurm": {"cpus": 4}})
    assert there.as_dict() == plain.as_dict()
    assert there.as_given() == plain.as_given()
    assert there.sources == plain.sources
    assert make_plan(there).identity == make_plan(plain).identity


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"executor": "slrm"}, "run config: executor: must be 'local' or 'slurm', got 'slrm'"),
        (
            {"slurm": {"acount": "x"}},
            "run config: unknown key slurm.acount, did you mean 'account'?",
        ),
        ({"slurm": {"nodes": 2}}, "known here: account, container, cpus"),
        (
            {"slurm": {"prologue": ["export K=sk-proj-abcdefghijklmnopqrstuvwx0123"]}},
            "slurm.prologue[0]: holds what",
        ),
        ({"slurm": ["x"]}, "slurm: must be"),
        ({"exectuor": "slurm"}, "did you mean 'executor'?"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(document)
    assert problem in str(caught.value)
    assert len(caught.value.problems) == 1
    assert "abcdefgh" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"--overrides: slurm\.cpus: must be"):
        of({}, {}, "slurm.cpus=0")


NOTHING_SAID: dict[str, Any] = {
    "account": None,
    "partition": None,
    "qos": None,
    "time": None,
    "cpus": 1,
    "mem": None,
    "gpus": None,
    "extra": [],
    "prologue": [],
    "container": None,
    "python": None,
    "tasks_at_once": 1,
}


def test_a_target_stands_over_the_suite_key_by_key() -> None:
    assert (suite().executor, suite().slurm) == (
        "local",
        {"small": NOTHING_SAID, "big": NOTHING_SAID},
    )
    own = target("big", slurm={"gpus": "a100:2", "time": "1-12:00", "account": None})
    found = suite(
        executor="slurm",
        slurm={"account": "lab", "time": 30, "mem": "8G"},
        targets=[target("small"), own],
    )
    usual = {**NOTHING_SAID, "account": "lab", "time": 30, "mem": "8G"}
    assert found.executor == "slurm"
    assert found.slurm == {"small": usual, "big": {**usual, "time": "1-12:00", "gpus": "a100:2"}}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"acount": "x"}, "unknown key suite.slurm.acount, did you mean 'account'?"),
        ({"account": "a b"}, "suite.slurm.account: must be one word that Slurm accepts"),
        ({"partition": "-p"}, "suite.slurm.partition: must be one word"),
        ({"time": 1.5}, "suite.slurm.time: must be text (put it in quotes)"),
        ({"mem": "8 --export=ALL"}, "suite.slurm.mem: must be one word"),
        ({"cpus": 0}, "suite.slurm.cpus"),
        ({"tasks_at_once": 0}, "suite.slurm.tasks_at_once"),
        (
            {"extra": ["--array=3"]},
            "suite.slurm.extra[0]: --array is not allowed here: eval-factory sets it itself",
        ),
        (
            {"extra": ["--exclusive", "--mem=3G"]},
            "suite.slurm.extra[1]: --mem is not allowed here: write it as `mem`",
        ),
        (
            {"extra": ["-p gpu"]},
            "suite.slurm.extra[0]: must be one option of sbatch in its long form",
        ),
        (
            {"extra": ["--comment=a --export=ALL"]},
            "suite.slurm.extra[0]: has a space: give each option an entry",
        ),
        ({"extra": ["--comment='a"]}, "suite.slurm.extra[0]: has a quote that does not end"),
        ({"extra": ["--comment=a\n--wrap=b"]}, "suite.slurm.extra[0]"),
        ({"prologue": ["a\nb"]}, "suite.slurm.prologue[0]"),
        (
            {"prologue": ["export K=sk-abcdefghijklmnop1234567890"]},
            "suite.slurm.prologue[0]: holds what looks like",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_is_wrong_in_a_suite_is_said(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        suite(slurm=said)
    assert any(problem in text for text in caught.value.problems), caught.value.problems
    assert "abcdefghijklmnop" not in str(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        *({"time": time} for time in ("30", "2:30", "2:00:00", "1-12", "1-12:00", "1-12:00:00")),
        {"extra": ['--comment="a night run"', "--constraint='a|b'", "--exclusive"]},
    ],
)
def test_what_slurm_takes_is_taken_and_makes_no_other_run(said: dict[str, Any]) -> None:
    there = suite(
        executor="slurm", slurm={"cpus": 4}, targets=[target("small"), target("big", slurm=said)]
    )
    assert there.slurm["big"] == {**NOTHING_SAID, "cpus": 4, **said}
    assert [cell.document for cell in there.cells] == [cell.document for cell in suite().cells]


def test_memory_and_time_may_be_numbers() -> None:
    """Slurm reads a time of 60 as minutes; `1:30:00` stays a text where a file is read."""
    section = SlurmSection.model_validate({"mem": 500, "time": 60})
    assert (section.mem, section.time) == ("500", "60")
    with pytest.raises(ValidationError):
        SlurmSection.model_validate({"mem": True})
