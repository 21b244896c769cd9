"""The values that HELM's metrics gave to instances -> scores: HELM's means to the last digit, intervals, bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.core.results import Score, Stats
from eval_factory.helm import names, output
from eval_factory.scoring.jury import missing_instances
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    bounds_of,
    helm_mean,
    metric_values_of,
    score_of,
)
from known import ends, near, there
from unit.scoring.test_collect import state, write_run


def values_of(
    folder: Path, values: dict[str, list[float | None]], **more: Any
) -> dict[str, MetricValues]:
    states = [state(number, "yes", split="valid" if number == 3 else "test") for number in range(4)]
    write_run(folder / "run", states, values, **more)
    return {
        metric.label: metric for metric in metric_values_of(output.read_run(folder / "run"), "test")
    }


def test_each_metric_in_each_split_has_its_instances_values(tmp_path: Path) -> None:
    found = values_of(tmp_path, {"em": [1.0, None, 0.0, 0.25], "f1": [None, 0.5, None, None]})
    assert {label: metric.values for label, metric in found.items()} == {
        "em": {key(0): 1.0, key(2): 0.0},
        "em@valid": {key(3): 0.25},
        "f1": {key(1): 0.5},
    }
    assert {
        label: (metric.name, metric.split, metric.helm_mean) for label, metric in found.items()
    } == {
        "em": ("em", "test", 0.5),
        "em@valid": ("em", "valid", 0.25),
        "f1": ("f1", "test", 0.5),
    }
    assert all(metric.helm_mean is not None for metric in found.values())


def test_a_score_says_what_it_is_of() -> None:
    stats = Stats.without_interval(1, 0.5)
    metric = MetricValues("em@valid+typos", "em", None, split="valid", perturbation="typos")
    assert metric.make_score(0.5, stats) == Score(0.5, stats, "em", "valid", "typos")


def test_worst_cases_count_where_something_was_perturbed(tmp_path: Path) -> None:
    """Without, HELM writes them all the same, and they repeat the plain scores."""
    for found in (
        values_of(tmp_path / str(one), {"exact_match": [1.0] * 4}, perturbation=one)
        for one in (None, TYPOS)
    ):
        perturbed = "typos" in {metric.perturbation for metric in found.values()}
        assert (
            any("robustness" in label for label in found)
            is perturbed
            is ("exact_match@test+typos" in found)
        )


TYPOS = {"name": "typos", "robustness": True}


def perturbed_run(folder: Path) -> dict[str, MetricValues]:
    """Instances a, b and c of values 1, 1 and 0.5; perturbed, a has 0.25, b has 1, and c was not changed."""
    plain = {"a": 1.0, "b": 1.0, "c": 0.5}
    worst = {"name": "typos", "robustness": True, "computed_on": "worst"}
    before = {**worst, "computed_on": "original"}
    families = (("robustness", 1.75 / 3), ("fairness", 2.5 / 3))
    contexts: list[tuple[Any, float]] = [
        (None, 2.5 / 3),
        (TYPOS, 0.625),
        (worst, 0.625),
        (before, 1.0),
        *(({"name": one, one: True, "computed_on": "worst"}, mean) for one, mean in families),
    ]
    documents: dict[str, Any] = {
        "run_spec.json": {"name": "r", "metric_specs": []},
        "stats.json": [
            {"name": {"name": "em", "split": "test", "perturbation": one}, "count": 1, "mean": mean}
            for one, mean in contexts
        ],
        "per_instance_stats.json": [
            {
                "instance_id": id_,
                "perturbation": one,
                "train_trial_index": 0,
                "stats": [
                    {
                        "name": {"name": "em", "split": "test", "perturbation": one},
                        "count": 1,
                        "mean": value,
                    }
                ],
            }
            for id_, value, one in [
                *((id_, value, None) for id_, value in plain.items()),
                ("a", 0.25, TYPOS),
                ("b", 1.0, TYPOS),
            ]
        ],
    }
    folder.mkdir()
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2))
    return {metric.label: metric for metric in metric_values_of(output.read_run(folder), "test")}


def test_a_worst_case_has_the_least_value_of_each_instance(tmp_path: Path) -> None:
    """Of a family, also of an instance that it did not change; the mean is HELM's, with its number and interval.

    A family that was not applied has no score: HELM's value of it repeats the plain one.
    """
    found = perturbed_run(tmp_path / "run")
    values = {label: [*metric.values.values()] for label, metric in found.items()}
    assert values == {
        "em": [1.0, 1.0, 0.5],
        "em@test+typos": [0.25, 1.0],
        "em@test+typos.worst": [0.25, 1.0],
        "em@test+typos.original": [1.0, 1.0],
        "em@test+robustness.worst": [0.25, 1.0, 0.5],
    }
    score = there(score_of(found["em@test+robustness.worst"], set(), failed_as_zero=False))
    assert (score.value, score.stats.count, score.stats.ci_method) == (
        1.75 / 3,
        3,
        "student-t-pseudo-values",
    )


@pytest.mark.parametrize("perturbation", [None, "typos"])
def test_a_worst_case_is_missing_with_any_of_its_parts(
    tmp_path: Path, perturbation: str | None
) -> None:
    """HELM scores an answer that did not come as a wrong one, and takes it for the worst."""
    found = perturbed_run(tmp_path / "run")
    tally = SimpleNamespace(failed={("a", 0, perturbation)}, unscored_cases=set())
    worst = found["em@test+robustness.worst"]
    for as_zero, value in ((False, 0.75), (True, 0.5)):
        missing, _ = missing_instances(
            worst,
            None,
            tally,  # type: ignore[arg-type]
            failed_as_zero=as_zero,
        )
        score = there(score_of(worst, missing, failed_as_zero=as_zero))
        assert (score.value, score.stats.count) == (value, 2 + as_zero)
    before, _ = missing_instances(
        found["em@test+typos.original"],
        None,
        tally,  # type: ignore[arg-type]
        failed_as_zero=False,
    )
    assert (("a", 0, "typos.original") in before) is (perturbation is None)


def test_what_helm_counted_other_than_once_is_known_and_a_worst_case_of_it_has_no_values(
    tmp_path: Path,
) -> None:
    perturbed_run(tmp_path / "run")
    found = rewritten(tmp_path / "run", lambda entries: entries[0]["stats"][0].update(count=4))
    worst = found["em@test+typos.worst"]
    assert (worst.values, worst.helm_mean) == ({}, 0.625)
    assert (found["em"].counts, found["em"].clusters) == ({("a", 0, None): 4}, None)


def rewritten(
    folder: Path, change: Callable[[list[dict[str, Any]]], None]
) -> dict[str, MetricValues]:
    """The metrics of a run whose statistics of instances are changed."""
    file = folder / names.PER_INSTANCE_STATS_FILE
    entries = json.loads(file.read_text())
    change(entries)
    file.write_text(json.dumps(entries, indent=2))
    return {metric.label: metric for metric in metric_values_of(output.read_run(folder), "test")}


def test_parts_of_a_split_that_helm_keeps_apart_are_one_metric(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [state(0, "yes"), state(1, "yes")], {"em": [1.0, 0.0]})
    run = output.read_run(tmp_path / "run")
    (stat,) = [stat for stat in run.stats if stat.name.name == "em"]
    apart = stat.model_copy(update={"name": stat.name.model_copy(update={"sub_split": "easy"})})
    twice = output.HelmRun(run.folder, run.run_spec, [*run.stats, apart])
    (metric,) = [metric for metric in metric_values_of(twice, "test") if metric.name == "em"]
    assert (metric.helm_mean, metric.values) == (None, {key(0): 1.0, key(1): 0.0})


def test_a_value_of_no_known_score_or_without_a_mean_is_left_out(tmp_path: Path) -> None:
    def without_split_and_mean(entries: list[dict[str, Any]]) -> None:
        names = "em", "other"
        entries[0]["stats"] = [{"name": {"name": name}, "count": 1, "mean": 0.25} for name in names]
        entries[1]["stats"] = [{"name": {"name": "em", "split": "test"}, "count": 2}]

    write_run(tmp_path / "run", [state(0, "yes"), state(1, "yes")], {"em": [1.0, 0.5]})
    metrics = rewritten(tmp_path / "run", without_split_and_mean)
    assert {label: (metric.values, metric.counts) for label, metric in metrics.items()} == {
        "em": ({}, {})
    }


def key(number: int, trial: int = 0) -> InstanceKey:
    return (f"id{number}", trial, None)


def context(
    values: dict[InstanceKey, float], *, scale: tuple[float, float] | None = None
) -> MetricValues:
    return MetricValues("m", "m", helm_mean(values), scale=scale, values=values)


def test_trials_of_an_instance_are_one_value_of_the_sample_and_the_mean_is_of_trials_means() -> (
    None
):
    """Two trials of three instances are no six instances: the interval would be too narrow.

    A trial that lost instances weighs as much as a whole one, as in HELM.
    """
    values = {
        key(number, trial): float(number == 0) for number, trial in product(range(3), range(2))
    }
    score = there(score_of(context(values), set(), failed_as_zero=False))
    assert (score.value, score.stats.count) == (near(1 / 3), 3)
    assert helm_mean({key(0, 0): 1.0, key(1, 0): 1.0, key(2, 0): 1.0, key(0, 1): 0.0}) == 0.5


POOLED = MetricValues("f1", "f1", 0.75, values={("id0", 0, None): 1.0, ("id1", 0, None): 0.0})


def test_bounds_are_on_the_scale_of_the_metric_and_of_a_whole_run_helms_value_itself() -> None:
    rated = context({key(0): 4.0, key(1): 2.0}, scale=(1.0, 5.0))
    assert (bounds_of(rated, {key(1)}), bounds_of(replace(rated, scale=None), {key(1)})) == (
        (2.5, 4.5),
        None,
    )
    assert bounds_of(POOLED, set()) == bounds_of(POOLED, {key(9)}) == (0.75, 0.75)


def test_a_metric_that_is_no_mean_has_no_interval_and_is_absent_where_an_instance_is_missing() -> (
    None
):
    """F1 over all instances at once: its instances' values say nothing of how sure it is."""
    score = there(score_of(POOLED, set(), failed_as_zero=False))
    assert (score.value, score.stats) == (0.75, Stats.without_interval(2, 0.75))
    assert (
        score_of(POOLED, {key(1)}, failed_as_zero=False)
        is score_of(POOLED, {key(1)}, failed_as_zero=True)
        is None
    )
    unseen = MetricValues("corpus", "corpus", 0.4)
    assert score_of(unseen, {key(1)}, failed_as_zero=False) is None
    assert there(score_of(unseen, set(), failed_as_zero=False)).value == 0.4


