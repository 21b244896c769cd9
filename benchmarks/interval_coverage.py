#!/usr/bin/env python3
"""Measures how often intervals contain the truth in difficult situations.

The tables are in benchmarks/README.md.

    python benchmarks/interval_coverage.py [--samples 2000] [--seed 7] [--table corrected]

In the difficult situations, nearly all answers are right, a judge gives all answers the same score,
the sources of the instances have unequal sizes, or a few cases lose many points. Samples are drawn
from populations whose mean is known. The interval of each sample is computed by the function that
computes the intervals of results. The interval of equal samples is computed once.
"""

from __future__ import annotations

import argparse
import pickle
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, product
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from eval_factory.analysis.annotation_sheets import counts_to_draw, score_ranges_of
from eval_factory.scoring import paired
from eval_factory.scoring.intervals import interval_of_mean
from eval_factory.scoring.paired import paired_difference
from eval_factory.scoring.prediction_powered import (
    MIN_RATED,
    Stratum,
    TooFewSourcesError,
    bias_of_judge,
    corrected_mean,
)

Values = npt.NDArray[np.float64]
Chance = np.random.Generator
Bounds = tuple[float, float] | None  # the ends of an interval; None if there is no interval
MIN_HELD = 0.93  # A lower coverage is printed in bold.


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a population, and the interval whose coverage is measured."""

    row: str
    column: str
    truth: float
    draw: Callable[[Chance], Any]  # draws a sample
    interval: Callable[[Any], Bounds]  # returns the interval of a sample


@dataclass(frozen=True)
class Held:
    """The coverage of the intervals of many samples."""

    held: float  # the share of the intervals that contain the truth
    below: float  # the share of the intervals that lie below the truth
    above: float  # the share of the intervals that lie above the truth
    width: float  # the mean width of the intervals
    without: float  # the share of the samples without an interval

    @property
    def most_on_a_side(self) -> float:
        """The share of intervals that miss the truth on the side with more misses."""
        return max(self.below, self.above)


def measured(cell: Cell, samples: int, seed: int) -> Held:
    """Draw samples for a cell, and return the coverage of their intervals."""
    chance = np.random.default_rng([seed, zlib.crc32(f"{cell.row}; {cell.column}".encode())])
    interval_by_sample: dict[bytes, Bounds] = {}
    intervals = []
    for _ in range(samples):
        sample = cell.draw(chance)
        key = pickle.dumps(sample)
        if key not in interval_by_sample:
            interval_by_sample[key] = cell.interval(sample)
        intervals.append(interval_by_sample[key])
    ends = np.array([bounds for bounds in intervals if bounds is not None] or [(np.nan, np.nan)])
    below = float(np.mean(ends[:, 1] < cell.truth))
    above = float(np.mean(ends[:, 0] > cell.truth))
    return Held(
        held=1 - below - above,
        below=below,
        above=above,
        width=float(np.mean(np.diff(ends))),
        without=intervals.count(None) / samples,
    )


# Scores that are corrected by people's ratings, and the bias of a judge. People rate some of the
# answers. They give the best score to nearly all answers.

RIGHT = (0.90, 0.95, 0.97, 0.99)  # the share of answers to which people give the best score
SIZES = ((120, 20), (120, 60), (300, 60), (300, 100), (1000, 30), (1000, 200), (12, 12))
"""The number of answers, and the number of rated answers among them."""
RARE = {"right": ((0.0,), 1.0), "fives": ((1.0, 2.0, 3.0), 5.0)}
"""For each kind of scores: the scores of the few other answers, and the best score. The scale goes
from the first of the other scores to the best score.
"""
JUDGES = {"always the best": (0.0, 1.0), "noisy": (0.1, 0.1), "follows half": (0.0, 0.5)}
"""For each judge: the share of the best answers that the judge does not call best, and the share of
the other answers that the judge calls best.
"""
Rated = list[tuple[Values, Values, Values, Values, Values]]
"""For each stratum: the judge's scores of all answers, the people's scores and the judge's scores
of the rated answers, the sources of all answers, and the sources of the rated answers.
"""


def judged(
    chance: Chance,
    people: Values,
    others: tuple[float, ...],
    best: float,
    errors: tuple[float, float],
) -> Values:
    """Draw a judge's scores of answers.

    Args:
        chance: a generator of random numbers.
        people: the people's scores of the answers.
        others: the scores that are not the best.
        best: the best score.
        errors: the shares of errors of the judge (`JUDGES`).
    """
    is_wrong = chance.random(len(people)) < np.where(people == best, *errors)
    wrong_scores = np.where(people == best, chance.choice(others, len(people)), best)
    return np.where(is_wrong, wrong_scores, people)


def rated_sample(
    people: Values, judge: Values, rated: int, chance: Chance, sources: Values | None = None
) -> Rated:
    """Draw the answers that people rate, as `annotate export` does.

    Args:
        people: the people's scores of all answers.
        judge: the judge's scores of all answers.
        rated: the number of answers to draw.
        chance: a generator of random numbers.
        sources: the source of each answer; None if no answers share a source.
    """
    strata = [
        np.flatnonzero((low <= judge) & (judge <= high))
        for low, high in score_ranges_of(judge.tolist())
    ]
    counts = counts_to_draw([len(members) for members in strata], rated)
    sample: Rated = []
    for members, count in zip(strata, counts, strict=True):
        drawn = np.sort(chance.permutation(members)[:count])
        sources_of_members: Values = np.empty(0)
        sources_of_drawn: Values = np.empty(0)
        if sources is None:
            # The order of the answers does not matter. Sort them by their scores, so that more
            # samples are equal, and share an interval.
            drawn = drawn[np.lexsort((judge[drawn], people[drawn]))]
            members = members[np.argsort(judge[members])]
        else:
            sources_of_members = sources[members]
            sources_of_drawn = sources[drawn]
        sample.append(
            (judge[members], people[drawn], judge[drawn], sources_of_members, sources_of_drawn)
        )
    return sample


def bounds_of_rated(sample: Rated, *, scale: tuple[float, float], bias: bool) -> Bounds:
    """Return the interval of the corrected mean score of a sample.

    Args:
        sample: the sample.
        scale: the lowest and the highest score.
        bias: True to return the interval of the judge's bias instead.
    """
    strata = []
    for judge, people, judge_of_rated, sources, sources_of_rated in sample:
        strata.append(
            Stratum(
                judged=judge.tolist(),
                rated=list(zip(people.tolist(), judge_of_rated.tolist(), strict=True)),
                sources=sources.tolist(),
                rated_sources=sources_of_rated.tolist(),
            )
        )
    estimate = bias_of_judge if bias else corrected_mean
    try:
        corrected = estimate(strata, scale)
    except TooFewSourcesError:
        return None
    return corrected.low, corrected.high


def rated_rows(*, bias: bool) -> Iterator[Cell]:
    """Yield the cells about the corrected mean score, or about the judge's bias."""
    for (word, (others, best)), share, (judge, errors), sizes in product(
        RARE.items(), RIGHT, JUDGES.items(), SIZES
    ):
        # Here and below, the defaults of `draw` hold the values of this step of the loop.
        def draw(
            chance: Chance,
            others: tuple[float, ...] = others,
            best: float = best,
            share: float = share,
            errors: tuple[float, float] = errors,
            sizes: tuple[int, int] = sizes,
        ) -> Rated:
            answers, rated = sizes
            people = np.where(chance.random(answers) < share, best, chance.choice(others, answers))
            scores = judged(chance, people, others, best, errors)
            return rated_sample(people, scores, rated, chance)

        if bias and sizes[1] < MIN_RATED:
            continue
        gap = best - float(np.mean(others))  # the mean error of a wrong score
        if bias:
            # The judge is too high for some of the other answers, and too low for some of the best.
            truth = gap * ((1 - share) * errors[1] - share * errors[0])
        else:
            truth = best - (1 - share) * gap
        interval = partial(bounds_of_rated, scale=(others[0], best), bias=bias)
        row = f"{share:.0%} {word}; {judge}"
        yield Cell(row, f"{sizes[0]:,}, {sizes[1]}", truth, draw, interval)


