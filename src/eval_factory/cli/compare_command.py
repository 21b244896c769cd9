"""`eval-factory compare`: is one model better than another, on the same instances?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eval_factory.cli.paths import HomePath
from eval_factory.cli.streams import lasting
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.core.foreign_text import own_lines

if TYPE_CHECKING:
    from eval_factory.analysis.comparison import Compared


@click.command("compare")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="A B [C...]")
@click.option(
    "--metric", default=None, help="A score's name, such as exact_match.corrected; the main metric if not given."
)
@click.option(
    "--margin",
    type=float,
    default=None,
    help="A difference that does not matter, in the metric's unit: 0.05 is 5 points.",
)
@click.option(
    "--allow", multiple=True, metavar="REASON,...", help="Compare in spite of these reasons; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print tables in Markdown.")
@click.option("--texts", "with_texts", is_flag=True, help="Print what was asked and answered where the two differ.")
def compare(
    folders: tuple[Path, ...],
    metric: str | None,
    margin: float | None,
    allow: tuple[str, ...],
    **how: bool,
) -> None:
    """Compare the results in output folders, on the instances that all of them answered.

    Exit code 1: they cannot be compared; the reasons are printed, each with the name under which --allow accepts it.
    """
    from eval_factory import api  # imported here, as all that reads results: `ls` is to be quick
    from eval_factory.analysis import comparison_report as report
    from eval_factory.analysis.comparison_report import texts_of_flips

    if how["as_json"] and how["as_markdown"]:
        raise ConfigError("compare: give one of --json and --markdown")
    if how["with_texts"] and (len(folders) != 2 or how["as_markdown"]):
        raise ConfigError("compare: --texts is for two folders, with --json or as text")
    names = [name.strip() for part in allow for name in part.split(",") if name.strip()]
    compared = api.compare(folders, metric=metric, margin=margin, allow=names)
    texts = texts_of_flips(compared.comparisons[0]) if how["with_texts"] and compared.comparable else None
    if how["as_json"]:
        told = json.dumps(report.document(compared, texts), indent=2) + "\n"
    else:
        told = own_lines(report.markdown(compared) if how["as_markdown"] else report.text(compared, texts))
    lasting(sys.stdout).write(told)
    if not compared.comparable:
        raise NotReportableError(f"the results cannot be compared: {_next_step(compared)}")


def _next_step(compared: Compared) -> str:
    from eval_factory.analysis.comparison_reasons import NEVER_ACCEPTED

    found = {reason.name for reason in compared.reasons}
    names = ", ".join(sorted(found))
    return names if found & NEVER_ACCEPTED else f"{names}; to compare all the same: --allow {','.join(sorted(found))}"
