"""Defines the ratings that people give to a blinded sample of answers: questions, records and
files.

Raters are asked different questions for different results:

| result | question |
|---|---|
| of a jury | each criterion of the jury, on the jury's scale |
| of a rubric | each criterion: met or not; or, with `--kind ratings`, one rating of the answer |
| any other | one rating on the main metric's scale; yes or no if answers are right or wrong |

`annotations/sample-<id>.json` links the codes on a rater's sheet to answers, so it stays in the
output folder. `annotations/ratings.jsonl` first holds the samples with ratings and then the
ratings, one JSON object in each line. A result's `clinicians` is computed only from these lines and
the answers.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import InstanceRecord, Score, TaskResult
from eval_factory.core.safe_files import json_line, parse_json

RATINGS_SHEET = "ratings"
CRITERIA_SHEET = "criteria"
"""The kinds of sheets: ratings on a scale, or decisions (met or not) about a rubric's criteria."""


class AnswerKey(NamedTuple):
    """The identity of an answer in a result."""

    id: str  # the id of the instance
    trial: int

    def as_text(self) -> str:
        """Return the key as JSON, for a mapping's keys."""
        return json.dumps(self, ensure_ascii=False)


class RatingChoice(NamedTuple):
    """One of the ratings that a rater can choose."""

    value: float
    label: str  # the name of the rating on sheets and in CSV files


class Question(NamedTuple):
    """One question to a rater about an answer."""

    name: str  # the name of a jury's criterion, the text of a rubric's criterion, or a question
    points: float = 1.0  # the points of a rubric's criterion if it is met; may be negative


@dataclass(frozen=True)
class SampledAnswer:
    """An answer of the sample, with the questions about it."""

    code: str  # the name of the answer on sheets
    key: AnswerKey
    # hash of the prompt, answer and criteria: a rating does not apply to a later, different answer
    shown_sha256: str
    stratum: int  # the index in `Sample.strata`
    probability: float  # the probability that the answer was drawn
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Sample:
    """A sample of answers, which makes up the sheets for raters.

    A stratum is a group of answers from which a part of the sample was drawn separately.
    """

    id: str
    kind: str  # `RATINGS_SHEET` or `CRITERIA_SHEET`
    raters: tuple[str, ...]
    choices: tuple[RatingChoice, ...]
    metric: str
    # the lowest and the highest score of an answer by the main metric
    scale: tuple[float, float] | None
    # a description of each stratum, with similar strata next to each other
    strata: tuple[str, ...]
    # key of each answer that could be drawn (`AnswerKey.as_text`) -> its stratum
    stratum_of: Mapping[str, int]
    answers: tuple[SampledAnswer, ...]

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Sample:
        """Return the sample in a mapping that `asdict` made.

        Raises KeyError, TypeError or ValueError if the mapping is not a sample.
        """
        answers = []
        for entry in document["answers"]:
            key = AnswerKey(*entry["key"])
            questions = tuple(Question(*question) for question in entry["questions"])
            answers.append(SampledAnswer(**{**entry, "key": key, "questions": questions}))
        scale = document["scale"]
        typed = {
            "raters": tuple(document["raters"]),
            "choices": tuple(RatingChoice(*entry) for entry in document["choices"]),
            "scale": None if scale is None else tuple(scale),
            "strata": tuple(document["strata"]),
            "answers": tuple(answers),
        }
        return cls(**{**document, **typed})


@dataclass(frozen=True)
class Rating:
    """A rater's rating for one question about one answer."""

    sheet: str  # the id of the sample
    code: str  # the code of the answer
    number: int  # the number of the question about this answer, from 1
    rater: str
    value: float
    comment: str = ""


