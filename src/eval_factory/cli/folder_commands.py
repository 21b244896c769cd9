"""`verify`, `reproduce`, `rescore`, `view`, `annotate` and `export`: what can be done with an
output folder.
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
from eval_factory.core.foreign_text import one_line, own_lines, printable
from eval_factory.core.formats import counted
from eval_factory.core.this_process import ignore_sighup
from eval_factory.tasks.framework import added_points

if TYPE_CHECKING:
    from eval_factory.api import StoredResult, Verified

_RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
"""The relationships of an evaluator to the model's developer, as the schema of Every Eval Ever has
them.
"""
EXPORTS = "eval_factory.exports"
MAX_SHOWN = 20  # findings of one file; `--json` has all


@click.command("verify")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
@click.pass_context
def verify(ctx: click.Context, folders: tuple[Path, ...], as_json: bool) -> None:
    """Check that output folders are what they say they are.

    Compares each file with SHA256SUMS, collects the result again from HELM's files and the journal,
    and names what was altered. Changes nothing, needs no key and no network. Exit code: 0 intact, 1
    altered, 3 no result.
    """
    from eval_factory import api  # imported here, as all that reads results: `ls` is to be quick

    outcomes = [api.verify(folder) for folder in folders]
    if as_json:
        computed = []
        for outcome in outcomes:
            computed.append(
                {
                    "folder": str(outcome.folder),
                    "intact": outcome.intact,
                    "exit_code": outcome.exit_code,
                }
            )
        click.echo(
            json.dumps(
                [asdict(outcome) | also for outcome, also in zip(outcomes, computed, strict=True)],
                indent=2,
            )
        )
    else:
        for outcome in outcomes:
            click.echo(verified_lines(outcome))
    ctx.exit(max(outcome.exit_code for outcome in outcomes))


def verified_lines(verified: Verified) -> str:
    """Return the outcome of one folder, then a line for each finding and note."""
    if verified.findings:
        outcome = f"altered: {counted(len(verified.findings), 'finding')}"
    else:
        if verified.unreadable is None:
            outcome = "intact"
        else:
            outcome = f"cannot be verified: {verified.unreadable}"
    lines = [f"{verified.folder}: {outcome}"]
    counts: Counter[str] = Counter()
    for finding in verified.findings:
        counts[finding.file] += 1
        if counts[finding.file] <= MAX_SHOWN:
            lines.append(f"  {finding}")
    hidden_counts = counts - Counter(dict.fromkeys(counts, MAX_SHOWN))
    for file, count in hidden_counts.items():
        lines.append(f"  {file}: {count} more findings (--json shows them)")
    lines += [f"  note: {note}" for note in verified.notes]
    return "\n".join(printable(line) for line in lines)


@click.command("reproduce")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--run", "run_it", is_flag=True, help="Run it in --output_dir, and compare the two results."
)
@click.option(
    "--output_dir", type=HomePath(), help="A new folder, for the run config and the result."
)
def reproduce(folder: Path, run_it: bool, output_dir: Path | None) -> None:
    """Write the run config that does the evaluation of DIR again, and say what differs now.

    The run config goes to standard output, or into --output_dir as reproduce.yml. With --run it is
    run there. Exit code: 0 if the same was asked, whatever the scores; 1 if prompts or data
    differ.
    """
    from eval_factory import api

    screen = tolerant_stream(sys.stderr)
    if run_it and output_dir is None:
        raise ConfigError(
            "reproduce --run: give a new folder with --output_dir; "
            "the original folder is never written to"
        )
    if output_dir is None or not run_it:
        prepared = api.reproduce(folder, output_dir)
        screen.writelines(f"{printable(line)}\n" for line in prepared.lines())
        click.echo(
            prepared.run_config if prepared.file is None else str(prepared.file),
            nl=prepared.file is not None,
        )
        return
    reproduced = api.run_again(folder, output_dir, screen=screen)
    with ignore_sighup():
        stdout = tolerant_stream(sys.stdout)
        stdout.write(reproduced.evaluated.summary + "\n")
        stdout.writelines(
            own_lines(f"  {line}") + "\n" for line in (*reproduced.scores, *reproduced.differences)
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
    "--run_config", type=HomePath(), help="A run config whose values go over those of DIR."
)
@click.option(
    "--overrides",
    multiple=True,
    help="path.to.key=value,... over everything else; may be repeated.",
)
def rescore(
    folder: Path, output_dir: Path, run_config: Path | None, overrides: tuple[str, ...]
) -> None:
    """Score the answers in DIR again: by other judges, metrics, rules. The model is not asked, its
    key not needed.

    Judges that are the same are not asked again either. A change that would ask the model something
    else ends with exit code 3, before a judge is asked. To an imported result, scores of the reader
    and of judges are added. Nothing in DIR is changed.
    """
    from eval_factory import api

    evaluated = api.rescore(
        folder, output_dir, run_config, overrides=overrides, screen=tolerant_stream(sys.stderr)
    )
    with ignore_sighup():
        tolerant_stream(sys.stdout).write(evaluated.summary + "\n")
    if evaluated.failure is not None:
        raise NotReportableError(evaluated.failure)


@click.command("view")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--export", "target", type=HomePath(), help="Write the pages into this new folder instead."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; a free one if 0."
)
@click.option("--no_browser", is_flag=True, help="Print the address, and open no browser.")
def view(folders: tuple[Path, ...], target: Path | None, port: int, no_browser: bool) -> None:
    """Show results in HELM's own web pages: every prompt, request and answer, and HELM's tables.

    Several runs are shown side by side, on this machine alone, until Ctrl-C. The pages ask no other
    host, and nothing in DIR is changed. Exit code: 0, 3 no result, 4 helm-summarize failed.
    """
    from eval_factory import api  # imported here, as all that reads results: `ls` is to be quick

    screen = tolerant_stream(sys.stderr)
    if target is not None:
        if port or no_browser:
            raise ConfigError(
                "view --export writes files and serves nothing: leave out --port and --no_browser"
            )
        pages = api.export_pages(folders, target, screen=screen)
        screen.write(own_lines("\n".join(pages.lines())) + "\n")
        server = (
            f"python -m http.server --bind 127.0.0.1 --directory {shlex.quote(str(pages.folder))}"
        )
        screen.write(f"to look at them:\n  {server}\n  then open http://127.0.0.1:8000/\n")
        click.echo(str(pages.folder))
        return
    with api.served_pages(folders, port=port, screen=screen) as pages:
        screen.write(own_lines("\n".join(pages.lines())) + "\n")
        tolerant_stream(sys.stdout).write(f"{pages.address}\n")
        screen.write("the address holds a secret and works on this machine alone; Ctrl-C ends it\n")
        if pages.address is not None and not no_browser and may_open(os.environ):
            import webbrowser

            webbrowser.open(pages.address)
        pages.wait()


def may_open(env: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return True if there is a browser with a window; one for terminals (lynx) would take ours,
    and show nothing.
    """
    return platform in ("darwin", "win32") or any(
        env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


@click.group("annotate")
def annotate() -> None:
    """Have people rate a blinded sample of a result's answers; correct the score by it."""


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
    help="How many people rate; each rates all of these answers.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="A number; another one draws another sample.",
)
@click.option(
    "--kind",
    type=click.Choice(["ratings", "criteria"]),
    help="What raters give: a rating of each answer, or met or not met for each criterion. "
    "Criteria if the result has a rubric, else ratings.",
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
    from eval_factory.report.reader import one_run
    from eval_factory.workflows import annotate as workflow

    folder = one_run(folder, "annotate export")
    made = workflow.export_sheets(
        folder, out, count, raters, seed=seed, kind=kind, with_reference=not no_reference
    )
    rating_count = sum(len(answer.questions) for answer in made.sample.answers)
    in_strata = Counter(answer.stratum for answer in made.sample.answers)
    drawn_of = len(made.sample.stratum_of)
    lines = [
        (
            f"sheet {made.sample.id}: {len(made.sample.answers)} of {drawn_of} answers, "
            f"{rating_count} ratings a rater"
        ),
        *(
            f"  {in_strata[number]} answers of: {name}"
            for number, name in enumerate(made.sample.strata)
        ),
        f"  for the raters: {out} (a form and a table each; one of them is enough)",
        f"  not for the raters: {made.sample_file}, which says what the codes stand for",
        f"  when the sheets come back: eval-factory annotate import {folder} FILE...",
    ]
    click.echo(own_lines("\n".join(lines)))


@annotate.command("import")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.argument("sheets", type=HomePath(), nargs=-1, required=True, metavar="SHEET...")
def import_(folder: Path, sheets: tuple[Path, ...]) -> None:
    """Take the ratings of SHEETs (CSV) into the result in DIR, and correct its score by them.

    Nothing is imported if a row is wrong. Ratings may come in parts; a rater's sheet again
    replaces the first. The files of the result are written again, and `verify` finds them intact.
    Results of other programs: `eval-factory import`; data of a benchmark: `data import`.
    """
    from eval_factory.report.reader import one_run
    from eval_factory.report.result_sentences import clinician_lines
    from eval_factory.workflows.annotate import import_sheets

    made = import_sheets(one_run(folder, "annotate import"), sheets)
    lines = [
        f"{made.ratings} ratings imported"
        + (f"; {made.empty} rows were left empty" if made.empty else "")
    ]
    lines += [f"  {line}" for line in clinician_lines(made.clinicians)]
    lines += [f"  note: {note}" for note in made.notes]
    lines.append(f"  results: {made.stored.folder / 'evaluation_config.yaml'}")
    click.echo(own_lines("\n".join(lines)))


@annotate.command("plan")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--half_width",
    type=float,
    help="Half of the width that the interval may have, in units of the score.",
)
def plan(folder: Path, half_width: float | None) -> None:
    """Say how many answers of DIR people have to rate for an interval of a wanted width.

    A line for each correlation of judges and people, and for the one that was measured where
    ratings were imported.
    """
    from eval_factory.report.reader import run_folders
    from eval_factory.workflows.annotate import plan_of

    runs = run_folders([folder])
    for run in runs:
        head = [f"{run}:"] if len(runs) > 1 else []
        click.echo(own_lines("\n".join([*head, *plan_of(run, half_width)])))


