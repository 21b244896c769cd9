#!/usr/bin/env python3
"""Measures how often a group's p value is below 0.05: the table of benchmarks/README.md, P values
of groups.

    python benchmarks/group_p_values.py [--samples 2000] [--seed 7]

Group and rest are drawn from equal populations, then from populations that differ. `t` is Welch's
test, of clusters t with the cluster-robust variance: what results had before. `p value` is what
they get, by permutation, or the greater of both; bold is above 6 % of the samples of equal
populations.
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
ALPHA = 0.05
MOST = 0.06


@dataclass(frozen=True)
class Row:
    name: str
    draw: Callable[[Chance], list[Side]]
    """The groups, or a group and the rest."""
    alike: bool = True
    """All sides come from one population."""


def graded(
    chance: Chance, count: int, faults: float, faulty: Sequence[float], best: float = 5.0
) -> Side:
    values = np.where(chance.random(count) < faults, chance.choice(faulty, count), best)
    return values, None


def mean_of_marks(chance: Chance, count: int) -> Side:
    """The mean of three marks, each of which is 4 in one of fifty."""
    return np.where(chance.random((count, 3)) < 0.02, 4, 5).mean(axis=1), None


def normal(chance: Chance, count: int, mean: float = 0.0, deviation: float = 1.0) -> Side:
    return chance.normal(mean, deviation, count), None


def right_or_wrong(
    chance: Chance, sources: int, size: int, share: float = 0.9, correlation: float = 0.3
) -> Side:
    """0/1 values of sources of one size, from a beta-binomial distribution."""
    weight = (1 - correlation) / correlation
    chances = np.repeat(chance.beta(share * weight, (1 - share) * weight, sources), size)
    values = (chance.random(len(chances)) < chances).astype(float)
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
    """Each source has so many values in the group and in the rest; what is `apart` is the standard
    deviation of a source's share between the two sides.
    """
    every = sources + rest_alone
    weight = 0.7 / 0.3
    common = chance.beta(share * weight, (1 - share) * weight, every)
    sides: list[Side] = []
    for count, size in ((sources, inside), (every, outside)):
        chances = np.clip(common[:count] + chance.normal(0, apart, count), 0, 1)
        values = chance.random(count * size) < np.repeat(chances, size)
        sides.append((values.astype(float), np.repeat(np.arange(count), size).tolist()))
    return sides


def of_sides(*draws: Callable[[Chance], Side]) -> Callable[[Chance], list[Side]]:
    return lambda chance: [draw(chance) for draw in draws]


def alike(draw: Callable[..., Side], *counts: int, **how: object) -> Callable[[Chance], list[Side]]:
    return of_sides(*(partial(draw, count=count, **how) for count in counts))


FAULTY = (1.0, 2.0, 3.0)


def rows() -> Iterator[Row]:
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
    for size, others in ((20, 4), (4, 20)):
        first = partial(right_or_wrong, sources=5, size=size)
        second = partial(right_or_wrong, sources=50, size=others)
        yield Row(f"0/1; 5 sources of {size}, 50 of {others}", of_sides(first, second))
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
    if group[1] is not None and rest[1] is not None:
        return _clustered_t((group[0].tolist(), group[1]), (rest[0].tolist(), rest[1]))
    first, second = ((side.mean(), side.std(ddof=1), len(side)) for side in (group[0], rest[0]))
    if first[1] == second[1] == 0:
        return None
    return float(stats.ttest_ind_from_stats(*first, *second, equal_var=False).pvalue)


def as_reported(group: Side, rest: Side) -> float | None:
    return p_value_of_difference((group[0].tolist(), group[1]), (rest[0].tolist(), rest[1]))


def least_p(sides: list[Side], test: Callable[[Side, Side], float | None]) -> float:
    """Return the p value of two sides; of more, the least, corrected for their number."""
    if len(sides) == 2:
        p_value = test(*sides)
        return 1.0 if p_value is None else p_value
    found = []
    for at, side in enumerate(sides):
        others = np.concatenate(
            [values for number, (values, _) in enumerate(sides) if number != at]
        )
        found.append(test(side, (others, None)))
    return min((value for value in holm_corrected(found) if value is not None), default=1.0)


def measured(row: Row, samples: int, seed: int) -> tuple[float, float]:
    """The shares of the samples whose p value is below 0.05: by t and as reported."""
    chance = np.random.default_rng([seed, zlib.crc32(row.name.encode())])
    found = []
    for _ in range(samples):
        sides = row.draw(chance)
        found.append([least_p(sides, test) < ALPHA for test in (by_t, as_reported)])
    shares = np.mean(found, axis=0).tolist()
    return shares[0], shares[1]


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
            shown.append(f"**{text}**" if row.alike and share > MOST else text)
        print(f"| {row.name} | {populations} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
