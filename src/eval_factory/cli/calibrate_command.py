"""`calibrate`: can a judge be trusted, as physicians' labels show it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from eval_factory.cli.console import HomePath, lasting, named_if_not_written
from eval_factory.core.foreign_text import own_lines


@click.command("calibrate")
@click.argument("labels", type=HomePath(), metavar="LABELS.jsonl")
@click.option("--judge-labels", required=True, metavar="COLUMN", help="The field with the judge's decision, a boolean.")
@click.option("--judge", metavar="NAME", help="What the judge is called; COLUMN if not given.")
@click.option("--to", type=HomePath(), metavar="DIR", help="Write judge_passport.yaml and .html; new or empty.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
def calibrate(labels: Path, judge_labels: str, judge: str | None, to: Path | None, as_json: bool) -> None:
    """Hold a judge's decisions against physicians', beside the physicians' agreement with each other.

    LABELS has a line an answer and criterion, in the form of HealthBench's meta-evaluation: prompt, completion, rubric,
    category, binary_labels, anonymized_physician_ids, and COLUMN. Nobody is asked.
    """
    from eval_factory import api  # imported here: `ls` is to be quick
    from eval_factory.report.judge_passport import calibration_document, passport_text

    with named_if_not_written(to or labels):
        made = api.calibrate(labels, judge_labels=judge_labels, judge=judge, to=to)
    if as_json:
        text = json.dumps(calibration_document(made.passport.found), indent=2) + "\n"
    else:
        text = own_lines(passport_text(made.passport))
    lasting(sys.stdout).write(text)
    for path in made.files:
        click.echo(f"{path}{': is there already, unchanged' if made.unchanged else ''}", err=as_json)