# Instances whose sources (clusters) have unequal sizes.

# From the name of a row to the number of instances from each source.
SHAPES = {
    "race_based_med": [20, 20, 18, 18, 17, 16, 13, 10, 8, 6, 4, 4, *[1] * 17],
    "half of 400 in one": [200, *[4] * 50],
    "30 % of 200 in one": [60, *[4] * 35],
    "two large of 300": [90, 60, *[3] * 50],
    "geometric, 500": [max(1, round(90 * 0.85**number)) for number in range(50)],
    "20 of 10": [10] * 20,
    "five and singles": [30, 25, 20, 15, 10, *[1] * 100],
    "80 % in one": [80, *[1] * 20],
}
SHARES = ((0.5, 0.2), (0.5, 0.5), (0.9, 0.2), (0.9, 0.5), (0.9, 0.8), (0.97, 0.5))
"""The share of right answers, and the intra-class correlation within a source (ICC)."""


def in_clusters(chance: Chance, sizes: list[int], share: float, icc: float) -> Values:
    """Draw 0/1 values from a beta-binomial distribution: each source has its own share of ones."""
    weight = (1 - icc) / icc
    chances = np.repeat(chance.beta(share * weight, (1 - share) * weight, len(sizes)), sizes)
    return (chance.random(len(chances)) < chances).astype(float)


