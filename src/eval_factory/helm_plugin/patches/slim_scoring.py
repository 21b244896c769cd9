"""Computes HELM's metrics and writes HELM's output files in a tenth of the memory.

Every output file stays equal byte for byte. For each instance, HELM stores about thirty `Stat`
objects of nine fields until the end of a run. They take about 12 kB. If a `Stat` was made from a
single value, all its fields follow from this value by `Stat.add`. This module therefore stores only
the values. The module's version of `Metric.evaluate` adds the same numbers in the same order as
HELM's. The files are written record by record.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from json.encoder import encode_basestring_ascii as quoted
from math import isfinite
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

from helm.benchmark import runner
from helm.benchmark.adaptation.adapters.adapter_factory import ADAPT_LANGUAGE_MODELING
from helm.benchmark.augmentations.perturbation_description import (
    PERTURBATION_WORST,
    PerturbationDescription,
)
from helm.benchmark.metrics import metric
from helm.benchmark.metrics.metric_name import MetricContext
from helm.benchmark.metrics.statistic import Stat, merge_stat

INSTANCES_PER_BATCH = 1_000
"""The number of instances that HELM's threads get at a time. A waiting instance takes 1 kB."""


def pack_statistics() -> None:
    """Make HELM's metrics store packed statistics, and write HELM's output files from these."""
    metric.Processor.process = _process
    metric.Metric.evaluate = _evaluate_packed(metric.Metric.evaluate)
    metric.compute_worst_case_metrics = _faster_worst_cases(metric.compute_worst_case_metrics)
    helms_removal = runner.remove_per_instance_stats_nans

    def without_nans(records: list[Any]) -> list[Any]:
        # Packed statistics need no change: `packed` refuses NaN, which is not equal to itself.
        return [
            record if isinstance(record.stats, PackedStats) else helms_removal([record])[0]
            for record in records
        ]

    runner.remove_per_instance_stats_nans = without_nans
    _write_files_from_records()


def _write_files_from_records() -> None:
    """Make HELM write its output files directly from the records.

    HELM calls `write(path, json.dumps(asdict_without_nones(record), indent=2))`. It thereby copies
    all records to dictionaries, and holds the complete text of a file in memory. Here, the inner
    functions return the records unchanged, and `write` makes the text.
    """
    helms_write = runner.write

    def write(path: str, content: Any) -> None:
        if isinstance(content, str):
            helms_write(path, content)
            return
        temporary = Path(f"{path}.{os.getpid()}.tmp")
        with temporary.open("w") as file:
            write_json(content, file)
        temporary.replace(path)

    # `indent` is not used here: HELM always passes 2.
    runner.json = SimpleNamespace(dumps=lambda tree, indent: tree, load=json.load)  # noqa: ARG005
    runner.asdict_without_nones = lambda record: record
    runner.write = write


class PackedStats(Sequence[Any]):
    """An immutable list of `Stat` objects, stored as names and values.

    Each access makes new `Stat` objects.
    """

    __slots__ = ("names", "values")

    def __init__(self, names: tuple[Any, ...], values: tuple[Any, ...]) -> None:
        """Take the name and the value of each statistic.

        A statistic without a value has the value None, which HELM's `Stat.add` ignores.
        """
        self.names = names
        self.values = values

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Any]:
        return (Stat(name).add(value) for name, value in zip(self.names, self.values, strict=True))

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


_names_in_context: dict[Any, tuple[Any, ...]] = {}
"""A dict from a context and the names of statistics to HELM's `MetricName` objects with this
context. The statistics of many instances share such a tuple of objects.

A context is HELM's `MetricContext`: the split, the sub-split and the perturbation of an instance.
"""


def packed(stats: Sequence[Any], context: Any) -> PackedStats | None:
    """Return statistics in packed form, with the context added as by HELM's `add_context`.

    Returns None if one of the statistics was made from more than one value.
    """
    for stat in stats:
        # The minimum of a statistic that was made from one value is this value.
        if type(stat) is not Stat or stat != Stat(stat.name).add(stat.min):
            return None
    key = context, tuple(stat.name.name for stat in stats)
    if key not in _names_in_context:
        _names_in_context[key] = tuple(metric.add_context(stat, context).name for stat in stats)
    return PackedStats(_names_in_context[key], tuple(stat.min for stat in stats))


def _process(self: Any, generation_states: list[Any]) -> Sequence[Any]:
    """Return the statistics of one instance, by HELM's steps, in place of `Processor.process`."""
    if len(generation_states) == 0:
        return []
    state = metric.singleton(generation_states)
    stats = list(
        self.metric.evaluate_generation(
            self.adapter_spec, state, self.metric_service, self.eval_cache_path
        )
    )
    context = MetricContext.from_instance(state.instance)
    packed_stats = packed(stats, context)
    if packed_stats is not None:
        return packed_stats
    return [metric.add_context(stat, context) for stat in stats]


