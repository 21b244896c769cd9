"""Decides which doubts there are about a main score, and turns them into a verdict for the reader.

Scoring decides whether a score may be reported. This module adds the doubts, and it has the colour,
the mark and the words of each verdict for pages and tables. A floor is the best score without a
model, such as the score of always answering A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from eval_factory.core.results import (
    DEMO,
    MODEL_ROLE,
    Floor,
    JuryReport,
    RubricReport,
    Score,
    TaskResult,
)
from eval_factory.scoring.model_names import OTHER_MODEL_STATED, same_model


@dataclass(frozen=True)
class Appearance:
    """The appearance of a verdict on pages and in tables."""

    colour: str  # a class of page.css
    mark: str  # a character that is shown next to the phrase
    phrase: str  # the verdict in a few words, for tables and lists
    title: str  # a headline that says what a reader may do with the score


class Verdict(Enum):
    """Verdicts on what a reader may do with a main score.

    The order is that of severity, the best verdict first: `verdict_of` returns the last one that
    applies.
    """

    GOOD = Appearance("good", "✓", "may be reported", "This score may be reported")
    CHANCE = Appearance(
        "warn", "!", "chance may explain it", "May be reported, but chance may explain it"
    )
    JURY = Appearance(
        "warn",
        "!",
        "judges not shown to agree",
        "May be reported, but its judges are not shown to agree",
    )
    CONSTANT = Appearance(
        "warn",
        "!",
        "a judge rates all answers the same",
        "May be reported, but a judge rates all answers the same",
    )
    OWN_JUDGE = Appearance(
        "warn",
        "!",
        "judged by the evaluated model itself",
        "May be reported, but the evaluated model itself is the judge",
    )
    # The score is not better than the best score without a model. The name also covers an equal
    # score, and a score above it if lower values are better. Public documents use the name `below`.
    BELOW = Appearance(
        "bad",
        "✕",
        "no better than the best score without a model",
        "May be reported, but an answer that needs no model scores as well",
    )
    REFUSED = Appearance("bad", "✕", "not reportable", "Do not report this score")
    DEMO = Appearance("demo", "○", "demo", "Demo: not a measurement")

    @property
    def is_doubt(self) -> bool:
        """True if the score may be reported, but there is a doubt about it."""
        doubts = (
            Verdict.CHANCE,
            Verdict.JURY,
            Verdict.CONSTANT,
            Verdict.OWN_JUDGE,
            Verdict.BELOW,
        )
        return self in doubts


def verdict_of(result: TaskResult) -> Verdict:
    """Return the worst verdict that applies to the main score."""
    if result.is_demo:
        return Verdict.DEMO
    if not result.reportable:
        return Verdict.REFUSED
    # The later a verdict stands in `Verdict`, the worse it is.
    position_of = list(Verdict).index
    return max(doubts_of(result), key=position_of, default=Verdict.GOOD)


def doubts_of(result: TaskResult) -> Iterator[Verdict]:
    """Yield the doubts about a main score that may be reported."""
    floor = result.validity.floors.get(result.main_metric)
    score = result.scores.get(result.main_metric)
    if floor is not None and score is not None:
        if is_no_better(score, floor):
            yield Verdict.BELOW
        elif not is_shown_better(score, floor):
            yield Verdict.CHANCE
    if may_agree_by_chance(result) or are_judges_one_model(result):
        yield Verdict.JURY
    judging_report = _judging_report(result)
    if judging_report is not None and judging_report.constant:
        yield Verdict.CONSTANT
    if is_judged_by_itself(result):
        yield Verdict.OWN_JUDGE


def is_no_better(score: Score, floor: Floor) -> bool:
    """Return True if the score is not better than the best score without a model."""
    if floor.lower_is_better:
        return score.value >= floor.value
    return score.value <= floor.value


def is_shown_better(score: Score, floor: Floor) -> bool:
    """Return True if the score's complete interval is better than the best score without a model.

    A score without an interval is not shown to be better.
    """
    if floor.lower_is_better:
        worst_value = score.stats.ci_high
        return worst_value is not None and worst_value < floor.value
    worst_value = score.stats.ci_low
    return worst_value is not None and worst_value > floor.value


def may_agree_by_chance(result: TaskResult) -> bool:
    """Return True if the judges are not shown to agree more often than by chance.

    Return False if the agreement of the judges was not tested.
    """
    judging_report = _judging_report(result)
    return judging_report is not None and judging_report.is_shown_to_agree is False


def _judging_report(result: TaskResult) -> JuryReport | RubricReport | None:
    """Return the report about the judges; None if no judge was asked."""
    return result.validity.jury or result.validity.rubric


def are_judges_one_model(result: TaskResult) -> bool:
    """Return True if there are several judges, and all of them are the same model.

    Only judges whose model is known are compared. The agreement of a model with itself says
    nothing.
    """
    models = _models_of_judges(result)
    return len(models) > 1 and all(same_model(models[0], model) for model in models)


def is_judged_by_itself(result: TaskResult) -> bool:
    """Return True if the evaluated model is the only judge of its answers.

    Judges whose model is unknown are not considered.
    """
    evaluated = result.provenance.endpoints.get(MODEL_ROLE)
    models = _models_of_judges(result)
    if evaluated is None or not models:
        return False
    return all(same_model(evaluated.main_model, model) for model in models)


def _models_of_judges(result: TaskResult) -> list[str]:
    """Return the name of each judge's model; judges whose endpoint is unknown are left out."""
    endpoints = result.provenance.endpoints
    return [endpoints[judge].main_model for judge in result.validity.judges if judge in endpoints]


@dataclass(frozen=True)
class Refusal:
    """A reason why a score must not be reported."""

    reason: str
    advice: str  # what the user can do about the reason; empty if there is no advice
    section: str  # the id of the page's section that shows more about the reason


def refusals_of(result: TaskResult) -> list[Refusal]:
    """Return each reason why a result must not be reported, with the first advice about it.

    The reason "demo" is left out, because a demo has a card of its own on the page.
    """
    refusals = []
    for text in result.validity.not_reportable:
        # The first line of a text is the reason. Each further line is an advice.
        reason, *advice = map(str.strip, text.split("\n"))
        if reason == DEMO:
            continue
        first_advice = ""
        if advice:
            first_advice = advice[0]
        refusals.append(Refusal(reason, first_advice, _section_of(reason, result)))
    return refusals


def _section_of(reason: str, result: TaskResult) -> str:
    """Return the id of the page's section that shows more about a reason.

    The kind of the reason is recognized by its text, which `scoring/reportable.py` writes.
    """
    # This test is the first, because the answers of a judge may state another model, too.
    if OTHER_MODEL_STATED in reason:
        return "provenance"
    if reason.startswith("judge "):
        if result.validity.failures:
            return "failures"
        if result.validity.rubric is not None:
            return "rubric"
        return "jury"
    if " answers " in reason:
        return "instances"
    return "provenance"
