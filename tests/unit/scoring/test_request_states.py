"""Tests of what one request and its answer say; which rows repeat."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.endpoint import openai_answers
from eval_factory.helm import output
from eval_factory.scoring import request_states
from eval_factory.scoring.notes import Importance
from facts import says
from unit.scoring.test_tally import entry


def state(**changes: Any) -> output.RequestState:
    return output.RequestState.model_validate(entry(0, **changes))


FILTERED = {"success": False, "error": openai_answers.FILTERED_MESSAGE}


@pytest.mark.parametrize(
    ("result", "has_no_answer", "withheld"),
    [
        (None, True, False),
        ({"success": True, "completions": [{"text": "x"}]}, False, False),
        ({**FILTERED, "success": True}, False, False),
        (FILTERED, False, True),
        ({"success": False, "error": "HTTP 500"}, True, False),
        ({"success": False}, True, False),
    ],
)
def test_what_a_filter_withheld_is_no_failure(
    result: dict[str, Any] | None, *, has_no_answer: bool, withheld: bool
) -> None:
    one = state(result=result)
    assert (request_states.has_failed(one), request_states.was_filtered(one)) == (
        has_no_answer,
        withheld,
    )


def test_why_an_answer_ended() -> None:
    def reason(*reasons: dict[str, Any] | None) -> str | None:
        completions = [{"text": "a", **({"finish_reason": one} if one else {})} for one in reasons]
        return request_states.finish_reason_of(
            state(result={"success": True, "completions": completions})
        )

    assert reason({"reason": "length"}, {"reason": "stop"}) == "length"
    assert reason(None) is reason({"other": 1}) is None
    others = [
        request_states.finish_reason_of(state(result=one))
        for one in ({"success": True}, FILTERED, None)
    ]
    assert others == [None, openai_answers.FILTERED, None]


ROWS = [
    ("id0", "Which?", "a"),
    ("id1", "Which one?", "a"),
    ("id2", "which? ", "A"),  # but for blanks and capitals
    ("id3", "Which?", "b"),
    ("id4", "Which?", "b"),
    ("id5", "Which?\n", "c"),
    ("id6", "Which?a", ""),
]


def test_a_row_is_repeated_where_question_and_gold_answer_are_there_already() -> None:
    instances = request_states.RepeatedInstances()
    assert [instances.add(*row) for row in ROWS] == [False, False, True, False, True, False, False]
    assert (instances.with_same_gold, instances.with_another_gold) == (
        {"id2", "id4"},
        {"id3", "id5"},
    )


def test_the_answers_to_choose_from_are_a_part_of_the_question() -> None:
    instances = request_states.RepeatedInstances()
    choices = ["x", "all"], ["y", "all"], ["all", "x"]
    repeated = [
        instances.add(f"id{number}", "Which?", "all", one) for number, one in enumerate(choices)
    ]
    assert (repeated, instances.with_another_gold) == ([False, False, True], set())
    assert not instances.add("id3", "Which?", "x", ["all", "x"])
    assert instances.with_another_gold == {"id3"}


def test_notes_count_both_kinds() -> None:
    instances = request_states.RepeatedInstances()
    assert list(instances.notes(9)) == []
    for row in ROWS[:5]:
        instances.add(*row)
    repeated, other = instances.notes(7)
    says(repeated.text, "2 of 7 instances", "same question")
    says(other.text, "1 of 7 instances", "another gold answer")
    assert repeated.importance == other.importance == Importance.BACKGROUND
