"""Reads and checks a panel's file: a fixed sample of instances, the watched model, and the limits.

A limit is the greatest permitted drop of a score. Each asking of the panel, for the baseline or for
a look, is a suite with one target in its own folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from eval_factory.config.load import interpolate
from eval_factory.config.model import ExecutorName
from eval_factory.config.model_problems import problems_with
from eval_factory.config.suite import Suite, build_suite
from eval_factory.config.suite_layers import name_of_type
from eval_factory.config.suite_model import FolderName, SuiteSection, TargetEntry
from eval_factory.config.value_types import Number, OneLineText, PathText, PositiveInteger
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.safe_files import expand_home
from eval_factory.core.strict_model import DescribedModel, StrictModel, plain_schema
from eval_factory.monitor.made_elsewhere import GIVE_RESULTS, identities_of
from eval_factory.tasks.asking_forms import ASKING_KEYS
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.suite.planned_cells import PlannedCell, plan_cells

MONITOR_SECTION = "monitor"  # the only top key of a panel's file
ANY_CHANGE = "changed"  # the name in `alarm_on` for any change of a limit's score
IMPORTED = "imported"
"""The type of a task whose questions another program asks; its results are passed with --from."""
_DEFAULT_TARGET_NAME = "model"
PANEL_FILE = "panel.yml"  # the file in the output folder with the panel of the current baseline
Watched = Literal[
    "changed", "refused", "unreadable", "empty", "failed", "length", "latency", "stated"
]
_PATHS = ("benchmark", "data_path", "data_dir", "judge_passport")  # parameters that are paths
# parameters that choose the asked instances; in a panel, `size` and `seed` choose these
_SET_BY_PANEL = ("limit_samples", "sample_seed", "instances", "stop_when")
Drop = Annotated[Number, Field(ge=0)]  # a drop of a score, in the metric's own unit


class GroupLimit(DescribedModel):
    """The limit of a group of instances."""

    max_drop: Drop
    """The greatest permitted drop of the group's score, in the metric's own unit."""


class PanelTask(DescribedModel):
    """One task of the panel."""

    type: OneLineText
    """The task; 'eval-factory ls' lists all tasks. If the type is `imported`, another program asks
    the questions.
    """
    name: FolderName | None = None
    """The task's name in the panel; needed if the panel has a task twice."""
    size: PositiveInteger
    """The number of instances. Each look asks the same instances."""
    max_drop: Drop
    """The greatest permitted drop of the score, in the metric's own unit. For a share, 0.02 is two
    points.
    """
    metric: OneLineText | None = None
    """The score's name; by default the task's main metric."""
    groups: dict[str, dict[str, GroupLimit]] = Field(default_factory=dict)
    """Field of the instances -> value -> the limit of the group with this value."""
    params: dict[str, Any] | None = None
    """Settings for this task alone, as in config.params."""


class BaselineSection(DescribedModel):
    """The section `monitor.baseline`."""

    repeats: Annotated[int, Field(strict=True, ge=2, le=100)] = 5
    """The number of runs of the panel before the first look."""


class ChangeSection(DescribedModel):
    """The rules by which a new version of the model may replace the watched model."""

    description: OneLineText | None = None
    """A description of the planned changes."""
    policy: PathText
    """The file of the gate's policy: a path relative to this file, or an absolute path."""


class PanelSection(DescribedModel):
    """The section `monitor`."""

    output_dir: PathText
    """The folder for the ledger, the baseline and all looks."""
    tasks: Annotated[list[PanelTask], Field(min_length=1)]
    """The tasks that the panel asks."""
    target: dict[str, Any]
    """The watched model, in the form of a suite's target: api_endpoint, or serve."""
    alpha: Annotated[Number, Field(gt=0, lt=0.5)] = 0.05
    """The greatest probability of a false alarm over all looks of the panel."""
    looks: Annotated[int, Field(strict=True, ge=1, le=1000)] = 52
    """The greatest number of looks after a baseline."""
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    """The seed of the sample. Another seed draws other instances."""
    baseline: BaselineSection = Field(default_factory=BaselineSection)
    alarm_on: list[Watched] = []
    """Changes that raise an alarm, as well as a drop beyond a limit. Half of the error rate `alpha`
    is then used for these changes.
    """
    max_look_hours: Annotated[Number, Field(gt=0, le=24 * 7)] = 24
    """The time in hours within which a stopped look can be resumed. After this time, the look
    counts as not made.
    """
    change: ChangeSection | None = None
    params: dict[str, Any] | None = None
    """Settings for every run, as in config.params."""
    judges: list[Any] | None = None
    prices: list[Any] | None = None
    executor: ExecutorName | None = None
    slurm: dict[str, Any] | None = None
    max_processes: PositiveInteger | None = None
    max_attempts: PositiveInteger | None = None
    max_outage_s: Number | None = None
    max_cost: Number | None = None
    """The greatest permitted cost of one asking of the panel, in US dollars."""
    max_requests: PositiveInteger | None = None
    max_tokens_total: PositiveInteger | None = None
    max_wall_s: Number | None = None


