"""Tests of what a suite will take: sums, of which nothing is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.config.suite import Suite, build_suite
from eval_factory.core.budget import Budget
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows import estimate
from eval_factory.workflows.estimate_records import Estimate, RoleEstimate
from eval_factory.workflows.measured_prompts import PromptSizes, scenarios_of_earlier_runs
from eval_factory.workflows.suite import suite_estimate
from eval_factory.workflows.suite.suite_estimate import (
    CellEstimate,
    SharedSizes,
    SuiteEstimate,
    estimate_suite,
)
from facts import each_says, says


def cell(
    name: str,
    group: str,
    requests: int | None,
    cost: float | None = 0.5,
    hours: float | None = 0.25,
) -> Any:
    sources = {"requests": "counted", "cost": "unknown: why" if cost is None else "known"}
    tokens = None if requests is None else 10.0 * requests
    role = RoleEstimate("model", "m", requests, tokens, 0.0, cost, hours, sources)
    return CellEstimate(name, group, Estimate("qa", (role,), 0, Budget()))


def test_sums() -> None:
    found = SuiteEstimate(
        (cell("a/x", "one", 100), cell("a/y", "one", 50), cell("b/x", "two", 20)), Budget()
    )
    assert (found.requests, found.tokens, found.cost, found.hours, found.exceeded_limits) == (
        170,
        1700.0,
        1.5,
        0.5,
        {},
    )
    each_says(
        found.to_text().splitlines()[:4],
        ["a/x: 100 requests", "1,000 tokens", "0.5 USD", "15.0 min"],
        ["a/y: 50 requests", "500 tokens", "0.5 USD", "15.0 min"],
        ["b/x: 20 requests", "200 tokens", "0.5 USD", "15.0 min"],
        ["total: 170 requests", "1,700 tokens", "1.50 USD", "30.0 min"],
    )


def test_what_nobody_knows_is_not_guessed() -> None:
    cells = (
        cell("a/x", "one", 100),
        cell("a/y", "one", None, None, None),
        cell("a/z", "one", 1, None),
    )
    found = SuiteEstimate(cells, Budget(max_cost=0.1))
    assert (found.requests, found.tokens, found.cost, found.hours, found.exceeded_limits) == (
        None,
        None,
        None,
        None,
        {},
    )
    lines = found.to_text().splitlines()
    says(lines[1], "a/y: unknown requests", "unknown tokens", "unknown cost", "unknown time")
    says(lines[3], "cost of m", "unknown: why")
    says(lines[4], "total: unknown requests", "unknown tokens", "unknown cost", "unknown time")


def test_limits_that_will_be_reached() -> None:
    cells = (cell("a/x", "one", 100, hours=1.0), cell("a/y", "one", 50, hours=0.5))
    budget = Budget(max_cost=0.9, max_requests=149, max_tokens_total=1499, max_wall_s=5399)
    found = SuiteEstimate(cells, budget)
    assert found.exceeded_limits == {
        "max_cost": 1.0,
        "max_requests": 150,
        "max_tokens_total": 1500.0,
        "max_wall_s": 5400.0,
    }
    says(found.to_text(), "max_requests (149)", "before the end")
    assert "1.5 h" in found.to_text()
    assert SuiteEstimate(cells, Budget(1.0, 150, 1500, 5400)).exceeded_limits == {}


def test_a_record_for_programs() -> None:
    found = SuiteEstimate((cell("a/x", "one", 100),), Budget(max_requests=1)).as_dict()
    (one,) = found.pop("cells")
    expected = {"requests": 100, "tokens": 1000.0, "cost": 0.5, "currency": "USD", "hours": 0.25}
    assert {**found, **expected, "beyond": {"max_requests": 100}} == found
    assert (one["cell"], one["endpoint"], one["requests"]) == ("a/x", "one", 100)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that are not looked at."""
    nowhere = PromptSizes(None, reason="")
    monkeypatch.setattr(
        suite_estimate, "SharedSizes", lambda: SharedSizes(lambda _plan, _env: nowhere)
    )


@pytest.mark.usefixtures("unread")
def test_of_a_suite(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, "small", endpoint=DEMO, max_requests=9)
    said: list[str] = []
    found = estimate_suite(suite, {}, said.append)
    assert said == ["looking at small/sample_medical_qa ..."]
    assert (found.requests, found.cells[0].limit_group) == (40, suite.limit_groups["small"])
    assert found.exceeded_limits == {"max_requests": 40}
    wrong = suite_of(tmp_path, "small", params={"extra": {"subset": "hard"}})
    with pytest.raises(ConfigError, match="subset"):
        estimate_suite(wrong, {}, lambda _: None)


DEMO = {"url": "demo://baseline", "model_id": "m", "type": "chat"}
NO_KEY = {
    "url": "https://example.org/v1",
    "model_id": "m",
    "type": "chat",
    "api_key": "NO_SUCH_KEY",
}


def suite_of(
    folder: Path, *targets: str, endpoint: dict[str, str] = NO_KEY, **changes: Any
) -> Suite:
    section = {
        "output_dir": str(folder),
        "evaluations": ["sample_medical_qa"],
        "targets": [{"name": name, "api_endpoint": endpoint} for name in targets],
        **changes,
    }
    return build_suite(None, document={"suite": section}, env={})


@pytest.mark.usefixtures("unread")
def test_no_key_is_needed(tmp_path: Path) -> None:
    """As for the estimate of one run; that a run would stop is said."""
    suite = suite_of(tmp_path, "small", "large")
    said: list[str] = []
    assert estimate_suite(suite, {}, said.append).requests == 80
    says(said[0], "warning: ", "would stop", "every cell", "NO_SUCH_KEY")
    assert len(said) == 3
    text = estimate_suite(suite, {}, lambda _: None).to_text()
    says(text, "no price", "m at example.org", "suite.prices")
    assert "config.params" not in text


def test_the_data_are_looked_at_once_for_all_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(plan: Plan, _env: object) -> PromptSizes:
        looked.append(plan.model.model_id)
        return PromptSizes(7, 2800, 70)

    monkeypatch.setattr(suite_estimate, "SharedSizes", lambda: SharedSizes(look))
    monkeypatch.setattr(estimate, "typical_requests", dict)
    other = {"url": "https://large.org/v1", "model_id": "n", "type": "completions"}
    targets = [{"name": "small", "api_endpoint": NO_KEY}, {"name": "large", "api_endpoint": other}]
    found = estimate_suite(suite_of(tmp_path, targets=targets), {}, lambda _: None)
    assert [(one.estimate.requests, one.estimate.tokens) for one in found.cells] == [(7, 770.0)] * 2
    assert looked == ["m"]


KNOWN = PromptSizes(7, 100, 10)
NOT_HERE = PromptSizes(None, reason="its data are not here")


def test_data_in_a_cells_own_folder_are_found_where_others_have_none(tmp_path: Path) -> None:
    scenarios_of_earlier_runs(plan({"config.output_dir": str(tmp_path / "c")})).mkdir(parents=True)
    looked: list[str] = []

    def look(of: Plan, _env: object) -> PromptSizes:
        looked.append(of.rundir.root.name)
        return KNOWN if scenarios_of_earlier_runs(of).is_dir() else NOT_HERE

    shared = SharedSizes(look)
    found = [shared(plan({"config.output_dir": str(tmp_path / name)}), {}) for name in "abcd"]
    assert found == [NOT_HERE, NOT_HERE, KNOWN, KNOWN]
    assert looked == ["a", "c"]
