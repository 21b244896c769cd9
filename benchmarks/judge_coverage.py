#!/usr/bin/env python3
"""How often the intervals of `calibrate` hold the truth, where that is hard: docs/trust-a-judge.md.

    python benchmarks/judge_coverage.py [--samples 1000]

Label sets are drawn from populations whose figures are known: rare faults, a judge at the ceiling, conversations of
unequal size, few conversations; and categories in each of which the judge is another one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from eval_factory.scoring.judge_calibration import Calibration, Figure, agreement_of, calibration_of
from eval_factory.tasks.physician_labels import LabelledItem

Right = tuple[float, float]
"""The chance of being right about a criterion that is met, and about one that is not."""
People = tuple[float, Right, Right]
"""The share of criteria that are met, a physician, the judge."""
USUAL, RARE = (0.85, 0.7), (0.97, 0.6)
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
"""Conversations, people, their sizes in turn, and the correlation of what is met in the items of a conversation."""
CATEGORY_SIZES = (10, 10, 12, 15, 15, 20, 20, 30, 30, 40, 60, 80)


def sampled(
    rng: np.random.Generator, count: int, people: People, sizes: Sequence[int] = (1,), correlation: float = 0.0,
    category: str | None = None,
) -> list[LabelledItem]:  # fmt: skip
    """Items of `count` conversations, of two physicians, one in ten of three."""
    met, physician, judge = people
    found = []
    for number in range(count):
        share = met
        if correlation:
            share = rng.beta(met * (1 / correlation - 1), (1 - met) * (1 / correlation - 1))
        for _ in range(sizes[number % len(sizes)]):
            truth = rng.random() < share
            chance = [physician[0] if truth else 1 - physician[1], judge[0] if truth else 1 - judge[1]]
            labels = tuple((rng.random(2 + (rng.random() < 0.1)) < chance[0]).tolist())
            names = tuple(map(str, range(len(labels))))
            found.append(LabelledItem(f"{category} {number}", bool(rng.random() < chance[1]), labels, names, category))
    return found


def truths(people: People) -> dict[str, float]:
    """Of the population: `judge.kappa` and the like."""
    met, physician, judge = people

    def table(one: Right, other: Right) -> Any:
        right, wrong = met * np.array([one[0], 1 - one[0]]), (1 - met) * np.array([1 - one[1], one[1]])
        return (np.outer(right, [other[0], 1 - other[0]]) + np.outer(wrong, [1 - other[1], other[1]])).ravel()

    found: dict[str, float] = {}
    for who, one in (("judge", judge), ("physicians", physician)):
        cells = table(one, physician)
        names = (f"{who}.f1_macro", f"{who}.kappa", f"{who}.ac1")
        found |= dict(zip(names, map(float, agreement_of(cells)), strict=True))
        found[f"{who}.sensitivity"] = cells[0] / (cells[0] + cells[2])
        found[f"{who}.specificity"] = cells[3] / (cells[1] + cells[3])
    said, labelled = table(judge, physician)[:2].sum(), table(physician, physician)[:2].sum()
    found["judge.bias"], found["gap"] = float(said - labelled), found["judge.f1_macro"] - found["physicians.f1_macro"]
    return found


def figures_of(found: Calibration) -> dict[str, Figure]:
    parts = (("judge", found.total.judge), ("physicians", found.total.physicians))
    figures = {f"{who}.{name}": one for who, part in parts if part is not None for name, one in vars(part).items()}
    return {**figures, "gap": found.gap}


def held(pairs: Iterable[tuple[dict[str, Figure], dict[str, float]]]) -> dict[str, float]:
    """Of each figure, the share of the intervals that hold the truth."""
    counts: dict[str, list[bool]] = {}
    for figures, true in pairs:
        for name in true.keys() & figures.keys():
            low, high = figures[name].ci_low, figures[name].ci_high
            if low is not None and high is not None:
                counts.setdefault(name, []).append(low - 1e-12 <= true[name] <= high + 1e-12)
    return {name: float(np.mean(each)) for name, each in sorted(counts.items())}


def coverage(situation: str, samples: int) -> dict[str, float]:
    count, people, sizes, correlation = SITUATIONS[situation]
    true = truths(people)
    drawn = (sampled(np.random.default_rng(seed), count, people, sizes, correlation) for seed in range(samples))
    return held((figures_of(calibration_of(items)), true) for items in drawn)


def coverage_of_categories(apart: float, samples: int) -> dict[str, float]:
    """Of pooled categories. `apart`: how far the judge's sensitivity lies from 0.72 in them, at most."""
    pairs = []
    for seed in range(samples):
        rng, items, people = np.random.default_rng(seed), list[LabelledItem](), dict[str, People]()
        for number, size in enumerate(CATEGORY_SIZES):
            people[str(number)] = (0.72, USUAL, (0.72 + rng.uniform(-apart, apart), 0.7))
            items += sampled(rng, size, people[str(number)], category=str(number))
        for name, part in calibration_of(items).categories.items():
            figures = {} if part.judge is None else vars(part.judge)
            pairs.append(({f"judge.{key}": one for key, one in figures.items()}, truths(people[name])))
    return held(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    samples = parser.parse_args().samples
    rows = {name: coverage(name, samples) for name in SITUATIONS}
    rows |= {f"categories, {apart} apart": coverage_of_categories(apart, samples // 5) for apart in (0.0, 0.1, 0.25)}
    for name, found in rows.items():
        shown = ", ".join(f"{key} {100 * share:.1f}" for key, share in found.items())
        print(f"{name}: lowest {100 * min(found.values()):.1f} ({shown})")


if __name__ == "__main__":
    main()
