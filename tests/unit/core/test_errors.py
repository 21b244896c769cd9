"""Tests of the exit codes of errors, and of the words for a wrong value."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from eval_factory.core import errors
from eval_factory.core.errors import ConfigError, EvalFactoryError, did_you_mean, unmet_expectation
from facts import says

CODES = {
    "NotReportableError": 1,
    "ConfigError": 2,
    "PrerequisiteError": 3,
    "EndpointRefusedError": 3,
    "EndpointUnreachableError": 3,
    "HelmError": 4,
    "BusyError": 5,
    "EvalFactoryError": 70,
    "InterruptedRunError": 130,
}


def test_each_exit_code_has_one_class_and_all_have_one_base() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    ]
    assert all(issubclass(kind, EvalFactoryError) for kind in kinds)
    assert {
        kind.__name__: kind.exit_code for kind in kinds if issubclass(kind, EvalFactoryError)
    } == CODES
    assert errors.DEFECT_EXIT_CODE == 70


def test_a_config_error_keeps_its_problems_apart() -> None:
    problems = ["a: is missing", "b: must be text"]
    error = ConfigError(problems)
    problems.append("added later")
    assert error.problems == ["a: is missing", "b: must be text"]
    assert str(error) == "a: is missing\nb: must be text"


KNOWN = ["temperature", "top_p", "parallelism", "max_retries"]


@pytest.mark.parametrize(
    ("name", "known", "told"),
    [
        ("temprature", KNOWN, "temperature"),
        ("TEMPERATURE", KNOWN, "temperature"),
        ("max_retry", KNOWN, "max_retries"),
        ("colour", KNOWN, None),
        ("", KNOWN, None),
        ("tempo", KNOWN, None),
        # two names are equally similar: the name with the same letters is suggested
        ("mmul", ["mmul_x", "mmlu"], "mmlu"),
        ("openai_api_kex", ["OPENAI_API_KEY"], "OPENAI_API_KEY"),
    ],
)
def test_the_nearest_known_name(name: str, known: list[str], told: str | None) -> None:
    assert did_you_mean(name, known) == (f", did you mean '{told}'?" if told else "")
    says(did_you_mean("tempo", KNOWN, cutoff=0.4), "'temperature'?")


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
    assert unmet_expectation(error_of(kind, value)) == told
