#!/usr/bin/env python3
"""Measures how often the intervals of `calibrate`, and of corrected scores, contain the truth.

The figures are in docs/trust-a-judge.md.

    python benchmarks/judge_coverage.py [--samples 1000] [--only agreement|correction]

Sets of labels are drawn from populations whose figures are known. The difficult situations are:
rare faults, a judge who calls nearly everything met, conversations of unequal size, few
conversations, and categories in which the judge has different abilities. For a corrected score, the
judge's decisions in a run are drawn too.
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
"""The probability that a judge or physician decides rightly: about a criterion that is met, and
about a criterion that is not met.
"""
People = tuple[float, Right, Right]
"""The share of criteria that are met, the abilities of a physician, and those of the judge."""
USUAL = (0.85, 0.7)  # a usual physician
RARE = (0.97, 0.6)  # a physician if faults are rare
UNEQUAL = (10, *[4] * 3, *[1] * 16)  # the numbers of items in 20 conversations
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
"""For each situation: the number of conversations, the people, the number of items in each
conversation (repeated from the first if there are more conversations), and the intra-class
correlation of what is met within a conversation.
"""
CATEGORY_SIZES = (10, 10, 12, 15, 15, 20, 20, 30, 30, 40, 60, 80)  # items in each category


def sampled(
    rng: np.random.Generator,
    count: int,
    people: People,
    sizes: Sequence[int] = (1,),
    correlation: float = 0.0,
    category: str | None = None,
) -> list[LabelledItem]:
    """Draw the labelled items of conversations.

    Nine of ten items have the labels of two physicians; the others have three labels.

    Args:
        rng: a generator of random numbers.
        count: the number of conversations.
        people: the share of criteria that are met, and the abilities of physicians and judge.
        sizes: the number of items in each conversation (as in `SITUATIONS`).
        correlation: the intra-class correlation of what is met within a conversation.
        category: the category of all items.
    """
    met, physician, judge = people
    items = []
    for number in range(count):
        share = met
        if correlation:
            share = rng.beta(met * (1 / correlation - 1), (1 - met) * (1 / correlation - 1))
        for _ in range(sizes[number % len(sizes)]):
            is_met = rng.random() < share
            # the probability of the decision "met" of a physician, and of the judge
            met_by_physician = physician[0] if is_met else 1 - physician[1]
            met_by_judge = judge[0] if is_met else 1 - judge[1]
            physicians = 3 if rng.random() < 0.1 else 2
            labels = tuple((rng.random(physicians) < met_by_physician).tolist())
            items.append(
                LabelledItem(
                    conversation=f"{category} {number}",
                    judged=bool(rng.random() < met_by_judge),
                    labels=labels,
                    physicians=tuple(map(str, range(len(labels)))),
                    category=category,
                )
            )
    return items


def truths(people: People) -> dict[str, float]:
    """Return the true figures of a population by name, such as `judge.kappa`."""
    met, physician, judge = people

    def table(first: Right, second: Right) -> Any:
        """Return the probability of each pair of decisions of two people about a criterion.

        The pairs are: both "met", only the first "met", only the second "met", neither.
        """
        if_met = met * np.array([first[0], 1 - first[0]])
        if_not_met = (1 - met) * np.array([1 - first[1], first[1]])
        of_met = np.outer(if_met, [second[0], 1 - second[0]])
        of_not_met = np.outer(if_not_met, [1 - second[1], second[1]])
        return (of_met + of_not_met).ravel()

    figures: dict[str, float] = {}
    for who, abilities in (("judge", judge), ("physicians", physician)):
        cells = table(abilities, physician)
        names = (f"{who}.f1_macro", f"{who}.kappa", f"{who}.ac1")
        figures |= dict(zip(names, map(float, agreement_of(cells)), strict=True))
        figures[f"{who}.sensitivity"] = cells[0] / (cells[0] + cells[2])
        figures[f"{who}.specificity"] = cells[3] / (cells[1] + cells[3])
    met_by_judge = table(judge, physician)[:2].sum()
    met_by_physician = table(physician, physician)[:2].sum()
    figures["judge.bias"] = float(met_by_judge - met_by_physician)
    figures["gap"] = figures["judge.f1_macro"] - figures["physicians.f1_macro"]
    return figures


def figures_of(calibration: Calibration) -> dict[str, Figure]:
    """Return the figures of a calibration by the names of `truths`."""
    total = calibration.total
    figures = {}
    for who, agreement in (("judge", total.judge), ("physicians", total.physicians)):
        if agreement is not None:
            for name, figure in vars(agreement).items():
                figures[f"{who}.{name}"] = figure
    figures["gap"] = calibration.gap
    return figures


def held(pairs: Iterable[tuple[dict[str, Figure], dict[str, float]]]) -> dict[str, float]:
    """Return the share of each figure's intervals that contain the truth.

    `pairs` has, for each sample, its figures and the true figures.
    """
    is_held: dict[str, list[bool]] = {}
    for figures, true in pairs:
        for name in true.keys() & figures.keys():
            low = figures[name].ci_low
            high = figures[name].ci_high
            if low is not None and high is not None:
                is_held.setdefault(name, []).append(low - 1e-12 <= true[name] <= high + 1e-12)
    return {name: float(np.mean(of_figure)) for name, of_figure in sorted(is_held.items())}


def coverage(situation: str, samples: int) -> dict[str, float]:
    """Return the coverage of each figure's interval in a situation of `SITUATIONS`."""
    count, people, sizes, correlation = SITUATIONS[situation]
    true = truths(people)
    drawn = (
        sampled(np.random.default_rng(seed), count, people, sizes, correlation)
        for seed in range(samples)
    )
    return held((figures_of(calibration_of(items)), true) for items in drawn)


