"""docs/validity.md: the table, and a note for each cell that is not what a reader expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.validity.measured_row import COLUMNS, LOW, Row

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
    """None: of either."""

    def is_about(self, row: Row) -> bool:
        is_of_it = self.upstream in (None, row.task.helm.upstream.name)
        return is_of_it and (self.task, self.metric) == (row.task.name, row.metric)


@dataclass
class Notes:
    """Numbered in the order in which they are first needed; one text has one number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(" ".join(text.split()), len(self.numbers) + 1)


def reason_for(row: Row, column: str, explanations: Sequence[Explanation]) -> str | None:
    """What was written of a cell; else what is known of its kind."""
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
                yield f"{told}: {_shown(cells[column])} is not what a reader expects: say why in explanations.yml"
        for one in explanations:
            stale = [column for column in one.cells if column not in surprising] if one.is_about(row) else []
            yield from (f"{one.task}, {one.metric}, {column}: explained, but as a reader expects" for column in stale)


def page(
    rows: Sequence[Row], not_run: Mapping[str, str], explanations: Sequence[Explanation], versions: Mapping[str, str]
) -> str:
    """The whole text."""
    notes = Notes()
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
            *(f"{number}. {text}" for text, number in notes.numbers.items()),
            "",
            *_not_run(not_run),
        ]
    )


def _table(rows: Sequence[Row], explanations: Sequence[Explanation], notes: Notes) -> Iterator[str]:
    yield f"| task | metric | n | parity | {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * (4 + len(COLUMNS))}"
    for row in rows:
        cells, surprising = row.cells(), set(row.surprises())
        shown = []
        for column in COLUMNS:
            reason = reason_for(row, column, explanations) if column in surprising else None
            mark = f" ({notes.number(reason)})" if reason else ""
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
    kinds = {task: why.partition(": no ")[0] for task, why in reasons.items()}  # run_eval names the missing file
    for kind in dict.fromkeys(kinds.values()):
        yield f"- {', '.join(f'`{task}`' for task, of in kinds.items() if of == kind)}: {kind}"
    yield ""
