"""Which runs share a limit: those that ask one address as their model, or one judge at one address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eval_factory.core.roles import MODEL_ROLE
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.openai_api import base_of


@dataclass(frozen=True)
class LimitOf:
    """What an endpoint is asked at most, by all that share it."""

    parallelism: int
    """So many requests at once."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True)
class RunEndpoints:
    """Whom one run asks."""

    endpoints: Sequence[EndpointSettings]
    model_group: str | None = None
    """The name of the limits that its model shares; None: the address names them."""


@dataclass(frozen=True)
class LimitGroups:
    """The limits of several runs together."""

    limits: dict[str, LimitOf]
    of_runs: tuple[dict[str, str], ...]
    """For each run, in their order: role -> name of its limits."""


def limits_of(runs: Iterable[RunEndpoints]) -> LimitGroups:
    """Where runs state different numbers for the same limit, the smallest counts."""
    limits: dict[str, LimitOf] = {}
    of_runs = []
    for run in runs:
        groups = {}
        for endpoint in run.endpoints:
            name = groups[endpoint.role] = _group_of(endpoint, run.model_group)
            own = LimitOf(endpoint.parallelism, endpoint.requests_per_minute, endpoint.tokens_per_minute)
            limits[name] = _smaller(limits[name], own) if name in limits else own
        of_runs.append(groups)
    return LimitGroups(limits, tuple(of_runs))


def _group_of(endpoint: EndpointSettings, model_group: str | None) -> str:
    if endpoint.role != MODEL_ROLE:
        return f"judge {endpoint.model_id} at {base_of(endpoint.url)}"
    return model_group or base_of(endpoint.url)


def _smaller(one: LimitOf, other: LimitOf) -> LimitOf:
    return LimitOf(
        min(one.parallelism, other.parallelism),
        _least(one.requests_per_minute, other.requests_per_minute),
        _least(one.tokens_per_minute, other.tokens_per_minute),
    )


def _least(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)
