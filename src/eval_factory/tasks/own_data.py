"""Checks a user's own data at `data_path`: required files exist and have the content HELM needs.

All problems are reported before the first request. Messages never quote a cell, because cells may
hold patient data.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from eval_factory.core.formats import counted
from eval_factory.core.safe_files import MAX_BYTES, open_text
from eval_factory.core.table_files import MAX_CELL_LENGTH
from eval_factory.tasks.case_reports import CASE_REPORTS_FORM, read_case_reports
from eval_factory.tasks.concordance import CONCORDANCE_FORM, read_concordance_file
from eval_factory.tasks.file_problems import (
    MAX_PROBLEMS_SHOWN,
    first_problems,
    not_utf8,
)
from eval_factory.tasks.framework import (
    DATA_PATH_PARAMETER,
    FileLayout,
    function_named,
    is_plug_in_function,
)
from eval_factory.tasks.message_files import HEALTHBENCH_FORM, PROFESSIONAL_FORM, read_rubric_file
from eval_factory.tasks.published_choices import read_choice_file
from eval_factory.tasks.published_forms import PUBLISHED_FORMS

_BYTE_ORDER_MARK = "\ufeff"
SEPARATORS = {"csv": ",", "tsv": "\t"}

# a dict from column to text: "" for an empty cell, None if the row has no cell in this column
_Row = Mapping[str, str | None]
_Rows = Iterator[tuple[str, _Row]]  # (position such as `row 3`, row)
_Values = Mapping[str, str | None]  # a dict from the task's parameters to their values

_PROBLEMS_BY_FORMAT: Mapping[str | None, Callable[[Path], Iterable[str]]] = {
    HEALTHBENCH_FORM: lambda file: read_rubric_file(file, HEALTHBENCH_FORM).problems,
    PROFESSIONAL_FORM: lambda file: read_rubric_file(file, PROFESSIONAL_FORM).problems,
    CASE_REPORTS_FORM: lambda file: read_case_reports(file).problems,
    CONCORDANCE_FORM: lambda file: read_concordance_file(file).problems,
}
"""A dict from the format of a published file to the function that returns the problems of a file.
The formats of published multiple-choice files are in `PUBLISHED_FORMS` instead. No key is None:
the type only allows a lookup of `FileLayout.format`, which may be None.
"""


def joined_by_or(values: Sequence[str]) -> str:
    """Return the values as `a, b or c`; a single value unchanged."""
    if len(values) < 2:
        return "".join(values)
    return f"{', '.join(values[:-1])} or {values[-1]}"


def _format_of(file: Path, entry: FileLayout) -> str:
    """Return the format of a file, such as `csv`: from the layout, or from the file's extension."""
    name = file.name.lower()
    if entry.read_by == "pandas":
        name = name.removesuffix(".gz")
    return entry.format or Path(name).suffix.lstrip(".")


def _problems_of_file(file: Path, entry: FileLayout) -> list[str]:
    """Return the problems of a file's content; an empty list if there are none.

    At most `MAX_PROBLEMS_SHOWN` problems are listed; a last entry counts all further problems.
    """
    content_problems = _content_problems(file, entry)  # a generator: the file is not yet read
    try:
        size = file.stat().st_size
        if size == 0:
            return [f"{file}: is empty"]
        if size > MAX_BYTES:
            return [f"{file}: is larger than {MAX_BYTES >> 30} GiB"]
        shown = list(islice(content_problems, MAX_PROBLEMS_SHOWN))
        number_not_shown = sum(1 for _ in content_problems)  # the generator continues after `shown`
    except UnicodeDecodeError:
        return [f"{file}: {not_utf8(file)}"]
    except Exception as error:  # any type: each format's reader raises exceptions of its own
        return [f"{file}: cannot be read: {type(error).__name__}: {error}"]
    problems = [f"{file}: {problem}" for problem in shown]
    if number_not_shown:
        problems.append(f"{file}: {counted(number_not_shown, 'more mistake')} in it")
    return problems


def _content_problems(file: Path, entry: FileLayout) -> Iterator[str]:
    """Yield each problem in the content of a file, without the file's name."""
    if is_plug_in_function(
        entry.format
    ):  # a plug-in's function reads the file and yields the problems
        yield from function_named(str(entry.format))(file)
        return
    if entry.format in PUBLISHED_FORMS:
        yield from read_choice_file(file, str(entry.format)).problems
        return
    if entry.format == "zip":  # checked together with the file that names the ZIP file's members
        return
    if entry.format in _PROBLEMS_BY_FORMAT:
        yield from _PROBLEMS_BY_FORMAT[entry.format](file)
        return
    if entry.columns:
        yield from _table_problems(file, entry)
    if entry.elements:
        yield from _xml_problems(file, entry)
    if not entry.columns and not entry.elements:
        with open_text(file) as lines:
            for _ in lines:  # raises UnicodeDecodeError if the file is not UTF-8
                pass
    if entry.lines_as is not None:
        yield from _line_problems(file, entry)