class _WithOthers(click.Group):
    """And the commands that other packages add: entry points of the group
    `eval_factory.exports`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        added = [point.name for point in added_points(EXPORTS)]
        return sorted({*super().list_commands(ctx), *added})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        for point in added_points(EXPORTS):
            if point.name == cmd_name:
                return _added_export(point)
        return None


def _added_export(point: EntryPoint) -> click.Command:
    """Return the command of another package; if there is none, a command that only says what is
    wrong, so that the others can be listed and used.
    """
    package = point.dist.name if point.dist is not None else point.value
    try:
        added = point.load()
    except (Exception, SystemExit) as error:  # whatever another package raises
        problem = f"{point.value} cannot be imported: {type(error).__name__}: {error}"
    else:
        if isinstance(added, click.Command):
            return added
        problem = f"{point.value} is not a command of click"
    text = f"export {point.name}: of the package {package}: {one_line(problem)}"

    def refuse(**_: object) -> None:
        raise ConfigError(f"{text}\n  correct it, or take it out: pip uninstall {package}")

    return click.Command(
        point.name,
        callback=refuse,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help=f"Cannot be used: {one_line(problem)}",
        short_help="(cannot be used)",
    )


@click.group("export", cls=_WithOthers)
def export() -> None:
    """Finished results in the formats of other programs."""


@export.command("eee")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option(
    "-o", "--output", type=HomePath(), required=True, help="Folder in which data/ is written."
)
@click.option("--organization", default="unknown", help="Who evaluated.")
@click.option(
    "--relationship",
    type=click.Choice(_RELATIONSHIPS),
    default="other",
    help="How those who evaluated are related to those who made the model.",
)
@click.option("--developer", help="Who made the model, if its id does not say so (org/model).")
def eee(
    folders: tuple[Path, ...],
    output: Path,
    organization: str,
    relationship: str,
    developer: str | None,
) -> None:
    """Write records of Every Eval Ever 0.3.0: the scores, and the instances if the benchmark's data
    are public.
    """
    from eval_factory.report.exports.every_eval_ever import Publisher, write_records

    publisher = Publisher(organization, relationship, developer)
    for stored in _results(folders):
        for path in write_records(stored, output, publisher, now=time.time()):
            click.echo(str(path))


@export.command("hf")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "-o", "--output", type=HomePath(), help="Write into this model repository; print if not given."
)
@click.option(
    "--task_id", default="default", help="What the data set's eval.yaml on the Hub calls the task."
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
    from eval_factory.report.reader import load_result, one_run

    stored = load_result(one_run(folder, "export hf"))
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
@click.option("-o", "--output", type=HomePath(), required=True, help="The file.")
def parquet(folder: Path, output: Path) -> None:
    """Write the instances of a result as a Parquet file, a row each, with prompts and answers."""
    from eval_factory.report.exports.parquet_file import write_parquet
    from eval_factory.report.exports.stored_facts import stored_reasons
    from eval_factory.report.reader import load_result, one_run

    stored = load_result(one_run(folder, "export parquet"))
    rows = write_parquet(stored, output)
    click.echo(f"{output}: {rows} rows")
    if reasons := stored_reasons(stored):
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
    """Make a run of an MLflow server for each result; the same result twice is one run."""
    from eval_factory.report.exports.mlflow_runs import log_mlflow_run, mlflow_client
    from eval_factory.report.exports.tracked_runs import tracked_run

    runs = [tracked_run(stored, with_texts=with_texts) for stored in _results(folders)]
    client = mlflow_client(tracking_uri)
    for run in runs:
        run_id, was_there = log_mlflow_run(run, client, experiment)
        click.echo(f"{run.name}: run {run_id}" + (" (was there already)" if was_there else ""))


def _results(folders: Sequence[Path]) -> list[StoredResult]:
    """Return the results of models. Raises NotReportableError: one is of the demo."""
    from eval_factory.report.exports.stored_facts import refuse_demo
    from eval_factory.report.reader import load_result, run_folders

    results = [load_result(folder) for folder in run_folders(folders)]
    for stored in results:
        refuse_demo(stored)
    return results
