"""What a model thought before it answered, told from the answer by the markers around it."""

from __future__ import annotations

import re
from dataclasses import dataclass

KNOWN = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""The markers of models that are widely served; the last are the channels of gpt-oss (harmony). The first are the
default of a run config: where it holds others, these alone are meant."""
_HARMONY = re.compile(r"<\|start\|>assistant|<\|channel\|>\w*|<\|(?:end|return|message)\|>")


@dataclass(frozen=True)
class Split:
    """One answer, taken apart."""

    answer: str
    """What is scored."""
    thought: str | None
    """None where no marker was found; the answer is the text itself then."""
    unfinished: bool = False
    """Whether the text ends in the middle of the thinking."""


def split_thinking(text: str, start: str, end: str, *, cut_off: bool = False) -> Split:
    """Take an answer apart, by these markers, or by all that are known where these are the default.

    A start without an end is thinking that was cut off: nothing after it is an answer. An end without a start
    belongs to a template that starts the thinking itself.

    Args:
        start: the marker before the thinking, such as `<think>`.
        end: the marker after it.
        cut_off: whether the text ends because no more tokens were granted: it may end inside a marker then.
    """
    if (start, end) != KNOWN[0]:
        return _split(text, start, end, cut_off=cut_off)
    whole = Split(text, None)
    for markers in KNOWN:
        part = _split(whole.answer, *markers, cut_off=cut_off and not whole.unfinished)
        if part.thought is not None:
            thought = "\n\n".join(filter(None, (whole.thought, part.thought)))
            whole = Split(part.answer, thought, unfinished=part.unfinished or whole.unfinished)
    if whole.thought is None or "<|" not in text:
        return whole
    return Split(_HARMONY.sub("", whole.answer).strip(), _HARMONY.sub("", whole.thought).strip(), whole.unfinished)


def _split(text: str, start: str, end: str, *, cut_off: bool) -> Split:
    before, found_end, after = text.rpartition(end)
    if found_end:
        head, found_start, thought = before.partition(start)
        return Split((head + after if found_start else after).strip(), thought if found_start else head)
    head, found_start, thought = text.partition(start)
    if not found_start and cut_off:
        begun = _begun_marker(text.rstrip(), start)
        head, found_start = text.rstrip()[: len(text.rstrip()) - len(begun)], begun
    return Split(head.strip(), thought, unfinished=True) if found_start else Split(text, None)


def _begun_marker(text: str, marker: str) -> str:
    """The beginning of a marker that a text ends with; empty where there is none.

    After other words it has to be more than half of the marker, for an answer may end in `<` or `<t`. Alone a
    single sign of it is enough, but no letter or digit, which is an answer.
    """
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        begun = marker[:length]
        if text.endswith(begun):
            alone = text.strip() == begun and not (length == 1 and begun.isalnum())
            return begun if alone or 2 * length > len(marker) else ""
    return ""
