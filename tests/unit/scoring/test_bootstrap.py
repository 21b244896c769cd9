"""BCa intervals of ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from eval_factory.scoring.bootstrap import RESAMPLES, SEED, bca_of_ratio
from eval_factory.scoring.intervals import NO_INTERVAL

SUMS, COUNTS = [2.0, 0.0, 3.0, 1.0, 4.0, 0.0, 1.0, 2.0], [3, 1, 3, 4, 4, 2, 1, 5]


def test_it_is_scipys_with_a_fixed_seed() -> None:
    def ratio(one: Any, other: Any) -> float:
        return float(one.sum() / other.sum())

    expected = stats.bootstrap(
        (SUMS, COUNTS), ratio, paired=True, vectorized=False, method="BCa", n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    found = bca_of_ratio(SUMS, COUNTS)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.method == "bca-bootstrap"
    assert found == bca_of_ratio(SUMS, COUNTS)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 13 / 23 < found.high


def test_clusters_are_drawn_whole() -> None:
    repeated = [value for value in SUMS for _ in range(3)], [count for count in COUNTS for _ in range(3)]
    labels = [number // 3 for number in range(24)]
    clustered, alone = bca_of_ratio(*repeated, labels), bca_of_ratio(SUMS, COUNTS)
    assert (clustered.low, clustered.high) == pytest.approx((alone.low, alone.high))
    assert clustered.method == "bca-bootstrap-clustered"


@pytest.mark.parametrize(
    ("sums", "counts"),
    [(SUMS[:4], COUNTS[:4]), ([1.0] * 6, [2] * 6), ([0.0] * 6, [0] * 6), ([1.0] * 5 + [0.0], [1] * 5 + [0])],
)
def test_what_resampling_cannot_tell(sums: list[float], counts: list[int]) -> None:
    assert bca_of_ratio(sums, counts) == NO_INTERVAL


def test_few_clusters_say_nothing() -> None:
    assert bca_of_ratio(SUMS, COUNTS, "aabbccdd") == NO_INTERVAL
    assert bca_of_ratio(SUMS, COUNTS, "aaabcdef") == NO_INTERVAL  # 64 / 14 effective ones
    assert bca_of_ratio(SUMS, COUNTS, "aabcdefg") != NO_INTERVAL


def test_resamples_without_a_denominator_give_no_interval() -> None:
    assert bca_of_ratio([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [1, 0, 0, 0, 2, 0]) == NO_INTERVAL
