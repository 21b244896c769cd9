"""Defines the prices of tokens, the cost of answers, and the budgets of runs and suites.

An unknown amount is None, never 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol

MAX_COST = "max_cost"
MAX_REQUESTS = "max_requests"
MAX_TOKENS = "max_tokens_total"
MAX_WALL = "max_wall_s"


@dataclass(frozen=True)
class Budget:
    """The limits of a run or suite, for the model and the judges together; None: no limit."""

    max_cost: float | None = None  # in US dollars
    # the number of sent requests, including failed requests and retries
    max_requests: int | None = None
    # tokens of prompts and answers; estimated if the endpoint does not count them
    max_tokens_total: int | None = None
    # seconds of one invocation; the other limits apply to all invocations with one output folder
    max_wall_s: float | None = None

    @property
    def stated_limits(self) -> dict[str, float]:
        """The limits that are set: a dict from the name of a limit to its value."""
        return {name: maximum for name, maximum in vars(self).items() if maximum is not None}

    def __bool__(self) -> bool:
        return bool(self.stated_limits)

    def find_reached_limit(self, used: Mapping[str, float]) -> str | None:
        """Return the name of the first limit that is reached; None if no limit is reached.

        Args:
            used: a dict from the name of a limit to the amount that is used.
        """
        for name, maximum in self.stated_limits.items():
            if used[name] >= maximum:
                return name
        return None


@dataclass(frozen=True)
class Spending:
    """The requests, tokens and dollars that were used."""

    requests: int = 0
    tokens: int = 0
    cost: float = 0.0  # in US dollars, of the answers with a known price

    def by_limit(self, seconds: float) -> dict[str, float]:
        """Return the used amount of each limit, by the limit's name.

        Args:
            seconds: the time that this invocation has taken.
        """
        return {
            MAX_COST: self.cost,
            MAX_REQUESTS: self.requests,
            MAX_TOKENS: self.tokens,
            MAX_WALL: seconds,
        }


def sum_spendings(parts: Iterable[Spending]) -> Spending:
    """Return the sum of several spendings."""
    spendings = list(parts)
    return Spending(
        requests=sum(spending.requests for spending in spendings),
        tokens=sum(spending.tokens for spending in spendings),
        cost=sum((spending.cost for spending in spendings), 0.0),
    )


class SpendingLimit(Protocol):
    """The interface of a budget to clients.

    A client calls `begin` before each request, and `spend` after each answer.
    """

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the time limit is reached; None without a time limit."""
        ...

    def begin(self) -> str | None:
        """Count a request and return None if the request may be sent.

        If a limit is reached, nothing is counted, and the name of the limit is returned.
        """
        ...

    def spend(self, *, tokens: int, cost: float) -> None:
        """Add the tokens and the cost (in US dollars) of an answer."""
        ...


