"""`eval-factory report --for NAME`: a reporting checklist or a model card, as far as a run fills it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from eval_factory.core.errors import ConfigError

PURPOSES = ("tripod-llm", "model-card")


def write_for(purpose: str, folders: Sequence[Path], output: Path | None) -> None:
    """To standard output, or to a file, whose path is then said.

    Raises:
        ConfigError: there is not one folder.
        PrerequisiteError: the folder holds no result.
    """
    from eval_factory.core.atomic_files import write_atomic
    from eval_factory.report.purposes import written_for
    from eval_factory.report.reader import load_result

    if len(folders) != 1:
        raise ConfigError(f"report: --for {purpose} is about one run: give one output folder")
    text = written_for(purpose, load_result(folders[0]))
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomic(output, text)
        click.echo(str(output))
