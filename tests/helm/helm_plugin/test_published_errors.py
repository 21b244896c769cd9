"""Tests of what Claude's and Gemini's OpenAI-compatible endpoints are known to say, through the client that HELM loads.

The forms are those of the providers' pages and of public threads (LiteLLM #3286 and #15097, inspect_ai #3721, page-assist
#418), as far as these quote what an endpoint sent; no endpoint was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm.common.request import Request, RequestResult

from eval_factory.core.failure_causes import hint_for
from eval_factory.core.logs import WARNING
from eval_factory.endpoint import openai_answers
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.helm_plugin import client, session
from loopback import Handler, Loopback
from scripted_endpoint import ADAPTER

ASKED = Request(
    model="m/m",
    model_deployment="m/m",
    prompt="p",
    max_tokens=5,
    temperature=0.0,
    stop_sequences=["\n"],
    presence_penalty=0.5,
    frequency_penalty=0.5,
    num_completions=2,
)


def answer(reason: str = "stop", **choice: Any) -> dict[str, Any]:
    return {
        "choices": [{"index": 0, "finish_reason": reason, **choice}],
        "usage": {"prompt_tokens": 3},
    }


GOOD = answer(message={"role": "assistant", "content": "B\nThe next question:"})


def claude(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def gemini(
    message: str, code: int = 400, status: str = "INVALID_ARGUMENT", *details: Any
) -> list[Any]:
    return [{"error": {"code": code, "message": message, "status": status, "details": details}}]


class Endpoint(Loopback):
    """Gives the replies in their order: status, body, headers; `client` is HELM's client of it."""

    def __init__(self, folder: Path) -> None:
        self.replies: list[tuple[int, Any, dict[str, str]]] = []
        self.sent: list[dict[str, Any]] = []
        endpoint = self

        class Scripted(Handler):
            def reply(self) -> None:
                endpoint.sent.append(json.loads(self.body()))
                status, body, headers = endpoint.replies.pop(0)
                self.answer(status, json.dumps(body, indent=2).encode(), headers)

        super().__init__(Scripted)
        settings = {
            "role": "model",
            "url": f"{self.origin}/v1beta/openai/",
            "model_id": "m",
            "endpoint_type": "chat",
            "key_names": [],
            "request_timeout": 5,
            "max_retries": 1,
            "parallelism": 1,
            "adapter": ADAPTER,
        }
        self.client = client.Endpoint(
            EndpointSettings.from_args(settings), session.session_for(folder)
        )

    def ask(self, *replies: tuple[int, Any, dict[str, str]]) -> RequestResult:
        self.replies += replies
        return self.client.make_request(ASKED)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with Endpoint(tmp_path) as entered:
        yield entered


def warnings_in(folder: Path) -> list[str]:
    events = map(json.loads, (folder / "logs" / "events.jsonl").read_text("utf-8").splitlines())
    return [event["message"] for event in events if event["event"] == WARNING]


ONE_OF_TWO = (
    "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
)
UNKNOWN = 'Invalid JSON payload received. Unknown name "{}": Cannot find field.'
PENALTIES = "\n".join(map(UNKNOWN.format, ("frequency_penalty", "presence_penalty")))


@pytest.mark.parametrize(
    ("refusals", "left_out"),
    [
        ([claude(ONE_OF_TWO)], ["top_p"]),
        (
            [{"error": {"type": "invalid_request_error", "message": ONE_OF_TWO, "param": None}}],
            ["top_p"],
        ),
        (
            [
                claude(f"`{name}` is deprecated for this model.")
                for name in ("temperature", "top_p")
            ],
            ["temperature", "top_p"],
        ),
        ([claude("stop_sequences: each stop sequence must contain non-whitespace")], ["stop"]),
        (
            [gemini(PENALTIES), gemini(UNKNOWN.format("frequency_penalty"))],
            ["presence_penalty", "frequency_penalty"],
        ),
    ],
    ids=["two at once", "in OpenAI's form", "both", "a line's end as a stop", "unknown names"],
)
def test_a_parameter_that_is_refused_is_left_out(
    endpoint: Endpoint, tmp_path: Path, refusals: list[Any], left_out: list[str]
) -> None:
    result = endpoint.ask(*((400, body, {}) for body in refusals), (200, GOOD, {}))
    assert result.completions[0].text == "B", "cut at the stop sequence, whoever was told of it"
    assert sorted(endpoint.sent[0].keys() - endpoint.sent[-1].keys()) == sorted(left_out)
    assert [told.split(":")[0] for told in warnings_in(tmp_path)] == [
        f"the endpoint refuses {one}" for one in left_out
    ]
    assert len(endpoint.sent) == len(refusals) + 1


