#!/usr/bin/env python3
"""Measures how often `compare` shows a difference of few sources: the table of
benchmarks/README.md.

    python benchmarks/few_sources.py [--samples 2000] [--seed 7]

0/1 values of two models on the same instances, of 30 sources at most.
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
"""Sources, instances of each, the share that each model has right."""


SIGNS = cache(paired._signs)  # noqa: SLF001 - drawn anew for each sample it takes long


def drawn(
    chance: np.random.Generator, sources: int, size: int, before: float, after: float
) -> PairedDifference:
    count = sources * size
    names = [str(number // size) for number in range(count)]
    a = (chance.random(count) < before).astype(float).tolist()
    b = (chance.random(count) < after).astype(float).tolist()
    # these take long, and neither interval nor p value follows from the first
    with patch.object(paired, "mean_mde", return_value=None), patch.object(paired, "_signs", SIGNS):
        return paired_difference(a, b, clusters=names)


def lines(samples: int, seed: int) -> Iterator[str]:
    yield "| sources, of each, right | p < .05 | shown | holds the difference | half-width |"
    yield "|---|---|---|---|---|"
    for sources, size, before, after in ROWS:
        chance = np.random.default_rng([seed, sources, size, int(100 * after)])
        rows = []
        for _ in range(samples):
            found = drawn(chance, sources, size, before, after)
            if found.ci_low is None or found.ci_high is None or found.p_value is None:
                continue
            held = found.ci_low <= after - before <= found.ci_high
            half = (found.ci_high - found.ci_low) / 2
            rows.append((found.p_value < 0.05, found.is_significant, held, half))
        shares = np.mean(np.array(rows, float), axis=0)
        cells = [f"{100 * share:.1f}" for share in shares[:3]]
        name = f"{sources} of {size}, {before} and {after}"
        yield f"| {name} | {' | '.join(cells)} | {shares[3]:.3f} |"


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
