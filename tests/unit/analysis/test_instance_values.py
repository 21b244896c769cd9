"""Instances of a score's split and perturbation: values over trials, failures, prompts, clusters."""

from __future__ import annotations

from eval_factory.analysis.instance_values import values_of
from eval_factory.core.results import Score
from stored_results import instance, result


def score(label: str = "exact_match") -> Score:
    return result([], [label]).scores[label]


def test_values_are_means_over_trials() -> None:
    found = values_of([instance("a", 1.0), instance("a", 0.0, trial=1), instance("b", 1.0)], score())
    assert found.values == {"a": 0.5, "b": 1.0}
    assert (found.failed, found.unscored, found.clusters) == (set(), set(), {})
    assert found.keys == {"a", "b"}


def test_an_instance_that_failed_in_one_trial_has_no_value() -> None:
    records = [instance("a", 1.0), instance("a", None, trial=1), instance("b", None), instance("c", 1.0)]
    found = values_of(records, score())
    assert (found.values, found.failed, found.unscored) == ({"c": 1.0}, {"a", "b"}, set())
    assert found.keys == {"a", "b", "c"}


def test_an_error_is_a_failure_even_with_a_value() -> None:
    found = values_of([instance("a", 0.0, error="HTTP 500")], score())
    assert (found.values, found.failed, found.unscored) == ({}, {"a"}, set())


def test_what_was_answered_and_the_metric_says_nothing_of_is_told_apart() -> None:
    records = [
        instance("a", 1.0, metric="other"),
        instance("b", 1.0, metric="other", unjudged=True),
        instance("c", 1.0, metric="other"),
        instance("c", None, trial=1),
    ]
    found = values_of(records, score())
    assert (found.failed, found.unscored) == ({"a", "b", "c"}, {"a"})


def test_other_splits_and_perturbations_are_other_scores() -> None:
    records = [
        instance("a", 1.0),
        instance("b", 1.0, split="valid"),
        instance("a", 0.0, perturbation="typos"),
        instance("n", 0.0, split=""),
    ]
    assert values_of(records, score()).values == {"a": 1.0}
    assert values_of(records, score("exact_match@valid")).values == {"b": 1.0}
    typos = Score(0.0, score().stats, "exact_match", "test", "typos")
    assert values_of(records, typos).values == {"a": 0.0}
    assert values_of(records, Score(0.0, score().stats, "exact_match")).values == {"n": 0.0}


def test_prompts_of_all_trials_are_known_by_their_hash() -> None:
    one = values_of([instance("a", 1.0), instance("a", 1.0, trial=1, prompt="x\udc80")], score())
    turned = values_of([instance("a", 1.0, prompt="x\udc80"), instance("a", 1.0, trial=1)], score())
    other = values_of([instance("a", 1.0), instance("a", 1.0, trial=1, prompt="y")], score())
    assert one.prompts == turned.prompts != other.prompts
    assert len(one.prompts["a"]) == 16


def test_clusters_are_kept_where_they_are_declared() -> None:
    records = [instance("a", 1.0, cluster="note 1"), instance("b", 1.0)]
    assert values_of(records, score()).clusters == {"a": "note 1"}
