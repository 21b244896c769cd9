"""Answers in servers' own forms are read where they have one text, and their addresses known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eval_factory.endpoint import native_answers, openai_answers
from eval_factory.endpoint.native_answers import CONVERTED_FROM, openai_address

GEMINI_PARTS = [{"text": "hm", "thought": True}, {"text": "B"}, {"text": " it is"}]
FORMS: list[tuple[str, Any, tuple[str, str | None, str | None], tuple[int | None, int | None]]] = [
    (
        "Ollama",
        {
            "model": "m",
            "message": {"role": "assistant", "content": "B", "thinking": "hm"},
            "done": True,
            "done_reason": "length",
            "prompt_eval_count": 9,
            "eval_count": 2,
        },
        ("B", "length", "hm"),
        (9, 2),
    ),
    ("Ollama", {"model": "m", "response": "B", "done": True}, ("B", None, None), (None, None)),
    (
        "Anthropic",
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "B"}],
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 9, "output_tokens": 2},
        },
        ("B", "length", "hm"),
        (9, 2),
    ),
    (
        "Gemini",
        {
            "candidates": [{"content": {"parts": GEMINI_PARTS}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2},
        },
        ("B it is", "stop", None),
        (9, 2),
    ),
    (
        "Gemini",
        {"candidates": [{"finishReason": "SAFETY"}]},
        ("", "content_filter", None),
        (None, None),
    ),
    (
        "Gemini",
        {"promptFeedback": {"blockReason": "OTHER"}},
        ("", "content_filter", None),
        (None, None),
    ),
    (
        "Amazon Bedrock",
        {
            "output": {"message": {"role": "assistant", "content": [{"text": "B"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 9, "outputTokens": 2},
        },
        ("B", "stop", None),
        (9, 2),
    ),
    (
        "Cohere",
        {
            "id": "c",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "B"}]},
            "finish_reason": "COMPLETE",
            "usage": {"tokens": {"input_tokens": 9, "output_tokens": 2}},
        },
        ("B", "stop", None),
        (9, 2),
    ),
    (
        "Cohere",
        {"text": "B", "generation_id": "g", "finish_reason": "MAX_TOKENS"},
        ("B", "length", None),
        (None, None),
    ),
    (
        "Text Generation Inference",
        [{"generated_text": "B", "details": {"finish_reason": "eos_token", "generated_tokens": 2}}],
        ("B", "stop", None),
        (None, 2),
    ),
    ("Triton", {"model_name": "m", "text_output": "B"}, ("B", None, None), (None, None)),
    ("KServe", {"predictions": ["B"]}, ("B", None, None), (None, None)),
    (
        "OpenAI's Responses API",
        {
            "object": "response",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [
                {"type": "reasoning", "summary": []},
                {"type": "message", "content": [{"type": "output_text", "text": "B"}]},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 2},
        },
        ("B", "length", None),
        (9, 2),
    ),
    (
        "llama.cpp",
        {"content": "B", "stop": True, "stop_type": "limit", "tokens_evaluated": 9},
        ("B", "length", None),
        (9, None),
    ),
    (
        "DashScope",
        {"output": {"text": "B", "finish_reason": "stop"}, "request_id": "r"},
        ("B", "stop", None),
        (None, None),
    ),
    (
        "watsonx",
        {"model_id": "m", "results": [{"generated_text": "B", "stop_reason": "eos_token"}]},
        ("B", "stop", None),
        (None, None),
    ),
    (
        "Qianfan",
        {"result": "B", "need_clear_history": False, "finish_reason": "normal"},
        ("B", "stop", None),
        (None, None),
    ),
]


def read(body: Any, kind: str = "chat") -> openai_answers.Completion:
    parsed = openai_answers.parse_answer(json.dumps(body).encode())
    return openai_answers.completion_of(openai_answers.unwrapped(parsed), kind)


@pytest.mark.parametrize("kind", ["chat", "completions"])
@pytest.mark.parametrize(("server", "body", "choice", "tokens"), FORMS)
def test_the_text_of_each_form_is_read(
    server: str,
    body: Any,
    choice: tuple[str, str | None, str | None],
    tokens: tuple[int | None, int | None],
    kind: str,
) -> None:
    completion = read(body, kind)
    (read_choice,) = completion.choices
    assert (read_choice.text, read_choice.finish_reason) == choice[:2]
    if kind == "chat":
        assert read_choice.reasoning == choice[2]
    assert completion.tokens == tokens
    assert completion.body[CONVERTED_FROM] == server
    # as it is read again from the cache
    again = openai_answers.completion_of(
        openai_answers.parse_strictly(json.dumps(completion.body)), kind
    )
    assert again == completion


def test_every_form_of_the_table_is_tried() -> None:
    assert {server for server, *_ in FORMS} == {form.server for form in native_answers._forms()}


@pytest.mark.parametrize(
    "body",
    [
        {"candidates": [{"content": {"parts": [{"text": "A"}]}}] * 2},  # two answers
        {"candidates": []},
        {"predictions": ["A", "B"]},
        {"predictions": [{"label": "B"}]},
        {"message": {"content": None}, "done": False},
        {"message": "an error", "done": True},
        {"content": [{"type": "tool_use"}], "stop_reason": "tool_use", "role": "assistant"},
        {"response": "B"},
        {"error": "no", "response": "B", "done": True},
        [{"generated_text": "A"}, {"generated_text": "B"}],
        [],
        "B",
        "{broken",
    ],
)
def test_what_has_no_text_or_two_is_no_answer(body: Any) -> None:
    with pytest.raises(openai_answers.UnusableAnswer):
        read(body)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n[DONE]", "\n\n[DONE]\n"])
@pytest.mark.parametrize("between", ["\n", "\n\n", "\r\n\r\n"])
def test_blank_lines_and_the_end_of_a_native_stream_are_no_part_of_it(
    between: str, end: str
) -> None:
    lines = [
        {"message": {"content": "B"}, "done": False},
        {"message": {"content": ""}, "done": True, "done_reason": "stop"},
    ]
    data = between.join(map(json.dumps, lines)) + end
    parsed = openai_answers.parse_answer(data.encode(), "application/x-ndjson")
    assert openai_answers.completion_of(parsed, "chat").choices[0].text == "B"


def test_json_that_the_model_wrote_is_its_text() -> None:
    text = json.dumps({"question": "q", "choices": ["a", "b"]})
    completion = read({"model": "m", "response": text, "done": True, "done_reason": "stop"})
    assert completion.choices[0].text == text


def test_lines_of_a_native_stream_are_one_answer() -> None:
    lines = [
        {"model": "m", "message": {"role": "assistant", "content": "B\u2028"}, "done": False},
        {"model": "m", "message": {"content": " it is"}, "done": False},
        {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop"},
    ]
    for content_type in ("application/x-ndjson", ""):
        data = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()
        parsed = openai_answers.parse_answer(data, content_type)
        (choice,) = openai_answers.completion_of(parsed, "chat").choices
        assert (choice.text, choice.finish_reason) == ("B\u2028 it is", "stop")
        assert parsed[CONVERTED_FROM] == "Ollama"
        with pytest.raises(openai_answers.UnusableAnswer, match=openai_answers.STREAM_CUT):
            openai_answers.parse_answer(data.rpartition(b"\n")[0], content_type)


ANSWER = {"choices": [{"index": 0, "message": {"content": "B"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(ANSWER),
        [ANSWER],
        {"statusCode": 200, "body": json.dumps(ANSWER)},
        [{"data": ANSWER}],
    ],
)
def test_what_a_gateways_function_puts_around_an_answer(body: Any) -> None:
    assert read(body).choices[0].text == "B"


def test_an_answer_of_openais_form_is_left_as_it_is() -> None:
    answer = {**ANSWER, "candidates": [], "response": "A", "done": True}
    assert openai_answers.unwrapped(answer) is answer


@pytest.mark.parametrize(
    ("url", "server", "address"),
    [
        ("http://h:11434/api/chat", "Ollama", "http://h:11434/v1"),
        ("https://g/a/api/generate/", "Ollama", "https://g/a/v1"),
        ("https://api.anthropic.com/v1/messages", "Anthropic", "https://api.anthropic.com/v1"),
        (
            "https://generativelanguage.googleapis.com/v1beta",
            "Gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        (
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/a.b-v1:0/converse",
            "Amazon Bedrock",
            "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1",
        ),
        ("https://api.cohere.com/v2/chat", "Cohere", "https://api.cohere.com/compatibility/v1"),
        ("http://h/generate", "Text Generation Inference", "http://h/v1"),
        ("http://h/v2/models/m/generate", "Triton", "http://h/openai/v1"),
        ("http://h/v1/models/m:predict", "KServe", "http://h/openai/v1"),
        (
            "https://api.openai.com/v1/responses",
            "OpenAI's Responses API",
            "https://api.openai.com/v1",
        ),
    ],
)
def test_the_address_of_the_compatible_api_follows(url: str, server: str, address: str) -> None:
    assert openai_address(url) == (server, address)


@pytest.mark.parametrize(
    "url",
    ["http://h/v1", "http://h", "https://g/openai/v1", "http://h/v2", "http://h/v1beta/openai"],
)
def test_other_addresses_are_native_to_nobody(url: str) -> None:
    assert openai_address(url) is None
