#!/usr/bin/env python3
"""Measures how often the interval of the calibration error holds the true one: the table of
benchmarks/README.md, Calibration.

    python benchmarks/calibration_coverage.py [--samples 2000]

Answers are drawn with a stated confidence and a known chance of being right: calibrated, too sure,
at the ceiling, all of one confidence, and of sources of unequal size.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence

from eval_factory.scoring.confidence import (
    Answer,
    groups_by_confidence,
    interval_of_error,
    squared_error,
)

Drawn = Callable[[random.Random, float], tuple[float, float]]
"""A function that takes a source of chance and what the answers of one source have in common
(standard normal), and returns the stated confidence and the chance of being right.
"""
FIVE = (0.55, 0.65, 0.75, 0.85, 0.95)
LEAST = 0.92
UNEQUAL = (40, 30, *[5] * 20, *[1] * 30)


def too_sure(gap: float, shared: float = 0.0, stated: Sequence[float] = FIVE) -> Drawn:
    def draw(chance: random.Random, common: float) -> tuple[float, float]:
        sure = chance.choice(stated)
        return sure, min(1.0, max(0.0, sure - gap + shared * common))

    return draw


def any_confidence(gap: float) -> Drawn:
    def draw(chance: random.Random, _common: float) -> tuple[float, float]:
        sure = (0.0 if gap == 0 else 0.5) + chance.random() * (1.0 if gap == 0 else 0.5)
        return sure, sure - gap

    return draw


def rarely_too_sure(chance: random.Random, _common: float) -> tuple[float, float]:
    """A tenth says 0.99 and is right in half."""
    if chance.random() < 0.1:
        return 0.99, 0.5
    sure = chance.choice((0.6, 0.7, 0.8, 0.9))
    return sure, sure


def alike(chance: random.Random, common: float) -> tuple[float, float]:
    """Answers of a source are right together in half of the cases (ICC 0.5), too sure by 0.2."""
    sure = chance.choice(FIVE)
    right = sure - 0.2
    # the source is right where its number is below the quantile
    if chance.random() < math.sqrt(0.5):
        return sure, float(statistics.NormalDist().cdf(common) < right)
    return sure, right


SITUATIONS: dict[str, tuple[Drawn, float, Sequence[int]]] = {
    "calibrated": (too_sure(0.0), 0.0, [1] * 200),
    "calibrated, any confidence": (any_confidence(0.0), 0.0, [1] * 500),
    "too sure by 0.2": (too_sure(0.2), 0.2, [1] * 200),
    "too sure by 0.2, 50 answers": (too_sure(0.2), 0.2, [1] * 50),
    "too sure by 0.1, any confidence": (any_confidence(0.1), 0.1, [1] * 500),
    "always 0.9, 30 answers": (too_sure(0.2, stated=(0.9,)), 0.2, [1] * 30),
    "at the ceiling: 0.95, right 0.999": (lambda _chance, _common: (0.95, 0.999), 0.049, [1] * 100),
    "at the ceiling, 1,000 answers": (lambda _chance, _common: (0.95, 0.999), 0.049, [1] * 1000),
    "sources of four": (too_sure(0.2, 0.1), 0.2, [4] * 50),
    "sources of unequal size": (too_sure(0.2, 0.1), 0.2, UNEQUAL),
    "a rare level is too sure": (rarely_too_sure, math.sqrt(0.1) * 0.49, [1] * 200),
    "sources of five, right together": (alike, 0.2, [5] * 30),
    "calibrated, sources of unequal size": (too_sure(0.0, 0.05, (0.6, 0.7, 0.8)), 0.0, UNEQUAL),
}
"""For each situation: how answers are drawn, the true error, the sizes of the sources."""


def sample(draw: Drawn, sizes: Sequence[int], chance: random.Random) -> list[Answer]:
    found = []
    for number, size in enumerate(sizes):
        common = chance.gauss(0.0, 1.0)
        for _ in range(size):
            sure, right = draw(chance, common)
            found.append(Answer(sure, float(chance.random() < right), number))
    return found


def main() -> None:
    """Print a row a situation; ends with 1 if one is covered in less than 92 %."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2000)
    samples = parser.parse_args().samples
    worst = 1.0
    print("| answers | true error | estimated | covered |\n|---|---|---|---|")
    for name, (draw, truth, sizes) in SITUATIONS.items():
        chance = random.Random(1)  # noqa: S311 - no secret
        held = 0
        errors = []
        for _ in range(samples):
            groups = groups_by_confidence(sample(draw, sizes, chance))
            low, high = interval_of_error(groups)
            if low <= truth <= high:
                held += 1
            errors.append(squared_error(groups))
        estimate = math.sqrt(max(0.0, statistics.fmean(errors)))
        worst = min(worst, held / samples)
        covered = f"{100 * held / samples:.1f}"
        print(f"| {name} | {truth:.3f} | {estimate:.3f} | {covered} |", flush=True)
    raise SystemExit(worst < LEAST)


if __name__ == "__main__":
    main()
