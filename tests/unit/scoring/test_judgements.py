"""What is missing of a jury's judgements, and what its score could be with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eval_factory.core.jury_form import JuryForm
from eval_factory.core.results import JudgeCounts, Judgements, RankCorrelation
from eval_factory.scoring.judgements import (
    bounds_over_judgements,
    judgements_of,
    judges_that_failed,
    notes_on_agreement,
    rated_by_all,
    score_of_all_judges,
)
from eval_factory.scoring.jury_agreement import Ratings
from eval_factory.scoring.metric_values import InstanceKey, MetricValues

JUDGES = ("a", "b", "c")


def key(number: int) -> InstanceKey:
    return (f"id{number}", 0, None)


def ratings(*given: dict[str, int | tuple[int, ...]] | None) -> Ratings:
    """Of each instance its judges' ratings, one a criterion; None: an answer with nothing in it."""
    made = Ratings()
    for number, of_instance in enumerate(given):
        if of_instance is None:
            made.rate_lowest(key(number))
        for judge, marks in (of_instance or {}).items():
            several = marks if isinstance(marks, tuple) else (marks,)
            made.add(judge, key(number), {f"criterion {place}": mark for place, mark in enumerate(several)})
    return made


def metric(said: Ratings, unjudged: int = 0, helm_mean: float | None = None) -> MetricValues:
    """As HELM computes it, with its default of 1 for the unjudged, which come last."""
    values = said.of_instances()
    values |= {key(len(values) + number): 1.0 for number in range(unjudged)}
    return MetricValues(
        "jury", "jury", helm_mean, merged=helm_mean is None, scale=(1.0, 5.0), values=values, split="test"
    )


def test_each_judge_owes_a_judgement_of_each_answer() -> None:
    said = ratings({"a": 4, "b": 2, "c": 3}, {"a": 4}, None)
    failed = key(7)
    asked = {key(0), key(1), key(2), failed}
    assert judgements_of(said, JUDGES, asked) == Judgements(due=9, given=4)
    assert judgements_of(said, JUDGES, asked).coverage == pytest.approx(4 / 9)
    assert judgements_of(said, ("a", "d"), {key(0), key(1)}) == Judgements(due=4, given=2)
    assert judgements_of(said, JUDGES, {key(1)}) == Judgements(due=3, given=1)


def test_where_no_judgement_is_due_none_is_missing() -> None:
    assert judgements_of(ratings(None), JUDGES, {key(0)}) == Judgements(0, 0)
    assert Judgements(0, 0).coverage == 1.0


def test_rated_by_all_needs_every_judge() -> None:
    said = ratings({"a": 4, "b": 2}, {"a": 4}, {"b": 1, "a": 1}, None)
    assert rated_by_all(said, ("a", "b")) == {key(0), key(2)}
    assert rated_by_all(said, ("a",)) == {key(0), key(1), key(2)}
    assert rated_by_all(said, JUDGES) == set()
    assert rated_by_all(said, ()) == set()


def test_the_score_of_all_judges_is_over_what_each_of_them_rated() -> None:
    said = ratings({"a": 5, "b": 3}, {"a": 1}, {"a": 2, "b": 2})
    score = score_of_all_judges(metric(said), said, ("a", "b"))
    assert score is not None
    assert (score.value, score.stats.count, score.split) == (3.0, 2, "test")


def test_an_answer_with_nothing_in_it_needs_no_judge() -> None:
    """Without it, saying nothing would make this score better."""
    said = ratings({"a": 5, "b": 3}, {"a": 1}, None)
    score = score_of_all_judges(metric(said), said, ("a", "b"))
    assert score is not None
    assert (score.value, score.stats.count) == (2.5, 2)


def test_where_all_or_nothing_is_whole_there_is_no_such_score() -> None:
    whole = ratings({"a": 5, "b": 3}, None)
    assert score_of_all_judges(metric(whole), whole, ("a", "b")) is None
    half = ratings({"a": 5}, {"b": 3}, None)
    assert score_of_all_judges(metric(half), half, ("a", "b")) is None


def test_what_judges_rated_of_another_split_does_not_count() -> None:
    said = ratings({"a": 5, "b": 3}, {"a": 1})
    other = metric(said)
    del other.values[key(0)]
    assert score_of_all_judges(other, said, ("a", "b")) is None


def test_bounds_fill_in_each_missing_judgement() -> None:
    """(5, 3, ?), (?, ?, 2), and one that nobody judged."""
    said = ratings({"a": 5, "b": 3, "c": 4}, {"a": 5, "b": 3}, {"c": 2})
    low, high = bounds_over_judgements(metric(said, unjudged=1), said, JUDGES) or (0.0, 0.0)
    assert low == pytest.approx((4 + (5 + 3 + 1) / 3 + (1 + 1 + 2) / 3 + 1) / 4)
    assert high == pytest.approx((4 + (5 + 3 + 5) / 3 + (5 + 5 + 2) / 3 + 5) / 4)


