"""Which of several servers is asked next."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from builders import endpoint_settings
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.core.urls import SERVED_AT
from eval_factory.endpoint import failure_counts, retrying_client, servers
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.http_wire import Reply, TransportError
from eval_factory.endpoint.limits import LocalAdmission
from eval_factory.endpoint.replies import EndpointGone, EndpointUnusable, RequestFailed
from eval_factory.endpoint.retrying_client import RetryingClient
from eval_factory.endpoint.servers import ABSENCE_S, Server, Servers, make_servers
from eval_factory.endpoint.sign_in import OAuthSignIn
from facts import naming

GOOD = {"choices": [{"message": {"content": "B"}, "finish_reason": "stop"}]}
LONGER_THAN_THE_TEST_S = 20.0
BODY = {"model": "m", "messages": [], "max_tokens": 5}
UNREACHABLE = TransportError("no connection could be made", unreachable=True)
CUT = TransportError("the connection was closed", silent=True)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(servers, "time", clock)
    return clock


class Replies(Transport):
    """What it says now: a status, or why there is none."""

    timeout_s = 10.0

    def __init__(self, says: int | TransportError = 200, **headers: str) -> None:
        self.says = says
        self.headers = headers
        self.asked = 0

    def post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        self.asked += 1
        if isinstance(self.says, TransportError):
            raise self.says
        return Reply(
            self.says,
            self.headers,
            json.dumps(GOOD if self.says == 200 else {"error": "no"}).encode(),
        )


SETTINGS = endpoint_settings(
    servers=("http://a/v1", "http://b/v1", "http://c/v1"), max_retries=0, parallelism=6
)


def servers_with(transports: Sequence[Transport], **options: Any) -> Servers:
    """So many of a, b and c."""
    settings = replace(SETTINGS, servers=SETTINGS.servers[: len(transports)])
    found = make_servers(settings, env={}, redactor=Redactor(), say=print, **options)
    for server, transport in zip(found.all, transports, strict=True):
        server.transport = transport
    return found


def three(*transports: Transport, has_answered: bool = True) -> Servers:
    return servers_with(transports or [Replies() for _ in range(3)], has_answered=has_answered)


def name_of(server: Server) -> str:
    return server.name[7]


def chosen(found: Servers, times: int, *avoid: Server) -> str:
    """Who is asked when so many requests come at once."""
    with ExitStack() as stack:
        return "".join(
            name_of(stack.enter_context(found.turn(BODY, avoid)).server) for _ in range(times)
        )


def test_the_fewest_under_way_and_in_turn(clock: Clock) -> None:
    found = three()
    assert Counter(chosen(found, 6)) == {"a": 2, "b": 2, "c": 2}
    assert {chosen(found, 1) for _ in range(3)} == {"a", "b", "c"}
    with found.turn(BODY) as first, found.turn(BODY) as second:
        (third,) = set(found.all) - {first.server, second.server}
        assert chosen(found, 1) == name_of(third)
    assert [server.in_flight for server in found.all] == [0, 0, 0]


def test_those_that_refuse_a_request_are_left_for_one_that_is_busier(clock: Clock) -> None:
    found = three()
    a, b, c = found.all
    c.in_flight = 2
    assert chosen(found, 2, a, b) == "cc"
    assert set(chosen(found, 2)) == {"a", "b"}
    assert set(chosen(found, 6, a, b, c)) == {"a", "b", "c"}, "one of them has to be asked"


def test_one_that_failed_is_left_out_and_then_asked_by_one(clock: Clock) -> None:
    found = three()
    a = found.all[0]
    for _ in range(3):
        assert found.failed(a, None), "others are well"
        clock.now += ABSENCE_S - 0.01
        assert "a" not in chosen(found, 6)
        clock.now += 0.02
        assert chosen(found, 6).count("a") == 1
    found.answered(a)
    assert chosen(found, 6).count("a") == 2


def test_a_pause_that_was_asked_for_is_kept_whatever_else_is_answered(clock: Clock) -> None:
    found = three()
    a = found.all[0]
    found.failed(a, 30.0)
    found.answered(a)  # of a request that was under way
    clock.now += 29.9
    assert "a" not in chosen(found, 6)
    clock.now += 0.2
    assert "a" in chosen(found, 6)


def test_a_later_failure_does_not_shorten_a_pause(clock: Clock) -> None:
    found = three()
    a = found.all[0]
    found.failed(a, 30.0)
    for pause in (2.0, None):
        found.failed(a, pause)
        clock.now += 10.0
        assert "a" not in chosen(found, 6)
    clock.now += 10.1
    assert "a" in chosen(found, 6)


def test_where_all_failed_all_are_asked(clock: Clock) -> None:
    found = three()
    assert [found.failed(server, None) for server in found.all] == [True, True, False]
    assert set(chosen(found, 3)) == {"a", "b", "c"}
    alone = servers_with([Replies()])
    assert not alone.failed(alone.all[0], 60.0)
    assert chosen(alone, 2) == "aa"


def test_all_together_are_no_more_than_the_limit() -> None:
    shared: dict[str, LocalAdmission] = {}

    def limits(name: str) -> LocalAdmission:
        return shared.setdefault(name, LocalAdmission(SETTINGS.limit))

    found = servers_with([Replies() for _ in "abc"], shared_admission=limits)
    assert list(shared) == ["model at server 1", "model at server 2", "model at server 3", "model"]
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(found.turn(BODY))
        seventh = threading.Thread(
            target=lambda: stack.enter_context(found.turn(BODY)), daemon=True
        )
        seventh.start()
        seventh.join(0.1)
        assert seventh.is_alive()
    seventh.join(30)
    assert not seventh.is_alive()


def client(*transports: Transport, has_answered: bool = True) -> RetryingClient:
    return RetryingClient(SETTINGS, three(*transports, has_answered=has_answered))


def ask(asking: RetryingClient) -> tuple[str, list[str]]:
    outcomes: list[str] = []
    answered = asking.ask(BODY, lambda _n, outcome, _e, _s, _l: outcomes.append(outcome))
    return answered.server, outcomes


@pytest.mark.parametrize("lost", [UNREACHABLE, CUT])
def test_a_lost_server_costs_no_retry(lost: TransportError) -> None:
    transports = [Replies(lost), Replies(lost), Replies()]
    asking = client(*transports)
    assert {ask(asking)[0] for _ in range(6)} == {"http://c/v1"}
    assert transports[0].asked == transports[1].asked == 1, "left out after that"


def test_what_comes_too_late_costs_a_retry() -> None:
    """It may have been answered, and would be so at every server."""
    transports = [
        Replies(TransportError("no whole answer within 0 s", silent=True)) for _ in range(3)
    ]
    for transport in transports:
        transport.timeout_s = 0.0
    with pytest.raises(RequestFailed, match="no whole answer"):
        ask(client(*transports))
    assert sum(transport.asked for transport in transports) == 1


def test_a_limit_of_one_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_counts, "_pause", lambda *_: LONGER_THAN_THE_TEST_S)
    began = time.monotonic()
    transports = [Replies(429, **{"Retry-After": "30"}), Replies(), Replies()]
    asking = client(*transports)
    found = [ask(asking) for _ in range(9)]
    assert time.monotonic() - began < LONGER_THAN_THE_TEST_S
    assert transports[0].asked == 1
    assert sorted(outcomes for _, outcomes in found)[-1] == ["retried"]
    assert Counter(server for server, _ in found).keys() == {"http://b/v1", "http://c/v1"}


def test_a_refusal_names_its_server() -> None:
    asking = client(Replies(), Replies(401), Replies())
    assert [ask(asking)[0]] == ["http://a/v1"]
    with pytest.raises(EndpointUnusable, match=r"http://b/v1/chat/completions answers 401"):
        ask(asking)


def test_refusals_of_prompts_are_counted_for_each_server() -> None:
    """One that lost its model answers at once, and answers of the others do not hide it."""
    transports = [Replies(), Replies(), Replies()]
    asking = client(*transports)
    for _ in range(3):
        ask(asking)
    transports[0].says = 404
    with suppress(EndpointUnusable):
        while True:
            with suppress(RequestFailed):
                ask(asking)
    with pytest.raises(EndpointUnusable, match=r"http://a/v1/chat/completions answers 404"):
        ask(asking)
    assert transports[0].asked - 1 == retrying_client.REFUSALS_IN_A_ROW


def test_what_one_server_refuses_is_asked_of_another() -> None:
    """One that lost its model loses no answer; where all refuse, the request failed."""
    transports = [Replies(), Replies(), Replies()]
    asking = client(*transports)
    for _ in range(3):
        ask(asking)
    transports[0].says = 404
    answers = [ask(asking) for _ in range(9)]
    assert {server for server, _ in answers} == {"http://b/v1", "http://c/v1"}
    assert ["refused"] in [outcomes for _, outcomes in answers]
    for transport in transports:
        transport.says = 403
    before = sum(transport.asked for transport in transports)
    with pytest.raises(RequestFailed, match="403"):
        ask(asking)
    assert sum(transport.asked for transport in transports) - before == len(transports)


def test_where_none_was_ever_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_counts, "_pause", lambda *_: 0.0)
    with pytest.raises(
        EndpointGone, match=naming("http://a", "http://b", "http://c", "no connection")
    ):
        ask(client(*(Replies(UNREACHABLE) for _ in range(3)), has_answered=False))


def test_a_limit_a_minute_is_tolerated_until_its_window_has_passed(clock: Clock) -> None:
    server, other, _ = three().all
    first = clock.now
    assert server.tolerates_limit(first)
    clock.now += servers.WINDOW_S - 1
    assert server.tolerates_limit(first)
    clock.now += 1
    assert not server.tolerates_limit(first)
    assert not server.tolerates_limit(clock.now), "nor of another request"
    assert other.tolerates_limit(clock.now), "each server has its own"


def test_and_for_longer_while_others_are_answered(clock: Clock) -> None:
    server = three().all[0]
    first = clock.now
    while clock.now - first < servers._PATIENCE_S:
        assert server.tolerates_limit(first)
        clock.now += 100
        server.answered()
    assert not server.tolerates_limit(first), "a prompt may be larger than the limit"
    assert server.tolerates_limit(clock.now)


KEY = "the-key-0123456789"


def test_the_key_is_signed_with_and_never_shown() -> None:
    redactor = Redactor()
    settings = endpoint_settings(
        key_names=("UNSET", "KEY"), url=f"http://h/{KEY}/v1/", request_timeout=3.0
    )
    servers = make_servers(settings, env={"KEY": KEY}, redactor=redactor, say=print)
    (server,) = servers.all
    assert server.url == f"http://h/{KEY}/v1/chat/completions"
    assert servers.sign_in.header() == f"Bearer {KEY}"
    assert (server.messages.url, server.messages.key_name) == (
        f"http://h/{REDACTED}/v1/chat/completions",
        "KEY",
    )
    assert (servers.redactor is redactor, server.transport.timeout_s) == (True, 3.0)


def test_a_service_signs_in_place_of_a_key() -> None:
    settings = endpoint_settings(
        key_names=("KEY",), oauth=OAuthSettings("openai", "https://t/token", None)
    )
    servers = make_servers(settings, env={"KEY": KEY}, redactor=Redactor(), say=print)
    assert isinstance(servers.sign_in, OAuthSignIn)
    assert servers.sign_in.service == "openai"


@pytest.mark.parametrize(
    ("url", "env", "served_url", "asked"),
    [
        (
            "http://h/${PART}/v1",
            {"PART": "a-part-0123456789"},
            None,
            "http://h/a-part-0123456789/v1/chat/completions",
        ),
        ("demo://baseline", {}, "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/chat/completions"),
        (
            "served://vllm-0a1b/v1",
            {SERVED_AT: "http://127.0.0.1:2"},
            None,
            "http://127.0.0.1:2/v1/chat/completions",
        ),
    ],
    ids=["variables", "embedded", "served by a suite"],
)
def test_where_an_endpoint_is_asked(
    url: str, env: dict[str, str], served_url: str | None, asked: str
) -> None:
    found = make_servers(
        endpoint_settings(url=url), env=env, redactor=Redactor(), say=print, served_url=served_url
    )
    assert found.all[0].url == asked


def test_the_url_of_a_cloud_function_is_taken_as_it_is() -> None:
    settings = endpoint_settings(url="http://h/functions/x", use_nvcf=True)
    assert (
        make_servers(settings, env={}, redactor=Redactor(), say=print).all[0].url
        == "http://h/functions/x"
    )


@pytest.mark.parametrize(
    ("url", "said"), [("http://h/${PART}/v1", "PART"), ("served://v/v1", "its suite serves")]
)
def test_an_endpoint_that_is_nowhere(url: str, said: str) -> None:
    with pytest.raises(PrerequisiteError, match=said):
        make_servers(endpoint_settings(url=url), env={}, redactor=Redactor(), say=print)
