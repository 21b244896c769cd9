"""The folder of a suite."""

from __future__ import annotations

import os
from pathlib import Path

from eval_factory.core.rundir import RunSuiteDir, SuiteDir, suite_dir


def test_a_run_that_is_a_suite_lies_in_its_own_output_folder() -> None:
    found = suite_dir(Path("out/.slurm"))
    assert isinstance(found, RunSuiteDir)
    assert found.cell("model", "medec") == found.named == Path("out")
    assert found.run_config == Path("out/.slurm/run_config.yml")
    assert found.cell_config("model", "medec") == Path("out/.slurm/.suite/cells/model/medec.yml")


def test_what_is_read_of_a_suite_are_its_files_and_those_of_its_runs(tmp_path: Path) -> None:
    for folder, mark in (("a/x", ".eval-factory"), ("a/y", "evaluation_config.yaml"), ("a/no_run", "x")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / mark).touch()
    own = SuiteDir(tmp_path).own
    assert {path.parent.relative_to(tmp_path).as_posix() for path in own} == {".", "a/x", "a/y"}
    assert {tmp_path / "suite_config.yml", tmp_path / ".suite", *SuiteDir(tmp_path).table} < {*own}
    assert tmp_path / "a" / "x" / "results.jsonl" in own
    assert tmp_path / "a" / "x" / "logs" in RunSuiteDir(tmp_path / "a" / "x" / ".slurm").own


def test_logs_of_servers_are_those_here_and_of_the_last_job_of_each_target(tmp_path: Path) -> None:
    suite = SuiteDir(tmp_path)
    assert suite.server_logs == ()
    logs = [suite.server_log("a"), suite.server_log("a@1")]
    for number, start in enumerate(("b/w1-x", "b/w2-x", "c/w1-x")):
        logs.append(SuiteDir(suite.state / "slurm/served" / start).server_log("x"))
        logs[-1].parent.mkdir(parents=True)
        os.utime(suite.state / "slurm/served" / start, (number, number))
    logs[0].parent.mkdir()
    for log in logs:
        log.touch()
    assert {*suite.server_logs} == {*logs} - {logs[2]}
