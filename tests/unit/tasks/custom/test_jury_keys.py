"""What is wrong with `scale` and `criteria` of a custom jury benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.tasks.jury_form import HELMS_FORM, jury_keys

GOOD = [{"name": "accuracy", "description": "it is right"}]


@pytest.mark.parametrize(
    ("scale", "criteria"),
    [
        ({"min": 0, "max": 10}, None), ({"min": -50, "max": 50}, None), ({"poor": 0, "fair": 1, "good": 2}, GOOD),
        ({"min": 0, "middle": 1, "max": 2}, None),
        (None, [{"name": "a" * 80, "description": "d" * 1000}, {"name": "b", "description": ""}]), (None, None),
    ],
)  # fmt: skip
def test_sound_ones(scale: Any, criteria: Any) -> None:
    problems: list[str] = []
    found = jury_keys("b.yaml: metrics.0", scale, criteria, problems)
    assert problems == []
    assert found.as_dict().keys() == {name for name, said in (("scale", scale), ("criteria", criteria)) if said}


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ("1..10", "scale: must be a mapping with at least two keys; write {min: 0, max: 10}"),
        ({}, "scale: must be a mapping with at least two keys"),
        ({"min": 0}, "scale: must be a mapping with at least two keys"),
        ({"min": 0, "max": 1.5}, "scale.max: must be a whole number"),
        ({"min": False, "max": 2}, "scale.min: must be a whole number"),
        ({"min": 5, "max": 5}, "scale.max: must be above min, which is 5"),
        ({"min": 5, "max": 1}, "scale.max: must be above min, which is 5"),
        ({"min": 0, "max": 101}, "scale: from 0 to 101 are more than 100 steps; use a coarser scale"),
        ({"poor": 0, "bad": 0}, "scale: 2 words stand for 0"),
        ({"poor": 0, "POOR": 1}, "scale.poor: stands there twice but for capitals"),
        ({True: 1, "no": 0}, "scale.True: is read as True; put the word in quotes"),
        ({"1": 1, "no": 0}, "scale.1: must be a word, not a number"),
        ({"very {x}": 1, "no": 0}, "scale.very {x}: must hold none of { } $"),
        ({"x" * 81: 1, "no": 0}, "must be a text of 1 to 80 characters"),
    ],
)
def test_mistakes_in_the_scale(scale: Any, said: str) -> None:
    problems: list[str] = []
    assert jury_keys("b.yaml: metrics.0", scale, GOOD, problems) is HELMS_FORM
    assert len(problems) == 1
    assert problems[0].startswith("b.yaml: metrics.0.scale")
    assert said in problems[0]


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        ("accuracy", ["criteria: must be a list with at least one criterion; write a list such as [{name:"]),
        ([], ["criteria: must be a list with at least one criterion"]),
        (["accuracy"], ["criteria.0: must be a mapping"]),
        ([{"description": "d"}], ["criteria.0.name: must be a text of 1 to 80 characters"]),
        ([{"name": ""}], ["criteria.0.name: must be a text"]),
        ([{"name": " a"}], ["criteria.0.name: must be a text of 1 to 80 characters, without spaces around it"]),
        ([{"name": "a", "description": "x" * 1001}], ["criteria.0.description: must be a text of 1 to 1000"]),
        ([{"name": "a", "description": "5 $"}], ["criteria.0.description: must hold none of"]),
        ([{"name": "a", "description": "one\ntwo"}], ["and no line break: it stands in the judges' prompt"]),
        ([{"name": "a", "weight": 1}], ["criteria.0: unknown key weight; known here: name, description"]),
        ([{"name": "a", "descripton": "d"}], ["unknown key descripton, did you mean 'description'?"]),
        ([*GOOD, {"name": 3}, *GOOD], ["criteria.1.name: must be", "criteria: accuracy is listed 2 times"]),
    ],
)
def test_mistakes_in_the_criteria(criteria: Any, said: list[str]) -> None:
    problems: list[str] = []
    assert jury_keys("b.yaml: metrics.0", None, criteria, problems) is HELMS_FORM
    assert len(problems) == len(said)
    assert all(expected in problem for expected, problem in zip(said, problems, strict=True))
