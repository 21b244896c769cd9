"""The facts of a message: a test names them, and leaves the sentence around them to the program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

LONGEST_FACT = 4
"""The length of a fact in words: what is longer is a sentence. A command line to type may be
longer.
"""


def pattern_of(fact: str) -> str:
    """A fact is found as complete words and complete numbers: `20` is in neither `120` nor `20.5`."""
    words = fact.split()
    if len(words) > LONGEST_FACT and "eval-factory" not in fact:
        raise ValueError(f"{fact!r} has {len(words)} words: name the facts in it")
    pattern = r"\s+".join(re.escape(word) for word in words)
    if re.match(r"\d", fact):
        pattern = r"(?<!\w)(?<!\d[.,])" + pattern
    elif re.match(r"\w", fact):
        pattern = r"(?<!\w)" + pattern
    if re.search(r"\d$", fact):
        pattern += r"(?!\w|[.,]\d)"
    elif re.search(r"\w$", fact):
        pattern += r"(?!\w)"
    return pattern


def says(message: str | Iterable[str], *facts: str) -> None:
    """Fail unless the message, or the list of messages together, has every fact, however it is wrapped."""
    if not isinstance(message, str):
        message = "\n".join(message)
    missing = []
    for fact in facts:
        if not re.search(pattern_of(fact), message):
            missing.append(fact)
    assert not missing, f"{missing} missing in: {message}"


def each_says(lines: Iterable[str], *facts_of_lines: Sequence[str]) -> None:
    """Fail unless there are as many lines as groups of facts, and each line has the facts of its group."""
    every_line = list(lines)
    assert len(every_line) == len(facts_of_lines), every_line
    for line, facts in zip(every_line, facts_of_lines, strict=True):
        says(line, *facts)


def naming(*facts: str) -> str:
    """The pattern of a message with every fact, for `match=` of pytest.raises and pytest.warns."""
    lookaheads = []
    for fact in facts:
        lookaheads.append(f"(?=.*{pattern_of(fact)})")
    return r"(?s)\A" + "".join(lookaheads)


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row of the text's Markdown tables."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.strip().strip("|").split("|")
            rows.append([cell.strip() for cell in cells])
    return rows


def refusal(kind: Any, value: object) -> str:
    """Return what pydantic says of a value that this type refuses."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    return "; ".join(
        f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in caught.value.errors()
    )
