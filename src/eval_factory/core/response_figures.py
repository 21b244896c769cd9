"""Figures of the evaluated model's responses, as `eval_factory_metrics.json` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """Of the values of many responses; None where no response had one."""

    mean: float | None
    maximum: float | None


@dataclass(frozen=True)
class RequestSpan:
    """One helm-run's requests to the evaluated model, in seconds since the epoch."""

    first_request: float
    last_response: float

    @property
    def seconds(self) -> float:
        return self.last_response - self.first_request


@dataclass(frozen=True)
class ResponseStatistics:
    """Of all requests to the evaluated model since the folder was begun; what came from the cache was not sent."""

    responses: int
    """With a status of HTTP, whatever it is."""
    successful: int
    """Responses with an answer."""
    prompt_tokens: Figures
    completion_tokens: Figures
    total_tokens: Figures
    latency_s: Figures
    """Of the responses."""
    status_codes: Mapping[int, int]
    finish_reasons: Mapping[str, int]
    """Of the answers that are kept."""
    runs: tuple[RequestSpan, ...]
    """Each helm-run that sent requests, the first one first."""
