"""The paired difference of two results on one group of their instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eval_factory.analysis.comparison import Comparison, difference_of
from eval_factory.analysis.instance_values import values_of
from eval_factory.analysis.paired import PairedDifference
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
    return difference_of(sides[0], sides[1], keys, comparison.scale) if keys else None


def _members(records: Iterable[InstanceRecord], group: tuple[str, str]) -> Iterator[InstanceRecord]:
    field, value = group
    for record in records:
        found = record.sub_split if field == SUB_SPLIT else record.categories.get(field)
        if found is not None and str(found) == value:
            yield record
