"""Reads and checks the passport of a judge.

A passport is a file that counts how often the judge and physicians agree about the same answers.
`eval-factory calibrate` writes the passport. A run checks that the passport belongs to one of its
judges, and uses the counts to correct a score.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from eval_factory.core import safe_files
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import YamlError, load_mapping
from eval_factory.core.results import PASSPORT_FILE
from eval_factory.core.rundir import sha256_of
from eval_factory.helm.verdict_schemas import criterion_templates
from eval_factory.plan.run_plan import EndpointPlan, Plan
from eval_factory.tasks.physician_labels import LabelledItems, LabelledPairs

PASSPORT = PASSPORT_FILE  # the name of the file
PASSPORT_KEY = "config.params.extra.judge_passport"  # the configuration key with the file's folder
_Length = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


@dataclass(frozen=True)
class AskedJudge:
    """A judge that `eval-factory calibrate` asked, with the facts about its answers."""

    judge_sha256: str  # identifies the judge; see the function `judge_sha256`
    model: str  # the requested model
    # model name -> the number of answers that state this name
    stated_models: Mapping[str, int]
    prompt_sha256: Sequence[str]  # the SHA-256 hash of each prompt template
    sampling: Sequence[Mapping[str, Any]]
    """The different sets of sampling fields in the answered requests; the most frequent first."""
    criteria_per_request: int
    first_answer: str | None  # the time in UTC; None if there are no answers
    last_answer: str | None
    cost_per_1000: float | None = None  # dollars per 1,000 requests; None if no price is known


class BiasWithInterval(NamedTuple):
    """A judge's bias, the mean of judge's minus physicians' decisions, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class StoredPassport:
    """The parts of a passport that a score's correction needs."""

    judge: str  # the judge's role in the run
    date: str  # of the form 2026-01-31
    sha256: str  # of judge_passport.yaml
    # A pair is the judge's decision about a criterion and one physician's label of it. An item is a
    # criterion of an answer, with the judge's decision and all physicians' labels.
    pairs: Sequence[LabelledPairs]  # counts of pairs
    says_met: float  # share of the labelled criteria that the judge calls met
    # the 5 % and the 95 % quantile of the labelled answers' lengths, in characters
    usual_lengths: tuple[float, float] | None
    items: Sequence[LabelledItems] = ()  # counts of items; empty for schema version 1
    bias: BiasWithInterval | None = None  # None if the bias is not known


def judge_sha256(judge: EndpointPlan, criteria_per_request: int) -> str:
    """Return a hash that identifies a judge.

    The hash covers the model, the configured sampling, this program's prompts, the number of
    criteria per request, and the use of pictures. The hash leaves out the endpoint's address and
    key, because another endpoint may serve the same model.
    """
    prompts = criterion_templates(criteria_per_request, by_schema=judge.structured)
    identity: dict[str, Any] = {
        "model": judge.model_id,
        "sampling": dict(judge.adapter.params_to_add),
        "prompts": prompts,
        "criteria_per_request": criteria_per_request,
    }
    if judge.sees_images:  # False is left out, so that older hashes stay valid
        identity["sees_images"] = True
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def prompt_hashes(judge: EndpointPlan, criteria_per_request: int) -> set[str]:
    """Return the SHA-256 hash of each of a judge's prompt templates."""
    templates = criterion_templates(criteria_per_request, by_schema=judge.structured)
    return {hashlib.sha256(template.encode()).hexdigest() for template in templates}


def passport_text(plan: Plan) -> str | None:
    """Return the text of the configured passport; None if the configuration names no passport.

    Raises:
        PrerequisiteError: The passport is absent, or it is not a text file.
    """
    folder = plan.evaluation.extra.judge_passport
    if folder is None:
        return None
    try:
        return safe_files.read_text(Path(folder) / PASSPORT)
    except (OSError, UnicodeDecodeError) as error:
        remedy = "'eval-factory calibrate --judges-from' makes a passport (docs/trust-a-judge.md)"
        # Only an OSError has a `strerror`.
        reason = getattr(error, "strerror", None) or "is not a text file"
        raise PrerequisiteError(
            f"{PASSPORT_KEY}: {folder}: {PASSPORT}: {reason}\n  {remedy}"
        ) from None


def check_passport(plan: Plan) -> None:
    """Check the configured passport, if the configuration names a passport.

    Raises:
        EvalFactoryError: The passport is absent, damaged, or of another judge.
    """
    folder = plan.evaluation.extra.judge_passport
    if folder is not None:
        passport_text(plan)  # raises an error with a remedy if the file is absent
        passport_of(plan, Path(folder))


_MAX_COUNT = 10**9  # the greatest count that a passport may contain


def _checked_line(text: str) -> str:
    """Return the text. Raise ValueError if the text is blank or not one printable line."""
    if not text.strip() or not text.isprintable():
        raise ValueError("must be one line of text")
    return text


