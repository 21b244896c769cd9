"""A user's own data: what has to stand under `data_path`, said before HELM looks for it."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from eval_factory.config.framework import FileLayout

COMPRESSED = ".gz"


def described(layout: Sequence[FileLayout], values: Mapping[str, str | None]) -> list[str]:
    """The layout, a line a file; parameters that have no value yet stay in braces."""
    lines = []
    for entry in layout:
        where = "data_path itself is a file" if entry.file is None else f"data_path/{_named(entry.file, values)}"
        kind = f" ({entry.format})" if entry.format else ""
        columns = f" with the columns {', '.join(entry.columns)}" if entry.columns else ""
        lines.append(f"{where}{kind}{columns}")
    return lines


def faults(layout: Sequence[FileLayout], path: Path, values: Mapping[str, str | None]) -> list[str]:
    """What of the layout is not there, or has another form; empty where all is well."""
    found = []
    for entry in layout:
        name = None if entry.file is None else _named(entry.file, values)
        if name is None:
            if not path.is_file():
                found.append(f"{path}: {'is a folder, not the file' if path.is_dir() else 'there is no such file'}")
                continue
            file = path
        elif not path.is_dir():
            return [f"{path}: {'is a file, not the folder' if path.is_file() else 'there is no such folder'}"]
        else:
            matching = sorted(path.glob(name))
            if not matching:
                found.append(f"{path / name}: there is no such file{_near(path, name)}")
                continue
            file = matching[0]
        if entry.columns:
            found.extend(_column_faults(file, entry))
    return found


def _named(pattern: str, values: Mapping[str, str | None]) -> str:
    for name, value in values.items():
        if value is not None:
            pattern = pattern.replace("{" + name + "}", value)
    return pattern


def _near(folder: Path, name: str) -> str:
    """What stands there instead, so that a wrong level or spelling is seen at once."""
    parent = folder / name
    while not parent.is_dir() and parent != folder:
        parent = parent.parent
    names = [entry.name + "/" * entry.is_dir() for entry in islice(sorted(parent.iterdir()), 6)]
    return f"; in {parent} there is: {', '.join(names)}" if names else f"; {parent} is empty"


def _column_faults(file: Path, entry: FileLayout) -> list[str]:
    try:
        columns = _columns(file, entry.format)
    except Exception as error:  # readers of six formats, each with its own errors
        return [f"{file}: cannot be read: {type(error).__name__}: {error}"]
    missing = [name for name in entry.columns if name not in columns]
    if not missing:
        return []
    return [f"{file}: has no column {', '.join(missing)}; it has {', '.join(map(str, columns)) or 'none'}"]


def _columns(file: Path, named_format: str | None) -> list[str]:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    kind = named_format or (suffixes[-1].lstrip(".") if suffixes else "")
    if kind == "gz":
        kind = suffixes[-2].lstrip(".")
    if kind in ("csv", "tsv"):
        opener = gzip.open if suffixes[-1] == COMPRESSED else open
        with opener(file, "rt", encoding="utf-8") as stream:
            return next(csv.reader(stream, delimiter="\t" if kind == "tsv" else ","), [])
    if kind == "jsonl":
        with file.open(encoding="utf-8") as stream:
            return list(json.loads(next(stream)))
    if kind == "xlsx":
        from openpyxl import load_workbook

        sheet = load_workbook(file, read_only=True).worksheets[0]
        return [str(cell) for cell in next(sheet.iter_rows(max_row=1, values_only=True), ())]
    if kind == "parquet":
        from pyarrow import parquet

        return list(parquet.read_schema(file).names)
    if kind == "feather":
        from pyarrow import feather

        return list(feather.read_table(file, memory_map=True).column_names)
    raise ValueError(f"no reader for {kind!r}")
