"""docs/validity.md: the table, what each of its cells says of a kind of answer, and a note for each
that is not what a reader expects.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.validity.our_runs import Result
from scripts.validity.questions import (
    CONSTANT,
    EMPTY,
    FLOORS,
    GOLD,
    HIGHEST,
    LOWEST,
    RANDOM,
    REFUSAL,
    UNPARSED,
    Question,
    answer_of,
    kinds_of,
)

from eval_factory.tasks.framework import Task

CORRECTED = ".corrected"
LENIENT = ".lenient"
LOW = 0.1
"""The highest score that a reader expects of answers that know nothing."""
TOLERANCE = 1e-12
"""The tolerance of floors, which are summed in another order."""
COLUMNS = (GOLD, "gold, corrected", *FLOORS, "empty, corrected", UNPARSED, "unparsed, lenient")
"""The cells of a line beside task, metric, n and parity."""

NO_CORRECTION = (
    "No known defect of HELM changes this metric, "
    "so there is no corrected value: [errata](errata.md)."
)
NO_FORM = (
    "The benchmark asks for free text. "
    "So no constant fits every question, and no answer is unparsed."
)
NO_OPTIONS = (
    "There is a lenient score only for questions with options: "
    "[results](results.md#answers-that-say-nothing)."
)
RANDOM_ADVICE = (
    "The judges are scripted, and give random advice a random mark from 1 to 5. "
    "This tests that the jury's mean equals bare HELM's; it is no statement about medicine."
)


@dataclass(frozen=True)
class Parity:
    """Our scores beside bare HELM's, of one kind of answer."""

    compared: int
    differences: tuple[str, ...]
    """Each difference in words; every one is a failure."""


def metrics_of(result: Result) -> list[str]:
    """Return the metrics that have a line: the main one, and each that has a corrected value beside
    it.
    """
    corrected = [
        label.removesuffix(CORRECTED) for label in result.scores if label.endswith(CORRECTED)
    ]
    plain = [metric for metric in corrected if "@" not in metric]
    return [result.main_metric, *(metric for metric in plain if metric != result.main_metric)]


def parity(
    ours: Mapping[str, Mapping[str, Any]], stats: Sequence[Mapping[str, Any]], main_metric: str
) -> Parity:
    """Compare each of our scores that is HELM's own, over every split, with the mean in
    stats.json.
    """
    theirs = {
        (stat["name"]["name"], stat["name"].get("split")): stat["mean"]
        for stat in stats
        if "mean" in stat and "perturbation" not in stat["name"]
    }
    compared = 0
    differences = []
    for label, score in ours.items():
        mean = (
            theirs.get((score["metric"], score["split"])) if score["perturbation"] is None else None
        )
        if mean is None:
            continue
        compared += 1
        if score["value"] != mean:
            differences.append(f"{label} is {score['value']!r}, of bare helm-run {mean!r}")
    if main_metric not in {ours[label]["metric"] for label in ours} & {name for name, _ in theirs}:
        differences.append(f"{main_metric} is missing from one of the two")
    return Parity(compared, tuple(differences))


