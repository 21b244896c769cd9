"""Text of others inside Markdown that GitHub shows: it stays text, and calls nobody.

GitHub makes links of more than Markdown's own: `@name` sends that person a message, `#12` and `GH-12` link an issue,
and a bare address becomes a link, also where the sign is escaped, for they are looked for in the finished text; only
code is left alone (GitHub Flavored Markdown, section 6.9; docs.github.com, "Autolinked references and URLs").
"""

from __future__ import annotations

import re

from eval_factory.core.foreign_text import one_line

_MADE_INTO = re.compile(
    r"@|#|://|www\.|gh-\d|:[\w+-]+:|mailto:|xmpp:"  # a link, a message to somebody, a picture
    r"|[\\`*\[\]<>~$!&|]|(?<![^\W_])_|_(?![^\W_])",  # markup; an underscore between letters is one
    re.IGNORECASE,
)
"""In a word of which GitHub may make something."""
_LIST = re.compile(r"(\d*)([-+.)]-*)")
"""A first word that would begin a list, or draw a line."""
LONGEST_PROSE = 2_000
"""Characters of a note that are shown."""
_BAR = "\u00a6"
"""In code for the bar that ends a table's cell: no escape for it holds after a backslash."""


def code(text: str) -> str:
    """As code, which nothing is made of. A text that is empty becomes a dash."""
    line = one_line(text).replace("|", _BAR)
    if not line:
        return "-"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def prose(text: str) -> str:
    """As words of a sentence: each word of which something would be made is code.

    Nothing is escaped, so that what has to be redacted is still found in it.
    """
    first, *words = one_line(text, LONGEST_PROSE).split(" ")
    found = _LIST.fullmatch(first)
    shown = _word(first) if found is None else f"{found[1]}\\{found[2]}"
    return " ".join([shown, *map(_word, words)])


def _word(word: str) -> str:
    return code(word) if _MADE_INTO.search(word) else word


def table(head: list[str], rows: list[list[str]], numbers: int) -> list[str]:
    """The lines of a table of cells that are Markdown.

    Args:
        numbers: how many of the last columns stand to the right.
    """
    sides = [":--"] * (len(head) - numbers) + ["--:"] * numbers
    return [f"| {' | '.join(cells)} |" for cells in [head, sides, *rows]]
