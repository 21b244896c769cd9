"""The answers that every benchmark is fed: right ones, right ones in another form, and such as know nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection

from scripts.validity.questions import Question

from eval_factory.tasks.framework import Task

GOLD, EMPTY, REFUSAL, CONSTANT, RANDOM, UNPARSED = "gold", "empty", "refusal", "constant", "random", "unparsed"
KINDS = (EMPTY, REFUSAL, CONSTANT, RANDOM, GOLD, UNPARSED)
"""`empty` is first: it needs no knowledge of the questions, which its run writes down for the others."""
FLOORS = (EMPTY, REFUSAL, CONSTANT, RANDOM)
OF_OPEN_TEXT = (EMPTY, REFUSAL, RANDOM, GOLD)
"""Text without a form has no constant that fits, and is never unparsed."""

SEED = 1
REFUSED = "I'm sorry, but I can't help with that."
UNPARSED_OPTION = "The answer is **{}**."
UNPARSED_TEXT = "The answer is as follows: {}"
NO_QUERY = "No query answers this question."
CONSTANTS = {"value": "0", "sentence": "CORRECT", "sql": "SELECT 1"}
"""Form of an answer -> what is answered whatever the question is; where options are given, the first of them."""
ADVICE = "Plan {}: rest, and see your physician in a week."
SENTENCE_IDS = re.compile(r"^(\d+) ", re.MULTILINE)
QUERIES = ("SELECT 1", "SELECT count(*) FROM patient", "SELECT gender FROM patient WHERE uniquepid = '1'", "")


def kinds_of(task: Task, asked: Collection[str] = KINDS) -> tuple[str, ...]:
    """Of the kinds that were asked for, those that tell something of this task; always the empty one."""
    fitting = OF_OPEN_TEXT if task.helm.judges else KINDS
    return tuple(kind for kind in fitting if kind in asked or kind == EMPTY)


def answer_of(kind: str, task: Task, question: Question) -> str:
    """What an endpoint of this kind says to a question."""
    rules: dict[str, Callable[[], str]] = {
        EMPTY: lambda: "",
        REFUSAL: lambda: REFUSED,
        GOLD: lambda: question.gold,
        CONSTANT: lambda: _constant(task, question),
        RANDOM: lambda: _random(task, question),
        UNPARSED: lambda: _unparsed(task, question),
    }
    return rules[kind]()


def drawn(text: str, choices: int) -> int:
    """A number below `choices` that depends on the seed and the text alone."""
    return int(hashlib.sha256(f"{SEED}:{text}".encode()).hexdigest(), 16) % choices


def _constant(task: Task, question: Question) -> str:
    if task.helm.answer_form is not None:
        return CONSTANTS[task.helm.answer_form]
    return str((task.helm.answer_labels or question.labels)[0])


def _random(task: Task, question: Question) -> str:
    labels = task.helm.answer_labels or question.labels
    if labels:
        return str(labels[drawn(question.prompt, len(labels))])
    if task.helm.answer_form == "sql":
        return QUERIES[drawn(question.prompt, len(QUERIES))]
    if task.helm.answer_form == "sentence":
        offered: list[str] = ["CORRECT", *SENTENCE_IDS.findall(question.prompt)]
        return offered[drawn(question.prompt, len(offered))]
    if task.helm.answer_form == "value":
        return str(drawn(question.prompt, 100))
    return ADVICE.format(drawn(question.prompt, 100_000))


def _unparsed(task: Task, question: Question) -> str:
    if question.labels or task.helm.answer_labels:
        return UNPARSED_OPTION.format(question.gold)
    return UNPARSED_TEXT.format(question.gold) if question.gold else NO_QUERY
