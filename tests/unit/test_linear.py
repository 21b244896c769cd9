"""What reads answers, prompts and error texts takes time in proportion to them, whatever they hold.

A text eight times as long may take some eight times as long; where each beginning looks through all the rest, it takes
sixty-four times as long. The bound lies between them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import time
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_factory.core import failure_causes, foreign_text, secrets
from eval_factory.demo import server
from eval_factory.endpoint import openai_api
from eval_factory.helm import disguised_text, judge_output, packages
from eval_factory.helm_plugin import runner
from eval_factory.helm_plugin.patches import sql_execution
from eval_factory.scoring.correction_rules import Case, medcalc_by_category, medec_sentence
from eval_factory.tasks import quasi_match
from eval_factory.workflows import failures

SHORT, TIMES = 2_000, 8
BOUND = 30
CRITERIA = {"accuracy": {"score", "explanation"}}
REDACTOR = secrets.Redactor(["plain-looking-value-77", "q" * 30])
ADAPTER = openai_api.Adapter({}, [], {}, None, "<think>", "</think>")


def unusable(text: str, judged: str = "With water.") -> None:
    with contextlib.suppress(judge_output.UnusableJudgeOutput):
        judge_output.parse_judge_output(text, CRITERIA, judged)


def unreadable(data: str) -> None:
    with contextlib.suppress(openai_api.UnusableAnswer):
        openai_api.parse_answer(data.encode("utf-8", "surrogatepass"))


READY = '{"accuracy": {"score": 5, "explanation": "x"}}'
READERS: dict[str, Callable[[str], object]] = {
    "redaction": REDACTOR.text,
    "redaction of what is known": REDACTOR.known,
    "what looks like a key": secrets.looks_like_key,
    "variables": secrets.variables_in,
    "a judge's answer": unusable,
    "the answer it judges": lambda text: unusable(READY, text),
    "signs": judge_output.injection_signs,
    "readings": lambda text: list(disguised_text.readings(text)),
    "squeezing": disguised_text.squeezed,
    "reasoning": ADAPTER.without_reasoning,
    "parsing": unreadable,
    "parsing a text": lambda text: unreadable(f'{{"a": "{text}"}}'),
    "errors of HELM's": lambda text: runner.safe_message(ValueError(text), REDACTOR),
    "the last lines": lambda text: failures.raised_at_the_end([text]),
    "a missing package": packages.module_named_in,
    "an error's text": lambda text: foreign_text.one_line(foreign_text.plain(text), prompt=["a prompt " * 50]),
    "what an error quotes of a prompt": lambda text: foreign_text.one_line("bad request, " * 40, prompt=[text]),
    "an error's cause": lambda text: failure_causes.Causes().add("model", text),
    "NLTK's data": failures._NLTK_RESOURCE.search,
    "medec": lambda text: medec_sentence(Case("p", text, "3 x", 0.0)),
    "medcalc": lambda text: medcalc_by_category(Case("p", text, "3", 0.0, {"lower_limit": "1", "upper_limit": "4"})),
    "quasi": quasi_match.becomes_nothing,
    "a demo prompt": server.baseline_answer,
    "SQL": lambda text: (sql_execution._SQL_TAG.findall(text), sql_execution._FENCE_NAME.sub("", text)),
}
SEEDS = [
    "eyJ-eyJ-", "eyJabcdefgh.", "eyJaaaaaaaa.eyJbbbbbbbb.", "sk-", "Bearer ", "Bearer a1", "Basic a", "uthorization",
    "uthorization: ", "://", "://a", "https://a:b", "AIza-", "{", "}{", '{"', '{"a":', '{"accuracy": ', '{"a": 1}', "[", '"', "\\",
    '\\"', "\\u00", "%25", "p%25", "&#0", "&#112;", "\\u007", "\\x70", "\\u0041", "&#", "&#1", "&amp;", "%4", "%41", "<think>", "</think>", "<think></think>", " ", "\n", "\t ",
    "score", "score ", "score:", "score: ", "accuracy ", "accuracy is ", "accuracy score ", "give ", "give 5 ", "ignore ",
    "ignore all ", "judge ", "judge must", "output ", "5 for all ", "copy this ", "<", "< ", "</", "<|", "<|a", "<sql>", "< sql",
    "7", "7.", "7e", "a", "A. ", "A.\n", "a b c d ", "the ", "Request(", "Request: ", "[Request", "a.a.", "AError", "Exception", "Error: ",
    "No module named '", "Resource ", "gpt", "o1", "\u0301\u0316", "\u200b", "\ufdfa", "\u0430", "\U0001f600", "QUJD", "QUJDREVGR0hJSktM ", "4142",
    "41 42 ", "${", "${A", "${A}", "sql\n", "'", "1 weeks", "('1",
]  # fmt: skip


def seconds(read: Callable[[str], object], text: str, runs: int) -> float:
    """Of this thread alone, the least of several runs: other programs only make a run longer."""
    measured = []
    for _ in range(runs):
        started = time.thread_time()
        read(text)
        measured.append(time.thread_time() - started)
    return min(measured)


def growth(read: Callable[[str], object], seed: str, runs: int = 1) -> float:
    """How many times as long a text takes that is `TIMES` as long; a tenth of a millisecond counts as nothing."""
    short, long = (seed * (size // len(seed)) for size in (SHORT, SHORT * TIMES))
    read(short)
    return seconds(read, long, runs) / max(seconds(read, short, runs), 1e-4)


def is_steep(read: Callable[[str], object], seed: str) -> bool:
    """What is, is so each time that it is measured."""
    return all(growth(read, seed, runs) > BOUND for runs in (1, 2, 4))


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


def with_end(read: Callable[[str], object], end: str) -> Callable[[str], object]:
    return lambda text: read(text + end)


@pytest.mark.parametrize("ends", ["", "}", '"}', '"', "</think>", " x", "@", ".x.y", ":", "\n", "5", "\x00"], ids=repr)
def test_a_different_end_changes_nothing(ends: str) -> None:
    readers: list[Callable[[str], object]] = [
        REDACTOR.text,
        judge_output.injection_signs,
        unusable,
        READERS["errors of HELM's"],
    ]
    seeds = [
        "eyJ-eyJ-",
        "{",
        '{"a":',
        " ",
        "uthorization ",
        "Bearer a",
        "://a",
        "score ",
        "ignore all ",
        "accuracy is ",
    ]
    for read, seed in product(readers, seeds):
        assert not is_steep(with_end(read, ends), seed), (read, seed)


FACTOR = float(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))


@settings(max_examples=max(1, round(30 * FACTOR)), deadline=None, derandomize=FACTOR <= 1, database=None)
@given(st.lists(st.sampled_from(SEEDS), min_size=2, max_size=4).map("".join), st.sampled_from(sorted(READERS)))
def test_time_grows_as_mixtures_do(seed: str, name: str) -> None:
    assert not is_steep(READERS[name], seed)
