"""What is asked again and what is not, on replies made here; the real wire is in tests/faults."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from urllib3.util.retry import Retry

from eval_factory.engine import asking
from eval_factory.engine.asking import Asker, RequestFailed, StopAsking
from eval_factory.engine.auth import KeySignIn
from eval_factory.engine.transport import Reply, Transport, TransportError
from eval_factory.secrets import REDACTED, Redactor

GOOD = {"choices": [{"message": {"content": "B"}, "finish_reason": "stop"}]}
REAL_PAUSE = asking._pause
BODY = {"model": "m", "messages": [], "max_tokens": 5, "temperature": 0.0}


class Replies(Transport):
    """Gives what it was told, in order; the last one for ever."""

    timeout_s = 10.0

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.sent: list[dict[str, Any]] = []

    def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
        self.sent.append(dict(body))
        return self._next()

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        self.sent.append({"GET": url})
        return self._next()

    def _next(self) -> Reply:
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


def reply(status: int, body: Any = None, **headers: str) -> Reply:
    return Reply(status, headers, json.dumps(GOOD if body is None else body).encode())


def ask(transport: Replies, *, max_retries: int = 2, use_nvcf: bool = False) -> tuple[asking.Answered, list[str]]:
    asker = Asker(
        transport, url="http://h/v1/chat/completions", endpoint_type="chat", model_id="m", max_retries=max_retries,
        parallelism=4, use_nvcf=use_nvcf, sign_in=KeySignIn(None), redactor=Redactor(["the-secret-key"]),
    )  # fmt: skip
    outcomes: list[str] = []
    return asker.ask(BODY, lambda _n, outcome, error, _s, _l: outcomes.append(f"{outcome}: {error}")), outcomes


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_pause", lambda *_: 0.0)
    monkeypatch.setattr(asking, "NVCF_FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize("status", sorted(asking.RETRIED_STATUSES))
def test_asked_again(status: int) -> None:
    transport = Replies(reply(status, {"error": "x"}), reply(status, {"error": "x"}), reply(200))
    answered, outcomes = ask(transport)
    assert answered.attempt == 3
    assert len(transport.sent) == 3
    assert [outcome.partition(":")[0] for outcome in outcomes] == ["retried", "retried"]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_not_asked_again(status: int) -> None:
    transport = Replies(reply(status, {"error": "the-secret-key in here"}))
    with pytest.raises(RequestFailed, match=f"HTTP {status}") as raised:
        ask(transport)
    assert len(transport.sent) == 1
    assert "the-secret-key" not in str(raised.value)


@pytest.mark.parametrize("status", [301, 401, 403, 404])
def test_stops(status: int) -> None:
    with pytest.raises(StopAsking, match="check"):
        ask(Replies(reply(status)))


def test_given_up_after_its_retries() -> None:
    transport = Replies(reply(500))
    with pytest.raises(RequestFailed, match="HTTP 500"):
        ask(transport, max_retries=3)
    assert len(transport.sent) == 4


def test_nobody_there_is_not_tried_for_long() -> None:
    transport = Replies(TransportError("no connection could be made", unreachable=True))
    with pytest.raises(StopAsking, match="cannot reach"):
        ask(transport, max_retries=50)
    assert len(transport.sent) == asking.TRIES_TO_REACH


def test_refused_fields() -> None:
    first = {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    second = {"error": {"message": "Unsupported value: 'temperature' does not support 0"}}
    transport = Replies(reply(400, first), reply(400, second), reply(200))
    answered, outcomes = ask(transport)
    assert transport.sent[-1] == {"model": "m", "messages": [], "max_completion_tokens": 5}
    assert len(answered.adjustments) == 2
    assert outcomes == []


def test_a_cloud_function_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCF_STATUS_URL", "http://status/x/")
    waiting = Reply(202, {"NVCF-REQID": "abc"}, b"")
    transport = Replies(waiting, waiting, reply(200))
    ask(transport, use_nvcf=True)
    assert transport.sent[1:] == [{"GET": "http://status/x/abc"}] * 2


def test_a_poll_that_fails_is_no_new_attempt() -> None:
    waiting = Reply(202, {"NVCF-REQID": "abc"}, b"")
    transport = Replies(waiting, reply(503), TransportError("cut off"), waiting, reply(200))
    answered, outcomes = ask(transport, use_nvcf=True)
    assert answered.attempt == 1
    assert outcomes == []
    assert [sent.get("GET") is None for sent in transport.sent] == [True, False, False, False, False]


def test_a_cloud_function_that_works_for_ever() -> None:
    transport = Replies(Reply(202, {"NVCF-REQID": "abc"}, b""))
    transport.timeout_s = 0.05
    with pytest.raises(RequestFailed, match=r"no answer within 0\.05 s"):
        ask(transport, use_nvcf=True, max_retries=1)


def test_a_cloud_function_that_names_no_request() -> None:
    with pytest.raises(RequestFailed, match="202 without NVCF-REQID"):
        ask(Replies(Reply(202, {}, b"")), use_nvcf=True, max_retries=0)


def test_retry_after() -> None:
    pause = REAL_PAUSE
    retries = Retry(total=3, backoff_factor=0.5, retry_after_max=120)
    assert pause(retries, {"Retry-After": "7"}) == 7
    assert pause(retries, {"Retry-After": "100000"}) == 120
    assert pause(retries, {"Retry-After": "soon"}) == retries.get_backoff_time()
    assert pause(retries, {}) == retries.get_backoff_time()


def test_so_many_requests_in_an_interval_whoever_asks() -> None:
    wait, taken = asking._turns(4, per_ms=500), []

    def turn(_number: int) -> None:
        wait()
        taken.append(time.monotonic())

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(turn, range(12)))
    taken.sort()
    assert all(later - earlier > 0.4 for earlier, later in zip(taken, taken[4:], strict=False))


ESCAPED = "".join(f"\\u{ord(character):04x}" for character in "the-secret-key")


@pytest.mark.parametrize("echo", ["the-secret-key", ESCAPED, "the\\u002dsecret-key"])
def test_an_echo_is_redacted_however_it_is_written(echo: str) -> None:
    message = f'{{"choices": [{{"message": {{"content": "B {echo}"}}, "finish_reason": "stop"}}], "{echo}": 1}}'
    answered, _ = ask(Replies(Reply(200, {}, message.encode())))
    assert answered.body["choices"][0]["message"]["content"] == f"B {REDACTED}"
    assert answered.body[REDACTED] == 1
    with pytest.raises(RequestFailed) as caught:
        ask(Replies(Reply(400, {}, f'{{"error": "{echo}"}}'.encode())))
    assert str(caught.value) == f'HTTP 400: {{"error": "{REDACTED}"}}'


@pytest.mark.parametrize("content", ["Basic metabolic panel", "sk-0123456789abcdef", "Bearer 9bQz0PLx2MnWv8RtYs4H", "a://b:c@d"])
def test_what_is_scored_is_what_the_model_said(content: str) -> None:
    said = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}], "echo": "the-secret-key"}
    answered, _ = ask(Replies(reply(200, said)))
    assert answered.body == {**said, "echo": REDACTED}


@pytest.mark.parametrize("before", range(asking.ERROR_TEXT_LIMIT - 14, asking.ERROR_TEXT_LIMIT + 1))
def test_a_key_is_redacted_before_an_error_is_cut(before: int) -> None:
    body = b"x" * before + b"the-secret-key and more"
    with pytest.raises(RequestFailed) as caught:
        ask(Replies(Reply(400, {}, body)))
    assert "xt" not in str(caught.value)
    assert len(str(caught.value)) == len("HTTP 400: ") + asking.ERROR_TEXT_LIMIT


def test_an_answer_that_is_nested_too_deeply_is_none() -> None:
    deep = Reply(200, {}, b"[" * 100_000 + b"]" * 100_000)
    answered, outcomes = ask(Replies(deep, reply(200)))
    assert answered.body == GOOD
    assert outcomes == ["retried: the answer is not JSON"]
