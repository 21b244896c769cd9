from __future__ import annotations

import json
from typing import Any

import pytest

from eval_factory.endpoint import openai_answers


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"choices": []},
        {"error": {"message": "x"}},
        {"choices": ["x"]},
        {"choices": [{"foo": 1}]},
        {"choices": [{"message": None, "finish_reason": None}]},
        {"choices": [{"message": ["a"]}]},
        {"choices": [{"message": {"content": ""}, "finish_reason": "error"}]},
        {
            "choices": [
                {"message": {"content": "a"}, "finish_reason": "stop", "error": {"code": 502}}
            ]
        },
        {"choices": [{"message": {"content": "a"}}, {"message": None}]},
    ],
)
def test_answers_that_are_none(answer: Any) -> None:
    with pytest.raises(openai_answers.UnusableAnswer):
        openai_answers.read_answer(answer, "chat")


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"text": None},
        {"message": {"content": True}},
        {"text": "", "finish_reason": "error"},
        {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": ["b"]}},
        {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [10**400]}},
    ],
)
def test_completions_that_are_none(choice: dict[str, Any]) -> None:
    with pytest.raises(openai_answers.UnusableAnswer):
        openai_answers.read_answer({"choices": [choice]}, "completions")


def test_what_a_provider_says_inside_a_choice_is_told() -> None:
    choice = {
        "message": {"content": ""},
        "finish_reason": "error",
        "error": {"message": "provider died"},
    }
    with pytest.raises(openai_answers.UnusableAnswer, match="provider died"):
        openai_answers.read_answer({"choices": [choice]}, "chat")


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_a_filter_may_withhold_the_whole_message(kind: str) -> None:
    (choice,) = openai_answers.read_answer({"choices": [{"finish_reason": "content_filter"}]}, kind)
    assert (choice.text, choice.finish_reason) == ("", openai_answers.FILTERED)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (rb'"A \ud83d"', "A \ufffd"),
        (rb'"\uDE00 A"', "\ufffd A"),
        (b'"A \xed\xa0\xbd"', "A \ufffd"),
        ('"A \ud83d"'.encode("utf-16", "surrogatepass"), "A \ufffd"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        ('"\U0001f600 ä"'.encode(), "\U0001f600 ä"),
        (b'"\xef\xbf\xbd"', "\ufffd"),
        (rb'"\\ud83d"', r"\ud83d"),
        (rb'{"a": [{"\ud83d": 1}]}', {"a": [{"\ufffd": 1}]}),
    ],
)
def test_half_a_surrogate_pair_is_replaced(data: bytes, text: object) -> None:
    assert openai_answers.parse_answer(data) == text


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 200_000 + b"]" * 200_000, b"1" * 5000 + b"]"])
def test_not_json(data: bytes) -> None:
    with pytest.raises(openai_answers.UnusableAnswer, match="not JSON"):
        openai_answers.parse_answer(data)


@pytest.mark.parametrize(
    "odd",
    [
        b'"x": NaN',
        b'"x": [{"y": -Infinity}]',
        b'"x": 1e999',
        b'"x": ' + b"7" * 6000,
        b'"x": "\xe9\xff"',
        b'"usage": {"prompt_tokens": ' + b"7" * 6000 + b"}",
    ],
)
def test_what_nobody_reads_does_not_cost_the_answer(odd: bytes) -> None:
    said = b'{"choices": [{"message": {"content": "B"}, "finish_reason": "stop"}], ' + odd + b"}"
    completion = openai_answers.completion_of(openai_answers.parse_answer(said), "chat")
    assert completion.choices[0].text == "B"
    assert completion.tokens == (None, None)
    assert json.loads(json.dumps(completion.body, allow_nan=False)) == completion.body


@pytest.mark.parametrize("odd", [b"NaN", b"-Infinity", b"1e999", b"7" * 6000])
def test_a_log_probability_that_is_no_number_costs_the_answer(odd: bytes) -> None:
    logprobs = b'{"tokens": ["B"], "token_logprobs": [' + odd + b"]}"
    said = b'{"choices": [{"text": "B", "logprobs": ' + logprobs + b"}]}"
    with pytest.raises(openai_answers.UnusableAnswer, match="not finite"):
        openai_answers.parse_answer(said)


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "a"}, "a", None),
        ({"content": None}, "", None),
        ({}, "", None),
        ({"content": "a", "reasoning_content": "r"}, "a", "r"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab", None),
        ({"content": ["a", "b"]}, "ab", None),
        ({"content": ["a", {"type": "text", "text": "b"}, {"type": "image"}]}, "ab", None),
        ({"content": {"type": "text", "text": "a"}}, "a", None),
    ],
)
def test_chat_content(message: dict[str, Any], text: str, reasoning: str | None) -> None:
    (choice,) = openai_answers.read_answer(
        {"choices": [{"message": message, "finish_reason": "stop"}]}, "chat"
    )
    assert (choice.text, choice.reasoning, choice.finish_reason) == (text, reasoning, "stop")


