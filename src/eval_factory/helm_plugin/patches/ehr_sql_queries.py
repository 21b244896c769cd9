"""A query of EHRSQL as the benchmark's own evaluation executes it.

The three things that it sets are those of github.com/glee4810/EHRSQL, evaluate.py (G. Lee et al., NeurIPS 2022).
Capitals and quotation marks, which it changes too, stay: that would forgive, or break, what a model wrote.
"""

from __future__ import annotations

import re

CURRENT_TIME = "'2105-12-31 23:59:00'"
"""No record of the database is later."""
NORMAL_RANGES = {
    "temperature": (35.5, 38.1),
    "sao2": (95.0, 100.0),
    "heart_rate": (60.0, 100.0),
    "respiration": (12.0, 18.0),
    "systolic_bp": (90.0, 120.0),
    "diastolic_bp": (60.0, 90.0),
    "mean_bp": (60.0, 110.0),
}

_CURRENT_TIME = re.compile(r"\bcurrent_time\b", re.IGNORECASE)
_BOUND = re.compile(rf"\b({'|'.join(NORMAL_RANGES)})_(lower|upper)\b", re.IGNORECASE)


def as_evaluated(query: str) -> str:
    """The query with the time, the days (`%j`: of the year; `%J`: of the Julian calendar) and the bounds filled in."""
    query = _CURRENT_TIME.sub(CURRENT_TIME, query).replace("%j", "%J")
    return _BOUND.sub(lambda found: str(NORMAL_RANGES[found[1].lower()][found[2].lower() == "upper"]), query)
