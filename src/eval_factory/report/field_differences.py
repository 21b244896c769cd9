"""Where a stored file differs from the same file made again: field by field, or line by line.
Pure functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.secrets import REDACTED
from eval_factory.report.page.instance_data import readable_page

_MAX_SHOWN = 80  # characters of a value

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "nothing"})()
"""Stands for a value that one of the two does not have."""


@dataclass(frozen=True)
class Difference:
    """One place where two files differ."""

    # `results.tasks.x`, or `line 3: latency_s`; empty where there is no smaller place than the file
    field: str
    stored: str
    made: str


def differences_of_files(stored: Path, made: Path) -> Iterator[Difference]:
    """By what the file is: YAML, JSON, JSON lines, or text. None where the two are the same, byte
    for byte. Where a text was redacted, what stands in place of the redaction mark is not compared.
    """
    ours = stored.read_bytes()
    theirs = made.read_bytes()
    if ours == theirs:
        return
    our_text, their_text = (
        content.decode("utf-8", errors="backslashreplace") for content in (ours, theirs)
    )
    if stored.suffix == ".html":  # another zlib compresses the same data to other bytes
        our_text = readable_page(our_text)
        their_text = readable_page(their_text)
    differences_found = _differences(stored.suffix, our_text, their_text)
    if (first := next(differences_found, None)) is not None:
        yield first
        yield from differences_found
    elif REDACTED not in our_text:  # a digit beyond a number's precision, a blank
        pairs = zip(our_text.split("\n"), their_text.split("\n"), strict=False)
        for number, (our_line, their_line) in enumerate(pairs, start=1):
            if our_line != their_line:
                yield from _of_texts(our_line, their_line, f"line {number}")
                return


def _differences(suffix: str, stored: str, made: str) -> Iterator[Difference]:
    if suffix in (".yaml", ".yml", ".json"):
        parse: Any = json.loads if suffix == ".json" else parse_own
        try:
            document = parse(stored)
        except (YamlError, ValueError) as error:
            yield Difference("", f"cannot be read ({str(error).splitlines()[0]})", "a document")
            return
        yield from differences(document, parse(made))
        return
    pairs = zip_longest(stored.split("\n"), made.split("\n"), fillvalue=ABSENT)
    for number, (ours, theirs) in enumerate(pairs, start=1):
        line = f"line {number}"
        if ours is ABSENT or theirs is ABSENT:
            yield Difference(line, shown(ours), shown(theirs))
        elif ours != theirs:
            try:
                documents = (json.loads(ours), json.loads(theirs)) if suffix == ".jsonl" else None
            except ValueError:
                documents = None
            if documents is None:
                yield from _of_texts(ours, theirs, line)
            else:
                for difference in differences(*documents):
                    yield Difference(
                        f"{line}: {difference.field}" if difference.field else line,
                        difference.stored,
                        difference.made,
                    )


def _of_texts(stored: str, made: str, field: str) -> Iterator[Difference]:
    if not same_text(stored, made):
        at = next((i for i, (a, b) in enumerate(zip(stored, made, strict=False)) if a != b), 0)
        begin = max(0, at - _MAX_SHOWN // 2)
        yield Difference(field, shown(stored[begin:]), shown(made[begin:]))


def differences(stored: Any, made: Any, path: str = "") -> Iterator[Difference]:
    """Of two documents. Numbers are the same where they are equal and of one kind; fields may
    have any order.
    """
    if isinstance(stored, Mapping) and isinstance(made, Mapping):
        for name in dict.fromkeys([*stored, *made]):
            below = f"{path}.{name}" if path else str(name)
            yield from differences(stored.get(name, ABSENT), made.get(name, ABSENT), below)
    elif isinstance(stored, (list, tuple)) and isinstance(made, (list, tuple)):
        for number, (ours, theirs) in enumerate(zip_longest(stored, made, fillvalue=ABSENT)):
            yield from differences(ours, theirs, f"{path}[{number}]")
    elif isinstance(stored, str) and isinstance(made, str) and same_text(stored, made):
        return
    elif type(stored) is not type(made) or stored != made:
        yield Difference(path, shown(stored), shown(made))


def same_text(stored: str, made: str) -> bool:
    """Whether they are equal, whatever stands where the stored one was redacted."""
    if stored == made or REDACTED not in stored:
        return stored == made
    pattern = ".*?".join(re.escape(piece) for piece in stored.split(REDACTED))
    return re.fullmatch(pattern, made, re.DOTALL) is not None


def shown(value: Any) -> str:
    """A value for a message, cut."""
    if isinstance(value, str):
        text = value
    elif value is ABSENT:
        text = repr(value)
    else:
        text = json.dumps(value, default=str)
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[:_MAX_SHOWN]} ..."
