#!/usr/bin/env python3
"""Measures how often the interval of a run that was stopped holds the truth, and how much it asks:
benchmarks/README.md.

    python benchmarks/stop_when_coverage.py [--draws 1000] [--seed 7]

Each draw is a benchmark of 800 instances in random order, looked at after 50, 100, 200, 400 and all
of them. `ours` is what a result gets; `one look` the interval of a sample that nobody stops;
`betting` the confidence sequence of hedged capital (I. Waudby-Smith and A. Ramdas, JRSS B 86:1-27,
2024, section 4), and the same without replacement, whose truth is the mean of the 800. `worst`
stops where the truth is missed, if that is anywhere.
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
SIZE = 800
FIRST = 50
HALF_WIDTH = 0.05
POINTS = 200
LOOKS = look_sizes_up_to(FIRST, SIZE)
SOURCES = (120, 60, 60, *[20] * 10, *[5] * 40, *[2] * 80)


@dataclass(frozen=True)
class Population:
    draw: Callable[[Chance], Values]
    truth: float
    scale: tuple[float, float] = (0.0, 1.0)
    sources: tuple[int, ...] | None = None
    """Their sizes."""


def of_share(share: float) -> Population:
    return Population(lambda chance: (chance.random(SIZE) < share).astype(float), share)


def of_sources(share: float, correlation: float) -> Population:
    """Each source has a share of its own, from a beta distribution."""
    a, b = (part * (1 - correlation) / correlation for part in (share, 1 - share))

    def draw(chance: Chance) -> Values:
        return (chance.random(SIZE) < np.repeat(chance.beta(a, b, len(SOURCES)), SOURCES)).astype(
            float
        )

    return Population(draw, share, sources=SOURCES)


def of_points(
    points: Values, chances: Values, scale: tuple[float, float] = (0.0, 1.0)
) -> Population:
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
    """Shares of the draws whose interval holds the truth, where the rule stops and where the
    worst one does.
    """

    stopped: float
    worst: float
    asked: float
    """Instances, in the mean."""


def ends_by_ours(
    rows: Values, of: Population, labels: npt.NDArray[np.int_], each_side: float
) -> Values:
    """Return the ends of our intervals, in the shape (draws, looks, 2)."""
    known: dict[bytes, tuple[float, float]] = {}
    found = np.empty((*rows.shape[:1], len(LOOKS), 2))
    for at, row in enumerate(rows):
        for look, size in enumerate(LOOKS):
            values = row[:size]
            sources = None if of.sources is None else labels[at, :size].tolist()
            key = np.sort(values).tobytes() if sources is None else b"%d %d" % (at, look)
            if key not in known:
                made = interval_of_mean(
                    np.sort(values).tolist() if sources is None else values.tolist(),
                    scale=of.scale,
                    clusters=sources,
                    each_side=each_side,
                )
                known[key] = (
                    of.scale if made.low is None or made.high is None else (made.low, made.high)
                )
            found[at, look] = known[key]
    return found


def ends_by_betting(rows: Values, *, replaced: bool) -> Values:
    """Return the ends of intervals by betting on values from 0 to 1, in the shape (draws, looks,
    2); the means that are tried stand in the middle of 200 equal parts.
    """
    alpha = 2 * TAIL_ALPHA
    means = (np.arange(POINTS) + 0.5) / POINTS
    up, down = np.zeros((2, len(rows), POINTS))
    total = np.zeros(len(rows))
    spread = np.full(len(rows), 0.25)
    ends = []
    for count, values in enumerate(rows.T, 1):
        now = means if replaced else (SIZE * means - total[:, None]) / (SIZE - count + 1)
        bet = np.sqrt(2 * math.log(2 / alpha) / (spread * math.log(count + 1)))[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = values[:, None] - now
            up += np.where(
                now < 0, np.inf, np.log1p(np.minimum(bet, 0.5 / np.clip(now, 1e-9, None)) * apart)
            )
            down += np.where(
                now > 1,
                np.inf,
                np.log1p(-np.minimum(bet, 0.5 / np.clip(1 - now, 1e-9, None)) * apart),
            )
        total += values
        spread += (values - (0.5 + total) / (count + 1)) ** 2
        if count in LOOKS:
            kept = ~(np.maximum(up, down) - math.log(2) >= -math.log(alpha))
            low = kept.argmax(1)
            high = POINTS - kept[:, ::-1].argmax(1)
            ends.append(np.stack([low, high], 1) / POINTS)
    return np.stack(ends, 1)


def held(ends: Values, truth: float | Values) -> Held:
    inside = (ends[..., 0] <= np.reshape(truth, (-1, 1)) + 1e-12) & (
        np.reshape(truth, (-1, 1)) - 1e-12 <= ends[..., 1]
    )
    narrow = np.diff(ends)[..., 0] / 2 <= HALF_WIDTH
    narrow[:, -1] = True
    stop = narrow.argmax(1)
    at_stop = inside[np.arange(len(ends)), stop]
    return Held(
        float(at_stop.mean()), float(inside.all(1).mean()), float(np.array(LOOKS)[stop].mean())
    )


def measured(name: str, draws: int, seed: int, *, betting: bool = True) -> dict[str, Held]:
    of = POPULATIONS[name]
    chance = np.random.default_rng([seed, *name.encode()])
    rows = np.stack([of.draw(chance) for _ in range(draws)])
    orders = np.stack([chance.permutation(SIZE) for _ in range(draws)])
    rows = np.take_along_axis(rows, orders, 1)
    labels = np.repeat(np.arange(len(of.sources or [0])), of.sources or [SIZE])[orders]
    sides = {"one look": TAIL_ALPHA, "ours": TAIL_ALPHA / len(LOOKS)}
    found = {
        how: held(ends_by_ours(rows, of, labels, side), of.truth) for how, side in sides.items()
    }
    if betting and of.sources is None and of.scale[0] == 0:
        found["betting"] = held(ends_by_betting(rows, replaced=True), of.truth)
        found["without replacement"] = held(ends_by_betting(rows, replaced=False), rows.mean(1))
    return found


def lines(draws: int, seed: int) -> Iterator[str]:
    columns = ("one look", "ours", "betting", "without replacement")
    yield from (f"| values | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}")
    for name in POPULATIONS:
        found = measured(name, draws, seed)
        cells = [
            f"{100 * one.stopped:.1f}, {100 * one.worst:.1f} ({one.asked:.0f})"
            if (one := found.get(how))
            else ""
            for how in columns
        ]
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
