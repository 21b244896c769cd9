"""What the cells of a suite did before this invocation, told from their journals; a damaged one says nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

from eval_factory.config.model import urls_in
from eval_factory.core.budget import Spending
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.endpoint.response_cache import read_roles
from eval_factory.plan.prices import prices_of
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_budget import total


def spent_before(cells: Iterable[PlannedCell], say: Callable[[str], None]) -> Spending:
    """What these cells have asked in all invocations; `say` is told what nobody can count any more."""
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
