"""Ratings of a sample -> corrected score, bias and agreement of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.annotations import (
    YES_NO,
    Annotations,
    AnswerKey,
    Question,
    Rating,
    RatingChoice,
    Sample,
    SampledAnswer,
    rated_question_of,
)
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.results import (
    Clinicians,
    InstanceRecord,
    JudgeCounts,
    JuryReport,
    TaskResult,
    TooFewRated,
)
from eval_factory.core.rundir import RunDir
from eval_factory.scoring.clinicians import (
    clinicians_of,
    people_scores,
    rated_items,
    with_clinicians,
)
from eval_factory.scoring.prediction_powered import Stratum, corrected_mean
from facts import each_says, says
from known import near, there
from stored_results import instance, result
from unit.core.test_rated_answers import of_rubric

COUNT = 100
DRAWN = 40


def right(number: int) -> float:
    return float(number % 4 != 0)


def yes_no_result(changed: frozenset[int] = frozenset(), **changes: Any) -> TaskResult:
    records = [
        instance(
            f"q{one}",
            right(one),
            completion="another" if one in changed else f"answer {one}",
            **changes,
        )
        for one in range(COUNT)
    ]
    return of(records, "exact_match", (0.0, 1.0))


def of(
    records: list[InstanceRecord], label: str, scale: tuple[float, float], **validity: Any
) -> TaskResult:
    made = result(records, (label,))
    scores = {label: replace(made.scores[label], scale=scale)}
    return replace(made, scores=scores, validity=replace(made.validity, **validity))


def sample_of(
    made: TaskResult, drawn: int = DRAWN, *, sheet: str = "sheet", kind: str | None = None
) -> Sample:
    """The first of the answers, in two strata: even and odd numbers."""
    records = list(made.instances)
    asked = rated_question_of(made, records, kind, frozenset())
    answers = tuple(
        SampledAnswer(
            f"c{place}",
            AnswerKey(one.id, 0),
            asked.sha256_of(one),
            place % 2,
            0.4,
            asked.questions(one),
        )
        for place, one in enumerate(records[:drawn])
    )
    stratum_of = {AnswerKey(one.id, 0).as_text(): place % 2 for place, one in enumerate(records)}
    return Sample(
        sheet,
        asked.kind,
        ("1", "2"),
        asked.choices,
        asked.metric,
        asked.score.scale,
        ("even", "odd"),
        stratum_of,
        answers,
    )


def rated(
    sample: Sample, rater: str, says: Callable[[int, int], float | None], sheet: str = "sheet"
) -> list[Rating]:
    """`says(place of the answer, number of the question from 0)`."""
    ratings = []
    for place, answer in enumerate(sample.answers):
        for number in range(len(answer.questions)):
            value = says(place, number)
            if value is not None:
                ratings.append(Rating(sheet, answer.code, number + 1, rater, value))
    return ratings


def stricter(place: int, _number: int = 0) -> float:
    return right(place) if place % 5 else 0.0


def test_without_a_known_scale_yes_and_no_are_the_ends_of_the_scale() -> None:
    made = yes_no_result()
    sample = sample_of(made)
    annotations = Annotations((sample,), tuple(rated(sample, "1", stricter)))
    score = replace(made.scores["exact_match"], scale=None)
    without_scale = replace(made, scores={"exact_match": score})
    assert clinicians_of(without_scale, annotations) == clinicians_of(made, annotations)


def test_the_score_is_corrected_by_the_strata_of_the_sample() -> None:
    made = yes_no_result()
    sample = sample_of(made)
    ratings = rated(sample, "1", stricter) + rated(
        sample, "2", lambda place, _: right(place) if place % 10 else 0.0
    )
    found = clinicians_of(made, Annotations((sample,), tuple(ratings)))
    people = {
        place: (stricter(place) + (right(place) if place % 10 else 0.0)) / 2
        for place in range(DRAWN)
    }
    pairs = [(people[one], right(one)) for one in range(DRAWN)]
    strata = [
        Stratum([right(one) for one in range(half, COUNT, 2)], pairs[half::2]) for half in (0, 1)
    ]
    expected = corrected_mean(strata, (0.0, 1.0))
    score = there(found.corrected)
    assert (score.value, score.ci_low, score.ci_high) == near(
        (expected.value, expected.low, expected.high)
    )
    assert (score.judge_value, score.power) == near((0.75, expected.power))
    assert (score.metric, score.ci_method) == ("exact_match", "ppi++-stratified")
    assert (found.rated, found.answers, found.raters, found.ratings) == (DRAWN, COUNT, 2, 2 * DRAWN)
    assert (found.too_few, found.notes, there(found.agreement).n) == (None, (), DRAWN)
    judge = found.judges["exact_match"]
    halves = [
        sum(right(one) - people[one] for one in range(half, DRAWN, 2)) / (DRAWN / 2)
        for half in (0, 1)
    ]
    assert judge.bias == near(sum(halves) / 2)
    assert there(judge.bias_low) < sum(halves) / 2 < there(judge.bias_high)
    assert judge.n == DRAWN - sum(people[one] == 0.5 for one in people)


def test_too_few_are_counted_and_the_bias_has_no_interval() -> None:
    made = yes_no_result()
    sample = sample_of(made, 10)
    found = clinicians_of(made, Annotations((sample,), tuple(rated(sample, "1", stricter))))
    assert (found.corrected, found.too_few, found.agreement) == (None, TooFewRated(10, 20), None)
    judge = found.judges["exact_match"]
    bias = sum(right(one) - stricter(one) for one in range(10)) / 10
    assert (judge.bias, judge.bias_low) == (near(bias), None)


def test_ratings_of_other_answers_are_not_used_and_answers_that_came_later_are_told() -> None:
    made = yes_no_result()
    now = yes_no_result(frozenset(range(5)))
    gone = replace(now, instances=[one for one in now.instances if one.id not in ("q7", "q50")])
    fewer = replace(made, instances=list(made.instances)[:90])
    for sample, now, counts, note in (
        (
            sample_of(made),
            gone,
            (DRAWN - 6, COUNT - 2),
            "6 ratings are not used: the answers or questions that they rate have changed since",
        ),
        (
            sample_of(fewer),
            made,
            (DRAWN, COUNT),
            "10 answers came after the sample was drawn: no one could rate them",
        ),
    ):
        found = clinicians_of(now, Annotations((sample,), tuple(rated(sample, "1", stricter))))
        assert (found.rated, found.answers, found.notes) == (*counts, (note,))


def test_the_ratings_of_an_answer_on_two_sheets_are_put_together() -> None:
    made = yes_no_result()
    first = sample_of(made)
    second = sample_of(made, 35, sheet="second")
    ratings = rated(first, "1", stricter) + rated(second, "2", stricter, "second")
    found = clinicians_of(made, Annotations((first, second), tuple(ratings)))
    assert (found.rated, found.raters, found.ratings, there(found.agreement).n) == (
        DRAWN,
        2,
        75,
        35,
    )
    other = replace(second, choices=(RatingChoice(1.0, "1"),))
    alone = clinicians_of(made, Annotations((first, other), tuple(ratings)))
    assert (alone.rated, alone.raters) == (DRAWN, 1)
    assert clinicians_of(made, Annotations((other, first), tuple(ratings))) == alone
    (note,) = alone.notes
    says(note, "1 sheets", "another kind", "not used")


def test_answers_of_one_source_widen_the_interval() -> None:
    made = yes_no_result()
    annotations = Annotations((sample_of(made),), tuple(rated(sample_of(made), "1", stricter)))
    of_four = [
        replace(one, cluster=f"{number % 4}{number // 20}")
        for number, one in enumerate(made.instances)
    ]
    both = [clinicians_of(one, annotations) for one in (made, replace(made, instances=of_four))]
    alone, clustered = (there(one.corrected) for one in both)
    assert clustered.ci_high - clustered.ci_low > 1.5 * (alone.ci_high - alone.ci_low)
    assert clustered.value == alone.value
    assert both[1].notes == ()


def test_too_few_sources_give_no_interval_and_a_note_says_so() -> None:
    made = yes_no_result()
    annotations = Annotations((sample_of(made),), tuple(rated(sample_of(made), "1", stricter)))
    for size, begins, has_score in (
        (30, "of the rated answers, there is no interval: the 2 sources", False),
        (10, "of the rated answers, few sources decide the interval: the 4 sources", True),
    ):
        by_source = [
            replace(one, cluster=str(number // size)) for number, one in enumerate(made.instances)
        ]
        found = clinicians_of(replace(made, instances=by_source), annotations)
        assert [note.startswith(begins) for note in found.notes] == [True]
        assert (found.corrected is not None) is has_score
        assert found.too_few is None
        judge = found.judges["exact_match"]
        assert (judge.bias is not None, judge.bias_low is not None) == (True, has_score)


def test_ratings_that_agree_with_a_judge_leave_room_for_a_bias() -> None:
    made = yes_no_result()
    sample = sample_of(made)
    found = clinicians_of(
        made, Annotations((sample,), tuple(rated(sample, "1", lambda one, _: right(one))))
    )
    judge = found.judges["exact_match"]
    assert judge.bias == 0.0
    assert there(judge.bias_low) < -0.05 < 0.05 < there(judge.bias_high)


def test_an_answer_that_no_judge_was_asked_about_makes_no_judge_of_the_metric() -> None:
    """An empty answer has the least mark of a jury, and no judge's."""
    records = [
        replace(jury(one), judges={}, judgements={}, metrics={"jury": 1.0})
        if one < 5
        else jury(one)
        for one in range(50)
    ]
    made = of(records, "jury", (1.0, 5.0), jury=JuryReport({}, None, {}, {}))
    sample = sample_of(made)
    kind = next(one for one in sample.answers if one.key.id == "q9").questions
    answers = tuple(replace(one, questions=kind) for one in sample.answers)
    found = clinicians_of(
        made,
        Annotations(
            (replace(sample, answers=answers),),
            tuple(rated(replace(sample, answers=answers), "1", lambda _place, _number: 4.0)),
        ),
    )
    assert set(found.judges) == {"kind", "silent"}
    assert found.judges["kind"].bias == near(0.5)


