from __future__ import annotations

import pytest

from eval_factory.endpoint import retrying_client
from eval_factory.endpoint.retrying_client import OutageDetector


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retrying_client, "time", clock)
    return clock


def attempts_until_gone(detector: OutageDetector, *, unreachable: bool) -> int:
    return next(number for number in range(1, 1000) if detector.nothing_received(unreachable=unreachable))


@pytest.mark.parametrize(
    ("parallelism", "max_retries", "unreachable", "attempts"),
    [(1, 0, True, 9), (4, 9, True, 12), (1, 0, False, 9), (4, 5, False, 24), (1, 5, False, 18)],
)
def test_often_enough_for_as_many_threads(
    parallelism: int, max_retries: int, attempts: int, monkeypatch: pytest.MonkeyPatch, *, unreachable: bool
) -> None:
    monkeypatch.setattr(retrying_client, "OUTAGE_S", 0.0)
    detector = OutageDetector(max_retries=max_retries, parallelism=parallelism)
    assert attempts_until_gone(detector, unreachable=unreachable) == attempts


def test_and_for_long_enough(clock: Clock) -> None:
    detector = OutageDetector(max_retries=0, parallelism=1)
    assert not any(detector.nothing_received(unreachable=True) for _ in range(100))
    clock.now += retrying_client.OUTAGE_S - 1
    assert not detector.nothing_received(unreachable=True)
    clock.now += 1
    assert detector.nothing_received(unreachable=True)


def test_what_is_received_begins_anew(clock: Clock) -> None:
    detector = OutageDetector(max_retries=0, parallelism=1)
    for _ in range(8):
        detector.nothing_received(unreachable=True)
    detector.received()
    clock.now += retrying_client.OUTAGE_S
    assert not any(detector.nothing_received(unreachable=True) for _ in range(100))  # for no time since then
