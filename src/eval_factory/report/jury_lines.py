"""The ratings that the judges of a run could give, in words, where they are not HELM's 1 to 5."""

from __future__ import annotations

from eval_factory.core.jury_form import HELMS_FORM
from eval_factory.core.results import TaskResult

_RATING = "rating"
"""The unit of a jury's score."""


def ratings_line(result: TaskResult) -> str | None:
    """One line; None where no jury was asked, or on HELM's own scale."""
    jury = result.validity.jury
    if jury is None:
        return None
    if jury.labels:
        return f"Ratings: {', '.join(f'{label} ({value})' for label, value in jury.labels.items())}"
    scale = next((score.scale for score in result.scores.values() if score.unit == _RATING), None)
    if scale is None or scale == HELMS_FORM.scale:
        return None
    return f"Ratings: {scale[0]:g} to {scale[1]:g}"