def quota(delay: str) -> list[Any]:
    of_google = "type.googleapis.com/google.rpc."
    details = [
        {"@type": f"{of_google}QuotaFailure"},
        {"@type": f"{of_google}RetryInfo", "retryDelay": delay},
    ]
    return gemini("You exceeded your current quota.", 429, "RESOURCE_EXHAUSTED", *details)


@pytest.mark.parametrize(
    ("status", "body", "headers", "pause"),
    [
        (429, quota("17s"), {}, 17.0),
        (429, quota("17.416738s"), {}, 17.416738),
        (429, quota("500s"), {}, 120.0),
        (429, quota("17s"), {"Retry-After": "9"}, 9.0),
        (429, quota("soon"), {}, None),
        (503, gemini("The model is overloaded.", 503, "UNAVAILABLE"), {}, None),
        (
            429,
            claude("This request would exceed your rate limit.", "rate_limit_error"),
            {"retry-after": "7"},
            7.0,
        ),
        (529, claude("Overloaded", "overloaded_error"), {}, None),
    ],
)
def test_what_passes_is_tried_again_after_the_pause_that_is_asked_for(
    endpoint: Endpoint, monkeypatch: Any, status: int, body: Any, headers: Any, pause: float | None
) -> None:
    """Where none is asked for, after a moment."""
    waited = list[float]()
    monkeypatch.setattr(endpoint.client._client._stop, "wait", waited.append)
    assert endpoint.ask((status, body, headers), (200, GOOD, {})).success
    assert len(waited) == 1
    assert waited == [pause] if pause is not None else waited[0] < 5


@pytest.mark.parametrize(
    ("body", "said", "hint"),
    [
        (
            claude("prompt is too long: 215061 tokens > 200000 maximum"),
            "prompt is too long: 215061 tokens",
            "max_length",
        ),
        (
            gemini("Multiple candidates is not enabled for this model"),
            "Multiple candidates is not enabled",
            None,
        ),
        (
            gemini(UNKNOWN.format("seed")),
            'Invalid JSON payload received. Unknown name "seed"',
            "params_to_remove",
        ),
    ],
)
def test_what_is_refused_for_good_costs_one_instance_and_is_shown(
    endpoint: Endpoint, body: Any, said: str, hint: str | None
) -> None:
    error = str(endpoint.ask((400, body, {})).error)
    assert error.startswith(f"HTTP 400: {said}")
    assert (hint or "") in (hint_for(error, "model") or "")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, claude("invalid x-api-key", "authentication_error"), "it says: invalid x-api-key"),
        (404, claude("model: claude-9", "not_found_error"), "it says: model: claude-9"),
        (
            404,
            gemini("models/gemini-9 is not found.", 404, "NOT_FOUND"),
            "it says: models/gemini-9 is not found.",
        ),
    ],
)
def test_a_wrong_key_or_model_stops_the_run(
    endpoint: Endpoint, status: int, body: Any, said: str
) -> None:
    with pytest.raises(client.EndpointStopped) as stopped:
        endpoint.ask((status, body, {}))
    assert said in str(stopped.value)


@pytest.mark.parametrize(
    "body",
    [
        answer("content_filter: PROHIBITED_CONTENT"),
        answer("content_filter: RECITATION", message={}),
        answer("content_filter", message={"role": "assistant", "content": None}),
    ],
)
def test_a_safety_stop_is_counted_as_filtered(endpoint: Endpoint, body: Any) -> None:
    assert endpoint.ask((200, body, {})).error == openai_answers.FILTERED_MESSAGE
    assert endpoint.ask().error == openai_answers.FILTERED_MESSAGE, "from the cache, too"


@pytest.mark.parametrize("message", [{"role": "assistant"}, {"role": "assistant", "content": None}])
def test_thoughts_that_use_up_all_tokens_are_an_empty_answer(
    endpoint: Endpoint, tmp_path: Path, message: Any
) -> None:
    assert endpoint.ask((200, answer("length", message=message), {})).completions[0].text == ""
    (warning,) = warnings_in(tmp_path)
    assert "set config.params.extra.num_output_tokens" in warning
