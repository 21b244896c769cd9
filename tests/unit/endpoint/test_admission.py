from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from eval_factory.endpoint import limits as admission_module
from eval_factory.endpoint.limits import LocalAdmission, RateLimiter
from unit.builders import endpoint_settings


class Refused(Exception):
    pass


def test_the_settings_limits_hold() -> None:
    admission = LocalAdmission(endpoint_settings(parallelism=1))
    entered = threading.Event()

    def second() -> None:
        with admission.slot():
            entered.set()

    thread = threading.Thread(target=second)
    with admission.slot():
        thread.start()
        assert not entered.wait(0.1)
    assert entered.wait(30)
    thread.join(30)


def test_a_minute_has_the_settings_requests_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []

    class Limiter(RateLimiter):
        def __init__(self, *limits: Any) -> None:
            given.append(limits)
            super().__init__(None, None)

    monkeypatch.setattr(admission_module, "RateLimiter", Limiter)
    LocalAdmission(endpoint_settings(requests_per_minute=3, tokens_per_minute=4))
    assert given == [(3, 4)]


def test_whoever_waits_for_the_minute_goes_on_after_the_stop() -> None:
    admission = LocalAdmission(endpoint_settings(requests_per_minute=1))
    admission.wait_for_rate({})
    waiting = threading.Thread(target=admission.wait_for_rate, args=({},))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    admission.stop()
    waiting.join(30)
    assert not waiting.is_alive()


def test_fewer_at_once_after_a_refusal_and_more_after_an_answer() -> None:
    admission = LocalAdmission(endpoint_settings(parallelism=2))
    with contextlib.suppress(Refused), admission.slot() as slot:
        admission.too_many(slot, 100.0)
        raise Refused
    entered = threading.Event()

    def second() -> None:
        with admission.slot():
            entered.set()

    thread = threading.Thread(target=second)
    with admission.slot():
        thread.start()
        assert not entered.wait(0.1)
    thread.join(30)
    with admission.slot():  # both were answered
        entered.clear()
        thread = threading.Thread(target=second)
        thread.start()
        assert entered.wait(30)
    thread.join(30)
