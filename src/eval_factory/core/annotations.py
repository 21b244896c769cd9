"""Ratings that people gave to a blinded sample of a result's answers: records, and their files in the output folder.

`annotations/sample-<id>.json` says what a rater was shown under which code; it links codes to answers, so it stays in
the output folder. `annotations/ratings.jsonl` holds the samples that have ratings, each on a line of its own, then a
line for each rating: it is all that a result's `clinicians` is computed from, beside the answers themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.jsonl import json_line

RATINGS, CRITERIA = "ratings", "criteria"
"""Kinds of sheets: ratings on a scale, or for each criterion of a rubric whether it is met."""
SAMPLE, RATING = "sample", "rating"


@dataclass(frozen=True)
class AnswerKey:
    """Which answer of a result."""

    id: str
    trial: int

    def as_text(self) -> str:
        return json.dumps([self.id, self.trial], ensure_ascii=False)

    @classmethod
    def of_text(cls, text: str) -> AnswerKey:
        name, trial = json.loads(text)
        return cls(str(name), int(trial))


@dataclass(frozen=True)
class Choice:
    """One of the ratings that there are."""

    value: float
    label: str
    """As a rater reads it, and as it stands in a CSV file."""


@dataclass(frozen=True)
class Question:
    """One thing that a rater says of an answer."""

    name: str
    """Of a jury's criterion; the text of a rubric's; the metric."""
    points: float = 1.0
    """What it counts if it is met, for a rubric; may be negative."""


@dataclass(frozen=True)
class SampledAnswer:
    """An answer of the sample, with what is asked about it."""

    code: str
    key: AnswerKey
    shown_sha256: str
    """Of question, answer and criteria, as they were shown: another answer under the same key is not the one rated."""
    stratum: int
    probability: float
    """With which it came into the sample."""
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Sample:
    """A sheet that was given to raters."""

    id: str
    kind: str
    raters: tuple[str, ...]
    choices: tuple[Choice, ...]
    metric: str
    scale: tuple[float, float] | None
    """Of the main metric: the least and the greatest score of an answer."""
    strata: tuple[str, ...]
    """What each stratum holds, in an order in which neighbours are alike."""
    stratum_of: Mapping[str, int]
    """Every answer that could have been drawn (`AnswerKey.as_text`) -> its stratum."""
    answers: tuple[SampledAnswer, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "sheet": self.id,
            "kind": self.kind,
            "raters": list(self.raters),
            "choices": [[one.value, one.label] for one in self.choices],
            "metric": self.metric,
            "scale": None if self.scale is None else list(self.scale),
            "strata": list(self.strata),
            "answers": [
                {
                    "code": one.code, "id": one.key.id, "trial": one.key.trial, "shown_sha256": one.shown_sha256,
                    "stratum": one.stratum, "probability": one.probability,
                    "questions": [[asked.name, asked.points] for asked in one.questions],
                }
                for one in self.answers
            ],
            "stratum_of": dict(self.stratum_of),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Sample:
        """
        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        scale = document["scale"]
        return cls(
            id=document["sheet"],
            kind=document["kind"],
            raters=tuple(document["raters"]),
            choices=tuple(Choice(float(value), label) for value, label in document["choices"]),
            metric=document["metric"],
            scale=None if scale is None else (float(scale[0]), float(scale[1])),
            strata=tuple(document["strata"]),
            stratum_of={str(key): int(number) for key, number in document["stratum_of"].items()},
            answers=tuple(
                SampledAnswer(
                    code=one["code"], key=AnswerKey(one["id"], one["trial"]), shown_sha256=one["shown_sha256"],
                    stratum=one["stratum"], probability=one["probability"],
                    questions=tuple(Question(name, float(points)) for name, points in one["questions"]),
                )
                for one in document["answers"]
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class Rating:
    """What one rater said of one thing about one answer."""

    sheet: str
    code: str
    number: int
    """Of the question about this answer, from 1."""
    rater: str
    value: float
    comment: str = ""

    def as_dict(self) -> dict[str, Any]:
        told = {name: value for name, value in vars(self).items() if name != "comment"}
        return {**told, "comment": self.comment} if self.comment else told


@dataclass(frozen=True)
class Annotations:
    """Everything that people said of a result, and of what they said it."""

    samples: tuple[Sample, ...] = ()
    ratings: tuple[Rating, ...] = field(default=(), repr=False)

    @property
    def rated_answers(self) -> frozenset[AnswerKey]:
        """Those with a rating."""
        rated = {(one.sheet, one.code) for one in self.ratings}
        return frozenset(one.key for sample in self.samples for one in sample.answers if (sample.id, one.code) in rated)

    def with_returned(self, samples: Mapping[str, Sample], returned: Sequence[Rating]) -> Annotations:
        """The ratings of a rater on a sheet replace those that the same rater gave on it before.

        Args:
            samples: by id; every returned rating is of one of them.
        """
        again = {(one.sheet, one.rater) for one in returned}
        kept = [one for one in self.ratings if (one.sheet, one.rater) not in again]
        ratings = sorted([*kept, *returned], key=lambda one: (one.sheet, one.rater, one.code, one.number))
        known = {one.id: one for one in self.samples}
        used = dict.fromkeys([*known, *(one.sheet for one in returned)])
        return Annotations(tuple(known.get(name) or samples[name] for name in used), tuple(ratings))

    def as_lines(self) -> list[str]:
        """The lines of ratings.jsonl, samples first, in the order in which ratings of them came."""
        samples = [json_line({SAMPLE: one.as_dict()}) for one in self.samples]
        return [f"{line}\n" for line in [*samples, *(json_line({RATING: one.as_dict()}) for one in self.ratings)]]


def read_annotations(path: Path) -> Annotations:
    """What stands in ratings.jsonl; nothing where it is not there.

    Raises:
        PrerequisiteError: a line is none that eval-factory writes.
    """
    samples, ratings = [], []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return Annotations()
    except (OSError, UnicodeDecodeError) as error:
        raise PrerequisiteError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            document = json.loads(line)
            if SAMPLE in document:
                samples.append(Sample.from_dict(document[SAMPLE]))
            else:
                ratings.append(Rating(**document[RATING]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            said = f"{path}: line {number} is no sample and no rating ({type(error).__name__}: {error})"
            raise PrerequisiteError(
                f"{said}\n  have it from a copy, or delete it and import the sheets again"
            ) from error
    return Annotations(tuple(samples), tuple(ratings))


def read_sample(path: Path) -> Sample:
    """
    Raises:
        PrerequisiteError: it is no sample that eval-factory wrote.
    """
    try:
        return Sample.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{path}: is no sample that annotate export wrote ({type(error).__name__}: {error})"
        raise PrerequisiteError(
            f"{said}\n  have it from a copy: only it says which answers the sheets are about"
        ) from error


def digest_of_shown(question: str, answer: str, asked: Iterable[str]) -> str:
    """SHA-256 of what a rating is about: the prompt, the answer, and what was asked of it."""
    return hashlib.sha256(json.dumps([question, answer, list(asked)]).encode()).hexdigest()
