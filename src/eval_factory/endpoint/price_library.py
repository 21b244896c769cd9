"""Prices of hosted models, from the library genai-prices: of the data that it brings along, nothing is downloaded.

A provider is known by the endpoint's URL alone. The id of a model says nothing: who serves `gpt-oss-120b` on a
machine of their own does not pay what a provider asks for it.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from eval_factory.core.budget import BY_LIBRARY, LongPrompts, Price, Rates

_LOCAL_NAMES = (".local", ".internal", ".localhost", ".lan")
_BY_THE_REQUEST = "requests_kcount"
_RATES = {
    "input_per_million": "input_mtok", "output_per_million": "output_mtok",
    "cached_input_per_million": "cache_read_mtok",
}  # fmt: skip
"""Our names -> the library's."""


def is_hosted(url: str) -> bool:
    """Whether a provider may be behind a URL, and ask for money: not this machine, a private address, or the demo."""
    host = (urlsplit(url).hostname or "").lower()
    if urlsplit(url).scheme not in ("http", "https") or "." not in host or host.endswith(_LOCAL_NAMES):
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return True


def library_price(url: str, model_id: str, at: datetime) -> Price | None:
    """What a model costs at an endpoint; None where the library does not know this endpoint, or the model there.

    Args:
        at: when it is asked; some prices change with the day, or within it.
    """
    if not is_hosted(url):
        return None
    import genai_prices  # here: only where a price is needed

    try:
        found = genai_prices.calc_price(
            genai_prices.Usage(input_tokens=0, output_tokens=0), model_id, provider_api_url=url,
            genai_request_timestamp=at,
        )  # fmt: skip
    except LookupError:
        return None
    return price_from(found.model_price, f"{BY_LIBRARY} {genai_prices.__version__}")


def price_from(stated: Any, source: str) -> Price | None:
    """The library's price as ours; None where requests are paid for as such too, or not by the token.

    Args:
        stated: its `ModelPrice`.
    """
    if getattr(stated, _BY_THE_REQUEST, None) is not None:
        return None
    starts = {tier.start for name in _RATES.values() for tier in getattr(getattr(stated, name, None), "tiers", ())}
    base = _rates(stated, 0)
    if base is None:
        return None
    longer = [(start, _rates(stated, start + 1)) for start in sorted(starts)]
    long_prompts = tuple(LongPrompts(**vars(rates), above=start) for start, rates in longer if rates is not None)
    return Price(**vars(base), source=source, long_prompts=long_prompts)


def _rates(stated: Any, prompt_tokens: int) -> Rates | None:
    rates = {name: _rate(getattr(stated, field, None), prompt_tokens) for name, field in _RATES.items()}
    if rates["input_per_million"] is None or rates["output_per_million"] is None:
        return None
    return Rates(**rates)  # type: ignore[arg-type] # the two that may not be None are none


def _rate(stated: Any, prompt_tokens: int) -> float | None:
    """Of a price that may depend on how long the prompt is: the highest tier that it is beyond holds for all tokens."""
    if stated is None or isinstance(stated, Decimal):
        return None if stated is None else float(stated)
    beyond = [tier for tier in stated.tiers if prompt_tokens > tier.start]
    return float(max(beyond, key=lambda tier: tier.start).price if beyond else stated.base)
