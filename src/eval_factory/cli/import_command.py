"""`eval-factory import_config`: configurations of EvalFactory and NeMo Evaluator, as ours."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.cli.streams import lasting
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import own_lines


@click.command("import_config")
@click.argument("file", type=HomePath(), metavar="FILE")
@click.option("-o", "--output", type=HomePath(), default=None, help="The file to write; standard output if not given.")
@click.option("--force", is_flag=True, help="Overwrite the file to write if it is there.")
def import_config(file: Path, output: Path | None, force: bool) -> None:
    """Turn a config of nemo-evaluator-launcher, or a run config of EvalFactory, into a run config or a suite.

    What has no counterpart is listed, key by key, on standard error and at the top of what is written. Several tasks,
    or a model that is served, make a suite. Nothing is asked and no variable is read: what is written is only checked.
    Exit code: 0 written, 2 nothing is: FILE is no such configuration, or a suite already, or holds a key, or the file
    to write is there.
    """
    from eval_factory.config.foreign_configs import translated  # imported here: `--help` is to be quick
    from eval_factory.tasks.framework import load_framework

    if output is not None and output.exists():
        if file.exists() and output.samefile(file):
            raise ConfigError(f"{output}: is the file that is translated; name another one")
        if not force:
            raise ConfigError(f"{output}: is there already; name another file, or give --force")
    translation = translated(file, load_framework())
    screen = lasting(sys.stderr)
    screen.writelines(f"{own_lines(finding)}\n" for finding in translation.findings)
    if translation.unchanged:
        screen.write(own_lines(f"{file}: runs here as it is") + "\n")
    if output is None:
        click.echo(translation.text, nl=False)
        return
    _write(output, translation.text)
    command = "run_suite" if translation.is_suite else "run_eval"
    screen.write(
        own_lines(f"{output}: written; next: eval-factory {command} --run_config {_quoted(output)} --dry_run\n")
    )


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _write(path: Path, text: str) -> None:
    from eval_factory.core.safe_files import write_atomic

    try:
        write_atomic(path, text)
    except OSError as error:
        raise PrerequisiteError(
            f"{path}: cannot be written: {error.strerror}; give a file in a folder of yours"
        ) from None
