"""The estimate of a run: the figures of the model and of each judge, and their sums.

Each figure has a source. A figure that cannot be determined is None. `estimate.py` makes the
estimate of a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eval_factory.core import formats
from eval_factory.core.budget import MAX_COST, MAX_REQUESTS, MAX_TOKENS, MAX_WALL, Budget

SECONDS_PER_HOUR = 3600.0


def sum_or_none(parts: Iterable[float | None]) -> float | None:
    """Return the sum of the parts; None if any part is None."""
    values = list(parts)
    if None in values:
        return None
    return sum(part for part in values if part is not None)


@dataclass(frozen=True)
class RoleEstimate:
    """An estimate for the model or one judge. A figure is None if it is unknown."""

    role: str
    model_id: str
    requests: int | None
    prompt_tokens: float | None
    completion_tokens: float | None
    cost: float | None  # in US dollars
    # the time for the requests alone, with the configured parallelism and limits per minute
    hours: float | None
    sources: Mapping[str, str]  # the source of each figure by name, or why the figure is unknown

    @property
    def tokens(self) -> float | None:
        """The tokens of prompts and answers together."""
        return sum_or_none([self.prompt_tokens, self.completion_tokens])


class Total(ABC):
    """The sums of several estimates. A sum is None if the figure is unknown for any part."""

    budget: Budget

    @property
    @abstractmethod
    def parts(self) -> Sequence[RoleEstimate | Total]:
        """The estimates that are added."""

    @property
    @abstractmethod
    def hours(self) -> float | None:
        """The time of all parts; not always the sum, because parts may run at the same time."""

    @property
    def requests(self) -> float | None:
        """The requests of all parts."""
        return sum_or_none(part.requests for part in self.parts)

    @property
    def tokens(self) -> float | None:
        """The tokens of all parts."""
        return sum_or_none(part.tokens for part in self.parts)

    @property
    def cost(self) -> float | None:
        """The cost of all parts in US dollars."""
        return sum_or_none(part.cost for part in self.parts)

    @property
    def exceeded_limits(self) -> dict[str, float]:
        """The needed amount for each limit that the run would exceed, by the name of the limit."""
        seconds = None if self.hours is None else self.hours * SECONDS_PER_HOUR
        needed = {
            MAX_COST: self.cost,
            MAX_REQUESTS: self.requests,
            MAX_TOKENS: self.tokens,
            MAX_WALL: seconds,
        }
        exceeded = {}
        for name, limit in self.budget.stated_limits.items():
            amount = needed[name]
            if amount is not None and amount > limit:
                exceeded[name] = amount
        return exceeded

    def sums_record(self) -> dict[str, Any]:
        """Return the sums of all parts as a record for other programs."""
        sums = {"requests": self.requests, "tokens": self.tokens, "cost": self.cost}
        return {**sums, "currency": "USD", "hours": self.hours}

    def exceeded_limit_lines(self) -> list[str]:
        """Return a line for each limit that will be reached before the end."""
        return [
            f"  {name} ({self.budget.stated_limits[name]:g}) will be reached before the end"
            for name in self.exceeded_limits
        ]


def estimate_text(figures: RoleEstimate | Total) -> str:
    """Return the figures as a text: `40 requests, 2,864 tokens, 0.02 USD, 1.5 min`."""
    cost = "unknown cost" if figures.cost is None else formats.money(figures.cost)
    time = "unknown time" if figures.hours is None else formats.hours(figures.hours)
    requests = formats.count(figures.requests, missing="unknown")
    tokens = formats.count(figures.tokens, missing="unknown")
    return f"{requests} requests, {tokens} tokens, {cost}, {time}"


@dataclass(frozen=True)
class Estimate(Total):
    """The estimate of one run."""

    task: str
    roles: tuple[RoleEstimate, ...]  # the model first, then the judges
    # number of answers in the output folder; an answer that the run needs again costs nothing
    cached_answers: int
    budget: Budget
    # True if `extra.stop_when` may end the run early; the figures are then upper bounds
    at_most: bool = False

    @property
    def parts(self) -> Sequence[RoleEstimate]:
        """The estimates of the model and the judges."""
        return self.roles

    @property
    def hours(self) -> float | None:
        """The model's time plus the longest judge's time.

        The judges are asked after the model, and all judges at the same time.
        """
        model, *judges = [role.hours for role in self.roles]
        known_hours = []
        for hours in judges:
            if hours is not None:
                known_hours.append(hours)
        if len(known_hours) < len(judges):
            return None
        return sum_or_none([model, max(known_hours, default=0.0)])

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate as a record for other programs."""
        bound = {"at_most": True} if self.at_most else {}
        return {
            "task": self.task,
            **bound,
            **self.sums_record(),
            "kept_answers": self.cached_answers,
            "beyond": self.exceeded_limits,
            "roles": [asdict(role) for role in self.roles],
        }

    def to_text(self) -> str:
        """Return the estimate for the screen."""
        figures = estimate_text(self)
        if self.at_most:
            figures = f"at most {figures}"
        lines = [f"{self.task}: {figures}"]
        for role in self.roles:
            lines.append(f"  {role.role} ({role.model_id}): {estimate_text(role)}")
            lines += [f"    {name}: {source}" for name, source in role.sources.items()]
        if self.cached_answers:
            lines.append(
                f"  {self.cached_answers:,} answers are stored in the output folder: "
                "an answer that is needed again costs nothing"
            )
        lines += self.exceeded_limit_lines()
        lines.append(
            "  not counted: time for loading data and scoring, and requests that are sent again "
            "after an error"
        )
        return "\n".join(lines)
