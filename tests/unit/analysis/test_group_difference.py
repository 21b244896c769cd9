"""The paired difference within a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.group_difference import difference_in_group
from eval_factory.report.reader import StoredResult, load_result
from stored_results import instance, result, written


def sides(tmp_path: Path, **of_first_five: Any) -> tuple[StoredResult, StoredResult]:
    """Ten instances; the second is wrong on the first three."""
    found = []
    for name, wrong in (("a", 0), ("b", 3)):
        records = [
            instance(f"q{number}", float(number >= wrong), **(of_first_five if number < 5 else {}))
            for number in range(10)
        ]
        found.append(load_result(written(tmp_path / name, result(records))))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("changes", "group", "n", "difference"),
    [
        ({"categories": {"topic": "heart"}}, ("topic", "heart"), 5, -0.6),
        ({"categories": {"topic": 7}}, ("topic", "7"), 5, -0.6),
        ({"sub_split": "MS"}, ("sub_split", "MS"), 5, -0.6),
    ],
)
def test_only_the_groups_instances_are_paired(
    tmp_path: Path, changes: dict[str, Any], group: tuple[str, str], n: int, difference: float
) -> None:
    a, b = sides(tmp_path, **changes)
    (comparison,) = compare([a.folder, b.folder]).comparisons
    assert comparison.paired.difference == pytest.approx(-0.3)
    found = difference_in_group(a, b, comparison, group)
    assert found is not None
    assert found.n == n
    assert found.difference == pytest.approx(difference)


@pytest.mark.parametrize("group", [("topic", "lung"), ("other", "heart"), ("sub_split", "None")])
def test_a_group_of_nothing_has_no_difference(tmp_path: Path, group: tuple[str, str]) -> None:
    a, b = sides(tmp_path, categories={"topic": "heart"})
    (comparison,) = compare([a.folder, b.folder]).comparisons
    assert difference_in_group(a, b, comparison, group) is None
