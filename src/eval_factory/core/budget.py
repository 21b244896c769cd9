"""How much a run, or a suite of runs, may ask and cost, and how much it has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

MAX_COST, MAX_REQUESTS, MAX_TOKENS, MAX_WALL = "max_cost", "max_requests", "max_tokens_total", "max_wall_s"


@dataclass(frozen=True)
class Budget:
    """Limits of all roles together, judges among them; None: there is none."""

    max_cost: float | None = None
    """US dollars."""
    max_requests: int | None = None
    """Requests that are sent, those that fail and are tried again among them."""
    max_tokens_total: int | None = None
    """Of prompts and answers, as the endpoint counts them; estimated where it does not, or counts too little."""
    max_wall_s: float | None = None
    """Seconds of one invocation; the other limits hold for all invocations on a folder together."""

    @property
    def stated(self) -> dict[str, float]:
        """Name of each limit that there is -> its number."""
        return {name: most for name, most in vars(self).items() if most is not None}

    def __bool__(self) -> bool:
        return bool(self.stated)

    def reached(self, used: Mapping[str, float]) -> str | None:
        """The name of a limit that is used up; None where there is something left. `used`: by the limits' names."""
        return next((name for name, most in self.stated.items() if used[name] >= most), None)


@dataclass(frozen=True)
class Spending:
    """What was asked and paid."""

    requests: int = 0
    tokens: int = 0
    cost: float = 0.0
    """US dollars; of what has a known price."""

    def by_limit(self, seconds: float) -> dict[str, float]:
        """Name of the limit that counts it -> how much of it is used. `seconds`: of this invocation."""
        return {MAX_COST: self.cost, MAX_REQUESTS: self.requests, MAX_TOKENS: self.tokens, MAX_WALL: seconds}


class AnyPurse(Protocol):
    """What a client asks before it sends a request, and tells what an answer took."""

    def begin(self) -> str | None:
        """None: it may be sent, and is counted. Else the name of the limit that is reached."""
        ...

    def spend(self, *, tokens: int, cost: float) -> None: ...


class Purse:
    """A budget that is used up by many threads; whoever sends a request asks it first."""

    def __init__(
        self,
        budget: Budget,
        spent: Spending = Spending(),
        *,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            spent: by earlier invocations.
            began: when this invocation did, by `clock`; now if not given.
        """
        self._budget, self._spent = budget, spent
        self._clock = clock
        self._began = clock() if began is None else began
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spending:
        return self._spent

    @property
    def seconds_left(self) -> float | None:
        """Of max_wall_s, 0 at the least; None where there is no such limit."""
        most = self._budget.max_wall_s
        return None if most is None else max(0.0, most - self._elapsed())

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

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _reached(self) -> str | None:
        return self._budget.reached(self._spent.by_limit(self._elapsed()))


@dataclass(frozen=True)
class Purses:
    """Several budgets that all have to allow a request: a run's own, and that of the suite that it is part of."""

    purses: tuple[AnyPurse, ...]

    def begin(self) -> str | None:
        """Those before the one that refuses have counted a request that is not sent: at most one for each thread."""
        return next((reached for purse in self.purses if (reached := purse.begin()) is not None), None)

    def spend(self, *, tokens: int, cost: float) -> None:
        for purse in self.purses:
            purse.spend(tokens=tokens, cost=cost)


def together(*purses: AnyPurse | None) -> AnyPurse | None:
    """Of those that there are; None where there is none."""
    known = tuple(purse for purse in purses if purse is not None)
    return Purses(known) if len(known) > 1 else next(iter(known), None)
