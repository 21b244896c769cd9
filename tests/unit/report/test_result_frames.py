"""How a result looks in a line and as a data frame."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.report import reader
from eval_factory.report.reader import (
    INSTANCE_COLUMNS,
    SCORE_COLUMNS,
    StoredResult,
    data_frame,
    instance_table,
    scores_frame,
)
from eval_factory.workflows.evaluated import Evaluated
from facts import says
from stored_results import PROVENANCE, instance, result


def both(made: TaskResult, folder: Path = Path("results/x")) -> tuple[Evaluated, StoredResult]:
    return Evaluated(made, RunDir(folder), "summary", None), StoredResult(
        made, folder, "helm-run", {}, {}
    )


def test_a_line_which_is_one_and_short_whatever_others_wrote() -> None:
    made = result([instance("q0", 1.0)])
    run, stored = both(made)
    says(repr(run), "Evaluated pubmed_qa", "exact_match = 0.5000", "4 instances", "results/x>")
    says(
        repr(stored), "StoredResult pubmed_qa", "exact_match = 0.5000", "4 instances", "results/x>"
    )
    (refused, _) = both(replace(made, reportable=False))
    told = repr(refused)
    says(told, "Evaluated pubmed_qa: not reportable", "1 of 1 instances", "results/x>")
    made = result([instance("q0", 1.0)], task="a\x1b[2J\nb" * 1000, provenance=PROVENANCE)
    for record in both(made):
        assert repr(record).isprintable()
        assert len(repr(record)) < 600


def test_frames() -> None:
    made = result([instance("q0", 1.0)])
    for record in both(made):
        assert record.to_frame().equals(scores_frame(made))
        assert record.to_frame(instances=True).equals(data_frame(*instance_table(made)))
        assert record.instances_frame().equals(data_frame(*instance_table(made)))
        assert record.folder == Path("results/x")


def types_of(found: Any) -> dict[str, str]:
    """Without where pandas keeps its texts."""
    return {name: str(kind).partition("[")[0] for name, kind in found.dtypes.items()}


def missing_as_none(found: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        found.astype("object").where(found.notna(), None).to_dict("records")
    )
    return rows


def scored() -> TaskResult:
    made = result([instance("q0", 1.0)], ("exact_match", "f1@valid"))
    main = made.scores["exact_match"]
    stats = replace(
        main.stats, count=4, ci_low=0.25, ci_high=0.75, stderr=0.125, ci_method="wilson"
    )
    full = replace(
        main, value=0.5, stats=stats, perturbation="typos", higher_is_better=True, unit="share"
    )
    validity = replace(made.validity, bounds={"exact_match": (0.1, 0.9)})
    return replace(
        made, scores={**made.scores, "exact_match": full}, validity=validity, reportable=False
    )


def test_a_row_a_score() -> None:
    found = scores_frame(scored())
    assert list(found.columns) == list(SCORE_COLUMNS)
    assert types_of(found) == dict(SCORE_COLUMNS)
    assert missing_as_none(found) == [
        {
            "task": "pubmed_qa",
            "model": "org/model",
            "metric": "exact_match",
            "main": True,
            "value": 0.5,
            "ci_low": 0.25,
            "ci_high": 0.75,
            "n": 4,
            "stderr": 0.125,
            "ci_method": "wilson",
            "split": "test",
            "perturbation": "typos",
            "higher_is_better": True,
            "unit": "share",
            "bound_low": 0.1,
            "bound_high": 0.9,
            "reportable": False,
        },
        {
            "task": "pubmed_qa",
            "model": "org/model",
            "metric": "f1@valid",
            "main": False,
            "value": 0.5,
            "ci_low": None,
            "ci_high": None,
            "n": 4,
            "stderr": None,
            "ci_method": None,
            "split": "valid",
            "perturbation": None,
            "higher_is_better": None,
            "unit": None,
            "bound_low": None,
            "bound_high": None,
            "reportable": False,
        },
    ]


def test_no_score_or_instance_is_no_row_of_the_same_types() -> None:
    found = scores_frame(replace(scored(), scores={}))
    assert len(found) == 0
    assert types_of(found) == dict(SCORE_COLUMNS)
    found = data_frame(*instance_table(result([], ("exact_match", "f1"))))
    assert len(found) == 0
    assert types_of(found) == {**INSTANCE_COLUMNS, "exact_match": "float64"}
    assert types_of(data_frame(*instance_table(replace(result([], ("f1",)), scores={})))) == dict(
        INSTANCE_COLUMNS
    )
    found = data_frame(*instance_table(result([instance("q0", 1.0)], ("exact_match@valid",))))
    assert list(found.columns)[len(INSTANCE_COLUMNS) :] == ["exact_match"]


def test_a_row_an_instance() -> None:
    first = instance(
        "q0",
        1.0,
        split="valid",
        sub_split="long",
        trial=2,
        perturbation="typos",
        reasoning="because",
        cached=True,
        unjudged=True,
        cluster="c1",
        signs=("refused",),
        judges={"gpt": 4.0},
        categories={"field": "x"},
        latency_s=1.5,
        prompt_tokens=7,
        completion_tokens=3,
    )
    second = instance(
        "q1",
        None,
        finish_reason=None,
        prompt_tokens=None,
        completion_tokens=None,
        latency_s=None,
        categories={"level": 3},
    )
    found = data_frame(*instance_table(result([first, second])))
    last = {
        "exact_match": "float64",
        "judge.gpt": "float64",
        "extra.field": "object",
        "extra.level": "object",
    }
    assert types_of(found) == {**INSTANCE_COLUMNS, **last}
    answered, failed = missing_as_none(found)
    assert answered == {
        "id": "q0",
        "split": "valid",
        "sub_split": "long",
        "trial": 2,
        "perturbation": "typos",
        "prompt": "What is q0?",
        "references": first.references,
        "completion": "answer to q0",
        "reasoning": "because",
        "finish_reason": "stop",
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "latency_s": 1.5,
        "cached": True,
        "error": None,
        "unjudged": True,
        "cluster": "c1",
        "signs": ("refused",),
        "exact_match": 1.0,
        "judge.gpt": 4.0,
        "extra.field": "x",
        "extra.level": None,
    }
    assert failed == {
        "id": "q1",
        "split": "test",
        "sub_split": None,
        "trial": 0,
        "perturbation": None,
        "prompt": "What is q1?",
        "references": second.references,
        "completion": None,
        "reasoning": None,
        "finish_reason": None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "latency_s": None,
        "cached": False,
        "error": "HTTP 500",
        "unjudged": False,
        "cluster": None,
        "signs": (),
        "exact_match": None,
        "judge.gpt": None,
        "extra.field": None,
        "extra.level": 3,
    }


def test_a_metric_of_another_columns_name_takes_nothing_from_it() -> None:
    record = instance(
        "q0",
        None,
        metrics={"id": 0.5, "judge.gpt": 0.25, "extra.x": 0.125},
        judges={"gpt": 3.0},
        categories={"x": "y"},
    )
    (row,) = data_frame(*instance_table(result([record]))).to_dict("records")
    assert (row["id"], row["metric.id"]) == ("q0", 0.5)
    assert (row["judge.gpt"], row["metric.judge.gpt"]) == (3.0, 0.25)
    assert (row["extra.x"], row["metric.extra.x"]) == ("y", 0.125)


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PrerequisiteError, match="pip install pandas"):
        reader.data_frame({}, [])
