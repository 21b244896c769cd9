"""Computes the cost of the answers in cache.db, and stores the prices at the time of the run.

The cost is stated by the endpoint, computed from a price, or unknown. A price is stored with the
run that paid it, so that a later version of the price library does not change the cost.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.budget import BY_ENDPOINT, BY_TABLE, BYTES_PER_TOKEN, Price, Spending
from eval_factory.endpoint.response_cache import last_copied_attempt

PRICES_TABLE = """
CREATE TABLE IF NOT EXISTS prices (
    run_id TEXT NOT NULL,
    role TEXT NOT NULL,
    price TEXT NOT NULL,        -- JSON: core/budget.py
    PRIMARY KEY (run_id, role)
)
"""

# In the SQL of this module, `a` is a row of the table attempts, `r` is the row of the table
# responses with the attempt's answer, and `c` is one of the choices in this answer.

_USAGE_OBJECT = (
    "CASE WHEN json_type(r.response, '$.usage') = 'object' THEN json_extract(r.response, "
    "'$.usage') END"
)
USAGE_SQL = f"CASE WHEN json_valid(r.response) THEN {_USAGE_OBJECT} END"
"""The SQL for the object `usage` of an answer, as JSON.

The value is null if the answer is not JSON, or has no such object.
"""

MAX_COST_OF_ANSWER = 1_000_000
"""The maximum cost of an answer, in US dollars. A higher stated cost is an error, and ignored."""

MIN_SHARE_OF_ESTIMATE = 0.25
"""If an endpoint counts less than this share of the estimated tokens, a limit uses the estimate.

The estimate is one token for `BYTES_PER_TOKEN` (4) bytes. A count below this share would mean
tokens of more than 16 bytes on average, which no tokenizer makes.
"""


def _size_sql(*expressions: str) -> str:
    """Return the SQL for the number of bytes of the first expression that is not null."""
    return f"length(CAST(coalesce({', '.join(expressions)}, '') AS BLOB))"


_PROMPT_SIZE = _size_sql(
    "json_extract(r.request, '$.messages')", "json_extract(r.request, '$.prompt')"
)
_TEXT_SIZE = _size_sql(
    "json_extract(c.value, '$.message.content')", "json_extract(c.value, '$.text')"
)
_REASONING_SIZE = _size_sql(
    "json_extract(c.value, '$.message.reasoning_content')",
    "json_extract(c.value, '$.message.reasoning')",
)
_CHOICES = (
    "CASE WHEN json_type(r.response, '$.choices') = 'array' THEN json_extract(r.response, "
    "'$.choices') END"
)
_ANSWER_SIZE = (
    f"SELECT sum({_TEXT_SIZE} + {_REASONING_SIZE}) FROM json_each({_CHOICES}) c "  # noqa: S608
    "WHERE c.type = 'object'"
)

_COLUMNS = f"a.run_id, a.role, a.prompt_tokens, a.completion_tokens, {USAGE_SQL}"
_SIZES = f"""
    CASE WHEN json_valid(r.request) THEN {_PROMPT_SIZE} END,
    CASE WHEN json_valid(r.response) THEN ({_ANSWER_SIZE}) END
"""
# The join has two keys: an answer that turned out to be unusable was paid for too, but is stored
# under another key (`ResponseCache.archive_answer`). The value `created` of an answer is the value
# `started` of its attempt.
_PAID_ATTEMPTS = """
FROM attempts a
LEFT JOIN responses r ON r.key IN (a.key, a.key || '#' || a.started) AND r.created = a.started
WHERE a.outcome = 'answered' AND a.id > ? ORDER BY a.id
"""
_WITH_SIZES = f"SELECT {_COLUMNS}, {_SIZES} {_PAID_ATTEMPTS}"
_WITHOUT_SIZES = f"SELECT {_COLUMNS}, 0, 0 {_PAID_ATTEMPTS}"


@dataclass(frozen=True)
class Paid:
    """An answer that was paid for."""

    run_id: str
    role: str
    tokens: tuple[int | None, int | None]  # of prompt and answer, as the endpoint counted them
    usage: Any  # the `usage` of the answer
    sizes: tuple[int, int]  # bytes of the texts of prompt and answer; (0, 0) if they were not read


def stated_cost(usage: Any) -> float | None:
    """Return the cost in US dollars that an answer's `usage` states (`usage.cost`, of OpenRouter).

    Return None if no cost is stated, or a cost that cannot be true.
    """
    stated: Any = usage.get("cost") if isinstance(usage, Mapping) else None
    is_number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
    if is_number and 0 <= stated <= MAX_COST_OF_ANSWER:
        return float(stated)
    return None


def tokens_from_cache(usage: Any) -> int:
    """Return the prompt tokens that the endpoint read from its own cache, for a lower price.

    Only OpenAI's field counts (`usage.prompt_tokens_details.cached_tokens`).
    """
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    if type(cached) is int and cached > 0:  # not `isinstance`: a boolean is an int too
        return cached
    return 0


def cost_of(
    usage: Any, tokens: tuple[int | None, int | None], price: Price | None
) -> tuple[float, str] | None:
    """Return the cost of an answer as the endpoint states it, or else the cost of its tokens.

    Args:
        usage: the answer's `usage`, as the endpoint sent it.
        tokens: the tokens of prompt and answer; None if the endpoint did not count them.
        price: the price of the model; None if it is unknown.

    Returns:
        (cost in US dollars, source of the cost); None if the cost is unknown.
    """
    stated = stated_cost(usage)
    if stated is not None:
        return stated, BY_ENDPOINT
    if price is None:
        return None
    computed = _computed_cost(usage, tokens, price)
    if computed is None:
        return None
    return computed, price.source


def _computed_cost(
    usage: Any, tokens: tuple[int | None, int | None], price: Price | None
) -> float | None:
    """Return the cost of an answer's tokens in US dollars; None if tokens or price are unknown."""
    prompt, completion = tokens
    if price is None or prompt is None or completion is None:
        return None
    return price.cost_of(prompt, completion, tokens_from_cache(usage))


