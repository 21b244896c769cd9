"""The executors of a suite: each name has one everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import click

import eval_factory
from eval_factory.cli.monitor_command import monitor
from eval_factory.cli.run_command import run_eval
from eval_factory.cli.suite_command import run_suite
from eval_factory.config.model import ExecutorName
from eval_factory.core.enums import EXECUTOR_NAMES
from eval_factory.workflows.suite.suite_executors import EXECUTORS

SOURCE = Path(eval_factory.__file__).parent
SLURM_FILES = {"executors", "slurm_suite.py", "slurm_run.py", "slurm_worker.py"}


def choices_of(command: click.Command) -> list[str]:
    (option,) = (option for option in command.params if option.name == "executor")
    assert isinstance(option.type, click.Choice)
    return list(option.type.choices)


def test_every_name_of_an_executor_is_known_everywhere() -> None:
    names = list(EXECUTOR_NAMES)
    assert list(EXECUTORS) == names
    assert list(get_args(ExecutorName)) == names
    assert choices_of(run_suite) == names
    assert choices_of(run_eval) == names
    assert isinstance(monitor, click.Group)
    assert choices_of(monitor.commands["look"]) == names


def test_no_other_module_compares_with_the_name_of_an_executor() -> None:
    comparison = re.compile(r"""[!=]= *["'](local|slurm)["']""")
    for file in SOURCE.rglob("*.py"):
        if SLURM_FILES.isdisjoint(file.relative_to(SOURCE).parts):
            assert not comparison.search(file.read_text(encoding="utf-8")), file
