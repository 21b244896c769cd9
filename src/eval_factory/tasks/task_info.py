"""Collects the facts about a task in records for other programs; `ls --json` prints the records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal

from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import Framework, ScenarioParameter, Task, load_framework
from eval_factory.tasks.run_specs import languages_executed

Scoring = Literal["rule", "jury", "either"]
_FIELDS_OF_ABOUT = (
    "access",
    "source",
    "licence",
    "revision",
    "instances",
    "size_mb",
    "published",
    "answers_public",
    "label_noise",
    "tags",
    "tried",
    "notes",
)
"""The fields that `TaskInfo` takes unchanged from the task's `about`."""


@dataclass(frozen=True)
class ParameterInfo:
    """A parameter of a task: a key of `config.params.extra`."""

    required: bool
    fixed: str | None  # the fixed value, if the user cannot choose the value
    allowed: tuple[str, ...]  # all allowed values; empty if any value is allowed
    path: bool  # True if the value is the path of a file or folder
    other_name: str | None  # another name of the parameter, if there is one
    about: str | None
    # the files that HELM needs at the path: one record for each file
    layout: tuple[Mapping[str, Any], ...]
    default: Any  # the value if the user sets none


@dataclass(frozen=True)
class TaskInfo:
    """The facts about one benchmark that `config.type` may name."""

    name: str
    type: str  # the name in the form `helm.NAME`, which `config.type` accepts too
    description: str
    endpoint_types: tuple[str, ...]  # the allowed types: `chat`, `completions`, `images`
    judges: tuple[str, ...]  # the default jury; empty if a rule scores the task
    main_metric: str | None
    run_spec: str
    # `public`, `gated` (your own copy), `private` (your own data) or `unknown`
    access: str
    source: str
    licence: str | None
    revision: str | None
    instances: int | None
    size_mb: float | None
    # the month (`YYYY-MM`) by which the benchmark was public; None if the month is not known
    published: str | None
    answers_public: bool | None  # True if everybody can read the right answers
    label_noise: tuple[float, float] | None
    """The lowest and the highest share of points that a model without errors loses to wrong labels;
    None if no audit is known.
    """
    tags: tuple[str, ...]
    parameters: Mapping[str, ParameterInfo]
    # the data on which eval-factory's authors ran the task: `real data` or `invented data`; None if
    # they did not run the task
    tried: str | None
    notes: tuple[str, ...]
    # known defects of the benchmark, and the remedy for each
    errata: tuple[Mapping[str, Any], ...]
    # a dict from the language of code in answers that HELM executes (such as SQL) to the part of
    # HELM's source that executes the code
    executes: Mapping[str, str]

    @property
    def scoring(self) -> Scoring:
        """The scorer: a rule or a jury; "either" for a task that runs the user's own benchmark."""
        if "benchmark" in self.parameters:
            return "either"
        return "jury" if self.judges else "rule"

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values, as `eval-factory ls --json` prints them."""
        # JSON turns the tuples into lists.
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def _parameter_info(rule: ScenarioParameter, default: Any) -> ParameterInfo:
    """Return the facts about a parameter, from its rule in `framework.yml` and its default."""
    return ParameterInfo(
        layout=tuple(entry.as_dict() for entry in rule.layout),
        default=default,
        required=rule.required,
        fixed=rule.fixed,
        allowed=rule.allowed,
        path=rule.path,
        other_name=rule.other_name,
        about=rule.about,
    )


def task_info(task: Task) -> TaskInfo:
    """Return the facts about a task from `framework.yml`, the errata and the index of run specs."""
    from eval_factory.tasks.errata import load_errata  # only here: listing names stays fast

    helm = task.helm
    errata = []
    for erratum in load_errata().of(helm.run_spec, helm.fixed_parameters):
        errata.append(erratum.model_dump(exclude_none=True))
    parameters = {}
    for name, rule in helm.parameters.items():
        parameters[name] = _parameter_info(rule, task.default_of(name))
    return TaskInfo(
        name=task.name,
        type=f"helm.{task.name}",
        description=task.description,
        endpoint_types=task.endpoint_types,
        judges=helm.judges,
        main_metric=helm.main_metric,
        run_spec=helm.run_spec,
        parameters=parameters,
        errata=tuple(errata),
        executes=dict(languages_executed(helm.run_spec, helm.arguments)),
        **{name: getattr(task.about, name) for name in _FIELDS_OF_ABOUT},
    )


def list_tasks(tag: str | None = None) -> tuple[TaskInfo, ...]:
    """Return the tasks that `config.type` may name, in the order of `framework.yml`.

    Args:
        tag: return only the tasks with this tag; None: return all tasks.

    Raises:
        ConfigError: no task has the tag, or framework.yml or a plug-in cannot be read.
    """
    return tuple(task_info(task) for task in tasks_with_tag(tag, load_framework()))


def tasks_with_tag(tag: str | None, framework: Framework) -> list[Task]:
    """Return the tasks with a tag; all tasks if `tag` is None.

    Raises ConfigError if no task has the tag.
    """
    tasks = [task for task in framework.evaluations if tag is None or tag in task.about.tags]
    if not tasks:
        tags_of_tasks = (task.about.tags for task in framework.evaluations)
        tags = sorted(set(chain.from_iterable(tags_of_tasks)))
        raise ConfigError(f"no task has the tag {tag!r}; tags: {', '.join(tags)}")
    return tasks
