"""What a helm-run may ask and cost: one purse for the model and all judges, and a clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eval_factory.core.budget import MAX_COST, MAX_WALL, AnyPurse, Purse
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.endpoint.limits import prompt_size
from eval_factory.endpoint.openai_api import Completion
from eval_factory.endpoint.paid_answers import limit_cost, limit_tokens, spent_so_far, write_prices

_BEGUN = time.monotonic() - time.process_time()
"""When helm-run began: what came before this module was the work of one thread."""


def purse_of(told: HelmRunSettings, cache_db: Path) -> Purse | None:
    """Of the run alone; None where it has no limit."""
    if not told.budget:
        return None
    return Purse(told.budget, spent_so_far(cache_db, told.prices), began=_BEGUN)


class RunSpending:
    """Asks the purse before each request, and tells it what each answer took; safe among threads."""

    def __init__(self, told: HelmRunSettings, cache_db: Path, run_id: str, purse: AnyPurse | None) -> None:
        self._budget, self._prices, self._purse = told.budget, told.prices, purse
        self._uncountable: str | None = None
        write_prices(cache_db, run_id, told.prices)

    @property
    def is_countable(self) -> bool:
        """Whether the cost of all answers is known that a limit counts."""
        return self._uncountable is None

    def begin(self) -> str | None:
        """None: a request may be sent. Else the name of the limit that forbids it."""
        if self._uncountable is not None:
            return self._uncountable
        return None if self._purse is None else self._purse.begin()

    def spend(self, *, tokens: int, cost: float) -> None:
        if self._purse is not None:
            self._purse.spend(tokens=tokens, cost=cost)

    def answered(self, role: str, body: Mapping[str, Any], completion: Completion) -> None:
        """Count the answer to a body. One whose cost nobody knows is the last: the limit could not be held."""
        if self._purse is None:
            return
        tokens = limit_tokens(completion.tokens, (prompt_size(body), completion.size))
        cost = limit_cost(completion.body.get("usage"), tokens, self._prices.get(role))
        if cost is None and self._budget.max_cost is not None:
            self._uncountable = MAX_COST
        self.spend(tokens=sum(tokens), cost=cost or 0.0)

    def watch(self, stop: Callable[[str], None]) -> None:
        """Call `stop` when the time is over: who waits for a pause to end would not look at the clock."""
        if self._budget.max_wall_s is None:
            return
        left = max(0.0, self._budget.max_wall_s - (time.monotonic() - _BEGUN))
        timer = threading.Timer(min(left, threading.TIMEOUT_MAX), stop, (MAX_WALL,))
        timer.daemon = True
        timer.start()
