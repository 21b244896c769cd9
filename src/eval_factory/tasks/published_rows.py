"""Reads the rows of published files: Parquet, CSV, JSON, and tables with tabs."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core import safe_files
from eval_factory.core.safe_files import MAX_BYTES_OF_TABLE, open_text
from eval_factory.core.table_files import MAX_CELL_LENGTH
from eval_factory.tasks.choice_question import DataRow

ERRORS_OF_ROWS = (ValueError, RecursionError, csv.Error)
"""The exceptions that mean that a file does not have the published form."""
UNLIKE_PUBLISHED = "is not of the published form"  # the message for such a file


def published_rows(path: Path) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each row of a Parquet, CSV or JSON file.

    A position is a text for messages: `row 3`, or `line 3` of JSON lines. A file with another
    extension is read as a JSON list or as JSON lines. Raises ValueError if the file is not JSON.
    """
    kind = path.suffix.lower()
    if kind == ".parquet":
        yield from _parquet_rows(path)
    elif kind == ".csv":
        yield from _csv_rows(path)
    else:
        yield from _json_rows(path)


_ROWS_AT_ONCE = 16  # rows of a Parquet file in memory at the same time: each may hold a picture
_BUFFER_SIZE = 1 << 20  # in bytes: without a size, pyarrow reads a complete column at once


def _parquet_rows(path: Path) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each row of a Parquet file."""
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER_SIZE)
    # Read each row group separately: one iteration over all groups would end up with the complete
    # file in memory.
    number = 0
    for group in range(table.num_row_groups):
        for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=[group]):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row


def _csv_rows(path: Path) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each row of a CSV file."""
    csv.field_size_limit(MAX_CELL_LENGTH)
    with open_text(path, encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=1):
            # The key None has the cells beyond the named columns: they are left out.
            yield f"row {number}", {name: cell for name, cell in row.items() if name is not None}


_FILE = "it"  # the word for the file in error messages, which follow the file's path


def _json_rows(path: Path) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each object of a JSON list, or for each line of JSON lines."""
    text = _text_of(path)
    if text.lstrip().startswith("["):
        for number, row in enumerate(_json(text, _FILE), start=1):
            position = f"row {number}"
            yield position, _object(row, position)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            position = f"line {number}"
            yield position, _object(_json(line, position), position)


def _text_of(path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte-order mark."""
    return safe_files.read_text(path, encoding="utf-8-sig", max_size=MAX_BYTES_OF_TABLE)


def rows_without_header(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each row of a table with tabs between the columns.

    MedExQA has one such file for each profession (`biomedical_engineer_test.tsv`). The profession
    in the file's name becomes the column `specialty`.
    """
    csv.field_size_limit(MAX_CELL_LENGTH)
    specialty = path.stem.removesuffix("_test")
    with open_text(path, encoding="utf-8-sig", newline="") as file:
        for number, cells in enumerate(csv.reader(file, delimiter="\t"), start=1):
            if len(cells) != len(columns):
                count = f"has {len(cells)} columns, not the {len(columns)} of the published form"
                raise ValueError(f"row {number} {count}: {', '.join(columns)}")
            row = dict(zip(columns, cells, strict=True))
            yield f"row {number}", {**row, "specialty": specialty}


def patient_rows(path: Path) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each question of LongHealth's file.

    The file is a JSON object from the name of a patient to the patient's documents and questions.
    """
    patients = _object(_json(_text_of(path), _FILE), _FILE)
    for name, patient in patients.items():
        if not isinstance(patient, Mapping):
            continue  # the canary string, which marks the file as test data
        questions = patient.get("questions")
        if not isinstance(questions, list):
            raise ValueError(f"{name}: questions must be a list")
        for number, question in enumerate(questions, start=1):
            position = f"{name} question {number}"
            row = {"patient": name, "texts": patient.get("texts"), **_object(question, position)}
            yield position, row


def _object(value: Any, position: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises ValueError, with `position`, if the value is not an object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{position} must be a JSON object")
    return value


def _json(text: str, position: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, with `position`, if it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{position} is not JSON ({error.msg}, line {error.lineno})") from None


def unique_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids, with a number added to each repeated id: `a`, `a-2`, `a-3`.

    HELM identifies an instance by its id, so each id must be unique.
    """
    taken = set(ids)
    counts: Counter[str] = Counter()
    unique = []
    for name in ids:
        counts[name] += 1
        if counts[name] > 1:
            while f"{name}-{counts[name]}" in taken:
                counts[name] += 1
            name = f"{name}-{counts[name]}"
            taken.add(name)
        unique.append(name)
    return unique
