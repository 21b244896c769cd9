"""Lists the finish reasons: the reasons why a model's generation ended.

`endpoint/finish_reasons.yml` lists the words of servers for each finish reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval_factory.core.enums import TextEnum


class FinishReason(TextEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    FILTERED = "content_filter"
    REFUSAL = "refusal"
    TOOL_CALLS = "tool_calls"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class FinishFacts:
    """The facts about a finish reason."""

    sign: str | None = None  # the sign of instances with this reason (`core/signs.py`)
    inspect: str = ""  # the word for the reason in Inspect's logs
    is_answer: bool = True  # False: the text is not an answer, and the question is asked again


FINISH_REASONS: Mapping[FinishReason, FinishFacts] = {
    FinishReason.STOP: FinishFacts(inspect="stop"),
    FinishReason.LENGTH: FinishFacts(inspect="max_tokens", sign="cut_off"),
    FinishReason.FILTERED: FinishFacts(inspect="content_filter", sign="filtered"),
    FinishReason.REFUSAL: FinishFacts(inspect="content_filter", sign="refused"),
    FinishReason.TOOL_CALLS: FinishFacts(inspect="tool_calls"),
    FinishReason.INTERRUPTED: FinishFacts(is_answer=False),
}


def facts_of_finish_reason(reason: str | None) -> FinishFacts:
    """Return the facts about a finish reason; default facts for an unknown word of a server."""
    for known, facts in FINISH_REASONS.items():
        if known == reason:  # `get` would not find a text: its hash differs from the member's
            return facts
    return FinishFacts()


def finish_reason_from_inspect(word: str) -> str:
    """Return the finish reason for a word in Inspect's logs; the word itself if it is unknown.

    Inspect uses `content_filter` for refusals, too: the result is then FILTERED.
    """
    if not word:  # the log states no reason; INTERRUPTED has no word of Inspect's either
        return word
    if word == "model_length":  # the context window of the model was full
        return FinishReason.LENGTH.value
    for reason, facts in FINISH_REASONS.items():
        if facts.inspect == word:
            return reason.value
    return word
