"""The words of servers for why a generation ended, and what each becomes."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from eval_factory.core.finish_reasons import FinishReason
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.endpoint import openai_answers

ROWS = load_packaged("endpoint/finish_reasons.yml")


def answered(reason: Any, kind: str) -> openai_answers.Choice:
    choice = {"message": {"content": "B"}, "text": "B", "finish_reason": reason}
    (read,) = openai_answers.read_answer({"choices": [choice]}, kind)
    return read


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["reasons"][0])
def test_each_row_has_a_kind_and_a_source(row: dict[str, Any]) -> None:
    assert row["kind"] in list(FinishReason)
    assert row["source"]
    assert all(reason == reason.lower() for reason in row["reasons"])


def test_no_word_stands_in_two_rows() -> None:
    words = list(chain.from_iterable(row["reasons"] for row in ROWS))
    assert len(words) == len(set(words))


@pytest.mark.parametrize("endpoint_type", ["chat", "completions"])
@pytest.mark.parametrize(
    ("reason", "becomes"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("sensitive", "content_filter"),
        ("guardrail_intervened", "content_filter"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("content_filtered", "content_filter"),
        ("blocklist", "content_filter"),
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),
        ("refusal", "refusal"),
        ("FINISH_REASON_MAX_TOKENS", "length"),
        ("content-policy-violation", "content_filter"),
        ("context_length_exceeded", "length"),
        ("a_new_word", "a_new_word"),
        (None, None),
        (7, 7),
    ],
)
def test_a_reason_becomes_its_kind(reason: Any, becomes: Any, endpoint_type: str) -> None:
    assert answered(reason, endpoint_type).finish_reason == becomes


@pytest.mark.parametrize("endpoint_type", ["chat", "completions"])
@pytest.mark.parametrize(
    "reason", ["abort", "ABORT", "network_error", "insufficient_system_resource", "error"]
)
def test_an_interrupted_generation_is_no_answer(reason: str, endpoint_type: str) -> None:
    with pytest.raises(openai_answers.InterruptedAnswer, match=reason):
        answered(reason, endpoint_type)
