"""How far raters agree: Krippendorff's alpha, intraclass correlation, weighted kappa, Gwet's AC1. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

from eval_factory.core.clinician_results import Agreement

Pair = tuple[int, int]
"""Two different ratings, the lower first."""


def ordinal_alpha(units: Iterable[Collection[int]]) -> float | None:
    """How far raters agree: 1 in everything, 0 as by chance, below 0 less than that.

    Args:
        units: of each thing that was rated, the ratings that it was given; a missing one is left out.

    Returns:
        None where alpha is not defined: no unit has two ratings, or those that have were all given the same rating.
    """
    counts = Counter(tuple(sorted(ratings)) for ratings in units if len(ratings) > 1)
    frequencies: Counter[int] = Counter()
    for ratings, times in counts.items():
        for rating in ratings:
            frequencies[rating] += times
    differences = _differences(frequencies)
    expected = sum(frequencies[low] * frequencies[high] * square for (low, high), square in differences.items())
    if not expected:
        return None
    observed = sum(
        (coincidences * differences[pair] for pair, coincidences in _coincidences(counts).items()), Fraction(0)
    )
    return float(1 - (frequencies.total() - 1) * observed / expected)


def _differences(frequencies: Mapping[int, int]) -> dict[Pair, Fraction]:
    """Pair of ratings -> the square of their ordinal difference: how many ratings lie from one to the other."""
    return {
        (low, high): Fraction(
            2 * sum(count for rating, count in frequencies.items() if low < rating < high)
            + frequencies[low]
            + frequencies[high],
            2,
        )
        ** 2
        for low, high in combinations(sorted(frequencies), 2)
    }


def _coincidences(counts: Mapping[tuple[int, ...], int]) -> dict[Pair, Fraction]:
    """Pair of ratings -> how often they met in a unit, where a unit of m ratings weighs as m of them, not as pairs.

    Args:
        counts: sorted ratings of a unit -> in how many units.
    """
    found: dict[Pair, Fraction] = {}
    for ratings, times in counts.items():
        for low, high in combinations(ratings, 2):
            if low != high:
                found[low, high] = found.get((low, high), Fraction(0)) + Fraction(times, len(ratings) - 1)
    return found


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


Unit = Mapping[str, float]
"""Of one question about one answer: rater -> rating."""


def agreement_among(units: Sequence[Unit], scale: Sequence[float]) -> Agreement:
    """Of raters who did not all rate everything.

    Args:
        scale: the ratings that there are, the least first.
    """
    twice = [unit for unit in units if len(unit) > 1]
    raters = sorted({rater for unit in twice for rater in unit})
    whole = [[unit[rater] for rater in raters] for unit in twice if len(unit) == len(raters)]
    places = [[place_of(value, scale) for value in unit.values()] for unit in twice]
    kappas = [
        weighted_kappa([(unit[one], unit[other]) for unit in twice if one in unit and other in unit])
        for one, other in combinations(raters, 2)
    ]
    known = [kappa for kappa in kappas if kappa is not None]
    return Agreement(
        n=len(twice),
        alpha=ordinal_alpha(places),
        icc=icc_agreement(whole),
        weighted_kappa=statistics.fmean(known) if known else None,
        ac1=gwet_ac1(places, len(scale)),
    )


def agreement_with(marks: Sequence[tuple[float, Sequence[float]]], scale: Sequence[float]) -> Agreement:
    """Of a judge with the raters' mean; with their majority where the scale has two ends and nothing between.

    Args:
        marks: of each question about an answer the judge's mark and the people's ratings.
    """
    pairs = [(mark, said) for mark, ratings in marks if (said := consensus(ratings, scale)) is not None]
    places = [(place_of(mark, scale), place_of(said, scale)) for mark, said in pairs]
    return Agreement(
        n=len(pairs),
        alpha=ordinal_alpha(places),
        icc=icc_agreement(pairs),
        weighted_kappa=weighted_kappa(pairs),
        ac1=gwet_ac1(places, len(scale)),
    )


def consensus(ratings: Sequence[float], scale: Sequence[float]) -> float | None:
    """The mean; of two ratings the one that most gave, None where as many gave the other."""
    mean = statistics.fmean(ratings)
    if len(scale) > 2:
        return mean
    low, high = scale
    middle = (low + high) / 2
    return None if mean == middle else high if mean > middle else low


def place_of(value: float, scale: Sequence[float]) -> int:
    """The number of the rating that is nearest, from 0; of two that are as near, the lower one's."""
    return min(range(len(scale)), key=lambda place: abs(scale[place] - value))
