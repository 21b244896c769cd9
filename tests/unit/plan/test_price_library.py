"""Prices of genai-prices: by the endpoint's URL alone, never downloaded."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import genai_prices
import pytest

from eval_factory.core.budget import LongPrompts, Price
from eval_factory.plan.prices import is_hosted, library_price, price_from

DAY = datetime(2025, 6, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "url",
    [
        "demo://baseline", "http://127.0.0.1:8000/v1", "http://localhost:8000/v1", "http://10.1.2.3/v1", "http://[::1]/v1",
        "http://192.168.0.5/v1", "http://vllm:8000/v1", "http://gpu.lan/v1", "http://a.internal/v1", "file://a.b/c",
    ],
)  # fmt: skip
def test_what_is_ours_has_no_providers_price(url: str) -> None:
    assert not is_hosted(url)
    assert library_price(url, "gpt-4o", DAY) is None


def test_a_provider_is_known_by_its_url() -> None:
    price = library_price("https://api.openai.com/v1", "gpt-4o-2024-05-13", DAY)
    assert price == Price(5.0, 15.0, source=f"genai-prices {genai_prices.__version__}")
    assert library_price("https://api.example.org/v1", "gpt-4o-2024-05-13", DAY) is None
    assert library_price("https://api.openai.com/v1", "no-such-model", DAY) is None
    gateway = library_price("https://openrouter.ai/api/v1", "openai/gpt-4o", DAY)
    assert gateway is not None
    assert gateway.output_per_million == 10.0


def tiers(base: str, *above: tuple[int, str]) -> Any:
    listed = [SimpleNamespace(start=start, price=Decimal(price)) for start, price in above]
    return SimpleNamespace(base=Decimal(base), tiers=listed)


def test_prices_of_long_prompts_are_taken_over() -> None:
    stated = SimpleNamespace(
        input_mtok=tiers("1", (200, "2"), (400, "4")),
        output_mtok=tiers("10", (200, "20")),
        cache_read_mtok=Decimal("0.1"),
    )
    assert price_from(stated, "s") == Price(
        1.0, 10.0, 0.1, "s", (LongPrompts(2.0, 20.0, 0.1, above=200), LongPrompts(4.0, 20.0, 0.1, above=400))
    )


@pytest.mark.parametrize(
    "stated",
    [
        {"input_mtok": Decimal(1)}, {"output_mtok": Decimal(1)}, {},
        {"input_mtok": Decimal(1), "output_mtok": Decimal(1), "requests_kcount": Decimal(5)},
    ],
)  # fmt: skip
def test_what_is_not_paid_for_by_the_token_has_no_price(stated: dict[str, Any]) -> None:
    assert price_from(SimpleNamespace(**stated), "s") is None
