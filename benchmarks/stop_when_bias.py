#!/usr/bin/env python3
"""Measures how much the score is too high if `stop_when: beats_floor` stops a run early.

The table is in benchmarks/README.md, Scores where a run stops early.

    python benchmarks/stop_when_bias.py [--samples 20000]

The floor (the best score without a model) is 0.55. At most 1,000 instances are asked. The score of
a run that stops early is too high on average, because such a run stops when its score happens to be
high.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from eval_factory.scoring.sequential import look_sizes_up_to

FLOOR = 0.55
MAX_INSTANCES = 1_000
TRUTHS = (0.58, 0.60, 0.62, 0.65, 0.70, 0.80)  # the true scores of the table


def stopped_scores(truth: float, samples: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the score of each run when it ends, and True for each run that stopped early."""
    looks = look_sizes_up_to(50, MAX_INSTANCES)
    each_side = 0.05 / len(looks) / 2  # The looks share the error of 5 %.
    # the number of right answers after each instance, in the shape (samples, instances)
    right = (np.random.default_rng(3).random((samples, MAX_INSTANCES)) < truth).cumsum(axis=1)
    scores = right[:, -1] / MAX_INSTANCES
    stopped = np.zeros(samples, dtype=bool)
    for size in looks[:-1]:
        counts = right[:, size - 1]
        low = beta.ppf(each_side, counts, size - counts + 1)  # the limit of Clopper and Pearson
        stops = ~stopped & (low > FLOOR)
        scores[stops] = counts[stops] / size
        stopped |= stops
    return scores, stopped


def main() -> None:
    """Print a row for each true score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=20_000)
    samples = parser.parse_args().samples
    print("| true score | stopped early | too high then | of all runs |\n|---|---|---|---|")
    for truth in TRUTHS:
        scores, stopped = stopped_scores(truth, samples)
        of_all = 100 * (scores.mean() - truth)
        of_stopped = 100 * (scores[stopped].mean() - truth)
        print(f"| {truth:.2f} | {stopped.mean():.1%} | {of_stopped:+.1f} | {of_all:+.1f} |")


if __name__ == "__main__":
    main()
