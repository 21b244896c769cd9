"""Text of others stays text in Markdown, and calls nobody."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from described_runs import ODD
from eval_factory.report.markdown_report import LONGEST_PROSE, code, prose, table

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TRAPS = [
    ODD, "", "a", "`", "``", "` `", "`a", "a`", "``` x", "a|b", "a\\|b", "\\", "\\\\|", "<b>x</b>", "<!-- x", "&lt;b&gt; &#64;a",
    "**x** __x__ ~~x~~ *x* _x_", "[x](http://a.b)", "![x](y.png)", "[x]: y", "http://a.b/c", "https://a.b", "www.a.b", "a@b.co",
    "@someone", "@org/team", "org/repo#12", "#12", "GH-12", "gh-3.", ":tada:", "mailto:x", "# x", "## x", "> x", "- x", "+ x",
    "* x", "1. x", "2) x", "[ ] x", "[x] y", "=== x", "--- x", "---", "===", "- -", "| a | b |", "$x$", "x\n\n# y", "\u202e\u200b\x00\x1b[2J", "x" * 9000,
]  # fmt: skip


def inline(text: str) -> list[Token]:
    """What the one paragraph or cell of a text holds."""
    (found,) = [token for token in MARKDOWN.parse(text) if token.type == "inline"]
    return found.children or []


def seen(text: str) -> str:
    return "".join(token.content for token in inline(text))


@pytest.mark.parametrize("number", range(len(TRAPS)))
@pytest.mark.parametrize("before", ["", "- ", "- x: ", "a ("])
def test_words_stay_words(number: int, before: str) -> None:
    told = prose(TRAPS[number])
    tokens = MARKDOWN.parse(f"{before or 'x '}{told}")
    assert {token.type for token in tokens} <= {
        "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "paragraph_open", "paragraph_close",
        "inline",
    }  # fmt: skip
    children = inline(f"{before or 'x '}{told}") if told else []
    assert {token.type for token in children} <= {"text", "code_inline"}
    words = "".join("" if token.type == "code_inline" else token.content for token in children)
    assert not re.search(r"@|#\w|://|www\.|gh-\d|:\w+:", words, re.IGNORECASE)
    assert told.isprintable()


@pytest.mark.parametrize("number", range(len(TRAPS)))
def test_code_is_one_piece(number: int) -> None:
    told = code(TRAPS[number])
    kinds = [token.type for token in inline(f"x {told} y")]
    assert kinds == (["text", "code_inline", "text"] if TRAPS[number] else ["text"])
    assert "|" not in told
    assert told.isprintable()


@pytest.mark.parametrize("number", range(len(TRAPS)))
def test_a_cell_is_one_cell(number: int) -> None:
    text = "\n".join(table(["a", "b", "c"], [[code(TRAPS[number]), prose(TRAPS[number]), "3"]], numbers=1))
    tokens = MARKDOWN.parse(text)
    assert [token.type for token in tokens].count("td_open") == 3
    assert [token.content for token in tokens if token.type == "inline"][-1] == "3"


def test_what_is_plain_is_read_as_it_stands() -> None:
    assert prose("max_judge_failures is 0.1: set it - or not") == "max_judge_failures is 0.1: set it - or not"
    assert prose("_a_ a_b **c** & <d> | e \\f") == "`_a_` a_b `**c**` `&` `<d>` `\u00a6` e `\\f`"
    assert seen(code("a `b` c")) == "a `b` c"
    assert seen(code("`")) == "`"
    assert (prose("- x"), prose("1. x"), prose("2) x"), prose("-1 x")) == ("\\- x", "1\\. x", "2\\) x", "-1 x")
    assert prose("mail someone@a.b now") == "mail `someone@a.b` now"
    assert code("a|b") == "`a\u00a6b`"
    assert code("") == "-"
    assert len(prose("x" * 9000)) == LONGEST_PROSE


def test_numbers_stand_to_the_right() -> None:
    assert table(["a", "b"], [["1", "2"]], numbers=1) == ["| a | b |", "| :-- | --: |", "| 1 | 2 |"]