def coverage_of_categories(apart: float, samples: int) -> dict[str, float]:
    """Return the coverage of the figures of categories, which `calibrate` pools.

    Args:
        apart: the greatest difference of the judge's sensitivity in a category from 0.72.
        samples: the number of samples.
    """
    pairs = []
    for seed in range(samples):
        rng = np.random.default_rng(seed)
        items = list[LabelledItem]()
        people = dict[str, People]()
        for number, size in enumerate(CATEGORY_SIZES):
            people[str(number)] = (0.72, USUAL, (0.72 + rng.uniform(-apart, apart), 0.7))
            items += sampled(rng, size, people[str(number)], category=str(number))
        for category, part in calibration_of(items).categories.items():
            figures = {}
            if part.judge is not None:
                for name, figure in vars(part.judge).items():
                    figures[f"judge.{name}"] = figure
            pairs.append((figures, truths(people[category])))
    return held(pairs)


Kind = tuple[float, float, float, Right]
"""A kind of criteria: its share of the conversations with labels, its share of the run's cases, the
share of its criteria that are met, and the abilities of the judge.
"""
OF_LABELS = 0  # the index in a `Kind` of the share of the conversations with labels
OF_RUN = 1  # the index in a `Kind` of the share of the run's cases


def judged_alike(
    judge: Right = (0.9, 0.7), labels: float = 0.6, run: float | None = None
) -> Sequence[Kind]:
    """Return the kinds of a situation in which the judge is equally able for labels and run.

    Args:
        judge: the abilities of the judge.
        labels: the share of criteria that are met in the labelled conversations.
        run: the share of criteria that are met in the run; None: the same share.
    """
    if run is None:
        return [(1.0, 1.0, labels, judge)]
    return [(1.0, 0.0, labels, judge), (0.0, 1.0, run, judge)]


