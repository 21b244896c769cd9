"""Errors that refuse a parameter, in the words of servers, and the change that each asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eval_factory.endpoint.openai_api import SetTo, request_body
from eval_factory.endpoint.refused_parameters import changes_asked_for, merged_changes

BODY = {"model": "m", "max_tokens": 5, "temperature": 0.0, "top_p": 1}
SETTINGS: dict[str, Any] = {"model_id": "m", "endpoint_type": "chat", "top_p": None}
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
        ("'temperature' is too high", {"temperature": None}),
        ("temperature is too high", {}),
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
        (("litellm.UnsupportedParamsError: openai does not support parameters: ['stop'], for "
         "model=o4-mini."), "stop"),
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
        ('{"message": "Bad request: json: unknown field \\"stop\\"\\n"}', "stop"),
        ("property 'top_p' is unsupported", "top_p"),
        ("Unrecognized request argument supplied: top_p", "top_p"),
        ("invalid params, temperature should be in (0.0, 1.0]", "temperature"),
        ({"error": {"code": "1210", "message": "API 调用参数有误 temperature 取值范围为 (0, 1)"}},
         "temperature"),
        ({"error": {"param": "stop", "message": "array too long, maximum length 4"}}, "stop"),
        ("invalid value for top_p: 1 (must be less than 1)", "top_p"),
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
        {
            "error": {
                "message": "Invalid parameter: 'response_format' of type 'json_schema' is not "
                "supported with this model.",
                "param": None,
            }
        },
        "This model does not support response format `json_schema`. See supported models",
        "This response_format type is unavailable now",
        "'response_format.type' must be 'text'",
        (
            "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': "
            "\"Input should be 'text' or 'json_object'\"}]"
        ),
        "Structured outputs are not supported by this provider",
        forbidden("response_format"),
    ],
)
def test_a_refused_schema_of_a_verdict_is_left_out_and_one_of_the_users_own_is_not(
    error: Any,
) -> None:
    text = json.dumps(error) if isinstance(error, dict) else error
    schema: dict[str, Any] = {"type": "object"}
    asked = request_body({**CHOICE, "schema": schema}, **SETTINGS)
    assert changes_asked_for(text, asked) == {"response_format": None}
    assert changes_asked_for(text, request_body(CHOICE, **SETTINGS)) == {}
    named = {"name": "mine", "schema": schema}
    for own in (named, None):
        own_form = {"type": "json_schema", "json_schema": own}
        assert changes_asked_for(text, {**asked, "response_format": own_form}) == {}
    assert changes_asked_for("temperature must be 1", asked) == {"temperature": SetTo(1)}
    assert changes_asked_for("maximum context length is 4096 tokens", asked) == {}


@pytest.mark.parametrize(
    "error",
    [
        "Unsupported content: " + "his temperature " * 5,
        "The model does not exist",
        "maximum context length is 4096 tokens",
        "Content policy: the request must be changed",
        "Invalid 'max_output_tokens': Expected a value >= 16, but got 5 instead.",
        "maximum context length is 4096 tokens; args: temperature=0.0, 'top_p' not supported",
        json.dumps({**forbidden("metadata"), "body": {"temperature": 0.0, "stop": ["\n"]}}),
        "the server was asked to stop",
    ],
)
def test_an_error_about_something_else_names_no_parameter(error: str) -> None:
    assert changes_asked_for(error, CHOICE) == {}


SET_TO = [
    ("temperature", 0.0, "Only temperature=1 is supported. Set litellm.drop_params = True", 1),
    ("temperature", 0.0, "invalid temperature: only 0.6 is allowed for this model", 0.6),
    ("temperature", 0.0, "'temperature': Only the default (1) value is supported.", 1),
    ("temperature", 0.0, "`temperature` may only be set to 1 when thinking is enabled.", 1),
    ("temperature", 0.0, "temperature is fixed at 1.0 for this model", 1),
    ("temperature", 0.0, "temperature is out of range; supported values: 1", 1),
    ("temperature", 0.0, "temperature should be in [0.01, 2.0)", 0.01),
    ("temperature", 0.0, "temperature: Input should be greater than or equal to 0.01", 0.01),
    ("temperature", 0.0, "temperature must be 0.01 or greater", 0.01),
    ("temperature", 1.5, "temperature: ensure this value is less than or equal to 1", 1),
    ("temperature", 1.5, "Temperature must be between 0 and 1", 1),
    ("temperature", 0.0, "temperature 取值范围为 [0.01, 1] 参数有误", 0.01),
    ("top_p", 0.9, "top_p must be 1 when using greedy sampling.", 1),
]


@pytest.mark.parametrize(("name", "sent", "text", "value"), SET_TO)
def test_a_parameter_is_set_to_the_value_that_the_error_allows(
    name: str, sent: float, text: str, value: float
) -> None:
    body = {"messages": [], name: sent}
    assert changes_asked_for(text, body) == {name: SetTo(value)}
    assert changes_asked_for(text, {**body, name: value}) == {name: None}


def test_a_number_that_is_too_large_for_a_float_is_not_an_allowed_value() -> None:
    error = f"invalid temperature: only {'9' * 400} is allowed"
    assert changes_asked_for(error, {"temperature": 0.0}) == {"temperature": None}


def test_what_was_set_once_and_is_refused_again_is_left_out() -> None:
    """Two errors that contradict each other would go on for ever."""
    first = merged_changes({"stop": None}, {"temperature": SetTo(1)})
    assert first == {"stop": None, "temperature": SetTo(1)}
    assert merged_changes(first, {"temperature": SetTo(0.6)}) == {"stop": None, "temperature": None}
