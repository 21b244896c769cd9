#!/usr/bin/env python3
"""Measures how often the intervals of `calibrate`, and of a score corrected by labels, hold the
truth: docs/trust-a-judge.md.

    python benchmarks/judge_coverage.py [--samples 1000] [--only agreement|correction]

Label sets are drawn from populations whose figures are known: rare faults, a judge at the ceiling,
conversations of unequal size, few conversations; and categories in each of which the judge is
another one. For a corrected score a run is drawn beside them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eval_factory.scoring.agreement_figures import Figure, agreement_of
from eval_factory.scoring.judge_calibration import Calibration, calibration_of
from eval_factory.scoring.judge_correction import (
    CasePoints,
    NotCorrected,
    corrected_by_labels,
    weights_of,
)
from eval_factory.tasks.physician_labels import LabelledItem, LabelledPairs

Right = tuple[float, float]
"""The chance of being right about a criterion that is met, and about one that is not."""
People = tuple[float, Right, Right]
"""The share of criteria that are met, a physician, the judge."""
USUAL = (0.85, 0.7)
RARE = (0.97, 0.6)
UNEQUAL = (10, *[4] * 3, *[1] * 16)
SITUATIONS: dict[str, tuple[int, People, Sequence[int], float]] = {
    "60 items": (60, (0.72, USUAL, (0.9, 0.8)), (1,), 0.0),
    "a judge at random": (60, (0.72, USUAL, (0.7, 0.3)), (1,), 0.0),
    "rare faults": (200, (0.97, RARE, (0.9, 0.8)), (1,), 0.0),
    "rare faults, 60 items": (60, (0.97, RARE, (0.9, 0.8)), (1,), 0.0),
    "rare faults, judge near the ceiling": (200, (0.97, (0.98, 0.7), (0.995, 0.05)), (1,), 0.0),
    "judge at the ceiling": (60, (0.72, USUAL, (1.0, 0.0)), (1,), 0.0),
    "unequal clusters": (60, (0.72, USUAL, (0.9, 0.8)), UNEQUAL, 0.3),
    "unequal clusters, rare faults": (100, (0.93, (0.95, 0.7), (0.9, 0.8)), UNEQUAL, 0.3),
    "30 clusters of four": (30, (0.72, USUAL, (0.9, 0.8)), (4,), 0.3),
    "12 clusters of four": (12, (0.72, USUAL, (0.9, 0.8)), (4,), 0.2),
}
"""Conversations, people, their sizes in turn, and the correlation of what is met in the items of
a conversation.
"""
CATEGORY_SIZES = (10, 10, 12, 15, 15, 20, 20, 30, 30, 40, 60, 80)


def sampled(
    rng: np.random.Generator,
    count: int,
    people: People,
    sizes: Sequence[int] = (1,),
    correlation: float = 0.0,
    category: str | None = None,
) -> list[LabelledItem]:
    """Items of `count` conversations, of two physicians, one in ten of three."""
    met, physician, judge = people
    found = []
    for number in range(count):
        share = met
        if correlation:
            share = rng.beta(met * (1 / correlation - 1), (1 - met) * (1 / correlation - 1))
        for _ in range(sizes[number % len(sizes)]):
            truth = rng.random() < share
            chance = [
                physician[0] if truth else 1 - physician[1],
                judge[0] if truth else 1 - judge[1],
            ]
            physicians = 3 if rng.random() < 0.1 else 2
            labels = tuple((rng.random(physicians) < chance[0]).tolist())
            names = tuple(map(str, range(len(labels))))
            found.append(
                LabelledItem(
                    f"{category} {number}", bool(rng.random() < chance[1]), labels, names, category
                )
            )
    return found


def truths(people: People) -> dict[str, float]:
    """Return the truths of the population: `judge.kappa` and the like."""
    met, physician, judge = people

    def table(one: Right, other: Right) -> Any:
        right = met * np.array([one[0], 1 - one[0]])
        wrong = (1 - met) * np.array([1 - one[1], one[1]])
        return (
            np.outer(right, [other[0], 1 - other[0]]) + np.outer(wrong, [1 - other[1], other[1]])
        ).ravel()

    found: dict[str, float] = {}
    for who, one in (("judge", judge), ("physicians", physician)):
        cells = table(one, physician)
        names = (f"{who}.f1_macro", f"{who}.kappa", f"{who}.ac1")
        found |= dict(zip(names, map(float, agreement_of(cells)), strict=True))
        found[f"{who}.sensitivity"] = cells[0] / (cells[0] + cells[2])
        found[f"{who}.specificity"] = cells[3] / (cells[1] + cells[3])
    said = table(judge, physician)[:2].sum()
    labelled = table(physician, physician)[:2].sum()
    found["judge.bias"] = float(said - labelled)
    found["gap"] = found["judge.f1_macro"] - found["physicians.f1_macro"]
    return found


def figures_of(found: Calibration) -> dict[str, Figure]:
    parts = (("judge", found.total.judge), ("physicians", found.total.physicians))
    figures = {}
    for who, part in parts:
        if part is not None:
            for name, figure in vars(part).items():
                figures[f"{who}.{name}"] = figure
    figures["gap"] = found.gap
    return figures


def held(pairs: Iterable[tuple[dict[str, Figure], dict[str, float]]]) -> dict[str, float]:
    """Return the share of each figure's intervals that hold the truth."""
    counts: dict[str, list[bool]] = {}
    for figures, true in pairs:
        for name in true.keys() & figures.keys():
            low = figures[name].ci_low
            high = figures[name].ci_high
            if low is not None and high is not None:
                counts.setdefault(name, []).append(low - 1e-12 <= true[name] <= high + 1e-12)
    return {name: float(np.mean(each)) for name, each in sorted(counts.items())}


