"""Tests of what cells have asked, read from their journals now and then."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import plan
from eval_factory.config.suite import Cell
from eval_factory.core.budget import Budget, Spending
from eval_factory.core.enums import RunStatus
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.workflows.suite.finished_cells import groups_that_answered, total_spending
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_status import SuiteReader, reached_limit_text
from facts import says


@pytest.mark.parametrize(
    ("budget", "left", "said"),
    [
        (Budget(), None, None),
        (Budget(max_cost=2.0), None, None),
        (Budget(max_cost=1.5), None, "max_cost (1.5) of the suite is reached"),
        (Budget(max_requests=11), None, None),
        (Budget(max_requests=10), None, "max_requests (10) of the suite is reached"),
        (
            Budget(max_tokens_total=99, max_wall_s=60.0),
            0.0,
            "max_tokens_total (99) of the suite is reached",
        ),
        (Budget(max_wall_s=60.5), 0.5, None),
        (Budget(max_wall_s=60.0), 0.0, "max_wall_s (60) of the suite is reached"),
    ],
    ids=str,
)
def test_the_limit_that_is_used_up(budget: Budget, left: float | None, said: str | None) -> None:
    assert reached_limit_text(budget, Spending(10, 100, 1.5), left) == said


def test_what_was_asked_since_is_seen_after_five_seconds_and_at_the_end_at_once(
    tmp_path: Path,
) -> None:
    now = [0.0]
    reader = SuiteReader(SuiteDir(tmp_path), clock=lambda: now[0])
    asked(tmp_path, "a")
    assert reader.read_spending(tmp_path, RunStatus.RUNNING).requests == 1
    asked(tmp_path, "b")
    now[0] = 4.9
    assert reader.read_spending(tmp_path, RunStatus.RUNNING).requests == 1
    now[0] = 5.0
    assert reader.read_spending(tmp_path, RunStatus.RUNNING).requests == 2
    asked(tmp_path, "c")
    assert reader.read_spending(tmp_path, RunStatus.RUNNING).requests == 2
    assert reader.read_spending(tmp_path, RunStatus.COMPLETE).requests == 3


def asked(folder: Path, *keys: str, role: str = "model") -> None:
    cache = ResponseCache(RunDir(folder).cache_db, "run")
    for key in keys:
        answered = Attempt(key, role, 1, "answered", 200, None, 1.0, 0.1, 7, 2)
        cache.save(Answer(key, role, "m", {}, {"usage": {}}, 1.0, 0.1), answered)
    cache.close()


def planned(folder: Path, name: str, *, role: str | None = None) -> PlannedCell:
    """A cell of a group of its own; `role` has answered it once."""
    cell = Cell(name, "medec", {}, folder / name)
    cell.folder.mkdir()
    its_plan = plan({"config.output_dir": str(cell.folder)})
    RunDir(cell.folder).run_config.write_text(
        f"target: {{api_endpoint: {{url: '{its_plan.model.url}'}}}}\n"
    )
    if role is not None:
        asked(cell.folder, "key", role=role)
    return PlannedCell(0, cell, its_plan, name)


def test_all_cells_together_and_what_nobody_can_count(tmp_path: Path) -> None:
    cells = [
        planned(tmp_path, "a", role="model"),
        planned(tmp_path, "b", role="gpt"),
        planned(tmp_path, "c"),
    ]
    damaged = planned(tmp_path, "d")
    RunDir(damaged.cell.folder).cache_db.write_text(
        "no database, and long enough to be looked at" * 100
    )
    said: list[str] = []
    assert total_spending([*cells, damaged], said.append) == Spending(requests=2, tokens=18)
    (line,) = said
    assert line.startswith(f"warning: {RunDir(damaged.cell.folder).cache_db} is damaged (")
    says(line, "suite's budget")
    assert groups_that_answered([*cells, damaged]) == {"a"}
    assert (
        SuiteReader(SuiteDir(tmp_path)).read_spending(damaged.cell.folder, RunStatus.RUNNING)
        == Spending()
    )


@pytest.mark.parametrize(
    "config",
    ["target: {api_endpoint: {url: 'http://elsewhere.test/v1'}}", "target: 1", "a: [", None],
    ids=["another", "no endpoint", "no YAML", "no file"],
)
def test_an_endpoint_at_another_url_was_never_there(config: str | None, tmp_path: Path) -> None:
    moved = planned(tmp_path, "a", role="model")
    file = RunDir(moved.cell.folder).run_config
    if config is None:
        file.unlink()
    else:
        file.write_text(config)
    assert groups_that_answered([moved]) == frozenset()
