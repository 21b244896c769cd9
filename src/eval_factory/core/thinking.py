"""What a model thought and what it answered, where both come in one text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KNOWN = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""Markers around what a model thinks; the last are the channels of gpt-oss (harmony). The first are the default of a
run config: where it holds others, these alone are meant."""
_HARMONY = re.compile(r"<\|start\|>assistant|<\|channel\|>\w*|<\|(?:end|return|message)\|>")


@dataclass(frozen=True)
class Split:
    """One answer, taken apart: what is scored, and what the model thought (None: no marker was found)."""

    answer: str
    thought: str | None
    unfinished: bool = False
    """Whether the text ends in the middle of the thinking."""


def split_thinking(text: str, start: str, end: str, *, cut_off: bool = False) -> Split:
    """Take an answer apart, by these markers, or by all that are known where these are the default.

    A start without an end is thinking that was cut off: nothing after it is an answer. An end without a start
    belongs to a template that starts the thinking itself. `cut_off`: the text ends because no more tokens were granted:
    it may end inside a marker then.
    """
    if (start, end) != _KNOWN[0]:
        return _split(text, start, end, cut_off=cut_off)
    split = Split(text, None)
    for markers in _KNOWN:
        part = _split(split.answer, *markers, cut_off=cut_off and not split.unfinished)
        if part.thought is not None:
            thought = "\n\n".join(filter(None, (split.thought, part.thought)))
            split = Split(part.answer, thought, unfinished=part.unfinished or split.unfinished)
    if split.thought is None or "<|" not in text:
        return split
    return Split(_HARMONY.sub("", split.answer).strip(), _HARMONY.sub("", split.thought).strip(), split.unfinished)


def _split(text: str, start: str, end: str, *, cut_off: bool) -> Split:
    before, found_end, after = text.rpartition(end)
    if found_end:
        head, found_start, thought = before.partition(start)
        return Split((head + after if found_start else after).strip(), thought if found_start else head)
    head, found_start, thought = text.partition(start)
    if not found_start and cut_off:
        stripped = text.rstrip()
        found_start = _part_of_marker(stripped, start)
        head = stripped.removesuffix(found_start)
    return Split(head.strip(), thought, unfinished=True) if found_start else Split(text, None)


def _part_of_marker(text: str, marker: str) -> str:
    """The first part of a marker that a text ends with; empty where there is none.

    After other words it has to be more than half of the marker, for an answer may end in `<` or `<t`. Alone a
    single sign of it is enough, but no letter or digit, which is an answer.
    """
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        part = marker[:length]
        if text.endswith(part):
            alone = text.strip() == part and not (length == 1 and part.isalnum())
            return part if alone or 2 * length > len(marker) else ""
    return ""