@dataclass(frozen=True)
class Row:
    """A task's metric in all of the task's runs."""

    task: Task
    metric: str
    questions: Sequence[Question]
    results: Mapping[str, Result]
    """Kind of answer -> ours."""
    parities: Mapping[str, Parity]
    """The parities of all metrics; empty in the task's further lines."""

    @property
    def full(self) -> float:
        """The score of answers that are all right."""
        return float(HIGHEST) if self.task.helm.judges else 1.0

    @property
    def low(self) -> float:
        return float(LOWEST) if self.task.helm.judges else LOW

    @property
    def n(self) -> int:
        return len(self.questions)

    def cells(self) -> dict[str, float | None]:
        """Return the value of each column; None if there is none."""
        kinds: dict[str, float | None] = {
            kind: self.results[kind].value(self.metric) if kind in self.results else None
            for kind in (GOLD, *FLOORS, UNPARSED)
        }
        return {
            **kinds,
            "gold, corrected": self._value(GOLD, CORRECTED),
            "empty, corrected": self._value(EMPTY, CORRECTED),
            "unparsed, lenient": self._value(UNPARSED, LENIENT),
        }

    def _value(self, kind: str, suffix: str) -> float | None:
        return self.results[kind].value(self.metric, suffix) if kind in self.results else None

    def surprises(self) -> Iterator[str]:
        """The columns whose cell is not what a reader expects; not those of answers that were
        left out of a try.
        """
        left_out = set(kinds_of(self.task)) - set(self.results)
        for column, value in self.cells().items():
            if column.partition(",")[0] in left_out:
                continue
            wants_full = column in (GOLD, "gold, corrected", "unparsed, lenient")
            if value is None or (value != self.full if wants_full else value > self.low):
                yield column

    def known_reason(self, column: str) -> str | None:
        """Return what explains a cell by the benchmark's form or by counting the questions;
        checked, not believed.
        """
        return self._of_missing(column) if self.cells()[column] is None else self._of_chance(column)

    def _of_missing(self, column: str) -> str | None:
        if self.results[GOLD].value(self.metric) is None:
            return None
        open_text = self.task.helm.answer_form is None and not self._has_options
        if column.endswith("corrected") and self._value(GOLD, CORRECTED) is None:
            return NO_CORRECTION
        if column in (CONSTANT, UNPARSED, "unparsed, lenient") and open_text:
            return NO_FORM
        return NO_OPTIONS if column == "unparsed, lenient" and not self._has_options else None

    def _of_chance(self, column: str) -> str | None:
        if self.task.helm.judges:
            return RANDOM_ADVICE if column == RANDOM else None
        kind = column.partition(",")[0]
        if kind not in (EMPTY, CONSTANT, RANDOM) or (kind == RANDOM and not self._has_options):
            return None
        tested = [question for question in self.questions if question.test]
        hits = sum(answer_of(kind, self.task, question) == question.gold for question in tested)
        if not tested or self.cells()[column] != hits / len(tested):
            return None
        return {
            EMPTY: "This is the share of questions whose right answer is empty.",
            CONSTANT: "This is the share of questions whose right answer is the constant.",
            RANDOM: "This is the share of randomly drawn letters that are right.",
        }[kind]

    @property
    def _has_options(self) -> bool:
        return bool(self.task.helm.answer_labels) or all(
            question.labels for question in self.questions
        )

    def problems(self) -> Iterator[str]:
        """Yield what makes the table fail, beside cells that nobody explained."""
        for kind, found in self.parities.items():
            yield from (
                f"{self.task.name}, {kind}: parity: {difference}"
                for difference in found.differences
            )
            if not found.compared:
                yield f"{self.task.name}, {kind}: no score could be compared with bare helm-run"
        yield from self._wrong_floors()

    def _wrong_floors(self) -> Iterator[str]:
        """Yield where `validity.floors`, computed without a request, is not what the same answers
        score when given.
        """
        names = {EMPTY: EMPTY, REFUSAL: REFUSAL}
        if CONSTANT in self.results:
            names[CONSTANT] = f"always {answer_of(CONSTANT, self.task, self.questions[0])}"
        for suffix, (kind, name) in itertools.product(("", CORRECTED), names.items()):
            stated = self.results[GOLD].floors(f"{self.metric}{suffix}").get(name)
            measured = self._value(kind, suffix)
            if (
                stated is not None
                and measured is not None
                and not math.isclose(stated, measured, abs_tol=TOLERANCE)
            ):
                label = f"{self.metric}{suffix}"
                yield (
                    f"{self.task.name}: validity.floors says {stated!r} of {name} "
                    f"in {label}, measured: {measured!r}"
                )