def jury(number: int) -> InstanceRecord:
    marks = {
        "kind": {"accuracy": {"score": 5}, "clarity": {"score": 4}},
        "silent": {"error": "none"},
    }
    return instance(f"q{number}", 4.5, "jury", judgements=marks, judges={"kind": 4.5})


def test_a_jurys_criteria_are_averaged_and_parts_count_for_agreement_alone() -> None:
    judges = dict.fromkeys(("silent", "kind"), JudgeCounts(50, 1, 49))
    made = of(
        [jury(one) for one in range(50)],
        "jury",
        (1.0, 5.0),
        jury=JuryReport({}, None, {}, {}),
        judges=judges,
    )
    sample = sample_of(made)
    ratings = rated(
        sample,
        "1",
        lambda place, number: None if place == 3 and number else float(2 + place % 3 + number),
    )
    found = clinicians_of(made, Annotations((sample,), tuple(ratings)))
    assert (found.rated, found.ratings) == (DRAWN - 1, 2 * DRAWN - 1)
    each_says(found.notes, ["1 answers", "in part", "the corrected score"])
    assert list(found.judges) == list(judges)
    assert (found.judges["kind"].n, found.judges["silent"].n) == (2 * DRAWN - 1, 0)
    score = there(found.corrected)
    assert (score.judge_value, score.value) == (4.5, near(3.5, abs=0.1))
    assert found.judges["kind"].bias == near(1.0, abs=0.1)


