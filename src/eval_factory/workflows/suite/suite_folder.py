"""A path that somebody gave -> the suite's folder that is meant."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.rundir import OF_ONE_RUN, RunDir, SuiteDir, suite_dir
from eval_factory.core.safe_files import refuse_foreign

MOST_NAMED = 3
MOST_LOOKED_AT = 1000
"""Entries of a folder that are looked at for a suite."""


def find_suite(path: Path) -> SuiteDir:
    """The suite in the folder `path`; of a run that Slurm does, the suite that it is.

    Raises:
        PrerequisiteError: it is no suite's folder; the message says what it is, and which may be meant. Or a file of it
            lies elsewhere.
    """
    for folder in (suite_dir(path), suite_dir(path / OF_ONE_RUN)):
        if is_suite(folder):
            refuse_foreign(folder.named, folder.own)
            return folder
    meant = [SuiteDir(near).root for near in _meant(path) if is_suite(SuiteDir(near))]
    hint = f"; did you mean {' or '.join(map(_shown, meant[:MOST_NAMED]))}?" if meant else ""
    raise PrerequisiteError(f"{_shown(path)}: {_what_it_is(path)}{hint}\n  {_EXPECTED}")


_EXPECTED = "expected: the output_dir of a suite, which 'eval-factory run_suite' has begun"


def is_suite(folder: SuiteDir) -> bool:
    """Whether a suite was begun there."""
    return folder.events.is_file() or folder.lock.is_file()


def _what_it_is(path: Path) -> str:
    if not os.path.lexists(path):
        return "there is no such folder"
    if not path.is_dir():
        return "is a file"
    if RunDir(path).marker.is_file():
        return "is the output folder of one run, not of a suite"
    return "is no suite's folder"


def _meant(path: Path) -> Iterator[Path]:
    """A suite that `path` lies in, that lies in it, or whose folder has nearly its name; nearest first."""
    whole = Path(os.path.abspath(path))
    yield from list(whole.parents)[:4]
    yield from _folders_in(whole)
    beside = {folder.name: folder for folder in _folders_in(whole.parent) if is_suite(SuiteDir(folder))}
    for name in difflib.get_close_matches(whole.name, beside, n=MOST_NAMED, cutoff=0.6):
        yield beside[name]


def _folders_in(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            found = [Path(entry.path) for entry in islice(entries, MOST_LOOKED_AT) if entry.is_dir()]
    except OSError:
        return []
    return sorted(found)


def _shown(path: Path) -> str:
    return one_line(str(path), 1000)
