from __future__ import annotations

from typing import Any

import pytest

from eval_factory.core.plain_yaml import OneLine, OneLineList
from eval_factory.report.documents import (
    formatted,
    rounded_fields,
    seconds,
    without_nulls,
)


def test_seconds() -> None:
    assert (seconds(1.23456), seconds(None)) == (1.235, None)


def test_fields_are_rounded_by_what_they_are() -> None:
    fields = {"mean": 1 / 3, "stderr": 1 / 3, "p50_s": 1 / 3, "count": 3, "method": "t", "by": {"a": 2 / 3}, "no": None}
    assert rounded_fields(fields, "mean") == {
        "mean": 1 / 3, "stderr": 0.333333, "p50_s": 0.3333, "count": 3, "method": "t", "by": {"a": 0.666667}, "no": None,
    }  # fmt: skip


def kind(value: Any) -> Any:
    """The outline of what is laid out: `line` for what stands on one."""
    if isinstance(value, (OneLine, OneLineList)):
        return "line"
    if isinstance(value, dict):
        return {name: kind(item) for name, item in value.items()}
    return [kind(item) for item in value] if isinstance(value, list) else "value"


@pytest.mark.parametrize(
    ("value", "outline"),
    [
        ({"a": 1, "b": None, "c": "x" * 60}, "line"),
        ({"a": 1, "b": "x" * 61}, {"a": "value", "b": "value"}),
        ({"a": "two\nlines"}, {"a": "value"}),
        ({"a": (1, 2)}, "line"),
        ({"a": ["two words"]}, {"a": ["value"]}),
        ({"a": {"b": 1}, "c": 2}, {"a": "line", "c": "value"}),
        ([{"a": 1}, {"b": {"c": 1}}], ["line", {"b": "line"}]),
        ([["a"]], ["line"]),
        (["a", "b"], "line"),
        (("a", "b c"), ["value", "value"]),
        ([], "line"),
        ({}, "line"),
    ],
)
def test_what_is_short_stands_on_a_line(value: Any, outline: Any) -> None:
    assert kind(formatted(value)) == outline


def test_nothing_is_lost_on_the_way() -> None:
    value = {"a": (1, {"b": (2.5, None)}), "c": {"d": "e"}, 5: True}
    assert formatted(value) == {"a": [1, {"b": [2.5, None]}], "c": {"d": "e"}, "5": True}


def test_nulls_alone_are_left_out() -> None:
    assert without_nulls({"a": None, "b": 0, "c": [], "d": {}, "e": ""}) == {"b": 0, "c": [], "d": {}, "e": ""}
