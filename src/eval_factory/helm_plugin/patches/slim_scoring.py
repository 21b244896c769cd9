"""HELM's metrics with the statistics of each instance packed as soon as they are computed (`packed_stats.py`).

`Metric.evaluate` keeps the list of `Stat` of each instance in three places, and goes through them five times. Here is
the same loop: the same sums in the same order, of values instead of objects.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from eval_factory.helm_plugin.packed_stats import PackedStats, Packer, Shape

AHEAD = 4
"""Tasks that wait for each thread; HELM lines up all at once, which takes a kilobyte for each."""

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def pack_statistics() -> None:
    """In metrics that look at one answer after the other, and where HELM writes down what they found."""
    from helm.benchmark import runner
    from helm.benchmark.metrics import basic_metrics, metric
    from helm.benchmark.metrics.statistic import Stat

    packer = Packer(Stat)
    metric.Metric.evaluate = _evaluating(metric.Metric.evaluate, packer.pack)
    basic_metrics._has_non_zero_valued_logprobs = _looking_for_logprobs(basic_metrics._has_non_zero_valued_logprobs)
    helms_own, to_dict = runner.remove_per_instance_stats_nans, runner.asdict_without_nones

    def without_nans(records: list[Any]) -> list[Any]:  # what is packed is a number
        return [one if isinstance(one.stats, PackedStats) else helms_own([one])[0] for one in records]

    runner.remove_per_instance_stats_nans = without_nans
    runner.asdict_without_nones = lambda record: to_dict(unpacked(record))


def unpacked(record: Any) -> Any:
    """With a list of `Stat`, where it is a record of packed statistics."""
    stats = getattr(record, "stats", None)
    return dataclasses.replace(record, stats=list(stats)) if isinstance(stats, PackedStats) else record


def _evaluating(helms_own: Callable[..., Any], pack: Callable[[list[Any]], Sequence[Any]]) -> Callable[..., Any]:
    from helm.benchmark.adaptation.adapters.adapter_factory import ADAPT_LANGUAGE_MODELING
    from helm.benchmark.metrics import metric
    from helm.benchmark.metrics.statistic import merge_stat

    def evaluate(self: Any, scenario_state: Any, metric_service: Any, eval_cache_path: str, parallelism: int) -> Any:
        spec = scenario_state.adapter_spec
        if spec.method == ADAPT_LANGUAGE_MODELING or any(one.id is None for one in scenario_state.instances):
            return helms_own(self, scenario_state, metric_service, eval_cache_path, parallelism)  # it says why not
        processor = metric.Processor(
            metric=self, metric_service=metric_service, eval_cache_path=eval_cache_path, adapter_spec=spec
        )
        of_all: dict[Any, Any] = {}
        per_instance: list[Any] = []
        for trial in range(spec.num_train_trials):
            asked = (scenario_state.get_request_states(trial, one, None) for one in scenario_state.instances)
            computed = in_order(lambda states: pack(processor.process(states)), asked, parallelism)
            found = dict(zip(scenario_state.instances, computed, strict=True))
            for stat in _of_trial(self, found).values():
                merge_stat(of_all, stat.take_mean())
            per_instance.extend(
                metric.PerInstanceStats(instance.id, instance.perturbation, trial, stats)
                for instance, stats in found.items()
                if len(stats) > 0
            )
        return metric.MetricResult(list(of_all.values()), per_instance)

    return evaluate


def _of_trial(computing: Any, found: Mapping[Any, Sequence[Any]]) -> dict[Any, Any]:
    """What one trial comes to, by name: HELM's steps in HELM's order."""
    from helm.benchmark.metrics import metric
    from helm.benchmark.metrics.metric_name import MetricContext
    from helm.benchmark.metrics.statistic import Stat, merge_stat

    totals = totals_of(found.values(), Stat, merge_stat)
    by_context: dict[Any, dict[Any, Any]] = defaultdict(dict)
    for name, stat in totals.items():
        by_context[MetricContext.from_metric_name(name)][name] = stat
    for context, by_name in by_context.items():
        for stat in computing.derive_stats(by_name):
            merge_stat(totals, metric.add_context(stat, context))
    if type(computing).derive_per_instance_stats is not metric.Metric.derive_per_instance_stats:
        instances: dict[Any, dict[Any, Sequence[Any]]] = defaultdict(dict)
        for instance, stats in found.items():
            if len(stats) > 0:
                instances[MetricContext.from_instance(instance)][instance] = stats
        for context, of_context in instances.items():
            for stat in computing.derive_per_instance_stats(of_context):
                merge_stat(totals, metric.add_context(stat, context))
    for stat in metric.compute_worst_case_metrics(found):
        merge_stat(totals, stat)
    return totals


def totals_of(
    found: Iterable[Sequence[Any]], make: Callable[[Any], Any], merge: Callable[[dict[Any, Any], Any], None]
) -> dict[Any, Any]:
    """`merge_stat` of all statistics one after the other, with mean and variance computed once, at the end.

    Args:
        make: HELM's `Stat`.
        merge: HELM's `merge_stat`, for what is not packed.
    """
    totals: dict[Any, Any] = {}
    of_shape: dict[Shape, list[Any]] = {}
    for stats in found:
        if not isinstance(stats, PackedStats):
            for stat in stats:
                merge(totals, stat)
            continue
        targets = of_shape.get(stats.shape)
        if targets is None:
            targets = of_shape[stats.shape] = [totals.setdefault(name, make(name)) for name in stats.shape.names]
        for total, value in zip(targets, stats.values(), strict=True):
            if value is not None:
                add(total, value)
    for targets in of_shape.values():
        for total in targets:
            total._update_mean_variance_stddev()
    return totals


def add(total: Any, value: Any) -> None:
    """`Stat.merge` of a statistic of one value, but for what follows from the sums."""
    total.sum += value
    total.sum_squared += value * value
    if total.min is None or value < total.min:
        total.min = value
    if total.max is None or value > total.max:
        total.max = value
    total.count += 1


def _looking_for_logprobs(helms_own: Callable[[Mapping[Any, Sequence[Any]]], bool]) -> Callable[..., bool]:
    def has_negative(stats: Sequence[Any]) -> bool:
        if not isinstance(stats, PackedStats):
            return helms_own({None: stats})
        named = zip(stats.shape.names, stats.values(), strict=True)
        return any(name.name == "logprob" and value is not None and value < 0 for name, value in named)

    return lambda per_instance_stats: any(map(has_negative, per_instance_stats.values()))


def in_order(process: Callable[[_In], _Out], items: Iterable[_In], parallelism: int) -> Iterator[_Out]:
    """What `process` makes of each, by so many threads at once, in the order of the items."""
    if parallelism == 1:
        yield from map(process, items)
        return
    waiting: deque[Future[_Out]] = deque()
    with ThreadPoolExecutor(max_workers=parallelism) as threads:
        try:
            for item in items:
                waiting.append(threads.submit(process, item))
                if len(waiting) >= AHEAD * parallelism:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # where one raised, or nobody wants the rest: those that are not begun are not worth their time
            for one in waiting:
                one.cancel()