class Labelled(NamedTuple):
    """A situation in which a run's score is corrected by labels."""

    kinds: Sequence[Kind] = judged_alike()
    conversations: int = 100  # the number of conversations with labels
    # the number of items in each conversation, repeated from the first as in `SITUATIONS`
    sizes: Sequence[int] = (3,)
    cases: int = 200  # the number of cases in the run
    sources: Sequence[int] = (1,)  # the number of cases from each source, repeated too
    criteria: tuple[int, int] = (4, 12)  # the lowest and the highest number of criteria in a case
    negative: float = 0.0
    """The share of criteria with negative points. As large a share of these criteria is not met as
    is met of the other criteria.
    """
    physician: Right | None = None
    """The abilities of the physicians. An item has the labels of two physicians; one in ten items
    has three. None: an item has one label, which is always right.
    """
    by_category: bool = False  # True if each kind is a category, and the labels are weighted by it


# For each kind: its share of the labelled conversations, its share of the run, and the judge.
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
        [(labels, run, 0.6, judge) for labels, run, judge in LEANS], by_category=True
    ),
    "another mix and shares": Labelled(
        [(labels, run, 0.9 - labels, judge) for labels, run, judge in LEANS], by_category=True
    ),
}


def _sources(
    rng: np.random.Generator, kinds: Sequence[Kind], of: int, count: int
) -> tuple[Any, Any, Any]:
    """Draw the kind of each source, its share of met criteria, and the abilities of its judge.

    The shares have a beta distribution with the intra-class correlation 0.2.

    Args:
        rng: a generator of random numbers.
        kinds: the kinds of criteria.
        of: `OF_LABELS` for conversations with labels, `OF_RUN` for sources of a run.
        count: the number of sources.
    """
    kind_numbers = rng.choice(len(kinds), count, p=[kind[of] for kind in kinds])
    met = np.array([kind[2] for kind in kinds])[kind_numbers]
    shares = rng.beta(4 * met, 4 * (1 - met))
    judges = np.array([kind[3] for kind in kinds])[kind_numbers]
    return kind_numbers, shares, judges


def _decisions(rng: np.random.Generator, met: Any, right: Any) -> Any:
    """Draw a decision about each criterion: True for "met".

    Args:
        rng: a generator of random numbers.
        met: True for each criterion that is met.
        right: the abilities (`Right`) of the person who decides, or of the judge of each criterion.
    """
    return rng.random(len(met)) < np.where(met, right[..., 0], 1 - right[..., 1])


def _labels(rng: np.random.Generator, situation: Labelled) -> list[LabelledPairs]:
    """Draw the labels of a situation, as pairs of decisions of the judge and a physician."""
    count = situation.conversations
    kind, share, judge = _sources(rng, situation.kinds, OF_LABELS, count)
    conversation = np.repeat(np.arange(count), np.resize(situation.sizes, count))  # of each item
    met = rng.random(len(conversation)) < share[conversation]
    labels: Any = 1
    if situation.physician is not None:
        labels = np.where(rng.random(len(conversation)) < 0.1, 3, 2)
    judged = _decisions(rng, met, judge[conversation])
    item = np.repeat(np.arange(len(conversation)), labels)  # the item of each label
    label = _decisions(rng, met[item], np.array(situation.physician or (1.0, 1.0)))
    # The number of a pair's cell: 0 both "met", 1 only the judge, 2 only the physician, 3 neither.
    cell = 2 * ~judged[item] + ~label
    counts = np.bincount(4 * conversation[item] + cell, minlength=4 * count)
    pairs = []
    for number, (both, only_judge, only_physician, neither) in enumerate(
        counts.reshape(-1, 4).tolist()
    ):
        cells = (both, only_judge, only_physician, neither)
        pairs.append(LabelledPairs(number, str(kind[number]), cells))
    return pairs


