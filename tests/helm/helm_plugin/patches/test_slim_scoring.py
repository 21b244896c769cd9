"""Metrics whose statistics are packed against HELM's own: the same statistics, the same bytes in the files."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm.benchmark import runner
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.augmentations.perturbation_description import PerturbationDescription
from helm.benchmark.metrics import basic_metrics
from helm.benchmark.metrics.basic_metrics import BasicGenerationMetric
from helm.benchmark.metrics.metric import Metric, MetricResult, PerInstanceStats
from helm.benchmark.metrics.metric_name import MetricName
from helm.benchmark.metrics.statistic import Stat
from helm.benchmark.scenarios.scenario import Input, Instance
from helm.common.object_spec import get_class_by_name
from helm.common.request import Request

from eval_factory.helm_plugin.patches import slim_scoring
from eval_factory.helm_plugin.patches.slim_scoring import PackedStats, Packer
from patching import ApplyPatch

TYPOS = PerturbationDescription(name="typos", robustness=True)
TRIALS = 2


class MadeUp(Metric):  # type: ignore[misc]
    """Of each kind of statistic one: whole, fraction, none at all, several values, one that only some have."""

    def evaluate_generation(self, adapter_spec: Any, request_state: Any, *_: Any) -> list[Stat]:
        number = int(request_state.request.prompt) + request_state.train_trial_index
        stats = [
            Stat(MetricName("exact_match")).add(number % 3 == 0),
            Stat(MetricName("runtime")).add(number / 7),
            Stat(MetricName("cost")).add(None),
            Stat(MetricName("logprob")).add(-number / 3),
            Stat(MetricName("max_prob")).add(1 / (number + 1)),
        ]
        if number % 5 == 0:
            stats.append(Stat(MetricName("several")).add(number).add(0.5))
        return [] if number % 11 == 10 else stats

    def derive_stats(self, stats_dict: dict[MetricName, Stat]) -> list[Stat]:
        of_name = {name.name: stat for name, stat in stats_dict.items()}
        return [Stat(MetricName("derived")).add(of_name["runtime"].mean)] if "runtime" in of_name else []

    def derive_per_instance_stats(self, per_instance_stats: dict[Instance, list[Stat]]) -> list[Stat]:
        return [Stat(MetricName("seen")).add(sum(len(stats) for stats in per_instance_stats.values()))]


class Plain(Metric):  # type: ignore[misc]
    """Derives nothing."""

    def evaluate_generation(self, adapter_spec: Any, request_state: Any, *_: Any) -> list[Stat]:
        return [Stat(MetricName("length")).add(len(request_state.request.prompt))]


def state_of(instances: list[Instance], method: str = "generation") -> ScenarioState:
    states = [
        RequestState(
            instance=instance, reference_index=None, request_mode=None, train_trial_index=trial, output_mapping=None,
            request=Request(prompt=instance.input.text), result=None, num_train_instances=0, prompt_truncated=False,
        )
        for trial in range(TRIALS)
        for instance in instances
    ]  # fmt: skip
    return ScenarioState(AdapterSpec(method=method, num_train_trials=TRIALS), states)


def invented(*, perturbed: bool) -> list[Instance]:
    made = []
    for number in range(40):
        made.append(Instance(Input(str(number)), [], split="test" if number % 4 else "valid", id=f"id{number}"))
        if perturbed:
            made.append(dataclasses.replace(made[-1], perturbation=TYPOS, input=Input(str(number + 1))))
    return made


def result_of(metric: Metric, instances: list[Instance], parallelism: int = 1) -> MetricResult:
    result: MetricResult = metric.evaluate(state_of(instances), None, "", parallelism)
    return result


def as_json(result: MetricResult) -> tuple[str, str]:
    """What HELM's run_one writes of it."""
    stats = [runner.asdict_without_nones(stat) for stat in runner.remove_stats_nans(result.aggregated_stats)]
    records = map(runner.asdict_without_nones, runner.remove_per_instance_stats_nans(result.per_instance_stats))
    return json.dumps(stats, indent=2), json.dumps(list(records), indent=2)


@pytest.mark.parametrize("perturbed", [False, True])
@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("kind", [MadeUp, Plain])
def test_all_statistics_are_helms(
    kind: type[Metric], parallelism: int, perturbed: bool, apply_patch: ApplyPatch
) -> None:
    instances = invented(perturbed=perturbed)
    theirs = result_of(kind(), instances, parallelism)
    expected = as_json(theirs)
    apply_patch("pack_statistics")
    apply_patch("worst_case_without_perturbations")
    ours = result_of(kind(), instances, parallelism)
    assert any(isinstance(one.stats, PackedStats) for one in ours.per_instance_stats)
    assert [repr(stat) for stat in ours.aggregated_stats] == [repr(stat) for stat in theirs.aggregated_stats]
    assert as_json(ours) == expected