def labels_of(sizes: list[int]) -> Values:
    """Return the number of the source of each value."""
    return np.repeat(np.arange(len(sizes), dtype=float), sizes)


def ends_of_mean(sample: Values, **arguments: Any) -> Bounds:
    """Return the interval of the mean; the arguments are those of `interval_of_mean`."""
    interval = interval_of_mean(sample.tolist(), **arguments)
    if interval.low is None or interval.high is None:
        return None
    return interval.low, interval.high


def cluster_rows(*, ratings: bool) -> Iterator[Cell]:
    """Yield the cells about the mean of values in clusters.

    The values are 0 and 1. With `ratings`, 1 is replaced by the rating 5, and 0 by 1 or 2.
    """
    for (shape, sizes), (share, icc) in product(SHAPES.items(), SHARES):

        def draw(
            chance: Chance, sizes: list[int] = sizes, share: float = share, icc: float = icc
        ) -> Values:
            right = in_clusters(chance, sizes, share, icc)
            if ratings:
                return np.where(right == 1, 5.0, chance.choice([1.0, 2.0], len(right)))
            return right

        truth = share
        scale = (0.0, 1.0)
        if ratings:
            truth = 5 * share + 1.5 * (1 - share)
            scale = (1.0, 5.0)
        interval = partial(ends_of_mean, clusters=labels_of(sizes).tolist(), scale=scale)
        yield Cell(shape, f"{share:.0%}, {icc}", truth, draw, interval)


# The random signs of the test are drawn once: drawing them for each sample would take long.
SIGNS = cache(paired._signs)  # noqa: SLF001


def paired_rows() -> Iterator[Cell]:
    """Yield the cells about the difference between two models.

    The second model is right only for seven of ten instances for which the first model is right.
    """
    for (shape, sizes), (share, icc) in product(SHAPES.items(), SHARES):

        def draw(
            chance: Chance, sizes: list[int] = sizes, share: float = share, icc: float = icc
        ) -> Values:
            right = in_clusters(chance, sizes, share, icc)
            keeps = in_clusters(chance, sizes, 0.7, icc)
            return np.array([right, right * keeps])

        def interval(sample: Values, sizes: list[int] = sizes) -> Bounds:
            # Replace three slow functions. The interval does not depend on the p value
            # (`sign_flip_p`) and on the smallest detectable difference (`mean_mde`).
            with (
                patch.object(paired, "sign_flip_p", return_value=1.0),
                patch.object(paired, "mean_mde", return_value=None),
                patch.object(paired, "_signs", SIGNS),
            ):
                difference = paired_difference(
                    *sample.tolist(), clusters=[str(label) for label in labels_of(sizes)]
                )
            if difference.ci_low is None or difference.ci_high is None:
                return None
            return difference.ci_low, difference.ci_high

        yield Cell(shape, f"{share:.0%}, {icc}", -0.3 * share, draw, interval)


