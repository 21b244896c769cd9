"""Tests of tables in each form: foreign text stays text and notifies nobody."""

from __future__ import annotations

import csv
import io
import re
from itertools import chain

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from described_runs import ODD
from eval_factory.core import tables
from eval_factory.core.tables import (
    Lines,
    Link,
    Strong,
    Table,
    code,
    html,
    latex,
    markdown_lines,
    prose,
)

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TRAPS = [
    ODD,
    "",
    "a",
    "`",
    "``",
    "` `",
    "`a",
    "a`",
    "``` x",
    "a|b",
    "a\\|b",
    "\\",
    "\\\\|",
    "<b>x</b>",
    "<!-- x",
    "&lt;b&gt; &#64;a",
    "**x** __x__ ~~x~~ *x* _x_",
    "[x](http://a.b)",
    "![x](y.png)",
    "[x]: y",
    "http://a.b/c",
    "https://a.b",
    "www.a.b",
    "a@b.co",
    "@someone",
    "@org/team",
    "org/repo#12",
    "#12",
    "GH-12",
    "gh-3.",
    ":tada:",
    "mailto:x",
    "# x",
    "## x",
    "> x",
    "- x",
    "+ x",
    "* x",
    "1. x",
    "2) x",
    "[ ] x",
    "[x] y",
    "=== x",
    "--- x",
    "---",
    "===",
    "- -",
    "| a | b |",
    "$x$",
    "x\n\n# y",
    "\u202e\u200b\x00\x1b[2J",
    "x" * 9000,
]


def inline(text: str) -> list[Token]:
    """Return the tokens in the only paragraph or cell of a text."""
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
        "bullet_list_open",
        "bullet_list_close",
        "list_item_open",
        "list_item_close",
        "paragraph_open",
        "paragraph_close",
        "inline",
    }
    children = inline(f"{before or 'x '}{told}") if told else []
    assert {token.type for token in children} <= {"text", "code_inline"}
    words = "".join("" if token.type == "code_inline" else token.content for token in children)
    assert not re.search(r"@|#\w|://|www\.|gh-\d|:\w+:", words, re.IGNORECASE)
    assert told.isprintable()


@pytest.mark.parametrize("number", range(len(TRAPS)))
def test_code_is_one_piece_and_a_cell_one_cell(number: int) -> None:
    told = code(TRAPS[number])
    kinds = [token.type for token in inline(f"x {told} y")]
    assert kinds == (["text", "code_inline", "text"] if TRAPS[number] else ["text"])
    assert "|" not in told
    assert told.isprintable()
    cells = [tables.Code(TRAPS[number]), TRAPS[number], "3"]
    tokens = MARKDOWN.parse(
        "\n".join(markdown_lines(Table(["a", "b", "c"], [cells], number_columns=1)))
    )
    assert [token.type for token in tokens].count("td_open") == 3
    assert [token.content for token in tokens if token.type == "inline"][-1] == "3"


def test_what_is_plain_is_read_as_it_stands() -> None:
    assert (
        prose("max_judge_failures is 0.1: set it - or not")
        == "max_judge_failures is 0.1: set it - or not"
    )
    assert prose("_a_ a_b **c** & <d> | e \\f") == "`_a_` a_b `**c**` `&` `<d>` `\u00a6` e `\\f`"
    assert seen(code("a `b` c")) == "a `b` c"
    assert seen(code("`")) == "`"
    assert (prose("- x"), prose("1. x"), prose("2) x"), prose("-1 x")) == (
        "\\- x",
        "1\\. x",
        "2\\) x",
        "-1 x",
    )
    assert prose("mail someone@a.b now") == "mail `someone@a.b` now"
    assert code("a|b") == "`a\u00a6b`"
    assert code("") == "-"
    assert len(prose("x" * 9000)) == tables.MAX_CELL
    assert prose("p < 0.01; <b>") == "p < 0.01; `<b>`"


TABLE = Table(
    ["model", Lines(["x_1", "exact_match"])],
    [
        ["a & b", Lines(["50.0 %", "", Strong("not reportable")])],
        [Link("@c", "./<c>/report.html"), "-1"],
        ["-", "-"],
    ],
    number_columns=1,
)


def test_a_table_in_markdown() -> None:
    assert markdown_lines(TABLE) == [
        "| model | x_1<br>exact_match |",
        "| :-- | --: |",
        "| a `&` b | 50.0 %<br>**not reportable** |",
        "| `@c` | -1 |",
        "| - | - |",
    ]


