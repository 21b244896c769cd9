#!/usr/bin/env python3
"""Measures how often the 95 % intervals of scores contain the true mean.

The tables are in docs/statistics.md.

    python benchmarks/coverage_simulation.py [--samples 4000] [--seed 1]

numpy draws the samples. The interval of each sample is computed by the function that computes the
intervals of scores. The coverage of 0/1 values without clusters is not simulated, but exact: it is
computed from all possible counts of ones. Takes a minute.
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
MIN_COVERED = 0.93  # A lower coverage is printed in bold.
ICC = 0.2  # the intra-class correlation within a cluster
JURY = (1.0, 5.0)  # the scale of a jury's ratings

Rows = npt.NDArray[np.float64]  # the values of samples, in the shape (samples, values)
Draw = Callable[[np.random.Generator, int, int], Rows]
"""A function that draws samples. Its arguments are a generator of random numbers, the number of
samples, and the number of values in a sample.
"""


@dataclass(frozen=True)
class Population:
    """The population from which values are drawn."""

    name: str
    mean: float
    draw: Draw
    scale: tuple[float, float] | None = None  # the lowest and the highest value, if known
    cluster_size: int = 1  # the number of values in a cluster; 1 if there are no clusters


def coverage_of_share(share: float, count: int) -> float:
    """Return the exact coverage for samples of `count` 0/1 values, of which `share` are 1.

    The coverage is the sum of the binomial probabilities of all counts of ones whose interval
    contains the share. Logarithms of factorials (`lgamma`) avoid numbers that are too large.
    """
    log_share = math.log(share)
    log_rest = math.log1p(-share)
    covered = 0.0
    for ones in range(count + 1):
        low, high = _interval_of_count(ones, count)
        if low <= share <= high:
            log_ways = (
                math.lgamma(count + 1) - math.lgamma(ones + 1) - math.lgamma(count - ones + 1)
            )
            covered += math.exp(log_ways + ones * log_share + (count - ones) * log_rest)
    return covered


@cache
def _interval_of_count(ones: int, count: int) -> tuple[float, float]:
    """Return the interval of a sample of `count` values, of which `ones` are 1 and the rest 0."""
    interval = interval_of_mean([1.0] * ones + [0.0] * (count - ones))
    low = 0.0 if interval.low is None else interval.low
    high = 1.0 if interval.high is None else interval.high
    return low, high


def coverage(population: Population, count: int, samples: int, seed: int) -> float:
    """Return the share of samples whose interval contains the mean of the population.

    A sample without an interval counts as one that does not contain the mean.

    Args:
        population: the population.
        count: the number of values in a sample.
        samples: the number of samples.
        seed: the seed of the random numbers.
    """
    rows = population.draw(np.random.default_rng([seed, count]), samples, count)
    clusters = None
    if population.cluster_size > 1:
        clusters = [number // population.cluster_size for number in range(count)]
    else:
        rows = np.sort(rows, axis=1)  # Samples with the same values then share an interval.
    covers_by_sample: dict[bytes, bool] = {}
    return sum(_covers(row, population, clusters, covers_by_sample) for row in rows) / samples


def _covers(
    row: Rows,
    population: Population,
    clusters: list[int] | None,
    covers_by_sample: dict[bytes, bool],
) -> bool:
    """Return True if the interval of a sample contains the mean.

    `covers_by_sample` stores the results for equal samples.
    """
    key = row.tobytes()
    if key not in covers_by_sample:
        interval = interval_of_mean(row.tolist(), scale=population.scale, clusters=clusters)
        covers_by_sample[key] = (
            interval.low is not None
            and interval.high is not None
            and interval.low <= population.mean <= interval.high
        )
    return covers_by_sample[key]


def coverage_of_plain_t(population: Population, count: int, samples: int, seed: int) -> float:
    """Return the coverage of a plain Student's t interval of the values, as it is often reported.

    The arguments are those of `coverage`.
    """
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
    """Return the population of a jury's ratings: each mark has its share."""

    def draw(source: np.random.Generator, samples: int, count: int) -> Rows:
        uniform = _uniform(source, samples, count, cluster_size)
        return np.asarray(marks)[np.searchsorted(np.cumsum(shares)[:-1], uniform)]

    mean = sum(mark * share for mark, share in zip(marks, shares, strict=True))
    return Population(name, mean, draw, JURY, cluster_size)


