"""The paired difference of two results on one group of their instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eval_factory.analysis.comparison import Comparison, clusters_of
from eval_factory.analysis.instance_values import values_of
from eval_factory.analysis.paired import PairedDifference, paired_difference
from eval_factory.core.results import InstanceRecord
from eval_factory.report.reader import StoredResult

SUB_SPLIT = "sub_split"


def difference_in_group(
    a: StoredResult, b: StoredResult, comparison: Comparison, group: tuple[str, str]
) -> PairedDifference | None:
    """Of the instances that both have a value of, as in the comparison of all; None where there is none.

    Args:
        group: a field of the instances and its value.
    """
    score = a.result.scores[comparison.metric]
    sides = [values_of(_members(one.result.instances, group), score) for one in (a, b)]
    keys = sorted(sides[0].values.keys() & sides[1].values.keys())
    if not keys:
        return None
    values_a, values_b = ([side.values[key] for key in keys] for side in sides)
    return paired_difference(values_a, values_b, clusters=clusters_of(sides[0], keys), scale=comparison.scale)


def _members(records: Iterable[InstanceRecord], group: tuple[str, str]) -> Iterator[InstanceRecord]:
    field, value = group
    for record in records:
        found = record.sub_split if field == SUB_SPLIT else record.categories.get(field)
        if found is not None and str(found) == value:
            yield record
