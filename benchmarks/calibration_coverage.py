#!/usr/bin/env python3
"""Measures how often the interval of the calibration error contains the true error.

The table is in benchmarks/README.md, Calibration.

    python benchmarks/calibration_coverage.py [--samples 2000]

Each answer is drawn with a stated confidence and a known probability of being right. The situations
are: calibrated answers, answers that are too sure, answers that are nearly always right, answers
with a single confidence, and answers from sources of unequal size.
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

DrawAnswer = Callable[[random.Random, float], tuple[float, float]]
"""A function that draws an answer: the stated confidence, and the probability of being right. Its
arguments are a generator of random numbers, and a number that all answers of a source share (with a
standard normal distribution).
"""
FIVE = (0.55, 0.65, 0.75, 0.85, 0.95)  # five levels of confidence
MIN_COVERED = 0.92  # the lowest coverage with which the script ends without an error
UNEQUAL = (40, 30, *[5] * 20, *[1] * 30)  # the number of answers from each source


def too_sure(gap: float, shared: float = 0.0, stated: Sequence[float] = FIVE) -> DrawAnswer:
    """Return a function that draws answers which are right less often than stated.

    Args:
        gap: the difference between the stated confidence and the probability of being right.
        shared: the standard deviation between sources of the probability of being right.
        stated: the possible confidences.
    """

    def draw(chance: random.Random, common: float) -> tuple[float, float]:
        sure = chance.choice(stated)
        return sure, min(1.0, max(0.0, sure - gap + shared * common))

    return draw


def any_confidence(gap: float) -> DrawAnswer:
    """Return a function that draws answers with any confidence, which are too sure by `gap`.

    The confidence is between 0 and 1; if there is a gap, it is between 0.5 and 1, so that the
    probability of being right is not negative.
    """
    lowest = 0.0 if gap == 0 else 0.5

    def draw(chance: random.Random, _common: float) -> tuple[float, float]:
        sure = lowest + chance.random() * (1.0 - lowest)
        return sure, sure - gap

    return draw


def rarely_too_sure(chance: random.Random, _common: float) -> tuple[float, float]:
    """Draw an answer. A tenth of the answers state 0.99, and half of these are right."""
    if chance.random() < 0.1:
        return 0.99, 0.5
    sure = chance.choice((0.6, 0.7, 0.8, 0.9))
    return sure, sure


def alike(chance: random.Random, common: float) -> tuple[float, float]:
    """Draw an answer that is too sure by 0.2. The answers of a source are right together (ICC 0.5).

    With the probability sqrt(0.5), the source's number decides if the answer is right. Two answers
    of a source both depend on this number with the probability 0.5, which is their correlation.
    """
    sure = chance.choice(FIVE)
    right = sure - 0.2
    if chance.random() < math.sqrt(0.5):
        # The number is below the quantile `right` with the probability `right`.
        return sure, float(statistics.NormalDist().cdf(common) < right)
    return sure, right


SITUATIONS: dict[str, tuple[DrawAnswer, float, Sequence[int]]] = {
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
"""For each situation: the function that draws an answer, the true error, and the number of answers
from each source.
"""


def sample(draw: DrawAnswer, sizes: Sequence[int], chance: random.Random) -> list[Answer]:
    """Draw the answers of a sample; `sizes` has the number of answers from each source."""
    answers = []
    for source, size in enumerate(sizes):
        common = chance.gauss(0.0, 1.0)
        for _ in range(size):
            sure, right = draw(chance, common)
            answers.append(Answer(sure, float(chance.random() < right), source))
    return answers


def main() -> None:
    """Print a row for each situation; end with 1 if a coverage is below `MIN_COVERED`."""
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
        worst = min(worst, held / samples)  # the lowest coverage so far
        covered = f"{100 * held / samples:.1f}"
        print(f"| {name} | {truth:.3f} | {estimate:.3f} | {covered} |", flush=True)
    raise SystemExit(worst < MIN_COVERED)


if __name__ == "__main__":
    main()
