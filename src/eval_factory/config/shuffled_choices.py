"""Which tasks have choices whose order can be changed (`extra.shuffle_choices`), and why others have none."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.config.model import Extra
from eval_factory.tasks.framework import Task
from eval_factory.tasks.run_specs import load_index

_WHERE = "config.params.extra.shuffle_choices"
_LEAVE_OUT = "leave it out"
_JOINT = "multiple_choice_joint"
BY_PLACE = "by place"


def cannot_be_shuffled(task: Task, extra: Extra) -> Iterator[str]:
    """What is wrong with asking for several orders of the choices, if it was asked for."""
    if extra.shuffle_choices is None:
        return
    choices, arguments = choices_of(task), task.helm.arguments
    if choices is None:
        yield f"{_WHERE}: {task.name} has no questions with lettered options ({_kind(task)}); {_LEAVE_OUT}"
    elif choices != BY_PLACE:
        yield (
            f"{_WHERE}: the instructions of {task.name} say what each letter stands for (A for yes, B for no), so its"
            f" options have one order; {_LEAVE_OUT}"
        )
    elif arguments.get("method", _JOINT) != _JOINT:
        yield f"{_WHERE}: method={arguments['method']} shows no options side by side; {_LEAVE_OUT}, or the method"
    elif "data_augmentation" in arguments:
        yield f"{_WHERE}: excludes data_augmentation, which changes the questions in another way; {_LEAVE_OUT}"


def choices_of(task: Task) -> str | None:
    """What the letters of a task's options say; None where it has no such."""
    if task.helm.choices is not None:
        return task.helm.choices
    spec = load_index().run_specs.get(task.helm.run_spec)
    return None if spec is None else spec.choices


def _kind(task: Task) -> str:
    if task.helm.rubric:
        return "its answers are judged by a rubric"
    if task.helm.judges or task.helm.prescribed_judges:
        return "its answers are judged by a jury"
    return "its answers are free text, or the prompt holds the options"
