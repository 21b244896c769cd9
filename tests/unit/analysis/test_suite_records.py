"""What the records of a suite say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.analysis.suite_records import CellResult


def test_a_cell_is_called_by_target_and_evaluation() -> None:
    assert CellResult("small", "medec_hot", "missing", Path("x")).name == "small/medec_hot"


@pytest.mark.parametrize(
    ("value", "reportable", "enters"),
    [(0.0, True, True), (0.5, False, False), (None, True, False), (None, False, False)],
)
def test_a_reportable_value_alone_enters_win_rates(value: float | None, reportable: bool, enters: bool) -> None:
    one = CellResult("a", "x", "complete", Path("x"), value=value, reportable=reportable)
    assert one.enters_win_rates is enters
