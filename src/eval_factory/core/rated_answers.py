"""What a rater is asked about an answer, and what the judges said of the same: the one reader of both. Pure.

| answers | asked |
|---|---|
| of a jury | its criteria, on its scale |
| of a rubric | each criterion: met or not; or, as ratings, one rating on the score's scale |
| any other | one rating on the main metric's scale: yes or no where answers are right or wrong |
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_factory.core.annotations import CRITERIA, RATINGS, AnswerKey, Choice, Question, digest_of_shown
from eval_factory.core.errors import ConfigError
from eval_factory.core.results import InstanceRecord, Score, TaskResult

MARK, MET, CORRECT, ERROR = "score", "criteria_met", "correct", "error"
"""Fields of a judge's mark, of its decision about a criterion; the tag of a reference; why there is neither."""
SYSTEM = "system"
MOST_STEPS = 10
"""Of a scale of whole numbers that raters get as it is."""
PARTS = 4
"""Into which any other scale is divided."""
IS_CORRECT, HOW_GOOD = "Is the answer correct?", "How good is the answer?"
YES_NO = (Choice(1.0, "yes"), Choice(0.0, "no"))


@dataclass(frozen=True)
class Shown:
    """What a rater sees of an answer. Neither the model nor a judge is named, and no score."""

    key: AnswerKey
    turns: tuple[tuple[str, str], ...]
    """(role, text) of what the answer is the answer to."""
    answer: str
    references: tuple[str, ...]
    questions: tuple[Question, ...]
    sha256: str
    """Of the prompt, the answer and the questions."""


@dataclass(frozen=True)
class Asked:
    """Of one result what raters are asked."""

    kind: str
    metric: str
    """HELM's name of the main metric."""
    score: Score
    jury: tuple[str, ...]
    """The criteria of a jury, in its order; none where the main score is no jury's."""
    choices: tuple[Choice, ...]
    hidden: frozenset[str] = frozenset()
    """System messages that are the same for every question: they say who answers."""
    told: Mapping[str, str] = field(default_factory=dict)
    """What the benchmark says of a criterion of its jury."""
    judged: bool = False
    """Whether the result has judges: an answer that none was asked about, an empty one, has no judge's score then."""

    def shown(self, record: InstanceRecord) -> Shown:
        return Shown(
            AnswerKey(record.id, record.trial),
            tuple(self._turns(record)),
            record.completion or "",
            tuple(str(one["text"]) for one in record.references if CORRECT in (one.get("tags") or ())),
            self.questions(record),
            self.sha256_of(record),
        )

    def sha256_of(self, record: InstanceRecord) -> str:
        return digest_of_shown(record.prompt, record.completion or "", (one.name for one in self.questions(record)))

    def _turns(self, record: InstanceRecord) -> Iterator[tuple[str, str]]:
        found = [(str(turn.get("role", "")), _text(turn.get("content"))) for turn in record.turns]
        told = [(role, text) for role, text in found if not (role == SYSTEM and text in self.hidden)]
        yield from told or [("user", record.prompt)]

    def questions(self, record: InstanceRecord) -> tuple[Question, ...]:
        if self.kind == CRITERIA:
            return tuple(Question(str(one["criterion"]), float(one["points"])) for one in criteria_of(record))
        if self.jury:
            return tuple(Question(self._explained(name)) for name in self.jury)
        return (Question(IS_CORRECT if self.choices == YES_NO else HOW_GOOD),)

    def _explained(self, criterion: str) -> str:
        told = self.told.get(criterion)
        return f"{criterion}: {told}" if told else criterion

    def value_of(self, record: InstanceRecord) -> float | None:
        """The score of one answer by the main metric; None where it has none, or is no answer of the main split."""
        other_split = self.score.split not in (None, record.split)
        if record.perturbation is not None or record.error is not None or other_split:
            return None
        return record.metrics.get(self.metric)

    def marks_of(self, record: InstanceRecord) -> dict[str, dict[int, float]]:
        """Judge -> number of the question, from 0 -> what it says; the metric itself where there is no judge."""
        if self.kind == CRITERIA:
            return _decisions(criteria_of(record))
        if self.jury:
            return {judge: _marks(said, self.jury) for judge, said in record.judgements.items()}
        return {judge: {0: score} for judge, score in self.scores_of(record).items()}

    def scores_of(self, record: InstanceRecord) -> Mapping[str, float]:
        """Judge -> its score of one answer; the metric itself where the result has no judges."""
        found = self.value_of(record)
        return record.judges if self.judged else {} if found is None else {self.metric: found}

    def score_by(self, questions: Sequence[Question], values: Sequence[float]) -> float:
        """What a rater's values make of an answer, on the main metric's scale."""
        if self.kind == CRITERIA:
            whole = sum(one.points for one in questions if one.points > 0)
            return sum(one.points * value for one, value in zip(questions, values, strict=True)) / whole
        return statistics.fmean(values)


