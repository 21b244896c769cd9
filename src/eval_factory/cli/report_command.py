"""`eval-factory report`: the pages and files of results that are there already."""

from __future__ import annotations

from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.core.errors import ConfigError


@click.command("report")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("-o", "--output", type=HomePath(), default=None, help="Write the page to this file.")
@click.option("--no-text", "no_text", is_flag=True, help="Leave out every prompt, answer, reference and judge's words.")
def report(folders: tuple[Path, ...], output: Path | None, no_text: bool) -> None:
    """Write the page of one result, or of several beside each other, with every instance in it."""
    from eval_factory.core.rundir import PRIVATE, write_atomic
    from eval_factory.report.page.stored_pages import page_of
    from eval_factory.report.reader import load_result

    if len(folders) > 1:
        from eval_factory.analysis.comparison_page import page_of_several

        if output is None:
            raise ConfigError("report: several folders have one page between them; say where: -o page.html")
        text = page_of_several(folders, with_texts=not no_text)
    else:
        stored = load_result(folders[0])
        output = output or stored.folder / ("report-without-texts.html" if no_text else "report.html")
        text = page_of(stored, with_texts=not no_text)
    write_atomic(output, text, mode=PRIVATE)
    click.echo(str(output))
