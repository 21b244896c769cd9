"""What the process of a shard hands on to helm-run, and how it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import BusyError
from eval_factory.core.helm_run_settings import PARENT, HelmRunSettings
from eval_factory.core.rundir import RunDir
from eval_factory.core.shard_spec import ShardSpec
from eval_factory.executors.base import Finished
from eval_factory.helm import names
from eval_factory.workflows.sharding import shard_process

SPEC = ShardSpec(1, 2, "r1", "w", ("helm-run", "--suite", "s"), ("A_KEY",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    SPEC.write(tmp_path)
    settings = HelmRunSettings(file_lists="/lists", answers="/whole")
    (tmp_path / "model_configs").mkdir()
    (tmp_path / "model_configs" / names.SETTINGS).write_text(settings.file_text())
    monkeypatch.setenv("EVAL_FACTORY_ANSWERS", "/elsewhere")
    monkeypatch.setenv(PARENT, "1")
    return tmp_path


def test_helm_run_sees_the_environment_before_the_file(folder: Path) -> None:
    env = shard_process.environment_of(SPEC, RunDir(folder))
    told = HelmRunSettings.from_environment(env)
    assert (told.run_id, told.parent, told.file_lists, told.answers) == ("r1", os.getpid(), "/lists", "/elsewhere")
    assert env["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (-9, 137)])
def test_the_exit_code_and_the_last_lines_are_helm_runs(
    code: int, expected: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Any] = []

    def run(spec: Any, **named: Any) -> Finished:
        begun.extend([spec, named["log"]])
        return Finished(code, ("its", "last"))

    monkeypatch.setattr(shard_process, "run_logged", run)
    assert shard_process.main(folder) == expected
    assert capsys.readouterr().out == "its\nlast\n"
    assert (begun[0].argv, begun[0].run_id, begun[1]) == (SPEC.argv, "r1", folder / "logs" / "helm-run.log")


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (BusyError("in use"), 5)])
def test_what_stops_it_is_its_exit_code(
    error: BaseException, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> Finished:
        raise error

    monkeypatch.setattr(shard_process, "run_logged", run)
    assert shard_process.main(folder) == code
