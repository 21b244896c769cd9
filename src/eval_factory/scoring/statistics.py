"""Pure statistics of instances' values. Formulas are SciPy's; this module only chooses among them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from eval_factory.core.results import Stats

CONFIDENCE = 0.95
PROPORTION = (0.0, 1.0)
WILSON, STUDENT_T = "wilson", "student-t"


def describe(values: Sequence[float], mean: float | None = None, scale: tuple[float, float] | None = None) -> Stats:
    """Mean, sample standard deviation, standard error and a 95 % confidence interval.

    Args:
        values: one value per instance, at least one.
        mean: the mean to report, where it was computed elsewhere (HELM's, to the last digit).
        scale: the least and the greatest value that there can be. Where none is given it is 0 to 1 if all values lie
            in it, and without ends if not.

    Values that are all 0 or 1, on a scale from 0 to 1, get the Wilson score interval (E. B. Wilson, JASA 22:209-212,
    1927), others Student's t interval of the mean, cut off at the ends of the scale. One value alone has no interval.
    """
    from scipy import stats  # imported here: it takes most of a second, and `ls` needs none of it

    count = len(values)
    center = statistics.fmean(values) if mean is None else mean
    if count < 2:
        return Stats(count, center, None, None, None, None, None)
    stddev = statistics.stdev(values)
    stderr = stddev / math.sqrt(count)
    scale = scale or (PROPORTION if all(0 <= value <= 1 for value in values) else None)
    if scale == PROPORTION and all(value in scale for value in values):
        interval = stats.binomtest(int(sum(values)), count).proportion_ci(CONFIDENCE, method="wilson")
        return Stats(count, center, stddev, stderr, float(interval.low), float(interval.high), WILSON)
    if stderr == 0:
        return Stats(count, center, stddev, stderr, center, center, STUDENT_T)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * stderr
    low, high = scale or (-math.inf, math.inf)
    return Stats(count, center, stddev, stderr, max(low, center - half), min(high, center + half), STUDENT_T)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile: one of the values; None of nothing."""
    import numpy as np  # imported here as scipy is

    return float(np.quantile(values, share, method="inverted_cdf")) if values else None
