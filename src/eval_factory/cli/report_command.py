"""`eval-factory report`: the pages and files of results that are there already."""

from __future__ import annotations

from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.core.errors import ConfigError
from eval_factory.core.suite_dir import SuiteDir

PURPOSES = ("tripod-llm", "model-card", "methods", "markdown", "latex")


@click.command("report")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("-o", "--output", type=HomePath(), default=None, help="Write the page to this file.")
@click.option("--for", "purpose", type=click.Choice(PURPOSES), help="Write this instead, to standard output or -o.")
@click.option(
    "--plots", type=HomePath(), default=None, metavar="DIR", help="Write the plots to this folder, as SVG and PNG."
)
@click.option("--no-text", "no_text", is_flag=True, help="Leave out every prompt, answer, reference and judge's words.")
def report(
    folders: tuple[Path, ...], output: Path | None, purpose: str | None, plots: Path | None, no_text: bool
) -> None:
    """Write the page of one result, or of several beside each other, with every instance in it.

    DIR is the output folder of a run, or that of a suite, which stands for its runs. --for writes what a paper needs:
    of one run, of a suite, or of runs beside each other the TRIPOD-LLM checklist, the methods section, and tables with
    intervals and ranks in Markdown or LaTeX; of one run also the metrics of CHAI's model card.
    """
    from eval_factory.report.reader import compared_runs, is_suite, run_folders

    if purpose is not None:
        from eval_factory.analysis.paper import written_for

        _write(written_for(purpose, folders), output)
        return
    if plots is not None:
        from eval_factory.cli.report_plots import write_plots

        write_plots(run_folders(folders), plots)
        if output is None:
            return
    from eval_factory.core.atomic_files import write_atomic
    from eval_factory.core.rundir import PRIVATE
    from eval_factory.report.page.document import page_of
    from eval_factory.report.reader import load_result

    runs = run_folders(folders)
    if len(runs) > 1:
        from eval_factory.analysis.comparison_page import page_of_several

        if output is None:
            own = "; ".join(f"{SuiteDir(one).results_html} is the suite's own" for one in folders if is_suite(one))
            said = f" ({own})" if own else ""
            raise ConfigError(f"report: several folders have one page between them{said}; say where: -o page.html")
        text = page_of_several(compared_runs(folders, "report"), with_texts=not no_text)
    else:
        stored = load_result(runs[0])
        text = page_of(stored, with_texts=not no_text)
        if output is None:
            output = stored.folder / ("report-without-texts.html" if no_text else "report.html")
            _look_at_checksums(output, text)
    write_atomic(output, text, mode=PRIVATE)
    click.echo(str(output))


def _write(text: str, output: Path | None) -> None:
    """To standard output, or to a file, whose path is then printed."""
    from eval_factory.core.atomic_files import write_atomic

    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomic(output, text)
        click.echo(str(output))


def _look_at_checksums(page: Path, text: str) -> None:
    """Another version's page is another one: written over the run's, `verify` would call the result altered.

    Raises:
        ConfigError: SHA256SUMS lists another page of this name.
    """
    checksums = page.parent / "SHA256SUMS"
    listed = checksums.read_text(encoding="utf-8", errors="surrogateescape") if checksums.is_file() else ""
    import hashlib  # imported here, as each command is made before one of them is chosen

    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if f"  {page.name}\n" in listed and f"{digest}  {page.name}\n" not in listed:
        raise ConfigError(
            f"report: {page} is part of the result (SHA256SUMS), and this version's page differs: give -o page.html"
        )