def test_merged_values_are_a_mean_although_helm_has_none() -> None:
    merged = MetricValues("m", "m", None, values={key(0): 1.0, key(1): 0.0})
    score = there(score_of(merged, set(), failed_as_zero=False))
    assert (score.value, score.stats.ci_low is not None) == (0.5, True)


def test_a_missing_instance_leaves_the_score_or_counts_as_zero() -> None:
    values = {key(0): 1.0, key(1): 1.0, key(2): 1.0}
    excluded, zeroed = (
        there(score_of(context(values), {key(2)}, failed_as_zero=zero)) for zero in (False, True)
    )
    assert (excluded.value, excluded.stats.count) == (1.0, 2)
    assert (zeroed.value, zeroed.stats.count) == (near(2 / 3), 3)
    assert score_of(context(values), set(values), failed_as_zero=False) is None


_VALUES = st.dictionaries(
    st.tuples(st.integers(0, 5).map(str), st.integers(0, 2), st.sampled_from([None, "typos"])),
    st.floats(0, 1),
    min_size=1,
)
_SOME_MISSING = _VALUES.flatmap(
    lambda values: st.tuples(st.just(values), st.sets(st.sampled_from(sorted(values, key=str))))
)


@given(_SOME_MISSING)
def test_the_score_lies_within_its_bounds_with_any_instances_missing(
    drawn: tuple[dict[InstanceKey, float], set[InstanceKey]],
) -> None:
    values, missing = drawn
    low, high = there(bounds_of(context(values), missing))
    true_value = helm_mean(values)  # what the missing ones would have been, had they been answered
    assert low - 1e-9 <= true_value <= high + 1e-9
    zeroed = there(score_of(context(values), missing, failed_as_zero=True))
    assert zeroed.value == near(low)
    if not missing:
        assert low == high == true_value


