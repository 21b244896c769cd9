"""The prices of the tokens of each endpoint of a run, and what the run may cost.

Prices of hosted models come from the installed library genai-prices. The endpoint's URL alone names
the provider: who serves `gpt-oss-120b` on a machine of their own does not pay what a provider asks
for it.
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

from eval_factory.config.model import DEMO_URLS
from eval_factory.core.budget import BY_LIBRARY, BY_TABLE, Budget, LongPrompts, Price, Rates
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import EndpointPlan, Plan

_LOCAL_NAMES = (".local", ".internal", ".localhost", ".lan")
_RATES = {
    "input_per_million": "input_mtok",
    "output_per_million": "output_mtok",
    "cached_input_per_million": "cache_read_mtok",
}
"""Our names -> the library's."""
PROCESSING = {True: "batch", False: "standard"}
"""The library's words for whether requests go by batch."""
BY_BATCH = ", by batch"
"""The end of the source of a batch's price."""
FREE = Price(0.0, 0.0, source="embedded")  # the embedded endpoint is on this machine


@dataclass(frozen=True)
class Prices:
    """The prices of the endpoints of a run, by role."""

    known: Mapping[str, Price]
    unknown: Mapping[str, str]  # why; also for this machine's own endpoints, maybe without cost


def budget_of(plan: Plan) -> Budget:
    extra = plan.evaluation.extra
    return Budget(extra.max_cost, extra.max_requests, extra.max_tokens_total, extra.max_wall_s)


def table_prices(plan: Plan, *, by_batch: bool = True) -> dict[str, Price]:
    """Return the prices of the user's own table, by role. It was written for these very models, and
    goes before all but answers. `by_batch`: as of `prices_of`.
    """
    prices = {}
    for endpoint in plan.endpoints:
        price = table_price(plan, endpoint, by_batch=bool(endpoint.batch) and by_batch)
        if price is not None:
            prices[endpoint.role] = price
    return prices


def table_price(plan: Plan, endpoint: EndpointPlan, *, by_batch: bool) -> Price | None:
    """Return the price of one endpoint in the user's own table; None if it is not there."""
    for row in plan.evaluation.extra.prices or []:
        if row.model_id != endpoint.model_id:
            continue
        price = Price(row.input_per_million, row.output_per_million, row.cached_input_per_million)
        if by_batch and row.batch_discount is not None:
            price = replace(price.scaled(1 - row.batch_discount), source=f"{BY_TABLE}{BY_BATCH}")
        return price
    return None


def prices_of(plan: Plan, *, by_batch: bool = True) -> Prices:
    """The user's table, else the library's prices of this day.

    `by_batch`: whether endpoints whose requests go by batch have the price of a batch.
    """
    now = datetime.now(timezone.utc)
    prices = table_prices(plan, by_batch=by_batch)
    unknown = {}
    for endpoint in plan.endpoints:
        price = prices.get(endpoint.role)
        if price is None and endpoint.url in DEMO_URLS:
            price = FREE
        if price is None:
            is_batch = bool(endpoint.batch) and by_batch
            price = library_price(endpoint.url, endpoint.model_id, now, by_batch=is_batch)
        if price is None:
            unknown[endpoint.role] = unknown_price(endpoint)
        else:
            prices[endpoint.role] = price
    return Prices(prices, unknown)


def prices_to_keep(plan: Plan, *, by_batch: bool = True) -> dict[str, Price]:
    """Return the prices for helm-run, which keeps them beside the answers, and counts by them if
    there is a limit.

    The user's own table stands in the configuration. The embedded endpoint has a price only where a
    limit needs one.
    """
    prices = prices_of(plan, by_batch=by_batch).known
    limited = {}
    for role, price in prices.items():
        if price is not FREE or budget_of(plan).max_cost is not None:
            limited[role] = price
    return limited


