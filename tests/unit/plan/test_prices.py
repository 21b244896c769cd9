"""What a run's endpoints cost, and which limits can be held."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from eval_factory.config.model import DEMO_URLS
from eval_factory.core.budget import Price
from eval_factory.core.errors import ConfigError
from eval_factory.plan import prices
from eval_factory.plan.prices import (
    FREE,
    hosted_roles,
    prices_of,
    prices_to_keep,
    refuse_what_cannot_be_held,
    table_prices,
)
from unit.builders import plan

EXTRA = "config.params.extra"
TABLE = {f"{EXTRA}.prices": [{"model_id": "org/model", "input_per_million": 2, "output_per_million": 10}]}
LIBRARY = Price(1.0, 1.0, source="genai-prices 7")


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Knows one judge, at the target's host."""
    asked: list[tuple[str, str]] = []

    def price(url: str, model_id: str, at: datetime) -> Price | None:
        assert at.tzinfo is not None
        asked.append((url, model_id))
        return LIBRARY if model_id.startswith("gpt") else None

    monkeypatch.setattr(prices, "library_price", price)
    return asked


def jury(**flags: Any) -> Any:
    return plan({"config.type": "aci_bench", **{name.replace("__", "."): value for name, value in flags.items()}})


def test_the_users_table_goes_before_the_library(library: list[tuple[str, str]]) -> None:
    here = jury(**TABLE)
    found = prices_of(here)
    assert found.known == {"model": Price(2.0, 10.0, None, "table"), "gpt": LIBRARY}
    assert "org/model" not in [model for _, model in library]
    assert set(found.unknown) == {"llama", "claude"}
    assert found.unknown["claude"] == "no price is known of claude-3-7-sonnet-20250219 at host.example"


def test_the_table_is_by_model_whatever_the_role() -> None:
    row = {
        "model_id": "gpt-4o-2024-05-13",
        "input_per_million": 1,
        "output_per_million": 2,
        "cached_input_per_million": 0.5,
    }
    assert table_prices(jury(**{f"{EXTRA}.prices": [row]})) == {"gpt": Price(1.0, 2.0, 0.5, "table")}
    assert table_prices(plan()) == {}


def test_the_embedded_endpoint_is_free_and_says_so_only_to_a_limit(library: list[tuple[str, str]]) -> None:
    demo = {"target.api_endpoint.url": DEMO_URLS[0]}
    assert prices_of(plan(demo)).known == {"model": FREE}
    assert prices_to_keep(plan(demo)) == {}
    assert prices_to_keep(plan({**demo, f"{EXTRA}.max_cost": 1.0})) == {"model": FREE}
    assert library == []
    refuse_what_cannot_be_held(plan({**demo, f"{EXTRA}.max_cost": 1.0}))


def test_a_limit_of_cost_needs_every_price() -> None:
    refuse_what_cannot_be_held(plan())
    refuse_what_cannot_be_held(plan({f"{EXTRA}.max_requests": 1}))
    refuse_what_cannot_be_held(plan({**TABLE, f"{EXTRA}.max_cost": 0.5}))
    with pytest.raises(ConfigError) as refused:
        refuse_what_cannot_be_held(jury(**{**TABLE, f"{EXTRA}.max_cost": 0.5}))
    assert len(refused.value.problems) == 2
    assert "max_cost: cannot be held: no price is known of meta/llama-3.3-70b-instruct" in refused.value.problems[0]
    assert "prices: [{model_id: meta/llama-3.3-70b-instruct, input_per_million:" in refused.value.problems[0]


def test_an_endpoint_of_this_machine_is_nobodys_bill() -> None:
    assert set(hosted_roles(plan())) == {"model"}
    assert hosted_roles(plan({"target.api_endpoint.url": "http://127.0.0.1:8000/v1"})) == {}
