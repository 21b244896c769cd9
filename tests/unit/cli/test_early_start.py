from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from eval_factory.cli import early_start
from eval_factory.cli.early_start import begun_early, is_worth_it
from eval_factory.core.helm_run_settings import WITHOUT
from eval_factory.core.rundir import RunDir
from eval_factory.helm.programs import Program

CONFIG = """
config:
  type: pubmed_qa
  output_dir: {folder}
target:
  api_endpoint:
    api_key: KEY
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "run.yml"
        file.write_text(text)
        return file

    return write


@pytest.mark.parametrize("quoted", ["{}", "'{}'", '"{}"', "  {}  "])
def test_a_folder_that_holds_a_run_is_left_alone(quoted: str, written: Callable[[str], Path], tmp_path: Path) -> None:
    """It is probably complete: then nothing is asked."""
    out = tmp_path / "out"
    config = written(CONFIG.format(folder=quoted.format(out)))
    assert is_worth_it(config, {}, (), fresh=False)
    out.mkdir()
    assert is_worth_it(config, {}, (), fresh=False)
    RunDir(out).run_state.write_text("{}")
    assert not is_worth_it(config, {}, (), fresh=False)
    assert is_worth_it(config, {}, (), fresh=True)
    assert is_worth_it(config, {"config.output_dir": str(tmp_path / "another")}, (), fresh=False)
    assert not is_worth_it(None, {"config.output_dir": str(out)}, (), fresh=False)


def test_without_a_file_the_flags_say_all() -> None:
    assert is_worth_it(None, {"config.type": "pubmed_qa"}, ("config.params.limit_samples=3",), fresh=False)


@pytest.mark.parametrize("key", ["executor", "allow_code_execution"])
def test_what_another_process_asks_needs_none_here(key: str, written: Callable[[str], Path], tmp_path: Path) -> None:
    plain = CONFIG.format(folder=tmp_path)
    assert not is_worth_it(written(f"{plain}{key}: slurm\n"), {}, (), fresh=True)
    assert not is_worth_it(written(f"{plain}      {key} : 4\n"), {}, (), fresh=True)
    assert not is_worth_it(None, {f"config.params.extra.{key}": 2}, (), fresh=True)
    assert not is_worth_it(None, {}, (f"a.b=1,config.params.extra.{key}=2",), fresh=True)
    assert is_worth_it(written(f"{plain}# {key} is not given\n"), {}, (), fresh=True)


def test_a_file_that_is_not_there_or_is_no_run_config(written: Callable[[str], Path], tmp_path: Path) -> None:
    assert not is_worth_it(tmp_path / "none.yml", {}, (), fresh=True)
    assert not is_worth_it(written("suite: {}\n"), {}, (), fresh=True)
    written("").write_bytes(b"\xff\xfe")
    assert not is_worth_it(tmp_path / "run.yml", {}, (), fresh=True)


class Ahead:
    def __init__(self, module: str, program: list[str], env: Mapping[str, str]) -> None:
        self.begun = (module, program, env)
        self.ended = 0

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_start, "ProgramAhead", Ahead)
    monkeypatch.setattr(early_start, "only_calls_main", lambda program: program[-1] == "helm-run")
    monkeypatch.setattr(early_start, "helm_program", lambda name: Program(["python", "-m", name]))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)


def begun(**flags: Any) -> Any:
    with begun_early(None, flags, (), fresh=True) as ahead:
        assert ahead is None or vars(ahead)["ended"] == 0
    return ahead


@pytest.mark.usefixtures("two_processors")
def test_it_sees_no_key_and_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-some-length")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    ahead = begun()
    module, program, env = ahead.begun
    assert (module, program) == ("eval_factory.helm_plugin.helm_run_ahead", ["python", "-m", "helm-run"])
    assert env["LC_ALL"] == "C.UTF-8"
    assert "OPENAI_API_KEY" not in env
    assert ahead.ended == 1
    with pytest.raises(KeyboardInterrupt), begun_early(None, {}, (), fresh=True) as interrupted:
        raise KeyboardInterrupt
    assert vars(interrupted)["ended"] == 1


@pytest.mark.usefixtures("two_processors")
def test_where_it_would_be_for_nothing_none_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun(executor="slurm") is None
    with monkeypatch.context() as own:
        own.setattr(early_start, "only_calls_main", lambda _program: False)
        assert begun() is None
    with monkeypatch.context() as own:
        own.setattr(os, "sched_getaffinity", lambda _pid: {3})
        assert begun() is None
    with monkeypatch.context() as own:
        own.delattr(os, "sched_getaffinity")
        assert begun() is None
    with monkeypatch.context() as own:
        own.setenv(WITHOUT, "defer_large_packages")
        assert begun() is None
    assert begun() is not None

    def refused(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(early_start, "ProgramAhead", refused)
    assert begun() is None
