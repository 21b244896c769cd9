"""HELM's statistics -> the values of each metric."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.core.results import Stats
from eval_factory.helm import names, output
from eval_factory.helm.judge_output import SCALE
from eval_factory.scoring.jury_scores import missing_of
from eval_factory.scoring.metric_values import MetricValues, metric_values_of
from eval_factory.scoring.scores import score_of
from unit.scoring.test_collect import state, write_run
from unit.scoring.test_scores import key


def values_of(folder: Path, values: dict[str, list[float | None]], **more: Any) -> dict[str, MetricValues]:
    states = [state(number, "yes", split="valid" if number == 3 else "test") for number in range(4)]
    write_run(folder / "run", states, values, **more)
    return {metric.label: metric for metric in metric_values_of(output.read_run(folder / "run"), "test")}


def test_each_metric_in_each_split_has_its_instances_values(tmp_path: Path) -> None:
    found = values_of(tmp_path, {"em": [1.0, None, 0.0, 0.25], "f1": [None, 0.5, None, None]})
    assert {label: metric.values for label, metric in found.items()} == {
        "em": {key(0): 1.0, key(2): 0.0}, "em@valid": {key(3): 0.25}, "f1": {key(1): 0.5},
    }  # fmt: skip
    assert {label: (metric.name, metric.split, metric.helm_mean) for label, metric in found.items()} == {
        "em": ("em", "test", 0.5), "em@valid": ("em", "valid", 0.25), "f1": ("f1", "test", 0.5),
    }  # fmt: skip
    assert not any(metric.merged for metric in found.values())


def test_a_score_says_what_it_is_of() -> None:
    stats = Stats(1, 0.5, None, None, None, None, None)
    score = MetricValues("em@valid+typos", "em", None, merged=False, split="valid", perturbation="typos").score(
        0.5, stats
    )
    assert (score.value, score.stats, score.metric, score.split, score.perturbation) == (
        0.5,
        stats,
        "em",
        "valid",
        "typos",
    )


def test_a_score_says_which_way_is_better_on_what_scale() -> None:
    stats = Stats(1, 0.5, None, None, None, None, None)
    known = MetricValues("rouge_l@valid", "rouge_l", 0.5, merged=False).score(0.5, stats)
    assert (known.higher_is_better, known.scale, known.unit) == (True, (0, 1), "overlap")
    unknown = MetricValues("surprise", "surprise", 0.5, merged=False, scale=(0, 10)).score(0.5, stats)
    assert (unknown.higher_is_better, unknown.scale, unknown.unit) == (None, (0, 10), None)
    jury = MetricValues("my_jury", "my_jury", 4.0, merged=False, scale=SCALE).score(4.0, stats)
    assert (jury.higher_is_better, jury.scale, jury.unit) == (True, (1, 5), "rating")


def test_what_is_no_score_or_was_never_computed_is_left_out(tmp_path: Path) -> None:
    """`num_references` describes the data; `never` has no mean."""
    assert list(values_of(tmp_path, {"em": [1.0, 1.0, 1.0, 1.0]})) == ["em", "em@valid"]


def test_worst_cases_count_where_something_was_perturbed(tmp_path: Path) -> None:
    """Without, HELM writes them all the same, and they repeat the plain scores."""
    plain = values_of(tmp_path / "plain", {"exact_match": [1.0] * 4})
    assert not any("robustness" in label for label in plain)
    perturbed = values_of(tmp_path / "perturbed", {"exact_match": [1.0] * 4}, perturbation=TYPOS)
    assert {metric.perturbation for metric in perturbed.values()} >= {None, "typos"}
    assert any("robustness" in label for label in perturbed)


TYPOS = {"name": "typos", "robustness": True}


def perturbed_run(folder: Path) -> dict[str, MetricValues]:
    """Instances a, b and c of values 1, 1 and 0.5; perturbed, a has 0.25, b has 1, and c was not changed."""
    plain, worst = {"a": 1.0, "b": 1.0, "c": 0.5}, {"name": "typos", "robustness": True, "computed_on": "worst"}
    before, families = {**worst, "computed_on": "original"}, (("robustness", 1.75 / 3), ("fairness", 2.5 / 3))
    contexts: list[tuple[Any, float]] = [
        (None, 2.5 / 3), (TYPOS, 0.625), (worst, 0.625), (before, 1.0),
        *(({"name": one, one: True, "computed_on": "worst"}, mean) for one, mean in families),
    ]  # fmt: skip
    documents: dict[str, Any] = {
        "run_spec.json": {"name": "r", "metric_specs": []},
        "stats.json": [
            {"name": {"name": "em", "split": "test", "perturbation": one}, "count": 1, "mean": mean}
            for one, mean in contexts
        ],
        "per_instance_stats.json": [
            {"instance_id": id_, "perturbation": one, "train_trial_index": 0,
             "stats": [{"name": {"name": "em", "split": "test", "perturbation": one}, "count": 1, "mean": value}]}
            for id_, value, one in [
                *((id_, value, None) for id_, value in plain.items()), ("a", 0.25, TYPOS), ("b", 1.0, TYPOS)
            ]
        ],
    }  # fmt: skip
    folder.mkdir()
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2))
    return {metric.label: metric for metric in metric_values_of(output.read_run(folder), "test")}


def test_a_family_of_perturbations_that_was_not_applied_has_no_score(tmp_path: Path) -> None:
    """HELM's value of it repeats the plain one."""
    labels = {"em", *(f"em@test+{one}" for one in ("typos", "typos.worst", "typos.original", "robustness.worst"))}
    assert perturbed_run(tmp_path / "run").keys() == labels


