from __future__ import annotations

from pathlib import Path

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.config.suite import build_suite
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.suite.suite_folder import write_configs
from suites import ENDPOINT, suite


def test_suite_and_cells_can_be_run_again_from_their_files(tmp_path: Path) -> None:
    found = suite(output_dir=str(tmp_path / "s"), preset="quick", params={"parallelism": 2}, max_cost=1.5)
    write_configs(found)
    assert build_suite(tmp_path / "s" / "suite_config.yml", env={}) == found
    assert {file.relative_to(tmp_path / "s" / ".suite" / "cells").as_posix() for file in tmp_path.rglob("*.yml")
            if ".suite" in file.parts} == {f"{cell.name}.yml" for cell in found.cells}  # fmt: skip
    for cell in found.cells[:3]:
        file = found.folder.cell_config(cell.target, cell.evaluation)
        from_file = build_evaluation(Request(run_config=file), load_framework(), {})
        assert from_file.run == build_evaluation(cell.request, load_framework(), {}).run


def test_the_files_hold_names_of_variables_and_never_a_secret(tmp_path: Path) -> None:
    env = {"MY_KEY": "canary-0123456789-canary", "WHERE": str(tmp_path / "s")}
    endpoint = {
        **ENDPOINT, "api_key": "MY_KEY", "url": "https://h/v1?key=${MY_KEY}",
        "adapter_config": {"params_to_add": {"user_token": "${MY_KEY}"}},
    }  # fmt: skip
    found = suite(output_dir="${WHERE}", targets=[{"name": "a", "api_endpoint": endpoint}], env=env)
    write_configs(found)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 3
    for file in files:
        assert "canary" not in file.read_text("utf-8")
        assert "${MY_KEY}" in file.read_text("utf-8")


def test_what_is_said_first(tmp_path: Path) -> None:
    found = suite(output_dir=str(tmp_path))
    write_configs(found)
    assert "run_suite" in found.folder.config.read_text("utf-8").splitlines()[0]
    assert "run_eval --run_config" in found.folder.cell_config("small", "medec").read_text("utf-8").splitlines()[0]
    write_configs(found)
