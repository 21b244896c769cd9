"""The keys of prices and limits; they change nothing of what is asked."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.core.errors import ConfigError
from unit.builders import evaluation, plan

EXTRA = "config.params.extra"
ROW = {"model_id": "m", "input_per_million": 0, "output_per_million": 1.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_cost", 0), ("max_cost", -1), ("max_cost", True), ("max_requests", 0), ("max_requests", 1.5),
        ("max_tokens_total", 0), ("max_wall_s", 0), ("max_wall_s", float("inf")), ("prices", []), ("prices", [ROW, ROW]),
        ("prices", [{"model_id": "m", "input_per_million": 1}]), ("prices", [{**ROW, "output_per_million": -1}]),
        ("prices", [{**ROW, "per_image": 1}]),
    ],
)  # fmt: skip
def test_what_is_no_limit_and_no_price_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        evaluation({f"{EXTRA}.{name}": value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_cost", 0.01), ("max_requests", 1), ("max_tokens_total", 10**12), ("max_wall_s", 0.5), ("prices", [ROW])],
)
def test_a_raised_limit_goes_on_with_the_same_run(name: str, value: Any) -> None:
    assert plan({f"{EXTRA}.{name}": value}).identity == plan().identity
    assert evaluation({f"{EXTRA}.{name}": value}).as_dict()["config"]["params"]["extra"][name] is not None
