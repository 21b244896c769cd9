"""`eval-factory annotate`: sheets for clinicians, their ratings, and how many are needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eval_factory.cli.paths import HomePath
from eval_factory.core.foreign_text import own_lines

if TYPE_CHECKING:
    from eval_factory.core.annotations import Sample


@click.group("annotate")
def annotate() -> None:
    """Have people rate a blinded sample of a result's answers; correct the score by it."""


@annotate.command("export")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("--out", type=HomePath(), required=True, help="A new folder for the sheets; give it to the raters.")
@click.option("--n", "count", type=int, default=100, show_default=True, help="Answers to rate.")
@click.option("--raters", type=int, default=3, show_default=True, help="People; each rates all of these answers.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one draws another sample.")
@click.option(
    "--kind", type=click.Choice(["ratings", "criteria"]), default=None,
    help="Whole ratings, or each criterion of a rubric: met or not. Criteria where the result has a rubric.",
)  # fmt: skip
@click.option("--no_reference", is_flag=True, help="Do not show the benchmark's own answer.")
def export(folder: Path, out: Path, count: int, raters: int, seed: int, kind: str | None, no_reference: bool) -> None:
    """Draw a sample of the answers in DIR, and write a sheet for each rater: CSV and an HTML form.

    The sample is stratified by score and group. Model, judges, scores and ids are hidden; what the codes stand for is
    kept in DIR/annotations.
    """
    from eval_factory.report.reader import one_run
    from eval_factory.workflows.annotate import SheetOptions, export_sheets  # imported here: `ls` is to be quick

    options = SheetOptions(out, count, raters, seed, kind, with_reference=not no_reference)
    folder = one_run(folder, "annotate export")
    made = export_sheets(folder, options)
    asked = sum(len(one.questions) for one in made.sample.answers)
    lines = [
        f"sheet {made.sample.id}: {len(made.sample.answers)} of {made.answers} answers, {asked} ratings a rater",
        *(f"  {number} answers of: {name}" for name, number in _by_stratum(made.sample)),
        f"  for the raters: {out} (a form and a table each; one of them is enough)",
        f"  not for them: {made.kept}, which says what the codes stand for",
        f"  what comes back: eval-factory annotate import {folder} FILE...",
    ]
    click.echo(own_lines("\n".join(lines)))


def _by_stratum(sample: Sample) -> list[tuple[str, int]]:
    return [(name, sum(one.stratum == place for one in sample.answers)) for place, name in enumerate(sample.strata)]


@annotate.command("import")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.argument("sheets", type=HomePath(), nargs=-1, required=True, metavar="SHEET...")
def import_(folder: Path, sheets: tuple[Path, ...]) -> None:
    """Take the ratings of SHEETs (CSV) into the result in DIR, and correct its score by them.

    Every row is checked, and nothing is imported where one is wrong. Ratings may come in parts; the same rater's sheet
    again replaces what was imported of it. The files of the result are written anew, and `verify` finds them intact.
    """
    from eval_factory.report.reader import one_run
    from eval_factory.report.sentences import clinician_lines
    from eval_factory.workflows.annotate import import_sheets

    made = import_sheets(one_run(folder, "annotate import"), sheets)
    lines = [f"{made.ratings} ratings imported; {made.empty} rows were left empty" if made.empty
             else f"{made.ratings} ratings imported"]  # fmt: skip
    lines += [f"  {line}" for line in clinician_lines(made.clinicians)]
    lines += [f"  note: {note}" for note in made.notes]
    lines.append(f"  results: {made.stored.folder / 'evaluation_config.yaml'}")
    click.echo(own_lines("\n".join(lines)))


@annotate.command("plan")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--half_width",
    type=float,
    default=None,
    help="Half of the width that the interval may have, in units of the score.",
)
def plan(folder: Path, half_width: float | None) -> None:
    """How many answers of DIR have to be rated for an interval of a wanted width.

    It depends on how closely the judges follow the people: a line for each correlation, and for the one that was
    measured where ratings were imported.
    """
    from eval_factory.report.reader import run_folders
    from eval_factory.workflows.annotation_plan import plan_of

    runs = run_folders([folder])
    for run in runs:
        head = [f"{run}:"] if len(runs) > 1 else []
        click.echo(own_lines("\n".join([*head, *plan_of(run, half_width).lines()])))
