"""What judges will be asked, counted before they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.helm import names
from eval_factory.helm_plugin.rubric.criterion_judge import requests_to_each, requests_to_judges


def answer(criteria: int, success: bool = True) -> Any:
    rubrics = [{"criterion": f"c{number}", "points": 1, "tags": []} for number in range(criteria)]
    return SimpleNamespace(
        instance=SimpleNamespace(extra_data={"rubrics": rubrics}),
        result=SimpleNamespace(success=success, error=None if success else "HTTP 500"),
    )


def spec(class_name: str, **args: Any) -> Any:
    return SimpleNamespace(class_name=class_name, args=args)


def rubric(at_once: int) -> Any:
    return spec(names.RUBRIC_ANNOTATOR_CLASS, judges={"a": "a", "b": "b"}, criteria_per_request=at_once)


@pytest.mark.parametrize(("at_once", "each"), [(1, 8), (2, 5), (3, 3), (9, 2)])
def test_criteria_of_a_rubric_by_request(at_once: int, each: int) -> None:
    """5 and 3 criteria, two judges; an answer that did not come is not judged, and was expected to come."""
    state: Any = SimpleNamespace(request_states=[answer(5), answer(3)], annotator_specs=[rubric(at_once)])
    assert (requests_to_judges(state), requests_to_each(state)) == (2 * each, each)
    state.request_states.append(answer(1, success=False))
    assert (requests_to_judges(state), requests_to_each(state)) == (2 * each, each + 1)


def test_a_jury_is_asked_once_for_each_answer() -> None:
    jury = spec("helm.Jury", annotator_models={"a": 1, "b": 2, "c": 3})
    states = [answer(0), answer(0), answer(0, success=False)]
    state: Any = SimpleNamespace(request_states=states, annotator_specs=[jury])
    assert (requests_to_judges(state), requests_to_each(state)) == (6, 0)
    state.annotator_specs = [spec("helm.Other")]
    assert requests_to_judges(state) == 2
    state.annotator_specs = None
    assert (requests_to_judges(state), requests_to_each(state)) == (0, 0)
