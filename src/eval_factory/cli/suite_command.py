"""The commands `run_suite`, `suite`, `import_config` and `leaderboard`.

A suite runs evaluations for targets (models at endpoints); a cell is one evaluation of one target.
`suite` shows and stops a running suite. `import_config` translates configurations of other programs
into run configs or suites. `leaderboard` runs one of HELM's public leaderboards as a suite.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from eval_factory.cli.console import (
    TSV_OPTION,
    HomePath,
    explained_write_errors,
    show_tsv,
    text_width,
    tolerant_stream,
    wrapped,
)
from eval_factory.cli.run_command import RecordingCommand, RunOutput, show_dry_run
from eval_factory.core.enums import EXECUTOR_NAMES
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.this_process import ignore_sighup

if TYPE_CHECKING:
    from eval_factory.workflows.suite.suite_report import CellReport

# the options of `run_suite` that have the name of a configuration key
_SUITE_KEYS = (
    "preset",
    "output_dir",
    "limit_samples",
    "executor",
    "max_processes",
    "max_cost",
    "max_requests",
    "max_tokens_total",
    "max_wall_s",
)
_FLAGS = {name: f"suite.{name}" for name in _SUITE_KEYS} | {
    "limit_samples": "suite.params.limit_samples"  # replaces `suite.limit_samples`
}
"""The configuration key that each option of `run_suite` sets."""


@click.command("run_suite", cls=RecordingCommand)
@click.option("--run_config", type=HomePath(), help="The suite (YAML).")
@click.option("--preset", help="A suite that comes with eval-factory, as the base of this one.")
@click.option(
    "--output_dir", help="Folder for the cells' folders and the table; created if needed."
)
@click.option("--limit_samples", type=int, help="Instances to ask in each cell; all if not given.")
@click.option(
    "--max_processes",
    type=int,
    help="Cells that run at the same time; if not given, twice the cores, but 8 at most.",
)
@click.option("--max_cost", type=float, help="US dollars that all cells together may cost.")
@click.option("--max_requests", type=int, help="Requests that all cells together may send.")
@click.option(
    "--max_tokens_total", type=int, help="Tokens of prompts and answers, of all cells together."
)
@click.option("--max_wall_s", type=float, help="Seconds after which no more requests are sent.")
@click.option(
    "--overrides",
    multiple=True,
    help="path.to.key=value,... with priority over all other settings; may be repeated.",
)
@click.option(
    "--reuse",
    type=HomePath(),
    multiple=True,
    metavar="DIR",
    help="Reuse finished runs of this folder; may be repeated.",
)
@click.option(
    "--executor",
    type=click.Choice(EXECUTOR_NAMES),
    help="Where the cells run; local if not given.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until Slurm's jobs have ended; the local executor always waits.",
)
@click.option(
    "--dry_run", is_flag=True, help="Show every cell and its command; start and write nothing."
)
@click.option(
    "--estimate",
    is_flag=True,
    help="Show requests, tokens, cost and time of all cells; ask no endpoint.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Delete the answers that earlier runs stored in the cells' folders.",
)
@click.option(
    "--no_preflight",
    is_flag=True,
    help="Send no cheap trial question to the endpoints before the run.",
)
@click.option("--quiet", is_flag=True, help="Print only errors and one line.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON record when the suite starts and one when it ends.",
)
@click.option("--debug", is_flag=True, help="The same as before the command.")
@click.pass_context
def run_suite(
    ctx: click.Context, /, run_config: Path | None, overrides: tuple[str, ...], **values: Any
) -> None:
    """Run every evaluation for every target of a suite, and write one table.

    If the command is stopped, the same command resumes the suite, and only collects finished cells.
    Exit code: 0 if every cell is complete and reportable; else the exit code of the cell with the
    most severe failure.
    """
    from eval_factory.config.suite import build_suite  # imported late, to keep `--help` fast

    # `values` has the other options by name: those of `_FLAGS`, and reuse, wait, dry_run and so on.
    output = RunOutput(quiet=values["quiet"], as_json=values["as_json"])
    debug = bool(values["debug"] or ctx.obj["debug"])
    with output.failures_reported():
        if values["dry_run"] and values["estimate"]:
            raise ConfigError("run_suite: give one of --dry_run and --estimate")
        if values["dry_run"] and (values["quiet"] or values["as_json"]):
            raise ConfigError(
                "run_suite: --dry_run prints cells to read: leave out --quiet and --json"
            )
        flags = {}
        for name, path in _FLAGS.items():
            if values[name] is not None:
                flags[path] = values[name]
        built_suite = build_suite(run_config, flags=flags, overrides=overrides, env=os.environ)
        if values["dry_run"]:
            from eval_factory.workflows.suite.suite_preview import preview_suite

            show_dry_run(preview_suite(built_suite, env=os.environ, debug=debug), output.screen())
            return
        if values["estimate"]:
            from eval_factory.workflows.suite.suite_estimate import estimate_suite

            estimated = estimate_suite(
                built_suite, os.environ, say=lambda text: output.screen().write(f"{text}\n")
            )
            if values["as_json"]:
                click.echo(json.dumps(estimated.as_dict()))
            else:
                click.echo(printable_lines(estimated.to_text()))
            return
        from eval_factory.cli.suite_screen import progress_view, show_end
        from eval_factory.workflows.suite.run_suite import run_suite as run_built_suite
        from eval_factory.workflows.suite.suite_report import SuiteOptions

        options = SuiteOptions(
            fresh=values["fresh"],
            debug=debug,
            no_preflight=values["no_preflight"],
            reuse=values["reuse"],
            wait=values["wait"],
        )
        with progress_view(built_suite.folder, output) as observer:
            report = run_built_suite(built_suite, options, env=os.environ, screen=observer)
        show_end(report, output)
    ctx.exit(report.exit_code)


@click.group("suite")
def suite() -> None:
    """Show or stop a suite that 'run_suite' has started, from any terminal."""


@suite.command("status")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON record; with --watch one for each change."
)
@click.option(
    "--watch",
    "watching",
    is_flag=True,
    help="Continue until the suite ends; Ctrl-C ends only the watching.",
)
def status(folder: Path, as_json: bool, watching: bool) -> None:
    """Show the state of the suite in DIR: whether it runs, the progress of each cell, and the
    endpoints that the suite waits for.

    The state is read from files only. Exit code: 0, 3 if DIR is not the folder of a suite.
    """
    from eval_factory.cli.suite_screen import show_status, watch
    from eval_factory.workflows.suite.suite_folder import find_suite
    from eval_factory.workflows.suite.suite_status import SuiteReader

    reader = SuiteReader(find_suite(folder))
    stdout = tolerant_stream(sys.stdout)
    if not watching:
        show_status(reader.read_status(), stdout, as_json=as_json)
        return
    try:
        watch(reader, stdout, as_json=as_json)
    except KeyboardInterrupt:
        tolerant_stream(sys.stderr).write("watching ended; the suite goes on\n")


@suite.command("check")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
@click.pass_context
def check(ctx: click.Context, folder: Path, as_json: bool) -> None:
    """List the cells that are missing for a complete table of the suite in DIR, and what to do.

    A result of another configuration does not count. The table is computed again from the runs'
    results and compared. No run is started. Exit code: 0 complete, 1 a cell is missing or a file
    was altered, 3 if DIR is not the folder of a suite.
    """
    from eval_factory.cli.suite_screen import text_of_check
    from eval_factory.workflows.suite.suite_check import check_suite
    from eval_factory.workflows.suite.suite_folder import find_suite

    checked = check_suite(find_suite(folder), env=os.environ)
    text = json.dumps(checked.document()) if as_json else text_of_check(checked)
    tolerant_stream(sys.stdout).write(f"{text}\n")
    if checked.incomplete or checked.altered:
        ctx.exit(NotReportableError.exit_code)


@suite.command("logs")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.argument("cell", metavar="[CELL]", required=False)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Continue until the cell ends; Ctrl-C ends only the watching.",
)
def logs(folder: Path, cell: str | None, follow: bool) -> None:
    """Print the logs of CELL in the suite in DIR.

    CELL is target/evaluation, or a part of this name that no other cell has. CELL is not needed for
    a suite with one cell, and for a single run in Slurm.
    """
    from eval_factory.workflows.suite.suite_folder import find_suite
    from eval_factory.workflows.suite.suite_logs import show_logs
    from eval_factory.workflows.suite.suite_status import SuiteReader

    stdout = tolerant_stream(sys.stdout)
    try:
        show_logs(
            SuiteReader(find_suite(folder)),
            cell,
            lambda line: stdout.write(f"{line}\n"),
            follow=follow,
        )
    except KeyboardInterrupt:
        tolerant_stream(sys.stderr).write("watching ended; the suite goes on\n")


@suite.command("cancel")
@click.argument("folder", type=HomePath(), metavar="DIR")
def cancel(folder: Path) -> None:
    """Stop the suite in DIR as Ctrl-C does, and wait until it has ended. All answers are stored."""
    from eval_factory.cli.suite_screen import counts_line, resume_lines
    from eval_factory.workflows.suite import suite_folder
    from eval_factory.workflows.suite.suite_status import read_suite_status

    stopped_suite = suite_folder.find_suite(folder)
    screen = tolerant_stream(sys.stderr)
    stdout = tolerant_stream(sys.stdout)
    has_stopped = suite_folder.cancel(stopped_suite, lambda text: screen.write(f"{text}\n"))
    stdout.write(
        printable_lines(f"{folder}: {'stopped' if has_stopped else 'nothing runs'}") + "\n"
    )
    state = read_suite_status(stopped_suite)
    stdout.writelines(
        printable_lines(line) + "\n" for line in (counts_line(state), *resume_lines(state))
    )


@click.command("import_config")
@click.argument("file", type=HomePath(), metavar="FILE")
@click.option(
    "-o", "--output", type=HomePath(), help="The file to write; standard output if not given."
)
@click.option("--force", is_flag=True, help="Overwrite the file to write if it exists.")
def import_config(file: Path, output: Path | None, force: bool) -> None:
    """Translate a configuration of NVIDIA's programs, lm-evaluation-harness or inspect_ai into a
    run config or a suite of eval-factory.

    Keys without a counterpart are listed on standard error and at the top of the written file. The
    translation is a suite if FILE has several tasks, or a model that must be served. Exit code: 0
    written, 2 not written: FILE is not such a configuration, is already a suite, or contains a key;
    or the file to write exists.
    """
    # imported late, to keep `--help` fast
    from eval_factory.config.foreign_configs import translate_config
    from eval_factory.core.safe_files import write_atomic
    from eval_factory.tasks.framework import load_framework

    if output is not None and output.exists():
        if file.exists() and output.samefile(file):
            raise ConfigError(f"{output}: is the file that is translated; name another file")
        if not force:
            raise ConfigError(f"{output}: already exists; name another file, or give --force")
    translation = translate_config(file, load_framework())
    screen = tolerant_stream(sys.stderr)
    screen.writelines(f"{printable_lines(finding)}\n" for finding in translation.findings)
    if output is None:
        click.echo(translation.text, nl=False)
        return
    with explained_write_errors(output):
        write_atomic(output, translation.text)
    command = "run_suite" if "suite" in translation.document else "run_eval"
    options = f"--run_config {shlex.quote(str(output))} --dry_run"
    config_section = translation.document.get("config")  # None for a suite
    # A run config without the key `type` names no task.
    if config_section is not None and "type" not in config_section:
        options += " --eval_type TASK"
    screen.write(printable_lines(f"{output}: written; next: eval-factory {command} {options}\n"))


LEADERBOARD_COLUMNS = ("name", "what it is", "run entries", "schema", "instances", "needs")
# The heading of the list of leaderboards. A leaderboard has a line for each line of the heading.
LEADERBOARD_FACTS = """name
  what it is
  run entries, schema, instances of a run at most
  what it needs in addition to a chat endpoint"""


def write_leaderboards(stream: TextIO, *, as_json: bool, as_tsv: bool) -> None:
    """Write the list of leaderboards as text, JSON or tab-separated lines."""
    # imported late, to keep `--help` fast
    from eval_factory.workflows.leaderboard.registry import load_catalogue, schema_path

    boards = load_catalogue().leaderboards
    if as_json:
        records = []
        for board in boards:
            records.append(
                {
                    **board.model_dump(by_alias=True, mode="json"),
                    "schema_installed": schema_path(board) is not None,
                    "needed": board.need_lines(),
                }
            )
        stream.write(json.dumps(records, indent=2) + "\n")
    elif as_tsv:
        rows = []
        for board in boards:
            rows.append(
                (
                    board.name,
                    board.description,
                    board.conf,
                    board.schema_file,
                    f"{board.max_eval_instances}",
                    "; ".join(board.need_lines()),
                )
            )
        show_tsv(LEADERBOARD_COLUMNS, rows, stream)
    else:
        texts = [LEADERBOARD_FACTS]
        for board in boards:
            entries = f"{board.conf}, {board.schema_file}, {board.max_eval_instances} instances"
            lines = [board.name, board.description, entries, *board.need_lines()]
            texts.append("\n  ".join(lines))
        stream.write(wrapped("\n".join(texts), text_width(stream)) + "\n")


@click.group("leaderboard")
def leaderboard() -> None:
    """Run HELM's public leaderboards."""


