from __future__ import annotations

import pytest

from eval_factory.helm.judge_output import HELMS_SCALE
from eval_factory.helm.metric_facts import (
    _RATING,
    _SHARE,
    _UNKNOWN,
    NONE,
    OF_JURIES,
    OVERLAP,
    chosen_main_metric,
    facts_of,
    is_score,
)
from eval_factory.tasks.custom_benchmark import METRICS
from eval_factory.tasks.framework import HelmEntry, load_framework

TASKS = [task for task in load_framework().evaluations if task.name != "custom"]  # its benchmark names its own


def test_every_tasks_main_metric_is_known() -> None:
    facts = {task.name: facts_of(task.helm.main_metric or "") for task in TASKS}
    assert [name for name, of in facts.items() if not of.higher_is_better or None in (of.scale, of.unit)] == []


def test_a_jurys_metrics_are_the_ratings() -> None:
    """HELM calls them accuracies."""
    assert {task.helm.main_metric for task in TASKS if task.helm.judges and not task.helm.rubric} <= set(OF_JURIES)
    assert {facts_of(name) for name in OF_JURIES} == {_RATING}
    assert _RATING.scale == (1, 5)


def test_every_metric_of_a_custom_benchmark_is_known() -> None:
    assert {facts_of(name).higher_is_better for name in METRICS} == {True}


@pytest.mark.parametrize("name", [
    "exact_match@5", "quasi_prefix_exact_match@5", "medec_error_sentence_accuracy", "ehr_sql_query_validity",
    "ehr_sql_precision_answerable", "mimiciv_billing_code_recall", "math_equiv", "medcalc_bench_accuracy.corrected",
    "exact_match.lenient",
])  # fmt: skip
def test_shares(name: str) -> None:
    assert facts_of(name) is _SHARE
    assert (_SHARE.higher_is_better, _SHARE.scale, _SHARE.unit) == (True, (0, 1), "share")


def test_a_metric_that_is_not_in_the_table_is_unknown() -> None:
    for name in ("surprise", "exact_match@6", "my_exact_match", "exact_match.surprise", ".helm"):
        assert facts_of(name) is _UNKNOWN
        assert facts_of(name, (0, 1)) is _UNKNOWN
    assert (_UNKNOWN.higher_is_better, _UNKNOWN.scale, _UNKNOWN.unit) == (None, None, None)


def test_a_jury_of_any_name_is_told_by_its_scale() -> None:
    assert facts_of("surprise", HELMS_SCALE) is _RATING
    assert facts_of("med_dialog_accuracy.helm") is facts_of("med_dialog_accuracy.all_judges") is _RATING
    assert facts_of("rouge_l", HELMS_SCALE) is OVERLAP


@pytest.mark.parametrize(("name", "direction", "scale", "unit"), [
    ("wer_score", False, None, "errors per word"), ("BERTScore-F", True, None, "similarity"),
    ("summarization_coverage", None, (0, 1), "share"), ("summarization_density", None, None, "words"),
    ("summarization_compression", None, None, "ratio"), ("ehr_sql_total_predicted_answerable", None, (0, 1), "share"),
    ("mimiciv_billing_code_f1", True, (0, 1), "F1"), ("f1_score", True, (0, 1), "overlap"),
])  # fmt: skip
def test_others(name: str, direction: bool | None, scale: tuple[int, int] | None, unit: str) -> None:
    known = facts_of(name)
    assert (known.higher_is_better, known.scale, known.unit) == (direction, scale, unit)


@pytest.mark.parametrize(("name", "expected"), [
    *((name, True) for name in ("exact_match", "rouge_l", "number_of_errors", "prompt_truncated_twice")),
    *(
        (name, False)
        for name in (
            "num_output_tokens", "finish_reason_stop", "inference_runtime", "training_co2_cost", "batch_size",
            "max_prob", "logprob_per_byte", "predicted_index", "prompt_truncated", "perplexity", "bits_per_byte",
        )
    ),
])  # fmt: skip
def test_what_says_something_of_the_answers(name: str, expected: bool) -> None:
    assert is_score(name) is expected


def entry(*main_metrics: str, any_run_spec: bool = True) -> HelmEntry:
    first = main_metrics[0] if main_metrics else None
    return HelmEntry(
        run_spec="x", scenario="x", main_metric=first, main_metrics=main_metrics, any_run_spec=any_run_spec
    )


def test_a_task_of_ours_has_the_one_it_declares_computed_or_not() -> None:
    assert chosen_main_metric(entry("a", any_run_spec=False), ["exact_match"]) == ("a", [])


def test_helms_own() -> None:
    assert chosen_main_metric(entry("b", "a"), ["exact_match", "a"]) == ("a", [])
    assert chosen_main_metric(entry("RR@10"), ["RR@10"]) == ("RR@10", [])


def test_the_first_usual_one() -> None:
    main, (note,) = chosen_main_metric(entry(), ["odd", "rouge_l", "f1_score", "exact_match@valid"])
    assert main == "f1_score"
    assert "HELM names none; f1_score was taken" in note
    main, (note,) = chosen_main_metric(entry("gone"), ["exact_match"])
    assert main == "exact_match"
    assert "HELM names gone, which this run does not hold" in note


def test_else_the_first_of_the_main_split() -> None:
    assert chosen_main_metric(entry(), ["odd@valid", "odd", "other"])[0] == "odd"
    assert chosen_main_metric(entry(), ["NDCG@10@valid", "odd@valid", "NDCG@10", "odd"])[0] == "NDCG@10"


def test_none() -> None:
    main, (note,) = chosen_main_metric(entry("a"), [])
    assert main == NONE
    assert "nothing is reportable" in note
