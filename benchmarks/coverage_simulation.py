#!/usr/bin/env python3
"""Measures how often the 95 % intervals of scores cover the true mean: the table of
docs/statistics.md.

    python benchmarks/coverage_simulation.py [--samples 4000] [--seed 1]

Samples are drawn by numpy, and each gets its interval from the function that scores get theirs
from. The coverage of 0/1 values that are not clustered is no simulation: all counts that there can
be are gone through. Takes a minute.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from eval_factory.scoring.intervals import interval_of_mean, student_t_interval

SIZES = (5, 10, 20, 50, 100, 300, 1000)
COLUMNS = ("values", *(f"n = {size:,}" for size in SIZES))
SHARES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99)
GRID = tuple(number / 100 for number in range(1, 100))
NOMINAL = 0.95
LEAST = 0.93
ICC = 0.2
JURY = (1.0, 5.0)

Rows = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Rows]
"""A function that takes a source of chance, the number of samples and of values in each, and
returns a row a sample.
"""


@dataclass(frozen=True)
class Population:
    """The population that values are drawn from."""

    name: str
    mean: float
    draw: Draw
    scale: tuple[float, float] | None = None
    cluster_size: int = 1


def coverage_of_share(share: float, count: int) -> float:
    """Exact: the probability of all counts whose interval holds the share."""
    log_share = math.log(share)
    log_rest = math.log1p(-share)
    found = 0.0
    for right in range(count + 1):
        low, high = _of_count(right, count)
        if low <= share <= high:
            ways = math.lgamma(count + 1) - math.lgamma(right + 1) - math.lgamma(count - right + 1)
            found += math.exp(ways + right * log_share + (count - right) * log_rest)
    return found


@cache
def _of_count(right: int, count: int) -> tuple[float, float]:
    found = interval_of_mean([1.0] * right + [0.0] * (count - right))
    return (found.low or 0.0, 1.0 if found.high is None else found.high)


def coverage(population: Population, count: int, samples: int, seed: int) -> float:
    """The share of samples whose interval holds the mean. A sample without an interval covers
    nothing.
    """
    rows = population.draw(np.random.default_rng([seed, count]), samples, count)
    clusters = None
    if population.cluster_size > 1:
        clusters = [number // population.cluster_size for number in range(count)]
    else:
        rows = np.sort(rows, axis=1)  # samples that hold the same values have the same interval
    known: dict[bytes, bool] = {}
    return sum(_covers(row, population, clusters, known) for row in rows) / samples


def _covers(
    row: Rows, population: Population, clusters: list[int] | None, known: dict[bytes, bool]
) -> bool:
    key = row.tobytes()
    if key not in known:
        found = interval_of_mean(row.tolist(), scale=population.scale, clusters=clusters)
        known[key] = (
            found.low is not None
            and found.high is not None
            and found.low <= population.mean <= found.high
        )
    return known[key]


def coverage_of_plain_t(population: Population, count: int, samples: int, seed: int) -> float:
    """Return the coverage of Student's t interval of the values alone, as it is often reported."""
    rows = population.draw(np.random.default_rng([seed, count]), samples, count)
    hits = 0
    for row in rows.tolist():
        low, high = student_t_interval(row)
        if low <= population.mean <= high:
            hits += 1
    return hits / samples


def ratings(
    name: str, marks: Sequence[float], shares: Sequence[float], cluster_size: int = 1
) -> Population:
    """A jury's: each mark with its share."""

    def draw(source: np.random.Generator, samples: int, count: int) -> Rows:
        return np.asarray(marks)[
            np.searchsorted(np.cumsum(shares)[:-1], _uniform(source, samples, count, cluster_size))
        ]

    mean = sum(mark * share for mark, share in zip(marks, shares, strict=True))
    return Population(name, mean, draw, JURY, cluster_size)


def overlaps(name: str, zeros: float, cluster_size: int = 1) -> Population:
    """ROUGE-like: a share of zeros, the others between 0 and 1 about 0.2."""

    def draw(source: np.random.Generator, samples: int, count: int) -> Rows:
        values = source.beta(2, 8, (samples, count))
        values[_uniform(source, samples, count, cluster_size) < zeros] = 0.0
        return values

    return Population(name, (1 - zeros) * 0.2, draw, None, cluster_size)


def clustered_shares(share: float, cluster_size: int) -> Population:
    """0/1 values whose clusters have shares of their own, of a beta distribution with this ICC."""

    def draw(source: np.random.Generator, samples: int, count: int) -> Rows:
        return (_uniform(source, samples, count, cluster_size, share) < share).astype(float)

    return Population(f"{share:g} right", share, draw, None, cluster_size)


