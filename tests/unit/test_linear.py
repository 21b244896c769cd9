"""Readers of answers, prompts and error texts take time in proportion to them, for any content."""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_factory.core import failure_causes, foreign_text, secrets
from eval_factory.demo import server
from eval_factory.endpoint import openai_answers, openai_api
from eval_factory.helm import environments, injection_signs, judge_output, output
from eval_factory.reading import MAX_REFUSAL, is_refusal, stated_option, stated_value
from eval_factory.scoring import medcalc_values, readability
from eval_factory.scoring.corrections import Case, medcalc_by_calculator, medec_sentence
from eval_factory.tasks import custom_table
from eval_factory.workflows import helm_run
from linear_time import ENDS, SEEDS, SEEDS_BEFORE_AN_END, is_steep, with_end

CRITERIA = {"accuracy": {"score", "explanation"}}
REDACTOR = secrets.Redactor(["plain-looking-value-77", "q" * 30])
ADAPTER = openai_api.Adapter({}, [], {}, None, "<think>", "</think>")

DURATION = "('1 weeks', '0 days')"
INSTANCE = {
    "id": "1",
    "input": {},
    "references": [{"output": {"text": DURATION}, "tags": ["correct"]}],
}
STATE = output.RequestState.model_validate(
    {"instance": INSTANCE, "train_trial_index": 0, "request": {}}
)


def unusable(text: str, judged: str = "With water.") -> None:
    with contextlib.suppress(judge_output.UnusableJudgeOutput):
        judge_output.parse_judge_output(text, CRITERIA, judged)


def unreadable(data: str) -> None:
    with contextlib.suppress(openai_answers.UnusableAnswer):
        openai_answers.parse_answer(data.encode("utf-8", "surrogatepass"))


READY = '{"accuracy": {"score": 5, "explanation": "x"}}'
READERS: dict[str, Callable[[str], object]] = {
    "redaction": REDACTOR.redact_text,
    "redaction of what is known": REDACTOR.redact_known,
    "what looks like a key": secrets.looks_like_key,
    "variables": secrets.variables_in,
    "a judge's answer": unusable,
    "the answer it judges": lambda text: unusable(READY, text),
    "signs": injection_signs.find_injection_signs,
    "readings": lambda text: list(judge_output.readings(text)),
    "squeezing": judge_output.squeezed,
    "reasoning": ADAPTER.split_reasoning,
    "reasoning that was cut off": lambda text: ADAPTER.split_reasoning(text, cut_off=True),
    "refusals": lambda text: is_refusal(text[:MAX_REFUSAL]),
    "labels": lambda text: stated_option(text, {"A": "one", "B": "a a", "C": "C", "D": "answer"}),
    "values": stated_value,
    "queries": lambda text: readability._FORMS["sql"].reads(STATE, text),
    "durations": lambda text: readability._FORMS["value"].reads(STATE, text),
    "parsing": unreadable,
    "parsing a text": lambda text: unreadable(f'{{"a": "{text}"}}'),
    "the last lines": lambda text: helm_run.last_exception([text]),
    "a missing package": environments.module_named_in,
    "an error's text": lambda text: foreign_text.one_line(
        foreign_text.without_html(text), prompt=["a prompt " * 50]
    ),
    "what an error quotes of a prompt": lambda text: foreign_text.one_line(
        "bad request, " * 40, prompt=[text]
    ),
    "an error's cause": lambda text: failure_causes.Causes().add("model", text),
    "medec": lambda text: medec_sentence(Case("p", text, "3 x", 0.0)),
    "medcalc": lambda text: medcalc_by_calculator(
        Case("p", text, "3", 0.0, {"lower_limit": "1", "upper_limit": "4"})
    ),
    "medcalc's scores": medcalc_values.whole_number_in,
    "medcalc's dates": medcalc_values.date_in,
    "medcalc's weeks": medcalc_values.days_in,
    "quasi": custom_table.becomes_nothing,
    "a demo prompt": server.baseline_answer,
}


@pytest.mark.parametrize("name", READERS)
def test_time_grows_as_the_text_does(name: str) -> None:
    read = READERS[name]
    gc.disable()
    try:
        assert {seed for seed in SEEDS if is_steep(read, seed)} == set()
    finally:
        gc.enable()


def test_the_measure_tells_a_square_from_a_line() -> None:
    token = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+")  # as it was looked for once
    assert is_steep(token.search, "eyJ-eyJ-")
    assert not is_steep(str.upper, "eyJ-eyJ-")


@pytest.mark.parametrize("ends", ENDS, ids=repr)
def test_a_different_end_changes_nothing(ends: str) -> None:
    readers: tuple[Callable[[str], object], ...] = (
        REDACTOR.redact_text,
        injection_signs.find_injection_signs,
        unusable,
    )
    for read, seed in product(readers, SEEDS_BEFORE_AN_END):
        assert not is_steep(with_end(read, ends), seed), (read, seed)


FACTOR = float(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))


@settings(
    max_examples=max(1, round(30 * FACTOR)), deadline=None, derandomize=FACTOR <= 1, database=None
)
@given(
    st.lists(st.sampled_from(SEEDS), min_size=2, max_size=4).map("".join),
    st.sampled_from(sorted(READERS)),
)
def test_time_grows_as_mixtures_do(seed: str, name: str) -> None:
    assert not is_steep(READERS[name], seed)