def test_a_worst_case_has_the_least_value_of_each_instance(tmp_path: Path) -> None:
    """Of a family, also of an instance that it did not change; the mean is HELM's, with its number and interval."""
    found = perturbed_run(tmp_path / "run")
    values = {label: [*metric.values.values()] for label, metric in found.items()}
    assert values == {
        "em": [1.0, 1.0, 0.5], "em@test+typos": [0.25, 1.0], "em@test+typos.worst": [0.25, 1.0],
        "em@test+typos.original": [1.0, 1.0], "em@test+robustness.worst": [0.25, 1.0, 0.5],
    }  # fmt: skip
    score = score_of(found["em@test+robustness.worst"], set(), failed_as_zero=False)
    assert score is not None
    assert (score.value, score.stats.count, score.stats.ci_method) == (1.75 / 3, 3, "student-t-pseudo-values")


@pytest.mark.parametrize("perturbation", [None, "typos"])
def test_a_worst_case_is_missing_with_any_of_its_parts(tmp_path: Path, perturbation: str | None) -> None:
    """HELM scores an answer that did not come as a wrong one, and takes it for the worst."""
    found = perturbed_run(tmp_path / "run")
    tally = SimpleNamespace(failed={("a", 0, perturbation)}, undecided=set())
    worst = found["em@test+robustness.worst"]
    for as_zero, value in ((False, 0.75), (True, 0.5)):
        missing, _ = missing_of(worst, None, tally, failed_as_zero=as_zero)  # type: ignore[arg-type]
        score = score_of(worst, missing, failed_as_zero=as_zero)
        assert score is not None
        assert (score.value, score.stats.count) == (value, 2 + as_zero)
    before, _ = missing_of(found["em@test+typos.original"], None, tally, failed_as_zero=False)  # type: ignore[arg-type]
    assert (("a", 0, "typos.original") in before) is (perturbation is None)


def test_a_worst_case_of_values_that_were_counted_otherwise_has_no_values(tmp_path: Path) -> None:
    perturbed_run(tmp_path / "run")
    file = tmp_path / "run" / names.PER_INSTANCE_STATS_FILE
    entries = json.loads(file.read_text())
    entries[0]["stats"][0]["count"] = 4
    file.write_text(json.dumps(entries, indent=2))
    found = {metric.label: metric for metric in metric_values_of(output.read_run(tmp_path / "run"), "test")}
    assert (found["em@test+typos.worst"].values, found["em@test+typos.worst"].helm_mean) == ({}, 0.625)


def test_parts_of_a_split_that_helm_keeps_apart_are_one_metric(tmp_path: Path) -> None:
    states = [state(0, "yes"), state(1, "yes")]
    write_run(tmp_path / "run", states, {"em": [1.0, 0.0]})
    run = output.read_run(tmp_path / "run")
    (stat,) = [stat for stat in run.stats if stat.name.name == "em"]
    apart = stat.model_copy(update={"name": stat.name.model_copy(update={"sub_split": "easy"})})
    twice = output.HelmRun(run.folder, run.run_spec, [*run.stats, apart])
    (metric,) = [metric for metric in metric_values_of(twice, "test") if metric.name == "em"]
    assert (metric.merged, metric.helm_mean, metric.values) == (True, None, {key(0): 1.0, key(1): 0.0})


def test_what_helm_counted_other_than_once_is_known(tmp_path: Path) -> None:
    states = [state(number, "yes") for number in range(3)]
    write_run(tmp_path / "run", states, {"em": [1.0, 0.5, 0.0]})
    file = tmp_path / "run" / names.PER_INSTANCE_STATS_FILE
    entries = json.loads(file.read_text())
    entries[1]["stats"][0] |= {"count": 4, "sum": 2.0}
    file.write_text(json.dumps(entries, indent=2))
    (metric,) = [one for one in metric_values_of(output.read_run(tmp_path / "run"), "test") if one.name == "em"]
    assert metric.counts == {key(1): 4}
    assert metric.clusters is None


def test_a_value_of_no_known_score_or_without_a_mean_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [state(0, "yes"), state(1, "yes")], {"em": [1.0, 0.5]})
    file = tmp_path / "run" / names.PER_INSTANCE_STATS_FILE
    entries = json.loads(file.read_text())
    for entry, stats in zip(
        entries,
        (
            [{"name": {"name": "em"}, "count": 1, "mean": 0.25}, {"name": {"name": "other"}, "count": 1, "mean": 1.0}],
            [{"name": {"name": "em", "split": "test"}, "count": 2}],
        ),
        strict=False,
    ):
        entry["stats"] = stats
    file.write_text(json.dumps(entries[:2], indent=2))
    (metric,) = metric_values_of(output.read_run(tmp_path / "run"), "test")
    assert (metric.label, metric.values, metric.counts) == ("em", {}, {})
