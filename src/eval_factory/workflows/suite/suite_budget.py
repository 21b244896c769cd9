"""What the cells of a suite have asked so far, and how much of its budget that is."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from eval_factory.config.model import urls_in
from eval_factory.core.budget import Budget, Spending
from eval_factory.core.paid_answers import spent_so_far
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.rundir import RunDir
from eval_factory.plan.prices import prices_of
from eval_factory.scoring.journal import read_roles
from eval_factory.workflows.suite.planned_cells import PlannedCell


def total(parts: Iterable[Spending]) -> Spending:
    known = list(parts)
    return Spending(
        requests=sum(part.requests for part in known),
        tokens=sum(part.tokens for part in known),
        cost=sum(part.cost for part in known),
    )


def limit_reached(budget: Budget, spent: Spending, seconds_left: float | None) -> str | None:
    """The limit that is used up, with its number; None where there is something left.

    Args:
        seconds_left: of max_wall_s; None where there is no such limit.
    """
    most = budget.max_wall_s
    elapsed = 0.0 if most is None or seconds_left is None else most - seconds_left
    name = budget.reached(spent.by_limit(elapsed))
    return None if name is None else f"{name} ({budget.stated[name]:g}) of the suite is reached"


def spent_before(cells: Iterable[PlannedCell], say: Callable[[str], None]) -> Spending:
    """What these cells have asked in all invocations; `say` learns what nobody can count any more."""
    return total(_spent(planned, store, say) for planned in cells for store in planned.plan.rundir.stores())


def _spent(planned: PlannedCell, store: RunDir, say: Callable[[str], None]) -> Spending:
    try:
        return spent_so_far(store.cache_db, prices_of(planned.plan).known)
    except sqlite3.Error as error:  # the cell's run puts it aside
        say(f"warning: {store.cache_db} is damaged ({error}): what it counted is not in the suite's budget")
        return Spending()


def groups_that_answered(cells: Iterable[PlannedCell]) -> frozenset[str]:
    """The endpoints that answered some cell's model, in this invocation or an earlier one."""
    return frozenset(planned.group for planned in cells if _has_answers(planned))


def _has_answers(planned: PlannedCell) -> bool:
    """From where it is asked now: another URL may never have been there."""
    try:
        answered = MODEL_ROLE in read_roles(planned.plan.rundir.cache_db)
        return answered and not _last_urls(planned).isdisjoint(planned.plan.model.urls)
    except sqlite3.Error:
        return False


def _last_urls(planned: PlannedCell) -> frozenset[str]:
    """The servers of the cell's last run; none where nothing says it."""
    try:
        last = parse_own(planned.plan.rundir.run_config.read_text(encoding="utf-8"))
        return frozenset(urls_in(last["target"]["api_endpoint"]["url"]))
    except (OSError, YamlError, UnicodeDecodeError, KeyError, TypeError):
        return frozenset()


_INTERVAL_S = 5.0
"""How long what was read is good enough: a journal of many answers takes its time, and is written all the while."""


class SpendingReader:
    """Reads a folder's journal again where it is another, and not too often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Path, tuple[float, str, object, Spending]] = {}

    def look(self, folder: Path, status: str) -> Spending:
        """In all runs of this output folder; of what has a known price alone, where it is money.

        Args:
            status: of the cell. Where it is another, all is read at once: what has ended has its final figures.
        """
        now, known = self._clock(), self._known.get(folder)
        if known is not None and known[1] == status and now - known[0] < _INTERVAL_S:
            return known[3]
        there = _signature(folder)
        spent = known[3] if known is not None and known[2] == there else _read(folder)
        self._known[folder] = (now, status, there, spent)
        return spent


def _read(folder: Path) -> Spending:
    try:
        return spent_so_far(RunDir(folder).cache_db, {})
    except sqlite3.Error:  # damaged, or another's: the run itself says so
        return Spending()


def _signature(folder: Path) -> object:
    found = []
    for path in RunDir(folder).answers:
        try:
            about = path.stat()
        except OSError:
            continue
        found.append((path, about.st_mtime_ns, about.st_size))
    return found
