#!/usr/bin/env python3
"""Measures how often `compare` shows a difference if the instances have few sources.

The table is in benchmarks/README.md.

    python benchmarks/few_sources.py [--samples 2000] [--seed 7]

The values are 0/1 values of two models on the same instances. The instances come from at most 30
sources, such as notes or patients.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import numpy as np

from eval_factory.scoring import paired
from eval_factory.scoring.paired import PairedDifference, paired_difference

ROWS = (
    (20, 20, 0.5, 0.6),
    (30, 10, 0.5, 0.6),
    (20, 5, 0.5, 0.6),
    (20, 20, 0.5, 0.5),
    (20, 5, 0.97, 0.97),
)
"""For each row: the number of sources, the number of instances from each source, and the share of
right answers of each model.
"""


# The random signs of the test are drawn once: drawing them for each sample would take long.
SIGNS = cache(paired._signs)  # noqa: SLF001


def drawn(
    chance: np.random.Generator, sources: int, size: int, before: float, after: float
) -> PairedDifference:
    """Draw the values of both models, and return their difference as `compare` computes it.

    Args:
        chance: a generator of random numbers.
        sources: the number of sources.
        size: the number of instances from each source.
        before: the share of right answers of the first model.
        after: the share of right answers of the second model.
    """
    count = sources * size
    names = [str(number // size) for number in range(count)]
    a = (chance.random(count) < before).astype(float).tolist()
    b = (chance.random(count) < after).astype(float).tolist()
    # Replace two slow functions. Intervals and p values do not depend on the smallest detectable
    # difference (`mean_mde`).
    with patch.object(paired, "mean_mde", return_value=None), patch.object(paired, "_signs", SIGNS):
        return paired_difference(a, b, clusters=names)


def lines(samples: int, seed: int) -> Iterator[str]:
    """Yield the lines of the table in benchmarks/README.md."""
    yield "| sources, of each, right | p < .05 | shown | holds the difference | half-width |"
    yield "|---|---|---|---|---|"
    for sources, size, before, after in ROWS:
        chance = np.random.default_rng([seed, sources, size, int(100 * after)])
        rows = []
        for _ in range(samples):
            difference = drawn(chance, sources, size, before, after)
            low = difference.ci_low
            high = difference.ci_high
            if low is None or high is None or difference.p_value is None:
                continue
            is_held = low <= after - before <= high
            half_width = (high - low) / 2
            rows.append((difference.p_value < 0.05, difference.is_significant, is_held, half_width))
        *shares, half_width = np.mean(np.array(rows, float), axis=0)
        cells = [f"{100 * share:.1f}" for share in shares]
        name = f"{sources} of {size}, {before} and {after}"
        yield f"| {name} | {' | '.join(cells)} | {half_width:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    for line in lines(arguments.samples, arguments.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
