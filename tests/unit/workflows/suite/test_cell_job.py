from __future__ import annotations

from pathlib import Path

from eval_factory.workflows.suite.suite_status import CellJob


def test_for_programs() -> None:
    assert CellJob(None, 0, Path("/l"), None).document() == {
        "task": None, "attempts": 0, "log": "/l", "work_folder": None,
    }  # fmt: skip
    assert CellJob("t", 2, Path("/l"), Path("/w")).document() == {
        "task": "t", "attempts": 2, "log": "/l", "work_folder": "/w",
    }  # fmt: skip
