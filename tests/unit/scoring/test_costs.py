"""cache.db -> what answers cost, by run and role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval_factory.core.cost import Cost, Price
from eval_factory.core.results import Spent, SpentByRole, Usage
from eval_factory.endpoint.paid_answers import write_prices
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.scoring.costs import CostTally, chosen, cost_of_all, tally_costs, why_unknown
from eval_factory.scoring.usage import with_costs
from unit.builders import plan

THEN = Price(1.0, 0.0, source="genai-prices 1")
TABLE = Price(5.0, 0.0)
MILLION = 1_000_000


def answered(cache_db: Path, run: str, role: str, number: int, **usage: Any) -> None:
    cache = ResponseCache(cache_db, run)
    key, tokens = f"{run}{role}{number}", (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    cache.save(
        Answer(key, role, "m", {}, {"usage": usage}, float(number), 0.1),
        Attempt(key, role, 1, "answered", 200, None, float(number), 0.1, *tokens),
    )
    cache.close()


def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cache.db"
    tokens = {"prompt_tokens": MILLION, "completion_tokens": 1}
    answered(path, "old", "model", 1, **tokens)
    answered(path, "new", "model", 2, **tokens)
    answered(path, "new", "model", 3, **tokens, cost=0.25)
    answered(path, "new", "gpt", 4, **tokens)
    answered(path, "new", "gpt", 5, cost=0.5)
    write_prices(path, "old", {"model": THEN})
    write_prices(path, "new", {"model": Price(2.0, 0.0, source="genai-prices 2")})
    return path


def test_the_price_is_that_of_the_run_that_paid(tmp_path: Path) -> None:
    costs = tally_costs(folder(tmp_path), {})
    assert chosen(costs, "old", "model") == chosen(costs, "old", None) == Cost(1.0, "genai-prices 1", 1, 0, price=THEN)
    new = chosen(costs, "new", "model")
    assert new == Cost(2.25, "endpoint, genai-prices 2", 2, 0, price=Price(2.0, 0.0, source="genai-prices 2"))
    assert chosen(costs, "new", "gpt") == Cost(0.5, "endpoint", 1, 1)
    every = chosen(costs, None, None)
    assert every == Cost(3.75, "endpoint, genai-prices 1, genai-prices 2", 4, 1, price=None)


def test_the_users_table_of_now_goes_before_the_price_of_then(tmp_path: Path) -> None:
    costs = tally_costs(folder(tmp_path), {"model": TABLE})
    assert chosen(costs, "old", "model") == Cost(5.0, "table", 1, 0, price=TABLE)
    assert chosen(costs, None, "model") == Cost(10.25, "endpoint, table", 3, 0, price=TABLE)


def test_of_what_nobody_knows_there_is_no_cost(tmp_path: Path) -> None:
    assert cost_of_all([]) is None
    assert cost_of_all([CostTally(unpriced=3)]) is None
    assert tally_costs(tmp_path / "none.db", {}) == {}
    free = CostTally(values=[0.0], sources={"endpoint"})
    assert cost_of_all([free, CostTally(unpriced=2)]) == Cost(0.0, "endpoint", 1, 2)


def test_judges_stand_in_the_order_in_which_they_are_configured(tmp_path: Path) -> None:
    judges = [{"name": name, "model_id": "m"} for name in ("zeta", "alpha")]
    here = plan({"config.output_dir": str(tmp_path), "config.type": "aci_bench", "config.params.extra.judges": judges})
    one = Spent(1, 0, 0, 1, 1, None, None)
    spent = SpentByRole(one, dict.fromkeys(("model", "alpha", "of an earlier run", "zeta"), one))
    usage = with_costs(Usage(spent, SpentByRole(one, {"zeta": one}), 1, 1.0), here, "new")
    assert list(usage.this_run.roles) == ["model", "zeta", "alpha", "of an earlier run"]
    assert list(usage.all_runs.roles) == ["zeta"]


def test_why_a_cost_is_not_known_is_said_of_who_may_ask_for_money(tmp_path: Path) -> None:
    costs = tally_costs(folder(tmp_path), {})
    assert why_unknown(costs, lambda role: f"no price of {role}") == "gpt: no price of gpt"
    nobody: dict[str, str] = {}
    assert why_unknown(costs, nobody.get) is None
    assert why_unknown({}, str) is None


def test_a_result_has_its_costs_by_run_and_role(tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path)})
    folder(tmp_path)
    one = Spent(2, 0, 0, 1, 1, None, None)
    spent = SpentByRole(one, {"model": one, "gpt": one})
    usage = with_costs(Usage(spent, spent, 2, 1.0), here, "new")
    assert usage.this_run.total.cost == Cost(
        2.75, "endpoint, genai-prices 2", 3, 1, price=Price(2.0, 0.0, source="genai-prices 2")
    )
    assert usage.this_run.roles["gpt"].cost == Cost(0.5, "endpoint", 1, 1)
    assert usage.all_runs.roles["model"].cost == Cost(
        3.25, "endpoint, genai-prices 1, genai-prices 2", 3, 0, price=None
    )
    assert usage.cost_unknown is None  # the judge is none of this plan
    answered(here.rundir.cache_db, "new", "model", 6)
    assert with_costs(usage, here, "new").cost_unknown == "model: no price is known of org/model at host.example"


def test_a_price_that_was_not_counted_by_is_not_named(tmp_path: Path) -> None:
    answered(tmp_path / "cache.db", "new", "model", 1, cost=0.25)
    assert chosen(tally_costs(tmp_path / "cache.db", {"model": TABLE}), None, None) == Cost(0.25, "endpoint", 1, 0)
