"""Makes docs/validity.md: a table of the scores of known answers, and notes about its cells.

A cell is the score of a metric for one kind of answers (`questions.KINDS`). A note explains each
cell that is not what a reader expects.
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
LOW = 0.1  # the highest score that a reader expects of answers that need no model
TOLERANCE = 1e-12
"""The tolerated difference between a floor and the score of the same answers, which are added up in
another order.
"""
COLUMNS = (GOLD, "gold, corrected", *FLOORS, "empty, corrected", UNPARSED, "unparsed, lenient")
"""The columns after task, metric, n and parity: a kind of answers, and the name of an added score
after a comma.
"""

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
    """The comparison of our scores with those of bare HELM, for one kind of answers."""

    compared: int  # the number of compared scores
    differences: tuple[str, ...]  # a sentence about each difference; every difference is a failure


def metrics_of(result: Result) -> list[str]:
    """Return the metrics with a row: the main metric, and each metric with a corrected score."""
    metrics = [result.main_metric]
    for label in result.scores:
        metric = label.removesuffix(CORRECTED)
        is_of_main_split = "@" not in metric
        if label.endswith(CORRECTED) and is_of_main_split and metric != result.main_metric:
            metrics.append(metric)
    return metrics


def parity(
    ours: Mapping[str, Mapping[str, Any]], stats: Sequence[Mapping[str, Any]], main_metric: str
) -> Parity:
    """Compare each of our scores that HELM computes too with the mean in stats.json.

    Args:
        ours: our scores by label.
        stats: the content of the stats.json of bare helm-run.
        main_metric: the metric that must be among the compared scores.
    """
    helms_means = {
        (stat["name"]["name"], stat["name"].get("split")): stat["mean"]
        for stat in stats
        if "mean" in stat and "perturbation" not in stat["name"]
    }
    compared = 0
    differences = []
    for label, score in ours.items():
        if score["perturbation"] is not None:
            continue
        mean = helms_means.get((score["metric"], score["split"]))
        if mean is None:
            continue
        compared += 1
        if score["value"] != mean:
            differences.append(f"{label} is {score['value']!r}, of bare helm-run {mean!r}")
    our_metrics = {score["metric"] for score in ours.values()}
    helms_metrics = {name for name, _split in helms_means}
    if main_metric not in our_metrics & helms_metrics:
        differences.append(f"{main_metric} is missing from one of the two")
    return Parity(compared, tuple(differences))


@dataclass(frozen=True)
class Row:
    """A row of the table: one metric of a task, with its scores in all runs of the task."""

    task: Task
    metric: str
    questions: Sequence[Question]
    results: Mapping[str, Result]  # kind of answers -> our result
    parities: Mapping[str, Parity]
    """A dict from the kind of answers to the parity of all metrics; empty in all rows of a task but
    the first.
    """

    @property
    def full(self) -> float:
        """The score if all answers are right."""
        return float(HIGHEST) if self.task.helm.judges else 1.0

    @property
    def low(self) -> float:
        """The highest score that a reader expects of answers that need no model."""
        return float(LOWEST) if self.task.helm.judges else LOW

    @property
    def n(self) -> int:
        """The number of questions."""
        return len(self.questions)

    def cells(self) -> dict[str, float | None]:
        """Return the score of each column; None if there is none."""
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
        """Yield the columns whose cell is not what a reader expects.

        Columns of fitting kinds of answers that were not asked (`--kind`) are left out.
        """
        left_out = set(kinds_of(self.task)) - set(self.results)
        for column, value in self.cells().items():
            if column.partition(",")[0] in left_out:
                continue
            if value is None:
                yield column
            elif column in (GOLD, "gold, corrected", "unparsed, lenient"):
                if value != self.full:
                    yield column
            elif value > self.low:
                yield column

    def known_reason(self, column: str) -> str | None:
        """Return the reason for an unexpected cell, if this class can check it; else None.

        The reason for a missing score is the form of the benchmark. The reason for another score is
        the share of questions to which the answers happen to be right, which is counted.
        """
        if self.cells()[column] is None:
            return self._reason_missing(column)
        return self._reason_by_chance(column)

    def _reason_missing(self, column: str) -> str | None:
        """Return why a cell has no score; None if this is not known."""
        if self.results[GOLD].value(self.metric) is None:
            return None
        is_open_text = self.task.helm.answer_form is None and not self._has_options
        if column.endswith("corrected") and self._value(GOLD, CORRECTED) is None:
            return NO_CORRECTION
        if column in (CONSTANT, UNPARSED, "unparsed, lenient") and is_open_text:
            return NO_FORM
        return NO_OPTIONS if column == "unparsed, lenient" and not self._has_options else None

    def _reason_by_chance(self, column: str) -> str | None:
        """Return the reason if the score is the share of questions to which the answer is right.

        Return None if the score is another number.
        """
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
        """Yield the problems with which the script fails, except for cells without a reason."""
        for kind, kind_parity in self.parities.items():
            yield from (
                f"{self.task.name}, {kind}: parity: {difference}"
                for difference in kind_parity.differences
            )
            if not kind_parity.compared:
                yield f"{self.task.name}, {kind}: no score could be compared with bare helm-run"
        yield from self._wrong_floors()

    def _wrong_floors(self) -> Iterator[str]:
        """Yield a problem for each floor that is not the score of the same answers.

        The floors (`validity.floors`) are computed without a request. The endpoint gave the same
        answers, and run_eval scored them.
        """
        names = {EMPTY: EMPTY, REFUSAL: REFUSAL}
        if CONSTANT in self.results:
            names[CONSTANT] = f"always {answer_of(CONSTANT, self.task, self.questions[0])}"
        # `name` is the name in `validity.floors` of the answers of a kind.
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
    """The reason for cells that are not what a reader expects, from explanations.yml."""

    task: str
    metric: str
    cells: tuple[str, ...]  # the columns of the cells
    because: str
    upstream: str | None = None  # None: the explanation holds for both upstreams

    def is_about(self, row: Row) -> bool:
        is_of_upstream = self.upstream in (None, row.task.helm.upstream.name)
        return is_of_upstream and (self.task, self.metric) == (row.task.name, row.metric)


def reason_for(row: Row, column: str, explanations: Sequence[Explanation]) -> str | None:
    """Return the reason for a cell: of the cell's first explanation, or else a known reason."""
    for explanation in explanations:
        if explanation.is_about(row) and column in explanation.cells:
            return explanation.because
    return row.known_reason(column)