def _table_problems(file: Path, entry: FileLayout) -> Iterator[str]:
    """Yield each problem of a table: a CSV, Excel, JSON lines, Parquet or Feather file."""
    file_format = _format_of(file, entry)
    if file_format in ("parquet", "feather"):
        yield from _arrow_problems(file, entry, file_format)
        return
    columns, rows = _table_of(file, entry)
    missing = [name for name in entry.columns if name not in columns]
    # The byte-order mark becomes a part of the first column's name.
    if missing and columns and columns[0].removeprefix(_BYTE_ORDER_MARK) in missing:
        yield (
            f"starts with a byte-order mark, and HELM then finds no column {missing[0]}: "
            "save the file as UTF-8 without a byte-order mark"
        )
    elif missing:
        yield _no_column_message(missing, columns)
    else:
        yield from _row_problems(rows, entry)


def _no_column_message(missing: Iterable[str], columns: Iterable[str]) -> str:
    """Return the message for a table in which columns are missing."""
    return f"has no column {', '.join(missing)}; it has {', '.join(map(str, columns)) or 'none'}"


def _row_problems(rows: _Rows, entry: FileLayout) -> Iterator[str]:
    """Yield each problem of a table's rows, and the problem of a table without usable rows.

    HELM ignores a row if a column of `entry.counted` has none of its listed values, or if a column
    of `entry.skipped_if_empty` is empty.
    """
    rows_asked = 0  # the number of rows that HELM does not ignore
    for label, row in rows:
        absent = [name for name in entry.columns if row.get(name) is None]
        if absent:
            # The row counts as asked: a table with this problem is not also reported as empty.
            rows_asked += 1
            yield f"{label}: has no text in column {absent[0]}"
            continue
        # `or ""` is for the type checker: no cell is None here.
        has_counted_values = all(
            (row[name] or "").strip() in values for name, values in entry.counted.items()
        )
        has_needed_cells = all(row[name] for name in entry.skipped_if_empty)
        if not has_counted_values or not has_needed_cells:
            continue  # HELM ignores the row
        rows_asked += 1
        yield from (f"{label}, column {name}: is empty" for name in entry.filled if not row[name])
        for name, values in entry.allowed.items():
            if row[name] not in values:
                yield f"{label}, column {name}: must be {joined_by_or(values)}"
    if rows_asked == 0:
        yield _no_row_message(entry)


def _no_row_message(entry: FileLayout) -> str:
    """Return the message for a table in which HELM ignores all rows."""
    conditions = [
        f"whose {name} is {joined_by_or(values)}" for name, values in entry.counted.items()
    ]
    if entry.skipped_if_empty:
        conditions.append(f"with {', '.join(entry.skipped_if_empty)}")
    if not conditions:
        return "has no row that can be asked"
    return f"has no row that can be asked ({' and '.join(conditions)})"


def _table_of(file: Path, entry: FileLayout) -> tuple[list[str], _Rows]:
    """Return the columns and rows of a file.

    Raises the exceptions of the format's reader, and ValueError for a format without a reader.
    """
    file_format = _format_of(file, entry)
    if file_format == "jsonl":
        # JSON lines have no header: a field that is missing is a problem of its row.
        return list(entry.columns), _json_rows(file, entry.columns)
    if file_format != "xlsx" and file_format not in SEPARATORS:
        raise ValueError(f"no reader for {file_format!r}")
    if file_format == "xlsx" or entry.read_by == "pandas":
        return _pandas_table(file, entry, file_format)
    csv.field_size_limit(MAX_CELL_LENGTH)
    with open_text(file, newline="") as opened:
        columns = list(csv.DictReader(opened, delimiter=SEPARATORS[file_format]).fieldnames or [])

    def rows() -> _Rows:
        # Opened again: the rows are read after `_table_of` has returned.
        with open_text(file, newline="") as opened:
            reader = csv.DictReader(opened, delimiter=SEPARATORS[file_format])
            for number, row in enumerate(reader, start=1):
                yield f"row {number} (line {reader.line_num})", row

    return columns, rows()


