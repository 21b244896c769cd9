"""Of the tests' own helper: the program in this process leaves the process as it was."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from command_here import HANDLED, run_here
from eval_factory import __version__
from program_runs import PROGRAM, runs_here


def test_folder_variables_and_handlers_are_those_of_before(tmp_path: Path) -> None:
    folder = Path.cwd()
    variables = dict(os.environ)
    handlers = [signal.getsignal(number) for number in HANDLED]
    made = run_here("new_benchmark", "~/mine", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert made.code == 0, made.stderr
    assert f"{tmp_path}/mine/run_config.yml" in made.stdout
    assert Path.cwd() == folder
    assert dict(os.environ) == variables
    assert [signal.getsignal(number) for number in HANDLED] == handlers


def test_output_errors_and_exit_code_are_the_programs() -> None:
    ended = run_here("--version")
    assert (ended.code, ended.stderr) == (0, "")
    assert __version__ in ended.stdout
    wrong = run_here("run_eval", "--nonsense")
    assert wrong.code == 2
    assert wrong.stdout == ""
    assert "--nonsense" in wrong.stderr


def test_other_programs_and_variables_of_a_start_need_a_process() -> None:
    assert runs_here([*PROGRAM, "ls"], {"HOME": "/"}) == (
        os.environ.get("EVAL_FACTORY_EVERY_TEST") != "1"
    )
    assert not runs_here(["timeout", "5", *PROGRAM], {})
    assert not runs_here([*PROGRAM, "ls"], {"PYTHONPATH": "/packages"})
    assert not runs_here([*PROGRAM, "ls"], {"LC_ALL": "C"})