class SpendingTracker:
    """A budget, and the spending of many threads, which must not exceed the budget."""

    def __init__(
        self,
        budget: Budget,
        spent: Spending = Spending(),
        *,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the spending of earlier invocations.

        Args:
            budget: the limits.
            spent: the spending of earlier invocations.
            began: the time of `clock` at the start of this invocation; None: the current time.
            clock: returns the current time in seconds.
        """
        self._budget = budget
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock() if began is None else began
        self.spent = spent

    @property
    def seconds_left(self) -> float | None:
        """The seconds left of max_wall_s, at least 0; None if max_wall_s is not set."""
        maximum = self._budget.max_wall_s
        if maximum is None:
            return None
        return max(0.0, maximum - (self._clock() - self._began))

    def begin(self) -> str | None:
        """Count a request and return None; if a limit is reached, only return the limit's name."""
        with self._lock:
            reached = self._budget.find_reached_limit(
                self.spent.by_limit(self._clock() - self._began)
            )
            if reached is None:
                self.spent = replace(self.spent, requests=self.spent.requests + 1)
            return reached

    def spend(self, *, tokens: int, cost: float) -> None:
        """Add the tokens and the cost of an answer.

        Args:
            tokens: the tokens of the prompt and the answer.
            cost: the cost in US dollars.
        """
        with self._lock:
            self.spent = replace(
                self.spent, tokens=self.spent.tokens + tokens, cost=self.spent.cost + cost
            )


@dataclass(frozen=True)
class SpendingTrackers:
    """Several budgets, which must all allow a request: those of a run and of its suite."""

    trackers: Sequence[SpendingLimit]

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the first time limit is reached; None without a time limit."""
        times_left = []
        for tracker in self.trackers:
            seconds_left = tracker.seconds_left
            if seconds_left is not None:
                times_left.append(seconds_left)
        return min(times_left, default=None)

    def begin(self) -> str | None:
        """Count a request with each tracker, and return the first limit that is reached, or None.

        If a tracker refuses the request, the trackers before it have counted a request that is not
        sent. The error is at most one request for each thread.
        """
        for tracker in self.trackers:
            reached = tracker.begin()
            if reached is not None:
                return reached
        return None

    def spend(self, *, tokens: int, cost: float) -> None:
        """Add the tokens and the cost (in US dollars) of an answer to each tracker."""
        for tracker in self.trackers:
            tracker.spend(tokens=tokens, cost=cost)


BYTES_PER_TOKEN = 4  # for estimates, if the endpoint does not count tokens

BY_ENDPOINT = "endpoint"
BY_TABLE = "table"
BY_LIBRARY = "genai-prices"
"""The source of an answer's cost: the endpoint's answer itself, the user's price table, or the
library genai-prices (with its version).
"""


@dataclass(frozen=True)
class Rates:
    """Prices in US dollars per million tokens."""

    input_per_million: float
    output_per_million: float
    # price of prompt tokens from the endpoint's own cache; None: the price of other prompt tokens
    cached_input_per_million: float | None = None


def _scaled_rates(rates: Rates, factor: float) -> dict[str, Any]:
    """Return the fields of `Rates` multiplied by a factor."""
    scaled = {}
    for field in fields(Rates):
        rate = getattr(rates, field.name)
        if rate is not None:
            scaled[field.name] = rate * factor
    return scaled


@dataclass(frozen=True)
class LongPrompts(Rates):
    """The rates of requests with long prompts; they apply to all tokens of such a request."""

    above: int = 0  # a prompt with more tokens than this is long


@dataclass(frozen=True)
class Price(Rates):
    """The price of one model at one endpoint."""

    source: str = BY_TABLE  # who states the price; begins with `BY_TABLE` or `BY_LIBRARY`
    long_prompts: tuple[LongPrompts, ...] = ()

    def cost_of(self, prompt: float, completion: float, cached: float = 0) -> float:
        """Return the cost of a request in US dollars.

        The arguments are the numbers of tokens of one request, or the means of several requests.

        Args:
            prompt: tokens of the prompt.
            completion: tokens of the answer.
            cached: tokens of the prompt that came from the endpoint's own cache.
        """
        # The rates with the highest limit that the prompt exceeds apply; else the usual rates.
        exceeded = [rates for rates in self.long_prompts if prompt > rates.above]
        rates: Rates = max(exceeded, key=lambda prompts: prompts.above, default=self)
        cached = min(cached, prompt)
        cached_rate = rates.cached_input_per_million
        if cached_rate is None:
            cached_rate = rates.input_per_million
        micro_dollars = (
            (prompt - cached) * rates.input_per_million
            + cached * cached_rate
            + completion * rates.output_per_million
        )
        return micro_dollars / 1_000_000

    def scaled(self, factor: float) -> Price:
        """Return the price with all rates multiplied by a factor."""
        longer = []
        for rates in self.long_prompts:
            longer.append(replace(rates, **_scaled_rates(rates, factor)))
        return replace(self, **_scaled_rates(self, factor), long_prompts=tuple(longer))

    def as_written(self) -> dict[str, Any]:
        """Return the fields that have a value, as result files contain them."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Price:
        """Return the price in a mapping that `asdict` made.

        Raises KeyError or TypeError if the mapping is not a price.
        """
        longer = tuple(LongPrompts(**rates) for rates in document["long_prompts"])
        return cls(**{**document, "long_prompts": longer})


@dataclass(frozen=True)
class Cost:
    """The cost of answers, as far as it is known."""

    value: float  # the cost of the requests with a known cost
    # who states the cost or the price; all sources if they differ between requests
    source: str
    priced_requests: int  # the number of answered requests with a known cost
    # the number of answered requests without a known cost: no price, or no count of tokens
    unpriced_requests: int
    currency: str = "USD"
    # the price of one role's tokens; None if the answers stated their own cost
    price: Price | None = None