def tokens_for_limit(
    counted: tuple[int | None, int | None], sizes: tuple[int, int]
) -> tuple[int, int]:
    """Return the tokens of prompt and answer as a limit counts them.

    The tokens are estimated if the endpoint counted none, or too few to be true.

    Args:
        counted: the tokens of prompt and answer by the endpoint; None if it did not count them.
        sizes: the bytes of text of prompt and answer.
    """
    return _tokens_of_text(counted[0], sizes[0]), _tokens_of_text(counted[1], sizes[1])


def _tokens_of_text(counted: int | None, size: int) -> int:
    """Return the tokens of a text with `size` bytes, as a limit counts them."""
    estimated = -(-size // BYTES_PER_TOKEN)  # rounded up
    if counted and counted >= MIN_SHARE_OF_ESTIMATE * estimated:
        return counted
    return estimated


def cost_for_limit(usage: Any, tokens: tuple[int, int], price: Price | None) -> float | None:
    """Return the cost of an answer in US dollars as a limit counts it; None if it is unknown.

    The result is the stated cost or the cost of the tokens, whichever is larger: an endpoint that
    states a cost of 0 must not turn a limit off.

    Args:
        usage: the answer's `usage`, as the endpoint sent it.
        tokens: the tokens of prompt and answer, as `tokens_for_limit` counts them.
        price: the price of the model; None if it is unknown.
    """
    costs = (stated_cost(usage), _computed_cost(usage, tokens, price))
    return max((cost for cost in costs if cost is not None), default=None)


def write_prices(cache_db: Path, run_id: str, prices: Mapping[str, Price]) -> None:
    """Store the price of each role's tokens with a run; without prices, leave the file as it is."""
    if not prices:
        return
    rows = []
    for role, price in prices.items():
        rows.append((run_id, role, json.dumps(asdict(price), sort_keys=True)))
    with closing(sqlite3.connect(cache_db, timeout=30)) as connection, connection:
        connection.execute(PRICES_TABLE)
        connection.executemany("INSERT OR REPLACE INTO prices VALUES (?, ?, ?)", rows)


def read_prices(cache_db: Path) -> dict[tuple[str, str], Price]:
    """Return the stored prices by (run id, role)."""
    # The first run with a price makes the table, so the table may be missing.
    table_query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'prices'"
    if not list(_rows(cache_db, table_query)):
        return {}
    rows = _rows(cache_db, "SELECT run_id, role, price FROM prices")
    return {(run_id, role): Price.from_dict(json.loads(price)) for run_id, role, price in rows}


def read_paid_answers(
    cache_db: Path, after: int = 0, *, with_sizes: bool = False
) -> Iterator[Paid]:
    """Yield every answer that was paid for, in the order of the journal.

    Args:
        cache_db: the run's cache.db.
        after: the id of a journal row; only later rows are read.
        with_sizes: whether to read the sizes of the texts too, which takes long for long answers.
    """
    query = _WITH_SIZES if with_sizes else _WITHOUT_SIZES
    for run_id, role, prompt, completion, usage_json, *sizes in _rows(cache_db, query, after):
        usage = None if usage_json is None else json.loads(usage_json)
        # A size is null if the request or the answer is not stored as JSON.
        prompt_size, answer_size = (size or 0 for size in sizes)
        yield Paid(run_id, role, (prompt, completion), usage, (prompt_size, answer_size))


def spent_so_far(cache_db: Path, prices: Mapping[str, Price]) -> Spending:
    """Return the spending of a folder's runs so far, as limits count it.

    An answer with an unknown cost adds nothing to `cost`.

    Args:
        cache_db: the folder's cache.db.
        prices: the current price of each role. A price from the user's table applies to all
            answers; a price from another source applies to the runs that stored no price.
    """
    # Answers may have been copied from another run. This folder did not pay for them: only later
    # rows of the journal count.
    last_copied_id = last_copied_attempt(cache_db)
    count_query = (
        "SELECT count(*) FROM attempts WHERE outcome IN ('answered', 'retried', 'failed', "
        "'refused', 'interrupted') AND id > ?"
    )
    # The default 0 is for a folder that has no cache.db yet.
    (requests,) = next(_rows(cache_db, count_query, last_copied_id), (0,))
    stored_prices = read_prices(cache_db)
    tokens = 0
    cost = 0.0
    for paid in read_paid_answers(cache_db, last_copied_id, with_sizes=True):
        counted = tokens_for_limit(paid.tokens, paid.sizes)
        tokens += sum(counted)
        price = prices.get(paid.role)
        is_from_users_table = price is not None and price.source == BY_TABLE
        if not is_from_users_table:
            price = stored_prices.get((paid.run_id, paid.role)) or price
        cost_of_answer = cost_for_limit(paid.usage, counted, price)
        if cost_of_answer is not None:
            cost += cost_of_answer
    return Spending(requests, tokens, cost)


def _rows(cache_db: Path, query: str, *values: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query; yield nothing if the file does not exist."""
    if not cache_db.is_file():
        return
    with closing(sqlite3.connect(cache_db, timeout=30)) as connection:
        yield from connection.execute(query, values)
