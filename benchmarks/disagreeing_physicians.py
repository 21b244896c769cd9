#!/usr/bin/env python3
"""Measures how often a corrected score holds the truth where physicians disagree:
docs/trust-a-judge.md.

    python benchmarks/disagreeing_physicians.py [--samples 2000] [--resamples 1000] [--rows TEXT]

Judge's sensitivity and specificity 0.9; 100 cases of 10 criteria in the run, whose shares of met
are beta-distributed; two physicians an item, each of whom says the other thing in so many items;
70 % of the labelled items are met, or what the row says. `by labels` is what passports of the first
version gave, which takes the labels for the truth. `hard items`: on a fifth of the items judge and
physicians err together with that chance, which no method here knows. `of labels`: with one
physician an item the score is held against the share that such a physician says is met.
"""

from __future__ import annotations

import argparse
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eval_factory.scoring import latent_class
from eval_factory.scoring.judge_correction import (
    CasePoints,
    JudgeCorrectedScore,
    Labels,
    corrected_by_labels,
    corrected_score,
)
from eval_factory.tasks.physician_labels import LabelledItems, LabelledPairs

Values = npt.NDArray[np.float64]
Chance = np.random.Generator
CASES = 100
CRITERIA = 10
CORRELATION = 0.1
LEAST = 0.92
HARD = 0.2


@dataclass(frozen=True)
class Row:
    flips: float
    items: int
    run: float
    """The share that is met."""
    labels: float = 0.7
    conversation: int = 1
    """Items of one conversation."""
    together: float = 0.0
    """The chance that judge and physicians err on a hard item."""
    physicians: int = 2
    of_labels: bool = False
    """The score is held against what a physician says is met, not against the truth."""

    @property
    def asked(self) -> float:
        """The share that the score is held against."""
        if self.of_labels:
            return self.run * (1 - self.flips) + (1 - self.run) * self.flips
        return self.run

    @property
    def name(self) -> str:
        words = f"{self.flips:.2f}, {self.items:,}, {self.run:.2f}"
        if self.labels != 0.7:
            words += f", labels' share {self.labels:.2f}"
        if self.conversation > 1:
            words += f", conversations of {self.conversation}"
        if self.together:
            words += f", hard items {self.together:.2f}"
        if self.physicians == 1:
            words += ", one physician"
        if self.of_labels:
            words += f", of labels {self.asked:.2f}"
        return words


ROWS = (
    Row(0.0, 300, 0.5),
    Row(0.1, 300, 0.6),
    Row(0.1, 300, 0.5),
    Row(0.15, 300, 0.5),
    Row(0.15, 1000, 0.85),
    Row(0.2, 1000, 0.6),
    Row(0.15, 60, 0.5),
    Row(0.15, 300, 0.7),
    Row(0.1, 300, 0.85),
    Row(0.2, 300, 0.4),
    Row(0.2, 60, 0.7),
    Row(0.0, 60, 0.5),
    Row(0.1, 300, 0.8, labels=0.5),
    Row(0.2, 60, 0.4),
    Row(0.2, 60, 0.8, labels=0.5),
    Row(0.15, 300, 0.5, conversation=5),
    Row(0.1, 120, 0.5, conversation=3),
    Row(0.2, 600, 0.4, conversation=10),
    Row(0.1, 300, 0.5, together=0.3),
    Row(0.1, 300, 0.7, together=0.3),
    Row(0.1, 300, 0.7, together=0.6),
    Row(0.1, 300, 0.5, physicians=1),
    Row(0.1, 300, 0.7, physicians=1),
    Row(0.1, 300, 0.7, physicians=1, of_labels=True),
)


def _shares(chance: Chance, share: float, count: int) -> Values:
    weight = 1 / CORRELATION - 1
    return chance.beta(share * weight, (1 - share) * weight, count)


def _said(chance: Chance, truth: npt.NDArray[np.bool_], right: float) -> npt.NDArray[np.bool_]:
    return np.where(chance.random(truth.shape) < right, truth, ~truth)


