"""Reads a table of the user: each row has an answer, and the user names the columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import NO_VERSION
from eval_factory.core.table_files import TableError, file_of_table, table_rows
from eval_factory.importing.foreign_run import (
    ForeignRun,
    ForeignSample,
    ReportedValue,
    option_index,
)
from eval_factory.importing.sources import (
    SourceError,
    checked_id,
    digest_of,
    json_lines,
    number_or_none,
)

PROGRAM = "table"
SUFFIXES = (".csv", ".tsv", ".xlsx", ".jsonl", ".ndjson")  # the suffixes of files that can be read
MAX_BYTES = 512 * 1024**2  # the maximum size of a CSV, TSV or Excel file
OPTION_MARK = "|"
"""Separates the options of a question from each other in a cell."""
_SCORES_OF_WORDS = {"true": 1.0, "yes": 1.0, "right": 1.0, "false": 0.0, "no": 0.0, "wrong": 0.0}
"""The words that may stand for a score in a table."""


@dataclass(frozen=True)
class Columns:
    """The names of the table's columns, as the user named them; None if a column is not named.

    Without a column of scores (`value`), the columns `answer` and `right` are needed: an answer
    that equals the right answer scores 1, any other answer 0.
    """

    id: str | None = None  # the ids of the questions
    answer: str | None = None  # the answers of the model
    right: str | None = None  # the right answers
    value: str | None = None  # the scores of the answers, called values in a result
    question: str | None = None
    options: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The columns that the user named, by field, such as `answer`."""
        return {field: column for field, column in vars(self).items() if column is not None}


def read(path: Path, columns: Columns, task: str, model: str) -> ForeignRun:
    """Read a table as one run. The reported value of the run is the mean of its scores.

    Args:
        path: the file.
        columns: the names of the columns.
        task: the name of the benchmark.
        model: the name of the model.

    Raises:
        ConfigError: a needed column is not named, or is not in the table.
        SourceError: the file cannot be read, or a score is not a number.
    """
    if columns.id is None:
        raise ConfigError(f"{path}: name the column of the questions' ids with --id COLUMN")
    if columns.value is None and (columns.right is None or columns.answer is None):
        raise ConfigError(
            f"{path}: name the column of the scores with --value COLUMN, "
            "or the columns of answers and right answers with --answer COLUMN --right COLUMN"
        )
    metric = "exact_match" if columns.value is None else columns.value
    total = 0.0
    count = 0
    for sample in _samples(path, columns, metric):
        if metric in sample.values:
            total += sample.values[metric]
            count += 1
    if count == 0:
        raise SourceError(f"{path}: no row has a value")
    return ForeignRun(
        program=PROGRAM,
        version=NO_VERSION,
        task=task,
        model=model,
        main_metric=metric,
        reported={metric: ReportedValue(total / count)},
        samples=partial(_samples, path, columns, metric),
        files={path.name: digest_of(path)},
        settings={"columns": columns.named},
        unknown=("program that asked", "prompts as sent", "tokens", "seconds", "cost"),
    )


def _samples(path: Path, columns: Columns, metric: str) -> Iterator[ForeignSample]:
    """Yield the sample of each row. Rows with the same id are repeats of a question."""
    is_checked = False
    repeats: dict[str, int] = {}  # dict from an id to the number of earlier rows with this id
    for number, row in _rows(path):
        if not is_checked:
            _refuse_missing_columns(path, columns, row)
            is_checked = True
        cells = {}
        for field, column in columns.named.items():
            # After the first row, a line of JSON may leave out a field that has no value.
            cells[field] = row.get(column, "")
        location = f"{path}, row {number}"
        question_id = checked_id(cells["id"], location)
        repeat = repeats.get(question_id, 0)
        repeats[question_id] = repeat + 1
        yield _sample(cells, columns, metric, question_id, repeat, location)


def _refuse_missing_columns(path: Path, columns: Columns, row: Mapping[str, str]) -> None:
    """Raise ConfigError if the first row does not have all columns that the user named."""
    missing = [column for column in columns.named.values() if column not in row]
    if missing:
        known = ", ".join(one_line(name) for name in row)
        raise ConfigError(f"{path}: there is no column {', '.join(missing)}; columns: {known}")