def corrected(rng: np.random.Generator, situation: Labelled) -> tuple[float, float, float]:
    """Draw a run and labels, and return the interval of the run's corrected score.

    Returns:
        Both ends of the interval (nan if there is no interval); and the sum of the negative points
        of a case as a share of its positive points, in the mean of the cases.
    """
    cases = situation.cases
    lowest, highest = situation.criteria
    numbers = rng.integers(lowest, highest + 1, cases)  # the number of criteria in each case
    case = np.repeat(range(cases), numbers)  # the case of each criterion
    source = np.repeat(range(cases), np.resize(situation.sources, cases))  # the source of each case
    kind, share, judge = (
        of_source[source[case]] for of_source in _sources(rng, situation.kinds, OF_RUN, cases)
    )
    signs = np.where(rng.random(len(case)) < situation.negative, -1, 1)
    first_criteria = np.cumsum(numbers) - numbers
    signs[first_criteria] = 1  # Each case has a criterion with positive points.
    points = rng.integers(1, 11, len(case)) * signs
    points = points / np.bincount(case, np.maximum(points, 0))[case]  # shares of positive points
    met = rng.random(len(case)) < np.where(points > 0, share, 1 - share)
    judged = _decisions(rng, met, judge)
    given = np.bincount(case, points * judged)
    possible = np.bincount(case, points)
    negative_share = 1 - float(possible.mean())
    labels = _labels(rng, situation)
    weights: dict[str | None, float] = {}
    if situation.by_category:
        pair_counts = Counter[str | None]()
        for pairs in labels:
            pair_counts[pairs.category] += sum(pairs.counts)
        points_of_kind: dict[str | None, float] = {}
        for number in range(len(situation.kinds)):
            points_of_kind[str(number)] = float(abs(points[kind == number]).sum())
        weights, _matched_share = weights_of(pair_counts, points_of_kind)
    case_points = CasePoints(
        points_given=given.tolist(),
        points_if_all_met=possible.tolist(),
        clusters=source[:cases].tolist(),
        lowest=-negative_share,
    )
    score = corrected_by_labels(case_points, labels, weights)
    if isinstance(score, NotCorrected):
        return np.nan, np.nan, negative_share
    return score.ci_low, score.ci_high, negative_share


def coverage_of_correction(situation: str, samples: int) -> tuple[float, float, float]:
    """Measure the intervals of corrected scores in a situation of `TO_CORRECT`.

    Returns:
        The share of the intervals that contain the score by a random physician's decisions; the
        share of the samples without an interval; and the mean width of the intervals.
    """
    labelled = TO_CORRECT[situation]
    drawn = np.array([corrected(np.random.default_rng(seed), labelled) for seed in range(samples)])
    met = sum(share_of_run * met_in_kind for _, share_of_run, met_in_kind, _ in labelled.kinds)
    sensitivity, specificity = labelled.physician or (1.0, 1.0)
    met_by_physician = met * sensitivity + (1 - met) * (1 - specificity)
    # Of the criteria with negative points, the share `1 - met` is met, and loses these points.
    lost = (1 - met) * drawn[:, 2].mean()
    true = met_by_physician - lost
    low, high = drawn[~np.isnan(drawn[:, 0]), :2].T
    is_held = (low <= true + 1e-12) & (true <= high + 1e-12)
    return float(is_held.mean()), 1 - len(low) / samples, float((high - low).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--only", choices=("agreement", "correction"))
    options = parser.parse_args()
    samples = options.samples
    if options.only != "agreement":
        for name in TO_CORRECT:
            covers, none, width = (100 * share for share in coverage_of_correction(name, samples))
            figures = f"{covers:.1f}, none {none:.1f}, width {width:.1f}"
            print(f"corrected, {name}: {figures}", flush=True)
    if options.only == "correction":
        return
    rows = {name: coverage(name, samples) for name in SITUATIONS}
    for apart in (0.0, 0.1, 0.25):
        # Each sample has many categories, so a fifth of the samples is enough.
        rows[f"categories, {apart} apart"] = coverage_of_categories(apart, samples // 5)
    for name, coverages in rows.items():
        shown = ", ".join(f"{figure} {100 * share:.1f}" for figure, share in coverages.items())
        print(f"{name}: lowest {100 * min(coverages.values()):.1f} ({shown})")


if __name__ == "__main__":
    main()
