from __future__ import annotations

import pytest

from eval_factory.helm.metric_facts import (
    _RATING,
    JURY_METRICS,
    NONE,
    OVERLAP,
    chosen_main_metric,
    is_score,
    metric_facts_of,
)
from eval_factory.tasks.custom_benchmark import METRICS
from eval_factory.tasks.framework import HelmEntry, load_framework
from eval_factory.tasks.jury_form import HELMS_JURY_FORM
from facts import says

# its benchmark names its own
TASKS = [task for task in load_framework().evaluations if task.name != "custom"]


def test_every_tasks_main_metric_is_known() -> None:
    facts = {task.name: metric_facts_of(task.helm.main_metric or "") for task in TASKS}
    assert [
        name for name, of in facts.items() if not of.higher_is_better or None in (of.scale, of.unit)
    ] == []
    assert {metric_facts_of(name).higher_is_better for name in METRICS} == {True}, (
        "those of a custom benchmark, too"
    )


def test_a_jurys_metrics_are_the_ratings() -> None:
    """HELM calls them accuracies."""
    assert {
        task.helm.main_metric for task in TASKS if task.helm.judges and not task.helm.rubric
    } <= set(JURY_METRICS)
    assert {metric_facts_of(name) for name in JURY_METRICS} == {_RATING}
    assert _RATING.scale == (1, 5)
    assert metric_facts_of("surprise", HELMS_JURY_FORM.scale) is _RATING, (
        "a jury of any name is told by its scale"
    )
    assert (
        metric_facts_of("med_dialog_accuracy.helm")
        is metric_facts_of("med_dialog_accuracy.all_judges")
        is _RATING
    )
    assert metric_facts_of("rouge_l", HELMS_JURY_FORM.scale) is OVERLAP


SHARE = (True, (0, 1), "share")
UNKNOWN = (None, None, None)
KNOWN = {
    **dict.fromkeys(
        (
            "exact_match@5",
            "quasi_prefix_exact_match@5",
            "medec_error_sentence_accuracy",
            "ehr_sql_query_validity",
            "ehr_sql_precision_answerable",
            "mimiciv_billing_code_recall",
            "math_equiv",
            "medcalc_bench_accuracy.corrected",
            "exact_match.lenient",
        ),
        SHARE,
    ),
    **dict.fromkeys(
        ("surprise", "exact_match@6", "my_exact_match", "exact_match.surprise", ".helm"), UNKNOWN
    ),
    "wer_score": (False, None, "errors per word"),
    "BERTScore-F": (True, None, "similarity"),
    "summarization_coverage": (None, (0, 1), "share"),
    "summarization_density": (None, None, "words"),
    "summarization_compression": (None, None, "ratio"),
    "ehr_sql_total_predicted_answerable": (None, (0, 1), "share"),
    "mimiciv_billing_code_f1": (True, (0, 1), "F1"),
    "f1_score": (True, (0, 1), "overlap"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_facts(name: str) -> None:
    for scale in (None, (0, 1)):
        known = metric_facts_of(name, scale)
        assert (known.higher_is_better, known.scale, known.unit) == KNOWN[name]


def test_what_says_something_of_the_answers() -> None:
    scores = {"exact_match", "rouge_l", "number_of_errors", "prompt_truncated_twice"}
    others = {
        "num_output_tokens",
        "finish_reason_stop",
        "inference_runtime",
        "training_co2_cost",
        "batch_size",
        "max_prob",
        "logprob_per_byte",
        "predicted_index",
        "prompt_truncated",
        "perplexity",
        "bits_per_byte",
    }
    assert set(filter(is_score, scores | others)) == scores


def chosen(labels: list[str], *declared: str, ours: bool = False) -> tuple[str, list[str]]:
    first = declared[0] if declared else None
    entry = HelmEntry(
        run_spec="x", scenario="x", main_metric=first, main_metrics=declared, is_run_entry=not ours
    )
    return chosen_main_metric(entry, labels)


def test_the_declared_one_is_the_main_metric() -> None:
    assert chosen(["exact_match"], "a", ours=True) == ("a", []), "of a task of ours computed or not"
    assert chosen(["exact_match", "a"], "b", "a") == ("a", [])
    assert chosen(["RR@10"], "RR@10") == ("RR@10", [])


def test_else_the_first_usual_one_and_else_the_first_of_the_main_split() -> None:
    main, (note,) = chosen(["odd", "rouge_l", "f1_score", "exact_match@valid"])
    assert main == "f1_score"
    says(note, "HELM names none", "chose f1_score")
    main, (note,) = chosen(["exact_match"], "gone")
    assert main == "exact_match"
    says(note, "HELM names gone")
    assert chosen(["odd@valid", "odd", "other"])[0] == "odd"
    assert chosen(["NDCG@10@valid", "odd@valid", "NDCG@10", "odd"])[0] == "NDCG@10"
    main, (note,) = chosen([], "a")
    assert main == NONE
    assert "nothing is reportable" in note