def test_points_of_a_rubric_may_be_lost_and_the_score_is_clipped() -> None:
    def case(number: int) -> InstanceRecord:
        met = {"judges": {"one": {"criteria_met": True}}}
        harm = {"judges": {"one": {"criteria_met": number % 3 == 0}}}
        value = -1.0 if number % 3 == 0 else 1.0
        record = of_rubric(
            f"q{number}",
            value,
            {"criterion": "helps", "points": 1, **met},
            {
                "criterion": "harms",
                "points": -2,
                **harm,
            },
        )
        return replace(record, judges={"one": value})

    made = of([case(one) for one in range(60)], "rubric_score", (0.0, 1.0))
    sample = sample_of(made)
    assert sample.kind == "criteria"

    def by_people(says: Callable[[int, int], float | None]) -> Clinicians:
        return clinicians_of(made, Annotations((sample,), tuple(rated(sample, "1", says))))

    harmful = there(by_people(lambda _place, number: float(number)).corrected)  # -2 in every case
    assert (harmful.value, harmful.ci_low, harmful.judge_value) == (0.0, 0.0, near(1 / 3))
    helpful = by_people(lambda _place, number: 1.0 - number)
    assert there(helpful.corrected).value == 1.0
    assert (helpful.judges["one"].bias, helpful.judges["one"].n) == (
        near(-2 / 3, abs=0.05),
        2 * DRAWN,
    )
    # a point less in every case: it is below 0, and no scale ends there
    follows = there(by_people(lambda place, number: float(number and place % 3 == 0)).corrected)
    assert (follows.value, follows.power) == (0.0, near(1.0))


