"""Whatever a schema lets through is read as a verdict; every server of strict mode takes the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from eval_factory.helm.criteria import criterion_template, parse_decisions
from eval_factory.helm.judge_output import UnusableJudgeOutput, parse_judge_output
from eval_factory.helm.verdict_schemas import (
    Schema,
    criterion_templates,
    decisions_schema,
    mark_schema,
    prompts_key,
    ratings_schema,
    template_with_schema,
)
from eval_factory.tasks.jury_form import HELMS_JURY_FORM, JuryForm

CRITERIA = {"accuracy": {"score", "explanation"}, "clarity": {"score", "explanation"}}
LABELS = JuryForm((0, 1, 2), {"poor": 0, "fair": 1, "good": 2}, states_scale=True)
ALL = [
    ratings_schema(CRITERIA, HELMS_JURY_FORM),
    ratings_schema(CRITERIA, LABELS),
    decisions_schema(1),
    decisions_schema(3),
    mark_schema(),
]


def rated(score: object) -> dict[str, Any]:
    return {name: {"explanation": "why", "score": score} for name in CRITERIA}


def objects_in(schema: Any) -> Iterator[Schema]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects_in(value)


@pytest.mark.parametrize("schema", ALL)
def test_each_object_requires_all_its_fields_and_allows_no_others(schema: Schema) -> None:
    jsonschema.Draft202012Validator.check_schema(dict(schema))
    found = list(objects_in(schema))
    assert found
    for each in found:
        assert each["required"] == list(each["properties"])
        assert each["additionalProperties"] is False


@pytest.mark.parametrize(
    ("form", "scores"), [(HELMS_JURY_FORM, range(7)), (LABELS, ("poor", "fair", "good", "best", 1))]
)
def test_a_schema_lets_those_ratings_through_that_are_read(form: JuryForm, scores: Any) -> None:
    allows = jsonschema.Draft202012Validator(ratings_schema(CRITERIA, form)).is_valid
    let_through = [score for score in scores if allows(rated(score))]
    assert let_through == list(form.labels or form.values)
    for score in let_through:
        read = parse_judge_output(json.dumps(rated(score)), CRITERIA, "an answer", form)
        assert {one["score"] for one in read.values()} == {form.labels.get(str(score), score)}


def test_the_order_of_a_set_changes_no_schema() -> None:
    fields = ["score", "explanation", "evidence"]
    schemas = [ratings_schema({"a": order}, HELMS_JURY_FORM) for order in (fields, fields[::-1])]
    assert json.dumps(schemas[0]) == json.dumps(schemas[1])
    (rating,) = schemas[0]["properties"].values()
    assert list(rating["properties"]) == ["evidence", "explanation", "score"], "reasons go first"


@pytest.mark.parametrize("count", [1, 2])
def test_a_schema_lets_those_decisions_through_that_are_read(count: int) -> None:
    decision = {"explanation": "why", "criteria_met": True}
    numbered = [{"criterion": number, **decision} for number in range(1, count + 1)]
    verdict = decision if count == 1 else {"judgements": numbered}
    allows = jsonschema.Draft202012Validator(decisions_schema(count)).is_valid
    assert allows(verdict)
    assert [one.met for one in parse_decisions(json.dumps(verdict), count, "x")] == [True] * count
    wrong = json.loads(json.dumps(verdict).replace("true", '"yes"'))
    assert not allows(wrong)
    with pytest.raises(UnusableJudgeOutput):
        parse_decisions(json.dumps(wrong), count, "x")


def test_a_mark_is_a_whole_number_from_1_to_10() -> None:
    allows = jsonschema.Draft202012Validator(mark_schema()).is_valid
    marks: list[object] = [0, 1, 10, 11, 2.5, True]
    assert [mark for mark in marks if allows({"explanation": "x", "criteria_met": mark})] == [1, 10]


def test_a_schema_is_another_prompt() -> None:
    plain = criterion_templates(5, by_schema=False)
    assert plain == [criterion_template(alone=True), criterion_template(alone=False)]
    by_schema = criterion_templates(5, by_schema=True)
    assert len({*plain, *by_schema}) == 4
    assert criterion_templates(1, by_schema=True) == by_schema[:1]
    assert criterion_templates(3, by_schema=True) == by_schema, "a schema has no count"
    assert template_with_schema("a", mark_schema()) != template_with_schema("a", ALL[0])
    assert (
        prompts_key("rubric", by_schema=True) != prompts_key("rubric", by_schema=False) == "rubric"
    )
