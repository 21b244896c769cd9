"""Formats numbers for readers. Each kind of number has a function, which decides its unit and
digits.

Numbers are rounded as by hand: from the shortest decimal text, with halves away from zero. The
screen, the pages and Markdown therefore show the number that a reader gets by rounding the number
in the JSON file: 2.96385 becomes 2.9639. (Python's own format rounds the binary number and gives
2.9638.) Zero never has a minus sign.

Scores have all their digits in the result documents (`report/documents.py`). Derived statistics,
such as the ends of an interval, have six significant digits there. They are therefore rounded to
six digits before they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal


def rounded(number: float, digits: int = 6) -> float:
    """Return a number rounded to significant digits: 0.001623436 with 4 digits is 0.001623.

    Result documents contain six digits of a figure that is derived from scores, because such a
    figure is an estimate. Unlike the other functions of this module, this one rounds as Python
    does.
    """
    return float(f"{number:.{digits}g}")


def round_half_up(value: float, exponent: int) -> float:
    """Return a number rounded to a multiple of 10 ** exponent.

    A number that is not finite, or too large to have this digit, is returned unchanged.

    Args:
        value: any number.
        exponent: -2 for hundredths, 0 for whole numbers.
    """
    number = Decimal(repr(float(value)))
    # A double has no more than 16 or 17 significant digits. If the first digit of the number is so
    # far above `exponent`, there is nothing to round.
    if not number.is_finite() or number.adjusted() - exponent > 15:
        return value
    # `+ 0.0` makes 0.0 of -0.0
    return float(number.quantize(Decimal(1).scaleb(exponent), ROUND_HALF_UP)) + 0.0


def decimals(value: float | None, digits: int, *, sign: str = "", missing: str = "") -> str:
    """Return a number with a fixed number of decimals.

    Args:
        value: the number; for None, `missing` is returned.
        digits: the number of decimals.
        sign: "+" also shows the sign of a positive number.
        missing: the text for a missing number.
    """
    if value is None:
        return missing
    return f"{round_half_up(value, -digits):{sign}.{digits}f}"


def significant(value: float | None, digits: int, *, sign: str = "", missing: str = "") -> str:
    """Return a number with a maximum number of significant digits, without zeros at the end.

    Args:
        value: the number; for None, `missing` is returned.
        digits: the number of significant digits.
        sign: "+" also shows the sign of a positive number.
        missing: the text for a missing number.
    """
    if value is None:
        return missing
    exponent = 0  # the power of ten of the first digit
    if value != 0 and math.isfinite(value):
        exponent = Decimal(repr(float(value))).adjusted()
    return f"{round_half_up(value, exponent - digits + 1):{sign}.{digits}g}"


def score(value: float | None, *, sign: str = "", missing: str = "") -> str:
    """Return a score, an interval's end, a floor or a difference with four decimals: 0.4120."""
    return decimals(value, 4, sign=sign, missing=missing)


def short(value: float | None, *, sign: str = "", missing: str = "") -> str:
    """Return a number with four significant digits, for sentences and narrow tables: 3.851."""
    return significant(value, 4, sign=sign, missing=missing)


def points(share: float, *, sign: str = "") -> str:
    """Return a share, or a difference of shares (from -1 to 1), in percentage points: 4.1."""
    return f"{round_half_up(share, -3) * 100:{sign}.1f}"


def percent(share: float | None, digits: int = 1, *, missing: str = "") -> str:
    """Return a share (from 0 to 1) in percent: 41.2 %."""
    if share is None:
        return missing
    return f"{round_half_up(share, -2 - digits) * 100:.{digits}f} %"


def coefficient(value: float | None, *, missing: str = "") -> str:
    """Return an agreement (alpha, kappa) or a win rate with three decimals: 0.412."""
    if value is None:
        return missing
    return decimals(rounded(value), 3)


def mean_rating(value: float | None, *, missing: str = "") -> str:
    """Return a mean of ratings, or a correlation, with two decimals: 3.42."""
    if value is None:
        return missing
    return decimals(rounded(value), 2)


def bias(value: float) -> str:
    """Return a mean difference of ratings with its sign and three decimals: +0.412."""
    return decimals(rounded(value), 3, sign="+")


def p_value(value: float | None, *, missing: str = "") -> str:
    """Return a p value with two significant digits: 0.034, < 0.0001."""
    if value is None:
        return missing
    if value < 0.0001:
        return "< 0.0001"
    return significant(rounded(value), 2)


def between(
    low: float | None, high: float | None, separator: str = " .. ", *, missing: str = ""
) -> str:
    """Return the interval of a score: 0.3012 .. 0.5230."""
    if low is None or high is None:
        return missing
    return f"{score(rounded(low))}{separator}{score(rounded(high))}"


def money(dollars: float) -> str:
    """Return an amount of US dollars: 12.34 USD; below one dollar with four digits: 0.01234 USD."""
    shown = f"{round_half_up(dollars, -2):,.2f}" if dollars >= 1 else significant(dollars, 4)
    return f"{shown} USD"


def seconds(value: float | None, *, missing: str = "") -> str:
    """Return a measured time with three significant digits: 0.512 s."""
    if value is None:
        return missing
    return f"{significant(value, 3)} s"


def hours(value: float) -> str:
    """Return an estimated number of hours: 1.5 h, 30.0 min."""
    if value >= 1:
        return f"{decimals(value, 1)} h"
    return f"{decimals(value * 60, 1)} min"


def megabytes(value: float) -> str:
    """Return a size: 1.5 MB, 1,234 MB."""
    if value < 10:
        return f"{decimals(value, 1)} MB"
    return f"{count(round_half_up(value, exponent=0))} MB"


def rate(per_second: float) -> str:
    """Return a rate per second: 12.3/s."""
    return f"{decimals(per_second, 1)}/s"


def count(number: float | None, *, missing: str = "") -> str:
    """Return a whole number in groups of three digits: 12,345."""
    if number is None:
        return missing
    return f"{number:,.0f}"


def counted(number: int, word: str, plural: str | None = None) -> str:
    """Return a number with its noun: 1 instance, 1,200 instances.

    Args:
        number: the number.
        word: the noun.
        plural: the plural of the noun; None: the noun with an "s".
    """
    noun = word
    if number != 1:
        noun = plural or f"{word}s"
    return f"{number:,} {noun}"


def first_of(names: Sequence[str], limit: int) -> str:
    """Return the first names, and the number of further names: a, b and 3 more."""
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
