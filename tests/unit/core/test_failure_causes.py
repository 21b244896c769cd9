"""Tests that errors with the same text, except for numbers and ids, are one cause."""

from __future__ import annotations

import pytest

from eval_factory.core.failure_causes import (
    _MAX_CAUSES,
    _OTHERS,
    _UNKNOWN,
    MAX_CAUSE,
    Causes,
    hint_for,
    is_not_about_key,
    is_permanent,
)
from eval_factory.core.results import MODEL_ROLE


def listed(*errors: str | None) -> list[tuple[int, str]]:
    causes = Causes()
    for error in errors:
        causes.add(MODEL_ROLE, error)
    return [(cause.count, cause.cause) for cause in causes.listed()]


@pytest.mark.parametrize(
    ("errors", "cause"),
    [
        (
            [
                "HTTP 400: This model's maximum context length is 768 tokens. However, you requested 812 tokens (802 in the messages, 10 in the completion).",
                "HTTP 400: This model's maximum context length is 768 tokens. However, you requested 1,901 tokens (1891 in the messages, 10 in the completion).",
            ],
            "HTTP 400: This model's maximum context length is 768 tokens. However, you requested ... tokens (... in the messages, 10 in the completion).",
        ),
        (
            ["HTTP 500: request req_8fA21 failed", "HTTP 500: request req_77bQ0 failed"],
            "HTTP 500: request ... failed",
        ),
        (
            [
                "HTTP 500: trace 0d9e2f1a-77aa-4c1e-9a11-0123456789ab",
                "HTTP 500: trace 1d9e2f1a-77aa-4c1e-9a11-0123456789ab",
            ],
            "HTTP 500: trace ...",
        ),
        (["HTTP 400: no field 'alpha'", "HTTP 400: no field 'beta'"], "HTTP 400: no field ..."),
        (['HTTP 400: no field "alpha"'] * 2, 'HTTP 400: no field "alpha"'),
        (
            ["HTTP 400: at 12:01:59 of 3.5 s", "HTTP 400: at 12:02:00 of 3.5 s"],
            "HTTP 400: at ... of 3.5 s",
        ),
        (["HTTP 400: gpt-4 takes 5", "HTTP 400: gpt-4 takes 7"], "HTTP 400: gpt-4 takes ..."),
        ([None, None], _UNKNOWN),
        (["HTTP 400: \x1b[2J\nfalse", "HTTP 400: \x1b[2J\nfalse"], "HTTP 400: \\x1b[2J false"),
    ],
)
def test_what_varies_is_left_out(errors: list[str | None], cause: str) -> None:
    assert listed(*errors) == [(2, cause)]


@pytest.mark.parametrize(
    ("errors", "causes"),
    [
        # a single error is listed without `...`
        (
            ["HTTP 400: request req_8fA21: 12 'x'"],
            [(1, "HTTP 400: request req_8fA21: 12 'x'")],
        ),
        # errors with different statuses have different causes
        (
            ["HTTP 500: no", "HTTP 502: no"],
            [(1, "HTTP 500: no"), (1, "HTTP 502: no")],
        ),
        (["code 500", "code 502"], [(2, "code ...")]),
        (["x" * 1000], [(1, "x" * MAX_CAUSE)]),
        (
            ["HTTP 500: b", "HTTP 400: a", "HTTP 422: c"],
            [(1, "HTTP 400: a"), (1, "HTTP 422: c"), (1, "HTTP 500: b")],
        ),
    ],
)
def test_what_is_one_cause(errors: list[str], causes: list[tuple[int, str]]) -> None:
    assert listed(*errors) == listed(*reversed(errors)) == causes


def test_the_most_frequent_comes_first_and_the_rest_is_counted() -> None:
    words = [
        "".join(chr(ord("a") + int(digit)) for digit in f"{number:03d}")
        for number in range(_MAX_CAUSES + 3)
    ]
    errors = [*words, *words[-4:], words[-1]]
    found = listed(*errors)
    assert found[0] == (3, words[-1])
    assert [count for count, _ in found[1:4]] == [2, 2, 2]
    assert len(found) == _MAX_CAUSES + 1
    assert found[-1] == (3, _OTHERS)
    assert sum(count for count, _ in found) == len(errors)


def test_the_model_comes_before_its_judges() -> None:
    causes = Causes()
    for role in ("b", "a", "b", MODEL_ROLE):
        causes.add(role, "no")
    assert [(one.role, one.count, one.role == MODEL_ROLE) for one in causes.listed()] == [
        (MODEL_ROLE, 1, True),
        ("a", 1, False),
        ("b", 2, False),
    ]


