"""`eval-factory suite`: what a suite does, what its table lacks, what its cells say; and stopping it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.cli.streams import lasting
from eval_factory.core.foreign_text import own_lines


@click.group("suite")
def suite() -> None:
    """Look at a suite that 'run_suite' has begun, from any terminal; stop it."""


@suite.command("status")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON record; with --watch one for each change.")
@click.option("--watch", "watching", is_flag=True, help="Go on until the suite ends; Ctrl-C ends the watching alone.")
def status(folder: Path, as_json: bool, watching: bool) -> None:
    """Say where the suite in DIR stands: whether it runs, what each cell does, which endpoints are waited for.

    Everything is read from the disk. Exit code: 0, 3 where DIR is no suite's folder.
    """
    from eval_factory.cli.suite_watching import show, watch
    from eval_factory.workflows.suite.suite_folder import find_suite
    from eval_factory.workflows.suite.suite_status import SuiteReader

    reader, stdout = SuiteReader(find_suite(folder)), lasting(sys.stdout)
    if not watching:
        show(reader.look(), stdout, as_json=as_json)
        return
    try:
        watch(reader, stdout, as_json=as_json)
    except KeyboardInterrupt:
        lasting(sys.stderr).write("watching ended; the suite goes on\n")


@suite.command("logs")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.argument("cell", metavar="CELL")
@click.option("-f", "--follow", is_flag=True, help="Go on until the cell ends; Ctrl-C ends the watching alone.")
def logs(folder: Path, cell: str, follow: bool) -> None:
    """Print the logs of CELL (target/evaluation, or a part of it that no other has) of the suite in DIR."""
    from eval_factory.workflows.suite.suite_folder import find_suite
    from eval_factory.workflows.suite.suite_logs import show
    from eval_factory.workflows.suite.suite_status import SuiteReader

    stdout = lasting(sys.stdout)
    try:
        show(SuiteReader(find_suite(folder)), cell, lambda line: stdout.write(f"{line}\n"), follow=follow)
    except KeyboardInterrupt:
        lasting(sys.stderr).write("watching ended; the suite goes on\n")


@suite.command("cancel")
@click.argument("folder", type=HomePath(), metavar="DIR")
def cancel(folder: Path) -> None:
    """Stop the suite in DIR as Ctrl-C does, and wait until it has ended. What was answered is kept."""
    from eval_factory.cli.suite_text import counts_line, next_lines
    from eval_factory.workflows.suite.suite_cancel import cancel as stop
    from eval_factory.workflows.suite.suite_folder import find_suite
    from eval_factory.workflows.suite.suite_status import status_of

    found = find_suite(folder)
    screen, stdout = lasting(sys.stderr), lasting(sys.stdout)
    ended = stop(found, lambda text: screen.write(f"{text}\n"))
    stdout.write(own_lines(f"{folder}: " + ("nothing runs" if ended is None else "stopped")) + "\n")
    after = status_of(found) if ended is None else ended
    stdout.writelines(own_lines(line) + "\n" for line in (counts_line(after), *next_lines(after)))
