"""Finds the user's own files that a run reads, and describes what is wrong with their form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval_factory.config.model import EXTRA_PATH
from eval_factory.config.resolved import Evaluation
from eval_factory.tasks.framework import DATA_PATH_PARAMETER, FileLayout, Framework, Task
from eval_factory.tasks.run_entry import CONFIG_TYPE, PATH_PARAMETERS


@dataclass(frozen=True)
class OwnData:
    """The user's files that a run reads.

    Attributes:
        key_path: the key of the run config that names the files.
        path: a file, or a folder with the files.
        layout: the required form of each file.
        values: a dict from the name of a parameter to its value; the names of the files may contain
            these values.
    """

    key_path: str
    path: Path
    layout: tuple[FileLayout, ...]
    values: Mapping[str, str | None]


def own_data_of(evaluation: Evaluation) -> OwnData | None:
    """Return the user's files that the run reads; None if the task reads none."""
    task = evaluation.task
    extra = evaluation.extra
    if task.helm.is_run_entry:
        return _data_of_run_entry(task, evaluation.framework)
    rule = task.helm.parameters.get(DATA_PATH_PARAMETER)
    if rule is None or extra.data_path is None:
        return None
    values = {"subject": extra.subject, "condition": extra.condition}
    return OwnData(
        f"{EXTRA_PATH}.{DATA_PATH_PARAMETER}", Path(extra.data_path), rule.layout, values
    )


def _data_of_run_entry(task: Task, framework: Framework) -> OwnData | None:
    """Return the files that an argument of the run entry names; None if no argument names any."""
    for name, path in task.helm.arguments.items():
        if name in PATH_PARAMETERS:
            layout = _layout_of_run_spec(task.helm.run_spec, name, framework)
            return OwnData(f"{CONFIG_TYPE}: {name}", Path(path), layout, task.helm.arguments)
    return None


def _layout_of_run_spec(
    run_spec: str | None, name: str, framework: Framework
) -> tuple[FileLayout, ...]:
    """Return the layout of the files that the parameter `name` of a run spec names.

    The layout is that of a task of framework.yml with this run spec. If there is no such task, any
    layout is accepted.
    """
    for candidate in framework.evaluations:
        if candidate.helm.run_spec == run_spec and name in candidate.helm.parameters:
            return candidate.helm.parameters[name].layout
    return (FileLayout(),)


def own_data_faults(evaluation: Evaluation) -> list[str]:
    """Return the lines of a message about the user's files; empty if the files have no faults.

    The message names the files that are missing or have another form, and then describes the
    required form. The first line begins with the key of the run config.
    """
    own_data = own_data_of(evaluation)
    # An empty layout accepts every file.
    if own_data is None or all(entry == FileLayout() for entry in own_data.layout):
        return []
    # Imported late, because few runs read the user's own data.
    from eval_factory.tasks.own_data import described_layout, problems_of_data

    data_problems = problems_of_data(own_data.layout, own_data.path, own_data.values)
    if not data_problems:
        return []
    first, *others = data_problems
    lines = [f"{own_data.key_path}: {first}", *others, f"{evaluation.task.name} needs:"]
    for line in described_layout(own_data.layout, own_data.values):
        lines.append(f"  {line}")
    return lines