def coverage(situation: str, samples: int) -> dict[str, float]:
    count, people, sizes, correlation = SITUATIONS[situation]
    true = truths(people)
    drawn = (
        sampled(np.random.default_rng(seed), count, people, sizes, correlation)
        for seed in range(samples)
    )
    return held((figures_of(calibration_of(items)), true) for items in drawn)


def coverage_of_categories(apart: float, samples: int) -> dict[str, float]:
    """Return the coverage of pooled categories. `apart`: how far the judge's sensitivity lies from
    0.72 in them, at most.
    """
    pairs = []
    for seed in range(samples):
        rng = np.random.default_rng(seed)
        items = list[LabelledItem]()
        people = dict[str, People]()
        for number, size in enumerate(CATEGORY_SIZES):
            people[str(number)] = (0.72, USUAL, (0.72 + rng.uniform(-apart, apart), 0.7))
            items += sampled(rng, size, people[str(number)], category=str(number))
        for name, part in calibration_of(items).categories.items():
            figures = {} if part.judge is None else vars(part.judge)
            pairs.append(
                ({f"judge.{key}": one for key, one in figures.items()}, truths(people[name]))
            )
    return held(pairs)


Kind = tuple[float, float, float, Right]
"""Its share of the conversations with labels, and of the run's cases; the share that is met in
it, and the judge.
"""


def judged_alike(
    judge: Right = (0.9, 0.7), labels: float = 0.6, run: float | None = None
) -> Sequence[Kind]:
    """The share that is met in the labels, and in the run where that is another."""
    return (
        [(1.0, 1.0, labels, judge)]
        if run is None
        else [(1.0, 0.0, labels, judge), (0.0, 1.0, run, judge)]
    )


class Labelled(NamedTuple):
    """Items of conversations, and a run's cases of sources: their numbers in turn."""

    kinds: Sequence[Kind] = judged_alike()
    conversations: int = 100
    sizes: Sequence[int] = (3,)
    cases: int = 200
    sources: Sequence[int] = (1,)
    criteria: tuple[int, int] = (4, 12)
    negative: float = 0.0
    """The share of criteria with points below 0: a case meets as many of them as it misses of
    the others.
    """
    physician: Right | None = None
    """Two of an item, one in ten has three. None: one who is always right."""
    by_category: bool = False


