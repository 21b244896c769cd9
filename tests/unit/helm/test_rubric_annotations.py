"""What judges said of criteria, among HELM's annotations."""

from __future__ import annotations

from typing import Any

from eval_factory.helm.criterion_output import annotation_of, decisions_of, error_of, said_of

SAID: list[dict[str, dict[str, Any]]] = [
    {"a": {"criteria_met": True, "explanation": "x"}, "b": {"error": "HTTP 500"}},
    {"a": {"criteria_met": False, "explanation": "y"}, "b": {"criteria_met": "true"}},
]


def test_it_is_read_as_it_was_written() -> None:
    annotations = {"rubric": annotation_of(SAID)}
    assert said_of(annotations, 2) == SAID
    assert decisions_of(annotations, ["a", "b", "c"], 2) == [
        {"a": True, "b": None, "c": None}, {"a": False, "b": None, "c": None},
    ]  # fmt: skip
    assert [error_of(one, "b") for one in said_of(annotations, 2)] == ["HTTP 500", None]
    assert error_of(SAID[0], "a") is None
    assert error_of({}, "a") is None


def test_what_was_not_judged_or_has_another_form_says_nothing() -> None:
    for found in (None, {}, {"rubric": None}, {"rubric": {"criteria": "x"}}, {"rubric": annotation_of(SAID)}):
        assert said_of(found, 3) == [{}, {}, {}]
        assert decisions_of(found, ["a"], 1) == [{"a": None}]
    assert said_of({"rubric": {"criteria": [1, {}]}}, 2) == [{}, {}]
