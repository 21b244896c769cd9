"""What cells did before, from their journals: whole, damaged, and not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.config.suite import Cell
from eval_factory.core.budget import Spending
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_budget import groups_that_answered, spent_before
from unit.builders import plan


def planned(folder: Path, name: str, *, role: str | None = None) -> PlannedCell:
    """A cell of a group of its own; `role` has answered it once."""
    cell = Cell(name, "medec", {}, folder / name)
    cell.folder.mkdir()
    its_plan = plan({"config.output_dir": str(cell.folder)})
    RunDir(cell.folder).run_config.write_text(f"target: {{api_endpoint: {{url: '{its_plan.model.url}'}}}}\n")
    if role is not None:
        cache = ResponseCache(RunDir(cell.folder).cache_db, "run")
        answered = Attempt("key", role, 1, "answered", 200, None, 1.0, 0.1, 7, 2)
        cache.save(Answer("key", role, "m", {}, {"usage": {}}, 1.0, 0.1), answered)
        cache.close()
    return PlannedCell(0, cell, its_plan, name)


def test_all_cells_together_and_what_nobody_can_count(tmp_path: Path) -> None:
    cells = [planned(tmp_path, "a", role="model"), planned(tmp_path, "b", role="gpt"), planned(tmp_path, "c")]
    damaged = planned(tmp_path, "d")
    RunDir(damaged.cell.folder).cache_db.write_text("no database, and long enough to be looked at" * 100)
    said: list[str] = []
    assert spent_before([*cells, damaged], said.append) == Spending(requests=2, tokens=18)
    (line,) = said
    assert line.startswith(f"warning: {RunDir(damaged.cell.folder).cache_db} is damaged (")
    assert line.endswith("what it counted is not in the suite's budget")
    assert groups_that_answered([*cells, damaged]) == {"a"}


@pytest.mark.parametrize(
    "config", ["target: {api_endpoint: {url: 'http://elsewhere.test/v1'}}", "target: 1", "a: [", None],
    ids=["another", "no endpoint", "no YAML", "no file"],
)  # fmt: skip
def test_an_endpoint_at_another_url_was_never_there(config: str | None, tmp_path: Path) -> None:
    moved = planned(tmp_path, "a", role="model")
    file = RunDir(moved.cell.folder).run_config
    if config is None:
        file.unlink()
    else:
        file.write_text(config)
    assert groups_that_answered([moved]) == frozenset()


def test_what_killed_shards_of_an_earlier_version_have_asked_counts_too(tmp_path: Path) -> None:
    cell = planned(tmp_path, "a", role="model")
    shard = cell.plan.rundir.shards / "2-of-3"
    shard.mkdir(parents=True)
    cell.plan.rundir.cache_db.rename(shard / "cache.db")
    said: list[str] = []
    assert spent_before([cell], said.append) == Spending(requests=1, tokens=9)
    assert said == []