@dataclass(frozen=True)
class Annotations:
    """All ratings of a result, and the samples of the rated answers."""

    samples: tuple[Sample, ...] = ()
    ratings: tuple[Rating, ...] = field(default=(), repr=False)

    @property
    def rated_answers(self) -> frozenset[AnswerKey]:
        """The keys of the answers with at least one rating."""
        rated = {(rating.sheet, rating.code) for rating in self.ratings}
        keys = set()
        for sample in self.samples:
            for answer in sample.answers:
                if (sample.id, answer.code) in rated:
                    keys.add(answer.key)
        return frozenset(keys)

    def with_returned(
        self, samples: Mapping[str, Sample], returned: Sequence[Rating]
    ) -> Annotations:
        """Return the annotations with the ratings of returned sheets added.

        Returned ratings replace all earlier ratings by the same rater on the same sheet.

        Args:
            samples: a dict from id to sample, with each sample that has no ratings yet.
            returned: the ratings of the returned sheets.
        """
        replaced = {(rating.sheet, rating.rater) for rating in returned}
        unchanged = [
            rating for rating in self.ratings if (rating.sheet, rating.rater) not in replaced
        ]
        ratings = sorted(
            [*unchanged, *returned],
            key=lambda rating: (rating.sheet, rating.rater, rating.code, rating.number),
        )
        by_id = {sample.id: sample for sample in self.samples}
        for rating in returned:
            if rating.sheet not in by_id:  # a sample that has ratings already stays as it is
                by_id[rating.sheet] = samples[rating.sheet]
        return Annotations(tuple(by_id.values()), tuple(ratings))

    def as_lines(self) -> list[str]:
        """Return the lines of ratings.jsonl: the samples, in the order of their first ratings, and
        then the ratings.
        """
        lines = [{"sample": asdict(sample)} for sample in self.samples]
        for rating in self.ratings:
            fields = dict(vars(rating))
            if not rating.comment:
                del fields["comment"]
            lines.append({"rating": fields})
        return [f"{json_line(line)}\n" for line in lines]


