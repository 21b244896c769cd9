from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.core import formats

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        # Python's own format says 2.9638 and 0.0312
        (formats.score(2.96385), "2.9639"),
        (formats.score(0.03125), "0.0313"),
        (formats.score(-0.00004), "0.0000"),
        (formats.score(None, missing="-"), "-"),
        (formats.score(0.00005, sign="+"), "+0.0001"),
        (formats.score(0.0, sign="+"), "+0.0000"),
        (formats.short(0.12345), "0.1235"),
        (formats.short(12345.5), "1.235e+04"),
        (formats.short(0.0), "0"),
        (formats.short(99999), "1e+05"),
        (formats.short(-0.98765, sign="+"), "-0.9877"),
        (formats.points(0.1225), "12.3"),
        (formats.points(-0.0411, sign="+"), "-4.1"),
        (formats.points(0.0411, sign="+"), "+4.1"),
        (formats.percent(0.1225), "12.3 %"),
        (formats.percent(0.125, 0), "13 %"),
        (formats.percent(1.0), "100.0 %"),
        (formats.percent(None, missing="-"), "-"),
        (formats.coefficient(0.41250000001), "0.413"),
        (formats.mean_rating(3.425), "3.43"),
        (formats.p_value(0.00009), "< 0.0001"),
        (formats.p_value(0.0001), "0.0001"),
        (formats.p_value(0.04567), "0.046"),
        (formats.p_value(None, missing="-"), "-"),
        (formats.between(0.1, 0.2), "0.1000 .. 0.2000"),
        (formats.between(0.1, 0.2, " to "), "0.1000 to 0.2000"),
        (formats.between(0.1, None, missing="-"), "-"),
        (formats.money(0.0), "0 USD"),
        (formats.money(0.012345), "0.01235 USD"),
        (formats.money(1234.5), "1,234.50 USD"),
        (formats.seconds(0.51249), "0.512 s"),
        (formats.hours(1.25), "1.3 h"),
        (formats.hours(0.5), "30.0 min"),
        (formats.rate(12.25), "12.3/s"),
        (formats.count(1234567), "1,234,567"),
        (formats.count(1234.6), "1,235"),
        (formats.counted(1, "instance"), "1 instance"),
        (formats.counted(1200, "instance"), "1,200 instances"),
        (formats.counted(2, "criterion", "criteria"), "2 criteria"),
        (formats.score(float("nan")), "nan"),
        (formats.score(float("inf")), "inf"),
        (formats.short(float("-inf")), "-inf"),
    ],
)
def test_each_kind_of_number_has_its_digits(shown: str, expected: str) -> None:
    assert shown == expected


@given(NUMBERS)
def test_text_is_what_a_reader_of_the_json_rounds_to(value: float) -> None:
    read = Decimal(json.dumps(value)).quantize(Decimal("0.0001"), ROUND_HALF_UP)
    assert formats.score(value) == f"{read + 0:.4f}"


@given(NUMBERS, NUMBERS)
def test_an_interval_is_shown_alike_before_and_after_it_was_written(
    low: float, high: float
) -> None:
    assert formats.between(low, high) == formats.between(
        formats.rounded(low), formats.rounded(high)
    )
