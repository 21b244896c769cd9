from __future__ import annotations

import io
from typing import Any

import pytest

from eval_factory.config.evaluation import Request
from eval_factory.workflows import run_anywhere as module
from eval_factory.workflows.options import Options
from eval_factory.workflows.run_anywhere import run_anywhere
from eval_factory.workflows.suite import slurm_run
from unit.builders import MINIMAL


@pytest.mark.parametrize("executor", ["local", "slurm"])
def test_the_configuration_says_where(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def here(request: Request, options: Options, **others: Any) -> str:
        asked.append(("local", others.pop("evaluation").executor.name))
        assert set(others) == {"env", "screen"}
        assert request.flags["executor"] == executor
        return "here"

    def there(evaluation: Any, options: Options, **others: Any) -> str:
        asked.append(("slurm", others.pop("wait")))
        assert set(others) == {"env", "screen"}
        return "there"

    monkeypatch.setattr(module, "evaluate", here)
    monkeypatch.setattr(slurm_run, "run_as_job", there)
    request = Request(flags={**MINIMAL, "executor": executor})
    found: Any = run_anywhere(request, Options(), wait=True, env={}, screen=io.StringIO())
    assert found == {"local": "here", "slurm": "there"}[executor]
    assert asked == [(executor, "local" if executor == "local" else True)]
