"""Finds results that already exist: in a cell's own folder, or in folders to reuse.

Also adds up the requests and costs of earlier invocations, which the cells' folders record.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.config.value_types import urls_in
from eval_factory.core.budget import Spending, sum_spendings
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import YamlError, parse_own_text
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.plan.prices import prices_of
from eval_factory.plan.run_plan import RUNTIME_SETTINGS, Plan, leaves_of
from eval_factory.report.reader import load_result
from eval_factory.scoring.journal import read_roles
from eval_factory.scoring.reportable import why_not_reportable
from eval_factory.workflows.resume import (
    DataRead,
    is_of_current_version,
    read_last_run_state,
    state_of_finished_run,
)
from eval_factory.workflows.suite.planned_cells import PlannedCell

READ_WHEN_COLLECTED = frozenset(
    f"config.params.extra.{name}"
    for name in (
        "data_dir",
        "offline",
        "allow_code_execution",
        "on_failure",
        "min_coverage",
        "max_judge_failures",
        "max_model_mismatch",
        "max_unreadable",
        "prices",
        "judge_passport",
    )
) | {"target.api_endpoint.training_cutoff"}
"""Settings that change the content of a result, but do not change a request.

After its last request, a run collects its result from HELM's files and reads these settings.
"""
SETTINGS_WITHOUT_EFFECT = RUNTIME_SETTINGS - READ_WHEN_COLLECTED
"""Settings that change how a run proceeds, but neither its requests nor its result."""


@dataclass(frozen=True)
class FinishedResult:
    """The complete result in a cell's folder, because of which the cell need not run."""

    why_not_reportable: str | None  # None if the result is reportable


def finished_result(plan: Plan) -> FinishedResult | None:
    """Return the finished result in the cell's folder; None if the cell has to run.

    The cell has to run in three cases. The folder has no complete result of this configuration. The
    data that the cell reads may have changed. A setting that changes the content of a result has
    another value.
    """
    # `DataRead()` has the facts of a run that reads neither a data bundle nor the user's files.
    if reads_local_data(plan) or state_of_finished_run(plan, DataRead()) is None:
        return None
    try:
        stored = load_result(plan.rundir.root)
    except PrerequisiteError:
        return None
    old_settings = _settings_text({"config": stored.config, "target": stored.target})
    if old_settings != _settings_text(plan.evaluation.as_dict()):
        return None
    minimum = plan.evaluation.extra.min_coverage
    return FinishedResult(why_not_reportable(stored.result, minimum))


def reads_local_data(plan: Plan) -> bool:
    """Return True if the run reads local data, which may have changed since the last run."""
    extra = plan.evaluation.extra
    return bool(
        extra.data_path
        or extra.benchmark
        or extra.data_dir
        or extra.offline
        or extra.judge_passport
    )


def is_complete_run(plan: Plan) -> bool:
    """Return True if the cell's folder holds a complete run of this configuration.

    If the data are unchanged, a process of this cell then sends no request.
    """
    state = read_last_run_state(plan.rundir)
    return state is not None and state.complete and state.identity == plan.identity


def has_partial_result(rundir: RunDir, identity: str) -> bool:
    """Return True if the folder holds a partial result of the run with this identity."""
    state = read_last_run_state(rundir)
    is_partial = state is not None and not state.complete and state.identity == identity
    return is_partial and rundir.evaluation_config.is_file()


def has_usable_partial_result(plan: Plan) -> bool:
    """Return True if the folder has a partial result that this cell may use without a new run.

    A cell that reads a data file of the user may not use the result, for the file may have changed.
    """
    data_path = plan.evaluation.extra.data_path
    return data_path is None and has_partial_result(plan.rundir, plan.identity)


def _settings_text(config: Mapping[str, Any]) -> str:
    """Return the settings that a result depends on, as text that can be compared.

    `config`: a document with the sections `config` and `target`.
    """
    settings = settings_of_result({name: config[name] for name in ("config", "target")})
    return json.dumps(settings, sort_keys=True, default=str)


