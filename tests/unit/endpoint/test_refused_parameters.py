"""Errors that refuse a parameter, in the words of servers, and the change that each asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eval_factory.endpoint.refused_parameters import changes_asked_for

BODY = {"model": "m", "max_tokens": 5, "temperature": 0.0, "top_p": 1}
CHOICE = {**BODY, "stop": ["\n"], "messages": [{"role": "user", "content": "his temperature " * 9}]}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            {"max_tokens": "max_completion_tokens"},
        ),
        ("Unsupported value: 'temperature' does not support 0", {"temperature": None}),
        ('unsupported: "top_p"', {"top_p": None}),
        ("Unsupported value: 'temperature' and 'top_p'", {"temperature": None}),
        ("`temperature` and `top_p` cannot both be specified", {"top_p": None}),
        ("Unsupported value: 'stop'", {}),
        ("'temperature' is too high", {}),
        ("Unsupported: image type", {}),
        ("", {}),
    ],
)
def test_a_refused_field_of_a_request(text: str, changes: dict[str, Any]) -> None:
    assert changes_asked_for(text, BODY) == changes
    assert changes_asked_for("Use 'max_completion_tokens'", {"model": "m"}) == {}, (
        "nothing that was not sent"
    )


def forbidden(name: str) -> dict[str, Any]:
    """As pydantic refuses a field."""
    fault = {"type": "extra_forbidden", "loc": ["body", name], "input": ["\n"]}
    return {"detail": [{**fault, "msg": "Extra inputs are not permitted"}]}


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (("litellm.UnsupportedParamsError: gpt-5 models don't support temperature=0.0. Only "
         "temperature=1 is supported. Set litellm.drop_params = True"), "temperature"),
        (("litellm.UnsupportedParamsError: openai does not support parameters: ['stop'], for "
         "model=o4-mini."), "stop"),
        ("invalid temperature: only 1 is allowed for this model", "temperature"),
        ("Argument not supported on this model: stop", "stop"),
        (forbidden("stop"), "stop"),
        (forbidden("top_p"), "top_p"),
        ({"error": {"param": "temperature", "message": "Unsupported value"}}, "temperature"),
        (("Malformed input request: string [\n] does not match pattern ^(\\|+|User:)$, please "
         "reformat your input and try again."), "stop"),
        ("stop_sequences: each stop sequence must contain non-whitespace", "stop"),
        (("This model doesn't support the stopSequences field. Remove stopSequences and try "
         "again."), "stop"),
        ("`temperature` must be strictly positive", "temperature"),
        ("`top_p` must be > 0.0 and < 1.0", "top_p"),
        ("temperature is deprecated for this model", "temperature"),
        ("Provider returned error: top_p is not supported with this model", "top_p"),
        ('Invalid JSON payload received. Unknown name "stop"', "stop"),
    ],
)  # fmt: skip
def test_a_parameter_is_named_in_the_words_of_servers(error: Any, name: str) -> None:
    for text in (json.dumps(error), error if isinstance(error, str) else json.dumps(error)):
        assert changes_asked_for(text, CHOICE) == {name: None}
        left = {key: value for key, value in CHOICE.items() if key != name}
        assert changes_asked_for(text, left) == {}


@pytest.mark.parametrize(
    "error",
    [
        "Unsupported content: " + "his temperature " * 5,
        "The model does not exist",
        "maximum context length is 4096 tokens",
        "Content policy: the request must be changed",
        "Invalid 'max_output_tokens': Expected a value >= 16, but got 5 instead.",
    ],
)
def test_an_error_about_something_else_names_no_parameter(error: str) -> None:
    assert changes_asked_for(error, CHOICE) == {}
