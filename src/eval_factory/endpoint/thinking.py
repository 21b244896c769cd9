"""Splits a model's text into the answer and the model's thinking, by the markers of many models."""

from __future__ import annotations

import re
from dataclasses import dataclass

_THINKING_MARKERS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<unused94>", "<unused95>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""The (start, end) markers around a model's thinking.

The first pair is the default of a run config. If a config has another pair, only that pair is used.
The pair `<unused94>` is MedGemma's. The last pair are the channels of gpt-oss (harmony).
"""
_HEADING = re.compile(r"\s*#+ *Thinking *:?\n", re.IGNORECASE)  # "## Thinking"
_FINAL_HEADING = re.compile(  # "## Final Response"
    r"^#+ *Final Response *:?$", re.IGNORECASE | re.MULTILINE
)
"""The two headings of HuatuoGPT.

`_FINAL_HEADING` only counts after `_HEADING`, because other models may write a final heading too.
"""
_HARMONY = re.compile(r"<\|start\|>assistant|<\|channel\|>\w*|<\|(?:end|return|message)\|>")
"""Finds markers of the harmony format that may be left in the answer or in the thinking.

Examples: `<|start|>assistant`, `<|channel|>final`, `<|end|>`.
"""


@dataclass(frozen=True)
class AnswerAndThinking:
    """The two parts of a text: the answer, which is scored, and the model's thinking."""

    answer: str
    thought: str | None  # None if the text has no marker
    unfinished: bool = False  # True if the text ends in the middle of the thinking


def split_thinking(text: str, start: str, end: str, *, cut_off: bool = False) -> AnswerAndThinking:
    """Split a text into the answer and the model's thinking.

    If the two markers are the default pair, all known pairs are used; else only this pair. After a
    start marker without an end marker, all text is thinking. Before an end marker without a start
    marker, all text is thinking too: the start was then in the model's chat template.

    Args:
        text: the complete text.
        start: the marker before the thinking.
        end: the marker after the thinking.
        cut_off: whether the text ends because no more tokens were granted, so that it may end
            inside a marker.
    """
    if (start, end) != _THINKING_MARKERS[0]:
        return _split(text, start, end, cut_off=cut_off)
    split = _split_at_headings(text)
    for markers in _THINKING_MARKERS:
        # If the thinking is unfinished, the text was cut off there, not at the end of the answer.
        answer_split = _split(split.answer, *markers, cut_off=cut_off and not split.unfinished)
        if answer_split.thought is not None:
            thoughts = [thought for thought in (split.thought, answer_split.thought) if thought]
            split = AnswerAndThinking(
                answer_split.answer,
                thought="\n\n".join(thoughts),
                unfinished=answer_split.unfinished or split.unfinished,
            )
    if split.thought is None or "<|" not in text:
        return split
    return AnswerAndThinking(
        _HARMONY.sub("", split.answer).strip(),
        thought=_HARMONY.sub("", split.thought).strip(),
        unfinished=split.unfinished,
    )


def _split_at_headings(text: str) -> AnswerAndThinking:
    """Split a text that begins with the heading "## Thinking"; all other text is an answer."""
    begin = _HEADING.match(text)
    if begin is None:
        return AnswerAndThinking(text, thought=None)
    end = _FINAL_HEADING.search(text, begin.end())
    if end is None:
        return AnswerAndThinking("", thought=text[begin.end() :].strip(), unfinished=True)
    return AnswerAndThinking(
        text[end.end() :].strip(), thought=text[begin.end() : end.start()].strip()
    )


def _split(text: str, start: str, end: str, *, cut_off: bool) -> AnswerAndThinking:
    """Split a text by a single pair of markers; a text without markers is an answer."""
    if start[:1] not in text and end[:1] not in text:  # a fast check, for long texts
        return AnswerAndThinking(text, thought=None)
    before_end, end_marker, after_end = text.rpartition(end)  # at the last end marker
    if end_marker:
        before_start, start_marker, thought = before_end.partition(start)
        if start_marker:
            return AnswerAndThinking((before_start + after_end).strip(), thought=thought)
        # The start marker was in the chat template.
        return AnswerAndThinking(after_end.strip(), thought=before_end)
    before_start, start_marker, thought = text.partition(start)
    if start_marker:  # without an end marker
        return AnswerAndThinking(before_start.strip(), thought=thought, unfinished=True)
    if cut_off:  # the text may end in a part of the start marker
        stripped = text.rstrip()
        part = _part_of_marker(stripped, start)
        if part:
            answer = stripped.removesuffix(part).strip()
            return AnswerAndThinking(answer, thought="", unfinished=True)
    return AnswerAndThinking(text, thought=None)


def _part_of_marker(text: str, marker: str) -> str:
    """Return the end of a text if this end is the beginning of a marker; else an empty text.

    If other text comes before this part, the part must be longer than half of the marker, because
    an answer may end in `<` or `<t`. If the text is nothing but the part, two characters are
    enough; a single character counts as an answer.
    """
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        part = marker[:length]
        if text.endswith(part):
            is_alone = text.strip() == part and length > 1
            if is_alone or 2 * length > len(marker):
                return part
            return ""
    return ""
