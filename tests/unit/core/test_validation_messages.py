"""What is wrong with a value, in words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from eval_factory.core.errors import did_you_mean, expectation

KNOWN = ["temperature", "top_p", "parallelism", "max_retries"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("temprature", ", did you mean 'temperature'?"),
        ("TEMPERATURE", ", did you mean 'temperature'?"),
        ("max_retry", ", did you mean 'max_retries'?"),
        ("colour", ""),
        ("", ""),
    ],
)
def test_the_nearest_known_name(name: str, told: str) -> None:
    assert did_you_mean(name, KNOWN) == told


def test_the_same_letters_in_another_order_are_nearest() -> None:
    """Of two names as near as each other, the one whose letters were only mixed up."""
    assert did_you_mean("mmul", ["mmul_x", "mmlu"]) == ", did you mean 'mmlu'?"


def test_the_name_is_shown_as_it_is_spelled() -> None:
    assert did_you_mean("openai_api_kex", ["OPENAI_API_KEY"]) == ", did you mean 'OPENAI_API_KEY'?"


def test_how_near_a_name_has_to_be() -> None:
    assert did_you_mean("tempo", KNOWN) == ""
    assert did_you_mean("tempo", KNOWN, cutoff=0.4) == ", did you mean 'temperature'?"


class _Section(BaseModel):
    name: str


def error_of(kind: Any, value: object) -> Any:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    (detail,) = caught.value.errors()
    return detail


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Literal["chat", "completions"], "x", "must be 'chat' or 'completions'"),
        (_Section, "x", "must be a mapping of keys to values"),
        (list[int], "x", "must be a list"),
        (str, 1, "must be text (put it in quotes)"),
        (Annotated[int, Field(strict=True)], "x", "must be a whole number"),
        (int, "x", "must be a whole number"),
        (int, 1.5, "must be a whole number"),
        (float, None, "must be a number"),
        (float, "x", "must be a number"),
        (Annotated[bool, Field(strict=True)], "x", "must be true or false"),
        (Annotated[int, Field(ge=1)], 0, "must be greater than or equal to 1"),
    ],
)
def test_an_expectation_is_plain_english(kind: Any, value: object, told: str) -> None:
    assert expectation(error_of(kind, value)) == told
