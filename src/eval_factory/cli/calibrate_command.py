"""`calibrate`: can a judge be trusted, as physicians' labels show it."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import click

from eval_factory.cli.console import HomePath, lasting, named_if_not_written
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import own_lines


@click.command("calibrate")
@click.argument("labels", type=HomePath(), metavar="LABELS")
@click.option("--judge-labels", multiple=True, metavar="COLUMN", help="The field with a judge's decision, a boolean.")
@click.option("--judges-from", type=HomePath(), metavar="RUN_CONFIG", help="Ask the judges of a rubric's run config.")
@click.option("--judge", multiple=True, metavar="NAME", help="Which of them; or what the one in COLUMN is called.")
@click.option("--to", type=HomePath(), metavar="DIR", help="Write judge_passport.yaml and .html; new or empty.")
@click.option("--probes", type=click.IntRange(min=0), help="Answers that judges are asked about again, changed; 50.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
def calibrate(
    labels: Path, judge_labels: tuple[str, ...], judges_from: Path | None, judge: tuple[str, ...], to: Path | None,
    probes: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Hold a judge's decisions against physicians', beside the physicians' agreement with each other.

    LABELS has a line an answer and criterion, in the form of HealthBench's meta-evaluation: prompt, completion, rubric,
    category, binary_labels, anonymized_physician_ids. Judges are asked about each (--judges-from), as in a run; the
    same command goes on where it was stopped. Or their decisions are in COLUMN, and nobody is asked.

    LABELS may be the folder of a run whose answers people rated ('annotate'): its judges are held against them.
    """
    from eval_factory import api  # imported here: `ls` is to be quick
    from eval_factory.core.tables import screen as table_on_screen
    from eval_factory.report.judge_passport import calibration_document, passport_text
    from eval_factory.report.juries import HINT, juries_table

    rated = labels.is_dir() and not judge_labels and judges_from is None
    if not rated and bool(judge_labels) == (judges_from is not None):
        raise ConfigError("calibrate: give --judges-from RUN_CONFIG, whose judges are asked, or --judge-labels COLUMN")
    if judge_labels and (len(judge) > 1 or (judge and len(judge_labels) > 1)):
        raise ConfigError("calibrate: several judges are called as their fields are: leave out --judge")
    with named_if_not_written(to or labels):
        made = api.calibrate(
            labels, judge_labels=judge_labels, judge=judge, to=to, judges_from=judges_from, probes=probes,
            screen=sys.stderr,
        )  # fmt: skip
    if as_json:
        documents = {one.judge: calibration_document(one.found) for one in made.passports}
        text = json.dumps(documents if len(documents) > 1 else documents[made.passport.judge], indent=2) + "\n"
    else:
        juries = ["\n".join([*table_on_screen(juries_table(made.juries)), "", *textwrap.wrap(HINT, 80), ""])]
        text = own_lines("\n".join([*map(passport_text, made.passports), *(juries if made.juries else [])]))
    lasting(sys.stdout).write(text)
    for path in made.files:
        click.echo(f"{path}{': is there already, unchanged' if made.unchanged else ''}", err=as_json)