LEANS = ((0.6, 0.2, (0.97, 0.5)), (0.3, 0.3, (0.9, 0.75)), (0.1, 0.5, (0.7, 0.95)))
TO_CORRECT = {
    "usual": Labelled(),
    "better model": Labelled(judged_alike(labels=0.5, run=0.85)),
    "worse model": Labelled(judged_alike(labels=0.8, run=0.3)),
    "negative points": Labelled(negative=0.3),
    "negative points, better model": Labelled(judged_alike(labels=0.5, run=0.85), negative=0.3),
    "20 conversations": Labelled(conversations=20),
    "12 conversations": Labelled(conversations=12),
    "rare faults, 60 labels": Labelled(judged_alike((0.98, 0.6), 0.97), 60, (1,)),
    "rare faults, 300 labels": Labelled(judged_alike((0.98, 0.6), 0.97), 300, (1,)),
    "rarely met": Labelled(judged_alike((0.7, 0.97), 0.05), 60, (2,)),
    "judge at the ceiling": Labelled(judged_alike((0.99, 0.15)), 200, (2,)),
    "judge near the ceiling": Labelled(judged_alike((0.995, 0.3), 0.7), 400, (2,), 300),
    "perfect judge": Labelled(judged_alike((1.0, 1.0))),
    "nearly perfect judge": Labelled(judged_alike((0.99, 0.97), 0.8), 60),
    "lenient judge": Labelled(judged_alike((0.97, 0.5), 0.5), 150, (2,), 300),
    "strict judge": Labelled(judged_alike((0.6, 0.95), 0.7), 150, (2,), 300),
    "20 cases": Labelled(cases=20),
    "cases in unequal clusters": Labelled(sources=UNEQUAL),
    "unequal conversations": Labelled(sizes=UNEQUAL),
    "few large conversations": Labelled(conversations=40, sizes=(*[30] * 4, *[2] * 36)),
    "one criterion a case": Labelled(
        judged_alike((0.85, 0.75), 0.7), 60, (1,), 500, criteria=(1, 1)
    ),
    "physicians disagree": Labelled(sizes=(2,), physician=(0.85, 0.75)),
    "physicians disagree, lenient judge": Labelled(
        judged_alike((0.97, 0.5)), sizes=(2,), physician=(0.85, 0.75)
    ),
    "physicians disagree, rare faults": Labelled(
        judged_alike((0.97, 0.6), 0.9), sizes=(2,), physician=(0.97, 0.7)
    ),
    "another mix": Labelled(
        [(one, run, 0.6, judge) for one, run, judge in LEANS], by_category=True
    ),
    "another mix and shares": Labelled(
        [(one, run, 0.9 - one, judge) for one, run, judge in LEANS], by_category=True
    ),
}


def _sources(
    rng: np.random.Generator, these: Sequence[Kind], of: int, count: int
) -> tuple[Any, Any, Any]:
    """Draw for each source its kind, the share that it meets (correlated with 0.2), and its judge.
    `of`: labels 0, a run 1.
    """
    kind = rng.choice(len(these), count, p=[one[of] for one in these])
    met = np.array([one[2] for one in these])[kind]
    return kind, rng.beta(4 * met, 4 * (1 - met)), np.array([one[3] for one in these])[kind]


def _said(rng: np.random.Generator, met: Any, right: Any) -> Any:
    return rng.random(len(met)) < np.where(met, right[..., 0], 1 - right[..., 1])


