"""Makes a task of a HELM run entry, for `config.type: helm:<run entry>`.

A run entry names one of HELM's run specs and its arguments: `mmlu:subject=anatomy`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.framework import About, Framework, HelmEntry, Task
from eval_factory.tasks.run_specs import (
    JURY_PARAMETER,
    IndexedRunSpec,
    RunSpecIndex,
    load_index,
    processor_problem,
)
from eval_factory.tasks.upstreams import DIFFERENCES_FROM_HELM, HELM, UPSTREAMS, Upstream

CONFIG_TYPE = "config.type"

# HELM's program for adaptive testing, which a user may write instead of a run spec
REEVAL_RUN = "reeval_run"
NO_REEVAL = (
    "eval-factory does not run HELM's adaptive testing (reeval_run.py): it chooses other "
    "questions for each model, so that its score is not the benchmark's; "
    "config.params.extra.stop_when asks fewer questions and keeps the score"
)
RESERVED_ARGUMENTS = {
    "model": "eval-factory names the model: give target.api_endpoint.model_id",
    "model_deployment": "eval-factory names the deployment: give target.api_endpoint.model_id",
    "reeval_parameters": NO_REEVAL,
    "model_ability": NO_REEVAL,
    JURY_PARAMETER: "eval-factory writes the jury's configuration: give config.params.extra.judges",
}
"""A dict from the arguments that a run entry must not set to the reason, with the setting to use
instead.
"""

SAME_SETTING = {
    "num_output_tokens": ("max_new_tokens", "extra.num_output_tokens"),
    "temperature": ("temperature",),
    "num_train_trials": ("extra.num_train_trials",),
    "max_eval_instances": ("limit_samples",),
}
"""A dict from an argument of a run entry to the keys of config.params with the same effect. If the
run entry sets the argument, none of these keys may be set.
"""

# the parameter that chooses the judge of a run spec
JUDGE_DEPLOYMENT_ARGUMENT = "annotator_model_deployment"

PATH_PARAMETERS = frozenset({"data_path", "config_path", "path"})
"""Parameters of HELM's run specs that name a file or folder. Relative paths are made absolute,
because helm-run does not run in the user's working directory.
"""

# the allowed types of endpoints for a run spec that can use any endpoint with text answers
TEXT_ENDPOINT_TYPES = ["chat", "completions"]


@dataclass(frozen=True)
class RunEntry:
    """The name of a run spec and its arguments, as the user writes them."""

    name: str
    arguments: dict[str, str]

    @property
    def text(self) -> str:
        """The run entry as HELM reads it: `name:key=value,key=value`."""
        joined = ",".join(f"{key}={value}" for key, value in self.arguments.items())
        if not joined:
            return self.name
        return f"{self.name}:{joined}"


def run_entry_prefix(framework: Framework) -> str:
    """Return the start of a `config.type` that is a run entry: `helm:`."""
    return f"{framework.framework.name}:"


def is_run_entry(name: str, framework: Framework) -> bool:
    """Return True if a `config.type` is a run entry."""
    return name.startswith(run_entry_prefix(framework))


def task_of_upstream(upstream: Upstream, task: Task, problems: list[str]) -> Task | None:
    """Return a task of framework.yml as another upstream runs it.

    If the upstream does not have the task's run spec of HELM, None is returned, and the problem is
    appended to `problems`. Run specs of eval-factory and of plug-ins run with each upstream.
    """
    # `indexed` is None for run specs of eval-factory and of plug-ins.
    if task.helm.indexed is not None and task.helm.run_spec not in load_index(upstream).run_specs:
        problems.append(
            f"config.params.extra.upstream: {upstream} "
            f"has no run spec {task.helm.run_spec!r}, so only"
            f" {HELM.name} runs {task.name}; leave `upstream` out"
        )
        return None
    about = task.about
    difference = DIFFERENCES_FROM_HELM.get(task.helm.run_spec)
    if difference is not None:
        # The number of instances may also differ.
        about = replace(about, notes=(*about.notes, difference), instances=None)
    return replace(task, helm=replace(task.helm, upstream=upstream), about=about)


def task_of_run_entry(
    name: str, framework: Framework, problems: list[str], upstream: Upstream = HELM
) -> Task | None:
    """Return the task of a run entry.

    If the run entry has mistakes, None is returned, and each mistake is appended to `problems`.

    Args:
        name: the value of `config.type`, such as `helm:mmlu:subject=anatomy`.
        framework: the content of framework.yml.
        problems: the list for the mistakes.
        upstream: the HELM that runs the task.
    """
    index = load_index(upstream)
    entry, mistakes = _parsed(name.removeprefix(run_entry_prefix(framework)))
    spec = index.run_specs.get(entry.name)
    if entry.name == REEVAL_RUN:
        mistakes.append(NO_REEVAL)
    elif spec is None and framework.task(entry.name) is not None:
        remedy = f"write it without {run_entry_prefix(framework)!r}"
        mistakes.append(f"{entry.name!r} is a task of eval-factory's own: {remedy}")
    elif spec is None:
        mistakes.append(_unknown_run_spec_message(entry.name, index, upstream))
    else:
        mistakes += _mistakes_in(entry, spec, index)
    problems += [f"{CONFIG_TYPE}: {mistake}" for mistake in mistakes]
    if mistakes or spec is None:
        return None
    return _task(entry, spec, framework, upstream)


def _parsed(text: str) -> tuple[RunEntry, list[str]]:
    """Return the run entry of a text, and a message for each mistake of its form.

    The text is split as HELM splits it: at the first colon, at each comma after this colon, and at
    the first equals sign between two commas.
    """
    run_spec, colon, joined_arguments = text.partition(":")
    arguments: dict[str, str] = {}
    mistakes = []
    parts = []
    if colon:
        parts = joined_arguments.split(",")
    for part in parts:
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            mistakes.append(f"a run entry has the form name:key=value,key=value; {part!r} does not")
        elif key in arguments:
            mistakes.append(f"{key} is set twice")
        arguments[key] = value.strip()
    return RunEntry(run_spec.strip(), arguments), mistakes


def _unknown_run_spec_message(run_spec: str, index: RunSpecIndex, upstream: Upstream) -> str:
    """Return the message for a run spec that HELM does not have, with the next action."""
    name = "HELM"
    option = ""
    if upstream is not HELM:
        name = upstream.name
        option = f" --upstream {upstream.name}"
    hint = upstream_hint(run_spec, upstream)
    if not hint:
        near = did_you_mean(run_spec, list(index.run_specs))  # "" if no name is similar
        hint = f"{near}; 'eval-factory ls --all{option}' lists them"
    return f"{name} {index.helm} has no run spec {run_spec!r}{hint}"


def _mistakes_in(entry: RunEntry, spec: IndexedRunSpec, index: RunSpecIndex) -> Iterator[str]:
    """Yield a message for each mistake in the arguments of a run entry.

    A run spec whose kind of request eval-factory cannot send is also a mistake.
    """
    # A run spec with `asks` requests something other than text. eval-factory can request pictures,
    # but no other kind.
    if spec.asks is not None and not spec.makes_images:
        yield f"{entry.name} asks a model for {spec.asks}, which eval-factory cannot ask for"
    known = [name for name in spec.parameters if name not in RESERVED_ARGUMENTS]
    known += index.expanders
    for name in entry.arguments:
        is_known = spec.any_parameter or name in known
        if name in RESERVED_ARGUMENTS:
            yield f"{name} cannot be set in a run entry; {RESERVED_ARGUMENTS[name]}"
        elif name and not is_known:  # `_parsed` has reported an empty name
            near = did_you_mean(name, known)
            yield (
                f"{entry.name} has no parameter {name!r}{near}; "
                f"{parameters_clause(entry.name, spec)};"
                f" every run spec takes: {', '.join(common_arguments(index))}"
            )
    # the argument `process_output`: a function that HELM applies to each answer
    processor_message = processor_problem(entry.arguments)
    if processor_message is not None:
        yield processor_message
    missing = [name for name in spec.required if name not in entry.arguments]
    if missing:
        yield (
            f"{entry.name} needs {', '.join(missing)}: write"
            f" helm:{entry.name}:{','.join(f'{name}=...' for name in missing)}; "
            f"{parameters_clause(entry.name, spec)}"
        )


def duplicate_settings(task: Task, params: Any) -> Iterator[str]:
    """Yield a message for each setting that both the run entry and config.params set.

    Args:
        task: the task of the run entry.
        params: the section `config.params` of the run config.
    """
    for name, paths in SAME_SETTING.items():
        if name not in task.helm.arguments:
            continue
        for path in paths:
            section = params
            if path.startswith("extra."):
                section = params.extra
            if getattr(section, path.removeprefix("extra.")) is not None:
                yield (
                    f"{CONFIG_TYPE}: {name} and config.params.{path} are the same setting; "
                    "set only one of the two"
                )


def parameters_clause(name: str, spec: IndexedRunSpec) -> str:
    """Return a clause that lists the run spec's parameters, each with its default or `needed`.

    Parameters in `RESERVED_ARGUMENTS` are not listed.
    """
    if spec.any_parameter:
        return f"{name} takes any parameter"
    shown = []
    for parameter, rule in spec.parameters.items():
        if parameter not in RESERVED_ARGUMENTS:
            shown.append(signature(parameter, rule))
    if not shown:
        return f"{name} has no parameters of its own"
    return f"its parameters: {', '.join(shown)}"


def common_arguments(index: RunSpecIndex) -> list[str]:
    """Return the arguments that HELM accepts for every run spec, without those in
    `RESERVED_ARGUMENTS`.
    """
    return [name for name in index.expanders if name not in RESERVED_ARGUMENTS]


def signature(name: str, rule: Any) -> str:
    """Return `name=default`; for a parameter without a default `name (type, needed)`.

    Args:
        name: the name of the parameter.
        rule: the `type` and `default` of the parameter in the index of run specs.
    """
    if "default" in rule:
        return f"{name}={rule['default']}"
    if "type" in rule:
        return f"{name} ({rule['type']}, needed)"
    return f"{name} (needed)"


def upstream_hint(run_spec: str, upstream: Upstream) -> str:
    """Return a hint that another upstream has the run spec; "" if no other upstream has it."""
    for candidate in UPSTREAMS.values():
        if candidate is not upstream and run_spec in load_index(candidate).run_specs:
            return f"; {candidate} has one: config.params.extra.upstream: {candidate.name}"
    return ""


def similar_name_hint(name: str, framework: Framework) -> str:
    """Return a hint for a name that is not a task; "" if no similar name exists.

    The hint names HELM's run spec of this name, or else a task with a similar name, or else a run
    spec with a similar name.
    """
    run_spec_name = name.partition(":")[0]
    if run_spec_name in load_index().run_specs:
        return f"; HELM has a run spec of that name: {run_entry_prefix(framework)}{name}"
    task_hint = did_you_mean(name, framework.names())
    if task_hint:
        return task_hint
    # Both names get the prefix, which makes them more similar: hence the stricter cutoff.
    prefix = run_entry_prefix(framework)
    run_specs = [prefix + run_spec for run_spec in load_index().run_specs]
    return did_you_mean(prefix + run_spec_name, run_specs, cutoff=0.85)


def _task(entry: RunEntry, spec: IndexedRunSpec, framework: Framework, upstream: Upstream) -> Task:
    """Return the task of a run entry without mistakes."""
    name = run_entry_prefix(framework) + entry.text
    prescribed_judges = spec.prescribed_judges
    chosen_judge = entry.arguments.get(JUDGE_DEPLOYMENT_ARGUMENT)
    if chosen_judge:
        prescribed_judges = (str(chosen_judge),)
    arguments = dict(entry.arguments)
    for key in PATH_PARAMETERS & arguments.keys():
        arguments[key] = os.path.abspath(os.path.expanduser(arguments[key]))
    # The tasks of framework.yml with the same run spec state further facts about this run spec.
    known_tasks = [task for task in framework.evaluations if task.helm.run_spec == entry.name]
    possible_metrics = [*spec.main_metrics, *(task.helm.main_metric for task in known_tasks)]
    notes: list[str] = []
    for task in known_tasks:
        if _has_fixed_values_of(task, entry):
            notes += task.about.notes
    if prescribed_judges:
        notes.append(
            f"judges that HELM prescribes ({', '.join(prescribed_judges)}) score the answers; "
            "they are asked at the target's URL, or at the URLs in extra.judges; "
            "eval-factory does not count the answers that they fail to judge"
        )
    return Task(
        name=name,
        description=spec.description,
        defaults={
            "config": {
                "type": name,
                "supported_endpoint_types": spec.endpoint_types or TEXT_ENDPOINT_TYPES,
            }
        },
        helm=HelmEntry(
            run_spec=entry.name,
            scenario=spec.scenario or entry.name,
            upstream=upstream,
            main_metric=possible_metrics[0] if possible_metrics else None,
            judges=tuple(framework.judges) if spec.has_jury else (),
            is_run_entry=True,
            arguments=arguments,
            main_metrics=spec.main_metrics,
            main_split=spec.main_split,
            prescribed_judges=prescribed_judges,
            cluster=known_tasks[0].helm.cluster if known_tasks else None,
        ),
        about=About(
            tags=("helm",),
            access="unknown",
            source=f"the data of HELM's scenario {spec.scenario_class or entry.name}",
            instances=None,
            notes=tuple(dict.fromkeys(notes)),
        ),
    )


def _has_fixed_values_of(task: Task, entry: RunEntry) -> bool:
    """Return True if the run entry sets each fixed parameter of a task to the task's value.

    Otherwise the task's notes may not be true of the run entry.
    """
    for name, rule in task.helm.parameters.items():
        if rule.fixed is not None and entry.arguments.get(name) != rule.fixed:
            return False
    return True
