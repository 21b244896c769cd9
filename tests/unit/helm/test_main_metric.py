"""Which metric is the main one, and what is said of the choice."""

from __future__ import annotations

from eval_factory.helm.metric_facts import NONE, USUAL_MAIN_METRICS, chosen_main_metric
from eval_factory.tasks.framework import HelmEntry


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


def test_the_list_names_each_once() -> None:
    assert len(set(USUAL_MAIN_METRICS)) == len(USUAL_MAIN_METRICS)
