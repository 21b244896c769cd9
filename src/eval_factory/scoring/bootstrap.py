"""Intervals of scores that are no mean of instances' values, by resampling instances. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from eval_factory.scoring.intervals import CONFIDENCE, NO_INTERVAL, Interval, effective_clusters

BCA = "bca-bootstrap"
SEED, RESAMPLES = 20_240_607, 2_000
FEWEST = 5
"""Independent units (effective clusters) below which resampling says nothing."""


def bca_of_ratio(
    numerators: Sequence[float], denominators: Sequence[float], clusters: Sequence[Hashable] | None = None
) -> Interval:
    """The 95 % BCa interval of sum(numerators) / sum(denominators) (B. Efron, JASA 82:171-185, 1987).

    So are precision and recall made of counts, and every metric of HELM's that counts some instances more than once.
    The resampling is `scipy.stats.bootstrap`'s, and its seed is fixed: the same values give the same interval. Clusters
    are drawn whole.

    Args:
        numerators, denominators: of each instance.
        clusters: of each instance the source that it shares with others; None where none is known.

    Nothing where there are fewer than five instances or effective clusters, and where all resamples are equal.
    """
    units = _by_cluster(numerators, denominators, clusters)
    if (len(units) if clusters is None else effective_clusters(clusters)) < FEWEST:
        return NO_INTERVAL
    above, below = zip(*units, strict=True)
    ratios = {one / other for one, other in units if other}
    if len(ratios) < 2:
        return NO_INTERVAL
    low, high = _bca(above, below)
    if not (math.isfinite(low) and math.isfinite(high)):
        return NO_INTERVAL
    return Interval(low, high, BCA if clusters is None else f"{BCA}-clustered")


def _by_cluster(
    numerators: Sequence[float], denominators: Sequence[float], clusters: Sequence[Hashable] | None
) -> list[tuple[float, float]]:
    if clusters is None:
        return list(zip(numerators, denominators, strict=True))
    sums: dict[Hashable, tuple[float, float]] = {}
    for above, below, cluster in zip(numerators, denominators, clusters, strict=True):
        known = sums.get(cluster, (0.0, 0.0))
        sums[cluster] = known[0] + above, known[1] + below
    return list(sums.values())


def _bca(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    import numpy as np  # imported here: few scores are no mean, and SciPy's statistics take half a second
    from scipy import stats

    def ratio(one: Any, other: Any, axis: int = -1) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sum(one, axis=axis) / np.sum(other, axis=axis)

    with np.errstate(invalid="ignore", divide="ignore"):
        found = stats.bootstrap(
            (np.asarray(above, float), np.asarray(below, float)), ratio, paired=True, vectorized=True, method="BCa",
            confidence_level=CONFIDENCE, n_resamples=RESAMPLES, rng=np.random.default_rng(SEED),
        ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)
