"""What kept answers of one model took, each: for an estimate of what more of them will."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from eval_factory.endpoint.openai_api import usage_of
from eval_factory.endpoint.paid_answers import USAGE, told_cost

_KEPT = f"""
SELECT r.latency_s, {USAGE}
FROM responses r WHERE role = ? AND model_id = ? ORDER BY created, key
"""  # noqa: S608 - of constants


@dataclass(frozen=True)
class KeptFigures:
    """Means of kept answers; None where not all of them say it."""

    answers: int
    prompt_tokens: float | None
    completion_tokens: float | None
    latency_s: float | None
    told_cost: float | None
    """US dollars, as the answers say themselves."""


def kept_figures(cache_db: Path, role: str, model_id: str) -> KeptFigures:
    """Of the answers of a model in a role."""
    rows: list[tuple[float, str | None]] = []
    if cache_db.is_file():
        with closing(sqlite3.connect(cache_db, timeout=30)) as connection:
            rows = list(connection.execute(_KEPT, (role, model_id)))
    usages = [None if text is None else json.loads(text) for _, text in rows]
    counts = [usage_of({"usage": usage}) for usage in usages]
    return KeptFigures(
        answers=len(rows),
        prompt_tokens=_mean([prompt for prompt, _ in counts]),
        completion_tokens=_mean([completion for _, completion in counts]),
        latency_s=_mean([latency for latency, _ in rows]),
        told_cost=_mean([told_cost(usage) for usage in usages]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
