"""Answers that need no model: nothing, a refusal, the same letter every time, the longest option;
and what they score.

A score that is not above theirs does not show that a model read the questions. Which answers there
are depends on the data, never on what the model answered. Our plug-in scores them, and writes the
scores into HELM's output folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names

REFUSAL = "I'm sorry, but I cannot answer this question."
FORM_ANSWERS = {
    "value": ("0",),
    "sentence": ("CORRECT", "0"),
    "sql": ("SELECT 1",),
    "rating": ("0", "+1", "-1", "+2", "-2"),
}
"""The answers that are the same to every question, by the `answer_form` of a task in framework.yml.
"""

MAX_LABELS = 12
MAX_LABEL_LENGTH = 20
"""Characters. Right answers that are few, short and repeated are labels, whoever declared them
or not.
"""

_REPEATED = 2  # an answer that is right only once is nobody's habit

EMPTY_NAME = "empty"
REFUSAL_NAME = "refusal"
MAJORITY_NAME = "majority"
RANDOM_NAME = "random"
SHORTEST_NAME = "shortest option"
LENGTH_NAME = "length threshold"
LEAD_NAME = "first sentences"

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True)
class AskedQuestion:
    """The facts about one instance."""

    id: str
    right: tuple[str, ...]  # the texts of the right references
    # label of an option -> its text; empty if the question has no options
    options: Mapping[str, str]
    text: str = ""  # the question without the prompt around it
    source: str | None = None
    """The source that the question shares with others: the calculator's name, or the question that
    several answers belong to.
    """


@dataclass(frozen=True)
class Strategy:
    """One way to answer without a model."""

    name: str
    answers: tuple[tuple[str, ...], ...]
    """The answers to each question, in the questions' order: one, or several equally likely ones if
    the answer is random.
    """

    @property
    def constant(self) -> str | None:
        """The answer, if it is the same to every question."""
        if len(set(self.answers)) == 1 and len(self.answers[0]) == 1:
            return self.answers[0][0]
        return None


def strategies(
    questions: Sequence[AskedQuestion],
    form: str | None = None,
    *,
    by: str = "source",
    overlap: bool = False,
) -> list[Strategy]:
    """All strategies for these questions, those that matter most first.

    Args:
        questions: The questions of the run.
        form: `answer_form` of the task.
        by: A word for the questions' sources.
        overlap: True if a metric compares the words of the answer with those of a reference.
    """
    if not questions:
        return []
    labels = _labels(questions, form)
    fixed = {EMPTY_NAME: "", REFUSAL_NAME: REFUSAL}
    for answer in (*labels, *FORM_ANSWERS.get(form or "", ())):
        fixed[f"always {answer}"] = answer
    by_name = {name: (answer,) * len(questions) for name, answer in fixed.items()}
    if form != "sql":  # each answer is executed there; the most frequent gold query is none at all
        by_name |= dict(_that_look_at_the_data(questions, by))
    if overlap and not labels:
        # Complete sentences, up to as many words as half of the references have.
        words = [len(text.split()) for text in _right(questions)]
        enough = statistics.median(words or [0])
        by_name[LEAD_NAME] = tuple(_lead(question.text, enough) for question in questions)
    first = (LEAD_NAME, EMPTY_NAME, REFUSAL_NAME, MAJORITY_NAME)
    made = []
    for name in dict.fromkeys([*first, *by_name]):
        if name in by_name:
            made.append(Strategy(name, tuple((answer,) for answer in by_name[name])))
    if labels:
        choices = tuple(tuple(question.options or labels) for question in questions)
        made.append(Strategy(RANDOM_NAME, choices))
    return made


def _right(questions: Iterable[AskedQuestion]) -> Iterator[str]:
    """The right answers to all questions."""
    return chain.from_iterable(question.right for question in questions)


def _that_look_at_the_data(
    questions: Sequence[AskedQuestion], by: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    majority = _majority(questions)
    if majority is not None:
        yield MAJORITY_NAME, majority
    by_source = _majority_by_source(questions, majority or ("",) * len(questions))
    if by_source is not None:
        yield f"{MAJORITY_NAME} by {by}", by_source
    offered = {tuple(sorted(question.options.values())) for question in questions}
    # else one option is the longest of every question
    if len(offered) > 1 and min(map(len, offered)) > 1:
        longest = []
        shortest = []
        for question in questions:
            lengths = {label: len(option) for label, option in question.options.items()}
            longest.append(max(lengths, key=lengths.__getitem__))
            shortest.append(min(lengths, key=lengths.__getitem__))
        yield "longest option", tuple(longest)
        yield SHORTEST_NAME, tuple(shortest)
    classes = Counter(_right(questions))
    if len(classes) != 2 or min(classes.values()) < _REPEATED:
        return
    if all(len(question.right) == 1 for question in questions):
        yield LENGTH_NAME, tuple(answer or "" for answer in _cross_fitted(questions, _by_length))


_Answering = Callable[[AskedQuestion], str | None]  # None: it has no answer to this question


def _cross_fitted(
    questions: Sequence[AskedQuestion], fit: Callable[[Sequence[AskedQuestion]], _Answering]
) -> list[str | None]:
    """The questions of each half, answered by what was fitted on the other half.

    The hash of a question's id decides about its half. Its position would be a trap: data sets put
    a right and a wrong answer in turn.
    """
    order = sorted(
        range(len(questions)),
        key=lambda number: hashlib.sha256(questions[number].id.encode()).digest(),
    )
    answers: list[str | None] = [None] * len(questions)
    for answered, fitted in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        answer = fit([questions[number] for number in fitted])
        for number in answered:
            answers[number] = answer(questions[number])
    return answers


def _majority_by_source(
    questions: Sequence[AskedQuestion], otherwise: Sequence[str]
) -> tuple[str, ...] | None:
    """The right answer that most questions of the same source have, in the other half of them, or
    `otherwise`; None if no two questions share a source.
    """
    sources: dict[str, list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        if question.source is not None:
            sources[question.source].append(number)

    def most_usual(fitted: Sequence[AskedQuestion]) -> _Answering:
        usual = Counter(_right(fitted)).most_common(1)
        if not usual:
            return lambda _question: None
        return lambda question: _answer_of(question, usual[0][0])

    is_shared = False
    answers = list(otherwise)
    for numbers in sources.values():
        if len(numbers) < 2:
            continue
        is_shared = True
        fitted = _cross_fitted([questions[number] for number in numbers], most_usual)
        for number, answer in zip(numbers, fitted, strict=True):
            if answer is not None:
                answers[number] = answer
    if not is_shared:
        return None
    return tuple(answers)


def _by_length(fitted: Sequence[AskedQuestion]) -> _Answering:
    """Answer one class up to a length and the other beyond it, with the cut that is right most
    often for these questions.
    """
    classes = sorted({question.right[0] for question in fitted})
    first = classes[0]
    last = classes[-1]
    rules = []
    for number, measure in enumerate(_MEASURES):
        for cut, hits_first, hits_last in _cuts(fitted, measure, first):
            rules.append((hits_first, number, cut, first, last))
            rules.append((hits_last, number, cut, last, first))
    _, number, cut, shorter, longer = max(rules)

    def answer(question: AskedQuestion) -> str | None:
        if _MEASURES[number](question.text) <= cut:
            return _answer_of(question, shorter)
        return _answer_of(question, longer)

    return answer


_MEASURES: tuple[Callable[[str], int], ...] = (
    len,
    lambda text: len(text.strip().rpartition("\n\n")[2]),
)
"""Measures of how long a question is: all of its text, or its last paragraph (the answer to be
judged, after what it is about).
"""


def _cuts(
    fitted: Sequence[AskedQuestion], measure: Callable[[str], int], first: str
) -> Iterator[tuple[int, int, int]]:
    """Yield each length, how many are right if `first` is the answer up to it, and how many if
    `first` is the answer beyond it.
    """
    rows = sorted((measure(question.text), question.right[0] == first) for question in fitted)
    firsts = sum(is_first for _, is_first in rows)
    so_far = 0
    for count, (length, is_first) in enumerate(rows, start=1):
        so_far += is_first
        if count == len(rows) or rows[count][0] > length:
            hits = so_far + (len(rows) - count) - (firsts - so_far)
            yield length, hits, len(rows) - hits


def _answer_of(question: AskedQuestion, text: str) -> str | None:
    if not question.options:
        return text
    return _label_of(question, text)


def _lead(text: str, enough: float) -> str:
    """The first sentences of the source, up to `enough` words."""
    taken: list[str] = []
    words = 0
    for sentence in _SENTENCE_END.split(text.strip()):
        words += len(sentence.split())
        if taken and words > enough:
            break
        taken.append(sentence)
    return " ".join(taken)


def _labels(questions: Sequence[AskedQuestion], form: str | None) -> list[str]:
    """All that an answer may be; nothing if answers are asked for in words, or in another
    form.
    """
    offered = set(chain.from_iterable(question.options for question in questions))
    if offered or form is not None:
        return sorted(offered)
    right = {text.strip() for text in _right(questions)}
    short = all(0 < len(text) <= MAX_LABEL_LENGTH for text in right)
    few = 0 < len(right) <= min(MAX_LABELS, len(questions) // 2)
    if short and few:
        return sorted(right)
    return []


def _majority(questions: Sequence[AskedQuestion]) -> tuple[str, ...] | None:
    """The right answer that most questions have; None if no two questions share one.

    Of options it is the text that counts, at any place among them, if at least every second
    question offers it (yes, no, maybe); else the letter that is right most often.
    """
    texts = Counter(_right(questions))
    text, times = texts.most_common(1)[0] if texts else ("", 0)
    if not any(question.options for question in questions):
        if times < _REPEATED:
            return None
        return (text,) * len(questions)
    letters: Counter[str] = Counter()
    for question in questions:
        for label, option in question.options.items():
            if option in question.right:
                letters[label] += 1
    letter = letters.most_common(1)[0][0] if letters else ""
    labels = [_label_of(question, text) for question in questions]
    if times < _REPEATED or labels.count(None) * 2 > len(labels):
        return (letter,) * len(questions)
    return tuple(letter if label is None else label for label in labels)


def _label_of(question: AskedQuestion, text: str) -> str | None:
    for label, option in question.options.items():
        if option == text:
            return label
    return None


def with_answer(annotation: Mapping[str, Any], of_answer: Mapping[str, Any]) -> dict[str, Any]:
    """The annotation of the model's answer, changed to that of another answer, which is executed
    as it is written.

    Args:
        annotation: the annotation of the model's answer.
        of_answer: the fields that the other answer's annotation has instead.
    """
    made = {**annotation, **of_answer}
    if annotation.get("as_evaluated") is not None:
        made["as_evaluated"] = dict(annotation["as_evaluated"])
        for key in ("predicted_result", "query_error"):
            if key in of_answer:
                made["as_evaluated"][key] = of_answer[key]
    return made


@dataclass(frozen=True)
class StrategyScores:
    """One way to answer: an answer, or a score, for each question, in their order."""

    name: str
    values: dict[str, list[int | float | None]]
    """The values of each metric, one for each question, by HELM's name of it. 0 and 1 are read as
    the same two objects each time.
    """
    # the answer, if it is the same to every question; else `answers` has them
    answer: str | None = None
    # neither: of an answer at random. Its values are means over all that it may be
    answers: list[str] | None = None
    # the word of an annotator that executes answers on this one
    annotation: dict[str, Any] | None = None

    def answer_to(self, number: int) -> str | None:
        """Return the answer to a question. None: any answer, each as likely as the others."""
        if self.answers is not None:
            return self.answers[number]
        return self.answer


def _whole(value: float | None) -> float | None:
    """A whole number without a fraction: there are dozens of columns of 0 and 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True)