_Name = Annotated[str, AfterValidator(_checked_line)]


class _AskedPart(BaseModel):
    """The fields of a passport that identify the judge that was asked."""

    judge_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    model: _Name


class _Figure(BaseModel):
    """A figure of a passport with its interval."""

    model_config = ConfigDict(strict=True)

    value: Annotated[float, Field(ge=-1.0, le=1.0)] | None
    ci_low: float | None
    ci_high: float | None

    @model_validator(mode="after")
    def _check_interval(self) -> _Figure:
        """Return the figure. Raise ValueError if the value lies outside its interval."""
        if self.value is None or self.ci_low is None or self.ci_high is None:
            return self
        if not self.ci_low <= self.value <= self.ci_high:
            raise ValueError("the figure lies outside of its interval")
        return self


def _numbers_in(line: str) -> list[int]:
    """Return the whole numbers of a line.

    Raises:
        ValueError: The line is not written as `calibrate` writes it, or a number is too large.
    """
    numbers = [int(word) for word in line.split()]
    if line != " ".join(map(str, numbers)) or max(numbers) > _MAX_COUNT:
        raise ValueError(f"{line[:60]!r} holds other numbers than counts")
    return numbers


class _JudgeFigures(BaseModel):
    """The figures of a passport about the judge."""

    bias: _Figure | None = None


class _Figures(BaseModel):
    """The figures of a passport."""

    judge: _JudgeFigures | None = None


class _Passport(BaseModel):
    """The parts of a passport that a run reads."""

    model_config = ConfigDict(strict=True)

    schema_version: Literal[1, 2]
    judge: _Name
    date: str
    asked: _AskedPart | None  # None if `calibrate` read the decisions from the file of the labels
    # category -> its figures; `pairs` and `items` name a category by its position here, from 1
    categories: dict[str, Any]
    pairs: Annotated[list[str], Field(min_length=1)]  # lines, as `pairs_as_lines` writes them
    items: list[str] = []  # lines of `items_as_lines`; empty for a passport of schema version 1
    figures: _Figures = _Figures()
    says_met: Annotated[float, Field(ge=0.0, le=1.0)]
    usual_lengths: Annotated[list[_Length], Field(min_length=2, max_length=2)] | None

    @field_validator("schema_version", mode="before")
    @classmethod
    def _check_version(cls, value: object) -> object:
        """Return the version. Raise ValueError if it is not an int."""
        # Without this check, True and 1.0 would be accepted, because they equal 1.
        if type(value) is not int:
            raise ValueError("must be a whole number")
        return value

    @field_validator("date")
    @classmethod
    def _check_date(cls, value: str) -> str:
        """Return the value. Raise ValueError if the value is not a date such as 2026-01-31."""
        if date.fromisoformat(value).isoformat() != value:
            raise ValueError("must be a date such as 2026-01-31")
        return value

    @field_validator("usual_lengths")
    @classmethod
    def _check_lengths(cls, value: list[float] | None) -> list[float] | None:
        """Return the lengths. Raise ValueError if the first length is greater than the second."""
        if value is not None and value[0] > value[1]:
            raise ValueError("the shorter length comes first")
        return value

    def labelled_pairs(self) -> list[LabelledPairs]:
        """Return the pairs that the lines of `pairs` describe.

        Raises:
            ValueError: A line is not as `calibrate` writes it.
        """
        categories = list(self.categories)
        pairs = []
        earlier_keys = set()
        for line in self.pairs:
            numbers = _numbers_in(line)
            # `pairs_as_lines` explains these six numbers. The assignment raises ValueError if the
            # line has more or fewer numbers.
            conversation, category, both, judge_only, physician_only, neither = numbers
            counts = (both, judge_only, physician_only, neither)
            key = (conversation, category)
            is_written_by_calibrate = min(numbers) >= 0 and any(counts)
            if not is_written_by_calibrate or key in earlier_keys:
                raise ValueError(f"{line[:60]!r} is not a line of pairs")
            earlier_keys.add(key)
            name = _category_numbered(category, categories)
            pairs.append(LabelledPairs(conversation, name, counts))
        return pairs

    def labelled_items(self) -> list[LabelledItems]:
        """Return the items that the lines of `items` describe.

        Raises:
            ValueError: A line is not as `calibrate` writes it.
        """
        categories = list(self.categories)
        groups = []
        kinds = set()
        for line in self.items:
            # `items_as_lines` explains these numbers.
            conversation, category, judged, labels, met, items = _numbers_in(line)
            kind = (conversation, category, judged, labels, met)
            if kind in kinds:
                raise ValueError(f"the items {line[:60]!r} stand twice")
            kinds.add(kind)
            has_possible_counts = labels >= 1 and items >= 1 and 0 <= met <= labels
            has_names = conversation >= 0 and category >= 0  # the numbers that stand for names
            if not has_possible_counts or not has_names or judged not in (0, 1):
                raise ValueError(f"{line[:60]!r} is not a line of items")
            name = _category_numbered(category, categories)
            groups.append(
                LabelledItems(
                    conversation, name, judged=bool(judged), labels=labels, met=met, items=items
                )
            )
        return groups

    def bias(self) -> BiasWithInterval | None:
        """Return the judge's bias with its interval; None if a number is absent."""
        if self.figures.judge is None:
            return None
        figure = self.figures.judge.bias
        if figure is None or figure.value is None:
            return None
        if figure.ci_low is None or figure.ci_high is None:
            return None
        return BiasWithInterval(figure.value, low=figure.ci_low, high=figure.ci_high)


