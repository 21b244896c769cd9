"""`eval-factory export`: finished results in the formats of other programs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.report import every_eval_ever, hub_results, mlflow_runs
from eval_factory.report.every_eval_ever import RELATIONSHIPS
from eval_factory.report.reader import load_result, one_run, run_folders

_FOLDER = HomePath()


@click.group("export")
def export() -> None:
    """Finished results in the formats of other programs."""


@export.command("eee")
@click.argument("folders", type=_FOLDER, nargs=-1, required=True, metavar="DIR...")
@click.option("-o", "--output", type=_FOLDER, required=True, help="Folder in which data/ is written.")
@click.option("--organization", default="unknown", help="Who evaluated.")
@click.option(
    "--relationship", type=click.Choice(RELATIONSHIPS), default="other", help="Of who evaluated to who made the model."
)
@click.option("--developer", default=None, help="Who made the model, where its id does not say it (org/model).")
def eee(folders: tuple[Path, ...], output: Path, organization: str, relationship: str, developer: str | None) -> None:
    """Records of Every Eval Ever 0.3.0: the scores, and the instances where the benchmark's data are public."""
    publisher = every_eval_ever.Publisher(organization, relationship, developer)
    results = [load_result(folder) for folder in run_folders(folders)]
    for stored in results:
        for path in every_eval_ever.write_records(stored, output, publisher, now=time.time()):
            click.echo(str(path))


@export.command("hf")
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option("-o", "--output", type=_FOLDER, default=None, help="A model repository; printed if not given.")
@click.option("--task_id", default="default", help="What the data set's eval.yaml on the Hub calls the task.")
@click.option("--allow_not_reportable", is_flag=True, help="Export a score that may not be reported; its notes say it.")
def hf(folder: Path, output: Path | None, task_id: str, allow_not_reportable: bool) -> None:
    """The main score as an entry of .eval_results/ in a model repository of the Hugging Face Hub."""
    stored = load_result(one_run(folder, "export hf"))
    text = hub_results.entry(stored, task_id=task_id, allow_not_reportable=allow_not_reportable)
    if output is None:
        sys.stdout.write(text)
    else:
        click.echo(str(hub_results.write_entry(stored, output, text)))


@export.command("mlflow")
@click.argument("folders", type=_FOLDER, nargs=-1, required=True, metavar="DIR...")
@click.option("--tracking_uri", required=True, help="The tracking server, such as http://127.0.0.1:5000.")
@click.option("--experiment", default=mlflow_runs.DEFAULT_EXPERIMENT, show_default=True)
@click.option("--with_texts", is_flag=True, help="Send answers too where the benchmark's data are not public.")
def mlflow(folders: tuple[Path, ...], tracking_uri: str, experiment: str, with_texts: bool) -> None:
    """A run of an MLflow server for each result; the same result twice is one run."""
    runs = [mlflow_runs.run_of(load_result(folder), with_texts=with_texts) for folder in run_folders(folders)]
    client = mlflow_runs.connect(tracking_uri)
    for run in runs:
        logged = mlflow_runs.log_run(run, client, experiment)
        click.echo(f"{run.name}: run {logged.run_id}" + (" (was there already)" if logged.was_there else ""))
