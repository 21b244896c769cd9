"""The command `import`, which imports results of other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from eval_factory.cli.console import HomePath
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.core.foreign_text import printable_lines

FORMATS = ("inspect", "lm-eval", "helm", "eee", "table")
"""The same formats as `importing.formats.FORMATS`; that module is slow to import."""


@click.command("import")
@click.argument("sources", type=HomePath(), nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "-o", "--output", "output_dir", type=HomePath(), required=True, help="Folder of the result."
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="The format of SOURCE; detected from its content if not given.",
)
@click.option("--task", help="For a table: the benchmark's name; the file's name if not given.")
@click.option("--model", default="unknown", help="For a table: the model that answered.")
@click.option(
    "--id", "id_column", metavar="COLUMN", help="For a table: the column of the questions' ids."
)
@click.option("--answer", metavar="COLUMN", help="For a table: the column of the model's answers.")
@click.option("--right", metavar="COLUMN", help="For a table: the column of the right answers.")
@click.option("--value", metavar="COLUMN", help="For a table: the column of the answers' scores.")
@click.option("--question", metavar="COLUMN", help="For a table: the column of the questions.")
@click.option(
    "--options", metavar="COLUMN", help="For a table: the column of the options, which | separates."
)
@click.option(
    "--min_coverage",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="The share of questions that need a value before the result may be reported.",
)
@click.option(
    "--published",
    metavar="YYYY-MM",
    help="The month since which questions and answers are public; as in `ls` if not given.",
)
@click.option(
    "--training_cutoff",
    metavar="YYYY-MM",
    help="The month in which the model's training data end, as its maker states it.",
)
@click.pass_context
def import_results(
    ctx: click.Context,
    /,
    sources: tuple[Path, ...],
    output_dir: Path,
    kind: str | None,
    **options: object,
) -> None:
    """Import results of another program as ordinary result folders.

    SOURCE is a log of inspect_ai (.eval or .json), a folder of lm-evaluation-harness, a run of bare
    HELM or medhelm, a record of Every Eval Ever, a table, or a folder of one of these. One result
    is written to the folder of -o; several results are written to one subfolder each. The values
    are those of the other program; eval-factory adds the interval, the best score without a model,
    and the options that its reader finds in the answers.

    To import data of a benchmark, use `data import`; for ratings of clinicians, `annotate import`.

    Exit code: 0, 1 if a result is not reportable, 2 or 3 if SOURCE cannot be imported.
    """
    from eval_factory.core.rundir import RunDir
    from eval_factory.importing.tables import Columns
    from eval_factory.report.summary import result_summary
    from eval_factory.workflows.import_results import import_results as import_all

    column_names: dict[str, Any] = {"id": options["id_column"]}
    for name in ("answer", "right", "value", "question", "options"):
        column_names[name] = options[name]
    columns = Columns(**column_names)
    months: dict[str, Any] = {
        "published": options["published"],
        "training_cutoff": options["training_cutoff"],
    }
    # click has converted the values already; `isinstance`, `str` and `float` are for mypy.
    imported = import_all(
        sources,
        output_dir,
        kind=kind,
        columns=columns,
        task=options["task"] if isinstance(options["task"], str) else None,
        model=str(options["model"]),
        min_coverage=float(str(options["min_coverage"])),
        **months,
    )
    if not imported:
        raise ConfigError(f"{', '.join(map(str, sources))}: contains no result")
    is_reportable = True
    for result in imported:
        click.echo(printable_lines(result_summary(result.result, RunDir(result.folder))))
        for reason in result.result.validity.not_reportable:
            click.echo(printable_lines(f"  NOT REPORTABLE: {reason}"), file=sys.stderr)
        is_reportable = is_reportable and result.result.reportable
    if not is_reportable:
        ctx.exit(NotReportableError.exit_code)
