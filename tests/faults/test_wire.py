"""No answer is taken for that to another question on any wire, and nothing is paid for without need."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from eval_factory.endpoint import failure_counts
from eval_factory.endpoint.connections import MAX_ANSWERS, NOT_UNIQUE, SURPLUS
from eval_factory.endpoint.http_wire import LARGE_AT_ONCE, MAX_BODY
from eval_factory.endpoint.replies import RequestFailed
from program_runs import more_data
from programs import ran
from token_answers import forget_proxies_and_certificates
from wire_endpoint import (
    AT_ONCE,
    Asker,
    Give,
    Later,
    Send,
    WireEndpoint,
    http,
    the_answer_alone,
)

QUESTIONS = 3000
JUNK = b"HTTP/1.1 junk\r\n\r\n"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies_and_certificates(monkeypatch)


def late(answer: bytes, send: Send, later: Later, source: Random) -> None:
    """One answer in twenty comes again, up to 50 ms later."""
    send(answer)
    if source.random() < 0.05:
        later(source.random() * 0.05, answer)


def soon(answer: bytes, send: Send, later: Later, source: Random) -> None:
    """The same, within a millisecond: before or after the next question."""
    send(answer)
    if source.random() < 0.05:
        later(source.random() * 0.001, answer)


def slow_and_late(answer: bytes, send: Send, later: Later, source: Random) -> None:
    """The answers themselves take a while, so that most questions are still open when the other comes."""
    later(0.005, answer)
    if source.random() < 0.05:
        later(0.005 + source.random() * 0.02, answer)


def double(answer: bytes, send: Send, later: Later, source: Random) -> None:
    send(answer * 2 if source.random() < 0.1 else answer)


def followed(answer: bytes, send: Send, later: Later, source: Random) -> None:
    """By bytes that are no answer, with it or soon after it."""
    chance = source.random()
    send(answer + JUNK if chance < 0.05 else answer)
    if chance > 0.95:
        later(source.random() * 0.01, JUNK)


def all_of_it(answer: bytes, send: Send, later: Later, source: Random) -> None:
    source.choice([late, soon, slow_and_late, double, followed])(answer, send, later, source)


def cut(answer: bytes, send: Send, later: Later, source: Random) -> None:
    """Anywhere: in its status, its header or its body; the rest comes late, or never, or as the next one's beginning."""
    place = source.randrange(1, len(answer))
    send(answer[:place])
    if source.random() < 0.8:
        later(source.random() * 0.02, answer[place:])


def early(answer: bytes, send: Send, later: Later, source: Random) -> None:
    """After hints, a pause, and an answer that goes on."""
    send(b"HTTP/1.1 103 Early Hints\r\nX-A: 1\r\n\r\n")
    later(source.random() * 0.01, b"HTTP/1.1 100 Continue\r\n\r\n" + answer)


def no_answer(answer: bytes, send: Send, later: Later, source: Random) -> None:
    """Or one that is none, or cannot be read, or says that it was too much."""
    send(
        source.choice(
            [
                b"",
                JUNK,
                http(b"{}"),
                http(b"not packed", "Content-Encoding: gzip", "Content-Length: 10"),
                http(b"", "Content-Length: 0").replace(
                    b"200 OK", source.choice([b"429 Slow", b"500 Error"])
                ),
            ]
        )
    )


