"""Answers are shown as they come; the file that holds them is another process's."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.executors import process
from eval_factory.executors.process import FinishedProcess, ProcessSpec, run_shown
from eval_factory.executors.progress import MAX_ATTEMPTS_IN_MEMORY, AnswerTail
from facts import each_says

KEY = "a-known-key-value-1"
CHAT = {
    "message": {
        "content": "<think>hm</think>Mrs Doe has\n\x1b[2J\u202e" + KEY + " and " + "x" * 22 + KEY
    }
}
CUT_OFF = {"message": {"content": None}, "finish_reason": "length"}


@pytest.fixture
def cache(tmp_path: Path) -> ResponseCache:
    return ResponseCache(tmp_path / "cache.db", "run")


def attempt(key: str, outcome: str, number: int = 1, error: str | None = None) -> Attempt:
    return Attempt(key, "model", number, outcome, None, error, 0.0, 1.26)


def answered(
    cache: ResponseCache, key: str, choice: Any, role: str = "model", started: float = 0.0
) -> None:
    response = {"choices": [{"finish_reason": "stop", **choice}]}
    noted = Attempt(key, role, 1, "answered", 200, None, started, 1.26, 210, 5)
    cache.save(Answer(key, role, "m", {}, response, started, 1.26), noted)


def tail(cache: ResponseCache, *, texts: bool = False) -> AnswerTail:
    return AnswerTail(cache.path, "run", Redactor([KEY]), texts=texts)


def lines(answers: AnswerTail) -> list[str]:
    return [event["line"] for event in answers.read_new_events()]


def test_each_answer_has_a_line_once_and_no_text_unless_it_is_asked_for(
    cache: ResponseCache,
) -> None:
    plain = tail(cache)
    with_texts = tail(cache, texts=True)
    answered(cache, "a", CHAT)
    answered(cache, "b", {"text": "B"})
    answered(cache, "c", CUT_OFF, role="gpt")
    each_says(
        lines(plain),
        ["#1 model", "1.3 s", "210 + 5 tokens", "stop"],
        ["#2 model", "1.3 s", "stop"],
        ["#3 gpt", "1.3 s", "length"],
    )
    first, *others = lines(with_texts)
    beginning = "Mrs Doe has \\x1b[2J\\u202e[API_KEY_REDACTED] and xxxxxxxxxxxxxxxxxxxxxx[API_KEY_R"
    assert first == f'  #1 model: 1.3 s, 210 + 5 tokens, stop: "{beginning}"', (
        "no key is cut before it is redacted"
    )
    each_says(
        others, ["#2 model", "1.3 s", "210 + 5 tokens", 'stop: "B"'], ["#3 gpt", 'length: ""']
    )
    answered(cache, "d", {"text": "D"})
    each_says(lines(plain), ["#4 model", "1.3 s", "210 + 5 tokens", "stop"])
    assert lines(plain) == []


def test_answers_and_phases_are_shown_in_the_order_of_their_times(
    cache: ResponseCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = RunDir(cache.path.parent)
    phases = [
        {"event": "phase", "run_id": "run", "phase": name, "total": None, "time": time}
        for name, time in (("first", 1.0), ("second", 5.0))
    ]

    def ended(_spec: ProcessSpec, *, on_tick: Callable[[], None], **_: object) -> FinishedProcess:
        answered(cache, "a", {"text": "B"}, started=2.0)
        rundir.events.parent.mkdir(exist_ok=True)
        rundir.events.write_text("".join(json.dumps(phase) + "\n" for phase in phases))
        on_tick()
        return FinishedProcess(0, ())

    monkeypatch.setattr(process, "run_logged", ended)
    screen = io.StringIO()
    spec = ProcessSpec([], {}, rundir, cast(Any, None), "run", Redactor(), watch="figures")
    _, events = run_shown(spec, screen)
    each_says(screen.getvalue().splitlines(), ["first"], ["#1 model"], ["second"])
    assert [event["phase"] for event in events] == ["first", "second"]


def test_failures_say_why_and_what_was_cached_or_another_runs_is_not_shown(
    cache: ResponseCache,
) -> None:
    answered(ResponseCache(cache.path, "before"), "a", CHAT)
    cache.journal(attempt("a", "cached", number=0))
    cache.journal(attempt("b", "retried", error=f"HTTP 503: busy\n{KEY}"))
    cache.journal(attempt("b", "failed", 2, "HTTP 400: no"))
    answered(cache, "c", {"finish_reason": KEY, "error": {"code": 502}})
    answered(cache, "d", {"text": "D"}, started=1764288000.123456)
    cache.archive_answer("d", attempt("d", "unusable", number=0))
    answered(cache, "d", CUT_OFF, started=7.5)
    each_says(
        lines(tail(cache)),
        ["model: retried", "1.3 s", "HTTP 503", "busy [API_KEY_REDACTED]"],
        ["#1 model: failed", "1.3 s", "HTTP 400"],
        ["#2 model", "210 + 5 tokens", "not read"],
        ["#3 model", "stop"],
        ["#4 model", "length"],
    )


def test_many_are_shown_all_and_nothing_is_written(cache: ResponseCache) -> None:
    for number in range(MAX_ATTEMPTS_IN_MEMORY + 1):
        cache.journal(attempt(str(number), "failed", error="no"))
    cache.close()
    before = cache.path.read_bytes()
    assert len(lines(tail(cache))) == MAX_ATTEMPTS_IN_MEMORY + 1
    assert cache.path.read_bytes() == before


def test_a_file_that_cannot_be_read_now_is_looked_at_again(tmp_path: Path) -> None:
    answers = AnswerTail(tmp_path / "cache.db", "run", Redactor(), texts=False)
    assert lines(answers) == []
    assert list(tmp_path.iterdir()) == [], "nor is it made"
    sqlite3.connect(tmp_path / "cache.db").close()
    assert lines(answers) == []
    cache = ResponseCache(tmp_path / "cache.db", "run")
    cache.journal(attempt("a", "failed", error="no"))
    each_says(lines(answers), ["#1 model: failed", "1.3 s"])