@pytest.mark.parametrize(
    ("error", "model", "judge"),
    [
        (
            "HTTP 400: This model's maximum context length is 768 tokens",
            "max_length",
            "longer prompts",
        ),
        (
            "HTTP 400: prompt is too long: 210000 tokens > 200000 maximum",
            "max_length",
            "longer prompts",
        ),
        (
            "HTTP 500: Requested tokens (900) exceed context window of 512",
            "max_length",
            "longer prompts",
        ),
        (
            "HTTP 422: inputs must have less than 1024 tokens. Given: 2000",
            "max_length",
            "longer prompts",
        ),
        ("HTTP 429 (rate limit): Request too large for gpt-4", "max_length", "longer prompts"),
        ("HTTP 413: Payload Too Large", "max_length", "limit for a request"),
        (
            "HTTP 429 (rate limit): slow down",
            "requests_per_minute",
            "requests_per_minute in extra.judges",
        ),
        ("HTTP 498 (rate limit): slow down", "requests_per_minute", "requests_per_minute"),
        ("HTTP 429 (rate limit): You exceeded your current quota", "no credit", "no credit"),
        (
            "HTTP 429: You exceeded your current quota. * Quota exceeded for metric: x",
            "per_minute",
            "per_minute",
        ),
        ("HTTP 400: filtered due to the content management policy", "filter", "filter"),
        ("HTTP 403: Input flagged", "filter", "filter"),
        ("no whole answer within 120 s", "request_timeout", "request_timeout"),
        ("HTTP 504: Gateway Time-out", "endpoint's side", "side of the judge's"),
        ("HTTP 504: upstream timed out", "request_timeout", "request_timeout"),
        ("HTTP 400: Unsupported value: 'temperature'", "params_to_remove", "temperature"),
        ("HTTP 403: not allowed", "api_key", "judge's key"),
        (
            "Authentication error detected: http://h answers 401 it says: no",
            "api_key",
            "judge's key",
        ),
        ("HTTP 404: no model", "model_id", "model_id"),
        ("the answer is not JSON", "OpenAI-compatible", "the judge's url"),
        ("the answer is not a JSON object", "OpenAI-compatible", "the judge's url"),
        (
            "the answer is not valid HTTP: Duplicate Content-Length",
            "OpenAI-compatible",
            "the judge's url",
        ),
        ("the answer changes to another protocol", "OpenAI-compatible", "the judge's url"),
        (
            "the connection was closed before the whole answer came",
            "closes connections",
            "closes connections",
        ),
        ("HTTP 500: boom", "endpoint's side", "side of the judge's"),
        (
            "unusable judgement: it holds no JSON object with the criteria accuracy",
            None,
            "responses/",
        ),
        ("HTTP 400: odd", None, None),
        ("HTTP 418: teapot", None, None),
    ],
)
def test_what_may_help(error: str, model: str | None, judge: str | None) -> None:
    for role, part in ((MODEL_ROLE, model), ("gpt", judge)):
        hint = hint_for(error, role)
        assert hint is None if part is None else part in str(hint)


@pytest.mark.parametrize(
    ("error", "advice", "again"),
    [
        ("HTTP 403: error code: 1010", "User-Agent", False),
        ("HTTP 403: Attention Required! | Cloudflare", "User-Agent", False),
        (
            "HTTP 400: Conversation roles must alternate user/assistant",
            "custom_system_prompt",
            False,
        ),
        ("HTTP 400: System role not supported", "custom_system_prompt", False),
        ("HTTP 400: the content management policy", "min_coverage", False),
        ("HTTP 400: Expected max_tokens >= 16", "num_output_tokens", True),
        ("HTTP 400: store: Extra inputs are not permitted", "params_to_remove", True),
        ("HTTP 500: broken", "endpoint's log", True),
    ],
)
def test_an_error_has_one_remedy_and_lasts_or_does_not(
    error: str, advice: str, again: bool
) -> None:
    assert advice in str(hint_for(error, MODEL_ROLE))
    assert is_permanent(error) is not again
    causes = Causes()
    assert causes.all_permanent is False
    causes.add(MODEL_ROLE, error)
    assert causes.all_permanent is not again


def test_a_firewall_does_not_speak_of_the_key() -> None:
    assert is_not_about_key("HTTP 403: error code: 1010")
    assert not is_not_about_key("HTTP 403: this key may not use the model")
