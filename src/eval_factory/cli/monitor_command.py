"""The command `monitor`, which asks a model the same questions regularly and reports a decline.

A panel is a fixed sample of questions. The baseline is the first runs of a panel. A look is a later
run, which is compared with the baseline. The ledger is the file that records all of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eval_factory.cli.console import HomePath, text_width, tolerant_stream, wrapped, write_record
from eval_factory.cli.run_command import RunOutput, show_dry_run
from eval_factory.core.enums import EXECUTOR_NAMES
from eval_factory.core.errors import (
    ConfigError,
    NotReportableError,
    PrerequisiteError,
    did_you_mean,
)
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.this_process import ignore_sighup

if TYPE_CHECKING:
    from eval_factory.monitor.asking import MonitorOutcome, RunOptions
    from eval_factory.monitor.panel import Panel

_LOOK = "look"  # the name of the command that asks the questions once
MAX_NOTE = 2000  # the maximum length of a note, in characters
MAX_NAME = 200  # the maximum length of the name of a note's author, in characters


class _LookUnlessNamed(click.Group):
    """A click group that treats `monitor PANEL.yml` as `monitor look PANEL.yml`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; the command `look` if they name no command.

        Raises:
            UsageError: The first argument is a misspelled name of a command.
        """
        names = self.list_commands(ctx)
        is_misspelled = did_you_mean(args[0], names) and not Path(args[0]).exists()
        if args[0] not in names and not is_misspelled:
            args = [_LOOK, *args]
        return super().resolve_command(ctx, args)


@click.group(
    "monitor",
    cls=_LookUnlessNamed,
    subcommand_metavar="PANEL.yml | COMMAND [ARGS]...",
    # options before the panel's name belong to the command `look`
    context_settings={"ignore_unknown_options": True},
)
def monitor() -> None:
    """Find out whether a model gets worse: ask a fixed panel of questions again and again.

    `monitor PANEL.yml` makes one look; the first call makes the baseline. Exit code of a look: 0 in
    control, 1 alarm; the exit code of its runs if the look could not be made.
    """


@monitor.command(_LOOK)
@click.argument("panel", type=HomePath(), metavar="PANEL.yml")
@click.option(
    "--executor",
    type=click.Choice(EXECUTOR_NAMES),
    help="Where the runs happen; local if not given.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until Slurm's jobs have ended; the local executor always waits.",
)
@click.option(
    "--from",
    "imported",
    type=HomePath(),
    multiple=True,
    metavar="DIR",
    help="Use an imported result as the look; for a baseline, give one result for each run.",
)
@click.option(
    "--new_baseline",
    metavar="WHY",
    help="Start again with a new baseline; the ledger records the reason WHY.",
)
@click.option(
    "--dry_run",
    is_flag=True,
    help="Show the questions of a look and the drops that it can find; ask and write nothing.",
)
@click.option(
    "--no_preflight",
    is_flag=True,
    help="Send no cheap trial question to the endpoints before the runs.",
)
@click.option("--quiet", is_flag=True, help="Print one line.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the new line of the ledger as a JSON record.",
)
@click.pass_context
def look(
    ctx: click.Context,
    /,
    panel: Path,
    executor: str | None,
    new_baseline: str | None,
    imported: tuple[Path, ...],
    **flags: bool,
) -> None:
    """Make one look with PANEL.yml (or the baseline, if there is none yet), and record it in the
    ledger.

    If the command is stopped or killed, the same command resumes the look. Exit code: 0 in control,
    1 alarm; the exit code of the runs if they failed.
    """
    from eval_factory.monitor.look import make_baseline_or_look
    from eval_factory.monitor.panel import load_panel

    # `flags` has the options wait, dry_run, no_preflight, quiet and as_json.
    output = RunOutput(quiet=flags["quiet"], as_json=flags["as_json"])
    with output.failures_reported():
        panel_flags = {} if executor is None else {"executor": executor}
        loaded_panel = load_panel(panel, os.environ, panel_flags)
        if flags["dry_run"]:
            _show_preview(loaded_panel, output, debug=ctx.obj["debug"])
            return
        options = _run_options(output, wait=flags["wait"], no_preflight=flags["no_preflight"])
        options = replace(options, imported=imported)
        outcome = make_baseline_or_look(loaded_panel, options, why_new_baseline=new_baseline)
        _write_outcome(outcome, output)
    ctx.exit(outcome.exit_code)


def _show_preview(panel: Panel, output: RunOutput, *, debug: bool) -> None:
    """Show the runs of a look, and the drops of the scores that the look can find.

    A panel of imported results has no runs to show.
    """
    from eval_factory.monitor.baseline import expected_findings_lines
    from eval_factory.workflows.suite.suite_preview import preview_suite

    if not panel.takes_imported_results:
        suite = panel.suite(panel.folder / "looks" / "0001")  # the folder of the first look
        show_dry_run(preview_suite(suite, env=os.environ, debug=debug), output.screen())
    click.echo(printable_lines("\n".join(expected_findings_lines(panel))))


def _run_options(output: RunOutput, *, wait: bool, no_preflight: bool = False) -> RunOptions:
    """Return the options for the runs of a panel.

    The progress is shown unless the command prints one line or JSON.
    """
    from eval_factory.cli.suite_screen import progress_view
    from eval_factory.monitor.asking import RunOptions
    from eval_factory.workflows.suite.suite_report import SuiteOptions

    screen = output.screen()
    progress_output = RunOutput(quiet=output.quiet or output.as_json)
    return RunOptions(
        env=os.environ,
        say=lambda text: screen.write(printable_lines(text) + "\n"),
        progress_view=lambda folder: progress_view(folder, progress_output),
        suite_options=SuiteOptions(no_preflight=no_preflight, wait=wait),
    )


def _write_outcome(outcome: MonitorOutcome, output: RunOutput) -> None:
    """Write the outcome of the command `look` or `change` to standard output."""
    with ignore_sighup():
        if output.as_json:
            record: dict[str, Any] = {
                "outcome": outcome.outcome,
                "exit_code": outcome.exit_code,
                "head": outcome.head,  # the hash of the ledger's last line
                "folder": str(outcome.folder),
                "line": outcome.line,
            }
            write_record(output.stdout, record)
        else:
            lines = outcome.lines[:1] if output.quiet else outcome.lines
            text = printable_lines("\n".join(lines))
            output.stdout.write(wrapped(text, text_width(output.stdout)) + "\n")


def _write_lines(lines: Sequence[str]) -> None:
    """Write the lines to standard output."""
    tolerant_stream(sys.stdout).write(printable_lines("\n".join(lines)) + "\n")


def _say(text: str) -> None:
    """Write a message to standard error."""
    tolerant_stream(sys.stderr).write(printable_lines(text) + "\n")


def _folder_of(path: Path) -> Path:
    """Return the folder of a panel. `path` is the folder itself or the panel's file.

    Raises:
        PrerequisiteError: The folder has no ledger.
    """
    from eval_factory.monitor.ledger import Ledger
    from eval_factory.monitor.panel import load_panel

    folder = path if path.is_dir() else load_panel(path, os.environ).folder
    if not Ledger(folder).file.is_file():
        raise PrerequisiteError(
            f"{folder}: has no ledger: 'eval-factory monitor PANEL.yml' creates the ledger"
        )
    return folder


@monitor.command("status")
@click.argument("panel", type=HomePath(), metavar="PANEL.yml|DIR")
def status(panel: Path) -> None:
    """Print the state of a panel: its limits, the last look, alarms, notes.

    Exit code: 0, also after an alarm.
    """
    from eval_factory.monitor.ledger import Ledger
    from eval_factory.monitor.report import status_lines

    folder = _folder_of(panel)
    history = Ledger(folder).read()
    if history.problems:  # the state of a changed ledger is not shown, because it may be wrong
        _write_lines([f"THE LEDGER WAS CHANGED: {problem}" for problem in history.problems])
    else:
        _write_lines(status_lines(str(folder), history))


@monitor.command("verify")
@click.argument("panel", type=HomePath(), metavar="PANEL.yml|DIR")
@click.option(
    "--head",
    metavar="HASH",
    help="A hash that a look printed: the ledger must contain the line with this hash.",
)
@click.pass_context
def verify(ctx: click.Context, panel: Path, head: str | None) -> None:
    """Check that no line of the ledger was changed, removed or inserted, and compute every figure
    again from the runs.

    Exit code: 0 intact, 1 changed.
    """
    from eval_factory.monitor.ledger import LOOK, Ledger
    from eval_factory.monitor.verification import uncompared_figures_lines, verify_panel

    folder = _folder_of(panel)
    findings = verify_panel(folder, head)
    history = Ledger(folder).read()
    if findings:
        state = "changed"
    else:
        state = f"intact: {len(history.lines)} lines, {len(history.of_kind(LOOK))} looks"
    lines = [f"{folder}: {state}", *(f"  {finding}" for finding in findings)]
    if not history.problems:
        # Figures that an earlier version computed by another method are not compared.
        lines += [f"  {text}" for text in uncompared_figures_lines(history)]
    _write_lines([*lines, f"last line of the ledger: {history.head}"])
    ctx.exit(NotReportableError.exit_code if findings else 0)


@monitor.command("report")
@click.argument("panel", type=HomePath(), metavar="PANEL.yml|DIR")
@click.option(
    "-o",
    "--output",
    type=HomePath(),
    help="Write the page to this file; report.html in the folder if not given.",
)
def report(panel: Path, output: Path | None) -> None:
    """Write the panel's page: each score over time with its band, the evidence, the alarms, and the
    notes about them.
    """
    from eval_factory.core.safe_files import write_atomic
    from eval_factory.monitor.asking import PAGE_FILE
    from eval_factory.monitor.ledger import Ledger
    from eval_factory.monitor.panel_page import monitor_page

    folder = _folder_of(panel)
    path = output or folder / PAGE_FILE
    write_atomic(path, monitor_page(folder.name, Ledger(folder).intact_history()))
    click.echo(str(path))


@monitor.command("note")
@click.argument("panel", type=HomePath(), metavar="PANEL.yml|DIR")
@click.argument("text")
@click.option("--by", required=True, metavar="NAME", help="Who writes the note.")
def note(panel: Path, text: str, by: str) -> None:
    """Record in the ledger the cause of an alarm, or an action that was taken, and by whom."""
    from eval_factory.core.foreign_text import one_line
    from eval_factory.monitor.ledger import Ledger
    from eval_factory.monitor.look import write_note

    if not text.strip() or not by.strip():
        raise ConfigError("monitor note: a note needs a text and a name")
    ledger = Ledger(_folder_of(panel))
    line = write_note(
        ledger, one_line(text, limit=MAX_NOTE), one_line(by, limit=MAX_NAME), say=_say
    )
    click.echo(f"line {line['number']}")


@monitor.command("change")
@click.argument("panel", type=HomePath(), metavar="PANEL.yml")
@click.argument("new_target", type=HomePath(), metavar="NEW_TARGET.yml")
@click.option("--wait", is_flag=True, help="Wait until Slurm's jobs have ended.")
@click.option("--json", "as_json", is_flag=True, help="Print the decision as a JSON record.")
@click.pass_context
def change(ctx: click.Context, panel: Path, new_target: Path, wait: bool, as_json: bool) -> None:
    """Decide whether the model of NEW_TARGET.yml may replace the watched model.

    Both models are asked the panel's questions, and the gate's policy decides. If the new model
    passes, it becomes the watched model with a new baseline. Exit code: 0 passed, 1 not passed.
    """
    from eval_factory.monitor.change import decide_change
    from eval_factory.monitor.panel import load_panel

    output = RunOutput(as_json=as_json)
    with output.failures_reported():
        options = _run_options(output, wait=wait)
        outcome = decide_change(load_panel(panel, os.environ), new_target, options)
        _write_outcome(outcome, output)
    ctx.exit(outcome.exit_code)
