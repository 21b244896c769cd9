from __future__ import annotations

from typing import Any

import pytest

from eval_factory.endpoint import openai_api
from eval_factory.endpoint.openai_api import json_text
from scripted_endpoint import ADAPTER

REQUEST: dict[str, Any] = {
    "prompt": "p",
    "messages": None,
    "temperature": 0.0,
    "num_completions": 1,
    "max_tokens": 7,
    "stop_sequences": [],
    "echo_prompt": False,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}


def body(endpoint_type: str = "chat", top_p: float | None = None, **changes: Any) -> dict[str, Any]:
    return openai_api.request_body(
        {**REQUEST, **changes}, model_id="m", endpoint_type=endpoint_type, top_p=top_p
    )


def test_bodies() -> None:
    assert body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "p"}],
        "max_tokens": 7,
        "temperature": 0.0,
        "top_p": 1,
    }
    found = body(
        "completions",
        top_p=0.5,
        stop_sequences=["\n"],
        num_completions=2,
        presence_penalty=0.1,
        frequency_penalty=0.2,
    )
    assert found == {
        "model": "m",
        "prompt": "p",
        "max_tokens": 7,
        "temperature": 0.0,
        "top_p": 0.5,
        "n": 2,
        "stop": ["\n"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
    }
    here = adapter(
        params_to_remove=["top_p"],
        params_to_rename={"max_tokens": "max_completion_tokens"},
        params_to_add={"reasoning_effort": "low"},
        custom_system_prompt="Be brief.",
    )
    assert openai_api.request_body(
        REQUEST, model_id="m", endpoint_type="chat", top_p=None, adapter=here
    ) == {
        "model": "m",
        "max_completion_tokens": 7,
        "temperature": 0.0,
        "reasoning_effort": "low",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "p"}],
    }


def test_a_request_read_back_from_helms_json_gives_the_same_key() -> None:
    """HELM leaves nulls out of its files; the collector has to find the answer all the same."""
    kept = {name: value for name, value in REQUEST.items() if value is not None}
    again = openai_api.request_body(kept, model_id="m", endpoint_type="chat", top_p=None)
    assert openai_api.request_key("u", again, None) == openai_api.request_key("u", body(), None)


@pytest.mark.parametrize(
    "change", [{"prompt": "q"}, {"temperature": 0.1}, {"max_tokens": 8}, {"top_p": 0.9}]
)
def test_everything_that_is_asked_is_in_the_key(change: dict[str, Any]) -> None:
    questions = [
        ("u", body(), None),
        ("u", body(**change), None),
        ("v", body(), None),
        ("u", body(), "1"),
    ]
    assert len({openai_api.request_key(*one) for one in questions}) == 4


def adapter(**changes: Any) -> openai_api.Adapter:
    return openai_api.Adapter(**{**ADAPTER, **changes})


@pytest.mark.parametrize(
    ("text", "scored", "thought"),
    [
        ("B", "B", None),
        (" B ", " B ", None),
        ("<think>hm</think>\n\nB", "B", "hm"),
        ("hm</think> B", "B", "hm"),
        ("<think>hm", "", "hm"),
        ("Well. <think>hm</think>B", "Well. B", "hm"),
        ("<think>a</think>x</think>B", "B", "a</think>x"),
    ],
)
def test_reasoning_is_not_scored(text: str, scored: str, thought: str | None) -> None:
    split = adapter().split_reasoning(text)
    assert (split.answer, split.thought) == (scored, thought)


def test_the_key_of_a_kept_answer_has_the_form_that_it_had() -> None:
    """Another form, and every answer that is kept anywhere is paid for again: then raise KEY_VERSION on purpose."""
    key = openai_api.request_key(
        "http://h/v1", {"model": "m", "messages": [{"role": "user", "content": "ü"}]}, None
    )
    assert key == "011b53665a8f8b0921525651df5809fed64dc89c005c7e335d885206f9c1f56b"


def test_a_changed_body() -> None:
    changes = {"max_tokens": "max_completion_tokens", "temperature": None, "stop": None}
    assert openai_api.with_changes(body(), changes) == {
        "model": "m",
        "messages": [{"role": "user", "content": "p"}],
        "max_completion_tokens": 7,
        "top_p": 1,
    }
    assert openai_api.with_changes(body(), {}) == body()


def test_the_text_is_compact_and_keeps_order_and_letters() -> None:
    body = {"model": "m", "a": [1, {"b": 'ü\n"\ud800'}]}
    assert json_text(body) == '{"model":"m","a":[1,{"b":"ü\\n\\"\ud800"}]}'