def _pandas_table(file: Path, entry: FileLayout, file_format: str) -> tuple[list[str], _Rows]:
    """Return the columns and rows of a file that HELM reads with pandas.

    The rows of a spreadsheet are numbered from 2, as in Excel: row 1 has the names of the columns.
    """
    import pandas as pd

    read: Any
    if file_format == "xlsx":
        read = pd.read_excel
        first_number = 2
    else:
        read = partial(pd.read_csv, sep=SEPARATORS[file_format])
        first_number = 1
    columns = [str(name) for name in read(file, nrows=0).columns]
    cells = read(
        file, dtype=str, usecols=[name for name in columns if name in entry.columns]
    ).fillna("")

    def rows() -> _Rows:
        for number, values in enumerate(cells.itertuples(index=False), start=first_number):
            yield f"row {number}", dict(zip(cells.columns, values, strict=True))

    return columns, rows()


def _json_rows(file: Path, columns: Iterable[str]) -> _Rows:
    """Yield the rows of a file of JSON lines, with the cells of `columns` only.

    A null becomes "", like an empty cell; a value that is not text, and a missing field, become
    None. Raises ValueError if a line is not a JSON object, or the file has a byte-order mark.
    """
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith(_BYTE_ORDER_MARK):
                raise ValueError(
                    "the file starts with a byte-order mark: "
                    "save the file as UTF-8 without a byte-order mark"
                )
            try:
                record = json.loads(line)
            except ValueError:
                raise ValueError(f"line {number} is not JSON") from None
            if not isinstance(record, dict):
                fields = ", ".join(f"{name!r}: ..." for name in columns)
                raise ValueError(f"line {number} is not an object such as {{{fields}}}")
            cells: dict[str, str | None] = {}
            for name in columns:
                cell = record.get(name)
                if name in record and cell is None:
                    cell = ""
                cells[name] = cell if isinstance(cell, str) else None
            yield f"line {number}", cells


def _arrow_problems(file: Path, entry: FileLayout, file_format: str) -> Iterator[str]:
    """Yield each problem of a Parquet or Feather file.

    Only the first of a column's empty cells is reported.
    """
    import pyarrow as pa
    from pyarrow import compute, dataset

    table = dataset.dataset(file, format=file_format)
    missing = [name for name in entry.columns if name not in table.schema.names]
    if missing:
        yield _no_column_message(missing, table.schema.names)
        return
    for name in entry.dates:
        if not pa.types.is_timestamp(table.schema.field(name).type):
            yield f"column {name}: must hold timestamps, but holds {table.schema.field(name).type}"
    if table.count_rows() == 0:
        yield "has no rows"
    for name in entry.filled:
        earlier_rows = 0  # the number of rows in earlier batches
        for batch in table.to_batches(columns=[name]):
            if batch.column(0).null_count:
                index_in_batch = compute.index(batch.column(0).is_null(), value=True).as_py()
                yield f"row {earlier_rows + index_in_batch + 1}, column {name}: is empty"
                break
            earlier_rows += batch.num_rows


def _xml_problems(file: Path, entry: FileLayout) -> Iterator[str]:
    """Yield each problem of an XML file's elements."""
    from xml.etree import ElementTree as ET

    try:
        root = ET.parse(file).getroot()  # noqa: S314 - the user's own file, and HELM reads it the same way
    except ET.ParseError as error:
        yield f"is not XML ({error})"
        return
    for path, attributes in entry.elements.items():
        element = root.find(f".//{path}")
        if element is None:
            yield f"has no element {path}"
            continue
        for name, values in attributes.items():
            if element.get(name) not in values:
                yield f"the element {path}: its {name} must be {joined_by_or(values)}"


def _line_problems(file: Path, entry: FileLayout) -> Iterator[str]:
    """Yield the problem of a file whose lines belong to the lines of a second file.

    Nothing is yielded if the files have the same number of lines, and both lines of at least one
    pair have text.
    """
    second_file = file.with_name(str(entry.lines_as))  # has a line for each line of `file`
    if not second_file.is_file():
        return  # the check of the second file's own entry reports the missing file
    pairs = 0  # the number of pairs in which both lines have text
    count = 0  # the number of lines of this file
    second_count = 0
    # Wrong characters in the second file are reported by the check of that file's own entry.
    with (
        open_text(file) as lines,
        open_text(second_file, errors="replace") as second_lines,
    ):
        for line, second_line in zip_longest(lines, second_lines):
            if line is not None:
                count += 1
            if second_line is not None:
                second_count += 1
            # A line is None after the end of its file.
            if (line or "").strip() and (second_line or "").strip():
                pairs += 1
    if count != second_count:
        yield (
            f"has {count} lines, and {second_file.name} has {second_count}: each line belongs to "
            "one line of the other file"
        )
    elif not pairs:
        yield f"has no line that has text both in this file and in {second_file.name}"


