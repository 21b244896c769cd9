"""What a download may end with."""

from __future__ import annotations

from eval_factory.data.failure import FetchError


def test_a_failure_says_why_and_whether_the_host_answered() -> None:
    assert str(FetchError("HTTP 404")) == "HTTP 404"
    assert FetchError("HTTP 404").unreachable is False
    assert FetchError("no route", unreachable=True).unreachable is True