_SUITE_KEYS = [
    name
    for name in PanelSection.model_fields
    if name in SuiteSection.model_fields and name != "output_dir"
]
"""The keys that each asking of the panel passes to its suite.

`output_dir` is not among them, because each asking has its own folder.
"""


class PanelFile(StrictModel):
    """A panel's file."""

    monitor: PanelSection


def panel_schema() -> dict[str, Any]:
    """Return the JSON schema of a panel's file."""
    about = {
        "title": "eval-factory: panel of a monitor",
        "description": "A model that is asked the same questions repeatedly (docs/monitor.md).",
    }
    return plain_schema(PanelFile, about)


@dataclass(frozen=True)
class Limit:
    """The greatest permitted drop of the score of a task, or of a group in a task."""

    name: str  # such as `pubmed_qa`, or `pubmed_qa, topic=heart`
    task: str  # the name of the task in the panel, and of its runs' folders
    metric: str | None  # None for the task's main metric
    max_drop: float  # in the metric's own unit
    field: str | None = None  # the field of the group; None if the limit is for the complete task
    value: str | None = None  # the value of the field in the group


@dataclass(frozen=True)
class Panel:
    """A panel, as its file configures it."""

    file: Path
    folder: Path
    section: PanelSection
    # the section `monitor` with the values of flags; unlike `section`, it still has `${NAME}`
    document: Mapping[str, Any]
    env: Mapping[str, str]  # the environment variables
    names: Sequence[str]  # the names of the tasks

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of all tasks and groups."""
        limits = []
        for name, task in zip(self.names, self.section.tasks, strict=True):
            task_limit = Limit(
                name=name, task=name, metric=task.metric, max_drop=float(task.max_drop)
            )
            limits.append(task_limit)
            for field, groups in task.groups.items():
                for value, group in groups.items():
                    group_limit = replace(
                        task_limit,
                        name=f"{name}, {field}={value}",
                        max_drop=float(group.max_drop),
                        field=field,
                        value=value,
                    )
                    limits.append(group_limit)
        return tuple(limits)

    def with_target(self, target: dict[str, Any]) -> Panel:
        """Return the same panel with another model to ask."""
        section = self.section.model_copy(update={"target": target})
        return replace(self, section=section, document={**self.document, "target": target})

    @property
    def portable_document(self) -> dict[str, Any]:
        """The section `monitor` with absolute paths, so that a copy works in any folder."""
        document = {**self.document, "output_dir": str(self.folder)}
        if self.section.params:
            document["params"] = self._with_absolute_paths(document["params"])
        tasks = []
        for task in document["tasks"]:
            if task.get("params"):
                tasks.append({**task, "params": self._with_absolute_paths(task["params"])})
            else:
                tasks.append(task)
        document["tasks"] = tasks
        if self.section.change is not None:
            document["change"] = {**document["change"], "policy": str(self.policy)}
        return document

    @property
    def takes_imported_results(self) -> bool:
        """True if another program asks the panel's questions, and its results are imported."""
        # `load_panel` has checked that all tasks or no tasks have this type.
        return self.section.tasks[0].type == IMPORTED

    @property
    def policy(self) -> Path:
        """The path of the gate's policy. Raises ConfigError if the panel has no plan of change."""
        if self.section.change is None:
            raise ConfigError(
                f"{self.file}: has no `{MONITOR_SECTION}.change`, "
                "which names the gate's policy for a new version"
            )
        return _absolute_path(self.file, self.section.change.policy)

    @property
    def target_name(self) -> str:
        """The name of the target, which is the name of its folder."""
        return str(self.section.target.get("name") or _DEFAULT_TARGET_NAME)

    @property
    def model(self) -> str:
        """The id of the watched model; "None" for a target that names no model."""
        return str((self.section.target.get("api_endpoint") or {}).get("model_id"))

    def suite(self, folder: Path, targets: Sequence[Mapping[str, Any]] = ()) -> Suite:
        """Return the suite of one asking of the panel.

        Args:
            folder: the output folder of the suite.
            targets: the targets to ask; by default the target of the panel.

        Raises:
            ConfigError: The panel's file has mistakes, or another program asks the panel.
        """
        if self.takes_imported_results:
            raise ConfigError(f"{self.file}: {GIVE_RESULTS}")
        section: dict[str, Any] = {
            key: self.document[key] for key in _SUITE_KEYS if key in self.document
        }
        if self.section.params:
            section["params"] = self._with_absolute_paths(self.document["params"])
        section["output_dir"] = str(folder.absolute())
        section["targets"] = list(targets) or [
            {"name": self.target_name, **self.document["target"]}
        ]
        section["evaluations"] = []
        for name, task, entry in zip(
            self.names, self.section.tasks, self.document["tasks"], strict=True
        ):
            params = self._with_absolute_paths(entry.get("params") or {})
            # `_with_absolute_paths` always returns the key `extra`.
            params |= {
                "limit_samples": task.size,
                "extra": {**params["extra"], "sample_seed": self.section.seed},
            }
            section["evaluations"].append({"type": task.type, "name": name, "params": params})
        try:
            return build_suite(path=None, document={"suite": section}, env=self.env)
        except ConfigError as error:
            problems = [f"{self.file}: {_with_panel_keys(text)}" for text in error.problems]
            raise ConfigError(problems) from None

    def _with_absolute_paths(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters with absolute paths, and always with the key `extra`.

        Relative paths start at the folder of the panel's file, not at the current folder: a cron
        job may be started in any folder.
        """
        extra = dict(params.get("extra") or {})
        for name in _PATHS:
            # A path with `${NAME}` is not changed: it may become an absolute path.
            if isinstance(extra.get(name), str) and "${" not in extra[name]:
                extra[name] = str(_absolute_path(self.file, extra[name]))
        return {**params, "extra": extra}

    def planned_runs(self, folder: Path) -> tuple[PlannedCell, ...]:
        """Return the planned runs of one asking.

        Raises:
            ConfigError: The panel's file has mistakes.
            PrerequisiteError: A run needs data or packages that are missing.
        """
        try:
            return tuple(plan_cells(self.suite(folder), self.env))
        except ConfigError as error:
            raise ConfigError([_with_panel_keys(text) for text in error.problems]) from None

    def identities(self, folder: Path) -> dict[str, str]:
        """Return the identity of each task's run in an asking.

        Args:
            folder: the folder of the asking. If another program asks the panel, the imported
                results must be in this folder.
        """
        if self.takes_imported_results:
            target_folder = folder / self.target_name
            return identities_of({task: target_folder / task for task in self.names})
        identities = {}
        for run in self.planned_runs(folder):
            task = run.cell.evaluation  # `suite` gives each evaluation the name of its task
            identities[task] = run.plan.identity
        return identities

    def fixed_settings(self, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings that are fixed with a baseline.

        If a fixed setting changes, the panel needs a new baseline. `limits` is a dict from the name
        of a limit to `[metric, max_drop]`, and `runs` is `identities`: a dict from a task to the
        identity of its run.
        """
        section = self.section
        limits = {}
        for limit in self.limits:
            limits[limit.name] = [limit.metric, limit.max_drop]
        return {
            "alpha": float(section.alpha),
            "looks": section.looks,
            "repeats": section.baseline.repeats,
            "alarm_on": sorted(section.alarm_on),
            "limits": limits,
            "runs": dict(identities),
        }


def digest_of(fixed: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the fixed settings."""
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def load_panel(path: Path, env: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Panel:
    """Read and check a panel's file.

    Args:
        path: The file.
        env: The environment variables, for `${NAME}` in the file.
        flags: Keys of `monitor` with values that replace the values in the file.

    Raises:
        ConfigError: The file has mistakes; the message lists all of them.
    """
    document = load_mapping(path, needs="`monitor:` with `output_dir`, `tasks` and `target`")
    problems: list[str] = []
    for key in document:
        if key != MONITOR_SECTION:
            problems.append(
                f"unknown key {key}; a panel has all its keys under `{MONITOR_SECTION}:`"
            )
    written = document.get(MONITOR_SECTION)
    if not isinstance(written, dict):
        problems.append(f"`{MONITOR_SECTION}:` is missing, or has no keys")
        raise _config_error(path, problems)
    configured = {}
    for key, value in {**written, **(flags or {})}.items():
        if value is not None:
            configured[key] = value
    interpolated = interpolate(configured, env, MONITOR_SECTION, problems)
    problems += problems_with(interpolated, MONITOR_SECTION, PanelSection)
    if problems:
        raise _config_error(path, problems)
    section = PanelSection.model_validate(interpolated)
    framework = load_framework()
    names = [task.name or name_of_type(task.type, framework) for task in section.tasks]
    problems = list(_section_problems(section, names))
    if problems:
        raise _config_error(path, problems)
    try:
        folder = _absolute_path(path, section.output_dir)
    except ValueError as error:  # The home folder is unknown, or the path is too long.
        raise ConfigError(f"{path}: {MONITOR_SECTION}.output_dir: {error}") from None
    return Panel(
        file=path, folder=folder, section=section, document=configured, env=env, names=names
    )


def _config_error(path: Path, problems: Sequence[str]) -> ConfigError:
    """Return the error about the problems of a panel's file."""
    return ConfigError([f"{path}: {problem}" for problem in problems])


def _section_problems(section: PanelSection, names: Sequence[str]) -> Iterator[str]:
    """Yield the mistakes that concern several keys of the section, and those of the target."""
    # The names are folders: some file systems do not distinguish upper and lower case.
    lowered = [name.lower() for name in names]
    for number, name in enumerate(lowered):
        if name in lowered[:number]:  # an earlier task has this name
            yield (
                f"{MONITOR_SECTION}.tasks[{number}]: there are two tasks with the name {name!r}; "
                "set a different `name` for each"
            )
    # path of the keys in the file -> its `params`
    params_by_path = {MONITOR_SECTION: section.params}
    for number, task in enumerate(section.tasks):
        params_by_path[f"{MONITOR_SECTION}.tasks[{number}]"] = task.params
    for path, params in params_by_path.items():
        extra = (params or {}).get("extra") or {}
        for key in _SET_BY_PANEL:
            if key in (params or {}) or key in extra:
                yield f"{path}.params: the panel's `size` and `seed` set {key}; leave it out"
        for key in ASKING_KEYS:
            if extra.get(key):
                yield (
                    f"{path}.params.extra: {key} asks questions again within a run, but a panel "
                    "asks its questions again at each look; leave it out"
                )
    are_imported = {task.type == IMPORTED for task in section.tasks}
    if len(are_imported) > 1:
        yield (
            f"{MONITOR_SECTION}.tasks: either all tasks or no tasks must have the type {IMPORTED}; "
            "make two panels"
        )
    target = {"name": _DEFAULT_TARGET_NAME, **section.target}
    yield from problems_with(target, f"{MONITOR_SECTION}.target", TargetEntry)


def _with_panel_keys(problem: str) -> str:
    """Replace the suite's keys in a message by the keys of a panel's file."""
    # Two keys have other names in a panel. They begin with `suite.` too, so they come first.
    for suite_key, panel_key in (
        ("suite.evaluations", f"{MONITOR_SECTION}.tasks"),
        ("suite.targets[0]", f"{MONITOR_SECTION}.target"),
    ):
        problem = problem.replace(suite_key, panel_key)
    return problem.replace("suite.", f"{MONITOR_SECTION}.")


def _absolute_path(file: Path, path: str) -> Path:
    """Return the absolute path of `path`; a relative path starts at the folder of `file`."""
    return Path(os.path.abspath(file.absolute().parent / expand_home(path)))
