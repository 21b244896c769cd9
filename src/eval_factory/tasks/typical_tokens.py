"""Reads the typical size of a request of each public task, for estimates before data are
downloaded.

`scripts/make_typical_tokens.py` writes the figures to `typical_tokens.yml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from eval_factory.core.plain_yaml import parse_own_text

FILE = Path(__file__).parent / "typical_tokens.yml"


@dataclass(frozen=True)
class TypicalRequest:
    """The mean size of the requests of one task."""

    prompt_bytes: int
    """The length of the prompt in bytes."""
    answer_tokens: int
    """The number of tokens of an answer, at most the benchmark's own limit."""
    source: str
    """A note on the requests or data from which the figures were computed."""
    judge_requests: float = 0.0
    """The mean number of requests to each judge: one for each criterion of a rubric; 0 if the task
    has no rubric.
    """
    media_tokens: int = 0
    """The approximate number of tokens of pictures and sounds in the prompt; 0 for text only."""


@lru_cache(maxsize=1)
def typical_requests() -> Mapping[str, TypicalRequest]:
    """Return a dict from the name of each task in `typical_tokens.yml` to its typical request."""
    document = parse_own_text(FILE.read_text(encoding="utf-8"))
    requests = {}
    for name, figures in document.items():
        requests[name] = TypicalRequest(**figures)
    return requests
