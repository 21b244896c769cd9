"""A result in sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core.results import (
    Comparability,
    Deviation,
    Floor,
    Instances,
    JudgeCounts,
    JuryReport,
    RubricReport,
    RubricVotes,
    Score,
    Stats,
    TaskResult,
)
from eval_factory.report import sentences
from stored_results import instance, result

STATS = Stats(40, 0.5, None, None, 0.3, 0.7, "wilson")
SHARE = Score(0.5, STATS, "exact_match", "test", None, True, (0.0, 1.0), "share")
RATING = Score(3.456, replace(STATS, ci_low=3.0, ci_high=4.0), "jury", "test", None, True, (1.0, 5.0), "rating")


def made(score: Score | None = SHARE, **changes: Any) -> TaskResult:
    """Changes of the result and of its validity."""
    whole = result([instance(f"q{n}", 1.0) for n in range(4)])
    of_validity = {name: changes.pop(name) for name in list(changes) if hasattr(whole.validity, name)}
    scores = {} if score is None else {"exact_match": score}
    return replace(whole, scores=scores, validity=replace(whole.validity, **of_validity), **changes)


@pytest.mark.parametrize(
    ("score", "told"),
    [
        (SHARE, "50.0 %"), (RATING, "3.46 of 5"), (replace(SHARE, unit="overlap"), "0.5"),
        (replace(SHARE, scale=None), "0.5"), (replace(RATING, scale=None), "3.456"),
    ],
)  # fmt: skip
def test_a_score_is_said_in_its_unit(score: Score, told: str) -> None:
    assert sentences.amount(score.value, score) == told


def test_an_interval_has_both_ends_or_is_none() -> None:
    assert sentences.interval_text(SHARE) == "30.0 % to 70.0 %"
    assert sentences.how_sure(made()) == (
        "With 95 % confidence the score on all such questions is between 30.0 % and 70.0 %."
    )
    without = replace(SHARE, stats=replace(STATS, ci_low=None))
    assert sentences.interval_text(without) == ""
    assert sentences.how_sure(made(without)).startswith("There are too few instances for an interval")
    assert sentences.how_sure(made(None)) == ""


def test_what_was_asked_is_counted() -> None:
    assert sentences.measured(made()) == "The model was given 4 questions."
    assert sentences.measured(made(splits={"test": 1})) == (
        "The model was given 1 question of the test set, 4 requests with every trial and variation counted."
    )
    two = made(splits={"test": 3, "valid": 1}, judges={"gpt": JudgeCounts(4, 4, 0)})
    assert sentences.measured(two, "Each") == (
        "Each was given 4 questions. Its answers were rated by 1 judge (other language models)."
    )
    worded = replace(two.validity, jury=JuryReport({}, None, {}, {}, {"poor": 0, "good": 1}))
    assert sentences.measured(replace(two, validity=worded)).endswith("models). Ratings: poor (0), good (1).")


def test_what_the_score_counts() -> None:
    assert sentences.meaning(made()) == (
        "exact_match, over 40 instances (it is a share: 0 is the worst, 1 the best; higher is better)."
    )
    assert (
        sentences.meaning(made(replace(SHARE, unit=None, higher_is_better=None))) == "exact_match, over 40 instances."
    )
    assert sentences.meaning(made(replace(SHARE, unit=None, higher_is_better=False))).endswith("(lower is better).")
    assert sentences.meaning(made(None)) == "exact_match could not be computed: the notes say why."


def test_missing_scores_are_a_reason_where_no_other_is_stated() -> None:
    assert sentences.missing_scores(made()) == ""
    assert sentences.missing_scores(made(reportable=False)) == "4 of 4 instances have a score of their own."
    assert sentences.missing_scores(made(reportable=False, not_reportable=("x",))) == ""
    gaps = made(
        reportable=False, not_reportable=("x",), instances=Instances(4, 3, 1, 0, 0, 0), something_to_ask=True
    )  # fmt: skip
    assert sentences.missing_scores(gaps) == (
        "3 of 4 instances have a score of their own. The same command asks for what is missing."
    )


def test_troubles_are_counted_with_what_shows_them() -> None:
    assert list(sentences.troubles(Instances(4, 4, 0, 0, 0, 0))) == []
    found = list(sentences.troubles(Instances(9, 3, 1, 2, 3, 4, 5, 6, 7, 0, 8, 9)))
    assert [(count, flag) for count, _, flag in found] == [
        (1, "failed"), (4, "filtered"), (2, "empty"), (8, "thinking_unfinished"), (6, "unparsed"), (5, "unjudged"),
        (9, "prompt_truncated"), (7, "refused"), (3, "cut_off"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("floor", "end"),
    [
        (Floor("A", 0.2, 4, {"A": 0.2}), "and so is its whole interval."),
        (Floor("A", 0.3, 4, {"A": 0.3}), "chance may explain the gap."),
        (Floor("A", 0.5, 4, {"A": 0.5}), "This model is no better than that."),
        (Floor("A", 0.8, 4, {"A": 0.8}, lower_is_better=True), "and so is its whole interval."),
        (Floor("A", 0.7, 4, {"A": 0.7}, lower_is_better=True), "chance may explain the gap."),
        (Floor("A", 0.4, 4, {"A": 0.4}, lower_is_better=True), "This model is no better than that."),
    ],
)
def test_a_score_beside_chance(floor: Floor, end: str) -> None:
    told = sentences.beside_chance(made(floors={"exact_match": floor}), "exact_match")
    assert sentences.chance_may_explain(made(floors={"exact_match": floor})) is not end.startswith("and so is")
    assert told.startswith(f"The best answer that needs no model (A) scores {floor.value * 100:.1f} %. ")
    assert told.endswith(end)


def test_chance_that_is_not_known_is_not_spoken_of() -> None:
    assert sentences.beside_chance(made(), "exact_match") == ""
    assert not sentences.chance_may_explain(made())
    assert sentences.beside_chance(made(None, floors={"exact_match": Floor("A", 0.2, 4, {})}), "exact_match") == ""
    wide = replace(SHARE, stats=replace(STATS, ci_low=None))
    told = sentences.beside_chance(made(wide, floors={"exact_match": Floor("A", 0.2, 4, {})}), "exact_match")
    assert told.endswith("chance may explain the gap.")
    assumed = Floor("empty", 0.2, 4, {}, assumed=True)
    told = sentences.beside_chance(made(floors={"exact_match": assumed}), "exact_match")
    assert "(empty (assumed)) scores 20.0 %" in told
    assert told.endswith(
        "No judge was asked about such an answer: what a text that fits every question gets is not known."
    )


def test_the_leaderboard_in_a_sentence() -> None:
    one = Deviation("top_p", 1.0, 0.5, "odd")
    assert sentences.leaderboard_sentence(made()) == ""
    assert sentences.leaderboard_sentence(made(comparability=Comparability(None, "no such"))) == "no such."
    assert "are those of" in sentences.leaderboard_sentence(made(comparability=Comparability(True)))
    assert sentences.leaderboard_sentence(made(comparability=Comparability(False, None, (one,)))).startswith(
        "1 setting differs"
    )
    assert sentences.leaderboard_sentence(made(comparability=Comparability(False, None, (one, one)))).startswith(
        "2 settings differ"
    )


def test_a_task_is_described_where_it_is_known() -> None:
    assert sentences.about("pubmed_qa") == "Yes/no/maybe questions about PubMed abstracts"
    assert sentences.about("custom.mine") == ""


def test_a_rubric_is_no_rating() -> None:
    rubric = RubricReport(RubricVotes(3, 2, 1, 0), {}, {})
    assert "Its answers were judged criterion by criterion by 1 judge" in sentences.measured(
        made(judges={"one": JudgeCounts(3, 3, 0)}, rubric=rubric)
    )
    assert "Its answers were rated by 1 judge" in sentences.measured(made(judges={"one": JudgeCounts(3, 3, 0)}))
    points = replace(SHARE, unit="share of points")
    assert "the share of a rubric's points that answers win" in sentences.meaning(made(points))
