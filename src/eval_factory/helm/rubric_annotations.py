"""What the judges of a rubric said, as it stands among HELM's annotations of an answer. Pure functions.

`{"rubric": {"criteria": [{"gpt": {"criteria_met": true, "explanation": "..."}, "llama": {"error": "..."}}, ...]}}`: an
entry for each criterion, in the case's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval_factory.helm.criterion_output import ERROR, MET

ANNOTATION = "rubric"
CRITERIA = "criteria"


def annotation_of(said: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    return {CRITERIA: [dict(by_judge) for by_judge in said]}


def said_of(annotations: Mapping[str, Any] | None, count: int) -> list[dict[str, dict[str, Any]]]:
    """Of each of `count` criteria what each judge said; nothing where the answer was not judged."""
    found = ((annotations or {}).get(ANNOTATION) or {}).get(CRITERIA)
    if not isinstance(found, list) or len(found) != count:
        return [{} for _ in range(count)]
    return [dict(one) if isinstance(one, Mapping) else {} for one in found]


def decisions_of(
    annotations: Mapping[str, Any] | None, judges: Iterable[str], count: int
) -> list[dict[str, bool | None]]:
    """Of each criterion each judge's decision; None where it gave none."""
    judges = tuple(judges)
    return [{judge: _met(one.get(judge)) for judge in judges} for one in said_of(annotations, count)]


def error_of(said: Mapping[str, Mapping[str, Any]], judge: str) -> str | None:
    """Why a judge gave no decision, where that was written down."""
    found = said.get(judge)
    reason = found.get(ERROR) if isinstance(found, Mapping) else None
    return reason if isinstance(reason, str) else None


def _met(told: Any) -> bool | None:
    met = told.get(MET) if isinstance(told, Mapping) else None
    return met if isinstance(met, bool) else None