def unexplained(rows: Iterable[Row], explanations: Sequence[Explanation]) -> Iterator[str]:
    """Yield a problem for each unexpected cell without a reason.

    An explanation of a cell that is as a reader expects is a problem too.
    """
    for row in rows:
        surprising = set(row.surprises())
        cells = row.cells()
        for column in COLUMNS:
            if column in surprising and reason_for(row, column, explanations) is None:
                yield (
                    f"{row.task.name}, {row.metric}, {column}: {_shown(cells[column])} "
                    "is not what a reader expects: say why in explanations.yml"
                )
        for explanation in explanations:
            if not explanation.is_about(row):
                continue
            for column in explanation.cells:
                if column not in surprising:
                    cell = f"{explanation.task}, {explanation.metric}, {column}"
                    yield f"{cell}: explained, but as a reader expects"


def page(
    rows: Sequence[Row],
    not_run: Mapping[str, str],
    explanations: Sequence[Explanation],
    versions: Mapping[str, str],
) -> str:
    """Return the text of the page.

    Args:
        rows: the rows of the table.
        not_run: a dict from each task that was not run to the reason.
        explanations: the explanations of cells.
        versions: a dict from the names of the programs to their versions.
    """
    # From the text of a note to its number. Cells with the same reason share a note.
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
    """Yield the lines of the table, and add the notes of its cells to `notes`."""
    yield f"| task | metric | n | parity | {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * (4 + len(COLUMNS))}"
    for row in rows:
        cells = row.cells()
        surprising = set(row.surprises())
        shown = []
        for column in COLUMNS:
            reason = reason_for(row, column, explanations) if column in surprising else None
            mark = ""
            if reason:
                note = " ".join(reason.split())
                number = notes.setdefault(note, len(notes) + 1)
                mark = f" ({number})"
            shown.append(f"{_shown(cells[column])}{mark}")
        first_cells = [f"`{row.task.name}`", f"`{row.metric}`", f"{row.n:,}", _parity(row)]
        yield f"| {' | '.join([*first_cells, *shown])} |"


def _parity(row: Row) -> str:
    if not row.parities:
        return "above"
    compared = sum(kind_parity.compared for kind_parity in row.parities.values())
    differences = sum(len(kind_parity.differences) for kind_parity in row.parities.values())
    if differences:
        return f"{differences} of {compared} differ"
    return f"{compared} of {compared}"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _not_run(reasons: Mapping[str, str]) -> Iterator[str]:
    if not reasons:
        return
    yield from ["## Not run", ""]
    # Tasks with the same reason share a line. The name of the missing file is left out, because
    # run_eval shows it.
    tasks_by_reason: dict[str, list[str]] = {}
    for task, reason in reasons.items():
        tasks_by_reason.setdefault(reason.partition(": no ")[0], []).append(f"`{task}`")
    for reason, tasks in tasks_by_reason.items():
        yield f"- {', '.join(tasks)}: {reason}"
    yield ""