def test_files_are_those_of_helm_byte_for_byte(tmp_path: Path, apply_patch: ApplyPatch) -> None:
    instances = invented(perturbed=False)
    expected = as_json(result_of(MadeUp(), instances))[1]
    apply_patch("pack_statistics")
    apply_patch("output_files_in_one_pass")
    found = result_of(MadeUp(), instances).per_instance_stats
    records = list(map(runner.asdict_without_nones, runner.remove_per_instance_stats_nans(found)))
    runner.write(str(tmp_path / "plain.json"), runner.json.dumps(records, indent=2))
    assert (tmp_path / "plain.json").read_text() == expected
    unknown = [*records, PerInstanceStats("last", {1: "what our writer leaves to HELM"}, 0, found[0].stats)]
    runner.write(str(tmp_path / "unknown.json"), runner.json.dumps(unknown, indent=2))
    written = json.loads((tmp_path / "unknown.json").read_text())
    assert written[:-1] == json.loads(expected)
    assert written[-1]["stats"] == written[0]["stats"] != []


def test_what_is_no_number_is_left_out_of_the_file_as_helm_does(apply_patch: ApplyPatch) -> None:
    apply_patch("pack_statistics")
    stats = [Stat(MetricName("a")).add(float("nan")), Stat(MetricName("b")).add(1)]
    (kept,) = runner.remove_per_instance_stats_nans([PerInstanceStats("id1", None, 0, stats)])
    assert [stat.name.name for stat in kept.stats] == ["b"]


class Twice(Metric):  # type: ignore[misc]
    """One name twice."""

    def evaluate_generation(self, adapter_spec: Any, request_state: Any, *_: Any) -> list[Stat]:
        number = int(request_state.request.prompt)
        return [Stat(MetricName("runtime")).add(value) for value in (number / 7, 1e9 / (number + 3))]


def test_a_name_that_stands_there_twice_is_refused_by_helm(apply_patch: ApplyPatch) -> None:
    apply_patch("pack_statistics")
    apply_patch("worst_case_without_perturbations")
    with pytest.raises(AssertionError, match="got both"):
        result_of(Twice(), invented(perturbed=False))


def threads_of(names: list[str], kind: type[BasicGenerationMetric] = BasicGenerationMetric) -> int:
    return slim_scoring.threads_for(kind(names), 8)


class OfSomebodyElse(BasicGenerationMetric):  # type: ignore[misc]
    """Whose methods may wait for anything."""


def test_only_what_waits_for_something_gets_threads() -> None:
    assert threads_of(["exact_match", "f1_score"]) == 1
    assert threads_of(["exact_match", "pass"]) == threads_of(["code_eval_acc"]) == 8
    assert threads_of(["exact_match"], OfSomebodyElse) == 8
    assert slim_scoring.threads_for(MadeUp(), 8) == 8
    for name in slim_scoring.IN_THIS_THREAD:
        assert issubclass(get_class_by_name(name), Metric)


def test_what_helm_refuses_is_refused_by_helm(apply_patch: ApplyPatch) -> None:
    apply_patch("pack_statistics")
    with pytest.raises(AssertionError, match="language modeling"):
        MadeUp().evaluate(state_of(invented(perturbed=False), "language_modeling"), None, "", 1)
    with pytest.raises(AssertionError, match="id was none"):
        result_of(Plain(), [Instance(Input("1"), [])])


@pytest.mark.parametrize(("value", "expected"), [(-0.5, True), (0.0, False), (None, False)])
def test_log_probabilities_are_found_in_what_is_packed(
    value: float | None, expected: bool, apply_patch: ApplyPatch
) -> None:
    apply_patch("pack_statistics")
    stats = [Stat(MetricName("other")).add(-1.0), Stat(MetricName("logprob")).add(value)]
    packed = Packer(Stat).pack(stats)
    assert isinstance(packed, PackedStats)
    assert basic_metrics._has_non_zero_valued_logprobs({1: packed}) is expected
    assert basic_metrics._has_non_zero_valued_logprobs({1: stats}) is expected
    assert basic_metrics._has_non_zero_valued_logprobs({}) is False


@pytest.mark.parametrize("parallelism", [1, 3])
def test_results_come_in_the_order_of_the_items(parallelism: int) -> None:
    assert list(slim_scoring.in_order(lambda number: number * 2, range(50), parallelism)) == list(range(0, 100, 2))


def test_few_tasks_wait_at_a_time() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    first = next(slim_scoring.in_order(lambda number: number, items(), 2))
    assert first == 0
    assert len(taken) == slim_scoring.AHEAD * 2


def test_several_are_done_at_once_and_an_error_comes_out() -> None:
    meet = threading.Barrier(3, timeout=10)

    def process(number: int) -> int:
        if number < 3:
            meet.wait()
        else:
            raise ValueError(number)
        return number

    found = slim_scoring.in_order(process, range(10), 3)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(found)
