"""Lines of text -> lines that fit a screen."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TextIO

WIDTH = 80
"""Columns of what is printed, on a wide terminal and where there is none."""
NARROWEST = 20
_ENDS_IN_A_PATH = r" *results: "
_WORD = r"(?:\([^()]{1,36}\)|[^ ])+|(?<= )(?= )"
"""What is in short parentheses, such as an interval, stays together; between two blanks is an empty word."""
_HANGING = 4
"""By how much further the second line of a long one is indented."""


def columns(stream: TextIO) -> int:
    """How wide a text may be: a terminal's columns, but for a very narrow one; 80 elsewhere."""
    if not stream.isatty():
        return WIDTH
    import shutil  # imported here, as it imports four ways to compress files

    found = shutil.get_terminal_size((WIDTH, 24)).columns
    return min(WIDTH, max(NARROWEST, found))


def wrapped(text: str, width: int = WIDTH) -> str:
    """Each line that is wider on several, the further ones indented.

    A path is never broken, so that it can be copied, and that of the results stays beside the word, for programs that
    look for it. Any other word that is wider than a line is broken.
    """
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> Iterator[str]:
    from rich.cells import cell_len  # imported here: `ls` is to be quick

    if cell_len(line) <= width or re.match(_ENDS_IN_A_PATH, line):
        yield line
        return
    indent = " " * (len(line) - len(line.lstrip(" ")))
    further = indent + " " * _HANGING
    written = indent
    for word in re.findall(_WORD, line.lstrip(" ")):
        for piece in _pieces(word, width - len(further)):
            if not written.strip():
                written += piece
            elif cell_len(written) + 1 + cell_len(piece) <= width:
                written += f" {piece}"
            else:
                yield written.rstrip(" ")
                written = further + piece
    yield written.rstrip(" ")


def _pieces(word: str, width: int) -> list[str]:
    from rich.cells import cell_len, chop_cells

    if cell_len(word) <= width or os.sep in word:
        return [word]
    if " " in word:
        return [piece for part in word.split(" ") for piece in _pieces(part, width)]
    return chop_cells(word, width)
