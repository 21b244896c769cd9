"""A finished run that stands elsewhere, taken over: copied whole into a cell's place, its source left as it is."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir, RunSuiteDir, SuiteDir
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.resume import read_state, versions
from eval_factory.workflows.suite.run_in_place import move_into

NEVER_COPIED = ("*.part", "*.tmp")


def finished_below(folders: Iterable[Path]) -> dict[str, tuple[Path, ...]]:
    """Identity -> the output folders of complete runs of this version, found in these folders and below them.

    Raises:
        ConfigError: one of them is not there.
    """
    found: dict[str, list[Path]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--reuse: there is no folder {folder}")
        for root in _output_folders(folder):
            state = read_state(RunDir(root))
            if state is not None and state.complete and state.versions == versions():
                found.setdefault(state.identity, []).append(root)
    return {identity: tuple(roots) for identity, roots in found.items()}


def _output_folders(folder: Path) -> Iterator[Path]:
    for parent, names, files in os.walk(folder):  # which follows no links
        if RunDir(Path(parent)).run_state.name in files:
            names.clear()  # nothing in an output folder is another
            yield Path(parent)
        names.sort()


def source_for(plan: Plan, known: Mapping[str, tuple[Path, ...]]) -> Path | None:
    """An output folder, and not the cell's own, that holds what this plan would give."""
    own = plan.rundir.root
    return next((root for root in known.get(plan.identity, ()) if not _is_same(root, own)), None)


def take_over(source: Path, plan: Plan, suite: SuiteDir) -> bool:
    """Copy the folder into the cell's place. Whether it could be: somebody may be working in one of the two.

    What stood in the cell's place is kept under the suite's own files.

    Raises:
        PrerequisiteError: it cannot be read, or written.
    """
    target = plan.rundir.root
    copy = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with RunDir(source).locked():
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(RunDir(source), copy)
        put_in_place(copy, target, suite)
    except BusyError:
        return False
    except (OSError, shutil.Error) as error:
        raise PrerequisiteError(f"--reuse: {source} cannot be copied to {target}: {error}") from error
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return True


def _copy(source: RunDir, copy: Path) -> None:
    """Byte for byte, but for the lock. cache.db with its write-ahead log: a killed run has not put the two together.

    SQLite's third file is an index of the second, and is made anew.
    """
    own = (source.lock_file.name, source.lock_holder.name, source.answers[2].name)
    shutil.copytree(source.root, copy, symlinks=True, ignore=shutil.ignore_patterns(*own, *NEVER_COPIED))


def put_in_place(copy: Path, target: Path, suite: SuiteDir) -> None:
    """Make the folder `copy` the cell's; what stood there is kept under the suite's own files.

    Raises:
        BusyError: somebody works there.
    """
    if isinstance(suite, RunSuiteDir):
        move_into(copy, target, suite)
        return
    if target.exists():
        with RunDir(target).locked():
            aside = suite.state / "set-aside" / target.parent.name
            aside.mkdir(parents=True, exist_ok=True)
            target.rename(aside / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}")
    copy.rename(target)


def _is_same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)