def overlaps(name: str, zeros: float, cluster_size: int = 1) -> Population:
    """Return a population of values like ROUGE: a share of zeros, and values with the mean 0.2."""

    def draw(source: np.random.Generator, samples: int, count: int) -> Rows:
        values = source.beta(2, 8, (samples, count))
        values[_uniform(source, samples, count, cluster_size) < zeros] = 0.0
        return values

    return Population(name, (1 - zeros) * 0.2, draw, None, cluster_size)


def clustered_shares(share: float, cluster_size: int) -> Population:
    """Return a population of 0/1 values in clusters.

    Each cluster has its own share of ones, from a beta distribution with the correlation ICC.
    """

    def draw(source: np.random.Generator, samples: int, count: int) -> Rows:
        # A number below `share` becomes 1: see `_uniform`.
        return (_uniform(source, samples, count, cluster_size, share) < share).astype(float)

    return Population(f"{share:g} right", share, draw, None, cluster_size)


def _uniform(
    source: np.random.Generator,
    samples: int,
    count: int,
    cluster_size: int,
    share: float | None = None,
) -> Rows:
    """Draw numbers from 0 to 1 that are correlated within clusters (ICC).

    Without a `share`, a number is its cluster's number with the probability sqrt(ICC), and else a
    number of its own. With a `share`, only 0 and 1 are drawn: 0 with the probability `share`, by a
    beta-binomial distribution, which is the usual model of 0/1 values in clusters.
    """
    if cluster_size == 1:
        return source.random((samples, count))
    clusters = -(-count // cluster_size)  # rounded up
    if share is not None:
        weight = (1 - ICC) / ICC
        shares = source.beta(share * weight, (1 - share) * weight, (samples, clusters))
        chances = np.repeat(shares, cluster_size, axis=1)[:, :count]
        return np.where(source.random((samples, count)) < chances, 0.0, 1.0)
    common = np.repeat(source.random((samples, clusters)), cluster_size, axis=1)[:, :count]
    is_common = source.random((samples, count)) < math.sqrt(ICC)
    return np.where(is_common, common, source.random((samples, count)))


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
CALCULATORS = 55  # the number of clusters in MedCalc-Bench: questions about the same calculator
ROWS_OF_EACH = 19


def tables(samples: int, seed: int) -> Iterator[str]:
    """Yield the lines of the tables in docs/statistics.md."""
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
    for population in ALONE:
        shares = [coverage(population, size, samples, seed) for size in SIZES]
        yield _line(population.name, shares)
    for population in (ALONE[0], ALONE[5]):
        shares = [coverage_of_plain_t(population, size, samples, seed) for size in SIZES]
        yield _line(f"{population.name}, by plain Student's t", shares, mark=False)
    yield ""
    yield f"### Clusters of 5, ICC {ICC}"
    yield from _head(COLUMNS)
    for population in IN_CLUSTERS:
        cells: list[float | None] = []
        for size in SIZES:
            has_several_clusters = size >= 10
            if has_several_clusters:
                cells.append(coverage(population, size, samples, seed))
            else:
                cells.append(None)
        yield _line(population.name, cells)
    yield ""
    yield f"### {CALCULATORS} clusters of {ROWS_OF_EACH}, ICC {ICC}"
    size = CALCULATORS * ROWS_OF_EACH
    yield from _head(("values", f"n = {size:,}"))
    for population in LARGE_CLUSTERS:
        yield _line(population.name, [coverage(population, size, samples, seed)])


def _head(columns: Sequence[str]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"


def _line(name: str, shares: Iterable[float | None], *, mark: bool = True) -> str:
    """Return a line of a table, with shares in per cent; None is an empty cell.

    With `mark`, shares below `MIN_COVERED` are in bold.
    """
    cells = []
    for share in shares:
        text = "" if share is None else f"{100 * share:.1f}"
        if mark and share is not None and share < MIN_COVERED:
            text = f"**{text}**"
        cells.append(text)
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
