"""What the tokens of each endpoint of a run cost, and what the run may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from urllib.parse import urlsplit

from eval_factory.config.model import DEMO_URLS
from eval_factory.core.budget import Budget, Price
from eval_factory.core.errors import ConfigError
from eval_factory.endpoint.price_library import is_hosted, library_price
from eval_factory.plan.run_plan import EndpointPlan, Plan

FREE = Price(0.0, 0.0, source="embedded")
"""The embedded endpoint is on this machine."""


@dataclass(frozen=True)
class Prices:
    """By role."""

    known: Mapping[str, Price]
    unknown: Mapping[str, str]
    """Why; of this machine's own endpoints too, which may cost nothing."""


def budget_of(plan: Plan) -> Budget:
    extra = plan.evaluation.run.config.params.extra
    return Budget(extra.max_cost, extra.max_requests, extra.max_tokens_total, extra.max_wall_s)


def table_prices(plan: Plan) -> dict[str, Price]:
    """Role -> what the user's own table says: it was written for these very models, and goes before all but answers."""
    table = {price.model_id: price for price in plan.evaluation.run.config.params.extra.prices or []}
    return {
        endpoint.role: Price(
            table[endpoint.model_id].input_per_million,
            table[endpoint.model_id].output_per_million,
            table[endpoint.model_id].cached_input_per_million,
        )
        for endpoint in plan.endpoints
        if endpoint.model_id in table
    }


def prices_of(plan: Plan) -> Prices:
    """The user's table, else the library's prices of this day."""
    now = datetime.now(timezone.utc)
    known, unknown = table_prices(plan), {}
    for endpoint in plan.endpoints:
        price = known.get(endpoint.role) or (
            FREE if endpoint.url in DEMO_URLS else library_price(endpoint.url, endpoint.model_id, now)
        )
        if price is None:
            unknown[endpoint.role] = unknown_price(endpoint)
        else:
            known[endpoint.role] = price
    return Prices(known, unknown)


def prices_to_keep(plan: Plan) -> dict[str, Price]:
    """What helm-run is told: it keeps them beside the answers, and counts by them where there is a limit.

    The user's own table stands in the configuration. The embedded endpoint has a price only where a limit needs one.
    """
    known = prices_of(plan).known
    return {role: price for role, price in known.items() if price is not FREE or budget_of(plan).max_cost is not None}


def unknown_price(endpoint: EndpointPlan) -> str:
    """That nobody knows what an endpoint costs."""
    return f"no price is known of {endpoint.model_id} at {urlsplit(endpoint.url).netloc}"


def how_to_say(model_id: str, where: str = "config.params.extra.prices") -> str:
    """What to write where no price is known."""
    return (
        f"write what it costs: {where}: [{{model_id: {model_id}, input_per_million: DOLLARS,"
        " output_per_million: DOLLARS}]"
    )


def hosted_roles(plan: Plan) -> dict[str, EndpointPlan]:
    """The endpoints that may cost money: a provider's, not this machine's own or the embedded one."""
    return {endpoint.role: endpoint for endpoint in plan.endpoints if is_hosted(endpoint.url)}


def refuse_what_cannot_be_held(plan: Plan) -> None:
    """
    Raises:
        ConfigError: max_cost is given, and of some endpoint it is not known what it costs.
    """
    if budget_of(plan).max_cost is None:
        return
    unknown = prices_of(plan).unknown
    if unknown:
        models = {endpoint.role: endpoint.model_id for endpoint in plan.endpoints}
        raise ConfigError(
            [
                f"config.params.extra.max_cost: cannot be held: {why} ({role})\n  {how_to_say(models[role])}"
                for role, why in unknown.items()
            ]
        )
