"""What `run_suite` prints: the cells and what is missing, one line (`--quiet`), or records for programs (`--json`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TextIO

from eval_factory.cli.run_output import RunOutput
from eval_factory.cli.streams import lasting
from eval_factory.cli.suite_screen import STYLES, SuiteScreen
from eval_factory.cli.suite_text import Row, rows, spent_line
from eval_factory.cli.wrapping import columns, wrapped
from eval_factory.core.foreign_text import one_line, own_lines
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.safe_files import json_line
from eval_factory.core.this_process import not_to_be_hung_up
from eval_factory.workflows.suite.suite_journal import SUITE_STARTED, NobodyLooks, SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteReport
from eval_factory.workflows.suite.suite_status import SuiteStatus, status_of

_GAP = "  "
_BELOW = "    "


class StartRecord:
    """An observer that writes one record when the cells are known, and passes everything on."""

    def __init__(self, further: SuiteObserver, stdout: TextIO, folder: SuiteDir) -> None:
        self._further, self._stdout, self._folder = further, stdout, folder

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == SUITE_STARTED:
            told = {name: event.get(name) for name in ("pid", "host", "total", "cells")}
            write_record(self._stdout, {"event": "launch", "suite": str(self._folder.root), **told})
        self._further.on_event(event)

    def tick(self) -> None:
        self._further.tick()

    def say(self, text: str) -> None:
        self._further.say(text)


@contextmanager
def looking_on(folder: SuiteDir, output: RunOutput) -> Iterator[SuiteObserver]:
    """The observer that was asked for."""
    if output.quiet:
        yield _recorded(NobodyLooks(), folder, output)
    else:
        with SuiteScreen(lasting(sys.stderr), folder) as screen:
            yield _recorded(screen, folder, output)


def show_end(report: SuiteReport, output: RunOutput) -> None:
    """What came of it, on standard output; why the exit code is not 0, on standard error."""
    with not_to_be_hung_up():
        status = status_of(report.folder)
        if output.as_json:
            write_record(output.stdout, end_record(report, status))
        elif output.quiet:
            output.stdout.write(own_lines(report.summary.split("\n")[0]) + "\n")
        else:
            show_cells(status, output.stdout)
            output.stdout.write(own_lines(spent_line(status)) + "\n")
            output.stdout.write(wrapped(own_lines(report.summary), columns(output.stdout)) + "\n")
        if report.exit_code and not output.as_json:
            line = f"exit code {report.exit_code}: {why(report)}"
            screen = lasting(sys.stderr)
            screen.write(wrapped(own_lines(line), columns(screen)) + "\n")


def show_cells(status: SuiteStatus, stdout: TextIO) -> None:
    """A line each; on a terminal as many as it takes."""
    found = rows(status)
    if stdout.isatty():
        _show_table(found, stdout)
        return
    name, state = (max((len(cells) for cells in column), default=0) for column in _first_columns(found))
    stdout.writelines(f"{row.name:<{name}}{_GAP}{row.status:<{state}}{_GAP}{row.what}".rstrip() + "\n" for row in found)


def why(report: SuiteReport) -> str:
    """The cell that the exit code is of."""
    blamed = [cell for cell in report.cells if cell.exit_code == report.exit_code]
    others = sum(cell.exit_code != 0 for cell in report.cells) - 1
    if not blamed and report.no_table is not None:
        return report.no_table.split("\n")[0]
    if not blamed:
        return "the suite was stopped before its end"
    more = "" if others <= 0 else f"; {others} more {'cell has' if others == 1 else 'cells have'} something to look at"
    return f"{blamed[0].name}: {one_line(blamed[0].reason or blamed[0].status)}{more}"


def end_record(report: SuiteReport, status: SuiteStatus) -> dict[str, Any]:
    """The main numbers of all cells; suite_results.yaml has all."""
    figures = {cell.state.name: cell.figures for cell in status.cells}
    folder = report.folder
    cells = []
    for cell in report.cells:
        told = figures.get(cell.name)
        numbers = {name: getattr(told, name, None) for name in ("main_metric", "value", "ci_low", "ci_high", "n")}
        cells.append(
            {
                "target": cell.target,
                "evaluation": cell.evaluation,
                "status": cell.status,
                "exit_code": cell.exit_code,
                "reason": cell.reason,
                **numbers,
                "reportable": None if told is None else told.reportable,
                "collected": cell.collected,
                "folder": str(cell.folder),
            }
        )
    return {
        "event": "end",
        "exit_code": report.exit_code,
        "status": report.status,
        "suite": str(folder.root),
        "counts": status.counts,
        "spent": asdict(status.spent),
        "cells": cells,
        "results": str(folder.results_yaml),
        "error": None,
    }


def write_record(stdout: TextIO, record: Mapping[str, Any]) -> None:
    """In ASCII, which every stream takes; a number that JSON does not know is null."""
    stdout.write(json.dumps(json.loads(json_line(dict(record)))) + "\n")


def _recorded(further: SuiteObserver, folder: SuiteDir, output: RunOutput) -> SuiteObserver:
    return StartRecord(further, output.stdout, folder) if output.as_json else further


def _first_columns(found: list[Row]) -> tuple[list[str], list[str]]:
    return [row.name for row in found], [row.status for row in found]


def _show_table(found: list[Row], stdout: TextIO) -> None:
    """Names stay whole, so that they can be copied: what does not fit beside one stands below it."""
    from rich.console import Console
    from rich.text import Text

    width, names = columns(stdout), max((len(row.name) for row in found), default=0)
    console = Console(file=stdout, highlight=False, force_terminal=True, soft_wrap=True)
    for row in found:
        line = Text(f"{row.name:<{names}}{_GAP}").append(f"{row.status:<8}", style=STYLES.get(row.status, ""))
        beside = line.copy().append(f"{_GAP}{row.what}")
        if beside.cell_len <= width:
            console.print(beside)
            continue
        console.print(line)
        console.print(Text(wrapped(f"{_BELOW}{row.what}", width)))
