"""Tests by permutation whether a group of instances and the rest have the same mean.

All instances of a source, such as a patient's note, are permuted together. The exception is a
source with instances in both the group and the rest: these instances are exchanged only with each
other.
The test is exact if group and rest are drawn from one population, even if there are few different
values. A t test then fails: a group of equal values has a standard error of 0, which a t test takes
for certainty. The functions are pure: they read no files.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 20_261_128  # fixed, so that the same values give the same p value
# The observed grouping counts as one more permutation: with it, the numbers are 500 and 5,000.
FIRST_PERMUTATIONS = 499
PERMUTATIONS = 4_999
CLEARLY_ALIKE = 0.1
"""If the p value of the first permutations is greater, no further permutations are drawn."""
CELLS_AT_ONCE = 2_000_000  # the greatest number of elements of an array; it limits the memory
ROUNDING = 1e-9
"""The relative tolerance for rounding errors."""
ROUNDING_OF_SQUARES = ROUNDING**1.5
"""The relative tolerance for differences of squares: 3e-14, 140 times a float's precision."""


@dataclass(frozen=True, eq=False)
class _Units:
    """The units that are permuted, in the order of their sources.

    A source with all its values in the group, or all in the rest, is one unit; these units are
    exchanged with each other. A source with values in both is split: each value is a unit, and
    these units are exchanged within the source. Each array has one element for each unit, except
    `source_starts`, which has one for each source.
    """

    sums: NDArray[Any]  # the sum of the unit's values, each minus the mean of all values
    counts: NDArray[Any]  # the number of the unit's values
    in_group: NDArray[Any]  # 1.0 if the unit is in the group, else 0.0
    # Units of one stratum have the same number, and are exchanged with each other. A unit that is a
    # complete source has the number 0. The units of a split source have their source's number,
    # which is at least 1.
    strata: NDArray[Any]
    source_starts: NDArray[Any]  # the index of the first unit of each source

    @cached_property
    def has_split_sources(self) -> bool:
        """True if a source has values in the group and in the rest."""
        return bool(self.strata.any())

    @cached_property
    def products(self) -> NDArray[Any]:
        """The sum^2, sum times count and count^2 of each unit; the shape is (units, 3)."""
        import numpy as np

        return np.stack([self.sums**2, self.sums * self.counts, self.counts**2], axis=-1)


