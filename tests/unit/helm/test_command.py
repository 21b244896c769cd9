"""HELM's programs are those of our own environment, not those on PATH."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from builders import plan
from eval_factory.helm import command
from eval_factory.helm.command import MODULES, helm_program


@pytest.fixture(autouse=True)
def _another_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / "helm-run"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))


def test_the_one_beside_our_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "our own" / "bin"
    folder.mkdir(parents=True)
    (folder / "helm-run").write_text("#!/bin/sh\n")
    monkeypatch.setattr(sys, "executable", str(folder / "python3"))
    assert helm_program("helm-run") == [str(folder / "helm-run")]
    assert command.command_line(plan())[0] == str(folder / "helm-run")


def test_without_a_script_our_interpreter_runs_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(tmp_path / "a b" / "python3")
    monkeypatch.setattr(sys, "executable", python)
    assert {name: helm_program(name) for name in MODULES} == {
        name: [python, "-m", MODULES[name]] for name in MODULES
    }
    argv = command.command_line(plan())
    assert argv[:4] == [python, "-m", "helm.benchmark.run", "--run-entries"]
    assert shlex.split(shlex.join(argv)) == argv
    assert helm_program("helm-server") == [python, "-m", "helm.benchmark.server"]
