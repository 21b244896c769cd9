"""Which trivial answers there are for which questions."""

from __future__ import annotations

import pytest

from eval_factory.helm.trivial_answers import REFUSAL, SUITED, Question, Strategy, strategies, with_answer
from eval_factory.scoring.refusals import is_refusal
from eval_factory.tasks.framework import load_framework


def asked(*right: str, options: dict[str, str] | None = None) -> list[Question]:
    return [Question(f"id{number}", (text,), options or {}) for number, text in enumerate(right)]


def by_name(found: list[Strategy]) -> dict[str, tuple[str, ...]]:
    return {strategy.name: strategy.answers for strategy in found}


YES_NO = {"A": "yes", "B": "no"}


def test_of_options_each_letter_the_majority_and_one_at_random() -> None:
    found = by_name(strategies(asked("yes", "no", "no", options=YES_NO)))
    assert list(found) == ["empty", "refusal", "majority", "always A", "always B", "random"]
    assert found["empty"] == ("",) * 3
    assert found["refusal"] == (REFUSAL,) * 3
    assert found["always B"] == ("B",) * 3
    assert found["majority"] == ("B",) * 3
    assert set(found["random"]) <= {"A", "B"}


def test_a_refusal_is_one_to_what_counts_refusals() -> None:
    assert is_refusal(REFUSAL)


def test_letters_of_all_questions_are_tried_and_drawn_of_the_questions_own() -> None:
    few, many = {"A": "x", "B": "y"}, {"A": "x", "B": "y", "C": "z"}
    questions = [Question(f"id{n}", ("x",), many if n < 20 else few) for n in range(60)]
    found = by_name(strategies(questions))
    assert found["always C"] == ("C",) * 60
    assert set(found["random"][:20]) == {"A", "B", "C"}
    assert set(found["random"][20:]) == {"A", "B"}
    assert by_name(strategies(questions))["random"] == found["random"]
    assert by_name(strategies(questions[5:]))["random"] == found["random"][5:]  # of the question, not of its place


def test_the_majority_is_a_text_wherever_it_stands() -> None:
    turned = {"A": "no", "B": "yes"}
    questions = [Question("0", ("yes",), YES_NO), Question("1", ("yes",), turned), Question("2", ("no",), YES_NO)]
    assert by_name(strategies(questions))["majority"] == ("A", "B", "A")


@pytest.mark.parametrize(
    ("texts", "majority"),
    [
        (("p", "p", "q"), "A"),  # right twice, and offered by one in three: the letter
        (("p", "q", "r"), "A"),
    ],
)
def test_where_texts_are_the_questions_own_the_majority_is_a_letter(texts: tuple[str, ...], majority: str) -> None:
    offered = [{"A": texts[0], "B": "b"}, {"A": "c", "B": "d"}, {"A": "e", "B": "f"}]
    right = [(texts[0],), ("c",), ("f",)]
    questions = [Question(str(n), right[n], offered[n]) for n in range(3)]
    if texts[0] == texts[1]:
        questions[2] = Question("2", (texts[0], "f"), offered[2])
    assert by_name(strategies(questions))["majority"] == (majority,) * 3


def test_half_of_the_questions_are_enough_to_offer_a_text() -> None:
    questions = [
        Question("0", ("yes",), YES_NO), Question("1", ("yes",), {"A": "no", "B": "yes"}),
        Question("2", ("u",), {"A": "u", "B": "v"}), Question("3", ("w",), {"A": "w", "B": "x"}),
    ]  # fmt: skip
    assert by_name(strategies(questions))["majority"] == ("A", "B", "A", "A")


def test_a_text_that_is_right_once_is_no_majority() -> None:
    questions = [Question("0", ("yes",), {"A": "no", "B": "yes"}), Question("1", ("no",), YES_NO)]
    assert by_name(strategies(questions))["majority"] == ("B", "B")


def test_short_right_answers_that_repeat_are_labels() -> None:
    found = by_name(strategies(asked("1", "0", "0", "1 ")))
    assert list(found) == ["empty", "refusal", "majority", "always 0", "always 1", "random"]
    assert found["majority"] == ("0",) * 4
    assert set(found["random"]) <= {"0", "1"}


@pytest.mark.parametrize(
    "right",
    [
        ("1", "0", "2"),  # of three questions, three: nothing repeats enough
        ("a treatment plan of twenty-one characters",) * 4,
        ("", "0", "0", ""),
        tuple(str(number % 13) for number in range(40)),
    ],
)
def test_open_text_has_neither_labels_nor_a_draw(right: tuple[str, ...]) -> None:
    found = by_name(strategies(asked(*right)))
    assert not any(name.startswith("always") for name in found)
    assert "random" not in found
    assert ("majority" in found) is (len(set(right)) < len(right))


def test_twelve_labels_of_twenty_characters_are_labels() -> None:
    right = tuple(f"{number % 12:020d}" for number in range(24))
    assert sum(name.startswith("always") for name in by_name(strategies(asked(*right)))) == 12


def test_what_suits_the_form_that_is_asked_for() -> None:
    sentences = by_name(strategies(asked("CORRECT", "CORRECT", "3 text"), "sentence"))
    assert list(sentences) == ["empty", "refusal", "majority", "always CORRECT", "always 0", "random"]
    assert sentences["majority"] == ("CORRECT",) * 3
    assert set(sentences["random"]) <= {"CORRECT", "3 text"}
    assert list(by_name(strategies(asked("1.5", "2"), "value"))) == ["empty", "refusal", "always 0", "random"]
    assert list(by_name(strategies(asked("SELECT 2", "SELECT 2"), "sql"))) == ["empty", "refusal", "always SELECT 1"]


def test_every_form_of_the_framework_has_its_answers() -> None:
    forms = {task.helm.answer_form for task in load_framework().evaluations} - {None}
    assert forms == SUITED.keys()


def test_of_no_questions_there_are_none() -> None:
    assert strategies([]) == []


def test_a_strategy_knows_whether_it_is_constant() -> None:
    assert Strategy("x", ("a", "a")).constant == "a"
    assert Strategy("x", ("a", "b")).constant is None


def test_an_annotation_of_another_answer_keeps_the_gold_query() -> None:
    answer = {"predicted_result": [[1]], "query_error": None, "query_written": True}
    known = {"predicted_result": [[7]], "query_error": "no", "query_written": False, "ground_truth_rows": [[1]]}
    plain = {**known, **answer}
    assert with_answer(known, answer) == plain
    evaluated = {"predicted_result": [], "query_error": "no", "ground_truth_rows": [[2]]}
    assert with_answer({**known, "as_evaluated": evaluated}, answer) == {
        **plain, "as_evaluated": {"predicted_result": [[1]], "query_error": None, "ground_truth_rows": [[2]]},
    }  # fmt: skip
