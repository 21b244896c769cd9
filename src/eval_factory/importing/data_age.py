"""Finds the month in which the data of an imported result were published.

The month is known if the user states the month, or if one of eval-factory's own tasks reads the
same data set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from eval_factory.config.value_types import Month
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import About, Task, load_framework

UNKNOWN_AGE = "age of the data"
"""The name of the fact in a run's list of unknown facts."""
HELM_PREFIX = "helm:"
"""The prefix of a HELM run spec's name, which distinguishes the name from the id of a data set."""
# the beginnings of the addresses of data sets, which the id `owner/name` follows
_ADDRESSES = ("https://huggingface.co/datasets/", "https://github.com/")
_ID_IN_SOURCE = re.compile(r"(?:Hugging Face|GitHub) ([\w.-]+/[\w.-]+)")
"""Matches the id of a data set in the text about a task's source, such as `GitHub owner/name`."""


@dataclass(frozen=True)
class DataAge:
    """The months in which the data were published and in which the model's training data end."""

    published: str | None  # `YYYY-MM`; None if not known
    answers_public: bool | None  # True if the right answers are public too; None if not known
    training_cutoff: str | None  # `YYYY-MM`; None if the user did not state the month


def age_of_data(
    dataset: str | None, published: str | None = None, training_cutoff: str | None = None
) -> DataAge:
    """Return the age of a data set. A month that the user states has priority over known facts.

    Args:
        dataset: the data set that the source states (`ForeignRun.dataset`).
        published: the month since which questions and answers are public (`YYYY-MM`); None if the
            user did not state the month.
        training_cutoff: the month in which the model's training data end (`YYYY-MM`); None if the
            user did not state the month.
    """
    if published is not None:
        return DataAge(published, answers_public=True, training_cutoff=training_cutoff)
    about = None if dataset is None else facts_of_data_set(dataset)
    if about is None:
        return DataAge(published=None, answers_public=None, training_cutoff=training_cutoff)
    return DataAge(about.published, about.answers_public, training_cutoff)


def facts_of_data_set(dataset: str) -> About | None:
    """Return the facts about the first task that reads this data set; None if no task reads it.

    `dataset` has one of the forms of `ForeignRun.dataset`.
    """
    name = dataset
    for address in _ADDRESSES:
        name = name.removeprefix(address)
    for task in load_framework().evaluations:
        if name.casefold() in _names_of_data(task):
            return task.about
    return None


def _names_of_data(task: Task) -> set[str]:
    """Return the ids of a task's data set and of its copies, and the name of its run spec."""
    names = {
        f"{HELM_PREFIX}{task.helm.run_spec}",
        *_ID_IN_SOURCE.findall(task.about.source),
        *task.about.copies,
    }
    return {name.casefold() for name in names}


def require_month(option: str, value: str | None) -> None:
    """Check that the value of an option is a month; None is allowed.

    Raises:
        ConfigError: the value does not have the form `YYYY-MM`.
    """
    if value is None:
        return
    try:
        TypeAdapter(Month).validate_python(value)
    except ValidationError:
        raise ConfigError(f"{option}: must be a month such as 2024-06") from None
