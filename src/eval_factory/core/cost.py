"""What a model's tokens cost, and what was paid: records. An amount that is not known is absent, and never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MILLION = 1_000_000
BYTES_PER_TOKEN = 4
"""Of text, where nobody counted: more than most tokenizers make of English."""
CURRENCY = "USD"

BY_ENDPOINT, BY_TABLE, BY_LIBRARY = "endpoint", "table", "genai-prices"
"""Who says what an answer costs: the answer itself, the user's table, the library (with its version)."""


@dataclass(frozen=True)
class Rates:
    """US dollars for a million tokens."""

    input_per_million: float
    output_per_million: float
    cached_input_per_million: float | None = None
    """Of prompt tokens that the endpoint took from a cache of its own; None: the same as others."""


@dataclass(frozen=True)
class LongPrompts(Rates):
    """Other rates, for all tokens of a request whose prompt is long."""

    above: int = 0
    """Prompt tokens; a longer prompt has these rates."""


@dataclass(frozen=True)
class Price(Rates):
    """Of one model at one endpoint."""

    source: str = BY_TABLE
    long_prompts: tuple[LongPrompts, ...] = ()

    def of(self, prompt: float, completion: float, cached: float = 0) -> float:
        """US dollars of a request, by its tokens, or by means of several; `cached`: from the endpoint's own cache."""
        longer = [rates for rates in self.long_prompts if prompt > rates.above]
        rates: Rates = max(longer, key=lambda one: one.above, default=self)
        cached = min(cached, prompt)
        of_cached = rates.cached_input_per_million
        if of_cached is None:
            of_cached = rates.input_per_million
        fresh = (prompt - cached) * rates.input_per_million
        return (fresh + cached * of_cached + completion * rates.output_per_million) / MILLION

    def as_dict(self) -> dict[str, Any]:
        """What `from_dict` reads."""
        return asdict(self)

    def as_written(self) -> dict[str, Any]:
        """Without what is not there: for a reader."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Price:
        """Raises TypeError where it is no price."""
        longer = tuple(LongPrompts(**rates) for rates in document["long_prompts"])
        return cls(**{**document, "long_prompts": longer})


@dataclass(frozen=True)
class Cost:
    """What answers cost, as far as it is known."""

    value: float
    """Of the requests that have a price."""
    source: str
    """Who says so; several where they differ between requests."""
    priced_requests: int
    """Requests that were answered and whose cost is known."""
    unpriced_requests: int
    """Requests that were answered and whose cost is not: their endpoint has no known price, or counted no tokens."""
    currency: str = CURRENCY
    price: Price | None = None
    """What was used, of one role; None where answers said themselves what they cost."""
