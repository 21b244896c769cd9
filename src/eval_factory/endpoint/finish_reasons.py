"""Maps the finish reasons of many servers to a few common kinds.

A finish reason states why a server ended its answer. The table of the reasons is
finish_reasons.yml, which also names the source of each reason.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from eval_factory.core.plain_yaml import load_packaged

_PREFIX = "finish_reason_"
"""The prefix of Google's finish reasons over gRPC, such as FINISH_REASON_MAX_TOKENS."""


@cache
def _kinds() -> dict[str, str]:
    """Return the kind of each finish reason, by the reason in lower case."""
    kinds: dict[str, str] = {}
    for row in load_packaged("endpoint/finish_reasons.yml"):
        for reason in row["reasons"]:
            kinds[reason] = row["kind"]
    return kinds


def kind_of(reason: Any) -> str | None:
    """Return the kind of a finish reason; None if the table does not have the reason."""
    if not isinstance(reason, str):
        return None
    # Some servers add details after a colon; spaces and hyphens count as underscores.
    word, _, _ = reason.partition(":")
    normalized = re.sub(r"[\s-]+", "_", word.strip().lower())
    return _kinds().get(normalized.removeprefix(_PREFIX))