def test_the_spread_between_trials_stands_apart_from_the_sampling_error() -> None:
    """Three trials of two instances: their scores are 1, 0.5 and 0."""
    values = {
        key(0, 0): 1.0,
        key(1, 0): 1.0,
        key(0, 1): 1.0,
        key(1, 1): 0.0,
        key(0, 2): 0.0,
        key(1, 2): 0.0,
    }
    several, once = (
        there(score_of(context(one), set(), failed_as_zero=False)).stats
        for one in (values, {key(0): 1.0, key(1): 0.0})
    )
    assert (several.count, several.trials, several.trial_stddev) == (2, 3, near(0.5))
    assert (once.trials, once.trial_stddev) == (None, None)


@pytest.mark.parametrize("missing", [set(), {key(7)}])
def test_the_interval_is_that_of_clusters(missing: set[InstanceKey]) -> None:
    metric = context({key(number): float(number < 4) for number in range(8)})
    metric.clusters = {f"id{number}": str(number // 2) for number in range(6)}
    score = there(score_of(metric, missing, failed_as_zero=False))
    # what was not sorted is a source of its own
    assert (score.stats.clusters, score.stats.ci_method) == (
        4 if missing else 5,
        "wilson-clustered",
    )


def ratio(helm: float, counts: dict[InstanceKey, int]) -> MetricValues:
    """Eight instances whose values HELM counts more than once each."""
    values = {key(number): (number % 4) / 4 for number in range(8)}
    return MetricValues("precision", "precision", helm, values=values, counts=counts)


def test_a_ratio_of_sums_has_a_bootstrap_interval() -> None:
    counts = {key(number): 4 for number in range(4)} | {key(number): 8 for number in range(4, 7)}
    # sums are 0 1 2 3, 0 2 4 and 0.75 of what HELM counted once
    score = there(score_of(ratio(12.75 / 41, counts), set(), failed_as_zero=False))
    assert (score.value, score.stats.count, score.stats.ci_method) == (
        12.75 / 41,
        8,
        "bca-bootstrap",
    )
    low, high = ends(score.stats)
    assert 0 < low < 12.75 / 41 < high < 0.75
    sorted_in_pairs = ratio(12.75 / 41, counts)
    sorted_in_pairs.clusters = {f"id{number}": str(number // 4) for number in range(8)}
    few = there(score_of(sorted_in_pairs, set(), failed_as_zero=False))
    assert few.stats.ci_method is None
