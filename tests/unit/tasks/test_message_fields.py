"""The fields of a conversation: what is wrong with them is said with the field, never with what stands there."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.tasks.message_files import message_problems, name_problems, object_in, text_problems, unknown_fields

TURN = {"role": "user", "content": "Since when?"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not JSON (Expecting property name enclosed in double quotes); each line is one JSON object"),
        ('{"a": NaN}', "is not JSON (it holds NaN, Infinity or too many levels); each line is one JSON object"),
        ("[" * 100_000, "is not JSON (it holds NaN, Infinity or too many levels); each line is one JSON object"),
        ("[1]", 'must be a JSON object such as {"id": ...}'),
    ],
)
def test_a_line_that_is_no_object(line: str, said: str) -> None:
    assert object_in(line, "id") == said


def test_a_line_that_is_one() -> None:
    assert object_in('{"id": "a"}', "id") == {"id": "a"}


@pytest.mark.parametrize("half", ["\ud800", "Mrs \udfff", "\udabc."])
def test_half_a_surrogate_pair_is_no_text(half: str) -> None:
    assert list(text_problems("x", half)) == [
        "x: holds half a surrogate pair (\\ud800 to \\udfff), which is no character"
    ]
    assert list(name_problems("x", half)) == list(text_problems("x", half))


def test_texts_of_any_language() -> None:
    assert list(text_problems("x", "\ud7ff \ue000 \U0001f600")) == []


def test_a_field_that_nobody_knows() -> None:
    assert list(unknown_fields({"rol": 1, "role": 2}, ("role",), "a.")) == [
        "a.rol: is no known field, did you mean 'role'?"
    ]
    assert list(unknown_fields({"zzz": 1}, ("role", "content"))) == [
        "zzz: is no known field; known here: role, content"
    ]


def test_what_a_message_of_the_users_own_may_hold() -> None:
    named: list[dict[str, Any]] = [{**TURN, "name": "Mrs Example"}]
    assert list(message_problems("messages", named, own=True)) == [
        "messages.0.name: is no known field; known here: role, content"
    ]
    assert list(message_problems("prompt", named, own=False)) == []
    assert list(message_problems("messages", [TURN, {**TURN, "role": "assistant"}] * 50 + [TURN], own=True)) == []
