#!/usr/bin/env python3
"""Measures how often a group's p value is below 0.05.

The table is in benchmarks/README.md, P values of groups.

    python benchmarks/group_p_values.py [--samples 2000] [--seed 7]

The group and the rest are drawn from equal populations, and then from populations that differ. The
column `t` is Welch's test; for values in clusters, t with the cluster-robust variance. Results had
this p value before. The column `p value` is the present p value of results: by permutation, or the
greater of both. A share is bold if the populations are equal, and if more than 6 % of the p values
are below 0.05.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import stats

from eval_factory.scoring.groups import _clustered_t, p_value_of_difference
from eval_factory.scoring.intervals import holm_corrected

Values = npt.NDArray[np.float64]
Chance = np.random.Generator
Side = tuple[Values, list[Hashable] | None]
"""The values of a group or of the rest, and the source of each value; None if there are no sources.
"""
ALPHA = 0.05
MAX_FALSE = 0.06  # A higher share of low p values, for equal populations, is printed in bold.


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    draw: Callable[[Chance], list[Side]]  # draws all groups, or one group and the rest
    alike: bool = True  # True if all sides come from the same population


def graded(
    chance: Chance, count: int, faults: float, faulty: Sequence[float], best: float = 5.0
) -> Side:
    """Draw values: one of the `faulty` values with the probability `faults`, and else `best`."""
    values = np.where(chance.random(count) < faults, chance.choice(faulty, count), best)
    return values, None


def mean_of_marks(chance: Chance, count: int) -> Side:
    """Draw means of three marks. Each mark is 4 with the probability 2 %, and else 5."""
    return np.where(chance.random((count, 3)) < 0.02, 4, 5).mean(axis=1), None


def normal(chance: Chance, count: int, mean: float = 0.0, deviation: float = 1.0) -> Side:
    return chance.normal(mean, deviation, count), None


def right_or_wrong(
    chance: Chance, sources: int, size: int, share: float = 0.9, correlation: float = 0.3
) -> Side:
    """Draw 0/1 values from a beta-binomial distribution: each source has its own share of ones.

    Args:
        chance: a generator of random numbers.
        sources: the number of sources.
        size: the number of values from each source.
        share: the mean share of ones.
        correlation: the intra-class correlation within a source.
    """
    weight = (1 - correlation) / correlation
    chances = np.repeat(chance.beta(share * weight, (1 - share) * weight, sources), size)
    values = (chance.random(len(chances)) < chances).astype(float)
    # A random first label, so that the sources of two sides have different labels.
    first = int(chance.integers(1 << 40))
    labels: list[Hashable] = [first + number // size for number in range(sources * size)]
    return values, labels


def on_both_sides(
    chance: Chance,
    sources: int,
    inside: int,
    outside: int,
    share: float = 0.8,
    apart: float = 0.0,
    rest_alone: int = 0,
) -> list[Side]:
    """Draw 0/1 values of a group and of the rest that share sources.

    Args:
        chance: a generator of random numbers.
        sources: the number of sources that have values on both sides.
        inside: the number of values of each source in the group.
        outside: the number of values of each source in the rest.
        share: the mean share of ones.
        apart: the standard deviation of a source's share of ones on one side from its common share.
        rest_alone: the number of further sources, which have values in the rest only.
    """
    all_sources = sources + rest_alone
    weight = 0.7 / 0.3  # (1 - correlation) / correlation, with an intra-class correlation of 0.3
    common = chance.beta(share * weight, (1 - share) * weight, all_sources)
    sides: list[Side] = []
    for count, size in ((sources, inside), (all_sources, outside)):
        chances = np.clip(common[:count] + chance.normal(0, apart, count), 0, 1)
        values = chance.random(count * size) < np.repeat(chances, size)
        sides.append((values.astype(float), np.repeat(np.arange(count), size).tolist()))
    return sides


def of_sides(*draws: Callable[[Chance], Side]) -> Callable[[Chance], list[Side]]:
    """Return a function that draws each side with its own function."""
    return lambda chance: [draw(chance) for draw in draws]


def alike(
    draw: Callable[..., Side], *counts: int, **arguments: object
) -> Callable[[Chance], list[Side]]:
    """Return a function that draws all sides with `draw` and the same arguments.

    `counts` has the number of values of each side.
    """
    return of_sides(*(partial(draw, count=count, **arguments) for count in counts))


FAULTY = (1.0, 2.0, 3.0)  # the ratings that are not the best


def rows() -> Iterator[Row]:
    """Yield the rows of the table."""
    for share, sizes in (
        (0.03, (10, 190)),
        (0.03, (20, 180)),
        (0.02, (30, 270)),
        (0.02, (20, 480)),
        (0.03, (10, 10, 280)),
    ):
        counts = " and ".join(map(str, sizes))
        yield Row(
            f"{1 - share:.0%} fives; {counts}", alike(graded, *sizes, faults=share, faulty=FAULTY)
        )
    yield Row("mean of three marks, 2 % lower; 10 and 190", alike(mean_of_marks, 10, 190))
    rubric = {"faults": 0.05, "faulty": (-0.5,), "best": 1.0}
    yield Row("rubric, 5 % at -.5; 20 and 180", alike(graded, 20, 180, **rubric))
    repeats = {"faults": 0.04, "faulty": (0.5,), "best": 1.0}
    yield Row("mean of repeats, 4 % half right; 20 and 180", alike(graded, 20, 180, **repeats))
    for sizes in ((10, 190), (20, 180), (30, 60)):
        yield Row(f"normal; {sizes[0]} and {sizes[1]}", alike(normal, *sizes))
    for deviation in (0.5, 2.0):
        draws = partial(normal, count=10, deviation=deviation), partial(normal, count=190)
        yield Row(f"normal, deviation {deviation}; 10 and 190", of_sides(*draws))
    for few, many, size in ((5, 50, 5), (8, 80, 5), (20, 20, 10)):
        sides = (partial(right_or_wrong, sources=count, size=size) for count in (few, many))
        yield Row(f"0/1, sources of {size}; {few} and {many} sources", of_sides(*sides))
    for size, size_of_rest in ((20, 4), (4, 20)):
        first = partial(right_or_wrong, sources=5, size=size)
        second = partial(right_or_wrong, sources=50, size=size_of_rest)
        yield Row(f"0/1; 5 sources of {size}, 50 of {size_of_rest}", of_sides(first, second))
    both = "0/1, sources on both sides"
    yield Row(f"{both}; 30 of 2 and 3", partial(on_both_sides, sources=30, inside=2, outside=3))
    apart = partial(on_both_sides, inside=5, outside=5, apart=0.2)
    yield Row(f"{both} and apart there; 30 of 5", partial(apart, sources=30))
    yield Row(f"{both} and apart there; 10 of 40", partial(apart, sources=10, rest_alone=30))
    for mean, deviation, sizes in (
        (1.0, 1.0, (10, 190)),
        (0.5, 0.5, (10, 190)),
        (1.5, 2.0, (10, 190)),
        (0.65, 1.0, (20, 180)),
        (0.6, 1.0, (30, 60)),
        (1.2, 1.0, (10, 10)),
    ):
        first = partial(normal, count=sizes[0], mean=mean, deviation=deviation)
        name = f"normal, {mean} apart, deviation {deviation}; {sizes[0]} and {sizes[1]}"
        yield Row(name, of_sides(first, partial(normal, count=sizes[1])), alike=False)
    lower = partial(right_or_wrong, sources=15, size=5, share=0.5)
    rest = partial(right_or_wrong, sources=40, size=5, share=0.8)
    yield Row("0/1, .5 and .8; 15 and 40 sources of 5", of_sides(lower, rest), alike=False)
    faulty = partial(graded, count=10, faults=0.3, faulty=FAULTY)
    fives = partial(graded, count=190, faults=0.03, faulty=FAULTY)
    yield Row("70 % and 97 % fives; 10 and 190", of_sides(faulty, fives), alike=False)


def by_t(group: Side, rest: Side) -> float | None:
    """Return the p value of Welch's test, or of t with the cluster-robust variance."""
    if group[1] is not None and rest[1] is not None:
        return _clustered_t((group[0].tolist(), group[1]), (rest[0].tolist(), rest[1]))
    values = group[0]
    values_of_rest = rest[0]
    deviation = values.std(ddof=1)
    deviation_of_rest = values_of_rest.std(ddof=1)
    if deviation == deviation_of_rest == 0:
        return None
    test = stats.ttest_ind_from_stats(
        values.mean(),
        deviation,
        len(values),
        values_of_rest.mean(),
        deviation_of_rest,
        len(values_of_rest),
        equal_var=False,
    )
    return float(test.pvalue)


