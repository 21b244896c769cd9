from __future__ import annotations

import pytest

from eval_factory.helm.judge_output import SCALE
from eval_factory.helm.metric_facts import OF_JURIES, OVERLAP, RATING, SHARE, UNKNOWN, facts_of
from eval_factory.tasks.custom_benchmark import METRICS
from eval_factory.tasks.framework import Task, load_framework

TASKS = [task for task in load_framework().evaluations if task.name != "custom"]  # its benchmark names its own


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_tasks_main_metric_is_known(task: Task) -> None:
    assert task.helm.main_metric is not None
    known = facts_of(task.helm.main_metric)
    assert (known.higher_is_better, known.scale is None, known.unit is None) == (True, False, False)


def test_a_jurys_metrics_are_the_ratings() -> None:
    """HELM calls them accuracies."""
    assert {task.helm.main_metric for task in TASKS if task.helm.judges and not task.helm.rubric} <= set(OF_JURIES)
    assert {facts_of(name) for name in OF_JURIES} == {RATING}
    assert RATING.scale == (1, 5)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_of_a_custom_benchmark_is_known(name: str) -> None:
    assert facts_of(name).higher_is_better is True


@pytest.mark.parametrize(
    "name",
    [
        "exact_match@5", "quasi_prefix_exact_match@5", "medec_error_sentence_accuracy", "ehr_sql_query_validity",
        "ehr_sql_precision_answerable", "mimiciv_billing_code_recall", "math_equiv",
        "medcalc_bench_accuracy.corrected", "exact_match.lenient",
    ],
)  # fmt: skip
def test_shares(name: str) -> None:
    assert facts_of(name) is SHARE
    assert (SHARE.higher_is_better, SHARE.scale, SHARE.unit) == (True, (0, 1), "share")


@pytest.mark.parametrize("ending", [".helm", ".all_judges"])
def test_a_jurys_other_scores_are_ratings_too(ending: str) -> None:
    assert facts_of(f"med_dialog_accuracy{ending}") is RATING


def test_a_metric_that_is_not_in_the_table_is_unknown() -> None:
    for name in ("surprise", "exact_match@6", "my_exact_match", "exact_match.surprise", ".helm"):
        assert facts_of(name) is UNKNOWN
        assert facts_of(name, (0, 1)) is UNKNOWN
    assert (UNKNOWN.higher_is_better, UNKNOWN.scale, UNKNOWN.unit) == (None, None, None)


def test_a_jury_of_any_name_is_told_by_its_scale() -> None:
    assert facts_of("surprise", SCALE) is RATING
    assert facts_of("rouge_l", SCALE) is OVERLAP


@pytest.mark.parametrize(
    ("name", "direction", "scale", "unit"),
    [
        ("wer_score", False, None, "errors per word"),
        ("BERTScore-F", True, None, "similarity"),
        ("summarization_coverage", None, (0, 1), "share"),
        ("summarization_density", None, None, "words"),
        ("summarization_compression", None, None, "ratio"),
        ("ehr_sql_total_predicted_answerable", None, (0, 1), "share"),
        ("mimiciv_billing_code_f1", True, (0, 1), "F1"),
        ("f1_score", True, (0, 1), "overlap"),
    ],
)
def test_others(name: str, direction: bool | None, scale: tuple[int, int] | None, unit: str) -> None:
    known = facts_of(name)
    assert (known.higher_is_better, known.scale, known.unit) == (direction, scale, unit)
