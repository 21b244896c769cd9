"""Tests of the questions to raters about an answer, and of the judges' ratings of the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core import annotations as annotated
from eval_factory.core.annotations import YES_NO, AnswerKey, Question, RatingChoice
from eval_factory.core.errors import ConfigError
from eval_factory.core.results import InstanceRecord, JuryReport, TaskResult
from facts import naming
from stored_results import instance, result

MARKS = {
    "kind": {
        "accuracy": {"score": 5, "explanation": "good"},
        "clarity": {"score": 4, "explanation": "x"},
    },
    "silent": {"error": "it said nothing"},
    "odd": {"accuracy": {"score": True}, "clarity": "none"},
}


def of_rubric(key: str, value: float, *criteria: dict[str, Any]) -> InstanceRecord:
    return instance(key, value, "rubric_score", criteria=criteria)


CASE = of_rubric(
    "r",
    0.5,
    {
        "criterion": "says when",
        "points": 5,
        "judges": {"one": {"criteria_met": True}, "two": {"criteria_met": False}},
    },
    {
        "criterion": "harms",
        "points": -3,
        "judges": {"one": {"criteria_met": False}, "two": {"error": "none"}},
    },
)


def of_jury(value: float = 4.5) -> InstanceRecord:
    return instance("j", value, "jury", judgements=MARKS, judges={"kind": 4.5})


def scored(
    record: InstanceRecord, label: str, scale: tuple[float, float] | None, **validity: Any
) -> TaskResult:
    made = result([record], (label,))
    score = replace(made.scores[label], scale=scale)
    return replace(made, scores={label: score}, validity=replace(made.validity, **validity))


def asked(
    record: InstanceRecord, label: str, scale: tuple[float, float] | None, **more: Any
) -> annotated.RatedQuestion:
    kind = more.pop("kind", None)
    return annotated.rated_question_of(
        scored(record, label, scale, **more), [record], kind, frozenset(["You are GPT."])
    )


def test_answers_that_are_right_or_wrong_are_rated_yes_or_no() -> None:
    found = asked(instance("q", 1.0), "exact_match", (0, 1))
    shown = found.shown_answer(instance("q", 1.0, trial=2))
    assert (shown.key, shown.turns) == (AnswerKey("q", 2), (("user", "What is q?"),))
    assert shown.answer == "answer to q"
    assert (shown.references, shown.questions) == (("yes",), (Question(annotated.IS_CORRECT),))
    assert found.choices == YES_NO
    assert found.judge_ratings_of(instance("q", 1.0)) == {"exact_match": {0: 1.0}}
    assert found.scores_of(instance("q", 0.0)) == {"exact_match": 0.0}
    assert found.score_by(shown.questions, [1.0]) == 1.0
    assert found.judge_ratings_of(instance("q", None)) == {}
    assert found.scores_of(instance("q", None)) == {}


def test_a_jurys_criteria_are_asked_on_its_scale() -> None:
    found = asked(of_jury(), "jury", (1, 5), jury=JuryReport({}, None, {}, {}))
    assert found.questions(of_jury()) == (Question("accuracy"), Question("clarity"))
    assert found.choices == tuple(RatingChoice(float(one), str(one)) for one in range(1, 6))
    assert found.judge_ratings_of(of_jury()) == {"kind": {0: 5.0, 1: 4.0}, "silent": {}, "odd": {}}
    assert found.scores_of(of_jury()) == {"kind": 4.5}
    assert found.score_by(found.questions(of_jury()), [1.0, 4.0]) == 2.5


def test_labels_and_criteria_of_the_benchmark_are_shown_to_raters() -> None:
    jury = JuryReport(
        {}, None, {}, {}, {"good": 9, "poor": 1}, {"clarity": "a patient understands it"}
    )
    found = asked(of_jury(), "jury", (1, 9), jury=jury)
    assert found.choices == (RatingChoice(1.0, "poor"), RatingChoice(9.0, "good"))
    assert found.questions(of_jury()) == (
        Question("accuracy"),
        Question("clarity: a patient understands it"),
    )
    assert found.judge_ratings_of(of_jury())["kind"] == {0: 5.0, 1: 4.0}
    assert asked(CASE, "rubric_score", (0, 1), jury=jury).choices == YES_NO


def test_each_criterion_of_a_rubric_is_met_or_not() -> None:
    found = asked(CASE, "rubric_score", (0, 1))
    assert found.kind == "criteria"
    assert found.questions(CASE) == (Question("says when", 5.0), Question("harms", -3.0))
    assert found.judge_ratings_of(CASE) == {"one": {0: 1.0, 1: 0.0}, "two": {0: 0.0}}
    assert found.score_by(found.questions(CASE), [1.0, 1.0]) == pytest.approx(2 / 5)
    whole = asked(CASE, "rubric_score", (0, 1), kind="ratings")
    assert [one.label for one in whole.choices] == ["0", "0.25", "0.5", "0.75", "1"]
    assert whole.questions(CASE) == (Question(annotated.HOW_GOOD),)
    assert whole.sha256_of(CASE) != found.sha256_of(CASE)


def test_any_part_of_what_is_shown_changes_its_digest() -> None:
    shown = [
        ("q", "a", "c"),
        ("q", "b", "c"),
        ("q", "a", "d"),
        ("qa", "", "c"),
        ("\ud800", "a", "c"),
    ]
    found = asked(CASE, "rubric_score", (0, 1))
    digests = {
        found.sha256_of(
            replace(
                CASE,
                prompt=prompt,
                completion=completion,
                criteria=({"criterion": name, "points": 1},),
            )
        )
        for prompt, completion, name in shown
    }
    assert len(digests) == len(shown)


def test_turns_are_shown_without_what_says_who_answers() -> None:
    turns = (
        {"role": "system", "content": "You are GPT."},
        {"role": "system", "content": "A ward."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image"}]},
    )
    found = asked(instance("q", 1.0), "exact_match", (0, 1))
    assert found.shown_answer(instance("q", 1.0, turns=turns)).turns == (
        ("system", "A ward."),
        ("user", "Hi\n"),
    )
    alone = found.shown_answer(instance("q", 1.0, turns=turns[:1]))
    assert alone.turns == (("user", "What is q?"),)


@pytest.mark.parametrize(
    "record",
    [
        instance("q", 1.0, perturbation="typos"),
        instance("q", 1.0, split="valid"),
        instance("q", None),
        instance("q", 1.0, "x"),
    ],
)
def test_what_the_main_score_is_not_made_of_is_not_rated(record: InstanceRecord) -> None:
    found = asked(instance("q", 1.0), "exact_match", (0, 1))
    assert found.value_of(record) is None
    assert found.value_of(instance("q", 1.0)) == 1.0


@pytest.mark.parametrize(
    ("scale", "values", "labels"),
    [
        ((0, 1), [0.0, 1.0], ["yes", "no"]),
        ((0, 1), [0.5], ["0", "0.25", "0.5", "0.75", "1"]),
        ((0, 10), [3.0], [str(one) for one in range(11)]),
        ((0, 100), [3.0], ["0", "25", "50", "75", "100"]),
        ((1, 3), [1.0], ["1", "2", "3"]),
        ((0, 2.5), [1.0], ["0", "0.625", "1.25", "1.875", "2.5"]),
        (None, [1.0], []),
    ],
)
def test_a_scale_gives_its_ratings(
    scale: tuple[float, float] | None, values: list[float], labels: list[str]
) -> None:
    assert [one.label for one in annotated.ratings_on_scale(scale, values)] == labels


@pytest.mark.parametrize(
    ("record", "scale", "kind", "said"),
    [
        (instance("q", 1.0), (0, 1), "criteria", "pubmed_qa has no rubric"),
        (instance("q", 1.0), None, None, "exact_match has no scale with two ends"),
        (
            instance("q", 1.0, "other"),
            (0, 1),
            None,
            "exact_match has no values of single answers",
        ),
    ],
)
def test_what_nobody_can_rate_is_refused(
    record: InstanceRecord, scale: Any, kind: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        asked(record, "exact_match", scale, kind=kind)
    with pytest.raises(ConfigError, match=naming("exact_match could not")):
        annotated.rated_question_of(replace(result([]), scores={}), [], None, frozenset())