def _entries_with_values(layout: Sequence[FileLayout], values: _Values) -> Iterator[FileLayout]:
    """Yield the layout of each file, with the values of parameters filled in."""
    for entry in layout:
        yield entry.with_values(values)


def described_layout(layout: Sequence[FileLayout], values: _Values) -> Iterator[str]:
    """Yield a description of each file that a task needs, with its format and columns.

    Args:
        layout: the files that the task needs.
        values: the values of the task's parameters, which the names of files may contain.
    """
    for entry in _entries_with_values(layout, values):
        description = f"{DATA_PATH_PARAMETER}/{entry.file}"
        if entry.file is None:
            description = f"{DATA_PATH_PARAMETER} itself is a file"
        if entry.format:
            description += f" ({entry.format})"
        requirements = ", ".join(_requirements(entry))
        if requirements:
            description += f" {requirements}"
        yield description


def _requirements(entry: FileLayout) -> Iterator[str]:
    """Yield a phrase for each requirement of a file's content."""
    columns = []
    for name in entry.columns:
        if name in entry.allowed:
            columns.append(f"{name} ({joined_by_or(entry.allowed[name])})")
        else:
            columns.append(name)
    if columns:
        yield f"with the columns {', '.join(columns)}"
    for path, attributes in entry.elements.items():
        requirement = f"with an element {path}"
        if attributes:
            listed = ", ".join(
                f"{name}: {joined_by_or(allowed)}" for name, allowed in attributes.items()
            )
            requirement += f" ({listed})"
        yield requirement
    if entry.lines_as:
        yield f"with the same number of lines as {entry.lines_as}"
    if entry.also:
        yield entry.also


def files_of(layout: Sequence[FileLayout], path: Path, values: _Values) -> dict[str, Path]:
    """Return the existing files of a layout.

    The files have the order of the layout. The files that match one pattern are sorted by name.

    Args:
        layout: the files that the task needs.
        path: the value of `data_path`.
        values: the values of the task's parameters, which the names of files may contain.

    Returns:
        A dict from `data_path/NAME` to the file; the key is `data_path` if `path` is the file.
    """
    files_found: dict[str, Path] = {}
    for entry in _entries_with_values(layout, values):
        if entry.file is None:
            files = {DATA_PATH_PARAMETER: path}
        else:
            files = {}
            for file in sorted(path.glob(entry.file)):
                files[f"{DATA_PATH_PARAMETER}/{file.relative_to(path).as_posix()}"] = file
        for name, file in files.items():
            if file.is_file():
                files_found[name] = file
    return files_found


def problems_of_data(layout: Sequence[FileLayout], path: Path, values: _Values) -> list[str]:
    """Return the problems of missing and malformed files; an empty list if there are none.

    If `path` is a file instead of the folder, or does not exist, only this problem is returned.

    Args:
        layout: the files that the task needs.
        path: the value of `data_path`.
        values: the values of the task's parameters, which the names of files may contain.
    """
    problems = []
    for entry in _entries_with_values(layout, values):
        if entry.file is None:
            if path.is_file():
                problems += _problems_of_file(path, entry)
            elif path.is_dir():
                problems.append(f"{path}: is a folder, not the file")
            else:
                problems.append(f"{path}: there is no such file")
        elif path.is_file():
            return [f"{path}: is a file, not the folder"]
        elif not path.is_dir():
            return [f"{path}: there is no such folder"]
        else:
            problems += _problems_of_pattern(path, entry)
    return list(dict.fromkeys(problems))  # two entries of the layout may report the same problem


def _problems_of_pattern(folder: Path, entry: FileLayout) -> list[str]:
    """Return the problems of the files in `data_path` that match one entry of the layout."""
    name = str(entry.file)
    matching = sorted(folder.glob(name))
    if not matching:
        return [f"{folder / name}: there is no such file"]
    problems = []
    for file in matching:
        if file.is_file():
            problems += _problems_of_file(file, entry)
        else:
            problems.append(f"{file}: is a folder, not a file")
    return first_problems(problems, label=f"{folder / name}: ")
