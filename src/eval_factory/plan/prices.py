"""Finds the token prices of the endpoints of a run, and the run's cost limit.

Prices come from the user's own table, or from the installed library genai-prices. The library's
provider is chosen by the endpoint's URL, not by the model: a user who serves `gpt-oss-120b` on
their own machine does not pay the price of a provider.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from eval_factory.config.value_types import DEMO_URLS
from eval_factory.core.budget import BY_LIBRARY, BY_TABLE, Budget, LongPrompts, Price, Rates
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import EndpointPlan, Plan

_LOCAL_NAMES = (".local", ".internal", ".localhost", ".lan")  # the ends of private hosts' names
_RATES = {
    "input_per_million": "input_mtok",
    "output_per_million": "output_mtok",
    "cached_input_per_million": "cache_read_mtok",
}
"""The fields of `Rates`, with the names of the matching fields in the library."""
PROCESSING = {True: "batch", False: "standard"}
"""The library's names for requests in a batch (True) and for single requests (False)."""
BATCH_SOURCE_SUFFIX = ", by batch"
"""The text that is appended to the source of a price for batches."""
# the price of the embedded demo endpoint
FREE = Price(input_per_million=0.0, output_per_million=0.0, source="embedded")


@dataclass(frozen=True)
class Prices:
    """The prices of the endpoints of a run, by role: `model`, or the name of a judge."""

    known: Mapping[str, Price]
    # the message for each role without a known price; these roles include endpoints on the user's
    # own machine, although such endpoints are free
    unknown: Mapping[str, str]


def budget_of(plan: Plan) -> Budget:
    """Return the limits of cost, requests, tokens and time of a run."""
    extra = plan.evaluation.extra
    return Budget(
        max_cost=extra.max_cost,
        max_requests=extra.max_requests,
        max_tokens_total=extra.max_tokens_total,
        max_wall_s=extra.max_wall_s,
    )


def user_table_prices(plan: Plan, *, by_batch: bool = True) -> dict[str, Price]:
    """Return the prices in the user's own table, by role.

    These prices take precedence over the library's prices.

    `by_batch`: False to price the requests of endpoints with batches as single requests.
    """
    prices = {}
    for endpoint in plan.endpoints:
        price = price_in_user_table(plan, endpoint, by_batch=bool(endpoint.batch) and by_batch)
        if price is not None:
            prices[endpoint.role] = price
    return prices


def price_in_user_table(plan: Plan, endpoint: EndpointPlan, *, by_batch: bool) -> Price | None:
    """Return the price of an endpoint in the user's own table; None if the table has no price.

    `by_batch`: True for the price of a request in a batch.
    """
    for row in plan.evaluation.extra.prices or []:
        if row.model_id != endpoint.model_id:
            continue
        price = Price(row.input_per_million, row.output_per_million, row.cached_input_per_million)
        if by_batch and row.batch_discount is not None:
            price = replace(
                price.scaled(1 - row.batch_discount), source=f"{BY_TABLE}{BATCH_SOURCE_SUFFIX}"
            )
        return price
    return None


def prices_of(plan: Plan, *, by_batch: bool = True) -> Prices:
    """Return the price of each endpoint: from the user's table, else the library's current price.

    The embedded demo endpoint is free, unless the user's table has a price for it.

    `by_batch`: False to price the requests of endpoints with batches as single requests.
    """
    now = datetime.now(timezone.utc)
    prices = user_table_prices(plan, by_batch=by_batch)
    unknown = {}
    for endpoint in plan.endpoints:
        price = prices.get(endpoint.role)
        if price is None and endpoint.url in DEMO_URLS:
            price = FREE
        if price is None:
            is_batch = bool(endpoint.batch) and by_batch
            price = library_price(endpoint.url, endpoint.model_id, now, by_batch=is_batch)
        if price is None:
            unknown[endpoint.role] = unknown_price_message(endpoint)
        else:
            prices[endpoint.role] = price
    return Prices(prices, unknown)


def prices_for_helm_run(plan: Plan, *, by_batch: bool = True) -> dict[str, Price]:
    """Return the prices for helm-run, by role.

    helm-run stores the prices with the answers, and uses them to enforce a cost limit. The embedded
    endpoint has a price only if there is a cost limit, or if the user's table has a price for it.

    `by_batch`: False to price the requests of endpoints with batches as single requests.
    """
    prices = prices_of(plan, by_batch=by_batch).known
    needed_prices = {}
    for role, price in prices.items():
        if price is not FREE or budget_of(plan).max_cost is not None:
            needed_prices[role] = price
    return needed_prices


def unknown_price_message(endpoint: EndpointPlan) -> str:
    """Return the message that no price is known for an endpoint."""
    return f"no price is known for {endpoint.model_id} at {urlsplit(endpoint.url).netloc}"


