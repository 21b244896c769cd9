"""Which trivial answers there are for which questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.helm import names
from eval_factory.helm.trivial_answers import (
    FORM_ANSWERS,
    REFUSAL,
    AskedQuestion,
    Strategy,
    StrategyScores,
    TrivialScores,
    ehr_sql_annotation_of_strategy,
    read_trivial_scores,
    strategies,
)
from eval_factory.reading import is_refusal
from eval_factory.tasks.framework import load_framework


def asked(*right: str, options: dict[str, str] | None = None) -> list[AskedQuestion]:
    return [
        AskedQuestion(f"id{number}", (text,), options or {}) for number, text in enumerate(right)
    ]


def by_name(found: list[Strategy]) -> dict[str, tuple[str, ...]]:
    """Those with one answer to each question."""
    sure = [strategy for strategy in found if all(len(likely) == 1 for likely in strategy.answers)]
    return {strategy.name: tuple(likely[0] for likely in strategy.answers) for strategy in sure}


def likely(found: list[Strategy]) -> tuple[tuple[str, ...], ...]:
    return next(strategy.answers for strategy in found if strategy.name == "random")


YES_NO = {"A": "yes", "B": "no"}


def test_of_options_each_letter_the_majority_and_any_at_random() -> None:
    made = strategies(asked("yes", "no", "no", options=YES_NO))
    assert [one.name for one in made] == [
        "empty",
        "refusal",
        "majority",
        "always A",
        "always B",
        "random",
    ]
    assert [one.constant for one in made] == ["", REFUSAL, "B", "A", "B", None]
    assert strategies([]) == []
    found = by_name(made)
    assert {found[name] for name in ("always B", "majority")} == {("B",) * 3}
    assert (found["empty"], found["refusal"]) == (("",) * 3, (REFUSAL,) * 3)
    assert likely(made) == (("A", "B"),) * 3
    assert is_refusal(REFUSAL)
    few = {"A": "x", "B": "y"}
    many = {"A": "x", "B": "y", "C": "z"}
    made = strategies([AskedQuestion("0", ("x",), many), AskedQuestion("1", ("x",), few)])
    assert by_name(made)["always C"] == ("C", "C")
    assert likely(made) == (("A", "B", "C"), ("A", "B")), "at random those of the question's own"


def test_the_longest_and_the_shortest_option_and_of_equals_the_first() -> None:
    offered = [
        {"A": "ab", "B": "a", "C": "abc"},
        {"A": "a", "B": "ab", "C": "ab"},
        {"A": "b", "B": "a"},
    ]
    found = by_name(
        strategies([AskedQuestion(str(n), ("a",), options) for n, options in enumerate(offered)])
    )
    assert found["longest option"] == ("C", "B", "A")
    assert found["shortest option"] == ("B", "A", "A")
    one_only = [AskedQuestion("0", ("a",), offered[0]), AskedQuestion("1", ("a",), {"A": "a"})]
    for questions in (asked("yes", "no", options=YES_NO), one_only, asked("open", "text")):
        assert not {"longest option", "shortest option"} & by_name(strategies(questions)).keys()


@pytest.mark.parametrize("longer_is_wrong", [True, False])
@pytest.mark.parametrize("in_last_paragraph", [True, False])
@pytest.mark.parametrize("options", [{}, YES_NO, {"A": "no", "B": "yes"}])
def test_of_two_classes_a_length_between_them(
    longer_is_wrong: bool, in_last_paragraph: bool, options: Any
) -> None:
    questions = []
    # a right and a wrong answer in turn: halves by position would hold one class each
    for number in range(40):
        right = "yes" if number % 2 else "no"
        is_longer = (right == "no") is longer_is_wrong
        words = "x" * ((30 if is_longer else 20) + number % 5)
        text = (
            f"{'k' * (number * 37 % 400)}\n\nAnswer: {words}\n"
            if in_last_paragraph
            else f"{words}\n\nx"
        )
        questions.append(AskedQuestion(f"id{number}", (right,), options, text))
    answers = by_name(strategies(questions))["length threshold"]
    named = [options.get(answer, answer) for answer in answers]
    assert (
        sum(answer in question.right for answer, question in zip(named, questions, strict=True))
        == 40
    )


def test_a_length_says_nothing_of_classes_that_do_not_differ_in_it() -> None:
    """What was fitted on these questions themselves would be right for more than half of them."""
    questions = [
        AskedQuestion(f"id{n}", (str(n // 7 % 2),), {}, "x" * (n * 7919 % 1009)) for n in range(400)
    ]
    answers = by_name(strategies(questions))["length threshold"]
    right = sum(
        answer in question.right for answer, question in zip(answers, questions, strict=True)
    )
    assert 160 < right < 240


def test_no_length_is_fitted_to_other_than_two_classes_that_repeat() -> None:
    one_length = by_name(strategies(asked(*"000001000010")))
    assert one_length["length threshold"] == ("0",) * 12, "no cut between equal lengths"
    of_two_right = [AskedQuestion(str(number), ("0", "1"), {}) for number in range(4)]
    for questions in (asked(*"012" * 4), asked(*"0001"), asked(*"1111"), of_two_right):
        assert "length threshold" not in by_name(strategies(questions))


def test_what_is_usual_for_a_source_is_what_the_other_half_of_its_questions_say() -> None:
    of = {"bmi": ["22"] * 5 + ["30"], "gcs": ["15"] * 5 + ["3"], "alone": ["7"], None: ["22"]}
    numbered = []
    for source, texts in of.items():
        numbered += [(source, number, text) for number, text in enumerate(texts)]
    questions = [
        AskedQuestion(f"{source}{number}", (text,), {}, source=source)
        for source, number, text in numbered
    ]
    found = by_name(strategies(questions, "value", source_noun="calculator"))
    answers = dict(
        zip([question.id for question in questions], found["majority by calculator"], strict=True)
    )
    assert [answers[f"bmi{number}"] for number in range(6)] == ["22"] * 6
    assert [answers[f"gcs{number}"] for number in range(6)] == ["15"] * 6
    assert (answers["alone0"], answers["None0"]) == (found["majority"][0],) * 2, (
        "they share no source"
    )
    pair = [
        AskedQuestion(str(number), (text,), {}, source="s")
        for number, text in enumerate(["p", "q"])
    ]
    assert by_name(strategies(pair, "value"))["majority by source"] == ("q", "p"), (
        "nobody is answered by itself"
    )
    assert "majority by source" not in by_name(strategies(asked("1", "1"), "value"))


def test_the_first_sentences_of_the_source_up_to_the_words_of_half_of_the_references() -> None:
    text = "He coughs. Is it flu?\n\nNo fever today! He is well."
    references = ["one two three four five", "one two three four five", "six " * 50]
    questions = [AskedQuestion(str(n), (right,), {}, text) for n, right in enumerate(references)]
    questions.append(
        AskedQuestion("3", ("one two",), {}, "A first sentence of more than five words. Another.")
    )
    found = by_name(strategies(questions, compares_words=True))
    assert found["first sentences"] == ("He coughs. Is it flu?",) * 3 + (
        "A first sentence of more than five words.",
    )
    assert "first sentences" not in by_name(strategies(questions))
    assert "first sentences" not in by_name(
        strategies(asked("1", "0", "0", "1"), compares_words=True)
    )
    assert by_name(strategies([AskedQuestion("0", (), {}, "A. B.")], compares_words=True))[
        "first sentences"
    ] == ("A.",)


def test_the_majority_is_a_text_wherever_it_stands() -> None:
    turned = {"A": "no", "B": "yes"}
    given = [("yes", YES_NO), ("yes", turned), ("no", YES_NO)]
    questions = [
        AskedQuestion(str(n), (right,), options) for n, (right, options) in enumerate(given)
    ]
    assert by_name(strategies(questions))["majority"] == ("A", "B", "A")
    once = [AskedQuestion("0", ("yes",), turned), AskedQuestion("1", ("no",), YES_NO)]
    assert by_name(strategies(once))["majority"] == ("B", "B"), "a text that is right once is none"
    of_a_source = [
        AskedQuestion(str(n), ("yes",), YES_NO if n % 2 else turned, source="s") for n in range(4)
    ]
    assert by_name(strategies(of_a_source))["majority by source"] == ("B", "A", "B", "A")
    given = [
        ("yes", YES_NO),
        ("yes", turned),
        ("u", {"A": "u", "B": "v"}),
        ("w", {"A": "w", "B": "x"}),
    ]
    half = [AskedQuestion(str(n), (right,), options) for n, (right, options) in enumerate(given)]
    assert by_name(strategies(half))["majority"] == ("A", "B", "A", "A"), (
        "half of the questions are enough to offer it"
    )


@pytest.mark.parametrize(
    "last", [("f",), ("p", "f")]
)  # a text right twice, and offered by one in three
def test_where_texts_are_the_questions_own_the_majority_is_a_letter(last: tuple[str, ...]) -> None:
    offered = [{"A": "p", "B": "b"}, {"A": "c", "B": "d"}, {"A": "e", "B": "f"}]
    questions = [
        AskedQuestion(str(n), right, offered[n]) for n, right in enumerate([("p",), ("c",), last])
    ]
    assert by_name(strategies(questions))["majority"] == ("A",) * 3


def test_short_right_answers_that_repeat_are_labels() -> None:
    made = strategies(asked("1", "0", "0", "1 "))
    assert [one.name for one in made] == [
        "empty",
        "refusal",
        "majority",
        "always 0",
        "always 1",
        "random",
    ]
    assert by_name(made)["majority"] == ("0",) * 4
    assert likely(made) == (("0", "1"),) * 4
    twelve_of_twenty = tuple(f"{number % 12:020d}" for number in range(24))
    assert (
        sum(name.startswith("always") for name in by_name(strategies(asked(*twelve_of_twenty))))
        == 12
    )


@pytest.mark.parametrize(
    "right",
    [
        ("1", "0", "2"),  # of three questions, three: nothing repeats enough
        ("a treatment plan of twenty-one characters",) * 4,
        ("", "0", "0", ""),
        tuple(str(number % 13) for number in range(40)),
    ],
)
def test_open_text_has_neither_labels_nor_a_random_one(right: tuple[str, ...]) -> None:
    found = {strategy.name for strategy in strategies(asked(*right))}
    assert not any(name.startswith("always") for name in found)
    assert "random" not in found
    assert ("majority" in found) is (len(set(right)) < len(right))


def test_what_suits_the_form_that_is_asked_for() -> None:
    assert {task.helm.answer_form for task in load_framework().evaluations} - {
        None
    } == FORM_ANSWERS.keys()
    sentences = by_name(strategies(asked("CORRECT", "CORRECT", "3 text"), "sentence"))
    assert list(sentences) == ["empty", "refusal", "majority", "always CORRECT", "always 0"]
    assert sentences["majority"] == ("CORRECT",) * 3
    assert list(by_name(strategies(asked("1.5", "2"), "value"))) == ["empty", "refusal", "always 0"]
    assert list(by_name(strategies(asked("SELECT 2", "SELECT 2"), "sql"))) == [
        "empty",
        "refusal",
        "always SELECT 1",
    ]


def test_an_annotation_of_another_answer_keeps_the_gold_query() -> None:
    answer = {"predicted_result": [[1]], "query_error": None, "query_written": True}
    known = {
        "predicted_result": [[7]],
        "query_error": "no",
        "query_written": False,
        "ground_truth_rows": [[1]],
    }
    plain = {**known, **answer}
    assert ehr_sql_annotation_of_strategy(known, answer) == plain
    evaluated = {"predicted_result": [], "query_error": "no", "ground_truth_rows": [[2]]}
    assert ehr_sql_annotation_of_strategy({**known, "as_evaluated": evaluated}, answer) == {
        **plain,
        "as_evaluated": {
            "predicted_result": [[1]],
            "query_error": None,
            "ground_truth_rows": [[2]],
        },
    }


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    same = StrategyScores(name="always A", answer="A", values={"exact_match": [1.0, None]})
    drawn = StrategyScores(name="random", answers=["A", "B"], values={})
    made = TrivialScores(
        run="r", questions=[("a", 0, "test"), ("b", 0, None)], strategies=[same, drawn]
    )
    made.write(tmp_path)
    assert read_trivial_scores(tmp_path) == made
    text = (tmp_path / names.TRIVIAL_SCORES_FILE).read_text()
    assert json.loads(text) == {
        "run": "r",
        "questions": [["a", 0, "test"], ["b", 0, None]],
        "strategies": [
            {"name": "always A", "answer": "A", "values": {"exact_match": [1, None]}},
            {"name": "random", "answers": ["A", "B"], "values": {}},
        ],
    }, "what is a default is not written"
    assert '"exact_match": [1, null]' in text
    (read,) = (
        one for one in (read_trivial_scores(tmp_path) or made).strategies if one.name == "always A"
    )
    assert type(read.values["exact_match"][0]) is int, "which is the same object each time"
    assert [same.answer_to(1), drawn.answer_to(0), drawn.answer_to(1)] == ["A", "A", "B"]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"run": 1}', "\x00"])
def test_what_cannot_be_read_is_no_file(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / names.TRIVIAL_SCORES_FILE).write_text(text)
    assert read_trivial_scores(tmp_path) is None
