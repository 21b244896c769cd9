"""What a report needs and no answer changes: found while helm-run works, so that it does not wait for it at the end.

Each is kept where it is found, once in a process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eval_factory.executors.process import git_hash
from eval_factory.tasks.framework import framework_path

NEEDED_TO_REPORT = (
    "jsonschema", "eval_factory.scoring.collect", "eval_factory.report.write",
    "eval_factory.report.eval_factory_metrics", "eval_factory.scoring.response_statistics",
    "eval_factory.scoring.run_files", "eval_factory.report.screen", "scipy.special", "scipy.stats",
)  # fmt: skip
"""Modules; the last two are needed by some results only."""


def compile_the_page() -> None:
    """Half of what a page of 1,000 instances costs is to compile its templates."""
    from eval_factory.report.page.document import compile_templates

    compile_templates()


def read_the_packages() -> None:
    from eval_factory.scoring.provenance import versions_of_packages
    from eval_factory.scoring.run_environment import installed_packages

    installed_packages()
    versions_of_packages()


def read_the_program() -> None:
    from eval_factory.workflows.unchanged import program_of_this

    program_of_this()


def commit_of_this() -> str | None:
    """Of the checkout that this program is of."""
    home = framework_path().parent
    return git_hash(home) if home != Path(__file__).parents[1] else None  # a wheel may lie in anybody's checkout


FOUND_AHEAD: tuple[Callable[[], object], ...] = (compile_the_page, read_the_packages, read_the_program, commit_of_this)
