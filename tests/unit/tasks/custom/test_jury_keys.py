"""Tests of what is wrong with `scale` and `criteria` of a custom jury benchmark."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from eval_factory.tasks.custom_benchmark import _Metric
from eval_factory.tasks.jury_form import jury_form_of

GOOD = [{"name": "accuracy", "description": "it is right"}]


def mistakes(**keys: Any) -> list[str]:
    with pytest.raises(ValidationError) as raised:
        _Metric.model_validate({"name": "jury_score", **keys})
    found = raised.value.errors(include_url=False)
    return [
        f"{'.'.join(map(str, one['loc']))}: {one['msg'].removeprefix('Value error, ')}"
        for one in found
    ]


@pytest.mark.parametrize(
    ("scale", "criteria"),
    [
        ({"min": 0, "max": 10}, None),
        ({"min": -50, "max": 50}, None),
        ({"poor": 0, "fair": 1, "good": 2}, GOOD),
        ({"min": 0, "middle": 1, "max": 2}, None),
        (None, [{"name": "a" * 80, "description": "d" * 1000}, {"name": "b", "description": ""}]),
        (None, None),
    ],
)
def test_sound_ones(scale: Any, criteria: Any) -> None:
    found = jury_form_of(_Metric(name="jury_score", scale=scale, criteria=criteria).model_dump())
    assert found.as_dict().keys() == {
        name for name, said in (("scale", scale), ("criteria", criteria)) if said
    }


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ("1..10", "scale: Input should be a valid dictionary"),
        ({}, "scale: must have at least two keys; write {min: 0, max: 10}"),
        ({"min": 0}, "scale: must have at least two keys"),
        ({"min": 0, "max": 1.5}, "scale.max: Input should be a valid integer"),
        ({"min": False, "max": 2}, "scale.min: Input should be a valid integer"),
        ({"min": 5, "max": 5}, "scale: max must be above min, which is 5"),
        (
            {"min": 0, "max": 101},
            "scale: has more than 100 steps from 0 to 101; use a coarser scale",
        ),
        ({"poor": 0, "bad": 0}, "or two words have the same rating"),
        ({"poor": 0, "POOR": 1}, "scale: two words differ only in capital letters"),
        ({True: 1, "no": 0}, "Input should be a valid string"),
        ({"1": 1, "no": 0}, "scale: each rating needs a word, not a number"),
        ({"very {x}": 1, "no": 0}, "scale.very {x}.[key]: must not hold any of { } $"),
        ({"x" * 81: 1, "no": 0}, "must be a text of 1 to 80 characters"),
    ],
)
def test_mistakes_in_the_scale(scale: Any, said: str) -> None:
    (problem,) = mistakes(scale=scale)
    assert said in problem


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        ("accuracy", ["criteria: Input should be a valid list"]),
        ([], ["criteria: List should have at least 1 item"]),
        (["accuracy"], ["criteria.0: Input should be a valid dictionary"]),
        ([{"description": "d"}], ["criteria.0.name: Field required"]),
        ([{"name": ""}], ["criteria.0.name: must be a text of 1 to 80"]),
        (
            [{"name": " a"}],
            ["criteria.0.name: must be a text of 1 to 80 characters, without spaces around it"],
        ),
        ([{"name": "a", "weight": 1}], ["criteria.0.weight: Extra inputs are not permitted"]),
        ([*GOOD, *GOOD], ["criteria: a name is listed twice"]),
    ],
)
def test_mistakes_in_the_criteria(criteria: Any, said: list[str]) -> None:
    assert all(
        one in problem for one, problem in zip(said, mistakes(criteria=criteria), strict=True)
    )


@pytest.mark.parametrize("text", ["x" * 1001, "5 $", "one\ntwo", " a"])
def test_a_description_is_a_text_of_the_prompt(text: str) -> None:
    assert any(
        "criteria.0.description" in one
        for one in mistakes(criteria=[{"name": "a", "description": text}])
    )
