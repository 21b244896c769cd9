"""Texts of what is asked again, and how its answers are read."""

from __future__ import annotations

from itertools import islice

import pytest

from eval_factory.tasks.asking_forms import (
    CONFIDENCE_FORMS,
    CONFIDENCE_QUESTION,
    DOUBTS_WITH_AUTHORITY,
    MAX_TURNS,
    NEUTRAL_DOUBTS,
    begins_not_to_know,
    confidence_in,
    follows_an_answer,
    is_further_asking,
    is_in_another_form,
    may_abstain_text,
    pushback_text,
    pushback_turn_of,
    says_not_to_know,
    split_confidence,
)

INSTANCES = [f"id{number}" for number in range(60)]


def test_each_doubt_comes_once_neutral_and_with_authority_in_turn() -> None:
    first = set()
    for instance in INSTANCES:
        said = [pushback_text(instance, turn) for turn in range(1, MAX_TURNS + 1)]
        assert said == [pushback_text(instance, turn) for turn in range(1, MAX_TURNS + 1)]
        assert sorted(said) == sorted((*NEUTRAL_DOUBTS, *DOUBTS_WITH_AUTHORITY))
        assert {text in NEUTRAL_DOUBTS for text in said[::2]} != {
            text in NEUTRAL_DOUBTS for text in said[1::2]
        }
        first.add(said[0])
    assert len(first) == MAX_TURNS, "the order depends on the instance"


def test_no_doubt_holds_an_answer() -> None:
    for text in (*NEUTRAL_DOUBTS, *DOUBTS_WITH_AUTHORITY):
        words = set(text.replace(".", " ").replace("?", " ").replace(",", " ").split())
        assert words.isdisjoint(
            {"A", "B", "C", "D", "E", "yes", "no", "maybe", "CORRECT", "0", "1"}
        )


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("85", 0.85),
        ("85 %", 0.85),
        ("Confidence: 85%", 0.85),
        ("0", 0.0),
        ("100", 1.0),
        ("85/100", 0.85),
        ("90 out of 100", 0.9),
        ("100/100", 1.0),
        ("72.5", 0.725),
        ("72,5", 0.725),
        ("85. I am 85 % sure", 0.85),
        ("", None),
        ("very sure", None),
        ("between 80 and 90", None),
        ("850", None),
        ("-", None),
        ("I'm not sure of the number, so 100%", None),
    ],
)
def test_one_number_is_a_confidence_and_nothing_else_is(reply: str, found: float | None) -> None:
    assert confidence_in(reply) == found


def test_each_form_of_a_confidence_is_read_as_its_examples_say() -> None:
    for form in CONFIDENCE_FORMS:
        for reply, value in form.examples.items():
            assert confidence_in(reply) == value, reply


def test_a_share_is_a_confidence_only_where_shares_were_asked_for() -> None:
    assert [confidence_in(reply, shares=True) for reply in ("0.9", ".85", "1.0")] == [0.9, 0.85, 1]
    assert [confidence_in(reply) for reply in ("0.9", ".85", "1.0")] == [None, None, None]


@pytest.mark.parametrize(
    ("text", "answer", "said"),
    [
        ("B\nConfidence: 80", "B", " 80"),
        ("B\n\n**Confidence:** 80 %", "B", "** 80 %"),
        ("B Confidence = 7", "B", " 7"),
        ("I have no confidence in this\nCONFIDENCE: 5", "I have no confidence in this", " 5"),
        ("B", "B", None),
        ("Confidence: 90", "", " 90"),
        ("Confidence: 10\nB\nConfidence: 90", "Confidence: 10\nB", " 90"),
    ],
)
def test_an_answer_ends_where_its_confidence_begins(
    text: str, answer: str, said: str | None
) -> None:
    assert split_confidence(text) == (answer, said)


@pytest.mark.parametrize(
    ("answer", "as_option", "as_answer"),
    [
        ("I do not know", True, True),
        ("i don't know.", True, True),
        ('"I don\u2019t know', True, True),
        ("Unsure", True, True),
        ("unknown", True, True),
        ("I'm not sure", True, True),
        ("It cannot be determined from this", True, True),
        ("Cannot be determined", True, True),
        ("I have no idea.", True, True),
        ("I'm unable to determine that", True, True),
        ("There is not enough information to answer.", True, True),
        ("I don\u2019t have enough information.", True, True),
        ("I would rather not guess", True, True),
        ("I abstain.", True, True),
        ("Unable to determine.", True, True),
        ("It is impossible to tell", True, True),
        ("N/A", True, True),
        ("N\u00e3o sei.", True, True),
        ("The patient is unable to say his name", False, False),
        ("Information is not enough", False, False),
        ("E. I do not know", False, True),
        ('A right one scores 1, and "I do not know" scores 0.', False, False),
        ("B. I do not know", False, False),
        ("Unknown primary tumor", False, False),
        ("A", False, False),
        ("No", False, False),
        ("Now I know", False, False),
        ("The answer is unknown to science: B", False, False),
        ("", False, False),
    ],
)
def test_not_to_know_is_said_in_plain_words(answer: str, as_option: bool, as_answer: bool) -> None:
    assert begins_not_to_know(answer) is as_option
    assert says_not_to_know(answer, "ABCD") is as_answer


def test_what_a_wrong_answer_costs_is_said() -> None:
    assert "costs 1 point," in may_abstain_text(1.0)
    assert "costs 0.25 points," in may_abstain_text(0.25)
    assert "costs nothing," in may_abstain_text(0)


def test_names_of_askings() -> None:
    ours = [
        "repeat_2",
        "perturb_typos",
        "pushback_1",
        "may_abstain",
        "stated_confidence",
        "repeat_2.worst",
    ]
    assert all(map(is_further_asking, ours))
    assert not any(
        map(is_further_asking, [None, "choice_order_2", "robustness", "misspellings", "typos"])
    )
    assert [is_in_another_form(name) for name in islice(ours, 5)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert (
        pushback_turn_of("pushback_3"),
        pushback_turn_of("repeat_2"),
        pushback_turn_of(None),
    ) == (3, 0, 0)


def test_a_further_turn_is_known_in_both_kinds_of_endpoints() -> None:
    asked = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    assert follows_an_answer(
        {"messages": [*asked, {"role": "user", "content": CONFIDENCE_QUESTION}]}
    )
    assert follows_an_answer({"prompt": f"Q\nA\n\n{CONFIDENCE_QUESTION}\n"})
    assert follows_an_answer({"messages": [*asked, {"role": "user", "content": NEUTRAL_DOUBTS[0]}]})
    assert not follows_an_answer({"messages": asked[:1]})
    assert not follows_an_answer({"prompt": f"{CONFIDENCE_QUESTION} Q"})
