"""Defines the prompts of tasks whose answers contain reasoning (`extra.answer_style: reasoned`).

Some benchmarks allow one to five tokens and forbid explanations. A model that reasons then fails
because of the form of its answer. With this style, the prompt asks for reasoning, and for a last
line with the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from eval_factory.core.plain_yaml import load_packaged

REASONED_STYLE = "reasoned"  # the value of `extra.answer_style` that asks for reasoning
LETTER_STYLE = "letter"  # a value of `ReasonedTask.answer_kind`
REASONED_MAX_TOKENS = 2048  # the token limit of an answer with reasoning
REASONED_SUFFIX = ".reasoned"
"""The end of the name of a main metric that is computed from the last lines of reasoned answers."""

_CLAUSES = {
    LETTER_STYLE: "X is the letter of the one right option",
    "value": "X is the requested value alone, without its unit",
}
"""A dict from `ReasonedTask.answer_kind` to the clause of the prompt that explains X in the line
`Answer: X`.
"""
# "Answer: B", also in Markdown: "**Answer:** B", "> _Answer_: B"
_ANSWER_LINE = re.compile(r"^[\s>*#_`]*answer[\s*_`]*:(.*)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class ReasonedTask:
    """The changes to one task's prompts, so that they ask for reasoning."""

    answer_kind: str  # the kind of answer in the last line: `letter` or `value`
    removes: tuple[str, ...] = ()  # the phrases of the instructions that ask for another form
    # the reason why the examples are removed; None: they stay, or the benchmark has no examples
    why_examples_left_out: str | None = None

    @property
    def request(self) -> str:
        """The end of a prompt, which replaces the benchmark's own end."""
        return (
            "Think step by step, and write your reasoning down. Then write one last line "
            f"`Answer: X`, where {_CLAUSES[self.answer_kind]}."
        )

    @property
    def keeps_examples(self) -> bool:
        """True if no examples are removed from the benchmark's prompts."""
        return self.why_examples_left_out is None

    def instructions(self, text: str) -> str:
        """Return the benchmark's instructions without the phrases that ask for another form.

        The result ends with a line break, or is empty if no other text is left. Raises ValueError
        if a phrase is missing in the instructions.
        """
        for phrase in self.removes:
            if phrase not in text:
                raise ValueError(
                    f"answer_style: the benchmark's instructions do not contain {phrase!r}"
                )
            text = text.replace(phrase, "")
        return f"{text.strip()}\n" if text.strip() else ""


@cache
def reasoned_tasks() -> Mapping[str, ReasonedTask]:
    """Return a dict from the name of each task that can ask for reasoning to its changes."""
    table = load_packaged("tasks/reasoned.yml")
    tasks = {}
    # An entry has the kind of the answer (`ends`), the phrases to remove (`removes`), and the key
    # of the reason why examples are left out (`left_out`).
    for name, entry in table["tasks"].items():
        why_examples_left_out = None
        if "left_out" in entry:
            why_examples_left_out = table["left_out_because"][entry["left_out"]]
        removes = tuple(entry.get("removes", ()))
        tasks[name] = ReasonedTask(entry["ends"], removes, why_examples_left_out)
    return tasks


def tasks_that_reason_already() -> tuple[str, ...]:
    """Return the names of the tasks whose own prompts ask for reasoning."""
    return tuple(load_packaged("tasks/reasoned.yml")["reason_already"])


def stated_at_end(answer: str) -> str:
    """Return X of the last line of the form `Answer: X`, without Markdown.

    If no line has this form, the complete answer is returned.
    """
    stated = _ANSWER_LINE.findall(answer)
    if not stated:
        return answer
    return str(stated[-1]).strip(" \t*_`")
