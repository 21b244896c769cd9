"""Foreign text shows as it is, whatever Markdown or HTML is in it."""

from __future__ import annotations

import html
import re

import pytest
from markdown_it import MarkdownIt
from scripts.ci_action import code_block, markdown_cell

MARKDOWN = MarkdownIt("commonmark").enable("table")
FOREIGN = {
    "a_pipe": "a | b",
    "a_script": "<script>alert(1)</script>",
    "an_image": "![x](http://192.0.2.1/x.png)",
    "a_link": "[x](javascript:alert)",
    "code": "`x` ``",
    "an_entity": "&lt;b&gt; &amp;",
    "bold": "**x** ~~y~~",
    "a_backslash": "\\| \\\\",
    "plain": "pubmed_qa, exact_match@5: 0.5 (95 % interval -0.1 to +0.2); it's #1",
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_a_cell_shows_the_text_itself(text: str) -> None:
    shown = MARKDOWN.render(f"| a | b |\n|---|---|\n| {markdown_cell(text)} | end |\n")
    found = re.search(r"<tbody>\n<tr>\n<td>(.*)</td>\n<td>end</td>\n</tr>\n</tbody>", shown)
    assert found, shown
    assert html.unescape(found[1]) == text


def test_what_is_not_printable_is_escaped_and_stays_on_the_line() -> None:
    assert markdown_cell("a\nb\x1b[2J\u202e") == "a\\\\nb\\\\x1b\\[2J\\\\u202e"


@pytest.mark.parametrize("text", ["a: 1\nb: <b>x</b>", "```\nx\n```", "a `````` b", "", "a\n\n"])
def test_a_block_shows_its_lines_and_ends_where_it_ends(text: str) -> None:
    tokens = MARKDOWN.parse(f"{code_block(text)}\nafter\n")
    assert [token.type for token in tokens] == [
        "fence",
        "paragraph_open",
        "inline",
        "paragraph_close",
    ]
    assert tokens[0].content.rstrip("\n") == text.rstrip("\n")


def test_a_block_keeps_its_lines_and_escapes_the_rest() -> None:
    assert code_block("a\nb\r\x1b") == "```\na\nb\\r\\x1b\n```\n"
