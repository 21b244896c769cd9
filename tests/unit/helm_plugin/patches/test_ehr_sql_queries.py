"""A query as it is written -> as the benchmark's own evaluation executes it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from eval_factory.helm_plugin.patches.executed_queries import as_evaluated


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select 1 from t where a = 'b'", "select 1 from t where a = 'b'"),
        ("select datetime(current_time)", "select datetime('2105-12-31 23:59:00')"),
        (
            "SELECT CURRENT_TIME, current_time",
            "SELECT '2105-12-31 23:59:00', '2105-12-31 23:59:00'",
        ),
        ("select current_timestamp, my_current_time", "select current_timestamp, my_current_time"),
        (
            "select strftime('%j', x) - strftime('%j', y)",
            "select strftime('%J', x) - strftime('%J', y)",
        ),
        ("select strftime('%m-%d', x)", "select strftime('%m-%d', x)"),
        *(
            (f"a between {of}_lower and {of}_upper", f"a between {lower} and {upper}")
            for of, lower, upper in (
                ("temperature", 35.5, 38.1),
                ("sao2", 95.0, 100.0),
                ("heart_rate", 60.0, 100.0),
                ("respiration", 12.0, 18.0),
                ("systolic_bp", 90.0, 120.0),
                ("diastolic_bp", 60.0, 90.0),
            )
        ),
        ("a between mean_bp_lower and Mean_BP_Upper", "a between 60.0 and 110.0"),
        ("a > my_sao2_lower and a < sao2_lowers", "a > my_sao2_lower and a < sao2_lowers"),
        ("", ""),
    ],
)
def test_time_days_and_bounds_are_filled_in(query: str, expected: str) -> None:
    assert as_evaluated(query) == expected


def test_the_days_between_two_dates_of_two_years_are_right() -> None:
    query = "select strftime('%j', current_time) - strftime('%j', '2104-12-31 23:59:00')"
    with closing(sqlite3.connect(":memory:")) as connection:
        assert connection.execute(as_evaluated(query)).fetchone() == (365.0,)
