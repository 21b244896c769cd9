"""Krippendorff's alpha of ordinal ratings, of which some may be missing. Pure.

K. Krippendorff, Content Analysis (2nd edition, 2004), chapter 11; the same, step by step, in his Computing
Krippendorff's Alpha-Reliability (2011, repository.upenn.edu/asc_papers/43). With n_uc the times that unit u was given
the rating c, m_u the ratings of u, and only the units with m_u of 2 or more ("pairable"):

    o_ck  = sum over u of n_uc n_uk / (m_u - 1)                              coincidences of c and k, for c < k
    n_c   = sum over u of n_uc,   n = sum of n_c
    d_ck  = n_c / 2 + (sum of n_g for the ratings g between c and k) + n_k / 2          ordinal difference
    alpha = 1 - (n - 1) (sum of o_ck d_ck^2 for c < k) / (sum of n_c n_k d_ck^2 for c < k)

Everything up to the last division is computed with whole numbers and fractions, so that the result does not depend on
the order of units or raters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from itertools import combinations

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
