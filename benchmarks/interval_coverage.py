#!/usr/bin/env python3
"""Measures how often intervals hold the truth where that is hard: the tables of
benchmarks/README.md.

    python benchmarks/interval_coverage.py [--samples 2000] [--seed 7] [--table corrected]

Nearly all answers are right, judges say the same of all, sources are of unequal size, few cases
cost many points. Samples are drawn from populations whose mean is known, and each gets its interval
from the function that results get theirs from. Samples that are alike are computed once.
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
Bounds = tuple[float, float] | None
LEAST = 0.93


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    row: str
    column: str
    truth: float
    draw: Callable[[Chance], Any]
    """A sample."""
    interval: Callable[[Any], Bounds]


@dataclass(frozen=True)
class Held:
    """Shares: of the intervals those that hold the truth, lie below and above it; of the samples
    those without one.
    """

    held: float
    below: float
    above: float
    width: float
    without: float

    @property
    def most_on_a_side(self) -> float:
        return max(self.below, self.above)


def measured(row: Cell, samples: int, seed: int) -> Held:
    chance = np.random.default_rng([seed, zlib.crc32(f"{row.row}; {row.column}".encode())])
    known: dict[bytes, Bounds] = {}
    found = []
    for _ in range(samples):
        sample = row.draw(chance)
        key = pickle.dumps(sample)
        if key not in known:
            known[key] = row.interval(sample)
        found.append(known[key])
    ends = np.array([one for one in found if one is not None] or [(np.nan, np.nan)])
    below = float(np.mean(ends[:, 1] < row.truth))
    above = float(np.mean(ends[:, 0] > row.truth))
    return Held(
        1 - below - above, below, above, float(np.mean(np.diff(ends))), found.count(None) / samples
    )


# Scores corrected by people's ratings, and a judge's bias.

RIGHT = (0.90, 0.95, 0.97, 0.99)
SIZES = ((120, 20), (120, 60), (300, 60), (300, 100), (1000, 30), (1000, 200), (12, 12))
"""The numbers of answers, and of rated ones among them."""
RARE = {"right": ((0.0,), 1.0), "fives": ((1.0, 2.0, 3.0), 5.0)}
"""The scores that people give to nearly all answers, and what else they say; the first of these is
where the scale begins.
"""
JUDGES = {"always the best": (0.0, 1.0), "noisy": (0.1, 0.1), "follows half": (0.0, 0.5)}
"""The shares of good answers that a judge calls bad, and of bad ones that it calls good."""
Rated = list[tuple[Values, Values, Values, Values, Values]]
"""For each stratum the judge's scores of all answers, the people's and the judge's scores of the
rated ones, and the sources of all and of the rated ones.
"""


def judged(
    chance: Chance,
    people: Values,
    others: tuple[float, ...],
    best: float,
    errors: tuple[float, float],
) -> Values:
    wrong = chance.random(len(people)) < np.where(people == best, *errors)
    other = np.where(people == best, chance.choice(others, len(people)), best)
    return np.where(wrong, other, people)


def rated_sample(
    people: Values, judge: Values, rated: int, chance: Chance, sources: Values | None = None
) -> Rated:
    """Draw the answers that are rated, as `annotate export` does."""
    strata = [
        np.flatnonzero((low <= judge) & (judge <= high))
        for low, high in score_ranges_of(judge.tolist())
    ]
    found = []
    for all_of, count in zip(
        strata, counts_to_draw([len(one) for one in strata], rated), strict=True
    ):
        chosen = np.sort(chance.permutation(all_of)[:count])
        if sources is None:  # their order says nothing
            chosen = chosen[np.lexsort((judge[chosen], people[chosen]))]
            all_of = all_of[np.argsort(judge[all_of])]
        of = [np.empty(0) if sources is None else sources[some] for some in (all_of, chosen)]
        found.append((judge[all_of], people[chosen], judge[chosen], *of))
    return found


def of_rated(sample: Rated, *, scale: tuple[float, float], bias: bool) -> Bounds:
    strata = [
        Stratum(
            judge.tolist(),
            list(zip(people.tolist(), theirs.tolist(), strict=True)),
            of.tolist(),
            of_rated.tolist(),
        )
        for judge, people, theirs, of, of_rated in sample
    ]
    try:
        found = (bias_of_judge if bias else corrected_mean)(strata, scale)
    except TooFewSourcesError:
        return None
    return found.low, found.high


def rated_rows(*, bias: bool) -> Iterator[Cell]:
    for (word, (others, best)), share, (judge, errors), sizes in product(
        RARE.items(), RIGHT, JUDGES.items(), SIZES
    ):

        def draw(
            chance: Chance,
            others: tuple[float, ...] = others,
            best: float = best,
            share: float = share,
            errors: tuple[float, float] = errors,
            sizes: tuple[int, int] = sizes,
        ) -> Rated:
            people = np.where(
                chance.random(sizes[0]) < share, best, chance.choice(others, sizes[0])
            )
            return rated_sample(
                people, judged(chance, people, others, best, errors), sizes[1], chance
            )

        if bias and sizes[1] < MIN_RATED:
            continue
        gap = best - float(np.mean(others))
        truth = (
            gap * ((1 - share) * errors[1] - share * errors[0])
            if bias
            else best - (1 - share) * gap
        )
        made = partial(of_rated, scale=(others[0], best), bias=bias)
        yield Cell(f"{share:.0%} {word}; {judge}", f"{sizes[0]:,}, {sizes[1]}", truth, draw, made)


# Clusters of unequal size.

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
"""The shares that are right, each with an intra-class correlation."""


def in_clusters(chance: Chance, sizes: list[int], share: float, icc: float) -> Values:
    """0/1 values of a beta-binomial distribution."""
    weight = (1 - icc) / icc
    chances = np.repeat(chance.beta(share * weight, (1 - share) * weight, len(sizes)), sizes)
    return (chance.random(len(chances)) < chances).astype(float)


def labels_of(sizes: list[int]) -> Values:
    return np.repeat(np.arange(len(sizes), dtype=float), sizes)


def ends_of_mean(sample: Values, **how: Any) -> Bounds:
    found = interval_of_mean(sample.tolist(), **how)
    return None if found.low is None or found.high is None else (found.low, found.high)


def cluster_rows(*, ratings: bool) -> Iterator[Cell]:
    """Yield the rows of 0/1 values; or of ratings, five where those are 1, and one or two else."""
    for (shape, sizes), (share, icc) in product(SHAPES.items(), SHARES):

        def draw(
            chance: Chance, sizes: list[int] = sizes, share: float = share, icc: float = icc
        ) -> Values:
            right = in_clusters(chance, sizes, share, icc)
            return (
                np.where(right == 1, 5.0, chance.choice([1.0, 2.0], len(right)))
                if ratings
                else right
            )

        truth = 5 * share + 1.5 * (1 - share) if ratings else share
        scale = (1.0, 5.0) if ratings else (0.0, 1.0)
        made = partial(ends_of_mean, clusters=labels_of(sizes).tolist(), scale=scale)
        yield Cell(shape, f"{share:.0%}, {icc}", truth, draw, made)


SIGNS = cache(paired._signs)  # noqa: SLF001 - drawn anew for each sample it takes long


def paired_rows() -> Iterator[Cell]:
    """A model that is right so often, and one that is wrong in three of ten of these besides."""
    for (shape, sizes), (share, icc) in product(SHAPES.items(), SHARES):

        def draw(
            chance: Chance, sizes: list[int] = sizes, share: float = share, icc: float = icc
        ) -> Values:
            right = in_clusters(chance, sizes, share, icc)
            keeps = in_clusters(chance, sizes, 0.7, icc)
            return np.array([right, right * keeps])

        def made(sample: Values, sizes: list[int] = sizes) -> Bounds:
            # these take long, and no interval follows from the first two
            with (
                patch.object(paired, "sign_flip_p", return_value=1.0),
                patch.object(paired, "mean_mde", return_value=None),
                patch.object(paired, "_signs", SIGNS),
            ):
                found = paired_difference(
                    *sample.tolist(), clusters=[str(one) for one in labels_of(sizes)]
                )
            return (
                None
                if found.ci_low is None or found.ci_high is None
                else (found.ci_low, found.ci_high)
            )

        yield Cell(shape, f"{share:.0%}, {icc}", -0.3 * share, draw, made)


def rated_cluster_rows() -> Iterator[Cell]:
    """A judge who always says the best, or errs in a tenth; a third of the answers, and 30 at
    least, are rated.
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

        made = partial(of_rated, scale=(0.0, 1.0), bias=False)
        yield Cell(f"{shape}; {judge}", f"{share:.0%}, {icc}", share, draw, made)


