"""Our win rates are those of HELM's own function, to the last digit; metric groups are its classic leaderboard's."""

from __future__ import annotations

from importlib import resources
from itertools import chain
from typing import Any

from helm.benchmark.augmentations.perturbation_description import PERTURBATION_WORST
from helm.benchmark.presentation.summarize import compute_aggregate_row_win_rates
from helm.benchmark.presentation.table import Cell, HeaderCell, Table
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.analysis.win_rates import (
    _WORST,
    ACCURACY,
    EFFICIENCY,
    GROUPS,
    LeaderboardColumn,
    win_rates,
)
from eval_factory.core.plain_yaml import parse_own_text

VALUES = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-10, 10))


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[tuple[bool | None, list[float | None]]]]:
    models = draw(st.integers(1, 6))
    column = st.tuples(
        st.sampled_from([True, False, None]), st.lists(VALUES, min_size=models, max_size=models)
    )
    return models, draw(st.lists(column, min_size=1, max_size=6))


@given(tables())
def test_the_mean_win_rate_is_helms(
    table: tuple[int, list[tuple[bool | None, list[float | None]]]],
) -> None:
    count, columns = table
    models = [f"model {number}" for number in range(count)]
    helms = Table(
        "",
        [HeaderCell("", lower_is_better=lower) for lower, _ in columns],
        [[Cell(values[row]) for _, values in columns] for row in range(count)],
    )
    ours = [
        LeaderboardColumn(
            "",
            {
                model: value
                for model, value in zip(models, values, strict=True)
                if value is not None
            },
            lower,
        )
        for lower, values in columns
    ]
    assert [
        one.win_rate for one in win_rates(models, ours, with_ranks=False)
    ] == compute_aggregate_row_win_rates(helms)


def schema(name: str) -> dict[str, Any]:
    read: dict[str, Any] = parse_own_text(
        (resources.files("helm.benchmark") / "static" / name).read_text("utf-8")
    )
    return read


def test_the_rows_are_helms_with_their_metrics_and_directions() -> None:
    classic = schema("schema_classic.yaml")
    groups = {group["name"]: group["metrics"] for group in classic["metric_groups"]}
    rows = next(
        group["metric_groups"] for group in classic["run_groups"] if group["name"] == "boolq"
    )
    assert rows[:-1] == [ACCURACY, *GROUPS, EFFICIENCY]  # the last one is general information
    for name, metrics in GROUPS.items():
        helms = [(metric["name"], metric.get("perturbation_name")) for metric in groups[name]]
        main: list[tuple[str, str | None]] = [("${main_name}", name)]
        assert helms == ([(metric, None) for metric in metrics] or main)
    lower = {metric["name"] for metric in classic["metrics"] if metric.get("lower_is_better")}
    assert lower.issuperset(chain.from_iterable(GROUPS.values()))
    assert f".{PERTURBATION_WORST}" == _WORST, "a perturbed score is the worst one"


def test_medhelms_efficiency_is_the_time_of_an_answer() -> None:
    groups = {
        group["name"]: group["metrics"] for group in schema("schema_medhelm.yaml")["metric_groups"]
    }
    assert [metric["name"] for metric in groups[EFFICIENCY]] == ["inference_runtime"]
