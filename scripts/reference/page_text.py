"""Makes the parts of Markdown that all pages of the reference share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by scripts/make_reference.py; changes are lost. -->"


def cell(text: str) -> str:
    """Return a text as the cell of a table: on one line, and without a bar that ends the cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Return a text as code, on one line; with a longer fence if it has backticks itself."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(map(cell, row))} |" for row in rows),
    ]


def page(title: str, lines: Iterable[str]) -> str:
    """Return the text of a page from its title and its lines."""
    return "\n".join([f"# {title}", "", GENERATED, "", *lines]).rstrip() + "\n"
