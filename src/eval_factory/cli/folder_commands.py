"""The commands for finished output folders.

These are `verify`, `reproduce`, `rescore`, `view`, `annotate` and `export`.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eval_factory.cli.console import HomePath, tolerant_stream
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.core.foreign_text import one_line, printable, printable_lines
from eval_factory.core.formats import counted
from eval_factory.core.this_process import ignore_sighup
from eval_factory.tasks.framework import entry_points_of

if TYPE_CHECKING:
    from eval_factory.api import StoredResult, Verified

_RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
"""The relationships of an evaluator to the model's developer, as the schema of Every Eval Ever
names them.
"""
EXPORTS = "eval_factory.exports"  # the entry points of other packages' export commands
MAX_SHOWN_FINDINGS = 20
"""The maximum number of findings that are shown for one file; `--json` shows all."""


@click.command("verify")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
@click.pass_context
def verify(ctx: click.Context, folders: tuple[Path, ...], as_json: bool) -> None:
    """Check that no file of the output folders was altered.

    Compares each file with SHA256SUMS, collects the result again from HELM's files and the journal,
    and lists every difference. Changes no file, needs no key and no network. Exit code: 0 intact, 1
    altered, 3 no result.
    """
    from eval_factory import api  # imported late, to keep `--help` fast

    outcomes = [api.verify(folder) for folder in folders]
    if as_json:
        records = []
        for outcome in outcomes:
            records.append(
                {
                    **asdict(outcome),
                    "folder": str(outcome.folder),
                    "intact": outcome.intact,
                    "exit_code": outcome.exit_code,
                }
            )
        click.echo(json.dumps(records, indent=2))
    else:
        for outcome in outcomes:
            click.echo(verified_text(outcome))
    ctx.exit(max(outcome.exit_code for outcome in outcomes))


def verified_text(verified: Verified) -> str:
    """Return the outcome of one folder as a text, with a line for each shown finding and each note.

    At most `MAX_SHOWN_FINDINGS` findings are shown for one file.
    """
    if verified.findings:
        outcome = f"altered: {counted(len(verified.findings), 'finding')}"
    elif verified.unreadable is not None:
        outcome = f"cannot be verified: {verified.unreadable}"
    else:
        outcome = "intact"
    lines = [f"{verified.folder}: {outcome}"]
    findings_of_file: Counter[str] = Counter()
    for finding in verified.findings:
        findings_of_file[finding.file] += 1
        if findings_of_file[finding.file] <= MAX_SHOWN_FINDINGS:
            lines.append(f"  {finding}")
    for file, count in findings_of_file.items():
        if count > MAX_SHOWN_FINDINGS:
            lines.append(
                f"  {file}: {count - MAX_SHOWN_FINDINGS} more findings (--json shows all findings)"
            )
    lines += [f"  note: {note}" for note in verified.notes]
    return "\n".join(printable(line) for line in lines)


@click.command("reproduce")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--run",
    "run_it",
    is_flag=True,
    help="Also run the evaluation in --output_dir, and compare the two results.",
)
@click.option(
    "--output_dir", type=HomePath(), help="A new folder, for the run config and the result."
)
def reproduce(folder: Path, run_it: bool, output_dir: Path | None) -> None:
    """Write a run config that repeats the evaluation of DIR, and list what has changed since.

    The run config is written to standard output, or to reproduce.yml in --output_dir. With --run,
    the evaluation is run there. Exit code: 0 if prompts and data are equal, even if the scores
    differ; 1 if prompts or data differ.
    """
    from eval_factory import api

    screen = tolerant_stream(sys.stderr)
    if run_it and output_dir is None:
        raise ConfigError(
            "reproduce --run: give a new folder with --output_dir; "
            "the original folder is never written to"
        )
    # `output_dir is None` is only for mypy: without a folder, `run_it` is False here.
    if output_dir is None or not run_it:
        prepared = api.reproduce(folder, output_dir)
        screen.writelines(f"{printable(line)}\n" for line in prepared.lines())
        if prepared.file is None:
            click.echo(prepared.run_config, nl=False)
        else:
            click.echo(str(prepared.file))
        return
    reproduced = api.run_again(folder, output_dir, screen=screen)
    with ignore_sighup():
        stdout = tolerant_stream(sys.stdout)
        stdout.write(reproduced.evaluated.summary + "\n")
        stdout.writelines(
            printable_lines(f"  {line}") + "\n"
            for line in (*reproduced.scores, *reproduced.differences)
        )
    if reproduced.differences:
        raise NotReportableError(
            f"{output_dir} is not the same evaluation as {folder}: "
            f"{'; '.join(reproduced.differences)}"
        )


@click.command("rescore")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("--output_dir", type=HomePath(), required=True, help="A new folder, for the result.")
@click.option(
    "--run_config", type=HomePath(), help="A run config whose values replace those of DIR."
)
@click.option(
    "--overrides",
    multiple=True,
    help="path.to.key=value,... with priority over all other settings; may be repeated.",
)
def rescore(
    folder: Path, output_dir: Path, run_config: Path | None, overrides: tuple[str, ...]
) -> None:
    """Score the answers in DIR again with other judges, metrics or rules.

    The model is not asked, and its key is not needed. Unchanged judges are not asked again either.
    If the model would have to be asked, the command ends with exit code 3 before a judge is asked.
    For an imported result, the command adds scores of the reader and of judges. No file in DIR is
    changed.
    """
    from eval_factory import api

    evaluated = api.rescore(
        folder,
        output_dir,
        run_config=run_config,
        overrides=overrides,
        screen=tolerant_stream(sys.stderr),
    )
    with ignore_sighup():
        tolerant_stream(sys.stdout).write(evaluated.summary + "\n")
    if evaluated.failure is not None:
        raise NotReportableError(evaluated.failure)


@click.command("view")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--export", "target", type=HomePath(), help="Write the pages to this new folder instead."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; a free one if 0."
)
@click.option("--no_browser", is_flag=True, help="Print the address, and open no browser.")
def view(folders: tuple[Path, ...], target: Path | None, port: int, no_browser: bool) -> None:
    """Show results in HELM's own web pages: every prompt, request and answer, and HELM's tables.

    Several runs are shown side by side. The pages are served until Ctrl-C, and only to this
    machine. They contact no other host, and no file in DIR is changed. Exit code: 0, 3 no result, 4
    helm-summarize failed.
    """
    from eval_factory import api  # imported late, to keep `--help` fast

    screen = tolerant_stream(sys.stderr)
    if target is not None:
        if port or no_browser:
            raise ConfigError(
                "view --export writes files and serves nothing: leave out --port and --no_browser"
            )
        pages = api.export_pages(folders, target, screen=screen)
        screen.write(printable_lines("\n".join(pages.lines())) + "\n")
        server = (
            f"python -m http.server --bind 127.0.0.1 --directory {shlex.quote(str(pages.folder))}"
        )
        screen.write(f"to view the pages:\n  {server}\n  then open http://127.0.0.1:8000/\n")
        click.echo(str(pages.folder))
        return
    with api.served_pages(folders, port=port, screen=screen) as pages:
        screen.write(printable_lines("\n".join(pages.lines())) + "\n")
        tolerant_stream(sys.stdout).write(f"{pages.address}\n")
        screen.write(
            "the address contains a secret and works on this machine alone; "
            "Ctrl-C ends the server\n"
        )
        if pages.address is not None and not no_browser and has_window_browser(os.environ):
            import webbrowser

            webbrowser.open(pages.address)
        pages.wait()


def has_window_browser(env: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return True if a browser with a window can be opened.

    Without a screen, Python would open a browser in the terminal, such as lynx. Such a browser
    would take over the terminal of this command, and cannot show the pages.
    """
    return platform in ("darwin", "win32") or any(
        env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


@click.group("annotate")
def annotate() -> None:
    """Let people rate a blinded sample of a result's answers, and correct the score."""


@annotate.command("export")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--out",
    type=HomePath(),
    required=True,
    help="A new folder for the sheets; give it to the raters.",
)
@click.option("--n", "count", type=int, default=100, show_default=True, help="Answers to rate.")
@click.option(
    "--raters",
    type=int,
    default=3,
    show_default=True,
    help="Number of raters; each rates all drawn answers.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="The seed of the draw; another seed draws another sample.",
)
@click.option(
    "--kind",
    type=click.Choice(["ratings", "criteria"]),
    help="The task of the raters: rate each answer (ratings), or decide for each criterion whether "
    "it is met (criteria). The default is criteria if the result has a rubric, else ratings.",
)
@click.option("--no_reference", is_flag=True, help="Do not show the benchmark's own answer.")
def export_sheets(
    folder: Path,
    out: Path,
    count: int,
    raters: int,
    seed: int,
    kind: str | None,
    no_reference: bool,
) -> None:
    """Draw a sample of the answers in DIR, and write a sheet for each rater: CSV and an HTML form.

    The sample is stratified by score and group. Model, judges, scores and ids are hidden;
    DIR/annotations has the codes.
    """
    from eval_factory.report.reader import find_only_run
    from eval_factory.workflows import annotate as workflow

    folder = find_only_run(folder, command="annotate export")
    exported = workflow.export_sheets(
        folder,
        out,
        count=count,
        raters=raters,
        seed=seed,
        kind=kind,
        with_reference=not no_reference,
    )
    sample = exported.sample
    answer_count = len(sample.stratum_of)  # of all answers from which the sample was drawn
    rating_count = sum(len(answer.questions) for answer in sample.answers)
    # `answer.stratum` is the number of a stratum, and `sample.strata` has the names.
    drawn_of_stratum = Counter(answer.stratum for answer in sample.answers)
    lines = [
        (
            f"sheet {sample.id}: {len(sample.answers)} of {answer_count} "
            f"answers, {rating_count} ratings a rater"
        )
    ]
    for number, name in enumerate(sample.strata):
        lines.append(f"  {drawn_of_stratum[number]} answers of: {name}")
    lines += [
        f"  for the raters: {out} (a form and a table each; a rater fills in one of the two)",
        f"  not for the raters: {exported.sample_file}, which maps the codes to answers",
        f"  when the sheets come back: eval-factory annotate import {folder} FILE...",
    ]
    click.echo(printable_lines("\n".join(lines)))