@leaderboard.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print everything about them as JSON.")
@TSV_OPTION
def list_leaderboards(as_json: bool, as_tsv: bool) -> None:
    """List the leaderboards, and what each leaderboard needs in addition to a chat endpoint."""
    write_leaderboards(sys.stdout, as_json=as_json, as_tsv=as_tsv)


@leaderboard.command("run")
@click.argument("name")
@click.option("--run_config", type=HomePath(), help="A run config: endpoint and judges.")
@click.option(
    "--model",
    "--model_id",
    "model",
    multiple=True,
    help="The model's id at the endpoint; may be repeated.",
)
@click.option("--model_url", help="The endpoint's base URL, or demo://baseline.")
@click.option("--model_type", help="chat, completions or images.")
@click.option("--api_key_name", help="NAME of the environment variable that holds the key.")
@click.option("--conf", type=HomePath(), help="The leaderboard's run entries (HOCON).")
@click.option("--data_dir", help="A data bundle: confs and data are read from it.")
@click.option("--output_dir", help="Folder for results; created if it does not exist.")
@click.option(
    "--max_eval_instances",
    type=int,
    help="Instances of each run; the leaderboard's number if not given.",
)
@click.option("--parallelism", type=int, help="Requests at the same time.")
@click.option(
    "--min_coverage",
    type=float,
    help="Share of answered requests that a run needs to be in the tables.",
)
@click.option(
    "--reasoning",
    is_flag=True,
    help="Use the entries with more output tokens, if the conf has two variants of entries.",
)
@click.option(
    "--overrides",
    multiple=True,
    help="path.to.key=value,... with priority over all other settings; may be repeated.",
)
@click.option("--offline", is_flag=True, help="Contact nothing but the endpoints.")
@click.option(
    "--allow_code_execution", is_flag=True, help="Let entries execute the model's answers."
)
@click.option(
    "--dry_run",
    is_flag=True,
    help="Check everything, print HELM's commands; start and write nothing.",
)
@click.option(
    "--no_preflight",
    is_flag=True,
    help="Send no cheap trial question to the endpoint before the run.",
)
@click.pass_context
def run_leaderboard(
    ctx: click.Context,
    /,
    name: str,
    model: tuple[str, ...],
    overrides: tuple[str, ...],
    **values: Any,
) -> None:
    """Run the leaderboard NAME: helm-run over all its entries, then helm-summarize."""
    from eval_factory.workflows.leaderboard.board import FLAGS, LeaderboardRequest, make_board
    from eval_factory.workflows.leaderboard.tables import commands_of, write_tables

    # `values` has the other options by name: those of `FLAGS`, and run_config, conf and so on.
    debug = bool(ctx.obj and ctx.obj["debug"])
    flags = {}
    for flag in FLAGS:
        # False: the user did not give the flag
        if values[flag] is not None and values[flag] is not False:
            flags[flag] = values[flag]
    request = LeaderboardRequest(
        name,
        flags,
        run_config=values["run_config"],
        model=model,
        conf=values["conf"],
        overrides=overrides,
        reasoning=values["reasoning"],
        dry_run=values["dry_run"],
    )
    screen = tolerant_stream(sys.stderr)
    board = make_board(request, os.environ, screen)
    if request.dry_run:
        commands = commands_of(board, os.environ, screen, debug=debug)
        sys.stdout.writelines(f"{command}\n" for command in commands)
        screen.write(
            "no file was written; the files that these commands name exist only "
            "after the first run\n"
        )
        return
    cells: tuple[CellReport, ...] = ()
    if board.suite is not None:  # at least one entry of the leaderboard can be run
        from eval_factory.cli.suite_screen import progress_view
        from eval_factory.workflows.suite.run_suite import run_suite
        from eval_factory.workflows.suite.suite_report import SuiteOptions

        options = SuiteOptions(debug=debug, no_preflight=values["no_preflight"])
        with progress_view(board.suite.folder, RunOutput()) as observer:
            cells = run_suite(board.suite, options, env=os.environ, screen=observer).cells
    with ignore_sighup():
        problem = write_tables(board, cells, os.environ, tolerant_stream(sys.stdout))
    if problem is not None:
        raise problem
