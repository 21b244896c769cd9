"""Makes answers that need no model, such as an empty text, a refusal or always the same letter.

Only a score above the scores of these answers shows that a model read the questions. The answers
depend on the questions and references, never on the model's answers. eval-factory's plug-in scores
the answers, and writes the scores into HELM's output folder.
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
from typing import Any, NamedTuple

from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names

REFUSAL = "I'm sorry, but I cannot answer this question."
FORM_ANSWERS = {
    "value": ("0",),
    "sentence": ("CORRECT", "0"),
    "sql": ("SELECT 1",),
    "rating": ("0", "+1", "-1", "+2", "-2"),
}
"""Answers that may be given to every question, by the `answer_form` of a task in framework.yml."""

MAX_LABELS = 12
"""The maximum number of different right answers that count as labels.

A label is an answer that fits many questions: an option's letter, or a class such as "yes". Right
answers that are few, short and repeated count as labels, even if the task declares no labels.
"""
MAX_LABEL_LENGTH = 20  # the maximum length of a label, in characters

_MIN_REPEATS = 2  # a right answer of fewer questions is not used for other questions

EMPTY_STRATEGY = "empty"
REFUSAL_NAME = "refusal"
MAJORITY_STRATEGY = "majority"
RANDOM_NAME = "random"
SHORTEST_NAME = "shortest option"
LENGTH_NAME = "length threshold"
LEAD_NAME = "first sentences"

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")  # the space of "He coughs. He is 40.", or "\n"


@dataclass(frozen=True)
class AskedQuestion:
    """The question of one instance, with its right answers."""

    id: str
    right: tuple[str, ...]  # the texts of the right references
    # the text of each option by its label; empty if the question has no options
    options: Mapping[str, str]
    text: str = ""  # the question without the prompt around it
    source: str | None = None
    """The source that the question shares with other questions, such as the name of a calculator.

    Some tasks ask the model whether a given answer is right. Several instances may then contain the
    same question, and the source is that question.
    """


@dataclass(frozen=True)
class Strategy:
    """A way to answer the questions without a model."""

    name: str
    answers: tuple[tuple[str, ...], ...]
    """The answers to each question, in the order of the questions.

    A question has a single answer, except if the strategy answers at random: then it has several,
    which are equally likely.
    """

    @property
    def constant(self) -> str | None:
        """The strategy's answer if all questions get the same answer, else None."""
        if len(set(self.answers)) == 1 and len(self.answers[0]) == 1:
            return self.answers[0][0]
        return None


def strategies(
    questions: Sequence[AskedQuestion],
    form: str | None = None,
    *,
    source_noun: str = "source",
    compares_words: bool = False,
) -> list[Strategy]:
    """Return all strategies for these questions, the most important first.

    Args:
        questions: the questions of the run.
        form: the `answer_form` of the task; None if the task declares none.
        source_noun: a noun for the questions' sources, such as `calculator`, for the name of a
            strategy.
        compares_words: whether a metric compares the words of an answer with those of a reference.
    """
    if not questions:
        return []
    labels = _labels(questions, form)
    # the strategies that give every question the same answer: a name -> the answer
    constants = {EMPTY_STRATEGY: "", REFUSAL_NAME: REFUSAL}
    for answer in labels:
        constants[f"always {answer}"] = answer
    if form is not None:
        for answer in FORM_ANSWERS[form]:
            constants[f"always {answer}"] = answer
    # a strategy's name -> its answer to each question
    by_name = {name: (answer,) * len(questions) for name, answer in constants.items()}
    # Many SQL questions cannot be answered, and an empty query is right. So the majority would be
    # the constant `EMPTY_STRATEGY`. SQL questions have no options and no longest option either.
    if form != "sql":
        by_name |= dict(_data_dependent_answers(questions, source_noun))
    if compares_words and not labels:
        # Take complete sentences, up to the median number of words of the references.
        word_counts = [len(text.split()) for text in _right_answers(questions)]
        max_words = statistics.median(word_counts or [0])  # 0 if there are no references
        by_name[LEAD_NAME] = tuple(
            _first_sentences(question.text, max_words) for question in questions
        )
    most_important = (LEAD_NAME, EMPTY_STRATEGY, REFUSAL_NAME, MAJORITY_STRATEGY)
    ordered = []
    names_in_order = dict.fromkeys([*most_important, *by_name])  # each name once
    for name in names_in_order:
        if name in by_name:
            ordered.append(Strategy(name, tuple((answer,) for answer in by_name[name])))
    if labels:
        # the labels of the question's options, or all labels for a question without options
        choices = tuple(tuple(question.options or labels) for question in questions)
        ordered.append(Strategy(RANDOM_NAME, choices))
    return ordered


