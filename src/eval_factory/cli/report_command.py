"""`eval-factory report`: the pages and files of results that are there already."""

from __future__ import annotations

from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.cli.report_purposes import PURPOSES, write_for
from eval_factory.core.errors import ConfigError


@click.command("report")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("-o", "--output", type=HomePath(), default=None, help="Write the page to this file.")
@click.option("--for", "purpose", type=click.Choice(PURPOSES), help="Write this instead, to standard output or -o.")
@click.option(
    "--plots", type=HomePath(), default=None, metavar="DIR", help="Write the plots to this folder, as SVG and PNG."
)
def report(folders: tuple[Path, ...], output: Path | None, purpose: str | None, plots: Path | None) -> None:
    """Write the page of a result anew."""
    if purpose is not None:
        write_for(purpose, folders, output)
        return
    if plots is not None:
        from eval_factory.cli.report_plots import write_plots

        write_plots(folders, plots)
        if output is None:
            return
    from eval_factory.core.rundir import write_atomic
    from eval_factory.report.reader import load_result
    from eval_factory.report.write import html

    if len(folders) != 1:
        raise ConfigError("report: give one output folder")
    stored = load_result(folders[0])
    page = output or stored.folder / "report.html"
    write_atomic(page, html(stored.result, stored.command))
    click.echo(str(page))
