"""What is said of a request without an answer, and which failures end more than their own request."""

from __future__ import annotations

from eval_factory.endpoint.replies import (
    EndpointGone,
    EndpointUnusable,
    LimitReached,
    NoneAnswered,
    ParamUnsupported,
    RequestFailed,
    TransientFailure,
)


def test_a_cause_is_the_endpoints_own_sentence_and_else_the_message() -> None:
    assert RequestFailed("HTTP 400: no, and a whole prompt", 400, "no").cause == "HTTP 400: no"
    assert RequestFailed("the connection was closed").cause == "the connection was closed"


def test_what_ends_a_run_is_told_from_what_ends_a_request() -> None:
    kinds = [EndpointGone, NoneAnswered, LimitReached, RequestFailed, TransientFailure, ParamUnsupported]
    assert [kind for kind in kinds if issubclass(kind, EndpointUnusable)] == [EndpointGone, NoneAnswered, LimitReached]
    assert not issubclass(EndpointGone, NoneAnswered)


def test_an_attempt_keeps_what_decides_on_the_next_one() -> None:
    failed = TransientFailure("busy", 503, {"Retry-After": "2"}, unreachable=True, silent=True, said="later")
    assert (str(failed), failed.status, failed.headers["Retry-After"]) == ("busy", 503, "2")
    assert (failed.unreachable, failed.silent, failed.said) == (True, True, "later")
    plain = TransientFailure("busy", None, {})
    assert (plain.unreachable, plain.silent, plain.said) == (False, False, "")
    assert ParamUnsupported({"max_tokens": None}).changes == {"max_tokens": None}
