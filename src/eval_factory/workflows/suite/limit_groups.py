"""Which limits the runs of a suite share: those of one address as their model, or of one judge at one address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.core.urls import base_of
from eval_factory.endpoint.endpoint_settings import EndpointSettings, LimitOf, limit_names


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
            for role, name, limit in _limits_of(endpoint, run):
                groups[role] = name
                limits[name] = _smaller(limits[name], limit) if name in limits else limit
        of_runs.append(groups)
    return LimitGroups(limits, tuple(of_runs))


def _limits_of(endpoint: EndpointSettings, run: RunEndpoints) -> Iterator[tuple[str, str, LimitOf]]:
    """`limit_names` -> the name of the group, and its limits: `parallelism` is that of all servers together, what is
    allowed a minute that of each."""
    is_model = endpoint.role == MODEL_ROLE
    whose = "" if is_model else f"judge {endpoint.model_id} at "
    bases = [f"{whose}{base_of(url)}" for url in endpoint.urls]
    group = (run.model_group if is_model else None) or ", ".join(sorted(bases))
    together, *each = limit_names(endpoint.role, len(bases))
    own = endpoint.limit
    yield together, group, replace(own, requests_per_minute=None, tokens_per_minute=None) if each else own
    yield from ((name, base, own) for name, base in zip(each, bases, strict=bool(each)))


def _smaller(one: LimitOf, other: LimitOf) -> LimitOf:
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    least: list[Any] = [min((number for number in pair if number is not None), default=None) for pair in pairs]
    return LimitOf(*least)
