#!/usr/bin/env python3
"""How often the interval of a corrected score holds the true one, where the judge's own does not: docs/clinicians.md.

    python benchmarks/corrected_coverage.py [--samples 2000] [--seed 1]

Invented judges with a bias; answers are drawn, a stratified sample of them is rated, and the corrected score gets its
interval from the function that results get theirs from. The truth is the mean of the population that answers come from.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eval_factory.scoring.intervals import student_t
from eval_factory.scoring.prediction_powered import Stratum, corrected_mean

Values = npt.NDArray[np.float64]
STRATA = 4


@dataclass(frozen=True)
class Judge:
    """Draws (people's scores, judge's scores) of so many answers."""

    name: str
    scale: tuple[float, float]
    mean: float
    """Of the people's scores, in all answers that there could be."""
    draw: Callable[[np.random.Generator, int], tuple[Values, Values]]


def lenient(rng: np.random.Generator, count: int) -> tuple[Values, Values]:
    """0/1: right 55 % of the time by the people, and the judge lets 60 % of the wrong ones pass, too."""
    people = (rng.random(count) < 0.55).astype(float)
    judge = np.where(people == 1, rng.random(count) < 0.97, rng.random(count) < 0.6).astype(float)
    return people, judge


def generous(rng: np.random.Generator, count: int) -> tuple[Values, Values]:
    """1 to 5: one rating too many, and never below 3."""
    people = rng.choice([1.0, 2, 3, 4, 5], size=count, p=[0.1, 0.2, 0.3, 0.25, 0.15])
    judge = np.clip(people + rng.choice([0, 1, 1, 2], size=count), 3, 5).astype(float)
    return people, judge


def rubric(rng: np.random.Generator, count: int) -> tuple[Values, Values]:
    """Shares of points, which the judge moves towards the top."""
    people = rng.beta(2.0, 2.5, size=count)
    judge = np.clip(people + 0.15 + rng.normal(0, 0.1, size=count), 0, 1)
    return people, judge


def blind(rng: np.random.Generator, count: int) -> tuple[Values, Values]:
    """A judge who says 4 or 5 to everything."""
    people = rng.choice([1.0, 2, 3, 4, 5], size=count)
    return people, rng.choice([4.0, 5.0], size=count)


JUDGES = (
    Judge("lenient, right or wrong", (0, 1), 0.55, lenient),
    Judge("generous, 1 to 5", (1, 5), 3.15, generous),
    Judge("rubrics, shares of points", (0, 1), 2.0 / 4.5, rubric),
    Judge("blind, 1 to 5", (1, 5), 3.0, blind),
)
SIZES = ((300, 30), (300, 60), (1000, 100), (60, 60))
"""(answers, of which rated)"""


def strata_of(people: Values, judge: Values, rated: int, rng: np.random.Generator) -> list[Stratum]:
    """Quarters by the judge's score, with as many rated of each."""
    order = np.argsort(judge + rng.random(len(judge)) * 1e-9)
    found = []
    for number, part in enumerate(np.array_split(order, STRATA)):
        count = rated // STRATA + (number < rated % STRATA)
        chosen = rng.permutation(part)[:count]
        pairs = [(float(people[one]), float(judge[one])) for one in chosen]
        found.append(Stratum([float(value) for value in judge[part]], pairs))
    return found


def coverage(judge: Judge, answers: int, rated: int, samples: int, seed: int) -> tuple[float, float, float]:
    """The shares of samples whose corrected interval, and whose judge's own, holds the truth; the first one's width."""
    rng = np.random.default_rng([seed, answers, rated])
    held = naive = 0
    width = 0.0
    for _ in range(samples):
        people, scores = judge.draw(rng, answers)
        found = corrected_mean(strata_of(people, scores, rated, rng), judge.scale)
        held += found.low <= judge.mean <= found.high
        width += found.high - found.low
        low, high = student_t([float(one) for one in scores]) if np.ptp(scores) else (-math.inf, -math.inf)
        naive += low <= judge.mean <= high
    return held / samples, naive / samples, width / samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print("| judge | answers | rated | corrected holds the truth | the judge's own does | width |")
    print("|---|---|---|---|---|---|")
    for judge in JUDGES:
        for answers, rated in SIZES:
            held, naive, width = coverage(judge, answers, rated, arguments.samples, arguments.seed)
            print(f"| {judge.name} | {answers:,} | {rated} | {held:.1%} | {naive:.1%} | {width:.3f} |")


if __name__ == "__main__":
    main()
