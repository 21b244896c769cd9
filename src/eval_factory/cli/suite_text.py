"""Where a suite stands, as text: a line a cell, and one for all of them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.cli.folder_commands import MAX_SHOWN
from eval_factory.core import formats
from eval_factory.core.budget import Budget
from eval_factory.core.foreign_text import one_line, own_lines
from eval_factory.core.formats import money
from eval_factory.core.rundir import RunSuiteDir
from eval_factory.executors.progress import duration, short_number
from eval_factory.workflows.suite.suite_check import SuiteCheck
from eval_factory.workflows.suite.suite_journal import (
    COMPLETE,
    FAILED,
    MISSING,
    PARTIAL,
    PAUSED,
    RUNNING,
    WAITING,
    Pause,
)
from eval_factory.workflows.suite.suite_status import (
    ENDED,
    GOES,
    CellFigures,
    CellStatus,
    SuiteStatus,
    limit_reached,
    same_command,
)

LONGEST_NAME = 36
"""Columns that a cell's name may take on a screen of 80; a longer one is cut there, and never elsewhere."""
_GOES_ON = "the same command goes on:"
_MUCH_ROOM = 1000
_SHOWN_FIRST = (RUNNING, PAUSED, FAILED, PARTIAL, WAITING, MISSING, COMPLETE)
"""Where there is no room for all."""


@dataclass(frozen=True)
class CellRow:
    """A cell's line."""

    name: str
    status: str
    what: str


def cell_rows(status: SuiteStatus, room: int = _MUCH_ROOM) -> list[CellRow]:
    """A line for each cell. `room`: columns for what stands beside its status."""
    why = {name: pause.reason for pause in status.pauses for name in pause.cells}
    return [CellRow(one_line(cell.state.name), cell.state.status, _what(cell, why, room)) for cell in status.cells]


def rows_that_fit(found: Sequence[CellRow], most: int) -> tuple[list[CellRow], str]:
    """At most so many lines, in their order, and what the others are: what goes on or went wrong stays the longest."""
    if len(found) <= most:
        return list(found), ""
    by_weight = sorted(range(len(found)), key=lambda number: (_SHOWN_FIRST.index(found[number].status), number))
    kept = set(by_weight[: max(0, most - 1)])
    hidden = [row.status for number, row in enumerate(found) if number not in kept]
    names = ", ".join(f"{hidden.count(status)} {status}" for status in _SHOWN_FIRST if status in hidden)
    return [found[number] for number in sorted(kept)], f"and {names}"


def counts_line(status: SuiteStatus) -> str:
    """`15 cells: 4 running, 7 waiting, 3 complete, 1 failed`."""
    total = len(status.cells)
    counts = ", ".join(f"{count} {name}" for name, count in status.counts.items())
    return f"{_cells(total)}{f': {counts}' if counts else ''}"


def spent_line(status: SuiteStatus) -> str:
    """`asked so far: 1234 requests, 56.7k tokens, 0.12 USD; limits: max_cost 5`."""
    spent = status.spent
    line = f"asked so far: {spent.requests} requests, {short_number(spent.tokens)} tokens"
    if spent.cost:
        line += f", {money(spent.cost)}"
    limits = ", ".join(f"{name} {value:g}" for name, value in status.limits.items())
    return line + (f"; limits: {limits}" if limits else "")


def going_line(status: SuiteStatus) -> str:
    """`2/15 cells ended, 4 running: 340/1200 requests, 24.0/s, 2 failed, 37 s left`."""
    running = [cell.progress for cell in status.cells if cell.progress is not None]
    ended = sum(status.counts.get(name, 0) for name in (COMPLETE, PARTIAL, FAILED, MISSING))
    line = f"{ended}/{len(status.cells)} cells ended, {len(running)} running"
    asking = [progress for progress in running if progress.counts is not None]
    counts = [progress.counts for progress in asking if progress.counts is not None]
    if not counts:
        return line
    done, total, failed = (sum(count[name] for count in counts) for name in ("done", "total", "failed"))
    left = [progress.left_s for progress in asking if progress.left_s]
    line += f": {done}/{total} requests, {formats.rate(sum(progress.rate for progress in asking))}, {failed} failed"
    return line + (f", {duration(max(left))} left" if left else "")


def pause_lines(pauses: Iterable[Pause], now: float) -> list[str]:
    """Each endpoint that is waited for."""
    return [
        f"paused: {one_line(one.group)}: {one_line(one.reason)} ({_cells(len(one.cells))}{_for(one.since, now)})"
        for one in pauses
    ]


def state_line(status: SuiteStatus, now: float) -> str:
    """Whether it runs, since when, and what to do where it does not."""
    folder = one_line(str(status.folder.named))
    if status.state == GOES:
        who = f" (process {status.pid} on {one_line(str(status.host))})" if status.pid else ""
        return f"{folder}: running{who}{_for(status.started, now)}"
    if status.state == ENDED:
        at = None if status.ended is None else time.localtime(status.ended)
        ended = "" if at is None else time.strftime(" at %Y-%m-%d %H:%M:%S", at)
        code = "" if status.exit_code is None else f", exit code {status.exit_code}"
        return f"{folder}: not running; ended{ended}{code}"
    return f"{folder}: not running; it was stopped before its end"


