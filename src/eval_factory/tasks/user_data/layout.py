"""A user's own data: what has to stand under `data_path`, said before HELM looks for it and anything is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from eval_factory.tasks.file_problems import MOST_PROBLEMS_SHOWN, shortened
from eval_factory.tasks.framework import DATA_PATH, FileLayout
from eval_factory.tasks.user_data.files import content_faults, missing_numbers, number_named_by, one_of

Values = Mapping[str, str | None]


def described(layout: Sequence[FileLayout], values: Values) -> list[str]:
    """The layout, a line a file; parameters that have no value yet stay in braces."""
    return [_line(entry.named(values)) for entry in layout if entry.may_apply(values)]


def _line(entry: FileLayout) -> str:
    where = f"{DATA_PATH} itself is a file" if entry.file is None else f"{DATA_PATH}/{entry.file}"
    kind = f" ({entry.format})" if entry.format else ""
    columns = [f"{name} ({one_of(entry.allowed[name])})" if name in entry.allowed else name for name in entry.columns]
    parts = [f"with the columns {', '.join(columns)}"] if columns else []
    for path, attributes in entry.elements.items():
        told = ", ".join(f"{name}: {one_of(allowed)}" for name, allowed in attributes.items())
        parts.append(f"with an element {path}{f' ({told})' if told else ''}")
    if entry.at_least > 1:
        when = " and ".join(f"{name}={pattern}" for name, pattern in entry.when.items())
        parts.append(f"{f'for {when} ' if when else ''}with {entry.at_least:,} rows or more")
    if entry.lines_as is not None:
        parts.append(f"with as many lines as {entry.lines_as}")
    if entry.numbered:
        parts.append("each named by a whole number, and nothing else there")
    if entry.one_per is not None:
        parts.append(f"one for each {entry.one_per.column} of {entry.one_per.file}")
    if entry.in_every is not None:
        parts.append(f"and one in every other folder of {entry.in_every}")
    return f"{where}{kind}{' ' if parts else ''}{', '.join(parts)}"


def files_of(layout: Sequence[FileLayout], path: Path, values: Values) -> dict[str, Path]:
    """`data_path/<name>` (or `data_path` itself) -> each file that is read, in order; what is not there is left out."""
    found: dict[str, Path] = {}
    for entry in _applying(layout, values):
        if entry.file is None:
            files = {DATA_PATH: path}
        else:
            files = {f"{DATA_PATH}/{file.relative_to(path).as_posix()}": file for file in sorted(path.glob(entry.file))}
        found.update({name: file for name, file in files.items() if file.is_file()})
    return found


def faults(layout: Sequence[FileLayout], path: Path, values: Values) -> list[str]:
    """What of the layout is not there, or has another form; empty where all is well."""
    found = []
    entries = list(_applying(layout, values))
    for entry in entries:
        if entry.file is None:
            if path.is_file():
                found += content_faults(path, entry)
            else:
                found.append(f"{path}: {'is a folder, not the file' if path.is_dir() else 'there is no such file'}")
        elif not path.is_dir():
            return [f"{path}: {'is a file, not the folder' if path.is_file() else 'there is no such folder'}"]
        else:
            found += _faults_of_files(path, entry)
    if not found:
        found += [fault for entry in entries for fault in _without_a_file(path, entry, entries)]
    return list(dict.fromkeys(found))


def _applying(layout: Sequence[FileLayout], values: Values) -> Iterator[FileLayout]:
    return (entry.named(values) for entry in layout if entry.may_apply(values))


def _faults_of_files(folder: Path, entry: FileLayout) -> list[str]:
    name = str(entry.file)
    matching = sorted(folder.glob(name))
    if not matching:
        return [f"{folder / name}: there is no such file{_near(folder, name)}"]
    found = []
    for file in matching:
        if not file.is_file():
            found.append(f"{file}: is a folder, not a file")
        elif entry.numbered and number_named_by(file) is None:
            found.append(f"{file}: HELM reads every file of this folder, and this one is not named by a whole number")
        else:
            found += content_faults(file, entry)
    if entry.in_every is not None:
        wanted = matching[0].name
        found += [
            f"{other}: has no {wanted}, which HELM wants in everything under {entry.in_every}; take it away"
            for other in sorted((folder / entry.in_every).iterdir())
            if not (other / wanted).exists()
        ]
    return shortened(found, f"{folder / name}: ")


def _without_a_file(folder: Path, entry: FileLayout, entries: Sequence[FileLayout]) -> list[str]:
    """Rows of a table that ask for a file named by a number, and it is not there."""
    if entry.one_per is None:
        return []
    table = next(other for other in entries if other.file == entry.one_per.file)
    there = frozenset(number for file in folder.glob(str(entry.file)) if (number := number_named_by(file)) is not None)
    missing = missing_numbers(folder / entry.one_per.file, table, entry.one_per.column, there)
    parent = folder / Path(str(entry.file)).parent
    return [
        f"{folder / entry.one_per.file}: {where}, column {entry.one_per.column}: no file of {parent} is named {number}"
        for where, number in islice(missing, MOST_PROBLEMS_SHOWN)
    ]


def _near(folder: Path, name: str) -> str:
    """What stands there instead, so that a wrong level or spelling is seen at once."""
    parent = folder / name
    while not parent.is_dir() and parent != folder:
        parent = parent.parent
    names = [entry.name + "/" * entry.is_dir() for entry in islice(sorted(parent.iterdir()), 6)]
    return f"; in {parent} there is: {', '.join(names)}" if names else f"; {parent} is empty"
