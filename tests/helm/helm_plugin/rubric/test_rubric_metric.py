"""The score of a case, inside HELM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.helm_plugin.rubric.rubric_metric import RubricMetric

RUBRICS = [{"criterion": "good", "points": 4, "tags": []}, {"criterion": "bad", "points": -1, "tags": []}]


def values(*said: dict[str, Any], error: str | None = None) -> dict[str, float | None]:
    state: Any = SimpleNamespace(
        instance=SimpleNamespace(extra_data={"rubrics": RUBRICS}),
        result=SimpleNamespace(success=error is None, error=error),
        annotations={"rubric": {"criteria": list(said)}},
    )
    nothing: Any = None
    stats = RubricMetric("m_score", {"a": "x", "b": "y"}).evaluate_generation(nothing, state, nothing, "")
    return {stat.name.name: stat.mean for stat in stats}


def met(a: bool, b: bool | None = None) -> dict[str, Any]:
    return {"a": {"criteria_met": a}, **({} if b is None else {"b": {"criteria_met": b}})}


@pytest.mark.parametrize(("said", "score"), [
    ((met(True), met(False)), 1.0), ((met(True), met(True)), 0.75), ((met(False), met(True)), -0.25),
    ((met(True, False), met(False, False)), 0.5), ((met(True), {"a": {"error": "x"}}), None), ((), None),
])  # fmt: skip
def test_points_met_of_the_positive_points(said: tuple[dict[str, Any], ...], score: float | None) -> None:
    """A case with an unjudged criterion has no score."""
    assert values(*said) == ({} if score is None else {"m_score": score})


def test_a_failed_request_keeps_its_place() -> None:
    assert values(error="HTTP 500") == {"m_score": 0.0}
    assert [one.name for one in RubricMetric("m_score", {}).get_metadata()] == ["m_score"]
