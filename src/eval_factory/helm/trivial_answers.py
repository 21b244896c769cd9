"""Answers that need no model: nothing, a refusal, the same letter every time, a letter at random. Pure functions.

What such answers score is the floor of a metric: a score that is not above it does not show that a model read the
questions. Which answers there are depends on the data that was read, never on what the model answered.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REFUSAL = "I'm sorry, but I cannot answer this question."
SEED = 14
SUITED = {"value": ("0",), "sentence": ("CORRECT", "0"), "sql": ("SELECT 1",)}
"""`answer_form` of a task in framework.yml -> answers in that form that are the same to every question."""

MOST_LABELS = 12
LONGEST_LABEL = 20
"""Characters. Right answers that are few, short and repeated are labels, whoever declared them or not."""

REPEATED = 2
"""What is right once only is nobody's habit."""

EMPTY_NAME, REFUSAL_NAME, MAJORITY_NAME, RANDOM_NAME = "empty", "refusal", "majority", "random"


@dataclass(frozen=True)
class Question:
    """What is known of one instance."""

    id: str
    right: tuple[str, ...]
    """The texts of the right references."""
    options: Mapping[str, str]
    """Label of an option -> its text; empty where the question has no options."""


@dataclass(frozen=True)
class Strategy:
    """One way to answer without a model."""

    name: str
    answers: tuple[str, ...]
    """One for each question, in their order."""

    @property
    def constant(self) -> str | None:
        """The answer, where it is the same to every question."""
        return self.answers[0] if len(set(self.answers)) == 1 else None


def always(answer: str) -> str:
    """The name of the strategy."""
    return f"always {answer}"


def strategies(questions: Sequence[Question], form: str | None = None) -> list[Strategy]:
    """All for these questions, those that matter most first: there may not be time for all.

    Args:
        form: `answer_form` of the task.
    """
    if not questions:
        return []
    labels = _labels(questions, form)
    suited = (*labels, *SUITED.get(form or "", ()))
    same = {EMPTY_NAME: "", REFUSAL_NAME: REFUSAL} | {always(answer): answer for answer in suited}
    found = {name: (answer,) * len(questions) for name, answer in same.items()}
    if form != "sql":  # each answer is executed there; the most frequent gold query is none at all
        others = {MAJORITY_NAME: _majority(questions), RANDOM_NAME: _at_random(questions, labels, form)}
        found |= {name: answers for name, answers in others.items() if answers is not None}
    first = [name for name in (EMPTY_NAME, REFUSAL_NAME, MAJORITY_NAME) if name in found]
    return [Strategy(name, found[name]) for name in dict.fromkeys([*first, *found])]


def _labels(questions: Sequence[Question], form: str | None) -> list[str]:
    """All that an answer may be; nothing where answers are asked for in words, or in another form."""
    offered = {label for question in questions for label in question.options}
    if offered or form is not None:
        return sorted(offered)
    right = {text.strip() for question in questions for text in question.right}
    short = all(0 < len(text) <= LONGEST_LABEL for text in right)
    few = 0 < len(right) <= min(MOST_LABELS, len(questions) // 2)
    return sorted(right) if short and few else []


def _majority(questions: Sequence[Question]) -> tuple[str, ...] | None:
    """The right answer that most questions have; None where none is that of two.

    Of options it is the text that counts, wherever it stands among them, where at least every second question offers
    it (yes, no, maybe); else the letter that is right most often.
    """
    texts = Counter(text for question in questions for text in question.right)
    text, times = texts.most_common(1)[0] if texts else ("", 0)
    if not any(question.options for question in questions):
        return (text,) * len(questions) if times >= REPEATED else None
    letters = Counter(label for question in questions for label in _right_labels(question))
    letter = letters.most_common(1)[0][0] if letters else ""
    found = [_label_of(question, text) for question in questions]
    if times < REPEATED or found.count(None) * 2 > len(found):
        return (letter,) * len(questions)
    return tuple(letter if label is None else label for label in found)


def _right_labels(question: Question) -> list[str]:
    return [label for label, text in question.options.items() if text in question.right]


def _label_of(question: Question, text: str) -> str | None:
    return next((label for label, option in question.options.items() if option == text), None)


def _at_random(questions: Sequence[Question], labels: Sequence[str], form: str | None) -> tuple[str, ...] | None:
    """A label of the question's own; where a form is asked for, what is right for some question; else nothing."""
    pool: Sequence[str] = labels
    if not labels and form is not None:
        pool = [text for question in questions for text in question.right]
    if not pool:
        return None
    return tuple(
        random.Random(f"{SEED}:{question.id}").choice(list(question.options) or pool)  # noqa: S311 - no secret
        for question in questions
    )


def with_answer(annotation: Mapping[str, Any], of_answer: Mapping[str, Any]) -> dict[str, Any]:
    """An annotation of the model's answer -> that of another answer to the same question.

    Args:
        of_answer: what is said of the other answer; it needs no filling in, so both executions of it are one.
    """
    made = {**annotation, **of_answer}
    evaluated = annotation.get("as_evaluated")
    if evaluated is not None:
        made["as_evaluated"] = {**evaluated, **{key: of_answer[key] for key in of_answer if key in _EXECUTED}}
    return made


_EXECUTED = ("predicted_result", "query_error")
