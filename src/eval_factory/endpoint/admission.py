"""Who may send a request now: so many at once, so many a minute, fewer when the endpoint has too many.

A run of its own keeps its limits itself (`LocalAdmission`); runs of a suite have them together
(`eval_factory.endpoint.shared_limits`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from eval_factory.endpoint.concurrency import AdaptiveConcurrency
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.rate_limits import RateLimiter


class Admission(Protocol):
    """Lets the requests to one endpoint through; safe among threads."""

    def slot(self) -> AbstractContextManager[float]:
        """Waits for a place among those that ask; gives what `too_many` wants to know of it.

        To leave it without an exception says that the endpoint answered.
        """

    def wait_for_rate(self, body: Mapping[str, Any]) -> None:
        """Waits until this request is within the limits a minute."""

    def too_many(self, slot: float, pause: float | None) -> None:
        """The endpoint refused the request of this slot: it has too many.

        `pause`: seconds that it asks to wait; None: it does not say.
        """

    def stop(self) -> None:
        """No request will be sent any more: whoever waits is let go on, and finds out."""


class _Slot(AbstractContextManager[float]):
    """A place; written out, for a generator takes three times as long, and every request has one."""

    def __init__(self, concurrency: AdaptiveConcurrency) -> None:
        self._concurrency = concurrency

    def __enter__(self) -> float:
        return self._concurrency.enter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._concurrency.leave()
        if kind is None:
            self._concurrency.answered()


class LocalAdmission:
    """Of one client alone. What an endpoint asks to wait, the refused request waits itself."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._concurrency = AdaptiveConcurrency(settings.parallelism)
        self._rate_limiter = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute)
        self._stop = threading.Event()

    def slot(self) -> AbstractContextManager[float]:
        return _Slot(self._concurrency)

    def wait_for_rate(self, body: Mapping[str, Any]) -> None:
        self._rate_limiter.wait(body, self._stop)

    def too_many(self, slot: float, pause: float | None) -> None:  # noqa: ARG002 - each thread waits its own
        self._concurrency.too_many(slot)

    def stop(self) -> None:
        self._stop.set()
