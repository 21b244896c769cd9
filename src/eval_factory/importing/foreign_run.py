"""Defines the records of another program's results: a run, and the samples of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_OPTIONS = 26
"""The maximum number of options, because options are named by the letters A to Z."""


def option_index(letter: str, option_count: int) -> int | None:
    """Return the index of the option that a letter names: 0 for A and a, 1 for B and b.

    Returns None if the text is not one letter, or if there is no such option.
    """
    capital = letter.upper()
    if len(capital) != 1:  # also for one small letter: the capital of "ß" is "SS"
        return None
    index = ord(capital) - ord("A")
    if not 0 <= index < option_count:
        return None
    return index


@dataclass(frozen=True)
class ForeignSample:
    """One answer of a model to one question, as another program stored it."""

    id: str  # the id of the question
    repeat: int  # the number of earlier answers to the same question: 0 for the first answer
    prompt: str
    values: Mapping[str, float]  # metric -> value; a value that is no number is left out
    completion: str | None = None  # the answer of the model
    question: str | None = None  # the question without instructions, if the program stores it
    options: tuple[str, ...] = ()
    right_options: tuple[int, ...] = ()  # the indices of the right options in `options`
    right_answers: tuple[str, ...] = ()  # the accepted answers; used if there are no options
    # the messages of a conversation before the answer, each a dict with `role` and `content`
    turns: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None  # the reason why there is no answer
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    latency_s: float | None = None  # the time from the request to the answer, in seconds
    reasoning: str | None = None  # the thinking of the model, if the program stores it
    # scorer -> criterion -> the judgement, such as {"explanation": text}
    judgements: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    categories: Mapping[str, Any] = field(default_factory=dict)  # category -> value, for groups
    cluster: str | None = None  # the group of related questions to which the question belongs

    @property
    def is_comparable(self) -> bool:
        """True if there is an answer whose stated option can be compared with a right option."""
        has_letters = 1 < len(self.options) <= MAX_OPTIONS
        return self.completion is not None and has_letters and bool(self.right_options)

    @property
    def references(self) -> tuple[dict[str, Any], ...]:
        """The options in the form of `InstanceRecord.references`; or else the right answers."""
        if not self.options:
            return tuple({"text": text, "tags": ["correct"]} for text in self.right_answers)
        references = []
        for index, text in enumerate(self.options):
            tags = ["correct"] if index in self.right_options else []
            references.append({"text": text, "tags": tags})
        return tuple(references)


@dataclass(frozen=True)
class ReportedValue:
    """The value of a metric that the program reported for all samples of a run."""

    value: float
    stderr: float | None = None
    higher_is_better: bool | None = None  # None if the program does not state the direction


@dataclass(frozen=True)
class ForeignRun:
    """One result of another program.

    `samples` reads the source again at each call, so that a run of any size needs little memory.
    `samples` is None if the source has no samples.
    """

    program: str
    version: str
    task: str
    model: str
    main_metric: str
    reported: Mapping[str, ReportedValue]  # metric -> reported value
    samples: Callable[[], Iterator[ForeignSample]] | None
    files: Mapping[str, str]  # name of a file of the source -> SHA-256
    # the data set that the program read: `owner/name` on the Hub, an address, or `helm:` with the
    # name of a run spec; None if the source does not state the data set
    dataset: str | None = None
    # the number of answers, with repeats, that the source states; None if not stated
    stated_samples: int | None = None
    finished: bool = True
    why_unfinished: str | None = None  # the reason, if the program did not finish
    started_at: str | None = None
    ended_at: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # the program's settings of the run
    unknown: tuple[str, ...] = ()  # names of facts that the source does not state: "cost"
    notes: tuple[str, ...] = ()  # sentences for the report


def counts_of_turns(messages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the numbers of the model's turns and tool calls, as categories of a sample.

    The number of turns is left out if it is 0 or 1, the number of tool calls if it is 0.
    """
    turns = 0
    calls = 0
    for message in messages:
        if message.get("role") == "assistant":
            turns += 1
            calls += len(message.get("tool_calls") or [])
    counts = {}
    if calls:
        counts["tool_calls"] = calls
    if turns > 1:
        counts["turns"] = turns
    return counts