def _sample(
    cells: Mapping[str, str],
    columns: Columns,
    metric: str,
    question_id: str,
    repeat: int,
    location: str,
) -> ForeignSample:
    """Return the sample of a row.

    Args:
        cells: dict from a field of `Columns` to the text of the cell, for the named columns.
        columns: the names of the columns.
        metric: the name of the metric.
        question_id: the checked id of the question.
        repeat: the number of earlier rows with the same id.
        location: names the row in error messages.
    """
    answer = cells.get("answer")
    right = cells.get("right", "")
    values = {}
    if columns.value is not None:
        value = _score(cells["value"], location, columns.value)
        if value is not None:
            values[metric] = value
    elif answer:
        values[metric] = float(answer.strip() == right.strip())
    options = _options(cells.get("options", ""))
    question = cells.get("question")
    is_missing = not values and not answer
    return ForeignSample(
        id=question_id,
        repeat=repeat,
        prompt=question or question_id,  # the best that is known of the prompt
        question=question,
        options=options,
        right_options=_right_options(right, options),
        right_answers=(right,) if right else (),
        completion=answer,
        values=values,
        error="the row has neither answer nor value" if is_missing else None,
    )


def _score(text: str, location: str, column: str) -> float | None:
    """Return the score in a cell; None if the cell is empty.

    Raises:
        SourceError: the text is neither a number nor one of the words in `_SCORES_OF_WORDS`.
    """
    word = text.strip().lower()
    if not word:
        return None
    if word in _SCORES_OF_WORDS:
        return _SCORES_OF_WORDS[word]
    try:
        # Some languages write a decimal comma.
        number = number_or_none(float(word.replace(",", ".")))
    except ValueError:
        number = None
    if number is None:
        raise SourceError(
            f"{location}, column {column}: {one_line(text)} is not a number; "
            "a score has to be a number"
        )
    return number


def _options(text: str) -> tuple[str, ...]:
    """Return the options in a cell; an empty tuple if there are fewer than two."""
    options = [option.strip() for option in text.split(OPTION_MARK)]
    if len(options) < 2:
        return ()
    return tuple(options)


def _right_options(right: str, options: tuple[str, ...]) -> tuple[int, ...]:
    """Return the index of the right option, in a tuple; empty if there is none.

    The right answer is the text or the letter of an option.
    """
    text = right.strip()
    if text in options:
        return (options.index(text),)
    index = option_index(text, len(options))
    if index is None:
        return ()
    return (index,)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (number, cells by column) of each row, without the header.

    The number counts the rows of a spreadsheet, or the lines of a text file. In a file of JSON
    lines, empty lines are not counted.
    """
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        for number, document in enumerate(json_lines(path), start=1):
            yield number, {column: _cell(value) for column, value in document.items()}
    else:
        yield from _rows_of_table(path)


def _cell(value: object) -> str:
    """Return a JSON value as the text of a cell. A list is a list of options."""
    if value is None:
        return ""
    if isinstance(value, list):
        return f" {OPTION_MARK} ".join(str(option) for option in value)
    return str(value)


def _rows_of_table(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (number, cells by column) of each row of a CSV, TSV or Excel file."""
    header: list[str] = []
    try:
        if file_of_table(path).stat().st_size > MAX_BYTES:
            raise SourceError(f"{path}: is larger than {MAX_BYTES // 1024**2} MiB")
        for number, row in table_rows(path):
            if not header:
                header = [name.strip() for name in row]
                _refuse_repeated_columns(path, header)
                continue
            if any(cell.strip() for cell in row[len(header) :]):
                raise SourceError(
                    f"{path}, row {number}: has more cells than columns; is a cell with commas "
                    "without its quotes?"
                )
            missing_cells = [""] * (len(header) - len(row))
            # A row may have more cells than the header: these are empty, and are left out.
            yield number, dict(zip(header, [*row, *missing_cells], strict=False))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except TableError as error:
        why = one_line(str(error))
        raise SourceError(f"{path}: line {error.line}: cannot be read: {why}") from None


def _refuse_repeated_columns(path: Path, header: Sequence[str]) -> None:
    """Raise SourceError if two columns have the same name."""
    for name in header:
        if name and header.count(name) > 1:
            raise SourceError(f"{path}: two columns are called {one_line(name)}; rename one")
