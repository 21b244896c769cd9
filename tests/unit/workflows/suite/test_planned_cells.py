from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.suite import Suite, build_suite
from eval_factory.core.errors import ConfigError
from eval_factory.workflows.suite.planned_cells import plan_cells

ENV = {"OPENAI_API_KEY": "sk-012345678901234567890"}


def suite_of(folder: Path, **changes: Any) -> Suite:
    endpoint = {
        "url": "https://host.example/v1",
        "model_id": "nobody/knows-it",
        "type": "chat",
        "api_key": "OPENAI_API_KEY",
    }
    suite = {
        "output_dir": str(folder), "evaluations": ["sample_medical_qa", "pubmed_qa"],
        "targets": [{"name": "a", "api_endpoint": endpoint}], **changes,
    }  # fmt: skip
    return build_suite(None, document={"suite": suite}, env=ENV)


def test_every_cell_has_its_plan_and_the_name_of_its_limits(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    cells = plan_cells(suite, ENV)
    assert [(one.number, one.cell.name, one.plan.task_name) for one in cells] == [
        (0, "a/sample_medical_qa", "sample_medical_qa"), (1, "a/pubmed_qa", "pubmed_qa")]  # fmt: skip
    assert {one.group for one in cells} == {suite.limit_groups["a"]}
    assert [one.plan.rundir.root for one in cells] == [
        tmp_path / "a" / "sample_medical_qa",
        tmp_path / "a" / "pubmed_qa",
    ]


def test_a_limit_of_cost_needs_prices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)max_cost cannot be held: .*model_id: nobody/knows-it") as raised:
        plan_cells(suite_of(tmp_path, max_cost=5.0), ENV)
    assert len(raised.value.problems) == 1, "said once for all cells"
    prices = [{"model_id": "nobody/knows-it", "input_per_million": 1.0, "output_per_million": 2.0}]
    known = suite_of(tmp_path, max_cost=5.0, params={"extra": {"prices": prices}})
    assert len(plan_cells(known, ENV)) == 2
    assert len(plan_cells(suite_of(tmp_path, max_requests=5), ENV)) == 2
