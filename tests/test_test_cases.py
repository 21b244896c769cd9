"""Every run config that we ship: the valid ones validate, the invalid ones say what their first lines expect."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import make_test_cases
from scripts.make_test_cases import PREFIX, run_configs

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework

FOLDER = Path(__file__).resolve().parents[1] / "test_cases"
MARK = "# expect: "


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    found = build_evaluation(Request(run_config=path), load_framework(), {})
    if path.stem.startswith(PREFIX):
        assert found.run.config.type == path.stem.removeprefix(PREFIX)


MADE = run_configs(load_framework())


def test_there_is_one_per_task() -> None:
    assert {path.name for path in FOLDER.glob("test_case_*.yml")} == set(MADE)
    assert {name.removeprefix(PREFIX).removesuffix(".yml") for name in MADE} == set(load_framework().names())


@pytest.mark.parametrize("name", MADE)
def test_those_of_the_tasks_are_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == MADE[name], "run scripts/make_test_cases.py"


def test_the_script_writes_what_is_missing_and_removes_what_is_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "test_cases"
    folder.mkdir()
    for name in (f"{PREFIX}gone.yml", "quickstart.yml"):
        (folder / name).write_text("x")
    monkeypatch.setattr(make_test_cases, "FOLDER", folder)
    make_test_cases.main()
    assert {path.name for path in folder.iterdir()} == {"quickstart.yml", *MADE}
    assert {name: (folder / name).read_text("utf-8") for name in MADE} == MADE


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
