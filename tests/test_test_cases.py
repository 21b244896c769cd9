"""Every run config that we ship: the valid ones validate, the invalid ones say what their first lines expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework

FOLDER = Path(__file__).resolve().parents[1] / "test_cases"
MARK = "# expect: "


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    found = build_evaluation(Request(run_config=path), load_framework(), {})
    if path.stem.startswith("test_case_nim_llama_3_1_8b_"):
        assert found.run.config.type == path.stem.removeprefix("test_case_nim_llama_3_1_8b_")


def test_there_is_one_per_task() -> None:
    tested = {path.stem.removeprefix("test_case_nim_llama_3_1_8b_") for path in FOLDER.glob("test_case_*.yml")}
    assert tested == set(load_framework().names())


@pytest.mark.parametrize("path", sorted((FOLDER / "invalid").glob("*.yml")), ids=lambda path: path.stem)
def test_invalid(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    expected = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    assert expected
    with pytest.raises(ConfigError) as raised:
        build_evaluation(Request(run_config=path), load_framework(), {})
    for text in expected:
        assert text in str(raised.value)
    assert "canary" not in str(raised.value)