HEADER = "<!-- Written by scripts/validity_table.py; changes are lost. -->"
INTRODUCTION = Path(__file__).with_name("introduction.md")


@dataclass(frozen=True)
class Explanation:
    """Why cells are as they are, written by hand in explanations.yml."""

    task: str
    metric: str
    cells: tuple[str, ...]
    because: str
    upstream: str | None = None
    """The upstream that it is about; None: either."""

    def is_about(self, row: Row) -> bool:
        is_of_it = self.upstream in (None, row.task.helm.upstream.name)
        return is_of_it and (self.task, self.metric) == (row.task.name, row.metric)


def reason_for(row: Row, column: str, explanations: Sequence[Explanation]) -> str | None:
    """Return what was written of a cell; else what is known of its kind."""
    written = [told.because for told in explanations if told.is_about(row) and column in told.cells]
    return written[0] if written else row.known_reason(column)


def unexplained(rows: Iterable[Row], explanations: Sequence[Explanation]) -> Iterator[str]:
    """Cells that surprise and have no reason; reasons of cells that do not surprise."""
    for row in rows:
        surprising = set(row.surprises())
        cells = row.cells()
        for column in COLUMNS:
            if column in surprising and reason_for(row, column, explanations) is None:
                told = f"{row.task.name}, {row.metric}, {column}"
                yield (
                    f"{told}: {_shown(cells[column])} is not what a reader expects: "
                    "say why in explanations.yml"
                )
        for one in explanations:
            stale = (
                [column for column in one.cells if column not in surprising]
                if one.is_about(row)
                else []
            )
            yield from (
                f"{one.task}, {one.metric}, {column}: explained, but as a reader expects"
                for column in stale
            )


def page(
    rows: Sequence[Row],
    not_run: Mapping[str, str],
    explanations: Sequence[Explanation],
    versions: Mapping[str, str],
) -> str:
    """The whole text."""
    # numbered in the order in which they are first needed; one text has one number
    notes: dict[str, int] = {}
    lines = list(_table(rows, explanations, notes))
    about = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n".join(
        [
            "# Are the scores valid?",
            HEADER,
            "",
            INTRODUCTION.read_text("utf-8").format(low=LOW, about=about),
            *lines,
            "",
            "Reasons:",
            "",
            *(f"{number}. {text}" for text, number in notes.items()),
            "",
            *_not_run(not_run),
        ]
    )


def _table(
    rows: Sequence[Row], explanations: Sequence[Explanation], notes: dict[str, int]
) -> Iterator[str]:
    yield f"| task | metric | n | parity | {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * (4 + len(COLUMNS))}"
    for row in rows:
        cells = row.cells()
        surprising = set(row.surprises())
        shown = []
        for column in COLUMNS:
            reason = reason_for(row, column, explanations) if column in surprising else None
            mark = (
                f" ({notes.setdefault(' '.join(reason.split()), len(notes) + 1)})" if reason else ""
            )
            shown.append(f"{_shown(cells[column])}{mark}")
        head = f"`{row.task.name}`", f"`{row.metric}`", f"{row.n:,}", _parity(row)
        yield f"| {' | '.join([*head, *shown])} |"


def _parity(row: Row) -> str:
    if not row.parities:
        return "above"
    compared = sum(found.compared for found in row.parities.values())
    wrong = sum(len(found.differences) for found in row.parities.values())
    return f"{wrong} of {compared} differ" if wrong else f"{compared} of {compared}"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _not_run(reasons: Mapping[str, str]) -> Iterator[str]:
    if not reasons:
        return
    yield from ["## Not run", ""]
    # run_eval names the missing file
    kinds = {task: why.partition(": no ")[0] for task, why in reasons.items()}
    for kind in dict.fromkeys(kinds.values()):
        yield f"- {', '.join(f'`{task}`' for task, of in kinds.items() if of == kind)}: {kind}"
    yield ""