def _category_numbered(number: int, categories: Sequence[str]) -> str | None:
    """Return the category with this number, counted from 1; None (no category) for the number 0."""
    if number == 0:
        return None
    return categories[number - 1]


def passport_of(plan: Plan, folder: Path) -> StoredPassport:
    """Return the passport in a folder.

    Raises:
        ConfigError: The passport is absent or damaged, or it belongs to none of the run's judges.
            Or `calibrate` did not ask the passport's judge, and read the judge's decisions from the
            file of the labels.
    """
    file = folder / PASSPORT
    problem = f"{PASSPORT_KEY}: {folder}"
    document = load_mapping(file, needs="a judge's passport", inside=folder)
    extra = plan.evaluation.extra
    try:
        passport = _Passport.model_validate(document)
        asked_judge = passport.asked
        if asked_judge is None:
            raise ConfigError(
                f"{problem}: the passport does not state how {one_line(passport.judge)} was asked: "
                "'calibrate' read the judge's decisions from the labels; "
                "'calibrate --judges-from' asks the judge itself"
            )
        roles = {}
        for judge in plan.judges:
            # If `criteria_per_request` is not set, each request asks about one criterion.
            judge_hash = judge_sha256(judge, extra.criteria_per_request or 1)
            roles[(judge_hash, judge.model_id)] = judge.role
        role = roles.get((asked_judge.judge_sha256, asked_judge.model))
        if role is None:
            settings = (
                "model, temperature, top_p, max_tokens, structured, criteria_per_request, "
                "judges_see_images"
            )
            difference = f"the prompt of this program differs, or one of {settings}"
            judges = ", ".join(f"{judge.role} ({judge.model_id})" for judge in plan.judges)
            raise ConfigError(
                f"{problem}: is the passport of another judge ({one_line(asked_judge.model)}); "
                f"this run asks {judges}: {difference}"
            )
        lengths = None
        if passport.usual_lengths is not None:
            lengths = (passport.usual_lengths[0], passport.usual_lengths[1])
        return StoredPassport(
            judge=role,
            date=passport.date,
            sha256=sha256_of(file),
            pairs=passport.labelled_pairs(),
            says_met=passport.says_met,
            usual_lengths=lengths,
            items=passport.labelled_items(),
            bias=passport.bias(),
        )
    # what the code above raises if the file has other content than `calibrate` writes
    except (LookupError, TypeError, ValueError, AttributeError, YamlError):
        raise ConfigError(
            f"{problem}: {PASSPORT} is not as 'calibrate' writes it: run 'calibrate' again"
        ) from None


def items_as_lines(items: Sequence[LabelledItems], categories: Sequence[str]) -> list[str]:
    """Return one line of six whole numbers for each group of items, as a passport stores the items.

    The items of a group have the same first five numbers. The numbers are:

    1. the conversation;
    2. the category, counted from 1; 0 without a category;
    3. 1 if the judge says met, else 0;
    4. the number of labels of each item;
    5. the number of these labels that say met;
    6. the number of items of this group.
    """
    category_numbers = _number_by_category(categories)
    lines = []
    for group in items:
        numbers = (
            group.conversation,
            category_numbers[group.category],
            int(group.judged),
            group.labels,
            group.met,
            group.items,
        )
        lines.append(" ".join(map(str, numbers)))
    return lines


def _number_by_category(categories: Sequence[str]) -> dict[str | None, int]:
    """Return the number of each category, counted from 1; None (no category) has the number 0."""
    numbers: dict[str | None, int] = {None: 0}
    for number, category in enumerate(categories, start=1):
        numbers[category] = number
    return numbers


def pairs_as_lines(pairs: Sequence[LabelledPairs], categories: Sequence[str]) -> list[str]:
    """Return one line of six whole numbers for each group of pairs, as a passport stores the pairs.

    The numbers are: the conversation, the category (from 1; 0 without a category), and the numbers
    of pairs in which both, only the judge, only the physician, or neither says met.
    """
    category_numbers = _number_by_category(categories)
    lines = []
    for group in pairs:
        numbers = (group.conversation, category_numbers[group.category], *group.counts)
        lines.append(" ".join(map(str, numbers)))
    return lines
