"""`eval-factory suite status --watch`: a suite, looked at until it ends."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live

from eval_factory.cli.streams import nobody_reads
from eval_factory.cli.suite_screen import live_table
from eval_factory.cli.suite_text import going_line, pause_lines, rows, status_lines
from eval_factory.cli.wrapping import columns, wrapped
from eval_factory.core.foreign_text import own_lines
from eval_factory.workflows.suite.suite_status import GOES, SuiteReader, SuiteStatus, document

INTERVAL_S = 1.0
PLAIN_INTERVAL_S = 10.0


def show(status: SuiteStatus, stdout: TextIO, *, as_json: bool) -> None:
    """Once."""
    if as_json:
        stdout.write(json.dumps(document(status)) + "\n")
        return
    width = columns(stdout) if stdout.isatty() else None
    for line in status_lines(status, time.time()):
        is_command = line.startswith("  eval-factory ")
        stdout.write(own_lines(line if width is None or is_command else wrapped(line, width)) + "\n")


def watch(reader: SuiteReader, stdout: TextIO, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Until nobody works on the suite any more, or nobody reads."""
    console = Console(file=stdout, highlight=False, force_terminal=stdout.isatty())
    if as_json:
        _each_change(reader, stdout, sleep)
    elif console.is_interactive:
        _on_terminal(reader, console, sleep)
        show(reader.look(), stdout, as_json=False)
    else:
        _as_lines(reader, stdout, sleep)
        show(reader.look(), stdout, as_json=False)


def _each_change(reader: SuiteReader, stdout: TextIO, sleep: Callable[[float], None]) -> None:
    told = ""
    while True:
        status = reader.look()
        record = json.dumps(document(status))
        if record != told:
            stdout.write(record + "\n")
            told = record
        if status.state != GOES or nobody_reads(sys.stdout):
            return
        sleep(INTERVAL_S)


def _on_terminal(reader: SuiteReader, console: Console, sleep: Callable[[float], None]) -> None:
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        while (status := reader.look()).state == GOES and not nobody_reads(sys.stdout):
            live.update(live_table(status, console.width, console.height, time.time()), refresh=True)
            sleep(INTERVAL_S)
        live.update(Group())  # as the screen of run_suite: what follows says all of it


def _as_lines(reader: SuiteReader, stdout: TextIO, sleep: Callable[[float], None]) -> None:
    """A line where a cell's status is another, or an endpoint is waited for; the figures now and then."""
    told: set[str] = set()
    last = time.monotonic()
    while (status := reader.look()).state == GOES and not nobody_reads(sys.stdout):
        lines = [f"{row.name}: {row.status}" for row in rows(status)]
        lines += [line for pause in status.pauses for line in pause_lines([pause], pause.since or 0.0)]
        new = [line for line in lines if line not in told]
        told = set(lines)
        if time.monotonic() - last >= PLAIN_INTERVAL_S:
            new.append(f"  {going_line(status)}")
            last = time.monotonic()
        stdout.writelines(own_lines(line) + "\n" for line in new)
        sleep(INTERVAL_S)