def every_fault(answer: bytes, send: Send, later: Later, source: Random) -> None:
    usual = source.random() < 0.7
    faults: list[Give] = [
        late,
        soon,
        slow_and_late,
        double,
        followed,
        cut,
        early,
        no_answer,
        line_feeds,
    ]
    faults += [
        with_head(LENGTH, CHUNKED),
        with_head(CHUNKED),
        with_head(LENGTH, "Content-Length: {longer}"),
    ]
    (the_answer_alone if usual else source.choice(faults))(answer, send, later, source)


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_ten_thousand_questions_and_every_fault_at_once(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are given up, for what no retry mends; what is answered is answered with its own number."""
    monkeypatch.setattr(failure_counts, "_pause", lambda *_: 0.0)
    with WireEndpoint(every_fault) as endpoint:
        asker = Asker(endpoint.url, at_once=64, request_timeout=1.0)
        monkeypatch.setattr(asker, "ask", lambda number, ask=asker.ask: failed_or(ask, number))
        answers = asker.ask_all(list(range(10_000)), way)
    assert [int(answer or number) for number, answer in enumerate(answers)] == list(range(10_000))
    assert answers.count("") < 1000
    sent = 10_000 + sum(note.startswith("retried") for note in asker.notes)
    assert sent - 200 < endpoint.requests <= sent, (
        "on a busy machine, time is over before a question is read"
    )


def failed_or(ask: Callable[[int], str], number: int) -> str:
    try:
        return ask(number)
    except RequestFailed:
        return ""


@pytest.mark.parametrize("way", ["loop", "thread"])
@pytest.mark.parametrize(
    "give", [all_of_it, *more_data(late, soon, slow_and_late, double, followed)]
)
def test_no_answer_is_taken_for_that_to_another_question(give: Give, way: str) -> None:
    with WireEndpoint(give) as endpoint:
        asker = Asker(endpoint.url)
        answers = asker.ask_all(list(range(QUESTIONS)), way)
    assert answers == [str(number) for number in range(QUESTIONS)]
    assert max(Counter(endpoint.asked).values()) <= 2
    assert endpoint.requests < QUESTIONS * 1.2, (
        "a question is asked again where its answer was not one only"
    )
    assert set(asker.said) <= {SURPLUS}


@pytest.mark.parametrize("named", [True, False], ids=["ids", "no ids"])
def test_what_came_before_the_question_is_no_answer_to_it(named: bool) -> None:
    """Whatever it says: it has an id of its own, or none."""
    sent = threading.Event()

    def early(answer: bytes, send: Send, later: Later, source: Random) -> None:
        send(answer)
        time.sleep(0.001)  # in another piece than the answer
        send(answer.replace(b'"content": "', b'"content":"9'))  # as long as the answer
        sent.set()

    with WireEndpoint(early) as endpoint:
        endpoint.name = (lambda number: f"c{number}") if named else (lambda _number: None)
        asker = Asker(endpoint.url, at_once=1)
        for number in range(50):
            assert asker.ask(number) == str(number)
            assert sent.wait(60)
            sent.clear()
    assert endpoint.requests == 50
    assert asker.notes == []


def test_an_answer_to_another_question_costs_no_retry() -> None:
    """And the journal says what it was."""
    with WireEndpoint(slow_and_late) as endpoint:
        asker = Asker(endpoint.url, max_retries=0)
        assert asker.ask_all(list(range(300)), "loop") == [str(number) for number in range(300)]
    # Where other work delays the client, an answer may also come while no question is open.
    # Its connection is then doubted, which is another note.
    notes = set(asker.notes) - {SURPLUS}
    assert all(note.startswith("retried: ") for note in notes)
    assert any("another question" in note for note in notes)


@pytest.mark.parametrize("at_once", [1, AT_ONCE])
@pytest.mark.parametrize(
    ("name", "most"),
    [
        (lambda _: "x", 1),
        (lambda number: f"chatcmpl-{number * 7919 % 31}", 8),
        (lambda _: None, 0),
        (lambda _: "", 0),
    ],
    ids=["one for all", "few", "none", "empty"],
)
def test_ids_that_are_not_unique_tell_nothing(
    name: Callable[[int], str | None], most: int, at_once: int
) -> None:
    """One line says so, a question or two are asked twice, and connections are used again as always."""
    with WireEndpoint() as endpoint:
        endpoint.name = name
        asker = Asker(endpoint.url, at_once=at_once, max_retries=0)
        assert asker.ask_all(list(range(400)), "loop") == [str(number) for number in range(400)]
    assert asker.said == ([NOT_UNIQUE] if most else [])
    assert endpoint.requests - 400 == len(asker.notes) <= most
    assert len(endpoint.connections) <= 400 / MAX_ANSWERS + at_once + most


def test_a_gateway_may_give_the_same_answer_to_the_same_question() -> None:
    with WireEndpoint() as endpoint:
        endpoint.name = lambda _: f"of-{endpoint.asked[-1]}"
        asker = Asker(endpoint.url)
        numbers = [number % 40 for number in range(400)]
        assert asker.ask_all(numbers, "loop") == [str(number) for number in numbers]
    assert (endpoint.requests, asker.said, asker.notes) == (400, [], [])


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_a_connection_has_a_largest_number_of_answers(way: str) -> None:
    with WireEndpoint() as endpoint:
        asker = Asker(endpoint.url, at_once=1)
        asker.ask_all(list(range(2 * MAX_ANSWERS)), way)
        assert len(endpoint.connections) == 2
        asker.ask_all([1], way)
        assert len(endpoint.connections) == 3
    assert Counter(endpoint.asked)[0] == 1
    assert asker.notes == []


def with_head(*lines: str) -> Give:
    """An answer with these lines in its header; chunks where they say so."""

    def give(answer: bytes, send: Send, later: Later, source: Random) -> None:
        body = answer.partition(b"\r\n\r\n")[2]
        chunks = (
            b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:]))
            + b"0\r\n\r\n"
        )
        named = [line.format(length=len(body), longer=len(body) + 1) for line in lines]
        send(http(chunks if any("chunked" in line for line in lines) else body, *named))

    return give


def line_feeds(answer: bytes, send: Send, later: Later, source: Random) -> None:
    send(answer.replace(b"\r\n", b"\n"))


LENGTH = "Content-Length: {length}"
CHUNKED = "Transfer-Encoding: chunked"


def large(status: str, coding: str | None) -> Give:
    """Answers of 60 MiB; that to question 0 is a usual one."""
    body = b"a" * (60 << 20)
    lines: tuple[str, ...] = ()
    if coding:
        body = gzip.compress(body)
        lines = (f"Content-Encoding: {coding}",)
    sent = http(body, f"Content-Length: {len(body)}", *lines).replace(b"200 OK", status.encode(), 1)

    def give(answer: bytes, send: Send, later: Later, source: Random) -> None:
        send(answer if b'"content": "0"' in answer else sent)

    return give


NO_JSON = "the answer is not JSON"


@pytest.mark.skipif(
    sys.platform != "linux", reason="reads what a process ever had from Linux's /proc"
)
@pytest.mark.parametrize(
    ("way", "give", "said"),
    [
        ("loop", large("200 OK", None), NO_JSON),
        ("thread", large("200 OK", "gzip"), NO_JSON),
        pytest.param(
            "loop",
            large("500 Error", None),
            "HTTP 500: an error of 62914560 bytes",
            marks=pytest.mark.more_data,
        ),
    ],
    ids=["loop", "packed, thread", "errors"],
)
def test_large_answers_share_what_they_may_hold(way: str, give: Give, said: str) -> None:
    """12 of 60 MiB each: 720 MiB, several times over while they are read. All are read, a few at a time."""
    with WireEndpoint(give) as endpoint:
        script = Path(__file__).resolve().parents[1] / "support" / "large_answers.py"
        done = ran(
            [sys.executable, str(script), way, endpoint.url], PYTHONPATH=os.pathsep.join(sys.path)
        )
        assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    ((cause, count),) = told["came"].items()
    assert cause.startswith(said)
    assert count == 12
    assert told["then"] == "0"
    # its bytes, its text, and what is made of them
    assert told["after"] - told["before"] < 8 * LARGE_AT_ONCE * (MAX_BODY >> 20)
