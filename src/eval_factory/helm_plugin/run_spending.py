"""What a helm-run may ask and cost: one purse for the model and all judges, and a clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from eval_factory.core.budget import MAX_COST, MAX_TOKENS, MAX_WALL, AnyPurse, Purse
from eval_factory.core.helm_run_settings import HelmRunSettings, SharedLimitsSettings
from eval_factory.endpoint.openai_api import Completion
from eval_factory.endpoint.paid_answers import cost_of, spent_so_far, write_prices
from eval_factory.endpoint.shared_limits import SharedLimits

_BEGUN = time.monotonic() - time.process_time()
"""When helm-run began: what came before this module was the work of one thread."""


def purse_of(told: HelmRunSettings, cache_db: Path) -> AnyPurse | None:
    """The one place that chooses who counts; None where there is no limit."""
    if not told.budget:
        return None
    if told.purse is not None:
        return SharedLimits(SharedLimitsSettings(told.purse, {})).purse
    return Purse(told.budget, spent_so_far(cache_db, told.prices), began=_BEGUN)


class RunSpending:
    """Asks the purse before each request, and tells it what each answer took; safe among threads."""

    def __init__(self, told: HelmRunSettings, cache_db: Path, run_id: str, purse: AnyPurse | None) -> None:
        self._budget, self._prices, self._purse = told.budget, told.prices, purse
        self._uncountable: str | None = None
        write_prices(cache_db, run_id, told.prices)

    @property
    def is_countable(self) -> bool:
        """Whether all answers said what a limit counts."""
        return self._uncountable is None

    def begin(self) -> str | None:
        """None: a request may be sent. Else the name of the limit that forbids it."""
        if self._uncountable is not None:
            return self._uncountable
        return None if self._purse is None else self._purse.begin()

    def spend(self, *, tokens: int, cost: float) -> None:
        if self._purse is not None:
            self._purse.spend(tokens=tokens, cost=cost)

    def answered(self, role: str, completion: Completion) -> None:
        """Count an answer. One that does not say what a limit counts is the last: the limit could not be held."""
        if self._purse is None:
            return
        known = cost_of(completion.body.get("usage"), completion.tokens, self._prices.get(role))
        if known is None and self._budget.max_cost is not None:
            self._uncountable = MAX_COST
        if None in completion.tokens and self._budget.max_tokens_total is not None:
            self._uncountable = MAX_TOKENS
        self.spend(tokens=sum(filter(None, completion.tokens)), cost=0.0 if known is None else known[0])

    def watch(self, stop: Callable[[str], None]) -> None:
        """Call `stop` when the time is over: who waits for a pause to end would not look at the clock."""
        if self._budget.max_wall_s is None:
            return
        left = max(0.0, self._budget.max_wall_s - (time.monotonic() - _BEGUN))
        timer = threading.Timer(min(left, threading.TIMEOUT_MAX), stop, (MAX_WALL,))
        timer.daemon = True
        timer.start()
