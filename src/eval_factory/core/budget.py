"""How much a run, or a suite of runs, may ask and cost, and how much it has."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Budget:
    """Limits of all roles together, judges among them; None: there is none."""

    max_cost: float | None = None
    """US dollars."""
    max_requests: int | None = None
    """Requests that are sent, those that fail and are tried again among them."""
    max_tokens_total: int | None = None
    """Of prompts and answers, as the endpoint counts them."""
    max_wall_s: float | None = None
    """Seconds of one invocation; the other limits hold for all invocations on a folder together."""

    def __bool__(self) -> bool:
        return any(limit is not None for limit in vars(self).values())


@dataclass(frozen=True)
class Spending:
    """What was asked and paid."""

    requests: int = 0
    tokens: int = 0
    cost: float = 0.0
    """US dollars; of what has a known price."""


class Purse:
    """A budget that is used up by many threads; whoever sends a request asks it first."""

    def __init__(self, budget: Budget, spent: Spending = Spending()) -> None:
        """`spent`: by earlier invocations."""
        self._budget, self._spent = budget, spent
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spending:
        return self._spent

    def begin(self) -> str | None:
        """One more request is about to be sent: it is counted. Else the name of the limit that is reached."""
        with self._lock:
            reached = self._reached()
            if reached is None:
                self._spent = replace(self._spent, requests=self._spent.requests + 1)
            return reached

    def spend(self, *, tokens: int, cost: float) -> None:
        """An answer came: what it took."""
        with self._lock:
            spent = self._spent
            self._spent = replace(spent, tokens=spent.tokens + tokens, cost=spent.cost + cost)

    def _reached(self) -> str | None:
        limits = {
            "max_cost": (self._spent.cost, self._budget.max_cost),
            "max_requests": (self._spent.requests, self._budget.max_requests),
            "max_tokens_total": (self._spent.tokens, self._budget.max_tokens_total),
        }
        return next((name for name, (used, most) in limits.items() if most is not None and used >= most), None)
