"""Tests of the fields that sort instances into groups."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.helm import output
from eval_factory.helm.output import MAX_CATEGORY, can_form_groups, categories_of, groups_of


def instance(**known: Any) -> output.Instance:
    return output.Instance.model_validate({"id": "x", "input": {}, **known})


def test_categories_are_short_texts_and_numbers() -> None:
    short = {"truth": False, "whole": 0, "broken": 2.5, "text": "", "longest": "x" * MAX_CATEGORY}
    long = {"none": None, "list": ["a"], "mapping": {"a": 1}, "long": "x" * (MAX_CATEGORY + 1)}
    assert MAX_CATEGORY == 80
    of_a_rubric = {"answer": "A", "sample": 3}
    assert categories_of(instance(extra_data={**short, **long, **of_a_rubric})) == short
    assert categories_of(instance()) == {}


def test_groups_are_texts_and_the_sub_split_without_what_instances_share() -> None:
    here = instance(sub_split="a", extra_data={"topic": "heart", "patient": "p1", "year": 2020})
    assert groups_of(here, "patient") == {"topic": "heart", "sub_split": "a"}
    assert groups_of(here) == {"topic": "heart", "patient": "p1", "sub_split": "a"}
    assert groups_of(instance()) == {}


@pytest.mark.parametrize(
    ("values", "instances", "few"),
    [(1, 100, False), (2, 4, True), (2, 3, False), (60, 120, True), (61, 900, False)],
)
def test_few(values: int, instances: int, *, few: bool) -> None:
    assert can_form_groups(values, instances) is few
