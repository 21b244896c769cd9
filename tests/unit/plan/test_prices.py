"""Tests of what a run's endpoints cost, and which limits can be held."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import genai_prices
import pytest

from builders import plan
from eval_factory.config.value_types import DEMO_URLS
from eval_factory.core.budget import LongPrompts, Price
from eval_factory.core.errors import ConfigError
from eval_factory.plan import prices
from eval_factory.plan.prices import library_price
from facts import says
from known import there

EXTRA = "config.params.extra"
TABLE = {
    f"{EXTRA}.prices": [{"model_id": "org/model", "input_per_million": 2, "output_per_million": 10}]
}
LIBRARY = Price(1.0, 1.0, source="genai-prices 7")


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Knows one judge, at the target's host."""
    asked: list[tuple[str, str]] = []

    def price(url: str, model_id: str, at: datetime, *, by_batch: bool) -> Price | None:
        assert not by_batch
        assert at.tzinfo is not None
        asked.append((url, model_id))
        return LIBRARY if model_id.startswith("gpt") else None

    monkeypatch.setattr(prices, "library_price", price)
    return asked


def jury(**flags: Any) -> Any:
    return plan(
        {
            "config.type": "aci_bench",
            **{name.replace("__", "."): value for name, value in flags.items()},
        }
    )


def test_the_users_table_goes_before_the_library(library: list[tuple[str, str]]) -> None:
    found = prices.prices_of(jury(**TABLE))
    assert found.known == {"model": Price(2.0, 10.0, None, "table"), "gpt": LIBRARY}
    assert "org/model" not in [model for _, model in library]
    judges = {"llama": "meta/llama-3.3-70b-instruct", "claude": "claude-3-7-sonnet-20250219"}
    assert set(found.unknown) == set(judges)
    for role, name in judges.items():
        says(found.unknown[role], "no price", f"{name} at host.example")


def test_the_table_is_by_model_whatever_the_role() -> None:
    per_million = {"input_per_million": 1, "output_per_million": 2, "cached_input_per_million": 0.5}
    row = {"model_id": "gpt-4o-2024-05-13", **per_million}
    assert prices.user_table_prices(jury(**{f"{EXTRA}.prices": [row]})) == {
        "gpt": Price(1.0, 2.0, 0.5, "table")
    }
    assert prices.user_table_prices(plan()) == {}


def test_the_embedded_endpoint_is_free_and_says_so_only_to_a_limit(
    library: list[tuple[str, str]],
) -> None:
    demo = {"target.api_endpoint.url": DEMO_URLS[0]}
    limited = plan({**demo, f"{EXTRA}.max_cost": 1.0})
    assert (
        prices.prices_of(plan(demo)).known
        == prices.prices_for_helm_run(limited)
        == {"model": prices.FREE}
    )
    assert (prices.prices_for_helm_run(plan(demo)), library) == ({}, [])
    prices.refuse_uncountable_limits(limited)


def test_a_limit_of_cost_needs_every_price() -> None:
    for flags in ({}, {f"{EXTRA}.max_requests": 1}, {**TABLE, f"{EXTRA}.max_cost": 0.5}):
        prices.refuse_uncountable_limits(plan(flags))
    with pytest.raises(ConfigError) as refused:
        prices.refuse_uncountable_limits(jury(**{**TABLE, f"{EXTRA}.max_cost": 0.5}))
    assert len(refused.value.problems) == 2
    says(refused.value.problems[0], "max_cost: ", "no price", "meta/llama-3.3-70b-instruct")
    assert (
        "prices: [{model_id: meta/llama-3.3-70b-instruct, input_per_million:"
        in refused.value.problems[0]
    )


DAY = datetime(2025, 6, 1, tzinfo=timezone.utc)
OURS = (
    "demo://baseline",
    "http://127.0.0.1:8000/v1",
    "http://localhost:8000/v1",
    "http://10.1.2.3/v1",
    "http://[::1]/v1",
    "http://192.168.0.5/v1",
    "http://vllm:8000/v1",
    "http://gpu.lan/v1",
    "http://a.internal/v1",
    "file://a.b/c",
)


def test_what_is_ours_is_nobodys_bill_and_has_no_providers_price() -> None:
    assert [url for url in OURS if prices.is_hosted(url) or library_price(url, "gpt-4o", DAY)] == []
    assert set(prices.hosted_endpoints(plan())) == {"model"}
    assert prices.hosted_endpoints(plan({"target.api_endpoint.url": OURS[1]})) == {}


def test_a_provider_is_known_by_its_url() -> None:
    price = library_price("https://api.openai.com/v1", "gpt-4o-2024-05-13", DAY)
    assert price == Price(5.0, 15.0, source=f"genai-prices {genai_prices.__version__}")
    assert library_price("https://api.example.org/v1", "gpt-4o-2024-05-13", DAY) is None
    assert library_price("https://api.openai.com/v1", "no-such-model", DAY) is None
    gateway = there(library_price("https://openrouter.ai/api/v1", "openai/gpt-4o", DAY))
    assert gateway.output_per_million == 10.0


def tiers(base: str, *above: tuple[int, str]) -> Any:
    listed = [SimpleNamespace(start=start, price=Decimal(price)) for start, price in above]
    return SimpleNamespace(base=Decimal(base), tiers=listed)


def test_prices_of_long_prompts_are_taken_over() -> None:
    asked = tiers("1", (200, "2"), (400, "4"))
    answered = tiers("10", (200, "20"))
    stated = SimpleNamespace(input_mtok=asked, output_mtok=answered, cache_read_mtok=Decimal("0.1"))
    long = LongPrompts(2.0, 20.0, 0.1, above=200), LongPrompts(4.0, 20.0, 0.1, above=400)
    assert prices.price_from(stated, "s") == Price(1.0, 10.0, 0.1, "s", long)


def test_what_is_not_paid_for_by_the_token_has_no_price() -> None:
    asked = {"input_mtok": Decimal(1)}
    answered = {"output_mtok": Decimal(1)}
    request = {"requests_kcount": Decimal(5)}
    for stated in (asked, answered, {}, {**asked, **answered, **request}):
        assert prices.price_from(SimpleNamespace(**stated), "s") is None