def permutation_p(
    group: Sequence[float],
    rest: Sequence[float],
    group_sources: Sequence[Hashable],
    rest_sources: Sequence[Hashable],
) -> float:
    """Return the p value of the hypothesis that the means are equal: twice the smaller tail.

    The statistic is the difference of the means over its cluster-robust standard error. The test is
    therefore also valid for large groups whose spread differs (A. Janssen, Statistics & Probability
    Letters 36:9-21, 1997; E. Chung and J. P. Romano, Annals of Statistics 41:484-507, 2013). A
    label states whether a unit belongs to the group. The observed labels count as one of the
    permutations (B. Phipson and G. K. Smyth, Statistical Applications in Genetics and Molecular
    Biology 9:39, 2010).

    Args:
        group: the values of the group's instances.
        rest: the values of the other instances.
        group_sources: the source of each instance of the group.
        rest_sources: the source of each other instance.
    """
    import numpy as np  # imported here: most results have no groups

    # The smaller of the two comes first, so that exchanging group and rest gives the same p value.
    if (len(rest), sorted(rest)) < (len(group), sorted(group)):
        return permutation_p(rest, group, rest_sources, group_sources)
    units = _units_of(group, rest, group_sources, rest_sources)
    observed = _statistics(units, units.in_group[None])[0]  # [None]: as a matrix of one row
    tolerance = 0.0  # for an infinite statistic, which has no rounding error
    if np.isfinite(observed):
        tolerance = ROUNDING * max(1.0, abs(observed))
    rng = np.random.default_rng(SEED)
    max_at_once = max(1, CELLS_AT_ONCE // len(units.sums))
    drawn = 0
    # `above` counts the permutations whose statistic is at least the observed statistic, and
    # `below` those whose statistic is at most the observed statistic. Both count the observed
    # labels, which therefore add 1.
    above = 1
    below = 1
    p_value = 1.0
    for goal in (FIRST_PERMUTATIONS, PERMUTATIONS):
        while drawn < goal:
            size = min(max_at_once, goal - drawn)
            permuted = _statistics(units, _permuted_labels(units, size, rng))
            above += int((permuted >= observed - tolerance).sum())
            below += int((permuted <= observed + tolerance).sum())
            drawn += size
        p_value = min(1.0, 2 * min(above, below) / (drawn + 1))
        if p_value > CLEARLY_ALIKE:
            break
    return p_value


def _units_of(
    group: Sequence[float],
    rest: Sequence[float],
    group_sources: Sequence[Hashable],
    rest_sources: Sequence[Hashable],
) -> _Units:
    """Return the units, in an order that depends on their values alone.

    The p value therefore does not depend on the order of the instances.
    """
    import numpy as np

    outside_by_source = _sorted_by_source(rest, rest_sources)
    inside_by_source = _sorted_by_source(group, group_sources)
    # for each source, its values outside and inside the group
    values_of_sources = [
        (outside_by_source.get(source, []), inside_by_source.get(source, []))
        for source in outside_by_source.keys() | inside_by_source.keys()
    ]
    mean = math.fsum((*group, *rest)) / (len(group) + len(rest))
    sums: list[float] = []
    counts: list[float] = []
    in_group: list[float] = []
    strata: list[int] = []
    starts: list[int] = []
    for number, (outside, inside) in enumerate(sorted(values_of_sources), start=1):
        starts.append(len(sums))
        if outside and inside:
            for membership, values in ((0.0, outside), (1.0, inside)):
                sums += [value - mean for value in values]
                counts += [1.0] * len(values)
                in_group += [membership] * len(values)
                strata += [number] * len(values)
        else:
            values = outside or inside
            sums.append(math.fsum(value - mean for value in values))
            counts.append(float(len(values)))
            in_group.append(1.0 if inside else 0.0)
            strata.append(0)
    return _Units(
        sums=np.array(sums),
        counts=np.array(counts),
        in_group=np.array(in_group),
        strata=np.array(strata),
        source_starts=np.array(starts),
    )


def _sorted_by_source(
    values: Sequence[float], sources: Sequence[Hashable]
) -> dict[Hashable, list[float]]:
    """Return a dict from each source to its values in ascending order.

    Args:
        values: the values of the instances.
        sources: the source of each instance.
    """
    by_source: dict[Hashable, list[float]] = {}
    for value, source in zip(values, sources, strict=True):
        by_source.setdefault(source, []).append(value)
    return {source: sorted(of_source) for source, of_source in by_source.items()}


def _permuted_labels(units: _Units, size: int, rng: Any) -> NDArray[Any]:
    """Return `size` random permutations of the labels within each stratum.

    A label is 1.0 if the unit is in the group, else 0.0. The shape is (size, units).
    """
    import numpy as np

    count = len(units.in_group)
    labels = np.zeros((size, count))
    if not units.has_split_sources:
        # All units are of one stratum. Those with the smallest random numbers form the group.
        size_of_group = int(units.in_group.sum())
        random_numbers = rng.random((size, count))
        smallest_first = np.argpartition(random_numbers, size_of_group - 1, axis=1)
        np.put_along_axis(labels, smallest_first[:, :size_of_group], 1.0, axis=1)
        return labels
    # The numbers of the strata are integers, and the random numbers are less than 1. The sums
    # therefore sort the units at random within each stratum.
    by_stratum = np.argsort(units.strata, kind="stable")  # the indexes of the units, by stratum
    strata = units.strata[by_stratum]
    order = np.argsort(strata + rng.random((size, count)), axis=1)
    permuted_labels = units.in_group[by_stratum][order]
    labels[:, by_stratum] = permuted_labels  # back in the order of the units
    return labels


def _statistics(units: _Units, labels: NDArray[Any]) -> NDArray[Any]:
    """Return for each row of labels the difference of the means over its standard error.

    The standard error is cluster-robust.
    """
    import numpy as np

    number_of_values = units.counts.sum()
    largest = np.max(np.abs(units.sums))
    if not largest:  # the means of all units are equal, for example because all values are equal
        return np.zeros(len(labels))
    count_inside = labels @ units.counts
    count_outside = number_of_values - count_inside
    sum_inside = labels @ units.sums
    mean_inside = sum_inside / count_inside
    mean_outside = (units.sums.sum() - sum_inside) / count_outside
    if units.has_split_sources:
        # The influence of a unit is its contribution to the error of the difference of the means.
        deviation_inside = units.sums - mean_inside[:, None] * units.counts
        deviation_outside = units.sums - mean_outside[:, None] * units.counts
        influence_inside = deviation_inside / count_inside[:, None]
        influence_outside = deviation_outside / count_outside[:, None]
        influence = np.where(labels > 0, influence_inside, -influence_outside)
        # The influences of all units of a source are summed before the sum is squared.
        by_source = np.add.reduceat(influence, units.source_starts, axis=1)
        variance = (by_source**2).sum(axis=1)
    else:
        # The same variance, by sums over the units: this saves arrays of the size of `labels`.
        products_inside = labels @ units.products
        products_outside = units.products.sum(axis=0) - products_inside
        variance = _squared_deviations(products_inside, mean_inside) / count_inside**2
        variance += _squared_deviations(products_outside, mean_outside) / count_outside**2
    difference = mean_inside - mean_outside
    tolerance = ROUNDING * largest / number_of_values  # a smaller difference is a rounding error
    difference[np.abs(difference) < tolerance] = 0.0
    variance[variance < tolerance**2] = 0.0
    statistic = np.zeros(len(difference))
    differs = difference != 0
    with np.errstate(divide="ignore"):  # with a standard error of 0, the statistic is infinite
        statistic[differs] = difference[differs] / np.sqrt(variance[differs])
    return statistic


def _squared_deviations(products: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    """Return for each row the sum over its units of (sum - count times mean)^2.

    A result that is small enough to be a rounding error is replaced by 0.

    Args:
        products: for each row, the sums over its units of sum^2, sum times count and count^2.
        mean: the mean of each row.
    """
    import numpy as np

    squares, mixed, counts = np.moveaxis(products, -1, 0)  # the three columns
    # (sum - count mean)^2 = sum^2 - 2 mean (sum count) + mean^2 count^2
    differences = squares - 2 * mean * mixed + mean**2 * counts
    return np.where(differences < ROUNDING_OF_SQUARES * squares, 0.0, differences)
