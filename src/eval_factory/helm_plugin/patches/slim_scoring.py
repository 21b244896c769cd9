"""HELM's metrics, with the statistics of each instance packed as soon as they are computed: in a tenth of the memory.

HELM keeps some thirty `Stat` objects of nine fields for each instance and metric to the end of a run, about 12 kB, in
three places, and goes through them five times. Of a statistic that was taken of one value, all fields follow from that
value by `Stat.add`: the values alone are kept, and the objects made when somebody looks at them, by HELM's own
arithmetic. `Metric.evaluate` is here the same loop: the same sums in the same order, of values instead of objects.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from itertools import groupby, islice
from math import copysign, sqrt
from operator import add, mul
from struct import Struct
from typing import Any, TypeVar

Kind = Callable[[float], Any]
"""What a value is made of again when it was packed: its type."""

_LARGEST = 2**53
"""A float holds every whole number up to here."""

TOGETHER = 1_000
"""Instances whose values are taken as columns at a time: a few hundred kilobytes."""


def empty(_value: float) -> None:
    """The kind of a statistic that was taken of nothing."""


class InstanceShape:
    """What instances of one sort have in common: the names of their statistics, and the types of the values."""

    __slots__ = ("_form", "_make", "kinds", "names")

    def __init__(self, names: tuple[Any, ...], kinds: tuple[Kind, ...], make: Callable[[Any], Any]) -> None:
        self.names, self.kinds, self._make = names, kinds, make
        self._form = Struct(f"={len(names)}d")

    def pack(self, values: Sequence[float]) -> bytes:
        return self._form.pack(*values)

    def values(self, packed: bytes) -> list[Any]:
        """None for a statistic that was taken of nothing."""
        return [kind(value) for kind, value in zip(self.kinds, self._form.unpack(packed), strict=True)]

    def columns(self, packed: bytes) -> Iterator[tuple[int, Sequence[Any]]]:
        """Place and values of each statistic that was taken of something; `packed`: one instance after the other."""
        values = self._form.iter_unpack(packed) if self.kinds else ()
        for place, column in enumerate(zip(*values, strict=True)):
            kind = self.kinds[place]
            if kind is not empty:
                yield place, column if kind is float else [kind(value) for value in column]

    def stat(self, place: int, value: Any) -> Any:
        """HELM's own record, made anew."""
        return self._make(self.names[place]).add(value)


class PackedStats(Sequence[Any]):
    """A list of `Stat` that nobody changes. Its entries are made anew each time that they are looked at."""

    __slots__ = ("_packed", "shape")

    def __init__(self, shape: InstanceShape, packed: bytes) -> None:
        self.shape, self._packed = shape, packed

    def __len__(self) -> int:
        return len(self.shape.names)

    def __iter__(self) -> Iterator[Any]:
        return map(self.shape.stat, range(len(self)), self.values())

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def values(self) -> list[Any]:
        """The number that each was taken of; None: of none."""
        return self.shape.values(self._packed)

    @property
    def packed(self) -> bytes:
        return self._packed


