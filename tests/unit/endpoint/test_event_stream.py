"""Event streams that nobody asked for: whole ones are answers, cut ones name their cause."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eval_factory.endpoint import openai_answers


def chunk(content: str | None = None, reason: str | None = None, **more: Any) -> str:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": reason, **more}
    return f"data: {json.dumps({'id': 'c1', 'model': 'm', 'choices': [choice]})}\n\n"


USAGE = 'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}\n\n'
DONE = "data: [DONE]\n\n"
CHUNKS = chunk("B: ") + chunk("fever") + chunk(None, "stop")


def read(stream: str, content_type: str = "text/event-stream", kind: str = "chat") -> Any:
    parsed = openai_answers.parse_answer(stream.encode(), content_type)
    return openai_answers.completion_of(parsed, kind)


@pytest.mark.parametrize("end", [DONE, "", USAGE + DONE])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
@pytest.mark.parametrize("begin", ["", ": ping\n\n", "event: message\n"])
@pytest.mark.parametrize("content_type", ["text/event-stream; charset=utf-8", "application/json"])
def test_a_whole_stream_is_an_answer(end: str, line: str, begin: str, content_type: str) -> None:
    completion = read((begin + CHUNKS + end).replace("\n", line), content_type)
    (choice,) = completion.choices
    assert (choice.text, choice.finish_reason) == ("B: fever", "stop")
    assert completion.tokens == ((9, 2) if USAGE in end else (None, None))
    assert completion.body["model"] == "m"
    json.dumps(completion.body, allow_nan=False)


def test_what_was_thought_is_put_together_too() -> None:
    parts = [{"reasoning_content": "hm"}, {"reasoning_content": ", B"}, {"content": "B"}]
    stream = "".join(
        f"data: {json.dumps({'choices': [{'index': 0, 'delta': part}]})}\n\n" for part in parts
    )
    (choice,) = read(stream + DONE).choices
    assert (choice.text, choice.reasoning) == ("B", "hm, B")


def test_a_stream_of_completions() -> None:
    stream = 'data: {"choices": [{"index": 0, "text": "B"}]}\n\n' * 2 + DONE
    (choice,) = read(stream, kind="completions").choices
    assert choice.text == "BB"


@pytest.mark.parametrize("stream", [chunk("B"), "", ": ping\n\n"])
def test_a_cut_stream_is_no_answer_and_names_its_cause(stream: str) -> None:
    with pytest.raises(openai_answers.UnusableAnswer, match="streams"):
        read(stream)


def test_a_stream_with_an_error_is_the_error() -> None:
    with pytest.raises(openai_answers.StatedError) as caught:
        read(chunk("B") + 'data: {"error": {"message": "overloaded", "code": 503}}\n\n')
    assert caught.value.status == 503


def test_an_event_that_is_an_error_alone_is_one() -> None:
    with pytest.raises(openai_answers.StatedError) as caught:
        read('event: error\ndata: {"message": "server overloaded"}\n\n')
    assert caught.value.status == 503


def test_an_answer_behind_comments_is_no_stream() -> None:
    """A gateway keeps the connection alive with comments until the answer is there."""
    message = {"role": "assistant", "content": "B"}
    answer = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert read(": PROCESSING\n\n: PROCESSING\n\n" + answer).choices[0].text == "B"


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c"])
def test_lines_end_where_the_standard_says(sign: str) -> None:
    """Python's `splitlines` ends them at more signs, which a text may hold."""
    data = {"choices": [{"index": 0, "delta": {"content": f"a{sign}b"}, "finish_reason": "stop"}]}
    if sign in "\x0b\x1c":
        stream = f"id: {sign}data: x\ndata: {json.dumps(data)}\n\n"
    else:
        stream = f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
    assert read(stream).choices[0].text == f"a{sign}b"