def _evaluate_packed(helms_evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `Metric.evaluate` that works with packed statistics."""

    def evaluate(
        self: Any, scenario_state: Any, metric_service: Any, eval_cache_path: str, parallelism: int
    ) -> Any:
        spec = scenario_state.adapter_spec
        instances = scenario_state.instances
        if spec.method == ADAPT_LANGUAGE_MODELING or any(
            instance.id is None for instance in instances
        ):
            # HELM's function raises an error in these cases.
            return helms_evaluate(
                self, scenario_state, metric_service, eval_cache_path, parallelism
            )
        processor = metric.Processor(
            metric=self,
            metric_service=metric_service,
            eval_cache_path=eval_cache_path,
            adapter_spec=spec,
        )
        totals: dict[Any, Any] = {}
        per_instance: list[Any] = []
        for trial in range(spec.num_train_trials):
            computed: list[Any] = []
            for first in range(0, len(instances), INSTANCES_PER_BATCH):
                batch = instances[first : first + INSTANCES_PER_BATCH]
                states = [
                    scenario_state.get_request_states(trial, instance, reference_index=None)
                    for instance in batch
                ]
                computed += metric.parallel_map(processor.process, states, parallelism=parallelism)
            stats_by_instance = dict(zip(instances, computed, strict=True))
            for stat in _totals(self, stats_by_instance).values():
                merge_stat(totals, stat.take_mean())
            for instance, stats in stats_by_instance.items():
                if len(stats) > 0:
                    per_instance.append(
                        metric.PerInstanceStats(instance.id, instance.perturbation, trial, stats)
                    )
        return metric.MetricResult(list(totals.values()), per_instance)

    return evaluate


def _totals(metric_object: Any, stats_by_instance: Mapping[Any, Sequence[Any]]) -> dict[Any, Any]:
    """Return the statistics of one trial by name, computed by HELM's steps in HELM's order."""
    totals = _merged(stats_by_instance.values())
    # a context -> the totals of its statistics by name
    totals_in_context: dict[Any, dict[Any, Any]] = defaultdict(dict)
    # a context -> the statistics of each of its instances
    instances_in_context: dict[Any, dict[Any, Any]] = defaultdict(dict)
    for name, stat in totals.items():
        totals_in_context[MetricContext.from_metric_name(name)][name] = stat
    for instance, stats in stats_by_instance.items():
        if len(stats) > 0:
            instances_in_context[MetricContext.from_instance(instance)][instance] = stats
    for context, totals_by_name in totals_in_context.items():
        for stat in metric_object.derive_stats(totals_by_name):
            merge_stat(totals, metric.add_context(stat, context))
    for context, context_stats in instances_in_context.items():
        for stat in metric_object.derive_per_instance_stats(context_stats):
            merge_stat(totals, metric.add_context(stat, context))
    for stat in metric.compute_worst_case_metrics(stats_by_instance):
        merge_stat(totals, stat)
    return totals


def _merged(stats_of_instances: Iterable[Sequence[Any]]) -> dict[Any, Any]:
    """Return all statistics merged by name, as HELM's `merge_stat` merges them.

    Packed statistics are merged without making a `Stat` object for each of them.
    """
    totals: dict[Any, Any] = {}
    for stats in stats_of_instances:
        if isinstance(stats, PackedStats):
            for name, value in zip(stats.names, stats.values, strict=True):
                if name not in totals:
                    totals[name] = Stat(name)
                totals[name].add(value)
        else:
            for stat in stats:
                merge_stat(totals, stat)
    return totals


_WORST_CASE_KINDS = (
    PerturbationDescription(name="robustness", computed_on=PERTURBATION_WORST, robustness=True),
    PerturbationDescription(name="fairness", computed_on=PERTURBATION_WORST, fairness=True),
)


def _faster_worst_cases(helms_function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return a replacement of HELM's function that computes worst cases over perturbations.

    If no input was perturbed, the worst case of an instance is its only case, and the replacement
    computes it faster. In all other runs, the replacement calls HELM's function.
    """

    def compute(per_instance_stats: Mapping[Any, Sequence[Any]]) -> list[Any]:
        ids = {instance.id for instance in per_instance_stats}
        has_one_case_each = None not in ids and len(ids) == len(per_instance_stats)
        are_plain = all(map(_is_plain, per_instance_stats.values()))
        if not (has_one_case_each and are_plain):
            return helms_function(per_instance_stats)
        worst: dict[Any, Any] = {}
        for stats in per_instance_stats.values():
            if len(stats) == 0:
                continue  # an empty list, which is not packed
            for name, value in zip(stats.names, stats.values, strict=True):  # type: ignore[attr-defined]
                if value is not None:
                    worst.setdefault(name, Stat(name)).add(value)
        stats_of_kinds = []
        for (name, total), kind in product(worst.items(), _WORST_CASE_KINDS):
            renamed = dataclasses.replace(name, perturbation=kind)
            stats_of_kinds.append(dataclasses.replace(total, name=renamed))
        return stats_of_kinds

    return compute


def _is_plain(stats: Sequence[Any]) -> bool:
    """Return True if the statistics are packed or empty, with distinct and unperturbed names."""
    return len(stats) == 0 or (isinstance(stats, PackedStats) and _are_plain(stats.names))


@lru_cache(maxsize=100)
def _are_plain(names: tuple[Any, ...]) -> bool:
    """Return True if the names are distinct and none belongs to a perturbed instance."""
    return len(set(names)) == len(names) and all(name.perturbation is None for name in names)


def write_json(tree: Any, file: TextIO) -> None:
    """Write a record as HELM does, but write long lists entry by entry.

    The text equals `json.dumps(asdict(tree), indent=2)`, without fields that are None.

    Raises:
        TypeError: the record holds a value that `json` cannot write either.
    """
    fields = _fields(type(tree))  # type: ignore[arg-type]
    if fields is None:
        _write_value(tree, "\n", file)
        return
    separator = "{"  # before the first field; a comma before each other field
    for name, key in fields:
        value = getattr(tree, name)
        if value is not None:
            file.write(f"{separator}\n  {key}")
            _write_value(value, "\n  ", file)
            separator = ","
    is_empty = separator == "{"
    file.write("{}" if is_empty else "\n}")


def _write_value(value: Any, newline: str, file: TextIO) -> None:
    """Write a value; `newline` is a line break with the indentation of the value.

    A list is written entry by entry, so that the complete text is never in memory.
    """
    if type(value) is not list or not value:
        file.write(_json_text(value, newline))
        return
    separator = "["
    inner = newline + "  "
    for entry in value:
        file.write(separator + inner + _json_text(entry, inner))
        separator = ","
    file.write(newline + "]")


_JSON_OF_PLAIN: dict[type, Callable[[Any], str]] = {
    str: quoted,
    int: int.__repr__,
    float: lambda value: repr(value) if isfinite(value) else json.dumps(value),
    bool: lambda value: "true" if value else "false",
    type(None): lambda _value: "null",
}
"""A dict from a plain type to the function that returns the JSON of a value of this type."""


def _json_text(value: Any, newline: str) -> str:
    """Return the JSON of a value; `newline` is a line break with the indentation of the value."""
    json_of_plain = _JSON_OF_PLAIN.get(type(value))
    if json_of_plain is not None:
        return json_of_plain(value)
    inner = newline + "  "
    parts = []
    fields = _fields(type(value))  # type: ignore[arg-type]
    if fields is not None:
        for name, key in fields:
            member = getattr(value, name)
            if member is not None:
                parts.append(key + _json_text(member, inner))
        return _enclosed("{", parts, "}", newline)
    if isinstance(value, dict):
        for key, member in value.items():
            # Let `json` write the key, because `json` turns a number or None into a text.
            json_key = json.dumps({key: 0})[1:-4]  # the text without "{" and ": 0}"
            parts.append(f"{json_key}: {_json_text(member, inner)}")
        return _enclosed("{", parts, "}", newline)
    if isinstance(value, PackedStats):
        for name, number in zip(value.names, value.values, strict=True):
            parts.append(_json_of_stat(name, number, repr(number), inner))
        return _enclosed("[", parts, "]", newline)
    if isinstance(value, list | tuple):
        return _enclosed("[", [_json_text(entry, inner) for entry in value], "]", newline)
    return json.dumps(value)  # a member of an enumeration, or a float of numpy


def _enclosed(opening: str, parts: list[str], closing: str, newline: str) -> str:
    """Return the JSON of a list or a mapping from the JSON of its entries."""
    if not parts:
        return opening + closing
    content = f",{newline}  ".join(parts)
    return f"{opening}{newline}  {content}{newline}{closing}"


@lru_cache(maxsize=2_000)
def _json_of_stat(name: Any, value: Any, _repr_of_value: str, newline: str) -> str:
    """Return the JSON of a statistic that was made from one value.

    Only the cache needs `_repr_of_value`: 0.0, -0.0 and 0 are equal as keys, and have different
    JSON.
    """
    return _json_text(Stat(name).add(value), newline)


@cache
def _fields(kind: type) -> tuple[tuple[str, str], ...] | None:
    """Return the name and the quoted key of each field; None if `kind` is not a dataclass."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple((field.name, f"{quoted(field.name)}: ") for field in dataclasses.fields(kind))