def runs_of(found: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    """Those that follow each other and have one shape, `TOGETHER` at most; what is not packed comes alone."""
    for shape, group in groupby(found, lambda stats: stats.shape if isinstance(stats, PackedStats) else None):
        while run := list(islice(group, 1 if shape is None else TOGETHER)):
            yield run


def statistics_of(run: Sequence[PackedStats]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Name and values of each statistic that instances of one shape have."""
    shape = run[0].shape
    return ((shape.names[place], values) for place, values in shape.columns(b"".join(one.packed for one in run)))


def add_all(total: Any, values: Sequence[Any]) -> None:
    """`Stat.add` of one value after the other, but for what follows from the sums.

    Column by column, where HELM goes instance by instance: it refuses a name that an instance has twice.

    Not `sum()`: from Python 3.12 on it rounds less than HELM's additions do.
    """
    total.sum = reduce(add, values, total.sum)
    total.sum_squared = reduce(add, map(mul, values, values), total.sum_squared)
    least, most = min(values), max(values)
    if total.min is None or least < total.min:
        total.min = least
    if total.max is None or most > total.max:
        total.max = most
    total.count += len(values)


class Packer:
    """Packs lists of `Stat`. Shapes and names are kept once; several threads may pack at the same time."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        """`make`: HELM's `Stat`, which is made of a name."""
        self._make = make
        self._shapes: dict[Any, InstanceShape] = {}

    def pack(self, stats: Sequence[Any]) -> Sequence[Any]:
        """The same statistics in less memory; what was given where one of them was not taken of a single number."""
        packed = self._packed(stats, lambda: tuple(stat.name for stat in stats), None)
        return stats if packed is None else packed

    def pack_in(self, stats: Sequence[Any], context: Any, renamed: Callable[[Any, Any], Any]) -> Sequence[Any] | None:
        """With other names; None where they cannot be packed.

        Args:
            context: with the `name` of a statistic's name, all that the new one depends on.
            renamed: a statistic and the context -> its new name.
        """
        names = tuple(stat.name.name for stat in stats)
        return self._packed(stats, lambda: tuple(renamed(stat, context) for stat in stats), (context, names))

    def _packed(self, stats: Sequence[Any], names: Callable[[], tuple[Any, ...]], key: Any) -> Sequence[Any] | None:
        kinds, values = [], []
        for stat in stats:
            kind = packing_of(stat) if type(stat) is self._make else None
            if kind is None:
                return None
            kinds.append(kind)
            values.append(0.0 if kind is empty else stat.min)
        named = key or names()
        shape = self._shapes.get((*kinds, named))
        if shape is None:
            shape = self._shapes.setdefault((*kinds, named), InstanceShape(names(), tuple(kinds), self._make))
        return PackedStats(shape, shape.pack(values))


def packing_of(stat: Any) -> Kind | None:
    """How a statistic is packed; None where `Stat(name).add(value)` would not give it again, field by field."""
    value = stat.min
    if stat.count == 0:
        unset = (value, stat.max, stat.mean, stat.variance, stat.stddev) == (None,) * 5
        return empty if unset and _same((stat.sum, stat.sum_squared), (0, 0)) else None
    kind = _number(value)
    if stat.count != 1 or kind is None or stat.max is not value:
        return None
    square, mean = value * value, value / 1
    variance = square / 1 - mean**2
    if variance < 0:
        variance = 0
    found = (stat.sum, stat.sum_squared, stat.mean, stat.variance, stat.stddev)
    return kind if _same(found, (0 + value, 0 + square, mean, variance, sqrt(variance))) else None


def _number(value: Any) -> Kind | None:
    kind = type(value)
    if kind is int:
        return int if -_LARGEST <= value <= _LARGEST else None
    if kind is float or (kind.__module__ == "numpy" and kind.__name__ == "float64"):
        return None if value == 0 and copysign(1, value) < 0 else kind
    return None


def _same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    return found == expected and [*map(type, found)] == [*map(type, expected)]


AHEAD = 4
"""Tasks that wait for each thread; HELM lines up all at once, which takes a kilobyte for each."""

IN_THIS_THREAD = frozenset(
    f"helm.benchmark.metrics.{name}"
    for name in (
        "basic_metrics.BasicGenerationMetric",
        "medec_metrics.MedecMetric",
        "medcalc_bench_metrics.MedCalcBenchMetric",
        "ehr_sql_metrics.EhrSqlMetric",
        "llm_jury_metrics.LLMJuryMetric",
    )
)
"""Metrics that are arithmetic of Python's: threads, of which one runs at a time, only get into each other's way."""

EXECUTED = frozenset({"pass", "code_eval_acc"})
"""Names of HELM's basic metrics that execute the answer, in a process that is waited for."""

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def pack_statistics() -> None:
    """In metrics that look at one answer after the other, and where HELM writes down what they found."""
    from helm.benchmark import runner
    from helm.benchmark.metrics import basic_metrics, metric, reference_metric
    from helm.benchmark.metrics.statistic import Stat

    reference_metric.parallel_map = _where_there_is_work(reference_metric.parallel_map)
    metric.Processor.process = _processing(Packer(Stat))
    metric.Metric.evaluate = _evaluating(metric.Metric.evaluate)
    basic_metrics._has_non_zero_valued_logprobs = _looking_for_logprobs(basic_metrics._has_non_zero_valued_logprobs)
    helms_own, to_dict = runner.remove_per_instance_stats_nans, runner.asdict_without_nones

    def without_nans(records: list[Any]) -> list[Any]:  # what is packed is a number
        return [one if isinstance(one.stats, PackedStats) else helms_own([one])[0] for one in records]

    runner.remove_per_instance_stats_nans = without_nans
    runner.asdict_without_nones = lambda record: to_dict(_unpacked(record))


def _where_there_is_work(parallel_map: Callable[..., Any]) -> Callable[..., Any]:
    """HELM gives metrics of single options to every run; where no option was asked alone, threads do nothing."""
    return lambda process, items, parallelism: parallel_map(process, items, parallelism if any(items) else 1)


def _unpacked(record: Any) -> Any:
    """With a list of `Stat`, where it is a record of packed statistics."""
    stats = getattr(record, "stats", None)
    return dataclasses.replace(record, stats=list(stats)) if isinstance(stats, PackedStats) else record


def _processing(packer: Packer) -> Callable[..., Sequence[Any]]:
    """HELM's steps for one instance. `add_context` copies each statistic for the sake of its name, which is packed."""
    from helm.benchmark.metrics import metric
    from helm.benchmark.metrics.metric_name import MetricContext

    def process(self: Any, generation_states: list[Any]) -> Sequence[Any]:
        if len(generation_states) == 0:
            return []
        state = metric.singleton(generation_states)
        stats = list(
            self.metric.evaluate_generation(self.adapter_spec, state, self.metric_service, self.eval_cache_path)
        )
        context = MetricContext.from_instance(state.instance)
        packed = packer.pack_in(stats, context, lambda stat, context: metric.add_context(stat, context).name)
        return [metric.add_context(stat, context) for stat in stats] if packed is None else packed

    return process


def threads_for(computing: Any, parallelism: int) -> int:
    """How many compute a metric's statistics at the same time."""
    kind = type(computing)
    waits = EXECUTED.intersection(getattr(computing, "names", ()))
    return 1 if f"{kind.__module__}.{kind.__qualname__}" in IN_THIS_THREAD and not waits else parallelism


def _evaluating(helms_own: Callable[..., Any]) -> Callable[..., Any]:
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
            computed = in_order(processor.process, asked, threads_for(self, parallelism))
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
    summed: dict[Any, Any] = {}
    for run in runs_of(found):
        if not isinstance(run[0], PackedStats):
            for stat in run[0]:
                merge(totals, stat)
            continue
        for name in run[0].shape.names:
            if name not in totals:
                totals[name] = make(name)
        for name, values in statistics_of(run):
            add_all(totals[name], values)
            summed[name] = totals[name]
    for total in summed.values():
        total._update_mean_variance_stddev()
    return totals


def _looking_for_logprobs(helms_own: Callable[[Mapping[Any, Sequence[Any]]], bool]) -> Callable[..., bool]:
    def has_negative(run: Sequence[Any]) -> bool:
        if not isinstance(run[0], PackedStats):
            return helms_own({None: run[0]})
        return any(name.name == "logprob" and min(values) < 0 for name, values in statistics_of(run))

    return lambda per_instance_stats: any(map(has_negative, runs_of(per_instance_stats.values())))


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