def settings_of_result(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every setting that a result depends on, by the setting's path.

    Settings whose value is null are left out, as if they were not stated.
    """
    settings: dict[str, Any] = {}
    for path, value in leaves_of(config):
        if path not in SETTINGS_WITHOUT_EFFECT and value is not None:
            settings[path] = value
    return settings


def find_finished_runs(folders: Iterable[Path]) -> dict[str, tuple[Path, ...]]:
    """Find the output folders of complete runs of this version in and below these folders.

    Returns:
        A dict from the identity of a run to its output folders.

    Raises:
        ConfigError: one of `folders` does not exist.
    """
    folders_of_identity: dict[str, tuple[Path, ...]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--reuse: there is no folder {folder}")
        for parent, subfolders, files in os.walk(folder):  # os.walk follows no links to folders
            rundir = RunDir(Path(parent))
            if rundir.run_state.name in files:
                subfolders.clear()  # an output folder contains no other output folder
                state = read_last_run_state(rundir)
                if state is not None and state.complete and is_of_current_version(state):
                    folders_of_identity[state.identity] = (
                        *folders_of_identity.get(state.identity, ()),
                        rundir.root,
                    )
            # os.walk visits the subfolders in this order; file systems list them in any order
            subfolders.sort()
    return folders_of_identity


def find_run_to_copy(
    plan: Plan, folders_of_identity: Mapping[str, tuple[Path, ...]]
) -> Path | None:
    """Return an output folder, other than the cell's own, with a complete run of this plan.

    Returns None if no other folder contains a complete run of the plan.
    """
    cell_folder = plan.rundir.root
    for folder in folders_of_identity.get(plan.identity, ()):
        is_own_folder = cell_folder.exists() and folder.samefile(cell_folder)
        if not is_own_folder:
            return folder
    return None


def copy_finished_run(source: Path, target: Path, suite: SuiteDir) -> bool:
    """Copy the output folder `source` to `target`, the cell's path.

    A folder that already exists at `target` is archived under the suite's own files.

    Returns:
        False if another process works in one of the two folders; nothing is then copied.

    Raises:
        PrerequisiteError: `source` cannot be read, or the copy cannot be written.
    """
    source_run = RunDir(source)
    copy = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    # cache.db is copied together with its write-ahead log, because a killed run has not merged the
    # two files. SQLite creates the third file, an index of the log, again.
    _database, _log, index_of_log, *_ = source_run.answer_files
    not_copied = (
        source_run.lock_file.name,
        source_run.lock_holder.name,
        index_of_log.name,
        "*.part",
        "*.tmp",
    )
    try:
        with source_run.locked():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(*not_copied))
        if target.exists():
            with RunDir(target).locked():
                archive = suite.state / "set-aside" / target.parent.name
                archive.mkdir(parents=True, exist_ok=True)
                moment = time.strftime("%Y%m%d-%H%M%S")
                target.rename(archive / f"{target.name}-{moment}-{uuid.uuid4().hex[:4]}")
        copy.rename(target)
    except BusyError:
        return False
    except (OSError, shutil.Error) as error:
        raise PrerequisiteError(
            f"--reuse: {source} cannot be copied to {target}: {error}"
        ) from error
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return True


def total_spending(cells: Iterable[PlannedCell], say: Callable[[str], None]) -> Spending:
    """Return the total spending of these cells in all invocations.

    `say` gets a warning about each cell whose spending cannot be read.
    """
    spent = []
    for planned in cells:
        cache_db = planned.plan.rundir.cache_db
        try:
            spent.append(spent_so_far(cache_db, prices_of(planned.plan).known))
        except sqlite3.Error as error:  # the next run of the cell archives the damaged file
            say(
                f"warning: {cache_db} is damaged ({error}): "
                "the suite's budget does not count the spending in this file"
            )
    return sum_spendings(spent)


def groups_that_answered(cells: Iterable[PlannedCell]) -> frozenset[str]:
    """Return the limit groups in which the model of at least one cell has answered a request.

    Answers in earlier invocations count only if the cell's last run asked one of the URLs that the
    cell asks now: a new URL may never have answered.
    """
    answered = set()
    for planned in cells:
        # a cell does not count if its files are missing or damaged
        with suppress(sqlite3.Error, OSError, YamlError, UnicodeDecodeError, KeyError, TypeError):
            answered_roles = read_roles(planned.plan.rundir.cache_db)
            if MODEL_ROLE in answered_roles:
                run_config = parse_own_text(
                    planned.plan.rundir.run_config.read_text(encoding="utf-8")
                )
                urls_of_last_run = set(urls_in(run_config["target"]["api_endpoint"]["url"]))
                if not urls_of_last_run.isdisjoint(planned.plan.model.urls):
                    answered.add(planned.group)
    return frozenset(answered)
