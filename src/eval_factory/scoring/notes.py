"""What a reader of a score has to know, the weightiest first, and whether the score may be
reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Instances, TaskResult

MAX_NOTE = 2_000


class Importance(IntEnum):
    """How much a note changes what a score means."""

    NO_RESULT = 1  # there is no score, or it says nothing about the model
    INCOMPLETE = 2  # instances, judgements or records are missing from the score
    DOUBTFUL = 3  # the score may be wrong, or not comparable with another run's
    BACKGROUND = 4  # true of the benchmark, whoever is evaluated


class Note(NamedTuple):
    importance: Importance
    text: str


class Notes:
    """Collects notes; each is said once."""

    def __init__(self) -> None:
        self._notes: dict[str, Importance] = {}

    def add(self, importance: Importance, *texts: str) -> None:
        for text in texts:
            line = one_line(text, MAX_NOTE)
            self._notes[line] = min(importance, self._notes.get(line, importance))

    def extend(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self.add(note.importance, note.text)

    def texts(self) -> tuple[str, ...]:
        """By importance; among equals in the order in which they were added."""
        return tuple(sorted(self._notes, key=self._notes.__getitem__))


_PROMPT = (
    "set the prompt: adapter_config.custom_system_prompt can ask for the form; "
    "where answers are cut off,"
    " config.params.extra.num_output_tokens grants more"
)
_TOKENS = (
    "set config.params.extra.num_output_tokens, 4096 for example: "
    "a model that thinks first needs more than"
    " the benchmark grants"
)
MARKERS = (
    "set adapter_config.start_reasoning_token and end_reasoning_token "
    "where the model marks its thinking by other"
    " words than the configured ones"
)


def too_unreadable(instances: Instances, max_unreadable: float) -> tuple[str, ...]:
    """How many answers say nothing, why, and what to set, the most frequent first; nothing where
    so many may.
    """
    answered = instances.requested - instances.failed
    if not answered or instances.unreadable / answered <= max_unreadable:
        return ()
    unfinished = instances.thinking_unfinished
    silent = instances.unreadable - instances.unparsed - unfinished
    reasons = [
        (instances.unparsed, "not in the form that the benchmark asks for", _PROMPT),
        (unfinished, "cut off while the model was thinking", _TOKENS),
        (silent, "empty", _TOKENS),
    ]
    found = sorted((reason for reason in reasons if reason[0]), key=lambda reason: -reason[0])
    counted = ", ".join(f"{count} {what}" for count, what, _ in found)
    how_many = (
        f"{instances.unreadable} of {answered} answers say nothing that can be scored ({counted})"
    )
    lines = [
        f"{how_many}; max_unreadable is {max_unreadable:g}",
        *dict.fromkeys(advice for _, _, advice in found),
        MARKERS,
        (
            "results.jsonl holds the answers, with their `signs`; "
            "extra.max_unreadable accepts more of them"
        ),
    ]
    return ("\n  ".join(lines),)


def why_not_reportable(result: TaskResult, min_coverage: float) -> str | None:
    """The message, and what to do; None where the scores may be reported."""
    if result.reportable:
        return None
    reasons = [f"NOT REPORTABLE: {reason}" for reason in result.validity.not_reportable]
    coverage = result.validity.instances.coverage
    if result.main_metric not in result.scores and not result.something_to_ask:
        reasons.insert(0, "NOT REPORTABLE: HELM computed no main metric; validity.notes say why")
    elif coverage < min_coverage or not reasons:
        advice = (
            "run the same command again to ask for what is missing"
            if result.something_to_ask
            else "nothing is left to ask for: validity.notes say why; "
            "extra.min_coverage accepts less"
        )
        found = formats.score(formats.rounded(coverage))
        reasons.insert(
            0, f"NOT REPORTABLE: coverage {found}, min_coverage is {min_coverage:g}\n  {advice}"
        )
    return "\n".join(reasons)