def test_logprobs_of_completions() -> None:
    answer = {
        "choices": [
            {"text": "ab", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [None, -1.0]}}
        ]
    }
    assert openai_answers.read_answer(answer, "completions")[0].tokens == (("a", 0.0), ("b", -1.0))
    assert (
        openai_answers.read_answer({"choices": [{"text": "ab", "logprobs": None}]}, "completions")[
            0
        ].tokens
        == ()
    )


@pytest.mark.parametrize("count", [10**30, 2**53 + 1, -5, True, "3", 3.0, None])
def test_a_count_of_tokens_that_is_none(count: Any) -> None:
    assert openai_answers.token_counts_of(
        {"usage": {"prompt_tokens": count, "completion_tokens": 4}}
    ) == (
        None,
        4,
    )
    assert openai_answers.token_counts_of(
        {"usage": {"prompt_tokens": 0, "completion_tokens": 2**53}}
    ) == (
        0,
        2**53,
    )
    assert (
        openai_answers.token_counts_of({"usage": None})
        == openai_answers.token_counts_of({})
        == (None, None)
    )


def test_large_numbers_are_numbers() -> None:
    assert openai_answers.parse_answer(b"[1e308, -1.5, 1e-999]") == [1e308, -1.5, 0.0]
    assert openai_answers.parse_strictly('{"a": 1.5}') == {"a": 1.5}
    with pytest.raises(openai_answers.UnusableAnswer, match="not finite"):
        openai_answers.parse_strictly('{"a": -Infinity}')


@pytest.mark.parametrize("value", ["NaN", "inf", float("nan")])
def test_a_chats_log_probability_that_is_not_finite_is_none(value: Any) -> None:
    def answer(logprob: Any) -> dict[str, Any]:
        content = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": logprob}]
        return {"choices": [{"message": {"content": "ab"}, "logprobs": {"content": content}}]}

    assert openai_answers.logprobs_in(answer(-1)) == (("a", -0.5), ("b", -1.0))
    assert openai_answers.logprobs_in(answer(value)) == ()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "the answer holds no choices"),
        ({"choices": [], "detail": {"a": 1}}, "the answer holds no choices"),
        ({"choices": [], "message": "busy"}, "the answer holds no choices: busy"),
        ({"error": {"a": 1}}, "an error object came with status 200: an error without a message"),
        ({"choices": [{"error": {"a": 1}}]}, "a choice holds an error: an error without a message"),
    ],
)
def test_only_an_error_object_counts_as_an_error_without_a_message(
    answer: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai_answers.UnusableAnswer) as error:
        openai_answers.read_answer(answer, "chat")
    assert str(error.value) == message


@pytest.mark.parametrize("values", [["NaN"], ["inf"], [1.7e308, 1.7e308], [float("nan")]])
def test_log_probabilities_that_no_file_can_hold(values: list[Any]) -> None:
    logprobs = {"tokens": ["a"] * len(values), "token_logprobs": values}
    with pytest.raises(openai_answers.UnusableAnswer, match="not finite"):
        openai_answers.read_answer(
            {"choices": [{"text": "a", "logprobs": logprobs}]}, "completions"
        )


@pytest.mark.parametrize(
    ("indices", "texts"),
    [
        ([0, 1, 2], "abc"),
        ([2, 0, 1], "bca"),
        ([5, 3, 9], "bac"),
        ([1, 0, 1], "abc"),
        ([1, None, 0], "abc"),
        ([True, 0, 2], "abc"),
        (["2", "1", "0"], "abc"),
    ],
)
def test_choices_come_in_the_order_of_their_indices(indices: list[Any], texts: str) -> None:
    choices = [{"index": index, "text": text} for index, text in zip(indices, "abc", strict=True)]
    assert (
        "".join(
            choice.text
            for choice in openai_answers.read_answer({"choices": choices}, "completions")
        )
        == texts
    )


