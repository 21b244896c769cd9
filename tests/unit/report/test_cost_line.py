"""What a result cost, in one line."""

from __future__ import annotations

import pytest

from eval_factory.core.budget import Cost, Price
from eval_factory.core.results import Spent, SpentByRole, Usage
from eval_factory.report.documents import usage as written
from eval_factory.report.sentences import cost_line

NOW, EVER = Cost(0.012341, "table", 3, 0), Cost(1234.5, "endpoint, table", 9, 0)
PARTLY = Cost(0.5, "table", 3, 2)


def usage(now: Cost | None, ever: Cost | None, runs: int = 1, unknown: str | None = None) -> Usage:
    of = [SpentByRole(one, {"model": one}) for one in (Spent(1, 0, 0, 1, 1, None, None, cost) for cost in (now, ever))]
    return Usage(of[0], of[1], runs, 1.0, unknown)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (usage(None, None), None),
        (usage(None, None, unknown="model: why"), "Cost: not known (model: why)"),
        (usage(NOW, NOW), "Cost: 0.01234 USD in this run (table)"),
        (usage(NOW, EVER, 2), "Cost: 0.01234 USD in this run, 1,234.50 USD in all runs (endpoint, table)"),
        (usage(None, EVER, 2), "Cost: 1,234.50 USD in all runs (endpoint, table)"),
        (usage(None, EVER), "Cost: 1,234.50 USD in all runs (endpoint, table)"),
        (usage(PARTLY, PARTLY), "Cost: 0.5 USD in this run (table); without the 2 answers whose cost is not known"),
        (
            usage(PARTLY, PARTLY, unknown="gpt: why"),
            "Cost: 0.5 USD in this run (table); without the 2 answers whose cost is not known (gpt: why)",
        ),
    ],
)
def test_the_line(told: Usage, line: str | None) -> None:
    assert cost_line(told) == line


def test_what_is_not_known_is_not_written() -> None:
    document = written(usage(None, None))
    assert "cost" not in document
    assert "cost_unknown" not in document


def test_what_was_counted_by_is_written_beside() -> None:
    price = Price(2.5, 10.0, source="genai-prices 1")
    document = written(usage(Cost(1 / 3, "genai-prices 1", 3, 1, price=price), None, 2, unknown="why"))
    assert document["cost"] == {
        "value": 0.333333, "source": "genai-prices 1", "priced_requests": 3, "unpriced_requests": 1, "currency": "USD",
        "price": {"input_per_million": 2.5, "output_per_million": 10.0, "source": "genai-prices 1"},
    }  # fmt: skip
    assert document["cost_unknown"] == "why"
    assert "cost" not in document["all_runs"]
