"""What a reader of a score has to know, the weightiest first, and whether the score may be
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import DEMO, Instances, TaskResult

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

    @property
    def urgent(self) -> int:
        """How many say that there is no result, or that something is missing from it."""
        weights = [weight for weight in self._notes.values() if weight <= Importance.INCOMPLETE]
        return len(weights)

    def texts(self) -> tuple[str, ...]:
        """By importance; among equals in the order in which they were added."""
        return tuple(sorted(self._notes, key=self._notes.__getitem__))


_PROMPT = (
    "ask for the form in target.api_endpoint.adapter_config.custom_system_prompt, "
    "and look at the answers: results.jsonl has their `signs`"
)
_TOKENS = (
    "set config.params.extra.num_output_tokens, 4096 for example: "
    "a model that thinks first needs more tokens than the benchmark grants"
)


_PARSER = (
    "the server puts all of the answer into its reasoning field: give it this model's reasoning "
    "parser, or none (vLLM and SGLang: --reasoning-parser; llama.cpp: --reasoning-format)"
)
_ENDED = (
    "the model itself ended with nothing: look at the server's chat template and stop words "
    "(adapter_config.params_to_remove: [stop] sends none)"
)
WINDOW = (
    "a larger window of the server keeps all of a prompt (Ollama: num_ctx; llama.cpp: --ctx-size)"
)
UNPARSED = "unparsed"
UNFINISHED = "unfinished"
CUT_OFF = "cut_off"
FULL_WINDOW = "full_window"
IN_REASONING = "in_reasoning"
ENDED = "ended"
_UNREADABLE: Mapping[str, tuple[str, str]] = {
    UNPARSED: ("are not in the form that the benchmark asks for", _PROMPT),
    UNFINISHED: ("were cut off while the model was thinking", _TOKENS),
    CUT_OFF: ("are empty and were cut off", _TOKENS),
    FULL_WINDOW: ("were cut off before their tokens were used up: the window is full", WINDOW),
    IN_REASONING: ("are empty, and ended with all their text in the reasoning field", _PARSER),
    ENDED: ("are empty, and were not cut off", _ENDED),
}
"""Kind of an answer that says nothing, by its cause and its finish reason -> words, and what to
set.
"""


def too_unreadable(
    instances: Instances, max_unreadable: float, kinds: Mapping[str, int]
) -> tuple[str, ...]:
    """A reason for each way in which answers say nothing, with what to set, the most frequent
    first; none where so many may.

    `kinds`: how many answers there are of each kind of `_UNREADABLE`.
    """
    answered = instances.requested - instances.failed
    if not answered or instances.unreadable / answered <= max_unreadable:
        return ()
    limit = f"max_unreadable is {max_unreadable:g}"
    reasons = []
    for kind, count in sorted(kinds.items(), key=lambda item: -item[1]):
        if not count:
            continue
        state, advice = _UNREADABLE[kind]
        reason = f"{count} of {answered} answers {state}"
        if count < instances.unreadable:
            reason += f" (the score reads nothing of {instances.unreadable} of {answered})"
        reasons.append(f"{reason}; {limit}\n  {advice}")
    return tuple(reasons)


DEMO_MESSAGE = (
    "NOT REPORTABLE: demo: the embedded endpoint answered, which is no model\n"
    "  give target.api_endpoint.url, model_id and api_key of a model"
)


def failure_in(not_reportable: str | None) -> str | None:
    """The part of `why_not_reportable` that makes the exit code 1: all, except of a demo."""
    if not_reportable == DEMO_MESSAGE:
        return None
    return not_reportable


def why_not_reportable(result: TaskResult, min_coverage: float) -> str | None:
    """The message, and what to do; None where the scores may be reported."""
    if result.reportable:
        return None
    reasons = []
    for reason in result.validity.not_reportable:
        reasons.append(DEMO_MESSAGE if reason == DEMO else f"NOT REPORTABLE: {reason}")
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