def test_a_table_on_a_screen() -> None:
    assert tables.screen_lines(TABLE) == [
        "model        x_1 exact_match",
        "a & b  50.0 % not reportable",
        "@c                        -1",
        "-                          -",
    ]
    wide = Table(["a", "b"], [["x" * 9, "2"], ["\x1b[2J", "3"]])
    assert tables.screen_lines(wide, widest=4) == ["a     b", "xxxxxxxxx  2", "\\x1b[2J  3"]


def test_a_table_in_html() -> None:
    assert html(TABLE).splitlines() == [
        "<table>",
        '<thead><tr><th scope="col" class="name">model</th><th scope="col" class="n">x_1<br>exact_match</th></tr></thead>',
        "<tbody>",
        '<tr><th scope="row" class="name">a &amp; b</th><td class="n">50.0 %<br><b>not reportable</b></td></tr>',
        '<tr><th scope="row" class="name"><a href="./&lt;c&gt;/report.html">@c</a></th><td class="n">-1</td></tr>',
        '<tr><th scope="row" class="name">-</th><td class="n">-</td></tr>',
        "</tbody></table>",
    ]


@pytest.mark.parametrize("number", range(len(TRAPS)))
def test_nothing_is_made_of_a_text_in_html_and_latex(number: int) -> None:
    table = Table([TRAPS[number]], [[TRAPS[number]]])
    shown = re.sub(
        r"</?(table|thead|tbody|tr|th)( scope=\"(row|col)\")?( class=\"name\")?>", "", html(table)
    )
    assert not re.search(r"[<>]", shown)
    assert not re.search(r"(?<!\\)[_%#$&]", re.sub(r" & |\\\\ \\hline", "", latex(table, "c", "n")))


def test_a_table_in_latex() -> None:
    assert latex(TABLE, "Scores", "50 % of_all").splitlines() == [
        "\\begin{table}",
        "\\centering",
        "\\caption{Scores}",
        "\\begin{tabular}{lr}",
        "\\hline",
        "model & x\\_1 exact\\_match \\\\ \\hline",
        "a \\& b & 50.0 \\% not reportable \\\\",
        "@c & -1 \\\\",
        "- & - \\\\",
        "\\hline",
        "\\end{tabular}",
        "\\par\\smallskip {\\footnotesize 50 \\% of\\_all}",
        "\\end{table}",
    ]


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    "formula",
    ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\uff1d1+1", '=HYPERLINK("http://x";"y")'],
)
def test_what_a_spreadsheet_would_run_is_text(formula: str) -> None:
    assert read(tables.csv_text([{"name": formula}])) == [["name"], ["'" + formula]]
    assert read(tables.csv_text([{formula: 1}]))[0] == ["'" + formula]
    for blank, shown in (("\t", "\\t"), ("\r", "\\r"), ("\n", "\\n")):
        assert read(tables.csv_text([{"name": f"{blank}=1+1"}]))[1][0].startswith(shown)


def test_no_text_leaves_its_cell_and_numbers_stay_numbers() -> None:
    hostile = 'a","=1+1\n=2;=3'
    text = tables.csv_text(
        [{"name": hostile, "value": -0.5, "none": None, "yes": True, "no": False}]
    )
    assert read(text)[1] == ['a","=1+1\\n=2;\'=3', "-0.5", "", "true", "false"]
    assert text.splitlines()[1] == '"a"",""=1+1\\n=2;\'=3",-0.5,"","true","false"'


@pytest.mark.parametrize("text", ["=1+1", " =1+1", "|cmd", "%x", '"=1', "x; @y", "\uff1d1"])
def test_a_cell_of_csv_is_no_formula(text: str) -> None:
    made = tables.csv_text([{"name": text}])
    for delimiter in (",", ";"):
        rows = csv.reader(io.StringIO(made), delimiter=delimiter)
        for cell in chain.from_iterable(row for row in rows):
            assert cell.lstrip(" \"'")[:1] not in tuple("=+-@|%\uff1d") or cell.startswith("'")


@pytest.mark.parametrize("text", ["a - b", "50 %", "a | b", "x=1", "it's", "a@b.org", ""])
def test_a_text_that_begins_no_cell_is_as_it_was(text: str) -> None:
    assert tables.csv_text([{"name": text, "value": -0.5}]).splitlines()[1] == f'"{text}",-0.5'
