"""Formats a table for a screen, Markdown, CSV, HTML and LaTeX, with foreign text as plain text.

GitHub also turns plain text into links: `@name` notifies a person, `#12` and `GH-12` link an issue,
and a URL becomes a link. Escaping does not help, because GitHub searches the rendered text. Only
code is never changed (GitHub Flavored Markdown, section 6.9; docs.github.com, "Autolinked
references and URLs").
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from eval_factory.core.foreign_text import one_line, printable

MAX_CELL = 2_000  # the limit of a cell's text, in characters
_FORMULA = re.compile(r"(^|;)([\s\"']*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20|%])")
"""Finds text that a spreadsheet would execute as a formula, at the start of a cell.

Examples: `=1+2`, `"@A1`.

The list of characters includes the full-width forms
(https://owasp.org/www-community/attacks/CSV_Injection). A semicolon also starts a cell, because
some spreadsheets separate cells with semicolons.
"""


class Code(str):
    """An identifier, which Markdown shows as code."""

    __slots__ = ()


@dataclass(frozen=True)
class Strong:
    """A cell in bold type."""

    cell: str  # the text

    def __str__(self) -> str:
        return self.cell


@dataclass(frozen=True)
class Link:
    """A text with a link to a file in the page's folder. Only HTML shows the link."""

    text: str
    href: str

    def __str__(self) -> str:
        return self.text


class Lines(tuple[str | Strong, ...]):
    """A cell with several lines of text."""

    __slots__ = ()


TableCell = str | Strong | Link | Lines  # numbers are formatted before (`core/formats.py`)


@dataclass(frozen=True)
class Table:
    """A table: the titles of its columns, and its rows."""

    head: Sequence[TableCell]  # the titles of the columns
    rows: Sequence[Sequence[TableCell]]
    # the number of columns with numbers; they are the last columns, and hold no foreign text
    number_columns: int = 0

    def is_number(self, column: int) -> bool:
        """Return True if a column (counted from 0) holds numbers."""
        return column >= len(self.head) - self.number_columns


def screen_lines(table: Table, widest: int | None = None) -> list[str]:
    """Return the lines of a table for a terminal.

    Args:
        table: the table.
        widest: the maximum width of a column in characters; a longer cell shifts the rest of its
            row. None: no limit.
    """
    rows = [[_plain(cell) for cell in row] for row in [table.head, *table.rows]]
    columns = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    if widest is not None:
        widths = [min(width, widest) for width in widths]
    lines = []
    for row in rows:
        cells = []
        for number, cell in enumerate(row):
            if table.is_number(number):
                cells.append(cell.rjust(widths[number]))
            else:
                cells.append(cell.ljust(widths[number]))
        lines.append("  ".join(cells).rstrip())
    return lines


def _plain(cell: TableCell) -> str:
    """Return the text of a cell on one line."""
    text = str(cell)
    if isinstance(cell, Lines):
        text = " ".join(str(part) for part in cell if part)
    return one_line(text, MAX_CELL)


def markdown_lines(table: Table) -> list[str]:
    """Return the lines of a table in GitHub's Markdown."""
    # the second line of Markdown's table, which sets the side to which a column is aligned
    sides = ["--:" if table.is_number(column) else ":--" for column in range(len(table.head))]
    rows = [[_markdown_cell(cell) for cell in table.head], sides]
    for row in table.rows:
        cells = []
        for column, cell in enumerate(row):
            cells.append(_markdown_cell(cell, is_number=table.is_number(column)))
        rows.append(cells)
    return [f"| {' | '.join(cells)} |" for cells in rows]


def _markdown_cell(cell: TableCell, *, is_number: bool = False) -> str:
    """Return a cell as Markdown; numbers are not changed."""
    if isinstance(cell, Lines):
        return "<br>".join(_markdown_cell(part, is_number=is_number) for part in cell if part)
    if isinstance(cell, Strong):
        return f"**{_markdown_cell(cell.cell)}**"
    if isinstance(cell, Code):
        return code(cell)
    text = str(cell)
    # A dash alone is safe: inside a cell, Markdown does not read it as a list.
    if is_number or text in ("", "-"):
        return text
    return prose(text)


_RENDERED = re.compile(
    r"@|#|://|www\.|gh-\d|:[\w+-]+:|mailto:|xmpp:"  # a link, a message to somebody, a picture
    r"|[\\`*\[\]<>~$!&|]|(?<![^\W_])_|_(?![^\W_])",  # markup; `_` between letters is not markup
    re.IGNORECASE,
)
"""Finds characters of a word that GitHub may render as a link, a mention or markup.

Examples: `@name`, `#12`, `gh-12`, `:smile:`, `https://a.b`, `**bold**`, `_italic_`.
"""
_LIST = re.compile(r"(\d*)([-+.)]-*)")
"""Matches a first word that Markdown reads as the sign of a list or as a line: `-`, `12.`, `---`.

The second group is the part before which a backslash helps: `12\\.`.
"""


def code(text: str) -> str:
    """Return a text as Markdown code, in which GitHub renders nothing; a dash if it is empty."""
    # `|` is replaced: after a backslash, an escaped bar would still end the cell.
    line = one_line(text).replace("|", "\u00a6")
    if not line:
        return "-"
    # The fence is longer than any run of backticks in the text. A blank separates it from a
    # backtick at an end of the text.
    longest_run = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest_run + 1)
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def prose(text: str) -> str:
    """Return a text for Markdown, with each word as code that GitHub would render otherwise.

    Nothing inside a word is escaped, so that redaction still finds secrets in the text.
    """
    first, *words = one_line(text, MAX_CELL).split(" ")
    marker = _LIST.fullmatch(first)
    shown = _word(first) if marker is None else f"{marker[1]}\\{marker[2]}"
    return " ".join([shown, *map(_word, words)])