def test_bounds_are_on_the_benchmarks_own_scale() -> None:
    said = ratings({"a": 5, "b": 3})
    said.form = JuryForm((0, 10))
    assert bounds_over_judgements(replace(metric(said), scale=None), said, JUDGES) == (8 / 3, 18 / 3)


def test_bounds_go_by_judges_whose_criteria_are_several() -> None:
    said = ratings({"a": (5, 3, 4)})
    assert bounds_over_judgements(metric(said), said, ("a", "b")) == (2.5, 4.5)


def test_the_ends_of_the_scale_belong_to_it() -> None:
    lowest, highest = ratings({"a": 1}), ratings({"a": 5})
    assert bounds_over_judgements(metric(lowest), lowest, ("a", "b")) == (1.0, 3.0)
    assert bounds_over_judgements(metric(highest), highest, ("a", "b")) == (3.0, 5.0)


def test_bounds_of_a_whole_jury_are_the_score_to_the_last_digit() -> None:
    said = ratings({"a": 5, "b": 3}, {"a": 4, "b": 3}, None)
    helms = 2.8333333333333337
    assert bounds_over_judgements(metric(said, helm_mean=helms), said, ("a", "b")) == (helms, helms)


def test_an_answer_with_nothing_in_it_is_no_gap() -> None:
    said = ratings({"a": 5}, None)
    assert bounds_over_judgements(metric(said), said, ("a", "b")) == (2.0, 3.0)


def test_marks_beyond_the_scale_have_no_bounds() -> None:
    beyond = ratings({"a": 9})
    assert bounds_over_judgements(metric(beyond), beyond, ("a", "b")) is None
    below = ratings({"a": 0})
    assert bounds_over_judgements(metric(below), below, ("a", "b")) is None
    whole = ratings({"a": 9, "b": 9}, {"a": 3})
    assert bounds_over_judgements(metric(whole), whole, ("a", "b")) is None
    assert bounds_over_judgements(MetricValues("jury", "jury", 2.0, merged=False), Ratings(), JUDGES) is None


def agreement(alpha: float | None, *said: dict[str, int | tuple[int, ...]]) -> list[str]:
    made = ratings(*said)
    return [note.text for note in notes_on_agreement(replace(made.report(), krippendorff_alpha=alpha), made)]


def test_judges_that_agree_beyond_belief_are_told() -> None:
    """Over twenty answers that two or more rated, whatever one of them rated alone."""
    both: list[dict[str, int | tuple[int, ...]]] = [{"a": 3, "b": 3}] * 20
    told = (
        "the judges agree more than different models do (Krippendorff's alpha 0.981 over 20 answers):"
        " does one model, or a cache, answer for several of them?"
    )
    assert agreement(0.981, *both) == [told]
    assert agreement(0.98, *both) == []
    assert agreement(None, *both) == []
    assert agreement(1.0, *both[1:], {"a": 3}, {"b": 3}) == []


@pytest.mark.parametrize(
    ("low", "high", "count", "said"),
    [
        (0.51, 0.91, 20, "gives longer answers better marks: the rank correlation of mark and length is 0.71 (95 %"),
        (0.5, 0.9, 20, None), (0.51, 0.9, 19, None), (-0.9, -0.51, 20, "gives shorter answers better marks"),
        (-0.9, -0.5, 20, None), (-0.9, 0.9, 20, None),
    ],
)  # fmt: skip
def test_a_judge_whose_marks_follow_the_length_is_named(low: float, high: float, count: int, said: str | None) -> None:
    made = ratings({"a": 1})
    found = {"a": RankCorrelation((low + high) / 2, low, high, count), "b": None}
    notes = [note.text for note in notes_on_agreement(replace(made.report(), length_correlation=found), made)]
    assert [note.startswith(f"judge a {said}") for note in notes] == [True] * (said is not None)


def test_a_judge_may_fail_as_often_as_the_limit_says() -> None:
    counts = {
        "whole": JudgeCounts(20, 20, 0), "just": JudgeCounts(30, 27, 3), "more": JudgeCounts(19, 17, 2),
        "gone": JudgeCounts(20, 0, 20), "idle": JudgeCounts(0, 0, 0),
    }  # fmt: skip
    more, gone = judges_that_failed(counts, 0.1)
    assert more.startswith("judge more gave no usable judgement of 2 of 19 answers, and max_judge_failures is 0.1: ")
    assert gone.startswith("judge gone gave no usable judgement of 20 of 20 answers")
    assert "extra.judges" in gone
    assert len(judges_that_failed(counts, 0)) == 3
    assert judges_that_failed(counts, 1) == ()
