"""Makes the JSON schemas of judges' verdicts (`judges[].structured`). Pure functions.

The schemas only use features that every server with `response_format: json_schema` accepts
(OpenAI's strict mode). Each object names all its fields, requires them and allows no others; a
limited set of values is an `enum`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from eval_factory.helm.criteria import (
    EXPLANATION_FIELD,
    JUDGEMENTS_FIELD,
    MET_FIELD,
    NUMBER_FIELD,
    criterion_template,
)
from eval_factory.helm.judge_output import Criteria
from eval_factory.tasks.jury_form import JuryForm

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string"}
_MARKS = range(1, 11)  # the marks (1 to 10) of medhelm's comparison with a physician's answer


def ratings_schema(criteria: Criteria, form: JuryForm) -> Schema:
    """Return the schema of a jury's verdict: the fields of each criterion, with the score last."""
    score: Schema = {"type": "integer", "enum": list(form.values)}
    if form.labels:
        score = {"type": "string", "enum": list(form.labels)}
    ratings = {}
    for name, fields in criteria.items():
        texts: dict[str, Schema] = {field: _TEXT for field in sorted(fields) if field != "score"}
        ratings[name] = _object({**texts, "score": score})
    return _object(ratings)


def decisions_schema(count: int) -> Schema:
    """Return the schema of a verdict about `count` criteria of a rubric: one decision for each."""
    decision: dict[str, Schema] = {EXPLANATION_FIELD: _TEXT, MET_FIELD: {"type": "boolean"}}
    if count == 1:
        return _object(decision)
    numbered = _object({NUMBER_FIELD: {"type": "integer"}, **decision})
    return _object({JUDGEMENTS_FIELD: {"type": "array", "items": numbered}})


def mark_schema() -> Schema:
    """Return the schema of a verdict with a mark for an answer, by comparison with a physician's.

    medhelm's prompt asks for the mark in the field `criteria_met`.
    """
    return _object({EXPLANATION_FIELD: _TEXT, MET_FIELD: {"type": "integer", "enum": list(_MARKS)}})


def _object(properties: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def prompts_key(annotation: str, *, by_schema: bool) -> str:
    """Return the key under which the run record stores the prompts of judges.

    Args:
        annotation: HELM's name for the output of these judges, of a jury or a rubric.
        by_schema: whether these are the prompts for judges that get a schema.
    """
    return f"{annotation} by schema" if by_schema else annotation


def template_with_schema(template: str, schema: Schema) -> str:
    """Return the text whose hash identifies a prompt template together with its schema."""
    return f"{template}\n{json.dumps(schema)}"


def criterion_templates(criteria_per_request: int, *, by_schema: bool) -> list[str]:
    """Return every template of a rubric judge's prompts, with its schema if `by_schema` is True.

    The hashes of these texts identify the prompts.
    """
    templates = []
    # The template is the same for each number of criteria but 1. The last prompt of a case may have
    # only one criterion.
    for size in sorted({1, criteria_per_request}):
        template = criterion_template(alone=size == 1)
        if by_schema:
            template = template_with_schema(template, decisions_schema(size))
        templates.append(template)
    return templates