def _uniform(
    source: np.random.Generator,
    samples: int,
    count: int,
    cluster_size: int,
    share: float | None = None,
) -> Rows:
    """Numbers from 0 to 1, of one cluster alike, with the intra-class correlation ICC.

    Without a `share` each takes its cluster's number with the probability sqrt(ICC), and one of its
    own otherwise. With a share it is 0 if a beta-binomial variable is 1, and 1 elsewhere: of 0/1
    values that is the usual model.
    """
    if cluster_size == 1:
        return source.random((samples, count))
    clusters = -(-count // cluster_size)
    if share is not None:
        weight = (1 - ICC) / ICC
        of_cluster = source.beta(share * weight, (1 - share) * weight, (samples, clusters))
        chances = np.repeat(of_cluster, cluster_size, axis=1)[:, :count]
        return np.where(source.random((samples, count)) < chances, 0.0, 1.0)
    common = np.repeat(source.random((samples, clusters)), cluster_size, axis=1)[:, :count]
    takes_it = source.random((samples, count)) < math.sqrt(ICC)
    return np.where(takes_it, common, source.random((samples, count)))


ALONE = (
    ratings("jury: 97 % fives, 3 % ones", (1, 5), (0.03, 0.97)),
    ratings("jury: 99 % fives, 1 % ones", (1, 5), (0.01, 0.99)),
    ratings("jury: 90 % fives, 10 % fours", (4, 5), (0.1, 0.9)),
    ratings("jury: ratings all over the scale", (1, 2, 3, 4, 5), (0.02, 0.03, 0.15, 0.4, 0.4)),
    ratings(
        "jury: means of three judges, 3 to 4", (3, 10 / 3, 11 / 3, 4), (0.25, 0.25, 0.25, 0.25)
    ),
    overlaps("ROUGE-like: 95 % zeros", 0.95),
    overlaps("ROUGE-like: no zeros", 0.0),
)
IN_CLUSTERS = (
    *(clustered_shares(share, 5) for share in SHARES),
    ratings("jury: 97 % fives, 3 % ones", (1, 5), (0.03, 0.97), 5),
    overlaps("ROUGE-like: 95 % zeros", 0.95, 5),
)
LARGE_CLUSTERS = (
    *(clustered_shares(share, 19) for share in SHARES),
    ratings("jury: 97 % fives, 3 % ones", (1, 5), (0.03, 0.97), 19),
    ratings("jury: ratings all over the scale", (1, 2, 3, 4, 5), (0.02, 0.03, 0.15, 0.4, 0.4), 19),
    overlaps("ROUGE-like: 95 % zeros", 0.95, 19),
)
CALCULATORS = 55
ROWS_OF_EACH = 19


def tables(samples: int, seed: int) -> Iterator[str]:
    """The lines of docs/statistics.md's tables."""
    yield "### 0/1 values, exact"
    yield from _head(COLUMNS)
    for share in SHARES:
        yield _line(f"{share:g} right", [coverage_of_share(share, size) for size in SIZES])
    over_grid = {size: [coverage_of_share(share, size) for share in GRID] for size in SIZES}
    yield _line("lowest of 0.01, 0.02 ... 0.99", [min(over_grid[size]) for size in SIZES])
    yield _line("mean of them", [sum(over_grid[size]) / len(GRID) for size in SIZES])
    yield ""
    yield "### Ratings and overlaps"
    yield from _head(COLUMNS)
    for one in ALONE:
        yield _line(one.name, [coverage(one, size, samples, seed) for size in SIZES])
    for one in (ALONE[0], ALONE[5]):
        plain = [coverage_of_plain_t(one, size, samples, seed) for size in SIZES]
        yield _line(f"{one.name}, by plain Student's t", plain, mark=False)
    yield ""
    yield f"### Clusters of 5, ICC {ICC}"
    yield from _head(COLUMNS)
    for one in IN_CLUSTERS:
        yield _line(
            one.name, [None if size < 10 else coverage(one, size, samples, seed) for size in SIZES]
        )
    yield ""
    yield f"### {CALCULATORS} clusters of {ROWS_OF_EACH}, ICC {ICC}"
    size = CALCULATORS * ROWS_OF_EACH
    yield from _head(("values", f"n = {size:,}"))
    for one in LARGE_CLUSTERS:
        yield _line(one.name, [coverage(one, size, samples, seed)])


def _head(columns: Sequence[str]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"


def _line(name: str, found: Iterable[float | None], *, mark: bool = True) -> str:
    """Return a table's line in per cent; what lies below the least is marked."""
    cells = []
    for value in found:
        text = "" if value is None else f"{100 * value:.1f}"
        cells.append(f"**{text}**" if mark and value is not None and value < LEAST else text)
    return f"| {' | '.join([name, *cells])} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for line in tables(arguments.samples, arguments.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