def asked_of(result: TaskResult, records: Sequence[InstanceRecord], kind: str | None, hidden: frozenset[str]) -> Asked:
    """
    Args:
        records: some of the result's, at least one with an answer.
        kind: None: criteria where the result has such.

    Raises:
        ConfigError: raters cannot be asked for what the main metric measures.
    """
    score = result.scores.get(result.main_metric)
    if score is None:
        raise ConfigError(f"{result.main_metric} could not be computed: a result without a main score cannot be rated")
    has_criteria = any(criteria_of(record) for record in records)
    if kind == CRITERIA and not has_criteria:
        raise ConfigError(f"{result.task} has no rubric, so there are no criteria to rate: give --kind ratings")
    chosen = kind or (CRITERIA if has_criteria else RATINGS)
    metric = score.metric or result.main_metric
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    if not values:
        raise ConfigError(f"{metric} has no value of its own for each answer, so answers cannot be rated by it")
    jury = () if has_criteria or result.validity.jury is None else _criteria_of_jury(records)
    labels = {} if result.validity.jury is None else result.validity.jury.labels
    choices = YES_NO if chosen == CRITERIA else _labelled(labels) or choices_of(score.scale, values)
    if not choices:
        raise ConfigError(f"{metric} has no scale with two ends, so no rating stands for a value of it")
    told = {} if result.validity.jury is None else result.validity.jury.criteria
    return Asked(chosen, metric, score, jury, choices, hidden, told, judged=has_judges(result, chosen))


def has_judges(result: TaskResult, kind: str) -> bool:
    return kind == CRITERIA or result.validity.jury is not None or result.validity.rubric is not None


def choices_of(scale: tuple[float, float] | None, values: Sequence[float]) -> tuple[Choice, ...]:
    """The ratings that there are on a scale, the least first; yes and no where every value is 0 or 1."""
    if scale is None:
        return ()
    low, high = scale
    if (low, high) == (0.0, 1.0) and set(values) <= {0.0, 1.0}:
        return YES_NO
    whole = float(low).is_integer() and float(high).is_integer() and 1 < high - low <= MOST_STEPS
    steps = int(high - low) if whole else PARTS
    return tuple(_choice(low + (high - low) * number / steps) for number in range(steps + 1))


def _labelled(labels: Mapping[str, int]) -> tuple[Choice, ...]:
    """The words that the judges choose from, the least first."""
    return tuple(Choice(float(value), label) for label, value in sorted(labels.items(), key=lambda one: one[1]))


def _choice(value: float) -> Choice:
    return Choice(value, f"{value:g}")


def criteria_of(record: InstanceRecord) -> Sequence[Mapping[str, Any]]:
    """Of a rubric's case each criterion with its points; none where there is no rubric."""
    return record.criteria


def _criteria_of_jury(records: Sequence[InstanceRecord]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for record in records:
        for said in record.judgements.values():
            names.update(dict.fromkeys(name for name in said if name != ERROR))
    return tuple(names)


def _marks(said: Mapping[str, Any], criteria: Sequence[str]) -> dict[int, float]:
    found = {}
    for number, name in enumerate(criteria):
        mark = said.get(name)
        value = mark.get(MARK) if isinstance(mark, Mapping) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[number] = float(value)
    return found


def _decisions(criteria: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for number, one in enumerate(criteria):
        for judge, said in (one.get("judges") or {}).items():
            met = said.get(MET) if isinstance(said, Mapping) else None
            if isinstance(met, bool):
                found.setdefault(judge, {})[number] = float(met)
    return found


def _text(content: Any) -> str:
    """Of a message; a list of parts is what its texts say."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content or "")
