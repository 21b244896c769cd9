"""Errors inside a 200: which status each means, and whether it is paid for again."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.endpoint import openai_api


def error_in(answer: Any) -> openai_api.UnusableAnswer:
    with pytest.raises(openai_api.UnusableAnswer) as caught:
        openai_api.read_answer(answer, "chat")
    return caught.value


@pytest.mark.parametrize(
    ("answer", "status", "shown"),
    [
        ({"error": {"message": "overloaded", "code": 529}}, 529, "529"),
        ({"error": {"message": "no", "code": "500"}}, 500, "500"),
        ({"code": 500, "msg": "404 NOT_FOUND", "success": False}, 500, "404 NOT_FOUND"),
        ({"error": "Unexpected endpoint or method. (POST /x)"}, 404, "Unexpected endpoint"),
        ({"error": {"message": "The model is overloaded"}}, 503, "overloaded"),
        ({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, 429, "1002"),
        ({"base_resp": {"status_code": 1004, "status_msg": "login fail"}}, 401, "login fail"),
        ({"error_code": 18, "error_msg": "request limit reached"}, 429, "18"),
        ({"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded"}, 429, "limit"),
        ({"error": {"code": "1113", "message": "Insufficient balance"}}, 402, "balance"),
        ({"error": {"message": "insufficient_quota"}}, 402, "insufficient_quota"),
        ({"detail": "Internal Server Error"}, 502, "Internal Server Error"),
        ({"Response": {"Error": {"Code": "x", "Message": "unavailable"}}}, 503, "unavailable"),
    ],
)
def test_an_error_in_a_200_means_a_status(answer: Any, status: int, shown: str) -> None:
    error = error_in(answer)
    assert isinstance(error, openai_api.StatedError)
    assert error.status == status
    assert shown in str(error)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"msg": "something odd"}, "something odd"),
        ({"error": {"message": "something odd", "code": 77}}, "77"),
        ({"choices": []}, "no choices"),
        ({"type": "message", "content": [{"type": "text", "text": "B"}]}, "no choices"),
        ({"object": "response", "output": []}, "no choices"),
    ],
)
def test_an_error_that_nobody_knows_has_no_status(answer: Any, shown: str) -> None:
    error = error_in(answer)
    assert not isinstance(error, openai_api.StatedError)
    assert shown in str(error)