def rated_cluster_rows() -> Iterator[Cell]:
    """Yield the cells about corrected scores of values in clusters.

    People rate a third of the answers, but at least 30.
    """
    judges = ("always the best", "noisy")
    for (shape, sizes), (share, icc), judge in product(SHAPES.items(), SHARES, judges):

        def draw(
            chance: Chance,
            sizes: list[int] = sizes,
            share: float = share,
            icc: float = icc,
            errors: tuple[float, float] = JUDGES[judge],
        ) -> Rated:
            people = in_clusters(chance, sizes, share, icc)
            scores = judged(chance, people, (0.0,), 1.0, errors)
            return rated_sample(people, scores, max(30, len(people) // 3), chance, labels_of(sizes))

        interval = partial(bounds_of_rated, scale=(0.0, 1.0), bias=False)
        yield Cell(f"{shape}; {judge}", f"{share:.0%}, {icc}", share, draw, interval)


# Scores of rubrics. In some cases, the answer can lose points by a criterion with negative points.

# For each row: the share of the cases that can lose points, the points, the share of these cases
# that lose the points, and the lowest and the highest score of all other cases.
RUBRICS = {
    "4 % are -3, all can be": (1.0, 3.0, 0.04, (0.8, 0.8)),
    "10 % can lose 4, 40 % of them do": (0.1, 4.0, 0.4, (0.8, 0.8)),
    "same, others .4 to 1": (0.1, 4.0, 0.4, (0.4, 1.0)),
    "all can lose 1, 10 % do, others .2 to 1": (1.0, 1.0, 0.1, (0.2, 1.0)),
    "30 % can lose 2, 10 % of them do": (0.3, 2.0, 0.1, (0.6, 1.0)),
    "5 % can lose 4, 60 % of them do": (0.05, 4.0, 0.6, (0.8, 0.8)),
}


def rubric_rows() -> Iterator[Cell]:
    """Yield the cells about scores of rubrics."""
    for (name, (can, points, lose, (low, high))), count in product(
        RUBRICS.items(), (30, 60, 100, 300)
    ):

        def draw(
            chance: Chance,
            can: float = can,
            points: float = points,
            lose: float = lose,
            low: float = low,
            high: float = high,
            count: int = count,
        ) -> Values:
            """Draw the score of each case, and the lowest possible score of each case."""
            lowest = np.where(chance.random(count) < can, -points, 0.0)
            has_lost = (lowest < 0) & (chance.random(count) < lose)
            scores = np.where(has_lost, lowest, chance.uniform(low, high, count))
            return np.array([scores, lowest])

        def interval(sample: Values) -> Bounds:
            scores, lowest = sample
            return ends_of_mean(scores, scale=(0.0, 1.0), lowest=lowest.tolist())

        lost = can * lose  # the share of all cases that lose the points
        truth = (1 - lost) * (low + high) / 2 - lost * points
        yield Cell(name, f"{count}", truth, draw, interval)


# From the name of a table to the heading of its first column and the function with its cells.
TABLES: dict[str, tuple[str, Callable[[], Iterator[Cell]]]] = {
    "corrected": ("people; judge", partial(rated_rows, bias=False)),
    "bias": ("people; judge", partial(rated_rows, bias=True)),
    "clusters": ("sizes", partial(cluster_rows, ratings=False)),
    "ratings": ("sizes", partial(cluster_rows, ratings=True)),
    "paired": ("sizes", paired_rows),
    "corrected_clusters": ("sizes; judge", rated_cluster_rows),
    "rubrics": ("scores", rubric_rows),
}


def lines_of(name: str, samples: int, seed: int, text: str = "") -> Iterator[str]:
    """Yield the lines of a table in Markdown; each cell has the text of `text_of`.

    Args:
        name: the name of the table.
        samples: the number of samples for each cell.
        seed: the seed of the random numbers.
        text: a text that the names of the shown rows contain.
    """
    head, cells = TABLES[name]
    rows: dict[str, list[Cell]] = {}
    for cell in cells():
        rows.setdefault(cell.row, []).append(cell)
    columns = [cell.column for cell in next(iter(rows.values()))]
    yield from (f"| {' | '.join([head, *columns])} |", f"|{'---|' * (len(columns) + 1)}")
    for row, cells_of_row in rows.items():
        if text not in row:
            continue
        texts = [text_of(measured(cell, samples, seed)) for cell in cells_of_row]
        yield f"| {' | '.join([row, *texts])} |"


def text_of(coverage: Held) -> str:
    """Return the text of a cell, such as `94.8 (3.1; 0.120)`.

    The numbers are: how many of 100 intervals contain the truth, in bold if these are too few; how
    many miss the truth on the side with more misses; the mean width of an interval.
    """
    if coverage.without == 1:
        return "no interval"
    held = f"{100 * coverage.held:.1f}"
    if coverage.held < MIN_HELD:
        held = f"**{held}**"
    missed = f"{100 * coverage.most_on_a_side:.1f}"
    without = f", none {100 * coverage.without:.0f} %" if coverage.without else ""
    return f"{held} ({missed}; {coverage.width:.3f}{without})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--table",
        choices=sorted(TABLES),
        action="append",
        help="of several; all where none is given",
    )
    parser.add_argument("--rows", default="", help="only rows whose name contains this text")
    arguments = parser.parse_args()
    for name in arguments.table or TABLES:
        for line in chain(
            ("", f"### {name}", ""),
            lines_of(name, arguments.samples, arguments.seed, arguments.rows),
        ):
            print(line, flush=True)


if __name__ == "__main__":
    main()