def read_annotations(path: Path) -> Annotations:
    """Return the content of ratings.jsonl; empty annotations if the file does not exist.

    Raises PrerequisiteError if the file cannot be read, or if a line is not a sample or a rating.
    """
    samples = []
    ratings = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return Annotations()
    except (OSError, UnicodeDecodeError) as error:
        raise PrerequisiteError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            document = parse_json(line)
            if "sample" in document:
                samples.append(Sample.from_dict(document["sample"]))
            else:
                ratings.append(Rating(**document["rating"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = (
                f"{path}: line {number} is neither a sample nor a rating "
                f"({type(error).__name__}: {error})"
            )
            remedy = "restore the file from a copy, or delete it and import the sheets again"
            raise PrerequisiteError(f"{problem}\n  {remedy}") from error
    return Annotations(tuple(samples), tuple(ratings))


def read_sample(path: Path) -> Sample:
    """Read a sample from its file. Raises PrerequisiteError if eval-factory did not write it."""
    try:
        return Sample.from_dict(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = (
            f"{path}: is not a sample that annotate export wrote ({type(error).__name__}: {error})"
        )
        remedy = "restore it from a copy: no other file links the sheets to their answers"
        raise PrerequisiteError(f"{problem}\n  {remedy}") from error


IS_CORRECT = "Is the answer correct?"
HOW_GOOD = "How good is the answer?"
YES_NO: tuple[RatingChoice, ...] = (RatingChoice(1.0, "yes"), RatingChoice(0.0, "no"))


@dataclass(frozen=True)
class ShownAnswer:
    """An answer as a rater sees it, without the names of models and without scores."""

    key: AnswerKey
    turns: tuple[tuple[str, str], ...]  # (role, text) of each message of the prompt
    answer: str
    references: tuple[str, ...]
    questions: tuple[Question, ...]
    sha256: str  # the hash of the prompt, the answer and the questions
    media: tuple[Mapping[str, Any], ...] = ()  # as in `InstanceRecord.media`


@dataclass(frozen=True)
class RatedQuestion:
    """The question that raters are asked about each answer of one result, and its scale.

    With a rubric, this is one `Question` for each criterion of the answer.
    """

    kind: str  # `RATINGS_SHEET` or `CRITERIA_SHEET`
    metric: str  # HELM's name of the main metric
    score: Score  # the main score
    # the criteria of a jury, in its order; empty if the main score is not a jury's
    jury: tuple[str, ...]
    choices: tuple[RatingChoice, ...]
    # the texts of system messages that raters do not see, because they may reveal the model
    hidden: frozenset[str] = frozenset()
    # criterion of the jury -> the benchmark's description of it
    meanings: Mapping[str, str] = field(default_factory=dict)
    # True if judges scored the answers: `scores_of` then returns the judges' scores. An empty
    # answer is not judged, so it has none.
    judged: bool = False

    def shown_answer(self, record: InstanceRecord) -> ShownAnswer:
        """Return the answer of an instance as a rater sees it."""
        turns = []
        for turn in record.turns:
            role = str(turn.get("role", ""))
            content = turn.get("content")
            if isinstance(content, list):  # texts and pictures; a picture has no `text`
                content = "\n".join(
                    str(part.get("text", "")) for part in content if isinstance(part, Mapping)
                )
            text = str(content or "")  # a message that only calls a tool has no content
            is_hidden = role == "system" and text in self.hidden
            if not is_hidden:
                turns.append((role, text))
        if not turns:  # the prompt is a single text
            turns.append(("user", record.prompt))
        references = []
        for reference in record.references:
            if "correct" in (reference.get("tags") or ()):
                references.append(str(reference["text"]))
        return ShownAnswer(
            key=AnswerKey(record.id, record.trial),
            turns=tuple(turns),
            answer=record.completion or "",
            references=tuple(references),
            questions=self.questions(record),
            sha256=self.sha256_of(record),
            media=record.media,
        )

    def sha256_of(self, record: InstanceRecord) -> str:
        """Return the hash of an instance's prompt, answer and questions to raters."""
        parts = [
            record.prompt,
            record.completion or "",
            [question.name for question in self.questions(record)],
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def questions(self, record: InstanceRecord) -> tuple[Question, ...]:
        """Return the questions to raters about one answer."""
        if self.kind == CRITERIA_SHEET:
            return tuple(
                Question(str(criterion["criterion"]), float(criterion["points"]))
                for criterion in record.criteria
            )
        if self.jury:
            return tuple(Question(self._text_of_criterion(name)) for name in self.jury)
        return (Question(IS_CORRECT if self.choices == YES_NO else HOW_GOOD),)

    def _text_of_criterion(self, name: str) -> str:
        """Return the name of a jury's criterion, with its description if there is one."""
        meaning = self.meanings.get(name)
        if meaning:
            return f"{name}: {meaning}"
        return name

    def value_of(self, record: InstanceRecord) -> float | None:
        """Return the score of one answer by the main metric.

        Returns None if the answer has no score, if the request failed, or if the main score does
        not count the answer: it is in another split, or belongs to a perturbation.
        """
        is_in_split = self.score.split in (None, record.split)
        if not is_in_split or record.perturbation is not None or record.error is not None:
            return None
        return record.metrics.get(self.metric)

    def judge_ratings_of(self, record: InstanceRecord) -> dict[str, dict[int, float]]:
        """Return each judge's ratings of one answer, by the index of the question.

        In a result without judges, the metric is the only judge.
        """
        if self.kind == CRITERIA_SHEET:
            return _decisions_of(record)
        if self.jury:
            return self._jury_ratings_of(record)
        # The sheet has a single question, which has the index 0.
        return {judge: {0: score} for judge, score in self.scores_of(record).items()}

    def _jury_ratings_of(self, record: InstanceRecord) -> dict[str, dict[int, float]]:
        """Return each judge's ratings of one answer, by the index of the jury's criterion."""
        by_judge: dict[str, dict[int, float]] = {}
        for judge, judgement in record.judgements.items():
            by_judge[judge] = {}
            for index, name in enumerate(self.jury):
                rating = judgement.get(name)
                value = rating.get("score") if isinstance(rating, Mapping) else None
                # True and False are of the type int in Python, too.
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    by_judge[judge][index] = float(value)
        return by_judge

    def scores_of(self, record: InstanceRecord) -> Mapping[str, float]:
        """Return the score of one answer by each judge; without judges, by the metric."""
        if self.judged:
            return record.judges
        value = self.value_of(record)
        if value is not None:
            return {self.metric: value}
        return {}

    def score_by(self, questions: Sequence[Question], values: Sequence[float]) -> float:
        """Return the score of an answer on the main metric's scale, computed from ratings.

        Args:
            questions: the questions about the answer.
            values: the value of the rating for each question.
        """
        if self.kind == CRITERIA_SHEET:
            # not 0: a case without positive points has no score, and is not in a sample
            maximum = sum(question.points for question in questions if question.points > 0)
            pairs = zip(questions, values, strict=True)
            return sum(question.points * value for question, value in pairs) / maximum
        return statistics.fmean(values)


def _decisions_of(record: InstanceRecord) -> dict[str, dict[int, float]]:
    """Return each judge's decisions about a rubric's criteria, by the index of the criterion.

    A decision is 1 if the criterion is met, and 0 if it is not met.
    """
    by_judge: dict[str, dict[int, float]] = {}
    for index, criterion in enumerate(record.criteria):
        for judge, judgement in (criterion.get("judges") or {}).items():
            met = judgement.get("criteria_met") if isinstance(judgement, Mapping) else None
            if isinstance(met, bool):
                by_judge.setdefault(judge, {})[index] = float(met)
    return by_judge


def rated_question_of(
    result: TaskResult, records: Sequence[InstanceRecord], kind: str | None, hidden: frozenset[str]
) -> RatedQuestion:
    """Return the question that raters are asked about each answer of a result.

    Args:
        result: the result whose answers are rated.
        records: instances of the result, at least one of them with an answer.
        kind: the kind of the sheet; None: `CRITERIA_SHEET` if the result has a rubric, else
            `RATINGS_SHEET`.
        hidden: the texts of system messages that raters do not see.

    Raises:
        ConfigError: people cannot rate the answers on the main metric's scale.
    """
    score = result.scores.get(result.main_metric)
    if score is None:
        raise ConfigError(
            f"{result.main_metric} could not be computed: "
            "a result without a main score cannot be rated"
        )
    has_criteria = any(record.criteria for record in records)
    if kind == CRITERIA_SHEET and not has_criteria:
        raise ConfigError(
            f"{result.task} has no rubric, so there are no criteria to rate: give --kind ratings"
        )
    sheet_kind = kind or (CRITERIA_SHEET if has_criteria else RATINGS_SHEET)
    metric = score.metric or result.main_metric
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    if not values:
        raise ConfigError(
            f"{metric} has no values of single answers, so answers cannot be rated on its scale"
        )
    jury: tuple[str, ...] = ()
    meanings: Mapping[str, str] = {}
    if result.validity.jury is not None:
        meanings = result.validity.jury.criteria
        if not has_criteria:  # a rubric's criteria replace those of the jury
            jury = _jury_criteria(records)
    choices = YES_NO
    if sheet_kind == RATINGS_SHEET:
        choices = _words_of_judges(result) or ratings_on_scale(score.scale, values)
    if not choices:
        raise ConfigError(
            f"{metric} has no scale with two ends, so a rating cannot mean one of its values"
        )
    return RatedQuestion(
        kind=sheet_kind,
        metric=metric,
        score=score,
        jury=jury,
        choices=choices,
        hidden=hidden,
        meanings=meanings,
        judged=has_judges(result, sheet_kind),
    )


def _words_of_judges(result: TaskResult) -> tuple[RatingChoice, ...]:
    """Return the words with which a jury's judges answer, the lowest rating first.

    The result is empty if there is no jury, or if its judges answer with numbers.
    """
    if result.validity.jury is None:
        return ()
    labels = result.validity.jury.labels
    return tuple(sorted(RatingChoice(float(rating), word) for word, rating in labels.items()))


def _jury_criteria(records: Sequence[InstanceRecord]) -> tuple[str, ...]:
    """Return the names of all criteria in the judges' ratings, in the order of the instances."""
    names: dict[str, None] = {}  # the keys of a dict keep their order
    for record in records:
        for judgement in record.judgements.values():
            for name in judgement:
                names[name] = None
    names.pop("error", None)  # the message of a judge that gave no rating, not a criterion
    return tuple(names)


def has_judges(result: TaskResult, kind: str) -> bool:
    """Return True if judges rated the answers of a result.

    `kind` is the kind of the sheet. A sheet with criteria exists only for a result with a rubric,
    whose answers judges rated.
    """
    return (
        kind == CRITERIA_SHEET
        or result.validity.jury is not None
        or result.validity.rubric is not None
    )


def ratings_on_scale(
    scale: tuple[float, float] | None, values: Sequence[float]
) -> tuple[RatingChoice, ...]:
    """Return the ratings on a scale in ascending order; yes and no if all values are 0 or 1.

    A scale of two to ten steps between whole numbers has all whole numbers as ratings. Other
    scales, such as 0 to 1, have five ratings at equal distances.

    Args:
        scale: the lowest and the highest value; None: the result is empty.
        values: the scores of the answers.
    """
    if scale is None:
        return ()
    low, high = scale
    if (low, high) == (0.0, 1.0) and set(values) <= {0.0, 1.0}:
        return YES_NO
    has_whole_ends = float(low).is_integer() and float(high).is_integer()
    steps = 4
    if has_whole_ends and 1 < high - low <= 10:
        steps = int(high - low)
    choices = []
    for number in range(steps + 1):
        value = low + (high - low) * number / steps
        choices.append(RatingChoice(value, f"{value:g}"))
    return tuple(choices)
