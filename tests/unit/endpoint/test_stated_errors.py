"""Errors inside a 200: which status each means, and whether it is paid for again."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.endpoint import openai_answers, stated_errors


def error_in(answer: Any) -> openai_answers.UnusableAnswer:
    with pytest.raises(openai_answers.UnusableAnswer) as caught:
        openai_answers.read_answer(answer, "chat")
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
        ({"error": {"code": "1113", "message": "余额不足或无可用资源包"}}, 402, "1113"),
        (
            {"code": "Arrearage", "message": "make sure your account is in good standing"},
            402,
            "good",
        ),
        ({"error": {"code": "1302", "message": "您当前使用该API的并发数过高"}}, 429, "1302"),
        ({"error": {"code": "1301", "message": "可能包含不安全或敏感内容"}}, 400, "1301"),
        ({"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}, 400, "1026"),
        ({"error_code": 110, "error_msg": "Access token invalid"}, 401, "110"),
        ({"error": "Model org/model is currently loading"}, 503, "loading"),
        ({"errors": [{"message": "model not loaded"}]}, 503, "loaded"),
        ({"detail": "Not Found"}, 404, "Not Found"),
        ({"fault": {"faultstring": "Rate limit quota violation"}}, 429, "violation"),
        ({"errorMessage": "Task timed out after 29.00 seconds"}, 504, "timed out"),
        ({"Response": {"Error": {"Code": "x", "Message": "unavailable"}}}, 503, "unavailable"),
    ],
)
def test_an_error_in_a_200_means_a_status(answer: Any, status: int, shown: str) -> None:
    error = error_in(answer)
    assert isinstance(error, openai_answers.StatedError)
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
    assert not isinstance(error, openai_answers.StatedError)
    assert shown in str(error)


@pytest.mark.parametrize(
    ("status", "said", "body"),
    [
        (400, "Budget has been exceeded! Current cost: 10.1", '{"type": "budget_exceeded"}'),
        (412, "Account x is suspended, possibly due to reaching the monthly spending limit", ""),
        (429, "Your account is suspended", '{"type": "exceeded_current_quota_error"}'),
        (403, "The free tier of the model has been exhausted.", ""),
        (429, "a Trial key, which is limited to 1000 API calls / month.", ""),
        (402, "whatever", ""),
        (
            403,
            "Your newly created teams doesn't have any credits yet. You can purchase credits",
            "",
        ),
    ],
)
def test_an_account_without_credit_is_known_by_its_words(status: int, said: str, body: str) -> None:
    assert stated_errors.means_no_credit(status, said, body)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, "Budget has been exceeded!"),
        (429, "limited to 40 API calls / minute"),
        (403, "free tier"),
        (412, "precondition failed"),
    ],
)
def test_other_limits_are_no_lack_of_credit(status: int, said: str) -> None:
    assert not stated_errors.means_no_credit(status, said, "")


@pytest.mark.parametrize(
    "said",
    [
        "Too many tokens per day, please wait before trying again.",
        "Rate limit reached for model `m` on tokens per day (TPD): Limit 100000, Used 97050",
        "AiError: you have used up your daily free allocation of 10,000 neurons",
        "Usage limit reached for 5 hour. Your limit will reset at 2026-11-29 19:38:28",
        "已达到 5 小时的使用上限。您的限额将在 2026-08-25 07:41:44 重置。",
        "you (user) have reached your session usage limit, upgrade for higher limits",
        "Tokens per day limit exceeded - too many tokens processed.",
        "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 requests",
    ],
)
def test_a_limit_of_hours_or_days_is_known_by_its_words(said: str) -> None:
    assert stated_errors.means_long_limit(said)
    assert stated_errors.status_of(None, said) == 429


@pytest.mark.parametrize(
    "said",
    [
        "Tokens per minute limit exceeded - too many tokens processed.",
        "Rate limit reached for model `m` on tokens per minute (TPM): Limit 6000",
        "Too many tokens, please wait before trying again.",
        "Service tier capacity exceeded for this model.",
        "Resource exhausted. Please try again later.",
        "request reached max organization concurrency: 1, please try again after 1 seconds",
    ],
)
def test_a_limit_that_a_pause_lifts_is_none_of_hours(said: str) -> None:
    assert not stated_errors.means_long_limit(said)


@pytest.mark.parametrize(
    ("said", "pause"),
    [
        ("Please try again in 39m38.016s. Need more tokens?", 2378.016),
        ("Please retry in 20h31m.", 73860.0),
        ("Please retry in 37.93s.", 37.93),
        ("please wait for 2h", 7200.0),
        ("Please try again in 500ms", None),
        ("Please try again in 5 moments", None),
        ("retry in Smhs", None),
        ("try again", None),
    ],
)
def test_a_pause_is_read_in_words(said: str, pause: float | None) -> None:
    assert stated_errors.pause_in(said) == pause
