"""The ratings and criteria that a benchmark's jury may have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eval_factory.tasks.jury_form import HELMS_JURY_FORM, JuryForm, jury_form_of
from facts import says

CRITERIA = [{"name": "right", "description": "it is true"}, {"name": "kind"}]
TEN = jury_form_of({"name": "jury_score", "scale": {"min": 0, "max": 10}, "criteria": CRITERIA})
WORDS = jury_form_of({"scale": {"good": 4, "poor": -1, "fair": 1}})


def test_what_benchmark_yaml_says() -> None:
    assert TEN.values == tuple(range(11))
    assert (TEN.lowest, TEN.scale, TEN.labels) == (0.0, (0.0, 10.0), {})
    assert TEN.criteria == {"right": "it is true", "kind": ""}
    assert (WORDS.values, list(WORDS.labels), WORDS.scale) == (
        (-1, 1, 4),
        ["poor", "fair", "good"],
        (-1.0, 4.0),
    )
    assert jury_form_of({"name": "jury_score", "prompt_file": "x"}) == HELMS_JURY_FORM
    only = jury_form_of({"criteria": CRITERIA})
    assert (only.values, only.states_scale, list(only.criteria)) == (
        HELMS_JURY_FORM.values,
        False,
        ["right", "kind"],
    )


@pytest.mark.parametrize(
    "form", [HELMS_JURY_FORM, TEN, WORDS, jury_form_of({"scale": {"min": 1, "max": 5}})]
)
def test_it_is_written_as_it_is_read(form: JuryForm) -> None:
    assert jury_form_of(form.as_dict()) == form
    assert HELMS_JURY_FORM.as_dict() == {}


@pytest.mark.parametrize(
    ("form", "score", "value"),
    [
        (HELMS_JURY_FORM, 1, 1),
        (HELMS_JURY_FORM, 5.0, 5),
        (HELMS_JURY_FORM, " 3 ", 3),
        (HELMS_JURY_FORM, 0, None),
        (HELMS_JURY_FORM, 6, None),
        (HELMS_JURY_FORM, True, None),
        (HELMS_JURY_FORM, "03", None),
        (HELMS_JURY_FORM, "", None),
        (HELMS_JURY_FORM, None, None),
        (HELMS_JURY_FORM, [3], None),
        (HELMS_JURY_FORM, float("nan"), None),
        (HELMS_JURY_FORM, 2.5, None),
        (HELMS_JURY_FORM, "five", None),
        (TEN, 0, 0),
        (TEN, 10, 10),
        (TEN, 11, None),
        (TEN, False, None),
        (TEN, -1, None),
        (WORDS, "GOOD ", 4),
        (WORDS, "-1", -1),
        (WORDS, 1, 1),
        (WORDS, 2, None),
        (WORDS, "best", None),
    ],
)
def test_the_rating_that_a_judge_gave(form: JuryForm, score: Any, value: int | None) -> None:
    assert form.value_of(score) == value


def test_how_ratings_are_named() -> None:
    says(HELMS_JURY_FORM.rating_description, "whole number", "from 1 to 5")
    says(TEN.rating_description, "whole number", "from 0 to 10")
    assert WORDS.rating_description == 'one of "poor", "fair", "good"'
    assert HELMS_JURY_FORM.spellings(5) == {"5", "5.0", "five"}
    assert TEN.spellings(0) == {"0", "0.0", "zero"}
    assert TEN.spellings(10) == {"10", "10.0", "ten"}
    assert JuryForm((11,)).spellings(11) == {"11", "11.0"}
    assert WORDS.spellings(-1) == {"-1", "-1.0", "poor"}


def test_the_judges_prompt_is_filled() -> None:
    assert (HELMS_JURY_FORM.placeholders, WORDS.placeholders, TEN.placeholders) == (
        (),
        ("SCALE",),
        ("SCALE", "CRITERIA"),
    )
    assert (
        HELMS_JURY_FORM.filled("{SCALE} {CRITERIA} {RESPONSE}") == "{SCALE} {CRITERIA} {RESPONSE}"
    )
    worst_to_best = "(from the worst to the best)"
    assert (
        WORDS.filled("{SCALE}, {CRITERIA}")
        == f'one of "poor", "fair", "good" {worst_to_best}, {{CRITERIA}}'
    )
    text = TEN.filled("Rate {RESPONSE} by {SCALE}:\n{CRITERIA}")
    assert text.startswith(
        f"Rate {{RESPONSE}} by a whole number from 0 to 10 {worst_to_best}:\n- right: it is true\n- kind\n\n"
    )
    block = text.partition("<rubric_criteria>\n")[2].partition("\n</rubric_criteria>")[0]
    assert json.loads(block) == {
        "right": ["score", "explanation"],
        "kind": ["score", "explanation"],
    }
    example = json.loads(text.rpartition("\n\n")[2])
    assert {name: rating["score"] for name, rating in example.items()} == {"right": 5, "kind": 5}
    labels = JuryForm((0, 1, 2), {"poor": 0, "fair": 1, "good": 2}, {"a": ""}, states_scale=True)
    assert labels.filled("{CRITERIA}").endswith(
        '{"a": {"score": "fair", "explanation": "why this score"}}'
    )