def _labels(rng: np.random.Generator, one: Labelled) -> list[LabelledPairs]:
    kind, share, judge = _sources(rng, one.kinds, 0, one.conversations)
    of = np.repeat(np.arange(one.conversations), np.resize(one.sizes, one.conversations))
    met = rng.random(len(of)) < share[of]
    labels: Any = 1
    if one.physician is not None:
        labels = np.where(rng.random(len(of)) < 0.1, 3, 2)
    judged = _said(rng, met, judge[of])
    item = np.repeat(np.arange(len(of)), labels)
    cell = 2 * ~judged[item] + ~_said(rng, met[item], np.array(one.physician or (1.0, 1.0)))
    tables = (
        np.bincount(4 * of[item] + cell, minlength=4 * one.conversations).reshape(-1, 4).tolist()
    )
    return [
        LabelledPairs(at, str(kind[at]), (a, b, c, d)) for at, (a, b, c, d) in enumerate(tables)
    ]


def corrected(rng: np.random.Generator, one: Labelled) -> tuple[float, float, float]:
    """Return both ends, nan if there are none, and the share of points above 0 that those below it
    would take away.
    """
    numbers = rng.integers(one.criteria[0], one.criteria[1] + 1, one.cases)
    case = np.repeat(range(one.cases), numbers)
    source = np.repeat(range(one.cases), np.resize(one.sources, one.cases))
    kind, share, judge = (each[source[case]] for each in _sources(rng, one.kinds, 1, one.cases))
    signs = np.where(rng.random(len(case)) < one.negative, -1, 1)
    signs[np.cumsum(numbers) - numbers] = 1  # each case has some to win
    points = rng.integers(1, 11, len(case)) * signs
    points = points / np.bincount(case, np.maximum(points, 0))[case]
    judged = _said(rng, rng.random(len(case)) < np.where(points > 0, share, 1 - share), judge)
    given = np.bincount(case, points * judged)
    possible = np.bincount(case, points)
    below_0 = 1 - float(possible.mean())
    labels = _labels(rng, one)
    pairs = Counter[str | None]()
    for label in labels:
        pairs[label.category] += sum(label.counts)
    of_run: dict[str | None, float] = {
        str(at): float(abs(points[kind == at]).sum()) for at in range(len(one.kinds))
    }
    weights = weights_of(pairs, of_run)[0] if one.by_category else {}
    cases = CasePoints(given.tolist(), possible.tolist(), source[: one.cases].tolist(), -below_0)
    found = corrected_by_labels(cases, labels, weights)
    if isinstance(found, NotCorrected):
        return np.nan, np.nan, below_0
    return found.ci_low, found.ci_high, below_0


def coverage_of_correction(situation: str, samples: int) -> tuple[float, float, float]:
    """Return the share of intervals that hold what a random physician would say; of samples the
    share without one; the width.
    """
    one = TO_CORRECT[situation]
    drawn = np.array([corrected(np.random.default_rng(seed), one) for seed in range(samples)])
    met = sum(share * met for _, share, met, _ in one.kinds)
    (right, wrong) = one.physician or (1.0, 1.0)
    true = met * right + (1 - met) * (1 - wrong) - (1 - met) * drawn[:, 2].mean()
    low, high = drawn[~np.isnan(drawn[:, 0]), :2].T
    holds = (low <= true + 1e-12) & (true <= high + 1e-12)
    return float(holds.mean()), 1 - len(low) / samples, float((high - low).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--only", choices=("agreement", "correction"))
    args = parser.parse_args()
    samples = args.samples
    only = args.only
    for name in TO_CORRECT if only != "agreement" else ():
        covers, none, width = (100 * each for each in coverage_of_correction(name, samples))
        print(f"corrected, {name}: {covers:.1f}, none {none:.1f}, width {width:.1f}", flush=True)
    if only == "correction":
        return
    rows = {name: coverage(name, samples) for name in SITUATIONS}
    rows |= {
        f"categories, {apart} apart": coverage_of_categories(apart, samples // 5)
        for apart in (0.0, 0.1, 0.25)
    }
    for name, found in rows.items():
        shown = ", ".join(f"{key} {100 * share:.1f}" for key, share in found.items())
        print(f"{name}: lowest {100 * min(found.values()):.1f} ({shown})")


if __name__ == "__main__":
    main()