# Rubrics: (share of cases that can lose so many points, points, how many of them lose them, what
# others score).

RUBRICS = {
    "4 % are -3, all can be": (1.0, 3.0, 0.04, (0.8, 0.8)),
    "10 % can lose 4, 40 % of them do": (0.1, 4.0, 0.4, (0.8, 0.8)),
    "same, others .4 to 1": (0.1, 4.0, 0.4, (0.4, 1.0)),
    "all can lose 1, 10 % do, others .2 to 1": (1.0, 1.0, 0.1, (0.2, 1.0)),
    "30 % can lose 2, 10 % of them do": (0.3, 2.0, 0.1, (0.6, 1.0)),
    "5 % can lose 4, 60 % of them do": (0.05, 4.0, 0.6, (0.8, 0.8)),
}


def rubric_rows() -> Iterator[Cell]:
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
            lowest = np.where(chance.random(count) < can, -points, 0.0)
            lost = (lowest < 0) & (chance.random(count) < lose)
            return np.array([np.where(lost, lowest, chance.uniform(low, high, count)), lowest])

        def made(sample: Values) -> Bounds:
            return ends_of_mean(sample[0], scale=(0.0, 1.0), lowest=sample[1].tolist())

        lost = can * lose
        yield Cell(name, f"{count}", (1 - lost) * (low + high) / 2 - lost * points, draw, made)


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
    """Yield a table in Markdown: how many of 100 intervals hold the truth (the most that miss it on
    one side; the mean width), bold where these are too few.
    """
    head, cells = TABLES[name]
    rows: dict[str, list[Cell]] = {}
    for cell in cells():
        rows.setdefault(cell.row, []).append(cell)
    columns = [cell.column for cell in next(iter(rows.values()))]
    yield from (f"| {' | '.join([head, *columns])} |", f"|{'---|' * (len(columns) + 1)}")
    for row, of_row in rows.items():
        if text not in row:
            continue
        yield (
            f"| {' | '.join([row, *(text_of(measured(cell, samples, seed)) for cell in of_row)])} |"
        )


def text_of(found: Held) -> str:
    if found.without == 1:
        return "no interval"
    held = f"{100 * found.held:.1f}"
    missed = f"{100 * found.most_on_a_side:.1f}"
    without = f", none {100 * found.without:.0f} %" if found.without else ""
    return (
        f"{held if found.held >= LEAST else f'**{held}**'} ({missed}; {found.width:.3f}{without})"
    )


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