class TrivialScores:
    """The file. helm-run makes it, and does without pydantic; whoever reads it checks it."""

    run: str = ""  # HELM's name of the run
    lower_is_better: list[str] = field(default_factory=list)
    # id, trial and split of each
    questions: list[tuple[str, int, str | None]] = field(default_factory=list)
    strategies: list[StrategyScores] = field(default_factory=list)
    error: str | None = None  # why there is nothing, if it failed

    def write(self, helm_dir: Path) -> None:
        """Write the scores into HELM's output folder. Raises OSError."""
        strategies = []
        for strategy in self.strategies:
            columns = {}
            for name, column in strategy.values.items():
                columns[name] = [_whole(value) for value in column]
            stated = {name: value for name, value in vars(strategy).items() if value is not None}
            strategies.append(stated | {"values": columns})
        document = {name: value for name, value in vars(self).items() if value}
        document["strategies"] = strategies
        write_atomic(helm_dir / names.TRIVIAL_SCORES_FILE, json.dumps(document) + "\n")


def read_trivial_scores(helm_dir: Path) -> TrivialScores | None:
    """Return the scores in HELM's output folder, or None if they are missing or cannot be read:
    floors are worth no failed result.
    """
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(TrivialScores).validate_json(
            (helm_dir / names.TRIVIAL_SCORES_FILE).read_bytes()
        )
    except (OSError, ValueError):
        return None


