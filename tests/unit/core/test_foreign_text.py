"""Tests of foreign text: its printable form, the message of an error, quotes of the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.core import foreign_text
from eval_factory.core.foreign_text import (
    NO_MESSAGE,
    QUOTED_PROMPT,
    one_line,
    printable_lines,
    texts_in,
    without_html,
)

PROMPT = "A 54-year-old man has had chest pain\nsince this morning. What is the next step?"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Ärztin 漢字 🙂", "plain Ärztin 漢字 🙂"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x07\x08\x7f\x00", "\\x07\\x08\\x7f\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("a\u200bb\ufeffc", "a\\u200bb\\ufeffc"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("a\nb\u2028c\x85d", "a\\nb\\u2028c\\x85d"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert foreign_text.printable(text) == shown
    assert foreign_text.printable(foreign_text.printable(text)) == shown


def test_a_line_has_blanks_for_white_space_and_an_end() -> None:
    assert (
        one_line(" no\r\n\teval-factory stops: \u2028wrong\x0bkey\x1b ")
        == "no eval-factory stops: wrong key\\x1b"
    )
    assert (
        one_line("x" * (foreign_text.MAX_FOREIGN_TEXT + 1)) == "x" * foreign_text.MAX_FOREIGN_TEXT
    )
    assert one_line("x" * 11, 10) == "x" * 10
    assert one_line("\x1b" * 10, 10) == "\\x1b\\x1b\\x"
    assert one_line(" " * 100 + "far", 10) == "far"
    assert one_line(" " * 160 + "too far", 10) == ""
    assert (
        printable_lines("first\n  second \x1b[0m\r\n\nthird\u2029")
        == "first\n  second \\x1b[0m\\r\n\nthird\\u2029"
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"error": {"message": "too long", "type": "bad", "param": PROMPT, "code": None}},
            "too long",
        ),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "too busy"}}},
            "Provider returned error: too busy",
        ),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": {"x": PROMPT}}}},
            "Provider returned error",
        ),
        ({"error": {"message": "own", "metadata": {"raw": "another"}}}, "own"),
        ({"object": "error", "message": "of vLLM", "code": 400}, "of vLLM"),
        ({"error": "Input validation error", "error_type": "validation"}, "Input validation error"),
        (
            {"detail": [{"loc": ["body", "n"], "msg": "field required", "input": PROMPT}]},
            "body.n: field required",
        ),
        (
            {"detail": [{"msg": "one"}, {"msg": "two"}, {"msg": "three"}, {"msg": "four"}]},
            "one; two; three",
        ),
        ({"error": "invalid_client", "error_description": "unknown client"}, "unknown client"),
        ({"type": "urn:x", "title": "Unprocessable", "status": 422, "detail": "why"}, "why"),
        ([{"error": {"code": 400, "message": "a list"}}], "a list"),
        ({"error": {"message": "", "code": 529}}, "529"),
        ({"error": {"message": None, "code": True, "type": "overloaded"}}, "overloaded"),
        ({"input": PROMPT}, NO_MESSAGE),
        ("said", "said"),
        (None, NO_MESSAGE),
        (
            {"error": {"error": {"error": {"error": {"error": {"error": {"message": "deep"}}}}}}},
            NO_MESSAGE,
        ),
    ],
)
def test_of_an_error_object_the_message_alone_is_shown(document: Any, message: str) -> None:
    assert foreign_text.message_or_default(document) == message


def test_what_an_error_quotes_of_the_prompt_is_left_out() -> None:
    sent = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
    shown = one_line(f"cannot take {PROMPT!r} today", prompt=texts_in(sent))
    assert shown.startswith(f"cannot take '{QUOTED_PROMPT}")
    assert "chest" not in without_html(shown)
    whole = one_line(f"cannot take {PROMPT} today", prompt=texts_in(sent))
    assert whole == f"cannot take {QUOTED_PROMPT} today"
    assert one_line(f"no: {PROMPT[26:70]}; ok", prompt=[PROMPT]) == f"no: {QUOTED_PROMPT}; ok"
    assert one_line(f"no:{PROMPT[25:69]}ok", prompt=[PROMPT]) == f"no: {QUOTED_PROMPT} ok"
    odd = "\u200b".join("chest pain and warfarin")
    assert one_line(f"no: {odd}", prompt=[odd]) == f"no: {QUOTED_PROMPT}"
    twice = one_line(f"{PROMPT[:40]} and {PROMPT[30:]}", prompt=texts_in(sent))
    assert twice == f"{QUOTED_PROMPT} and {QUOTED_PROMPT}"


@pytest.mark.parametrize("start", range(12))
@pytest.mark.parametrize("more", [-1, 0, 5])
def test_how_much_is_a_quote(start: int, more: int) -> None:
    words = "".join(chr(ord("A") + number % 26) + str(number) for number in range(60))
    quote = words[20 : 20 + foreign_text.SHORTEST_QUOTE + more]
    text = "~" * start + quote + "~"
    shown = one_line(text, prompt=[words])
    assert shown == (text if more < 0 else "~" * start + QUOTED_PROMPT + "~")


def test_a_short_prompt_is_known_whole() -> None:
    assert (
        one_line("no: what is a dose?", prompt=texts_in(["what is a dose?"]))
        == f"no: {QUOTED_PROMPT}"
    )
    assert one_line("no: yes", prompt=["yes"]) == "no: yes"
    sent = {"stop": "\n", "prompt": "x" * 12, "n": 1, "parts": ({"text": "y" * 11}, "z" * 12)}
    assert list(texts_in(sent)) == ["\n", "x" * 12, "y" * 11, "z" * 12]


def test_a_page_is_shown_without_its_tags() -> None:
    assert (
        one_line(without_html("<html><head><title>502</title></head>\n<h1>Bad\\nGateway</h1>"))
        == "502 Bad Gateway"
    )
    assert without_html("3 < 4") == "3 < 4"


@pytest.mark.parametrize(
    "text", ["<" * 1_000_000, "\x1b" * 1_000_000, " " * 1_000_000, "ab" * 500_000]
)
def test_a_huge_text_is_cut_before_it_is_looked_at(text: str) -> None:
    assert (
        len(one_line(without_html(text), prompt=["ab" * 200_000])) <= foreign_text.MAX_FOREIGN_TEXT
    )


def test_a_quote_that_begins_inside_a_shorter_common_text_is_found() -> None:
    """The prompt contains the first 23 characters of the line, in which a quote of 24 begins."""
    words = "".join(chr(ord("A") + number % 26) + str(number) for number in range(60))
    quote = words[50:74]
    shared = f"~%&+*-!{quote[:16]}"
    shown = one_line(f"{shared}{quote[16:]}$", prompt=[f"{shared}|{quote}"])
    assert shown == f"~%&+*-!{QUOTED_PROMPT}$"