def status_lines(status: SuiteStatus, now: float) -> list[str]:
    """All of it."""
    found = cell_rows(status)
    name = max((len(row.name) for row in found), default=0)
    return [
        state_line(status, now),
        *pause_lines(status.pauses, now),
        *(f"  {row.name:<{name}}  {row.status:<8}  {row.what}".rstrip() for row in found),
        counts_line(status),
        spent_line(status),
        *(f"  what a server says: {one_line(str(log))}" for log in status.folder.server_logs),
        *log_lines(status),
        *next_lines(status),
    ]


def log_lines(status: SuiteStatus) -> list[str]:
    """How to see what the tasks of Slurm say."""
    if not any(cell.job is not None for cell in status.cells):
        return []
    one = "" if isinstance(status.folder, RunSuiteDir) else " CELL"
    return [f"logs: eval-factory suite logs -f {shlex.quote(one_line(str(status.folder.named)))}{one}"]


def next_lines(status: SuiteStatus) -> list[str]:
    """What to do where it neither runs nor is complete; the command stands alone, to be copied."""
    if status.state == GOES or status.is_complete:
        return []
    limits: dict[str, Any] = dict(status.limits)
    reached = limit_reached(Budget(**limits), status.spent, None)
    first = _GOES_ON if reached is None else f"{reached}: raise it, and {_GOES_ON}"
    return [first, f"  {same_command(status)}"]


def result_text(figures: CellFigures) -> str:
    """`exact_match 0.7100 (0.6000 .. 0.8200), n 100`."""
    if figures.value is None:
        return f"{one_line(figures.main_metric)} could not be computed"
    text = f"{one_line(figures.main_metric)} {formats.score(figures.value)}"
    if figures.ci_low is not None and figures.ci_high is not None:
        text += f" ({formats.between(figures.ci_low, figures.ci_high)})"
    return text + f", n {figures.n}" + ("" if figures.reportable else ", not reportable")


def _what(cell: CellStatus, why: dict[str, str], room: int) -> str:
    state = cell.state
    if cell.progress is not None:
        phase = one_line(cell.progress.phase)
        number, of = cell.progress.run
        if of > 1:
            phase = f"{number}/{of} {phase}"
        figures = cell.progress.figures(room - len(phase) - 2)
        again = f" (attempt {state.attempt})" if state.attempt > 1 else ""
        text = f"{phase}{again}{f': {one_line(figures)}' if figures else ''}"
        return text if cell.job is None or cell.job.task is None else f"{text}; {one_line(cell.job.task)}"
    parts = [result_text(cell.figures)] if cell.figures is not None else []
    if state.status == PAUSED:
        parts.append(one_line(why.get(state.name, "its endpoint is waited for")))
    elif state.reason and (state.status != WAITING or cell.job is not None):
        parts.append(one_line(state.reason))
    if state.reused_from:
        parts.append(f"from {one_line(state.reused_from)}")
    elif state.collected:
        parts.append("finished before")
    return "; ".join(parts)


def _cells(count: int) -> str:
    return f"{count} {'cell' if count == 1 else 'cells'}"


def _for(since: float | None, now: float) -> str:
    return "" if since is None else f", for {duration(max(0.0, now - since))}"


def check_text(found: SuiteCheck) -> str:
    """For the screen."""
    missing = [cell for cell in found.cells if not cell.is_complete]
    total = _cells(len(found.cells))
    outcome = f"not complete: {len(missing)} of {total} without a complete result" if missing else f"complete: {total}"
    lines = [f"{found.folder.root}: {outcome}"]
    for cell in missing:
        lines.append(f"  {cell.name}: {cell.status}{f': {one_line(cell.reason)}' if cell.reason else ''}")
        for text in cell.to_do:
            first, *others = text.split("\n")
            lines += [f"    to do: {first}", *(f"      {line.strip()}" for line in others)]
    lines += [f"  altered: {one_line(str(finding))}" for finding in found.altered[:MAX_SHOWN]]
    if len(found.altered) > MAX_SHOWN:
        lines.append(f"  altered: {len(found.altered) - MAX_SHOWN} more (--json)")
    lines += [f"  note: {one.name}: {one_line(one.reason)}" for one in found.cells if one.is_complete and one.reason]
    if found.is_running:
        lines.append("the suite is running: look at it with 'eval-factory suite status'")
    elif missing:
        lines += [_GOES_ON, f"  {found.command}"]
    elif not found.in_table:
        newer = "results are newer than the table: the same command only collects them into it:"
        lines += [newer, f"  {found.command}"]
    return own_lines("\n".join(lines))