def how_to_state_price(model_id: str, *, path: str = "config.params.extra.prices") -> str:
    """Return the message that tells the user how to state a price; `path`: the setting's path."""
    return (
        f"write what it costs: {path}: [{{model_id: {model_id}, input_per_million: DOLLARS,"
        " output_per_million: DOLLARS}]"
    )


def hosted_endpoints(plan: Plan) -> dict[str, EndpointPlan]:
    """Return the endpoints of providers, which may cost money, by role."""
    return {endpoint.role: endpoint for endpoint in plan.endpoints if is_hosted(endpoint.url)}


def refuse_uncountable_limits(plan: Plan) -> None:
    """Check that the cost limit can be enforced.

    Raises:
        ConfigError: `max_cost` is set, but the price of an endpoint is unknown.
    """
    if budget_of(plan).max_cost is None:
        return
    unknown = prices_of(plan).unknown
    if unknown:
        models = {endpoint.role: endpoint.model_id for endpoint in plan.endpoints}
        problem = "config.params.extra.max_cost: this limit cannot be enforced"
        lines = []
        for role, why in unknown.items():
            lines.append(f"{problem}: {why} ({role})\n  {how_to_state_price(models[role])}")
        raise ConfigError(lines)


def is_hosted(url: str) -> bool:
    """Return True if the URL may belong to a provider, where requests may cost money.

    Returns False for this machine, for private addresses and for the embedded demo endpoint.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return False
    host = (parts.hostname or "").lower()
    is_local_name = "." not in host or host.endswith(_LOCAL_NAMES)
    if is_local_name:
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return True


def library_price(url: str, model_id: str, at: datetime, *, by_batch: bool = False) -> Price | None:
    """Return the library's price of a model at an endpoint.

    Returns None if the library does not know the endpoint, or the model at this endpoint.

    Args:
        url: the URL of the endpoint.
        model_id: the id of the model at the endpoint.
        at: the time of the requests; some prices depend on the date or the time of day.
        by_batch: True for the price of a request in a batch. If the library has no price for
            batches, the price of single requests is returned, which is not lower.
    """
    if not is_hosted(url):
        return None
    import genai_prices  # imported late, because only this function needs the library

    try:
        price_found = genai_prices.calc_price(
            genai_prices.Usage(input_tokens=0, output_tokens=0),
            model_id,
            provider_api_url=url,
            genai_request_timestamp=at,
            price_context={"processing": PROCESSING[by_batch]},
        )
    except LookupError:
        return None
    source = f"{BY_LIBRARY} {genai_prices.__version__}"
    if by_batch:
        source += BATCH_SOURCE_SUFFIX
    return price_from(price_found.model_price, source)


def price_from(stated: Any, source: str) -> Price | None:
    """Return a price of the library as a `Price`.

    Returns None if the provider also charges for each request, or does not charge by token.

    Args:
        stated: the library's `ModelPrice`.
        source: the name of the source for results.
    """
    if getattr(stated, "requests_kcount", None) is not None:
        return None
    base = _rates(stated, prompt_tokens=0)
    if base is None:
        return None
    # A rate may have tiers: each has a price for prompts of more than `tier.start` tokens.
    stated_rates = (getattr(stated, name, None) for name in _RATES.values())
    tiers = chain.from_iterable(getattr(rate, "tiers", ()) for rate in stated_rates)
    long_prompts = []
    for start in sorted({tier.start for tier in tiers}):
        # the rates for the shortest prompt that exceeds `start`
        rates_beyond = _rates(stated, prompt_tokens=start + 1)
        if rates_beyond is not None:
            long_prompts.append(LongPrompts(**vars(rates_beyond), above=start))
    return Price(**vars(base), source=source, long_prompts=tuple(long_prompts))


def _rates(stated: Any, prompt_tokens: int) -> Rates | None:
    """Return the rates for prompts of this length; None if input or output has no price.

    `stated`: the library's `ModelPrice`.
    """
    rates: dict[str, float | None] = {}
    for name, field in _RATES.items():
        price = getattr(stated, field, None)
        if price is not None and not isinstance(price, Decimal):
            # The price depends on the length of the prompt: the highest tier that the prompt
            # exceeds applies to all its tokens.
            exceeded_tiers = [tier for tier in price.tiers if prompt_tokens > tier.start]
            price = price.base
            if exceeded_tiers:
                price = max(exceeded_tiers, key=lambda tier: tier.start).price
        rates[name] = None if price is None else float(price)
    if rates["input_per_million"] is None or rates["output_per_million"] is None:
        return None
    return Rates(**rates)  # type: ignore[arg-type] # input and output were checked above