def as_reported(group: Side, rest: Side) -> float | None:
    """Return the p value that results get."""
    return p_value_of_difference((group[0].tolist(), group[1]), (rest[0].tolist(), rest[1]))


def least_p(sides: list[Side], test: Callable[[Side, Side], float | None]) -> float:
    """Return the p value of a group and the rest; 1 if the test gives none.

    If there are more than two sides, each side is a group: its rest are the other sides. The
    smallest p value is returned, corrected for the number of groups (Holm).
    """
    if len(sides) == 2:
        p_value = test(*sides)
        return 1.0 if p_value is None else p_value
    p_values = []
    for index, side in enumerate(sides):
        other_sides = sides[:index] + sides[index + 1 :]
        rest = np.concatenate([values for values, _sources in other_sides])
        p_values.append(test(side, (rest, None)))
    return min((value for value in holm_corrected(p_values) if value is not None), default=1.0)


def measured(row: Row, samples: int, seed: int) -> tuple[float, float]:
    """Return the share of the samples whose p value is below 0.05: by t, and as reported."""
    chance = np.random.default_rng([seed, zlib.crc32(row.name.encode())])
    is_low = []
    for _ in range(samples):
        sides = row.draw(chance)
        is_low.append([least_p(sides, test) < ALPHA for test in (by_t, as_reported)])
    by_t_share, reported_share = np.mean(is_low, axis=0).tolist()
    return by_t_share, reported_share


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rows", default="", help="only rows whose name contains this text")
    arguments = parser.parse_args()
    print("| values; group and rest | populations | t | p value |\n|---|---|---|---|")
    for row in rows():
        if arguments.rows not in row.name:
            continue
        shares = measured(row, arguments.samples, arguments.seed)
        populations = "equal" if row.alike else "differ"
        shown = []
        for share in shares:
            text = f"{100 * share:.1f}"
            shown.append(f"**{text}**" if row.alike and share > MAX_FALSE else text)
        print(f"| {row.name} | {populations} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
