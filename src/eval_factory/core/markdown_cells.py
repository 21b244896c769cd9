"""Foreign text in Markdown: as words in a table's cell, or as it stands in a block of code."""

from __future__ import annotations

import re

from eval_factory.core.foreign_text import own_lines, printable

_MARKUP = str.maketrans({letter: f"\\{letter}" for letter in "\\`|[]!*~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""What would end a table's cell, begin a link, an image or HTML, or make words bold."""
SHORTEST_FENCE = 3


def cell(words: str) -> str:
    """A text that shows as it is, on one line, in a table or a sentence."""
    return printable(words).translate(_MARKUP)


def code_block(text: str) -> str:
    """Lines that show as they are; no backticks in them end the block."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(SHORTEST_FENCE, longest + 1)
    return f"{fence}\n{own_lines(text).rstrip()}\n{fence}\n"
