"""What the answers in cache.db cost: by themselves, by a price, or not known; and the prices that held when they came.

A price is kept with the run that paid it: a later version of the library that it is from changes nothing that was paid.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.budget import Spending
from eval_factory.core.cost import BY_ENDPOINT, BY_TABLE, Price

PRICES_TABLE = """
CREATE TABLE IF NOT EXISTS prices (
    run_id TEXT NOT NULL,
    role TEXT NOT NULL,
    price TEXT NOT NULL,        -- JSON: core/cost.py
    PRIMARY KEY (run_id, role)
)
"""

_OF_OBJECT = "CASE WHEN json_type(r.response, '$.usage') = 'object' THEN json_extract(r.response, '$.usage') END"
USAGE = f"CASE WHEN json_valid(r.response) THEN {_OF_OBJECT} END"
"""In SQL: `usage` of the body of a row `r` of responses, as JSON; null where it has none."""

MOST_TOLD = 1_000_000
"""US dollars: an answer that says more is not believed, so that sums stay numbers."""

_SENT = "SELECT count(*) FROM attempts WHERE outcome IN ('answered', 'retried', 'failed', 'refused')"

# An answer that turned out to be unusable was paid for too: it lies under another key (`ResponseCache.archive_answer`).
_PAID = f"""
SELECT a.run_id, a.role, a.prompt_tokens, a.completion_tokens, {USAGE}
FROM attempts a
LEFT JOIN responses r ON r.key IN (a.key, a.key || '#' || a.started) AND r.created = a.started
WHERE a.outcome = 'answered' ORDER BY a.id
"""  # noqa: S608 - of constants


@dataclass(frozen=True)
class Paid:
    """One answer that was paid for."""

    run_id: str
    role: str
    prompt_tokens: int | None
    completion_tokens: int | None
    usage: Any
    """What the answer says of it."""

    @property
    def tokens(self) -> int | None:
        """Of prompt and answer; None where the endpoint did not count both."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


def told_cost(usage: Any) -> float | None:
    """US dollars, where an answer's `usage` says what it cost (`usage.cost`, as OpenRouter has it), and it can be."""
    told: Any = usage.get("cost") if isinstance(usage, Mapping) else None
    is_number = isinstance(told, (int, float)) and not isinstance(told, bool)
    return float(told) if is_number and 0 <= told <= MOST_TOLD else None


def tokens_from_cache(usage: Any) -> int:
    """Prompt tokens that the endpoint took from its own cache, and may ask less for."""
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return cached if type(cached) is int and cached > 0 else 0


def cost_of(usage: Any, tokens: tuple[int | None, int | None], price: Price | None) -> tuple[float, str] | None:
    """(US dollars, who says so) of an answer; None where nobody knows.

    Args:
        usage: of the answer's body.
        tokens: of prompt and answer, as the endpoint counted them.
    """
    told = told_cost(usage)
    if told is not None:
        return told, BY_ENDPOINT
    prompt, completion = tokens
    if price is None or prompt is None or completion is None:
        return None
    return price.of(prompt, completion, tokens_from_cache(usage)), price.source


def write_prices(cache_db: Path, run_id: str, prices: Mapping[str, Price]) -> None:
    """Keep what the tokens of each role cost in a run."""
    if not prices:
        return
    rows = [(run_id, role, json.dumps(price.as_dict(), sort_keys=True)) for role, price in prices.items()]
    with closing(sqlite3.connect(cache_db, timeout=30)) as connection, connection:
        connection.execute(PRICES_TABLE)
        connection.executemany("INSERT OR REPLACE INTO prices VALUES (?, ?, ?)", rows)


def read_prices(cache_db: Path) -> dict[tuple[str, str], Price]:
    """(run id, role) -> what its tokens cost then."""
    known = _rows(cache_db, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'prices'")
    if not list(known):
        return {}
    rows = _rows(cache_db, "SELECT run_id, role, price FROM prices")
    return {(run_id, role): Price.from_dict(json.loads(price)) for run_id, role, price in rows}


def read_paid(cache_db: Path) -> Iterator[Paid]:
    """Every answer that was paid for, in the order of the journal."""
    for run_id, role, prompt, completion, usage in _rows(cache_db, _PAID):
        yield Paid(run_id, role, prompt, completion, None if usage is None else json.loads(usage))


def spent_so_far(cache_db: Path, prices: Mapping[str, Price]) -> Spending:
    """What was asked from this folder since it was begun; an answer without a known cost adds nothing to `cost`.

    Args:
        prices: role -> its price now: the user's table holds for all answers, another for those of runs that kept none.
    """
    (sent,) = next(_rows(cache_db, _SENT), (0,))
    then = read_prices(cache_db)
    tokens, cost = 0, 0.0
    for paid in read_paid(cache_db):
        tokens += (paid.prompt_tokens or 0) + (paid.completion_tokens or 0)
        now = prices.get(paid.role)
        price = now if now is not None and now.source == BY_TABLE else then.get((paid.run_id, paid.role)) or now
        known = cost_of(paid.usage, (paid.prompt_tokens, paid.completion_tokens), price)
        cost += known[0] if known is not None else 0.0
    return Spending(sent, tokens, cost)


def _rows(cache_db: Path, query: str) -> Iterator[tuple[Any, ...]]:
    if not cache_db.is_file():
        return
    with closing(sqlite3.connect(cache_db, timeout=30)) as connection:
        yield from connection.execute(query)