def test_a_completion_is_all_that_is_read_of_an_answer() -> None:
    body = {
        "choices": [{"text": "a"}, {"text": "b"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    completion = openai_answers.completion_of(body, "completions")
    assert completion.body is body
    assert [choice.text for choice in completion.choices] == ["a", "b"]
    assert completion.tokens == (3, 4)
    with pytest.raises(openai_answers.UnusableAnswer, match="no choices"):
        openai_answers.completion_of({}, "completions")


@pytest.mark.parametrize(
    ("granted", "given", "advice"),
    [(512, 9, "num_ctx"), (512, 512, "num_output_tokens"), (5, None, "num_output_tokens")],
)
def test_the_advice_for_a_cut_off_answer_follows_from_its_tokens(
    granted: int, given: int | None, advice: str
) -> None:
    assert advice in openai_answers.cut_off_advice(granted, given)


@pytest.mark.parametrize(
    ("stated", "is_path"),
    [
        ("/models/llama.gguf", True),
        ("./m", True),
        ("C:\\models\\m", True),
        ("llama-3.Q4.gguf", True),
        ("org/model", False),
        ("model", False),
        (None, False),
        (7, False),
    ],
)
def test_a_path_in_place_of_a_model_is_known(stated: Any, is_path: bool) -> None:
    assert openai_answers.states_path("org/model", stated) is is_path
    assert openai_answers.states_path(str(stated), stated) is False


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 800}}, 800),
        ({"prompt_tokens": 12, "cache_read_input_tokens": 800}, 800),
        ({"cache_creation_input_tokens": 700, "cache_read_input_tokens": 100}, 800),
        ({"prompt_cache_hit_tokens": 800, "prompt_cache_miss_tokens": 100}, 800),
        ({"prompt_tokens": 900, "cached_tokens": 800}, 800),
        # the same tokens, stated twice
        ({"prompt_cache_hit_tokens": 64, "prompt_tokens_details": {"cached_tokens": 64}}, 64),
        ({"cached_tokens": 64, "prompt_tokens_details": {"cached_tokens": 70}}, 70),
        ({"prompt_tokens_details": None, "cached_tokens": -5}, 0),
        ({"prompt_tokens_details": {"cached_tokens": "many"}}, 0),
        ([1], 0),
        (None, 0),
    ],
)
def test_tokens_from_a_cache(usage: object, cached: int) -> None:
    assert openai_answers.cached_tokens_of({"usage": usage}) == cached


@pytest.mark.parametrize(
    ("charset", "text"),
    [("ISO-8859-1", "caf\u00e9"), ('"gbk"', "\u7b54\u6848"), ("windows-1252", "\u201cB\u201d")],
)
def test_what_is_no_utf_8_is_read_in_the_encoding_that_it_names(charset: str, text: str) -> None:
    data = f'{{"a": "{text}"}}'.encode(charset.strip('"'))
    said = openai_answers.parse_answer(data, f"application/json; Charset={charset}")
    assert said == {"a": text}
    replaced = openai_answers.parse_answer(data, "application/json; charset=no-such")["a"]
    assert "\ufffd" in replaced
    assert openai_answers.parse_answer(b'{"a": "\xc3\xa9"}', "x; charset=latin-1") == {
        "a": "\u00e9"
    }


@pytest.mark.parametrize("kind", ["chat", "completions"])
@pytest.mark.parametrize(
    "choice",
    [
        {"text": "7"},
        {"message": "7"},
        {"message": {"content": "7"}},
        {"message": {"content": 7}},
        {"delta": {"content": "7"}, "message": None},
    ],
)
def test_a_choice_in_a_field_of_another_kind_is_read(choice: dict[str, Any], kind: str) -> None:
    for choices in ([choice], choice):
        answer = openai_answers.unwrapped({"choices": choices})
        assert openai_answers.read_answer(answer, kind)[0].text == "7"


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_the_own_field_of_a_kind_goes_before_others(kind: str) -> None:
    answer = {"choices": [{"text": "completions", "message": {"content": "chat"}, "delta": {}}]}
    assert openai_answers.read_answer(answer, kind)[0].text == kind


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<!DOCTYPE html><html><head><title> Sign in </title>", "a web page: Sign in"),
        (b"\n<HTML><body>x", "a web page"),
        (b"<xml>", ""),
    ],
)
def test_a_web_page_is_named(body: bytes, words: str) -> None:
    with pytest.raises(openai_answers.UnusableAnswer) as raised:
        openai_answers.parse_answer(body)
    assert words in str(raised.value)
    assert ("web page" in str(raised.value)) is bool(words)
