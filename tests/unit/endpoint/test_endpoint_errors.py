"""What is said of a request without an answer, and which failures end more than their own request."""

from __future__ import annotations

from eval_factory.endpoint.replies import (
    EndpointGone,
    EndpointUnusable,
    LimitReached,
    NoneAnswered,
    RequestFailed,
    TransientFailure,
)


def test_a_cause_is_the_endpoints_own_sentence_and_else_the_message() -> None:
    assert RequestFailed("HTTP 400: no, and a whole prompt", 400, "no").cause == "HTTP 400: no"
    assert RequestFailed("the connection was closed").cause == "the connection was closed"


def test_what_ends_a_run_is_told_from_what_ends_a_request() -> None:
    kinds = [EndpointGone, NoneAnswered, LimitReached, RequestFailed, TransientFailure]
    assert [kind for kind in kinds if issubclass(kind, EndpointUnusable)] == [EndpointGone, NoneAnswered, LimitReached]
    assert not issubclass(EndpointGone, NoneAnswered)
