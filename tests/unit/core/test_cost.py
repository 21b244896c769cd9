"""What tokens cost by a price."""

from __future__ import annotations

import json

import pytest

from eval_factory.core.budget import LongPrompts, Price

FLAT = Price(2.0, 10.0)
CACHED = Price(2.0, 10.0, 0.5)
LONG = Price(
    2.0, 10.0, 0.5, "genai-prices 1", (LongPrompts(4.0, 20.0, 1.0, above=200), LongPrompts(8.0, 40.0, above=400))
)


@pytest.mark.parametrize(
    ("price", "tokens", "dollars"),
    [
        (FLAT, (1_000_000, 0), 2.0), (FLAT, (0, 1_000_000), 10.0), (FLAT, (500_000, 100_000), 2.0), (FLAT, (0, 0), 0.0),
        (FLAT, (1_000_000, 0, 400_000), 2.0),
        (CACHED, (1_000_000, 0, 400_000), 1.4), (CACHED, (1_000_000, 0, 9_000_000), 0.5),
        (LONG, (200, 1), 0.00041), (LONG, (201, 1), 0.000824), (LONG, (400, 0), 0.0016), (LONG, (401, 0), 0.003208),
        (LONG, (300, 0, 100), 0.0009), (LONG, (500, 0, 100), 0.004),
    ],
)  # fmt: skip
def test_each_kind_of_token_has_its_rate(price: Price, tokens: tuple[int, ...], dollars: float) -> None:
    assert price.of(*tokens) == pytest.approx(dollars, rel=1e-12)


@pytest.mark.parametrize("price", [FLAT, CACHED, LONG])
def test_a_price_survives_being_kept(price: Price) -> None:
    assert Price.from_dict(json.loads(json.dumps(price.as_dict()))) == price


def test_a_reader_sees_only_what_there_is() -> None:
    assert FLAT.as_written() == {"input_per_million": 2.0, "output_per_million": 10.0, "source": "table"}
    assert CACHED.as_written()["cached_input_per_million"] == 0.5
    assert LONG.as_written()["long_prompts"][0]["above"] == 200
