"""How far raters agree, people or judges: intraclass correlation, weighted kappa, Gwet's AC1. Pure.

Krippendorff's alpha is in `scoring/krippendorff_alpha.py`.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence


def icc_agreement(rows: Sequence[Sequence[float]]) -> float | None:
    """The intraclass correlation of single ratings, two-way random effects, absolute agreement: ICC(2,1).

    P. E. Shrout, J. L. Fleiss, Psychological Bulletin 86:420-428, 1979; ICC(A,1) of K. O. McGraw, S. P. Wong,
    Psychological Methods 1:30-46, 1996. With the mean squares of rows (things), columns (raters) and error:

        ICC = (MS_rows - MS_error) / (MS_rows + (k - 1) MS_error + k (MS_columns - MS_error) / n)

    Args:
        rows: of each thing the ratings of all raters, in the same order; none is missing.

    Returns:
        None with fewer than two things or raters, and where all ratings are equal.
    """
    count, raters = len(rows), len(rows[0]) if rows else 0
    if count < 2 or raters < 2:
        return None
    center = statistics.fmean(value for row in rows for value in row)
    row_means = [statistics.fmean(row) for row in rows]
    column_means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    of_rows = raters * sum((mean - center) ** 2 for mean in row_means)
    of_columns = count * sum((mean - center) ** 2 for mean in column_means)
    whole = sum((value - center) ** 2 for row in rows for value in row)
    rows_square, columns_square = of_rows / (count - 1), of_columns / (raters - 1)
    error_square = max(0.0, whole - of_rows - of_columns) / ((count - 1) * (raters - 1))
    below = rows_square + (raters - 1) * error_square + raters * (columns_square - error_square) / count
    return (rows_square - error_square) / below if below > 0 else None


def weighted_kappa(pairs: Collection[tuple[float, float]]) -> float | None:
    """Cohen's kappa of two raters with squared weights (J. Cohen, Psychological Bulletin 70:213-220, 1968).

    With x and y the two raters' ratings: 1 - mean((x - y)^2) / (the mean of (x - y)^2 over all pairs of an x with any
    y). On two values (met or not) it is Cohen's unweighted kappa.

    Returns:
        None where nothing was rated by both, and where all ratings are equal.
    """
    if not pairs:
        return None
    first, second = zip(*pairs, strict=True)
    observed = statistics.fmean((x - y) ** 2 for x, y in pairs)
    means = (statistics.fmean(first), statistics.fmean(second))
    expected = statistics.pvariance(first) + statistics.pvariance(second) + (means[0] - means[1]) ** 2
    return 1 - observed / expected if expected else None


def gwet_ac1(units: Collection[Collection[float]], categories: int) -> float | None:
    """Gwet's AC1 of any number of raters, some ratings of which may be missing.

    K. L. Gwet, British Journal of Mathematical and Statistical Psychology 61:29-48, 2008. With r_ik the raters who put
    thing i into category k, r_i all who rated it, q the number of categories and pi_k the mean of r_ik / r_i:

        p_a = mean over things with r_i > 1 of  sum of r_ik (r_ik - 1) / (r_i (r_i - 1))
        p_e = sum of pi_k (1 - pi_k) / (q - 1)
        AC1 = (p_a - p_e) / (1 - p_e)

    Args:
        units: of each thing the ratings that it was given.
        categories: that there are, used or not.

    Returns:
        None where nothing was rated twice, or there is only one category.
    """
    rated = [Counter(unit) for unit in units if unit]
    twice = [counts for counts in rated if counts.total() > 1]
    if not twice or categories < 2:
        return None
    agreement = statistics.fmean(
        sum(times * (times - 1) for times in counts.values()) / (counts.total() * (counts.total() - 1))
        for counts in twice
    )
    shares: Counter[float] = Counter()
    for counts in rated:
        for category, times in counts.items():
            shares[category] += times / counts.total() / len(rated)  # type: ignore[assignment]
    chance = sum(share * (1 - share) for share in shares.values()) / (categories - 1)
    return (agreement - chance) / (1 - chance)
