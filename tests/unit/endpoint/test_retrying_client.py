"""Tests of what is asked again and what is not, on replies made here; real connections are in tests/faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from builders import endpoint_settings
from eval_factory.core.budget import Budget, Spending, SpendingTracker
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.endpoint import failure_counts, replies, retrying_client, servers
from eval_factory.endpoint.endpoint_settings import EndpointLimits
from eval_factory.endpoint.http_wire import Reply, TransportError
from eval_factory.endpoint.limits import LocalAdmission, Ticket
from eval_factory.endpoint.openai_api import SetTo
from eval_factory.endpoint.replies import (
    EndpointGone,
    EndpointUnusable,
    LimitReached,
    RequestFailed,
    StopMessages,
)
from eval_factory.endpoint.retrying_client import RetryingClient
from eval_factory.endpoint.servers import Server, Servers
from eval_factory.endpoint.sign_in import SignIn
from facts import naming, says
from told_replies import (
    BODY,
    GOOD,
    UNREACHABLE,
    Replies,
    ask,
    ask_until_it_stops,
    client_of,
    reply,
    unnoted,
)

REAL_PAUSE = failure_counts._pause


class Noted(list[tuple[int, str, int | None]]):
    """What the journal is told: attempt, outcome, status."""

    def __call__(
        self, number: int, outcome: str, error: RequestFailed, started: float, latency: float
    ) -> None:
        assert 0.0 <= latency < 60.0
        assert abs(time.time() - started) < 60.0
        self.append((number, outcome, error.status))


def never_noted(*_: object) -> None:
    raise AssertionError("no attempt failed")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_counts, "_pause", lambda *_: 0.0)
    monkeypatch.setattr(retrying_client, "NVCF_FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    "status", [408, 409, 425, 429, 498, 500, 502, 503, 504, 507, *range(520, 528), 529, 530]
)
def test_asked_again(status: int) -> None:
    transport = Replies(reply(status, {"error": "x"}), reply(status, {"error": "x"}), reply(200))
    answered, outcomes = ask(transport)
    assert answered.attempt == len(transport.sent) == 3
    assert [outcome.partition(":")[0] for outcome in outcomes] == ["retried", "retried"]


INTERRUPTED = {"choices": [{"message": {"content": "The"}, "finish_reason": "abort"}]}


@pytest.mark.parametrize(
    "body",
    [
        INTERRUPTED,
        {"error": {"message": "overloaded", "code": 529}},
        {"error": {"message": "Provider returned error"}},
        {"code": 500, "msg": "busy", "success": False},
    ],
)
def test_a_passing_fault_inside_a_200_is_asked_again_up_to_max_retries(body: Any) -> None:
    transport = Replies(*[reply(200, body)] * 3, reply(200))
    answered, _ = ask(transport, max_retries=3)
    assert answered.attempt == len(transport.sent) == 4


@pytest.mark.parametrize("body", [b"no JSON", {"choices": []}, {"msg": "something odd"}, b"<html>"])
def test_what_arrived_and_cannot_be_read_is_asked_for_once_more(body: Any) -> None:
    transport = Replies(reply(200, body))
    with pytest.raises(RequestFailed):
        ask(transport, max_retries=5)
    assert len(transport.sent) == 2


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_lasting_error_inside_a_200_is_not_asked_again(code: int) -> None:
    transport = Replies(reply(200, {"error": {"message": "too large", "code": code}}))
    with pytest.raises(RequestFailed, match=str(code)):
        ask(transport, max_retries=5)
    assert len(transport.sent) == 1


def test_an_answer_to_another_question_is_asked_for_once_more() -> None:
    transport = Replies(TransportError("doubted", stray=True))
    with pytest.raises(RequestFailed, match="doubted"):
        ask(transport, max_retries=5)
    assert len(transport.sent) == 2


def test_an_answer_that_is_doubted_is_asked_for_on_a_new_connection() -> None:
    """There it is the first, which is never doubted: a doubt costs no question."""

    class Shared(Replies):
        def post(self, *_: Any, **__: Any) -> Reply:
            raise TransportError("of another question", stray=True)

        def post_alone(
            self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
        ) -> Reply:
            return self._next(dict(body))

    transport = Shared(reply(200))
    answered, outcomes = ask(transport, max_retries=0)
    assert (answered.attempt, len(transport.sent), len(outcomes)) == (2, 1, 1)


def test_an_address_without_v1_that_says_so_in_a_200_stops_at_once() -> None:
    transport = Replies(reply(200, {"error": "Unexpected endpoint or method. (POST /x)"}))
    with pytest.raises(EndpointUnusable, match="404"):
        ask(transport, max_retries=5)
    assert len(transport.sent) == 1


GONE = {
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "type": "insufficient_quota",
    "code": "insufficient_quota",
}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, GONE),
        (402, {"message": "This request requires more credits"}),
        (429, {"code": "1113", "message": "Insufficient balance or no resource package"}),
        (403, {"message": "no", "code": "insufficient_quota"}),
        (200, {"message": "insufficient balance"}),
    ],
)
def test_an_account_without_credit_stops_the_run_at_once(status: int, error: Any) -> None:
    transport = Replies(reply(status, {"error": error}))
    noted = Noted()
    with pytest.raises(EndpointUnusable, match="no credit") as stopped:
        client_of(transport, has_answered=True, is_patient=True, max_retries=5).ask(BODY, noted)
    says(str(stopped.value), "same command goes on")
    assert len(transport.sent) == len(noted) == 1


GEMINI = {
    "message": f"{GONE['message']} * Quota exceeded for metric: generate_content_requests, 10",
    "status": "RESOURCE_EXHAUSTED",
}


@pytest.mark.parametrize(
    ("error", "headers"), [(GEMINI, {}), (GONE, {"retry-after": "20"}), ({"message": "slow"}, {})]
)
def test_a_limit_a_minute_is_waited_for(error: Any, headers: dict[str, str]) -> None:
    transport = Replies(reply(429, {"error": error}, **headers), reply(200))
    answered, _ = ask(transport)
    assert answered.attempt == 2


@pytest.mark.parametrize("status", [429, 498, 503, 529])
def test_a_pause_of_hours_stops_the_run(status: int) -> None:
    transport = Replies(reply(status, {"error": "x"}, **{"retry-after": "7200"}))
    with pytest.raises(EndpointUnusable, match="limit until 20") as stopped:
        ask(transport)
    says(str(stopped.value), "same command goes on")
    assert len(transport.sent) == 1


@pytest.mark.parametrize("status", [429, 498])
@pytest.mark.parametrize(
    ("said", "until"),
    [
        ("Too many tokens per day, please wait before trying again.", "hours or days"),
        ("Rate limit reached (TPD). Please try again in 39m38.016s.", "limit until 20"),
        ("Quota exceeded for metric: free_tier_requests. Please retry in 20h31m.", "until 20"),
    ],
)
def test_a_limit_of_hours_that_only_words_tell_stops_the_run(
    said: str, until: str, status: int
) -> None:
    transport = Replies(reply(status, {"error": {"message": said}}))
    with pytest.raises(EndpointUnusable, match=until) as stopped:
        ask(transport)
    says(str(stopped.value), "same command goes on")
    assert len(transport.sent) == 1


def test_a_pause_that_a_server_states_counts_before_its_words() -> None:
    error = {"error": {"message": "Rate limit reached on tokens per day (TPD)"}}
    transport = Replies(reply(429, error, **{"retry-after": "1"}), reply(200))
    answered, _ = ask(transport)
    assert answered.attempt == 2


def test_one_server_of_several_with_a_daily_limit_is_left_out() -> None:
    settings = endpoint_settings(max_retries=2)
    limited = Replies(reply(429, {"error": "x"}, **{"retry-after": "7200"}))
    well = Replies(reply(200))
    messages = StopMessages(settings, "http://h/v1", None)
    both = [Server(settings, "http://h/v1", one, messages) for one in (limited, well)]
    client = RetryingClient(settings, Servers(both, SignIn(None), Redactor([])))
    for _ in range(5):
        client.ask(BODY, unnoted)
    assert len(limited.sent) == 1
    assert len(well.sent) == 5
    well.replies = [reply(402, {"error": "x"})]
    with pytest.raises(EndpointUnusable, match="no credit"):
        client.ask(BODY, unnoted)


def test_a_refused_parameter_is_set_to_the_allowed_value_once_for_the_run() -> None:
    refusal = {"error": {"message": "invalid temperature: only 1 is allowed for this model"}}
    transport = Replies(reply(422, refusal), reply(200))
    client = client_of(transport)
    for _ in range(3):
        assert client.ask(BODY, unnoted).changes == {"temperature": SetTo(1)}
    assert [sent["temperature"] for sent in transport.sent] == [0.0, 1, 1, 1]


def test_values_that_contradict_each_other_are_not_tried_for_ever() -> None:
    only = "invalid temperature: only {} is allowed".format
    replies = [reply(400, {"error": only(value)}) for value in (1, 0.6, 1)]
    transport = Replies(*replies)
    with pytest.raises(RequestFailed):
        client_of(transport).ask(BODY, unnoted)
    assert [sent.get("temperature") for sent in transport.sent] == [0.0, 1, None]


@pytest.mark.parametrize("status", [202, 400, 413, 422, 501, 505])
def test_not_asked_again(status: int) -> None:
    transport = Replies(reply(status, {"error": "the-secret-key in here"}))
    with pytest.raises(RequestFailed, match=f"HTTP {status}") as raised:
        ask(transport)
    assert len(transport.sent) == 1
    assert "the-secret-key" not in str(raised.value)


@pytest.mark.parametrize("status", [301, 401, 403, 404, 407])
def test_stops(status: int) -> None:
    noted = Noted()
    with pytest.raises(EndpointUnusable, match="check"):
        client_of(Replies(reply(status)), has_answered=status == 401).ask(BODY, noted)
    assert noted == [(1, "refused", status)], (
        "it was sent, and counts in the next run of the folder"
    )


@pytest.mark.parametrize("status", [401, 403, 404])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"error": {"message": "not\nwith the-secret-key", "flagged_input": "the prompt"}},
            "not with [API_KEY_REDACTED]",
        ),
        ({"error": "no such model"}, "no such model"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"error": {"message": "x" * 1000}}, "x" * replies.ERROR_TEXT_LIMIT),
    ],
)
def test_a_stop_says_what_the_endpoint_says(status: int, body: Any, said: str) -> None:
    with pytest.raises(EndpointUnusable) as raised:
        ask(Replies(reply(status, body)))
    assert f"\n  it says: {said}\n" in str(raised.value)


@pytest.mark.parametrize("status", [403, 404])
def test_refused_after_an_answer_is_that_prompts_own(status: int) -> None:
    flagged = reply(status, {"error": {"message": "flagged"}})
    client = client_of(Replies(reply(200), flagged, reply(200)))
    noted = Noted()
    client.ask(BODY, unnoted)
    with pytest.raises(RequestFailed, match="flagged"):
        client.ask(BODY, noted)
    assert noted == [(1, "failed", status)]  # not asked again
    client.ask(BODY, unnoted)
    with pytest.raises(RequestFailed, match="flagged"):  # also where the probe alone was answered
        client_of(Replies(flagged), has_answered=True).ask(BODY, unnoted)


def test_refused_again_and_again_is_not() -> None:
    most = retrying_client.REFUSALS_IN_A_ROW
    client = client_of(Replies(reply(200), *[reply(403)] * (most - 1), reply(200), reply(404)))
    client.ask(BODY, unnoted)
    for _ in range(most - 1):
        with pytest.raises(RequestFailed):
            client.ask(BODY, unnoted)
    client.ask(BODY, unnoted)
    assert ask_until_it_stops(client)[0] + 1 == most


@pytest.mark.parametrize(
    ("names", "named"),
    [(["ALL_PROXY"], "ALL_PROXY"), (["http_proxy", "ALL_PROXY"], "http_proxy"), ([], "HTTP_PROXY")],
)
def test_a_proxy_that_wants_a_login_is_named(
    names: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in names:
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with pytest.raises(EndpointUnusable, match=f"proxy .* 407.*\n.* {named}$"):
        ask(Replies(reply(407)))


@pytest.mark.parametrize("status", [200, 201, 203])
def test_an_answer_with_another_status_of_success(status: int) -> None:
    assert ask(Replies(reply(status)))[0].completion.body == GOOD


@pytest.mark.parametrize("body", [b"[" * 200_000, b"", b'{"choices": [{"message": null}]}'])
def test_a_200_that_is_no_answer_is_asked_again(body: bytes) -> None:
    assert ask(Replies(reply(200, body), reply(200)))[0].attempt == 2


HOSTILE = "no\x1b[2J\x9b\u202e\r\neval-factory stops: paid\u2028for"
SHOWN = "no\\x1b[2J\\x9b\\u202e eval-factory stops: paid for"
NOTE = "A 54-year-old man has had chest pain since this morning."


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": HOSTILE, "input": NOTE}}),
        (429, {"error": {"message": HOSTILE, "input": NOTE}}),
        (500, {"detail": HOSTILE, "input": NOTE}),
        (401, {"error": {"message": HOSTILE}}),
        (200, {"error": {"message": HOSTILE}, "input": NOTE}),
        (200, {"choices": [{"error": {"message": HOSTILE, "input": NOTE}}]}),
        (400, HOSTILE.encode()),
        (503, HOSTILE.encode()),
    ],
)
def test_what_an_error_says_is_shown_on_a_line_and_alone(status: int, body: Any) -> None:
    with pytest.raises((RequestFailed, EndpointUnusable)) as raised:
        ask(Replies(reply(status, body)))
    assert SHOWN in str(raised.value)
    assert NOTE not in str(raised.value)
    assert all(line.isprintable() for line in str(raised.value).split("\n"))


@pytest.mark.parametrize("body", [{"error": {"message": f"bad: {NOTE}"}}, f"bad: {NOTE}".encode()])
@pytest.mark.parametrize("status", [200, 400, 429])
def test_a_prompt_that_an_error_quotes_is_not_shown(status: int, body: Any) -> None:
    asked = {**BODY, "messages": [{"role": "user", "content": NOTE}]}
    with pytest.raises(RequestFailed) as raised:
        client_of(Replies(reply(status, body)), max_retries=0).ask(asked, unnoted)
    assert "chest" not in str(raised.value)
    assert "[text of the prompt]" in str(raised.value) or (status, type(body)) == (200, bytes)


def test_nobody_there_is_not_tried_for_long() -> None:
    transport = Replies(UNREACHABLE)
    with pytest.raises(EndpointGone, match="cannot reach"):
        ask(transport, max_retries=50)
    assert len(transport.sent) == retrying_client.TRIES_TO_REACH


def test_refused_fields() -> None:
    first = {
        "error": {
            "message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        }
    }
    second = {"error": {"message": "Unsupported value: 'temperature' does not support 0"}}
    transport = Replies(reply(400, first), reply(400, second), reply(500), reply(200))
    answered, outcomes = ask(transport)
    assert transport.sent[-1] == {"model": "m", "messages": [], "max_completion_tokens": 5}
    assert answered.changes == {"max_tokens": "max_completion_tokens", "temperature": None}
    # each counts
    assert [outcome[:17] for outcome in outcomes] == ["refused: HTTP 400"] * 2 + [
        "retried: HTTP 500"
    ]
    assert len(transport.sent) == 4


def test_a_cloud_function_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCF_STATUS_URL", "http://status/x/")
    waiting = Reply(202, {"nvcf-reqid": "abc"}, b"")
    transport = Replies(
        waiting, waiting, reply(503), TransportError("cut off"), waiting, reply(200)
    )
    answered, outcomes = ask(transport, use_nvcf=True)
    assert transport.sent == [BODY, *[{"GET": "http://status/x/abc"}] * 5]
    assert (answered.attempt, outcomes) == (1, []), "a poll that fails is no new attempt"


def test_a_cloud_function_that_works_for_ever() -> None:
    transport = Replies(Reply(202, {"nvcf-reqid": "abc"}, b""))
    transport.timeout_s = 0.05
    with pytest.raises(RequestFailed, match=naming("no answer", "0.05 s")):
        ask(transport, use_nvcf=True, max_retries=1)


ESCAPED = "".join(f"\\u{ord(character):04x}" for character in "the-secret-key")


@pytest.mark.parametrize("echo", ["the-secret-key", ESCAPED, "the\\u002dsecret-key"])
def test_an_echo_is_redacted_however_it_is_written(echo: str) -> None:
    message = f'{{"choices": [{{"message": {{"content": "B {echo}"}}, "finish_reason": "stop"}}], "{echo}": 1}}'
    answered, _ = ask(Replies(reply(200, message.encode())))
    assert answered.completion.body["choices"][0]["message"]["content"] == f"B {REDACTED}"
    assert answered.completion.body[REDACTED] == 1
    with pytest.raises(RequestFailed) as caught:
        ask(Replies(reply(400, f'{{"error": "{echo}"}}'.encode())))
    assert str(caught.value) == f"HTTP 400: {REDACTED}"


@pytest.mark.parametrize(
    "content",
    ["Basic metabolic panel", "sk-0123456789abcdef", "Bearer 9bQz0PLx2MnWv8RtYs4H", "a://b:c@d"],
)
def test_what_is_scored_is_what_the_model_said(content: str) -> None:
    said = {
        "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
        "echo": "the-secret-key",
    }
    answered, _ = ask(Replies(reply(200, said)))
    assert answered.completion.body == {**said, "echo": REDACTED}


@pytest.mark.parametrize(
    "before", range(replies.ERROR_TEXT_LIMIT - 14, replies.ERROR_TEXT_LIMIT + 1)
)
def test_a_key_is_redacted_before_an_error_is_cut(before: int) -> None:
    with pytest.raises(RequestFailed) as caught:
        ask(Replies(reply(400, b"x" * before + b"the-secret-key and more")))
    assert "xt" not in str(caught.value)
    assert len(str(caught.value)) == len("HTTP 400: ") + replies.ERROR_TEXT_LIMIT


def test_a_field_is_refused_only_where_leaving_it_out_helped() -> None:
    """An error may speak of a field because its prompt does: then it comes again without it."""
    of_a_prompt = reply(400, {"error": {"message": "Unsupported topic: 'temperature'"}})
    transport = Replies(of_a_prompt, of_a_prompt, reply(200))
    client = client_of(transport)
    with pytest.raises(RequestFailed, match="Unsupported topic"):
        client.ask(BODY, unnoted)
    assert [set(BODY) - set(sent) for sent in transport.sent] == [set(), {"temperature"}]
    assert client.ask(BODY, never_noted).changes == {}
    assert transport.sent[-1] == BODY


def test_a_field_whose_absence_helped_is_left_out_from_then_on() -> None:
    transport = Replies(reply(400, {"error": "Unsupported value: 'temperature'"}), reply(200))
    client = client_of(transport)
    for note in (unnoted, never_noted):
        assert client.ask(BODY, note).changes == {"temperature": None}
    assert [("temperature" in sent) for sent in transport.sent] == [True, False, False]


class Admitting(LocalAdmission):
    """Writes down what it is told."""

    def __init__(self, in_turn: Callable[[], None] = lambda: None) -> None:
        super().__init__(EndpointLimits(1))
        self.told: list[Any] = []
        self._in_turn = in_turn

    @contextmanager
    def slot(self, body: Mapping[str, Any] | None = None) -> Iterator[Ticket]:
        with super().slot(body) as since:
            self.told += ["in", body]
            self._in_turn()
            yield since
        self.told.append("answered")

    def too_many(self, slot: Ticket, pause: float | None) -> None:
        super().too_many(slot, pause)
        self.told.append(pause)

    def stop(self) -> None:
        self.told.append("stop")


def test_whoever_lets_requests_through_knows_each_attempt() -> None:
    admission = Admitting()
    refused = [
        reply(status, **{"Retry-After": pause})
        for status, pause in ((429, "7"), (503, "500"), (529, "0"))
    ]
    transport = Replies(*refused, reply(500, **{"Retry-After": "9"}), reply(200))
    client_of(transport, max_retries=5, admission=admission).ask(BODY, unnoted)
    capped = failure_counts.RETRY_AFTER_MAX_S
    assert admission.told == [
        "in",
        BODY,
        7.0,
        "in",
        BODY,
        capped,
        "in",
        BODY,
        None,
        "in",
        BODY,
        "in",
        BODY,
        "answered",
    ]


def test_whoever_waits_for_a_turn_does_not_ask_after_the_stop() -> None:
    admission = Admitting(lambda: client.stop(EndpointUnusable("stopped meanwhile")))
    transport = Replies(reply(200))
    client = client_of(transport, admission=admission)
    with pytest.raises(EndpointUnusable, match="stopped meanwhile"):
        client.ask(BODY, unnoted)
    assert (transport.sent, admission.told[:3]) == ([], ["in", BODY, "stop"])


def test_only_a_bad_request_speaks_of_fields() -> None:
    transport = Replies(reply(413, {"error": "Unsupported value: 'temperature'"}))
    with pytest.raises(RequestFailed, match="HTTP 413"):
        client_of(transport).ask(BODY, unnoted)
    assert transport.sent == [BODY]


def test_each_request_that_is_sent_is_asked_for_and_told_to_the_journal() -> None:
    """A retry, and one without a parameter that was refused, are requests too; one that a limit forbids is none."""
    tracker = SpendingTracker(Budget(max_requests=5))
    noted = Noted()
    refused = reply(
        400, {"error": {"message": "Unsupported parameter: 'temperature'", "param": "temperature"}}
    )
    transport = Replies(reply(500, {}), refused, reply(200))
    client = client_of(transport, budget=tracker)
    client.ask(BODY, noted)
    assert noted == [(1, "retried", 500), (2, "refused", 400)]
    assert (len(transport.sent), tracker.spent) == (3, Spending(requests=3))
    client.ask(BODY, never_noted)
    client.ask(BODY, never_noted)
    for _ in range(2):
        with pytest.raises(LimitReached, match=r"^max_requests$"):
            client.ask(BODY, never_noted)
    assert (len(transport.sent), tracker.spent) == (5, Spending(requests=5))


def test_a_request_that_a_limit_forbids_is_in_no_journal() -> None:
    refused = reply(400, {"error": "Unsupported parameter: 'temperature'"})
    noted = Noted()
    client = client_of(Replies(refused, reply(200)), budget=SpendingTracker(Budget(max_requests=1)))
    with pytest.raises(LimitReached):
        client.ask(BODY, noted)
    assert noted == [(1, "refused", 400)]


def test_a_request_with_an_old_token_was_sent_too() -> None:
    """Only what says that the token is old asks for a new one."""
    renewed = []

    class Renewing(SignIn):
        def renew(self, rejected: str | None) -> bool:
            renewed.append(rejected)
            return True

    for status, outcome, times in ((401, "refused", 1), (500, "retried", 0)):
        transport = Replies(reply(status), reply(200))
        noted = Noted()
        renewed.clear()
        client_of(transport, sign_in=Renewing(None)).ask(BODY, noted)
        assert (noted, len(transport.sent), len(renewed)) == ([(1, outcome, status)], 2, times)


def test_at_a_limit_nobody_waits_for_the_end_of_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_counts, "_pause", REAL_PAUSE)
    client = client_of(Replies(reply(429, {}, **{"Retry-After": "100"}), reply(200)))
    noted: list[int] = []

    def note(number: int, *_: object) -> None:
        noted.append(number)
        client.stop(LimitReached("max_wall_s"))  # as the clock does

    with pytest.raises(LimitReached, match="max_wall_s"):
        client.ask(BODY, note)
    assert noted == [1]


def test_a_picture_that_is_none_is_paid_for_once() -> None:
    transport = Replies(reply(200, {"data": [{"url": "https://h/x.png"}]}))
    with pytest.raises(RequestFailed, match=naming("a URL", "not fetched")):
        client_of(transport, endpoint_type="images").ask(
            {"model": "m", "prompt": "x", "n": 1}, unnoted
        )
    assert len(transport.sent) == 1


def test_headers_of_ones_own_are_sent_beside_the_key() -> None:
    sent = list[Mapping[str, str]]()

    class Recording(Replies):
        def post(
            self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
        ) -> Reply:
            sent.append(dict(headers or {}))
            return super().post(url, body, headers)

    settings = endpoint_settings(headers={"dataClassification": "confidential", "X-B": "${MY_B}"})
    assert settings.secret_variables == ["MY_B"]
    made = servers.make_servers(
        settings, env={"MY_B": "secret-b"}, redactor=Redactor(), say=lambda _line: None
    )
    made.all[0].transport = Recording(reply(200))
    RetryingClient(settings, made).ask(BODY, unnoted)
    assert sent == [{"dataClassification": "confidential", "X-B": "secret-b"}]


@pytest.mark.parametrize("name", ["data", "result", "response", "output"])
def test_an_answer_in_an_envelope_is_read(name: str) -> None:
    transport = Replies(reply(200, {"code": 0, "msg": "ok", name: GOOD}))
    assert client_of(transport).ask(BODY, never_noted).completion.choices[0].text == "B"


DAY_LIMITS = [
    {"error": {"metadata": {"headers": {"X-RateLimit-Reset": "9999999999000"}}}},
    {"error": {"message": "Limit 100000, Used 99998. Please try again in 14m24.5s."}},
    {"error": {"message": "tokens per day. Please try again in 2h1m3s."}},
]


@pytest.mark.parametrize("body", DAY_LIMITS)
def test_a_limit_a_day_that_only_the_body_tells_stops_the_run(body: Any) -> None:
    transport = Replies(reply(429, body))
    with pytest.raises(EndpointUnusable, match="limit"):
        client_of(transport, has_answered=True).ask(BODY, unnoted)
    assert len(transport.sent) == 1


def test_a_short_pause_in_the_body_is_no_limit_a_day() -> None:
    error = {"error": {"message": "Rate limit reached. Please try again in 6ms or 1.2s."}}
    assert ask(Replies(reply(429, error), reply(200)))[0].attempt == 2


@pytest.mark.parametrize("status", [400, 403, 429])
def test_credit_that_is_gone_stops_the_run_whatever_the_status(status: int) -> None:
    transport = Replies(reply(status, {"error": {"message": "Your credit balance is too low"}}))
    with pytest.raises(EndpointUnusable, match="no credit"):
        client_of(transport, has_answered=True).ask(BODY, unnoted)
    assert len(transport.sent) == 1
