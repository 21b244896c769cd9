"""Our win rates are those of HELM's own function, to the last digit."""

from __future__ import annotations

from helm.benchmark.presentation.summarize import compute_aggregate_row_win_rates
from helm.benchmark.presentation.table import Cell, HeaderCell, Table
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.analysis.win_rates import Column, win_rates

VALUES = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-10, 10))


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[tuple[bool | None, list[float | None]]]]:
    models = draw(st.integers(1, 6))
    column = st.tuples(st.sampled_from([True, False, None]), st.lists(VALUES, min_size=models, max_size=models))
    return models, draw(st.lists(column, min_size=1, max_size=6))


@given(tables())
def test_the_mean_win_rate_is_helms(table: tuple[int, list[tuple[bool | None, list[float | None]]]]) -> None:
    count, columns = table
    models = [f"model {number}" for number in range(count)]
    helms = Table(
        "",
        [HeaderCell("", lower_is_better=lower) for lower, _ in columns],
        [[Cell(values[row]) for _, values in columns] for row in range(count)],
    )
    ours = [
        Column("", {model: value for model, value in zip(models, values, strict=True) if value is not None}, lower)
        for lower, values in columns
    ]
    assert [one.win_rate for one in win_rates(models, ours, tested=False)] == compute_aggregate_row_win_rates(helms)
