"""Which runs share a limit: those that ask one address as their model, or one judge at one address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from eval_factory.core.nouns import MODEL_ROLE
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
    model_servers: int | None = None
    """How many servers its model has, where the URLs do not say."""


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
            own = LimitOf(endpoint.parallelism, endpoint.requests_per_minute, endpoint.tokens_per_minute)
            for role, name, limit in _limits_of(endpoint, run, own):
                groups[role] = name
                limits[name] = _smaller(limits[name], limit) if name in limits else limit
        of_runs.append(groups)
    return LimitGroups(limits, tuple(of_runs))


def limit_names(role: str, servers: int) -> list[str]:
    """What the limits of an endpoint are called: of all its servers together, then of each where it has several."""
    return [role, *(f"{role} at server {number}" for number in range(1, servers + 1) if servers > 1)]


def _limits_of(endpoint: EndpointSettings, run: RunEndpoints, own: LimitOf) -> Iterator[tuple[str, str, LimitOf]]:
    """`limit_names` -> the name of the group, and its limits: `parallelism` is that of all servers together, what is
    allowed a minute that of each."""
    is_model = endpoint.role == MODEL_ROLE
    whose = "" if is_model else f"judge {endpoint.model_id} at "
    bases = [f"{whose}{base_of(url)}" for url in endpoint.urls]
    group = (run.model_group if is_model else None) or ", ".join(sorted(bases))
    if is_model and run.model_servers is not None and run.model_servers > 1:
        bases = [f"{group}: server {number}" for number in range(1, run.model_servers + 1)]
    together, *each = limit_names(endpoint.role, len(bases))
    yield together, group, replace(own, requests_per_minute=None, tokens_per_minute=None) if each else own
    yield from ((name, base, own) for name, base in zip(each, bases, strict=bool(each)))


def _smaller(one: LimitOf, other: LimitOf) -> LimitOf:
    return LimitOf(
        min(one.parallelism, other.parallelism),
        _least(one.requests_per_minute, other.requests_per_minute),
        _least(one.tokens_per_minute, other.tokens_per_minute),
    )


def _least(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)