def _word(word: str) -> str:
    """Return a word, as code if GitHub would render it otherwise."""
    # A single `<` is safe, as in p < 0.01.
    if word != "<" and _RENDERED.search(word):
        return code(word)
    return word


def html(table: Table) -> str:
    """Return a table as HTML.

    The cells of the first column are row titles of the class `name`; numbers have the class `n`.
    """
    classes = ["n" if table.is_number(column) else "name" for column in range(len(table.head))]
    titles = [
        f'<th scope="col" class="{css_class}">{_html_cell(cell)}</th>'
        for css_class, cell in zip(classes, table.head, strict=True)
    ]
    lines = [f"<thead><tr>{''.join(titles)}</tr></thead>", "<tbody>"]
    other_classes = classes[1:]  # those of the columns after the row titles
    for first, *others in table.rows:
        cells = [
            f'<td class="{css_class}">{_html_cell(cell)}</td>'
            for css_class, cell in zip(other_classes, others, strict=True)
        ]
        lines.append(
            f'<tr><th scope="row" class="name">{_html_cell(first)}</th>{"".join(cells)}</tr>'
        )
    return "\n".join(["<table>", *lines, "</tbody></table>"])


def _html_cell(cell: TableCell) -> str:
    """Return a cell as HTML."""
    if isinstance(cell, Lines):
        return "<br>".join(_html_cell(part) for part in cell if part)
    text = escape(one_line(str(cell), MAX_CELL))
    if isinstance(cell, Link):
        return f'<a href="{escape(cell.href)}">{text}</a>'
    if isinstance(cell, Strong):
        return f"<b>{text}</b>"
    return text


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV: numbers unchanged, texts in quotes and without formulas.

    A row is a mapping from the name of each column to the value. All rows have the same columns.
    """
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    if rows:
        writer.writerow(map(_csv_value, rows[0].keys()))
    for row in rows:
        writer.writerow(map(_csv_value, row.values()))
    return file.getvalue()


def _csv_value(value: Any) -> Any:
    """Return a value for a CSV file: a number unchanged, a text without formulas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    return no_formula(printable(value))


def no_formula(text: str) -> str:
    """Return the text with an apostrophe before each formula that a spreadsheet would execute."""
    return _FORMULA.sub(r"\1'\2", text)


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}
_TEX["["] = "{[}"  # after the end of a row (`\\`), LaTeX would read `[` as an option
_TEX |= {character: f"\\{character}" for character in "&%$#_{}"}


def latex(table: Table, caption: str, note: str) -> str:
    """Return a table as a LaTeX float that needs no package.

    Args:
        table: the table.
        caption: the caption, as LaTeX code.
        note: the note below the table, as plain text.
    """
    columns = "l" * (len(table.head) - table.number_columns) + "r" * table.number_columns
    rows = []
    for row in [table.head, *table.rows]:
        cells = [_tex(_plain(cell)) for cell in row]
        rows.append(" & ".join(cells))
    head, *other_rows = rows
    return "\n".join(
        [
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{caption}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            "\\hline",
            f"{head} \\\\ \\hline",
            *(f"{row} \\\\" for row in other_rows),
            "\\hline",
            "\\end{tabular}",
            f"\\par\\smallskip {{\\footnotesize {_tex(note)}}}",
            "\\end{table}",
        ]
    )


def _tex(text: str) -> str:
    """Return a text as LaTeX, with special characters escaped."""
    return "".join(_TEX.get(character, character) for character in one_line(text, MAX_CELL))
