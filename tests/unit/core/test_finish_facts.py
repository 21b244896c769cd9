"""Tests that each finish reason has facts for every text that shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builders import plan
from eval_factory.core.finish_reasons import (
    FINISH_REASONS,
    FinishReason,
    facts_of_finish_reason,
    finish_reason_from_inspect,
)
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.signs import SIGNS
from eval_factory.endpoint.finish_reasons import kind_of
from eval_factory.endpoint.openai_answers import InterruptedAnswer, read_answer
from eval_factory.endpoint.response_cache import Answer
from eval_factory.report.exports.inspect_logs import inspect_log
from eval_factory.report.page.instance_data import page_signs_of
from eval_factory.scoring.journal import cached_answer
from stored_results import instance
from unit.report.exports.test_stored_facts import stored_of

WORDS = {row["kind"]: row["reasons"] for row in load_packaged("endpoint/finish_reasons.yml")}
ANSWERS = [reason for reason, facts in FINISH_REASONS.items() if facts.is_answer]


def response(word: str) -> dict[str, object]:
    return {"choices": [{"message": {"content": "B"}, "finish_reason": word}]}


def test_each_has_facts_and_a_word_of_a_server() -> None:
    assert FINISH_REASONS.keys() == set(FinishReason)
    assert WORDS.keys() == set(FinishReason)


@pytest.mark.parametrize("reason", FinishReason)
def test_an_answer_has_it_or_is_asked_for_again(reason: FinishReason) -> None:
    (word, *_) = WORDS[reason]
    assert kind_of(word) == reason
    if FINISH_REASONS[reason].is_answer:
        (choice,) = read_answer(response(word), "chat")
        assert choice.finish_reason == reason
    else:
        with pytest.raises(InterruptedAnswer):
            read_answer(response(word), "chat")


@pytest.mark.parametrize("reason", ANSWERS)
def test_an_instance_has_its_sign(reason: FinishReason) -> None:
    signs = set(page_signs_of(instance("a", 1.0, finish_reason=reason.value)))
    signs.update(page_signs_of(instance("b", None, finish_reason=reason.value)))
    answer = Answer("k", "model", "m", {}, response(reason.value), created=0.0, latency_s=0.1)
    known, _ = cached_answer(answer, plan().model)
    if known.declined:
        signs.add("refused")
    sign = FINISH_REASONS[reason].sign
    expected = set() if sign is None else {sign}
    assert signs - {"failed"} == expected
    assert expected <= SIGNS.keys()


@pytest.mark.parametrize("reason", ANSWERS)
def test_inspect_has_a_word_for_it_that_is_read_again(reason: FinishReason) -> None:
    stored = stored_of("pubmed_qa")
    (first, *_) = stored.result.instances
    records = [replace(first, finish_reason=reason.value)]
    stored = replace(stored, result=replace(stored.result, instances=records))
    log = inspect_log(stored, created="2026-01-01T00:00:00Z", with_texts=True)
    word = log["samples"][0]["output"]["choices"][0]["stop_reason"]
    assert word == FINISH_REASONS[reason].inspect
    read_again = FinishReason(finish_reason_from_inspect(word))
    assert FINISH_REASONS[read_again].inspect == word


def test_a_servers_own_word_has_no_facts() -> None:
    assert facts_of_finish_reason("tired").sign is None
    assert finish_reason_from_inspect("tired") == "tired"


def test_the_page_of_results_names_each() -> None:
    page = (Path(__file__).parents[3] / "docs" / "results.md").read_text("utf-8")
    assert [reason for reason in ANSWERS if f"`{reason}`" not in page] == []
    assert json.dumps(FinishReason.LENGTH) == '"length"'


def test_no_reason_of_inspect_stays_no_reason() -> None:
    assert finish_reason_from_inspect("") == ""
