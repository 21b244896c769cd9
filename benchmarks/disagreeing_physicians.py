#!/usr/bin/env python3
"""Measures how often the interval of a corrected score contains the truth if physicians disagree.

The table is in docs/trust-a-judge.md.

    python benchmarks/disagreeing_physicians.py [--samples 2000] [--resamples 1000] [--rows TEXT]

A judge decides about criteria, and physicians labelled some items (an answer with a criterion). The
run has 100 cases of 10 criteria; the share of met criteria differs between cases, with a beta
distribution. The judge has a sensitivity and a specificity of 0.9. Each item has the labels of two
physicians; a physician's label is wrong with the probability of the row's first column. 70 % of the
labelled items are met, unless the row states another share.

The column `by labels` is the interval of passports of the first version, which take the labels for
the truth. Some rows say more:

- `hard items`: on a fifth of the items, the judge and the physicians err together with this
  probability. No method here takes this into account.
- `of labels`: with one physician for each item, the interval should contain the share of criteria
  that such a physician would call met, and not the true share.
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
CORRELATION = 0.1  # the intra-class correlation within a case, or within a conversation
MIN_HELD = 0.92  # A lower coverage is printed in bold.
HARD = 0.2  # the share of hard items


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    flips: float  # the probability that a physician's label is wrong
    items: int  # the number of labelled items
    run: float  # the share of the run's criteria that are met
    labels: float = 0.7  # the share of the labelled items that are met
    conversation: int = 1  # the number of labelled items from each conversation
    together: float = 0.0  # the probability that judge and physicians err together on a hard item
    physicians: int = 2  # the number of physicians for each item
    # True if the interval should contain the share that a physician calls met, not the true share
    of_labels: bool = False

    @property
    def truth(self) -> float:
        """The share that the interval should contain."""
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
            words += f", of labels {self.truth:.2f}"
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
    """Draw the share of met criteria of each case or conversation, with the mean `share`."""
    weight = 1 / CORRELATION - 1
    return chance.beta(share * weight, (1 - share) * weight, count)


def _decisions(chance: Chance, truth: npt.NDArray[np.bool_], right: float) -> npt.NDArray[np.bool_]:
    """Draw a decision about each item, which is right with the probability `right`."""
    return np.where(chance.random(truth.shape) < right, truth, ~truth)


def sample(chance: Chance, row: Row) -> tuple[Labels, CasePoints, list[tuple[float, int]]]:
    """Draw the labels of a passport, and the judge's decisions in a run.

    Returns:
        The labels; the points of the run's cases; and (decision, number of the case) for each
        criterion of the run.
    """
    conversations = row.items // row.conversation
    share: Values = np.full(conversations, row.labels)
    if row.conversation > 1:
        share = _shares(chance, row.labels, conversations)
    conversation = np.repeat(np.arange(conversations), row.conversation)
    truth = chance.random(len(conversation)) < share[conversation]
    misleads = (chance.random(len(truth)) < HARD) & (chance.random(len(truth)) < row.together)
    apparent_truth = truth ^ misleads  # the truth as it appears to the judge and the physicians
    judged = _decisions(chance, apparent_truth, 0.9)
    labels = [_decisions(chance, apparent_truth, 1 - row.flips) for _ in range(row.physicians)]
    # the run
    case = np.repeat(np.arange(CASES), CRITERIA)
    met = chance.random(len(case)) < _shares(chance, row.run, CASES)[case]
    misleads = (chance.random(len(met)) < HARD) & (chance.random(len(met)) < row.together)
    decided = _decisions(chance, met ^ misleads, 0.9).astype(float)
    points_given = decided.reshape(CASES, CRITERIA).mean(axis=1)
    # Items of one conversation with the same decisions are counted together.
    met_labels = np.sum(labels, axis=0).tolist()
    counts = Counter(zip(conversation.tolist(), judged.tolist(), met_labels, strict=True))
    items = [
        LabelledItems(
            conversation=number,
            category=None,
            judged=bool(decision),
            labels=row.physicians,
            met=int(met_count),
            items=count,
        )
        for (number, decision, met_count), count in counts.items()
    ]
    points = CasePoints(
        points_given=points_given.tolist(),
        points_if_all_met=[1.0] * CASES,
        clusters=list(range(CASES)),
        lowest=0.0,
    )
    votes = list(zip(decided.tolist(), case.tolist(), strict=True))
    return Labels(_pairs(items), items), points, votes


def _pairs(items: list[LabelledItems]) -> list[LabelledPairs]:
    """Return the labels as pairs of a judge's and a physician's decision."""
    pairs = []
    for same_items in items:
        met = same_items.met * same_items.items
        not_met = (same_items.labels - same_items.met) * same_items.items
        counts = (met, not_met, 0, 0)
        if not same_items.judged:
            counts = (0, 0, met, not_met)
        pairs.append(LabelledPairs(same_items.conversation, None, counts))
    return pairs


@dataclass
class Tally:
    """The sums over the corrected scores of many samples."""

    held: int = 0  # the number of intervals that contain the truth
    given: int = 0  # the number of samples with a corrected score
    apart: float = 0.0  # the sum of the differences between the corrected score and the truth
    width: float = 0.0  # the sum of the widths of the intervals

    def add(self, corrected: object, truth: float) -> None:
        """Add a corrected score; any other object counts as a sample without one."""
        if isinstance(corrected, JudgeCorrectedScore):
            self.given += 1
            if corrected.ci_low <= truth <= corrected.ci_high:
                self.held += 1
            self.apart += corrected.value - truth
            self.width += corrected.ci_high - corrected.ci_low

    def text(self, samples: int) -> str:
        """Return a cell: the coverage (mean error; mean width), in per cent."""
        if not self.given:
            return "none"
        share = self.held / self.given
        held = f"{100 * share:.1f}"
        if share < MIN_HELD:
            held = f"**{held}**"
        without = ""
        if self.given < samples:
            without = f", none {100 * (1 - self.given / samples):.0f} %"
        apart = 100 * self.apart / self.given
        return f"{held} ({apart:+.1f}; {100 * self.width / self.given:.0f}{without})"


def measured(row: Row, samples: int, seed: int) -> tuple[Tally, Tally, float]:
    """Draw samples of a row, and correct their scores in two ways.

    Returns:
        The tally of scores corrected by the labels; the tally of scores corrected by the estimated
        truth behind the labels; and the mean error of the judge's own scores.
    """
    chance = np.random.default_rng([seed, zlib.crc32(row.name.encode())])
    before = Tally()
    now = Tally()
    bias_sum = 0.0
    for _ in range(samples):
        labels, cases, votes = sample(chance, row)
        before.add(corrected_by_labels(cases, labels.pairs, {}), row.truth)
        now.add(corrected_score(cases, labels, {}, votes), row.truth)
        bias_sum += sum(cases.points_given) / CASES - row.truth
    return before, now, bias_sum / samples


def lines(samples: int, seed: int, text: str = "") -> Iterator[str]:
    """Yield the lines of the table; `text` is a part of the names of the shown rows."""
    yield "| each physician flips, items, the run's share | by labels | now | judge's own bias |"
    yield "|---|---|---|---|"
    for row in ROWS:
        if text not in row.name:
            continue
        before, now, bias = measured(row, samples, seed)
        cells = (row.name, before.text(samples), now.text(samples), f"{100 * bias:+.1f}")
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