@annotate.command("import")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.argument("sheets", type=HomePath(), nargs=-1, required=True, metavar="SHEET...")
def import_(folder: Path, sheets: tuple[Path, ...]) -> None:
    """Import the ratings of SHEETs (CSV) into the result in DIR, and correct its score by them.

    If any row is wrong, no rating is imported. Sheets may be imported one after the other; a new
    sheet of the same rater replaces the earlier sheet. The files of the result are written again,
    and `verify` finds them intact. To import results of other programs, use `eval-factory import`;
    for data of a benchmark, `data import`.
    """
    from eval_factory.report.reader import find_only_run
    from eval_factory.report.result_sentences import clinician_lines
    from eval_factory.workflows.annotate import import_sheets

    imported = import_sheets(find_only_run(folder, command="annotate import"), sheets)
    first_line = f"{imported.ratings} ratings imported"
    if imported.empty:
        first_line += f"; {imported.empty} rows were left empty"
    lines = [first_line]
    lines += [f"  {line}" for line in clinician_lines(imported.clinicians)]
    lines += [f"  note: {note}" for note in imported.notes]
    lines.append(f"  results: {imported.stored.folder / 'evaluation_config.yaml'}")
    click.echo(printable_lines("\n".join(lines)))


@annotate.command("plan")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--half_width",
    type=float,
    help="Half the width of the wanted interval, in units of the score.",
)
def plan(folder: Path, half_width: float | None) -> None:
    """Print how many answers of DIR people must rate for a confidence interval of a wanted width.

    The table has a line for each assumed correlation of judges and people, and for the measured
    correlation if ratings were imported.
    """
    from eval_factory.report.reader import run_folders
    from eval_factory.workflows.annotate import rating_plan_lines

    runs = run_folders([folder])
    for run in runs:
        title = [f"{run}:"] if len(runs) > 1 else []
        click.echo(printable_lines("\n".join([*title, *rating_plan_lines(run, half_width)])))