def _right_answers(questions: Iterable[AskedQuestion]) -> Iterator[str]:
    """Yield the right answers to all questions."""
    return chain.from_iterable(question.right for question in questions)


def _data_dependent_answers(
    questions: Sequence[AskedQuestion], source_noun: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (name, answers) of each strategy that depends on right answers, options or lengths."""
    majority = _majority(questions)
    if majority is not None:
        yield MAJORITY_STRATEGY, majority
    # Without a majority, questions that share their source with no other get an empty answer.
    by_source = _majority_by_source(questions, fallback=majority or ("",) * len(questions))
    if by_source is not None:
        yield f"{MAJORITY_STRATEGY} by {source_noun}", by_source
    option_sets = {tuple(sorted(question.options.values())) for question in questions}
    all_have_several_options = min(map(len, option_sets)) > 1
    # If all questions have the same options, the longest option would always be the same.
    if all_have_several_options and len(option_sets) > 1:
        longest = []
        shortest = []
        for question in questions:
            lengths = {label: len(option) for label, option in question.options.items()}
            longest.append(max(lengths, key=lengths.__getitem__))
            shortest.append(min(lengths, key=lengths.__getitem__))
        yield "longest option", tuple(longest)
        yield SHORTEST_NAME, tuple(shortest)
    if _has_two_classes(questions):
        # If the rule answers with an option that a question does not offer, the answer is empty.
        by_length = _cross_fitted(questions, _fit_length_rule)
        yield LENGTH_NAME, tuple(answer or "" for answer in by_length)


def _has_two_classes(questions: Sequence[AskedQuestion]) -> bool:
    """Return True if the questions have exactly two right answers, such as yes and no.

    Each question must have one of the two, and each of the two must be right for several questions.
    """
    if any(len(question.right) != 1 for question in questions):
        return False
    counts = Counter(_right_answers(questions))
    return len(counts) == 2 and min(counts.values()) >= _MIN_REPEATS


_AnswerRule = Callable[[AskedQuestion], str | None]
"""A rule that answers a question; None if it has no answer to the question."""


def _cross_fitted(
    questions: Sequence[AskedQuestion], fit: Callable[[Sequence[AskedQuestion]], _AnswerRule]
) -> list[str | None]:
    """Answer each half of the questions by a rule that was fitted to the other half.

    The hashes of the questions' ids determine the halves. The order of the data set must not
    determine the halves, because some data sets alternate right and wrong answers.
    """
    order = sorted(
        range(len(questions)),
        key=lambda number: hashlib.sha256(questions[number].id.encode()).digest(),
    )
    answers: list[str | None] = [None] * len(questions)
    first_half = order[::2]  # every second number, from the first
    second_half = order[1::2]  # the other numbers
    for answered_half, fitted_half in ((first_half, second_half), (second_half, first_half)):
        rule = fit([questions[number] for number in fitted_half])
        for number in answered_half:
            answers[number] = rule(questions[number])
    return answers


def _majority_by_source(
    questions: Sequence[AskedQuestion], fallback: Sequence[str]
) -> tuple[str, ...] | None:
    """Answer each question by the most frequent right answer to questions of the same source.

    The questions of a source are divided into two halves. The answer to a question comes from the
    half that does not contain the question. If this half has no answer to the question, or if no
    other question has the same source, the question gets its answer in `fallback`. Return None if
    no two questions share a source.
    """
    sources: dict[str, list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        if question.source is not None:
            sources[question.source].append(number)

    def fit_majority(fitted: Sequence[AskedQuestion]) -> _AnswerRule:
        """Return the rule that always gives the most frequent right answer."""
        counts = Counter(_right_answers(fitted))
        if not counts:  # the questions have no right answers
            return lambda _question: None
        most_frequent = counts.most_common(1)[0][0]
        return lambda question: _answer_of(question, most_frequent)

    has_shared_source = False
    answers = list(fallback)
    for numbers in sources.values():
        if len(numbers) < 2:
            continue
        has_shared_source = True
        source_answers = _cross_fitted([questions[number] for number in numbers], fit_majority)
        for number, answer in zip(numbers, source_answers, strict=True):
            if answer is not None:
                answers[number] = answer
    if not has_shared_source:
        return None
    return tuple(answers)


def _length_of_last_paragraph(text: str) -> int:
    """Return the number of characters after the last empty line of a text."""
    _, _, last_paragraph = text.strip().rpartition("\n\n")
    return len(last_paragraph)


_LENGTH_MEASURES: tuple[Callable[[str], int], ...] = (len, _length_of_last_paragraph)
"""Two measures of a question's length: the length of its text, and of its last paragraph.

If the question asks to judge an answer, its last paragraph is this answer.
"""


class _LengthRule(NamedTuple):
    """A rule that answers short questions with one class, and longer ones with the other class.

    Rules are compared by their fields, in this order.
    """

    hits: int  # the number of questions that the rule answers right
    measure_number: int  # the position in `_LENGTH_MEASURES`
    cut: int  # the length of the longest question that counts as short
    short_answer: str
    long_answer: str


def _fit_length_rule(fitted: Sequence[AskedQuestion]) -> _AnswerRule:
    """Return the rule by length that answers most of these questions right.

    The questions have two classes of right answers (`_has_two_classes`).
    """
    classes = sorted({question.right[0] for question in fitted})
    first = classes[0]
    last = classes[-1]  # equal to `first` if this half of the questions has only one class
    rules = []
    for number, measure in enumerate(_LENGTH_MEASURES):
        for cut, hits in _hits_by_cut(fitted, measure, first):
            rule = _LengthRule(hits, number, cut, short_answer=first, long_answer=last)
            # The opposite rule is right where this rule is wrong.
            misses = len(fitted) - hits
            opposite = _LengthRule(misses, number, cut, short_answer=last, long_answer=first)
            rules += [rule, opposite]
    best = max(rules)  # the other fields decide between rules with equally many hits
    measure = _LENGTH_MEASURES[best.measure_number]

    def answer_by_length(question: AskedQuestion) -> str | None:
        if measure(question.text) <= best.cut:
            return _answer_of(question, best.short_answer)
        return _answer_of(question, best.long_answer)

    return answer_by_length


def _hits_by_cut(
    fitted: Sequence[AskedQuestion], measure: Callable[[str], int], short_answer: str
) -> Iterator[tuple[int, int]]:
    """Yield (cut, hits) for each length of a question.

    The hits are the questions up to this length with the right answer `short_answer`, and the
    longer questions with another right answer.
    """
    # for each question: (its length, True if its right answer is `short_answer`)
    rows = sorted(
        (measure(question.text), question.right[0] == short_answer) for question in fitted
    )
    # the number of questions of any length whose right answer is `short_answer`; True counts as 1
    total = sum(is_short_answer for _, is_short_answer in rows)
    hits_up_to_cut = 0  # the number of such questions up to the current length
    for count, (length, is_short_answer) in enumerate(rows, start=1):
        if is_short_answer:
            hits_up_to_cut += 1
        is_last_of_length = count == len(rows) or rows[count][0] > length
        if is_last_of_length:
            longer_questions = len(rows) - count
            longer_misses = total - hits_up_to_cut
            longer_hits = longer_questions - longer_misses
            yield length, hits_up_to_cut + longer_hits


def _answer_of(question: AskedQuestion, text: str) -> str | None:
    """Return a text as the answer to a question: as an option's label if there are options.

    Return None if no option has this text.
    """
    if not question.options:
        return text
    return _label_of(question, text)


def _first_sentences(text: str, max_words: float) -> str:
    """Return the first sentence of a text, and further sentences up to `max_words` words."""
    chosen: list[str] = []
    words = 0
    for sentence in _SENTENCE_END.split(text.strip()):
        words += len(sentence.split())
        if chosen and words > max_words:
            break
        chosen.append(sentence)
    return " ".join(chosen)


def _labels(questions: Sequence[AskedQuestion], form: str | None) -> list[str]:
    """Return the labels that an answer may be, sorted.

    These are the labels of the options. Without options and without an `answer_form`, right answers
    are labels if they are few, short and repeated. Else the list is empty.
    """
    option_labels = set(chain.from_iterable(question.options for question in questions))
    if option_labels or form is not None:
        return sorted(option_labels)
    right = {text.strip() for text in _right_answers(questions)}
    are_short = all(0 < len(text) <= MAX_LABEL_LENGTH for text in right)
    # Half as many labels as questions: on average, two questions share a label.
    are_few = 0 < len(right) <= min(MAX_LABELS, len(questions) // 2)
    if are_short and are_few:
        return sorted(right)
    return []


def _majority(questions: Sequence[AskedQuestion]) -> tuple[str, ...] | None:
    """Return the most frequent right answer, once for each question.

    Without options, return None if no two questions share a right answer.

    With options, the answer is the label of the most frequent text of a right option (such as
    "yes"), if this text is right for several questions, and at least half of the questions offer
    this text. Else, and for questions that do not offer the text, the answer is the label that is
    right most often.
    """
    text, times = _most_frequent(_right_answers(questions))
    if not any(question.options for question in questions):
        if times < _MIN_REPEATS:
            return None
        return (text,) * len(questions)
    right_labels = []
    for question in questions:
        for label, option in question.options.items():
            if option in question.right:
                right_labels.append(label)
    usual_label, _ = _most_frequent(right_labels)
    labels_of_text = [_label_of(question, text) for question in questions]
    few_offer_text = labels_of_text.count(None) * 2 > len(questions)
    if times < _MIN_REPEATS or few_offer_text:
        return (usual_label,) * len(questions)
    return tuple(usual_label if label is None else label for label in labels_of_text)


def _most_frequent(texts: Iterable[str]) -> tuple[str, int]:
    """Return (the most frequent text, its number); ("", 0) if there are no texts."""
    counts = Counter(texts)
    if not counts:
        return "", 0
    return counts.most_common(1)[0]


def _label_of(question: AskedQuestion, text: str) -> str | None:
    """Return the label of the option with this text; None if no option has this text."""
    for label, option in question.options.items():
        if option == text:
            return label
    return None


def ehr_sql_annotation_of_strategy(
    annotation: Mapping[str, Any], answer_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ehr_sql's annotation of the model's answer, with the fields of a strategy's answer.

    The annotation holds the result of the query as the model wrote it. If the authors' evaluation
    of ehr_sql (not HELM's) rewrites the query, `as_evaluated` holds the result of the rewritten
    query. No query of a strategy is rewritten, so both places get the strategy's result.

    Args:
        annotation: the annotation of the model's answer.
        answer_fields: the fields of the strategy's answer, which replace the model's.
    """
    merged = {**annotation, **answer_fields}
    if annotation.get("as_evaluated") is not None:
        merged["as_evaluated"] = dict(annotation["as_evaluated"])
        for key in ("predicted_result", "query_error"):
            if key in answer_fields:
                merged["as_evaluated"][key] = answer_fields[key]
    return merged


@dataclass(frozen=True)
class StrategyScores:
    """The scores of a strategy for each question, with the strategy's answers.

    A strategy that answers at random has neither `answer` nor `answers`. Its values are means over
    all possible answers.
    """

    name: str
    values: dict[str, list[int | float | None]]
    """The values of each metric by HELM's name of the metric, one value for each question.

    Whole numbers are stored as `int`, because Python then shares the objects for 0 and 1.
    """
    answer: str | None = None  # the answer, if the strategy answers all questions in the same way
    answers: list[str] | None = None  # the answers to each question if they differ
    # ehr_sql's annotation of the answer, which is executed; None for other tasks
    annotation: dict[str, Any] | None = None

    def answer_to(self, number: int) -> str | None:
        """Return the answer to a question, by its number from 0; None if the answer is random."""
        if self.answers is not None:
            return self.answers[number]
        return self.answer


def _without_fraction(value: float | None) -> float | None:
    """Return a whole number as `int`, so that the file's many columns of 0 and 1 are shorter."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True)
class TrivialScores:
    """The content of the file with the strategies' scores.

    helm-run writes the file without pydantic; `read_trivial_scores` checks it with pydantic.
    """

    run: str = ""  # HELM's name of the run
    lower_is_better: list[str] = field(default_factory=list)  # names of metrics
    # the (id, trial, split) of each question
    questions: list[tuple[str, int, str | None]] = field(default_factory=list)
    strategies: list[StrategyScores] = field(default_factory=list)
    error: str | None = None  # the reason why there are no scores

    def write(self, helm_dir: Path) -> None:
        """Write the scores into HELM's output folder.

        Raises:
            OSError: the file cannot be written.
        """
        strategies = []
        for strategy in self.strategies:
            columns = {}
            for name, column in strategy.values.items():
                columns[name] = [_without_fraction(value) for value in column]
            fields = {name: value for name, value in vars(strategy).items() if value is not None}
            strategies.append(fields | {"values": columns})
        # Leave out empty fields: `read_trivial_scores` replaces a missing field by an empty one.
        document = {name: value for name, value in vars(self).items() if value}
        document["strategies"] = strategies
        write_atomic(helm_dir / names.TRIVIAL_SCORES_FILE, json.dumps(document) + "\n")


def read_trivial_scores(helm_dir: Path) -> TrivialScores | None:
    """Return the scores in HELM's output folder; None if they are missing or cannot be read.

    No error is raised: a result without these scores is better than no result.
    """
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(TrivialScores).validate_json(
            (helm_dir / names.TRIVIAL_SCORES_FILE).read_bytes()
        )
    except (OSError, ValueError):
        return None


# The judges of a run may be probed: they rate a long and polite answer without content. A judge who
# rates it well rewards length and tone. Unlike the answers above, it is rated by judges.
PADDED_QUESTION_COUNT = 10  # the number of questions to which judges rate the padded answer
PADDED_STRATEGY = "padded generic answer"
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