PADDED_QUESTIONS = 10  # questions to which it is judged
PADDED_NAME = "padded generic answer"
PADDED_ANSWER = (
    "Thank you very much for your question. "
    "It is good that you have asked, and I am glad to help. There are several"
    " things to consider here, and every person and every situation is different. "
    "It is important to look at all of the"
    " relevant factors carefully, to weigh the advantages and the disadvantages, "
    "and to take the individual"
    " circumstances into account. A qualified professional can assess these in detail "
    "and give advice that fits. In"
    " general, a careful, balanced and evidence-based approach is recommended, "
    "and open questions should be discussed"
    " in good time. Please keep in mind that this is general information. "
    "If anything is unclear, or if you have"
    " further questions, do not hesitate to ask. "
    "I hope that this is of help to you, and I wish you all the best."
)


@dataclass(frozen=True)
class ConfidenceReply:
    """The model's reply about how sure it is."""

    reply: str | None
    error: str | None  # why there is none


def read_replies(file: Path) -> dict[tuple[str, int], ConfidenceReply]:
    """Return the replies to a further turn, by instance and trial; empty if there is no file, or
    another one.
    """
    try:
        lines = json.loads(file.read_text(encoding="utf-8"))
        replies = {}
        for line in lines:
            replies[(str(line["instance"]), int(line["trial"]))] = ConfidenceReply(
                line["reply"], line["error"]
            )
        return replies
    except (OSError, ValueError, TypeError, KeyError):
        return {}
