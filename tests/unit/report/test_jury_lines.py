"""The ratings that judges could give, in words."""

from __future__ import annotations

from dataclasses import replace

from eval_factory.core.results import JuryReport, TaskResult
from eval_factory.report.sentences import ratings_line
from stored_results import instance, result


def rated(scale: tuple[float, float] | None, jury: JuryReport | None, unit: str | None = "rating") -> TaskResult:
    made = result([instance("a", 0.5)], ("jury_score",))
    scores = {name: replace(score, scale=scale, unit=unit) for name, score in made.scores.items()}
    return replace(made, scores=scores, validity=replace(made.validity, jury=jury))


def test_ratings_that_are_not_helms_are_said() -> None:
    jury = JuryReport({}, None, {}, {})
    assert ratings_line(rated((0.0, 10.0), jury)) == "Ratings: 0 to 10"
    assert ratings_line(rated((1.0, 5.0), jury)) is None
    assert ratings_line(rated(None, jury)) is None
    assert ratings_line(rated((0.0, 1.0), jury, unit="share")) is None
    assert ratings_line(rated((0.0, 10.0), None)) is None
    words = replace(jury, labels={"poor": 0, "good": 2})
    assert ratings_line(rated((0.0, 2.0), words)) == "Ratings: poor (0), good (2)"