def test_another_main_metric_uses_none_of_them() -> None:
    made = yes_no_result()
    annotations = Annotations((sample_of(made),), tuple(rated(sample_of(made), "1", stricter)))
    other = of([instance("q1", 1.0, "other")], "other", (0.0, 1.0))
    note = (
        "40 ratings are not used: they were made for the metric exact_match, and this result has "
        "no main score by this metric"
    )
    expected = Clinicians(0, 0, 0, 0, too_few=TooFewRated(0, 20), notes=(note,))
    assert (
        clinicians_of(other, annotations)
        == clinicians_of(replace(made, scores={}), annotations)
        == expected
    )


def test_a_folders_ratings_are_read(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    made = yes_no_result()
    assert with_clinicians(made, rundir) is made
    assert people_scores(made, rundir) == {}
    sample = sample_of(made, 3)
    kept = Annotations((sample,), tuple(rated(sample, "1", stricter)))
    rundir.annotations.mkdir()
    rundir.ratings.write_text("".join(kept.as_lines()), "utf-8")
    assert with_clinicians(made, rundir).clinicians == clinicians_of(made, kept)
    assert people_scores(made, rundir) == {
        AnswerKey(f"q{one}", 0): stricter(one) for one in range(3)
    }
    assert people_scores(replace(made, scores={}), rundir) == {}
    assert sample.choices == YES_NO
    assert sample.answers[0].questions == (Question("Is the answer correct?"),)


def folder_with(tmp_path: Path, sample: Sample, *ratings: Rating) -> RunDir:
    rundir = RunDir(tmp_path)
    rundir.annotations.mkdir()
    lines = Annotations((sample,), ratings).as_lines()
    rundir.ratings.write_text("".join(lines), "utf-8")
    return rundir


def test_items_hold_what_each_rater_said_of_the_rated_answers_alone(tmp_path: Path) -> None:
    made = yes_no_result()
    sample = sample_of(made, 4)
    first = rated(sample, "1", lambda place, _: {1: 1.0, 2: 0.0}.get(place))
    second = rated(sample, "2", lambda place, _: {1: 0.0, 3: 1.0}.get(place))
    items, marks, scale = rated_items(made, folder_with(tmp_path, sample, *first, *second))
    labels = {
        item.conversation: dict(zip(item.physicians, item.labels, strict=True)) for item in items
    }
    assert labels == {"q1": {"1": True, "2": False}, "q2": {"1": False}, "q3": {"2": True}}
    assert {item.length for item in items} == {len("answer 1")}
    assert marks == {"exact_match": [True, True, True]}
    assert scale == [False, True]


def test_items_of_a_jury_keep_their_marks_and_a_silent_judge_has_none(tmp_path: Path) -> None:
    judges = dict.fromkeys(("silent", "kind"), JudgeCounts(50, 1, 49))
    report = JuryReport({}, None, {}, {})
    made = of([jury(one) for one in range(50)], "jury", (1.0, 5.0), jury=report, judges=judges)
    sample = sample_of(made, 3)
    ratings = rated(sample, "1", lambda place, number: float(2 + place + number))
    items, marks, scale = rated_items(made, folder_with(tmp_path, sample, *ratings))
    assert [item.labels for item in items] == [(2.0,), (3.0,), (3.0,), (4.0,), (4.0,), (5.0,)]
    assert [item.category for item in items[:2]] == ["accuracy", "clarity"]
    assert marks == {"kind": [5.0, 4.0] * 3}
    assert scale == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_an_item_of_a_rubric_has_its_first_tag_as_category(tmp_path: Path) -> None:
    judged = {"judges": {"one": {"criteria_met": True}, "two": {"error": "none"}}}
    helps = {"criterion": "helps", "points": 1, "tags": ["accuracy", "cluster"], **judged}
    harms = {"criterion": "harms", "points": -2, **judged}
    records = [of_rubric(f"q{number}", 1.0, helps, harms) for number in range(3)]
    made = of(records, "rubric_score", (0.0, 1.0))
    sample = sample_of(made, 1)
    ratings = rated(sample, "1", lambda _place, number: float(number == 0))
    items, marks, _ = rated_items(made, folder_with(tmp_path, sample, *ratings))
    assert [item.category for item in items] == ["accuracy", None]
    assert [item.labels for item in items] == [(True,), (False,)]
    assert marks == {"one": [True, True]}


def test_answers_that_nobody_rated_have_no_items(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="eval-factory annotate"):
        rated_items(yes_no_result(), RunDir(tmp_path))