def sample(chance: Chance, row: Row) -> tuple[Labels, CasePoints, list[tuple[float, int]]]:
    conversations = row.items // row.conversation
    share: Values = np.full(conversations, row.labels)
    if row.conversation > 1:
        share = _shares(chance, row.labels, conversations)
    conversation = np.repeat(np.arange(conversations), row.conversation)
    truth = chance.random(len(conversation)) < share[conversation]
    hard = (chance.random(len(truth)) < HARD) & (chance.random(len(truth)) < row.together)
    seen = truth ^ hard
    judged = _said(chance, seen, 0.9)
    labels = [_said(chance, seen, 1 - row.flips) for _ in range(row.physicians)]
    case = np.repeat(np.arange(CASES), CRITERIA)
    met = chance.random(len(case)) < _shares(chance, row.run, CASES)[case]
    wrong = (chance.random(len(met)) < HARD) & (chance.random(len(met)) < row.together)
    decided = _said(chance, met ^ wrong, 0.9).astype(float)
    given = decided.reshape(CASES, CRITERIA).mean(axis=1)
    met_labels = np.sum(labels, axis=0).tolist()
    counts = Counter(zip(conversation.tolist(), judged.tolist(), met_labels, strict=True))
    items = [
        LabelledItems(number, None, bool(said), row.physicians, int(total), count)
        for (number, said, total), count in counts.items()
    ]
    return (
        Labels(_pairs(items), items),
        CasePoints(given.tolist(), [1.0] * CASES, list(range(CASES)), 0.0),
        list(zip(decided.tolist(), case.tolist(), strict=True)),
    )


def _pairs(items: list[LabelledItems]) -> list[LabelledPairs]:
    found = []
    for each in items:
        met = each.met * each.items
        not_met = (each.labels - each.met) * each.items
        counts = (met, not_met, 0, 0)
        if not each.judged:
            counts = (0, 0, met, not_met)
        found.append(LabelledPairs(each.conversation, None, counts))
    return found


@dataclass
class Tally:
    held: int = 0
    given: int = 0
    apart: float = 0.0
    width: float = 0.0

    def add(self, found: object, truth: float) -> None:
        if isinstance(found, JudgeCorrectedScore):
            self.given += 1
            if found.ci_low <= truth <= found.ci_high:
                self.held += 1
            self.apart += found.value - truth
            self.width += found.ci_high - found.ci_low

    def text(self, samples: int) -> str:
        if not self.given:
            return "none"
        share = self.held / self.given
        shown = f"{100 * share:.1f}"
        if share < LEAST:
            shown = f"**{shown}**"
        without = ""
        if self.given < samples:
            without = f", none {100 * (1 - self.given / samples):.0f} %"
        apart = 100 * self.apart / self.given
        return f"{shown} ({apart:+.1f}; {100 * self.width / self.given:.0f}{without})"


def measured(row: Row, samples: int, seed: int) -> tuple[Tally, Tally, float]:
    """Return the tallies by the labels and by the truth behind them, and the bias of the judge's
    own score.
    """
    chance = np.random.default_rng([seed, zlib.crc32(row.name.encode())])
    before = Tally()
    now = Tally()
    alone = 0.0
    for _ in range(samples):
        labels, cases, votes = sample(chance, row)
        before.add(corrected_by_labels(cases, labels.pairs, {}), row.asked)
        now.add(corrected_score(cases, labels, {}, votes), row.asked)
        alone += sum(cases.points_given) / CASES - row.asked
    return before, now, alone / samples


def lines(samples: int, seed: int, text: str = "") -> Iterator[str]:
    yield "| each physician flips, items, the run's share | by labels | now | judge's own bias |"
    yield "|---|---|---|---|"
    for row in ROWS:
        if text not in row.name:
            continue
        before, now, alone = measured(row, samples, seed)
        cells = (row.name, before.text(samples), now.text(samples), f"{100 * alone:+.1f}")
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--resamples", type=int, default=latent_class.RESAMPLES)
    parser.add_argument("--rows", default="", help="only rows whose name contains this text")
    arguments = parser.parse_args()
    latent_class.RESAMPLES = arguments.resamples
    for line in lines(arguments.samples, arguments.seed, arguments.rows):
        print(line, flush=True)


if __name__ == "__main__":
    main()
