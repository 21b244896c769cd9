"""What a stored result can be written for, beside its own reports: `eval-factory report --for NAME`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eval_factory.core.results import TaskResult
from eval_factory.report.model_card import model_card
from eval_factory.report.reader import StoredResult
from eval_factory.report.tripod_llm import tripod_llm

PURPOSES: Mapping[str, Callable[[TaskResult, Mapping[str, Any], Mapping[str, Any]], str]] = {
    "tripod-llm": tripod_llm,
    "model-card": model_card,
}


def written_for(purpose: str, stored: StoredResult) -> str:
    """The text, which ends with a line break. Raises KeyError where there is no such purpose."""
    return PURPOSES[purpose](stored.result, stored.config, stored.target)
