"""The contents of the cells' folders: results, also of other folders, and what was asked and
answered.
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
from pathlib import Path
from typing import Any

from eval_factory.config.model import urls_in
from eval_factory.core.budget import Spending, total
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.plan.prices import prices_of
from eval_factory.plan.run_plan import RUNTIME_ONLY, Plan, leaves_of
from eval_factory.report.reader import load_result
from eval_factory.scoring.journal import read_roles
from eval_factory.scoring.reportable import why_not_reportable
from eval_factory.workflows.resume import DataRead, finished_run, is_of_current_version, read_state
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
"""Settings that change nothing that is asked, but what stands in a result."""
# settings that change how a run goes, and no number in its result
OF_NO_RESULT = RUNTIME_ONLY - READ_WHEN_COLLECTED


def finished(plan: Plan) -> str | None:
    """Return why the complete result of this very cell is not reportable; empty if it is. None
    where a run has to begin, or to look: at data that may have changed, or with other settings of a
    result.
    """
    if reads_own_data(plan) or finished_run(plan, DataRead()) is None:
        return None
    try:
        stored = load_result(plan.rundir.root)
    except PrerequisiteError:
        return None
    if _settings({"config": stored.config, "target": stored.target}) != _settings(
        plan.evaluation.as_dict()
    ):
        return None
    minimum = plan.evaluation.extra.min_coverage
    return why_not_reportable(stored.result, minimum) or ""


def reads_own_data(plan: Plan) -> bool:
    """Return True if the same configuration may read other data today."""
    extra = plan.evaluation.extra
    return bool(
        extra.data_path
        or extra.benchmark
        or extra.data_dir
        or extra.offline
        or extra.judge_passport
    )


def is_complete_run(plan: Plan) -> bool:
    """Return True if a complete run of this configuration stands there: with the same data its
    process asks nothing.
    """
    state = read_state(plan.rundir)
    return state is not None and state.complete and state.identity == plan.identity


def has_partial_result(rundir: RunDir, identity: str) -> bool:
    """Return True if a result of this very run stands there, with gaps."""
    state = read_state(rundir)
    same = state is not None and not state.complete and state.identity == identity
    return same and rundir.evaluation_config.is_file()


def keeps_partial_result(plan: Plan) -> bool:
    """Return True if such a result is this cell's though nothing more is asked: data of the user's
    own may have changed.
    """
    data_path = plan.evaluation.extra.data_path
    return data_path is None and has_partial_result(plan.rundir, plan.identity)


def _settings(config: Mapping[str, Any]) -> str:
    settings = settings_of_result({name: config[name] for name in ("config", "target")})
    return json.dumps(settings, sort_keys=True, default=str)


def settings_of_result(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every setting that a result depends on, by its path; a key whose value is
    null counts as one that nobody gave.
    """
    settings: dict[str, Any] = {}
    for path, value in leaves_of(config):
        if path not in OF_NO_RESULT and value is not None:
            settings[path] = value
    return settings


def finished_below(folders: Iterable[Path]) -> dict[str, tuple[Path, ...]]:
    """Return the output folders of complete runs of this version, found in these folders and below
    them, by the identity of the run. Raises ConfigError: one of them is not there.
    """
    folders_of_identity: dict[str, tuple[Path, ...]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--reuse: there is no folder {folder}")
        for parent, names, files in os.walk(folder):  # which follows no links
            root = RunDir(Path(parent))
            if root.run_state.name in files:
                names.clear()  # nothing in an output folder is another
                state = read_state(root)
                if state is not None and state.complete and is_of_current_version(state):
                    folders_of_identity[state.identity] = (
                        *folders_of_identity.get(state.identity, ()),
                        root.root,
                    )
            names.sort()
    return folders_of_identity


def source_for(plan: Plan, folders_of_identity: Mapping[str, tuple[Path, ...]]) -> Path | None:
    """Return an output folder, and not the cell's own, that holds what this plan would give."""
    cell_folder = plan.rundir.root
    other_folders = (
        root
        for root in folders_of_identity.get(plan.identity, ())
        if not (cell_folder.exists() and root.samefile(cell_folder))
    )
    return next(other_folders, None)


def take_over(source: Path, target: Path, suite: SuiteDir) -> bool:
    """Copy the folder to `target`, the cell's path; what stood there is archived under the suite's
    own files. False: somebody is working in one of the two. Raises PrerequisiteError: it cannot be
    read, or written.
    """
    there = RunDir(source)
    copy = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    # byte for byte, cache.db with its write-ahead log: a killed run has not put the two together;
    # SQLite's third file is an index of the second, and is made again
    not_copied = (
        there.lock_file.name,
        there.lock_holder.name,
        there.answers[2].name,
        "*.part",
        "*.tmp",
    )
    try:
        with there.locked():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(*not_copied))
        if target.exists():
            with RunDir(target).locked():
                aside = suite.state / "set-aside" / target.parent.name
                aside.mkdir(parents=True, exist_ok=True)
                target.rename(
                    aside / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
                )
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


def spent_before(cells: Iterable[PlannedCell], say: Callable[[str], None]) -> Spending:
    """Return what these cells have asked in all invocations; `say` learns what nobody can count any
    more.
    """
    spent = []
    for planned in cells:
        cache_db = planned.plan.rundir.cache_db
        try:
            spent.append(spent_so_far(cache_db, prices_of(planned.plan).known))
        except sqlite3.Error as error:  # the cell's run puts it aside
            say(
                f"warning: {cache_db} is damaged ({error}): "
                "what it counted is not in the suite's budget"
            )
    return total(spent)


def groups_that_answered(cells: Iterable[PlannedCell]) -> frozenset[str]:
    """Return the endpoints that answered some cell's model, in this invocation or an earlier one.

    From where it is asked now: another URL may never have been there.
    """
    answered = set()
    for planned in cells:
        with suppress(sqlite3.Error, OSError, YamlError, UnicodeDecodeError, KeyError, TypeError):
            if MODEL_ROLE in read_roles(planned.plan.rundir.cache_db):
                last = parse_own(planned.plan.rundir.run_config.read_text(encoding="utf-8"))
                if not set(urls_in(last["target"]["api_endpoint"]["url"])).isdisjoint(
                    planned.plan.model.urls
                ):
                    answered.add(planned.group)
    return frozenset(answered)
