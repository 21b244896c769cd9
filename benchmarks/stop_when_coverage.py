#!/usr/bin/env python3
"""Measures how often the interval of a run that stops early contains the truth.

It also measures how many instances such a run asks. The table is in benchmarks/README.md.

    python benchmarks/stop_when_coverage.py [--draws 1000] [--seed 7]

Each draw is a benchmark of 800 instances in random order. Its interval is computed after 50, 100,
200, 400 and all instances (the looks). The kinds of intervals are:

- `one look`: the interval of a result that was not stopped early;
- `ours`: the interval of a result with `stop_when`, which is wider because of the several looks;
- `betting`: the confidence sequence of hedged capital (I. Waudby-Smith and A. Ramdas, JRSS B
  86:1-27, 2024, section 4);
- `without replacement`: the same for samples without replacement, whose truth is the mean of the
  800 instances.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eval_factory.scoring.intervals import TAIL_ALPHA, interval_of_mean
from eval_factory.scoring.sequential import look_sizes_up_to

Values = npt.NDArray[np.float64]
Chance = np.random.Generator
SIZE = 800  # the number of instances of a benchmark
FIRST = 50  # the number of instances at the first look
HALF_WIDTH = 0.05  # A run stops when half the width of its interval is at most this number.
POINTS = 200  # the number of means that `ends_by_betting` tries
LOOKS = look_sizes_up_to(FIRST, SIZE)  # the number of instances at each look
SOURCES = (120, 60, 60, *[20] * 10, *[5] * 40, *[2] * 80)
"""The number of instances from each source, in benchmarks whose instances share sources."""


@dataclass(frozen=True)
class Population:
    """The values from which benchmarks are drawn."""

    draw: Callable[[Chance], Values]  # draws the values of a benchmark
    truth: float  # the mean of the population
    scale: tuple[float, float] = (0.0, 1.0)  # the lowest and the highest value
    # the number of instances from each source; None if no instances share a source
    sources: tuple[int, ...] | None = None


def of_share(share: float) -> Population:
    """Return a population of 0/1 values, of which this share is 1."""
    return Population(lambda chance: (chance.random(SIZE) < share).astype(float), share)


def of_sources(share: float, correlation: float) -> Population:
    """Return a population of 0/1 values in which each source has its own share of ones.

    The shares of the sources have a beta distribution with the mean `share`. The parameters of the
    distribution give the values of a source the intra-class correlation `correlation`.
    """
    weight = (1 - correlation) / correlation

    def draw(chance: Chance) -> Values:
        shares = chance.beta(share * weight, (1 - share) * weight, len(SOURCES))
        return (chance.random(SIZE) < np.repeat(shares, SOURCES)).astype(float)

    return Population(draw, share, sources=SOURCES)


def of_points(
    points: Values, chances: Values, scale: tuple[float, float] = (0.0, 1.0)
) -> Population:
    """Return a population of these values, each with its probability."""
    return Population(
        lambda chance: chance.choice(points, SIZE, p=chances), float(points @ chances), scale
    )


POPULATIONS: Mapping[str, Population] = {
    **{f"0/1, {share:.0%} right": of_share(share) for share in (0.02, 0.5, 0.9, 0.99)},
    "graded in quarters": of_points(
        np.array([0, 0.25, 0.5, 0.75, 1]), np.array([0.1, 0.15, 0.2, 0.35, 0.2])
    ),
    "nearly all 1, 3 % are 0": of_points(np.array([0, 0.9, 1]), np.array([0.03, 0.1, 0.87])),
    "paired, 5 % flip each way": of_points(
        np.array([-1.0, 0, 1]), np.array([0.05, 0.9, 0.05]), (-1.0, 1.0)
    ),
    "sources, 50 %, ICC 0.2": of_sources(0.5, 0.2),
    "sources, 90 %, ICC 0.5": of_sources(0.9, 0.5),
}


@dataclass(frozen=True)
class Held:
    """The coverage of one kind of intervals."""

    stopped: float  # the share of draws whose interval contains the truth when the run stops
    worst: float  # the share of draws whose intervals contain the truth at all looks
    asked: float  # the mean number of instances that are asked until the run stops


def ends_by_ours(
    rows: Values, population: Population, labels: npt.NDArray[np.int_], each_side: float
) -> Values:
    """Return the ends of eval-factory's intervals, in the shape (draws, looks, 2).

    Args:
        rows: the values of the instances in the order of asking, in the shape (draws, instances).
        population: the population of the values.
        labels: the source of each instance, in the shape of `rows`.
        each_side: the permitted probability, on each side, that the interval misses the truth.
    """
    # Intervals depend on the values only, not on their order. Equal samples share an interval.
    interval_by_key: dict[bytes, tuple[float, float]] = {}
    ends = np.empty((*rows.shape[:1], len(LOOKS), 2))
    for draw, row in enumerate(rows):
        for look, size in enumerate(LOOKS):
            values = np.sort(row[:size])
            key = values.tobytes()
            sources = None
            if population.sources is not None:  # Then values belong to sources: keep their order.
                values = row[:size]
                key = b"%d %d" % (draw, look)
                sources = labels[draw, :size].tolist()
            if key not in interval_by_key:
                interval = interval_of_mean(
                    values.tolist(),
                    scale=population.scale,
                    clusters=sources,
                    each_side=each_side,
                )
                bounds = population.scale  # if there is no interval
                if interval.low is not None and interval.high is not None:
                    bounds = (interval.low, interval.high)
                interval_by_key[key] = bounds
            ends[draw, look] = interval_by_key[key]
    return ends


def ends_by_betting(rows: Values, *, replaced: bool) -> Values:
    """Return the ends of intervals by betting on values from 0 to 1; the shape: (draws, looks, 2).

    The method starts with a capital of 1 for each possible mean, and bets against this mean at each
    value: half of the capital that the mean is higher, and half that it is lower. An interval
    contains the means against which the capital has not grown to 1 / alpha. The possible means are
    the middles of 200 equal parts of the range from 0 to 1.

    Args:
        rows: the values in the order of asking, in the shape (draws, instances).
        replaced: True for samples with replacement; False if the truth is the mean of the row.
    """
    alpha = 2 * TAIL_ALPHA
    means = (np.arange(POINTS) + 0.5) / POINTS
    # the logarithms of the capital of both bets, for each draw and possible mean
    log_of_higher, log_of_lower = np.zeros((2, len(rows), POINTS))
    total = np.zeros(len(rows))  # the sum of the values so far
    # the estimated variance of the values so far, times their number plus 1
    spread = np.full(len(rows), 0.25)
    ends = []
    for count, values in enumerate(rows.T, 1):
        expected = means  # the expected next value if the mean is the possible mean
        if not replaced:  # the mean of the instances that are left
            expected = (SIZE * means - total[:, None]) / (SIZE - count + 1)
        bet = np.sqrt(2 * math.log(2 / alpha) / (spread * math.log(count + 1)))[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            surprise = values[:, None] - expected
            # A bet is at most half of the bet that could lose all of the capital. If the expected
            # value is impossible, the mean is impossible, and the capital becomes infinite.
            bet_on_higher = np.minimum(bet, 0.5 / np.clip(expected, 1e-9, None))
            bet_on_lower = np.minimum(bet, 0.5 / np.clip(1 - expected, 1e-9, None))
            log_of_higher += np.where(expected < 0, np.inf, np.log1p(bet_on_higher * surprise))
            log_of_lower += np.where(expected > 1, np.inf, np.log1p(-bet_on_lower * surprise))
        total += values
        spread += (values - (0.5 + total) / (count + 1)) ** 2
        if count in LOOKS:
            log_of_capital = np.maximum(log_of_higher, log_of_lower) - math.log(2)
            is_possible = ~(log_of_capital >= -math.log(alpha))
            low = is_possible.argmax(1)  # the first possible mean
            high = POINTS - is_possible[:, ::-1].argmax(1)  # after the last possible mean
            ends.append(np.stack([low, high], 1) / POINTS)
    return np.stack(ends, 1)


def held(ends: Values, truth: float | Values) -> Held:
    """Return the coverage of intervals.

    Args:
        ends: the ends of the intervals, in the shape (draws, looks, 2).
        truth: the truth, or the truth of each draw.
    """
    column = np.reshape(truth, (-1, 1))
    contains_truth = (ends[..., 0] <= column + 1e-12) & (column - 1e-12 <= ends[..., 1])
    is_narrow = np.diff(ends)[..., 0] / 2 <= HALF_WIDTH
    is_narrow[:, -1] = True  # Every run ends at the last look.
    stop = is_narrow.argmax(1)  # the first look with a narrow interval
    at_stop = contains_truth[np.arange(len(ends)), stop]
    return Held(
        stopped=float(at_stop.mean()),
        worst=float(contains_truth.all(1).mean()),
        asked=float(np.array(LOOKS)[stop].mean()),
    )


def measured(name: str, draws: int, seed: int, *, betting: bool = True) -> dict[str, Held]:
    """Return the coverage of each kind of intervals for a population of `POPULATIONS`.

    Betting needs values from 0 on that belong to no sources.
    """
    population = POPULATIONS[name]
    chance = np.random.default_rng([seed, *name.encode()])
    rows = np.stack([population.draw(chance) for _ in range(draws)])
    orders = np.stack([chance.permutation(SIZE) for _ in range(draws)])
    rows = np.take_along_axis(rows, orders, 1)
    source_sizes = population.sources or (SIZE,)
    labels = np.repeat(np.arange(len(source_sizes)), source_sizes)[orders]
    coverages = {}
    # The looks share the permitted probability of a miss (Bonferroni).
    for kind, each_side in (("one look", TAIL_ALPHA), ("ours", TAIL_ALPHA / len(LOOKS))):
        ends = ends_by_ours(rows, population, labels, each_side)
        coverages[kind] = held(ends, population.truth)
    if betting and population.sources is None and population.scale[0] == 0:
        coverages["betting"] = held(ends_by_betting(rows, replaced=True), population.truth)
        ends = ends_by_betting(rows, replaced=False)
        coverages["without replacement"] = held(ends, rows.mean(1))
    return coverages


def lines(draws: int, seed: int) -> Iterator[str]:
    """Yield the lines of the table in benchmarks/README.md."""
    columns = ("one look", "ours", "betting", "without replacement")
    yield from (f"| values | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}")
    for name in POPULATIONS:
        coverages = measured(name, draws, seed)
        cells = []
        for kind in columns:
            coverage = coverages.get(kind)
            if coverage is None:
                cells.append("")
            else:
                shares = f"{100 * coverage.stopped:.1f}, {100 * coverage.worst:.1f}"
                cells.append(f"{shares} ({coverage.asked:.0f})")
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    for line in lines(arguments.draws, arguments.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