def unknown_price(endpoint: EndpointPlan) -> str:
    """Return the message that nobody knows what an endpoint costs."""
    return f"no price is known for {endpoint.model_id} at {urlsplit(endpoint.url).netloc}"


def how_to_say(model_id: str, path: str = "config.params.extra.prices") -> str:
    """Return what to write if no price is known."""
    return (
        f"write what it costs: {path}: [{{model_id: {model_id}, input_per_million: DOLLARS,"
        " output_per_million: DOLLARS}]"
    )


def hosted_roles(plan: Plan) -> dict[str, EndpointPlan]:
    """The endpoints that may cost money: a provider's, not this machine's own or the embedded
    one.
    """
    return {endpoint.role: endpoint for endpoint in plan.endpoints if is_hosted(endpoint.url)}


def refuse_uncountable_limits(plan: Plan) -> None:
    """Check that the cost limit can be enforced.

    Raises:
        ConfigError: `max_cost` is set, but the price of an endpoint is unknown.
    """
    if budget_of(plan).max_cost is not None and (unknown := prices_of(plan).unknown):
        models = {endpoint.role: endpoint.model_id for endpoint in plan.endpoints}
        held = "config.params.extra.max_cost: this limit cannot be kept"
        lines = []
        for role, why in unknown.items():
            lines.append(f"{held}: {why} ({role})\n  {how_to_say(models[role])}")
        raise ConfigError(lines)


def is_hosted(url: str) -> bool:
    """Return True if a provider may be behind a URL, and ask for money: not this machine, a private
    address, or the demo.
    """
    host = (urlsplit(url).hostname or "").lower()
    if (
        urlsplit(url).scheme not in ("http", "https")
        or "." not in host
        or host.endswith(_LOCAL_NAMES)
    ):
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return True


def library_price(url: str, model_id: str, at: datetime, *, by_batch: bool = False) -> Price | None:
    """Return what a model costs at an endpoint; None if the library does not know the endpoint, or
    the model there.

    Args:
        url: of the endpoint.
        model_id: the model's id there.
        at: when it is asked; some prices change with the day, or within it.
        by_batch: whether it is asked by batch. Where the library knows no other price for that, it
            is the usual one, which no batch exceeds.
    """
    if not is_hosted(url):
        return None
    import genai_prices  # imported here: needed only for a price

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
        source += BY_BATCH
    return price_from(price_found.model_price, source)


def price_from(stated: Any, source: str) -> Price | None:
    """The library's price as ours; None if requests are paid for as such too, or not by the
    token.

    Args:
        stated: the library's `ModelPrice`.
        source: who states it, as results name it.
    """
    if getattr(stated, "requests_kcount", None) is not None:
        return None
    rates = (getattr(stated, name, None) for name in _RATES.values())
    tiers = chain.from_iterable(getattr(rate, "tiers", ()) for rate in rates)
    starts = {tier.start for tier in tiers}
    base = _rates(stated, 0)
    if base is None:
        return None
    long_prompts = []
    for start in sorted(starts):
        rates_beyond = _rates(stated, start + 1)
        if rates_beyond is not None:
            long_prompts.append(LongPrompts(**vars(rates_beyond), above=start))
    return Price(**vars(base), source=source, long_prompts=tuple(long_prompts))


def _rates(stated: Any, prompt_tokens: int) -> Rates | None:
    rates = {}
    for name, field in _RATES.items():
        price = getattr(stated, field, None)
        if price is not None and not isinstance(price, Decimal):
            # it depends on how long the prompt is: the highest tier that it is beyond holds for all
            # tokens
            beyond = [tier for tier in price.tiers if prompt_tokens > tier.start]
            price = price.base
            if beyond:
                price = max(beyond, key=lambda tier: tier.start).price
        rates[name] = None if price is None else float(price)
    if rates["input_per_million"] is None or rates["output_per_million"] is None:
        return None
    return Rates(**rates)  # type: ignore[arg-type] # the two that may not be None are not None
