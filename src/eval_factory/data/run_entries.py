"""What a task reads; of a run entry of HELM's what our task of the same data does, and files of its perturbations."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.core.errors import ConfigError
from eval_factory.data.sources import Sources, TaskSources
from eval_factory.tasks.framework import Framework, Task, load_framework
from eval_factory.tasks.run_entry import is_run_entry, task_of_run_entry
from eval_factory.tasks.upstreams import UPSTREAMS

AUGMENTATION = "data_augmentation"


def known_as(this: Task, framework: Framework, sources: Sources) -> str | None:
    """The name by which the table of sources knows what a task reads.

    A run entry of HELM's goes by the name of our task that reads the same; None where there is none.
    """
    if not this.helm.any_run_spec:
        return this.name if this.name in sources.tasks else None
    ours = [task for task in framework.evaluations if task.name in sources.tasks]
    same = [task for task in ours if _reads_the_same(task, this)]
    same.sort(key=lambda task: len(task.helm.fixed or {}), reverse=True)  # med_dialog_icliniq before med_dialog
    return same[0].name if same else None


def _reads_the_same(task: Task, entry: Task) -> bool:
    if entry.helm.run_spec != task.helm.run_spec and entry.helm.scenario != task.helm.scenario:
        return False
    for name, rule in task.helm.parameters.items():
        value = entry.helm.arguments.get(name)
        if rule.fixed is not None and value != rule.fixed:
            return False
        if rule.allowed and value is not None and value not in rule.allowed:
            return False
    return True


def sources_of(this: Task, framework: Framework, values: Mapping[str, str | None], sources: Sources) -> TaskSources:
    """What a task reads with these values of its parameters; of a run entry that the table does not know, only what
    its perturbations read."""
    name = known_as(this, framework, sources)
    task = TaskSources(scenario=this.helm.scenario) if name is None else sources.tasks[name]
    made = tuple(key for key, one in sources.perturbations.items() if values.get(AUGMENTATION) in one.augmentations)
    return task.with_values(values).model_copy(update={"perturbations": made})


def asked(text: str, sources: Sources) -> TaskSources | None:
    """The sources of `TASK`, `TASK:name=value` or a run entry; None where the table does not know it.

    Raises:
        ConfigError: it is no run entry of HELM's, nothing is known of what it reads, or that cannot be pulled.
    """
    framework = load_framework()
    if not is_run_entry(text, framework):
        return sources.asked(text)
    problems: list[str] = []
    found = (task_of_run_entry(text, framework, problems, upstream) for upstream in UPSTREAMS.values())
    this = next((task for task in found if task is not None), None)
    if this is None:
        raise ConfigError(problems[:1])
    task = sources_of(this, framework, this.helm.arguments, sources)
    for perturbation in task.perturbations:
        if (reason := sources.perturbations[perturbation].reason) is not None:
            raise ConfigError(f"{text}: cannot be pulled: {reason}; pull it without {AUGMENTATION}")
    if known_as(this, framework, sources) is None and not task.perturbations:
        raise ConfigError(f"{text}: 'eval-factory data pull' does not know what it reads")
    return task
