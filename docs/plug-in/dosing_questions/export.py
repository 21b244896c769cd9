"""`eval-factory export line DIR`: the score in one line."""

from __future__ import annotations

import click

from eval_factory import load_result


@click.command("line")
@click.argument("folder", metavar="DIR")
def line(folder: str) -> None:
    """The main score of a result in one line."""
    result = load_result(folder).result
    click.echo(f"{result.task} {result.main_metric} {result.scores[result.main_metric].value:.3f}")
