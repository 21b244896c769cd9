"""Shows the logs of one cell of a suite. A cell is one evaluation of one target."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.formats import first_of
from eval_factory.core.run_statuses import GOING_ON
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.executors.progress import LineTail
from eval_factory.workflows.suite.suite_status import (
    QUEUE_UNKNOWN,
    CellStatus,
    SuiteReader,
    SuiteStatus,
)


def show_logs(
    reader: SuiteReader,
    wanted_name: str | None,
    write_line: Callable[[str], object],
    *,
    follow: bool,
) -> None:
    """Write every line of the logs of one cell.

    Args:
        reader: the reader of the suite's status.
        wanted_name: the name of the cell, or a part of the name that no other cell has; None if the
            suite has only one cell.
        write_line: gets each line.
        follow: True to wait for further lines until the cell, or the suite, has ended.

    Raises:
        ConfigError: `wanted_name` does not name exactly one cell.
        PrerequisiteError: the cell has no logs, and `follow` is False.
    """
    tails: dict[Path, LineTail] = {}  # reads the new lines of each log
    last_shown: LineTail | None = None  # the log of the last line that was written
    while True:
        status = reader.read_status()
        cell = find_cell(status, wanted_name)
        # the same cell in all further steps, even if other cells match later
        wanted_name = cell.name
        for path in _logs_of(cell, status.folder):
            if path not in tails:
                tails[path] = LineTail(path)
        if not follow and not any(path.is_file() for path in tails):
            state = str(cell.status)
            if cell.reason:
                state += f", {cell.reason}"
            raise PrerequisiteError(f"{cell.name}: has no logs yet: {state}; -f waits for logs")
        goes_on = follow and (cell.status in GOING_ON or cell.reason == QUEUE_UNKNOWN)
        for tail in tails.values():
            lines = list(tail.read_new_lines())
            # In the last step, a line without a newline at the end is shown too.
            if tail.rest and not goes_on:
                lines.append(tail.rest)
            for line in lines:
                if tail is not last_shown:
                    write_line(f"==> {tail.path} <==")
                    last_shown = tail
                write_line(printable(line.decode("utf-8", errors="replace")))
        if not goes_on:
            return
        time.sleep(0.5)


def _logs_of(cell: CellStatus, suite: SuiteDir) -> list[Path]:
    """Return the paths of the logs of a cell's current run."""
    screen_log = suite.cell_log(cell.target, cell.evaluation)
    rundir = RunDir(cell.folder)
    logs_of_run = [rundir.program_log, rundir.helm_log]
    if cell.job is None:
        return [screen_log, *logs_of_run]
    # If the task has not started yet, the logs in the cell's folder are of an earlier run.
    if cell.job.task is not None and not cell.job.attempts:
        return [cell.job.log, screen_log]
    return [cell.job.log, screen_log, *logs_of_run]


def find_cell(status: SuiteStatus, wanted_name: str | None) -> CellStatus:
    """Return the cell with this name, or else the only cell whose name contains `wanted_name`.

    `wanted_name` may be None if the suite has only one cell.

    Raises:
        ConfigError: no cell, or more than one cell, matches.
    """
    cells = []
    for cell in status.cells:
        if wanted_name is None or wanted_name in cell.name:
            cells.append(cell)
    # A cell with exactly this name is meant, even if names of other cells contain this name.
    cells = [cell for cell in cells if cell.name == wanted_name] or cells
    if len(cells) == 1:
        return cells[0]
    if wanted_name is None:
        problem = "the name of a cell is needed"
    else:
        problem = f"{one_line(repr(wanted_name))} fits {len(cells)} cells"
    names = first_of([cell.name for cell in cells or status.cells], limit=10) or "none yet"
    raise ConfigError(f"{problem}; there are: {names}")