class _ExportGroup(click.Group):
    """A click group that also has the export commands of other packages.

    Other packages add a command as an entry point of the group `eval_factory.exports`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        added = [point.name for point in entry_points_of(EXPORTS)]
        return sorted({*super().list_commands(ctx), *added})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name; None if there is no such command."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        for point in entry_points_of(EXPORTS):
            if point.name == cmd_name:
                return _added_export(point)
        return None


def _added_export(point: EntryPoint) -> click.Command:
    """Return the export command of another package.

    If the command cannot be loaded, return a command that raises an error with the reason. All
    other commands can thus be listed and used.
    """
    package = point.dist.name if point.dist is not None else point.value
    try:
        added = point.load()
    except (Exception, SystemExit) as error:  # another package may raise any exception
        problem = f"{point.value} cannot be imported: {type(error).__name__}: {error}"
    else:
        if isinstance(added, click.Command):
            return added
        problem = f"{point.value} is not a command of click"
    text = f"export {point.name}: of the package {package}: {one_line(problem)}"

    def refuse(**_: object) -> None:
        raise ConfigError(f"{text}\n  correct the package, or remove it: pip uninstall {package}")

    # The command accepts all arguments, so that the user sees the reason and no usage error.
    return click.Command(
        point.name,
        callback=refuse,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help=f"Cannot be used: {one_line(problem)}",
        short_help="(cannot be used)",
    )


@click.group("export", cls=_ExportGroup)
def export() -> None:
    """Write finished results in the formats of other programs."""


@export.command("eee")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option(
    "-o", "--output", type=HomePath(), required=True, help="Folder in which data/ is written."
)
@click.option("--organization", default="unknown", help="The organization that evaluated.")
@click.option(
    "--relationship",
    type=click.Choice(_RELATIONSHIPS),
    default="other",
    help="The evaluator's relationship to the developer of the model.",
)
@click.option("--developer", help="The developer, if the model's id does not name it (org/model).")
def eee(
    folders: tuple[Path, ...],
    output: Path,
    organization: str,
    relationship: str,
    developer: str | None,
) -> None:
    """Write records of Every Eval Ever 0.3.0.

    The records have the scores, and also the instances if the benchmark's data are public.
    """
    from eval_factory.report.exports.every_eval_ever import Publisher, write_records

    publisher = Publisher(organization, relationship, developer)
    for stored in _results(folders):
        for path in write_records(stored, output, publisher, now=time.time()):
            click.echo(str(path))


@export.command("hf")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "-o", "--output", type=HomePath(), help="Write to this model repository; print if not given."
)
@click.option(
    "--task_id", default="default", help="The task's name in the data set's eval.yaml on the Hub."
)
@click.option(
    "--allow_not_reportable",
    is_flag=True,
    help="Export a score that may not be reported; the notes of the entry say so.",
)
def hf(folder: Path, output: Path | None, task_id: str, allow_not_reportable: bool) -> None:
    """Write the main score as an entry of .eval_results/ in a model repository of the Hugging Face
    Hub.
    """
    from eval_factory.core.safe_files import write_atomic
    from eval_factory.report.exports.hub_results import hub_entry
    from eval_factory.report.reader import find_only_run, load_result

    stored = load_result(find_only_run(folder, command="export hf"))
    text = hub_entry(stored, task_id=task_id, allow_not_reportable=allow_not_reportable)
    if output is None:
        sys.stdout.write(text)
    else:
        path = output / ".eval_results" / f"{stored.result.task}.yaml"
        write_atomic(path, text)
        click.echo(str(path))


@export.command("inspect")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option(
    "-o",
    "--output",
    type=HomePath(),
    required=True,
    help="Folder for the logs: `inspect view --log-dir`.",
)
@click.option(
    "--with_texts",
    is_flag=True,
    help="Write prompts and answers even if the benchmark's data are not public.",
)
def inspect(folders: tuple[Path, ...], output: Path, with_texts: bool) -> None:
    """Write an evaluation log of Inspect (inspect_ai) for each result, with every instance."""
    from eval_factory.report.exports.inspect_logs import write_inspect_log

    for stored in _results(folders):
        click.echo(str(write_inspect_log(stored, output, with_texts=with_texts)))


@export.command("parquet")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("-o", "--output", type=HomePath(), required=True, help="The Parquet file to write.")
def parquet(folder: Path, output: Path) -> None:
    """Write a Parquet file with a row for each instance of a result, with prompts and answers."""
    from eval_factory.report.exports.parquet_file import write_parquet
    from eval_factory.report.exports.stored_facts import reasons_against_reporting
    from eval_factory.report.reader import find_only_run, load_result

    stored = load_result(find_only_run(folder, command="export parquet"))
    rows = write_parquet(stored, output)
    click.echo(f"{output}: {rows} rows")
    if reasons := reasons_against_reporting(stored):
        click.echo(f"NOT REPORTABLE: {reasons}")


@export.command("wandb")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option(
    "-o",
    "--output",
    type=HomePath(),
    required=True,
    help="Folder for the runs; `wandb sync` uploads them.",
)
@click.option("--project", default="eval-factory", show_default=True)
@click.option(
    "--with_texts", is_flag=True, help="Write answers even if the benchmark's data are not public."
)
def wandb(folders: tuple[Path, ...], output: Path, project: str, with_texts: bool) -> None:
    """Write an offline run of Weights & Biases for each result. Nothing is sent."""
    from eval_factory.report.exports.tracked_runs import tracked_run
    from eval_factory.report.exports.wandb_runs import write_wandb_run

    for stored in _results(folders):
        run = tracked_run(stored, with_texts=with_texts)
        click.echo(f"{run.name}: {write_wandb_run(run, project, output)}")


@export.command("mlflow")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--tracking_uri", required=True, help="The tracking server, such as http://127.0.0.1:5000."
)
@click.option("--experiment", default="eval-factory", show_default=True)
@click.option(
    "--with_texts", is_flag=True, help="Send answers even if the benchmark's data are not public."
)
def mlflow(folders: tuple[Path, ...], tracking_uri: str, experiment: str, with_texts: bool) -> None:
    """Create a run on an MLflow server for each result. A result that has a run gets no new run."""
    from eval_factory.report.exports.mlflow_runs import log_mlflow_run, mlflow_client
    from eval_factory.report.exports.tracked_runs import tracked_run

    runs = [tracked_run(stored, with_texts=with_texts) for stored in _results(folders)]
    client = mlflow_client(tracking_uri)
    for run in runs:
        run_id, exists = log_mlflow_run(run, client, experiment)  # `exists`: no run was created
        note = " (was there already)" if exists else ""
        click.echo(f"{run.name}: run {run_id}{note}")


def _results(folders: Sequence[Path]) -> list[StoredResult]:
    """Return the results in the folders.

    Raises:
        NotReportableError: One of the results is that of a demo.
        PrerequisiteError: A folder has no result.
    """
    from eval_factory.report.exports.stored_facts import refuse_demo
    from eval_factory.report.reader import load_result, run_folders

    results = [load_result(folder) for folder in run_folders(folders)]
    for stored in results:
        refuse_demo(stored)
    return results
