"""The table of a user's own benchmark, gone through row by row. Messages never quote a cell: it may be a patient's."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eval_factory.config.explain import did_you_mean
from eval_factory.config.findings import Findings, not_utf8, unreadable

CORRECT, INCORRECT = "correct_answer", "incorrect_answers"
MOST_PROBLEMS_SHOWN = 10
LONGEST_CELL = 2**31 - 1


def header_of(path: Path, dataset_file: Path, found: Findings) -> list[str] | None:
    """The names of the columns; None where the table cannot be read."""
    try:
        with dataset_file.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file, strict=True), None)
    except OSError as error:
        found.problems += unreadable(dataset_file, error, "dataset_file", path).problems
        return None
    except UnicodeDecodeError:
        found.problems += not_utf8(dataset_file).problems
        return None
    except csv.Error as error:
        found.problems.append(f"{dataset_file}: line 1: is not CSV: {error}")
        return None
    if not header:
        found.problems.append(f"{dataset_file}: has no rows; the first line names the columns")
        return None
    for number, name in enumerate(header, start=1):
        if not name.strip():
            found.problems.append(f"{dataset_file}: line 1: column {number} has no name")
        elif header.index(name) != number - 1:
            found.problems.append(f"{dataset_file}: line 1: two columns have the name {name!r}")
    return header


def check_columns(
    prompt_file: Path,
    dataset_file: Path,
    columns: Sequence[str] | None,
    header: Sequence[str],
    needing: str | None,
    found: Findings,
) -> None:
    """`needing` is the metric that cannot do without right answers, if one cannot."""
    has = ", ".join(header)
    for name in columns or []:
        if name not in header:
            hint = did_you_mean(name, header) or f"; it has {has}"
            found.problems.append(f"{prompt_file}: {{{name}}} is no column of {dataset_file}{hint}")
    if columns is not None and not columns:
        found.problems.append(f"{prompt_file}: names no column in braces, so every instance would be the same")
    for name in (name for name in columns or [] if name in (CORRECT, INCORRECT)):
        found.notes.append(f"the prompt holds {{{name}}}: the model is shown the answers")
    if CORRECT not in header and (needing or INCORRECT in header):
        hint = did_you_mean(CORRECT, header) or f"; it has {has}"
        found.problems.append(f"{dataset_file}: has no column {CORRECT}, which {needing or INCORRECT} needs{hint}")


def check_rows(file: Path, header: Sequence[str], columns: Sequence[str], found: Findings) -> int:
    """Check each row; how many there are."""
    problems: list[str] = []
    first_with: dict[int, int] = {}
    repeated: list[tuple[int, int]] = []
    shown = [header.index(name) for name in columns if name in header]
    count = 0
    try:
        for count, (line, row) in enumerate(_rows(file), start=1):
            where = f"{file}: row {count} (line {line})"
            if len(row) != len(header):
                problems.append(
                    f"{where}: has {len(row)} cells where the first line names {len(header)} columns;"
                    " a cell that holds a comma, a quote or a line break stands in double quotes"
                )
                continue
            problems += [f"{where}, {problem}" for problem in _row_problems(dict(zip(header, row, strict=True)))]
            asked = hash(tuple(row[index] for index in shown))
            if asked in first_with:
                repeated.append((first_with[asked], count))
            else:
                first_with[asked] = count
    except UnicodeDecodeError:
        problems += not_utf8(file).problems
    except csv.Error as error:
        problems.append(f"{file}: after row {count}: is not CSV: {error}")
    if count == 0 and not problems:
        problems.append(f"{file}: has no rows below its first line, which names the columns")
    more = len(problems) - MOST_PROBLEMS_SHOWN
    found.problems += problems[:MOST_PROBLEMS_SHOWN]
    if more > 0:
        found.problems.append(f"{file}: {more} more mistakes in its rows")
    if repeated and shown:
        first, second = repeated[0]
        rows = "1 row gives" if len(repeated) == 1 else f"{len(repeated)} rows give"
        found.notes.append(
            f"{rows} the same prompt as an earlier row of {file.name} (row {second} as row {first}): counted each time"
        )
    return count


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of the line where it ends, cells) of each row below the first line; empty lines are no rows."""
    csv.field_size_limit(LONGEST_CELL)
    with file.open(encoding="utf-8-sig", newline="") as opened:
        reader = csv.reader(opened, strict=True)
        next(reader, None)
        for row in reader:
            if len(row) > 1 or any(cell.strip() for cell in row):
                yield reader.line_num, row


def _row_problems(row: Mapping[str, str]) -> Iterator[str]:
    correct = row.get(CORRECT)
    if correct is not None and not correct.strip():
        yield f"column {CORRECT}: is empty"
    cell = row.get(INCORRECT)
    if cell is None:
        return
    must = f'column {INCORRECT}: must be a JSON list of texts such as ["B", "C"]'
    try:
        answers = json.loads(cell)
    except ValueError:
        yield f"{must}; it is {'no JSON' if cell.strip() else 'empty (write [] for none)'}"
        return
    if not isinstance(answers, list):
        yield f"{must}; it is {_kind(answers)}"
        return
    for number, answer in enumerate(answers, start=1):
        if not isinstance(answer, str):
            yield f"{must}; its entry {number} is {_kind(answer)}"
        elif correct is not None and answer.strip() == correct.strip():
            yield f"column {INCORRECT}: its entry {number} is the {CORRECT}"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
