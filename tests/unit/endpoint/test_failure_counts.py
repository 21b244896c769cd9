"""Tests of the counts of failures, through the client that keeps them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from eval_factory.endpoint import failure_counts, replies, servers
from eval_factory.endpoint.http_wire import Reply, TransportError
from eval_factory.endpoint.replies import (
    EndpointGone,
    EndpointUnusable,
    RequestFailed,
)
from facts import says
from told_replies import (
    BODY,
    SILENT,
    UNREACHABLE,
    Replies,
    ask,
    ask_until_it_stops,
    client_of,
    reply,
    unnoted,
)

REAL_PAUSE = failure_counts._pause
CUT_OFF = TransportError("the connection was closed before the whole answer came")
TOO_MANY = reply(429, {"error": "slow down"})


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_counts, "_pause", lambda *_: 0.0)


@pytest.mark.parametrize(
    ("lost", "settings", "failed", "sent"),
    [
        (UNREACHABLE, {"max_retries": 2}, 3, 12),  # in a row: four threads, three tries
        (
            SILENT,
            {"max_retries": 5, "parallelism": 1},
            2,
            6 * 3,
        ),  # longer than one prompt may be silent
    ],
    ids=["unreachable", "silent"],
)
def test_a_gone_endpoint_stops_the_run(
    lost: TransportError, settings: Any, failed: int, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_counts, "OUTAGE_S", 0.0)
    transport = Replies(lost)
    found, said = ask_until_it_stops(client_of(transport, has_answered=True, **settings))
    assert (found, len(transport.sent)) == (failed, sent)
    says(said, "no longer answers", "same command goes on")


@pytest.mark.parametrize("sign_of_life", [reply(200), reply(500), CUT_OFF])
def test_any_sign_of_life_counts(
    sign_of_life: Reply | TransportError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_counts, "OUTAGE_S", 0.0)
    replies = [SILENT] * 8 + [sign_of_life]
    client = client_of(Replies(*replies * 20, reply(200)), has_answered=True, max_retries=200)
    for _ in range(3):
        client.ask(BODY, unnoted)


@pytest.mark.parametrize(
    ("lost", "times", "given"),
    [
        (UNREACHABLE, 50, {"has_answered": True, "max_retries": 0}),
        (SILENT, 100, {"has_answered": True, "max_retries": 100}),
        (TOO_MANY, 30, {"max_retries": 0, "is_patient": True}),
    ],
    ids=["a restart", "silence for a while, however often", "too many requests"],
)
def test_what_is_borne(lost: Reply | TransportError, times: int, given: dict[str, Any]) -> None:
    answered, outcomes = ask(Replies(*[lost] * times, reply(200)), **given)
    assert answered.attempt == times + 1
    assert {outcome.partition(":")[0] for outcome in outcomes} == {"retried"}


@pytest.mark.parametrize(
    ("answers", "max_retries", "sent"),
    [
        ([reply(500)], 3, 4),
        ([TOO_MANY, reply(500)] * 3, 2, 6),
    ],
    ids=["after its retries", "rate limits between cost none"],
)
def test_given_up(answers: list[Reply], max_retries: int, sent: int) -> None:
    transport = Replies(*answers)
    with pytest.raises(RequestFailed, match="HTTP 500"):
        ask(transport, max_retries=max_retries, is_patient=True)
    assert len(transport.sent) == sent


def test_where_the_window_has_passed_rate_limits_cost_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "WINDOW_S", 0.0)
    transport = Replies(TOO_MANY)
    with pytest.raises(RequestFailed, match="HTTP 429"):
        ask(transport, is_patient=True)
    assert len(transport.sent) == 3


@pytest.mark.parametrize("status", [429, 498])
def test_each_status_of_a_rate_limit_costs_no_retry(status: int) -> None:
    transport = Replies(*[reply(status, {})] * 5, reply(200))
    ask(transport, max_retries=0, is_patient=True)
    assert len(transport.sent) == 6


def test_the_pause_that_is_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(failure_counts, "_pause", REAL_PAUSE)
    client = client_of(
        Replies(reply(429, {}, **{"llm_provider-retry-after": "60"}), reply(200)), is_patient=True
    )
    monkeypatch.setattr(client._stop, "wait", waited.append)
    client.ask(BODY, unnoted)
    assert waited == [60.0]


def test_the_first_requests_that_all_fail_stop_the_run() -> None:
    transport = Replies(reply(400, {"error": {"message": "maximum context length is 768 tokens"}}))
    client = client_of(transport, first_requests=3)
    for failed_before in (2, 0):
        failed, said = ask_until_it_stops(client)
        assert (failed, said.startswith("the first 3 requests")) == (failed_before, True)
        says(said, "3 x HTTP 400", "768 tokens", "set config.params.extra.max_length")
    assert len(transport.sent) == 3


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (reply(400), replies.NoneAnswered),
        (reply(500), EndpointGone),
        (SILENT, EndpointGone),
    ],
    ids=["refused", "of no use", "silent"],
)
def test_what_failed_last_says_whether_the_endpoint_is_gone(
    last: Any, kind: type[EndpointUnusable]
) -> None:
    client = client_of(Replies(last), first_requests=1, max_retries=0, has_answered=True)
    for _ in range(2):
        with pytest.raises(EndpointUnusable) as stop:
            client.ask(BODY, unnoted)
        assert type(stop.value) is kind, "every request is told the same"


def test_one_answer_among_the_first_lets_the_run_go_on() -> None:
    client = client_of(Replies(reply(400), reply(200), reply(400)), first_requests=2)
    for fails in (True, False, True, True, True, True):
        with pytest.raises(RequestFailed) if fails else nullcontext():
            client.ask(BODY, unnoted)
