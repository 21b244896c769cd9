"""What depends on the task: endpoint types, the parameters of its scenario, its judges, its own data."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.config.explain import did_you_mean
from eval_factory.config.framework import ScenarioParameter, Task, load_framework
from eval_factory.config.layout import described, faults
from eval_factory.config.model import Extra, RunConfig
from eval_factory.config.run_entry import given_twice

SCENARIO_PARAMETERS = ("data_path", "subject", "condition", "subset", "language", "category", "version")
"""Keys of params.extra that only mean something to the tasks that declare them."""

BENCHMARK = "benchmark"
"""The key of params.extra that names a user's own benchmark; HELM is given a file made of it."""

ROLES = {"openai": "gpt", "meta": "llama", "anthropic": "claude"}
"""Whose models the default judges are."""

_NOT_IN_A_ROLE = re.compile(r"[^a-z0-9_-]+")
_NOT_IN_RUN_ENTRY = ","
"""HELM splits a run entry at commas and offers no way to quote one."""


def with_extra(run: RunConfig, update: Mapping[str, Any]) -> RunConfig:
    extra = run.config.params.extra.model_copy(update=update)
    config = run.config.model_copy(update={"params": run.config.params.model_copy(update={"extra": extra})})
    return run.model_copy(update={"config": config})


def with_task_rules(run: RunConfig, task: Task, problems: list[str]) -> RunConfig:
    """What depends on the task: endpoint types and the parameters of its scenario."""
    endpoint = run.target.api_endpoint
    if endpoint.type not in task.endpoint_types:
        problems.append(
            f"target.api_endpoint.type: {task.name} runs on {' or '.join(task.endpoint_types)}, not on {endpoint.type}"
        )
    params = run.config.params
    tokens = (params.max_new_tokens, params.extra.num_output_tokens)
    if None not in tokens and tokens[0] != tokens[1]:
        problems.append(
            "config.params: max_new_tokens and extra.num_output_tokens are the same setting and differ"
            f" ({tokens[0]} and {tokens[1]}); give one of them"
        )
    problems += given_twice(task, params)
    if params.extra.judges is not None:
        problems += _not_its_judges(task, [judge.name for judge in params.extra.judges])
    own = BENCHMARK in task.helm.parameters
    if (own or task.helm.judges) and _NOT_IN_RUN_ENTRY in os.path.abspath(run.config.output_dir):
        which = "custom benchmarks" if own else "a task with judges"
        problems.append(f"config.output_dir: must hold no comma for {which}, HELM cannot be given one")
    update = _scenario_values(run, task, problems)
    return with_extra(run, update) if update else run


def prescribed_roles(deployments: Sequence[str]) -> dict[str, str]:
    """Role -> the deployment of a judge that HELM's annotators name themselves.

    Of two judges with one role, the second is called as its model is.
    """
    roles: dict[str, str] = {}
    for deployment in dict.fromkeys(deployments):
        organization, slash, model = deployment.partition("/")
        if slash:
            family = next((role for role in ROLES.values() if model.startswith(role)), None)
            role = family or ROLES.get(organization, organization)
            roles[role if role not in roles else _NOT_IN_A_ROLE.sub("-", model.lower())] = deployment
    return roles


def _not_its_judges(task: Task, names: Sequence[str]) -> list[str]:
    if task.helm.judges:
        return []
    roles = prescribed_roles(task.helm.prescribed_judges)
    if not roles:
        return [f"config.params.extra.judges: {task.name} is not scored by judges"]
    return [
        f"config.params.extra.judges: {task.name} has no judge {name!r}; HELM prescribes {', '.join(roles)}"
        for name in names
        if name not in roles
    ]


def _scenario_values(run: RunConfig, task: Task, problems: list[str]) -> dict[str, str]:
    extra = run.config.params.extra
    update: dict[str, str] = {}
    for name in (*SCENARIO_PARAMETERS, BENCHMARK):
        value = getattr(extra, name)
        rule = task.helm.parameters.get(name)
        where = f"config.params.extra.{name}"
        if rule is None:
            if value is not None and task.helm.any_run_spec:
                problems.append(
                    f"{where}: the arguments of a run entry stand in config.type:"
                    f" helm:{task.helm.run_spec}:{name}={value}"
                )
            elif value is not None:
                problems.append(f"{where}: {task.name} has no {name}{_tasks_with(name)}")
            continue
        if rule.fixed is not None:
            if value not in (None, rule.fixed):
                problems.append(f"{where}: {task.name} is {name}={rule.fixed}, got {value!r}")
            update[name] = rule.fixed
            continue
        if value is None:
            if rule.required:
                problems.append(f"{where}: is missing; {task.name} needs it{_what_it_may_be(rule, extra)}")
            continue
        if _NOT_IN_RUN_ENTRY in value and name in SCENARIO_PARAMETERS:
            problems.append(f"{where}: must hold no comma, HELM cannot be given one: {value!r}")
        if rule.allowed and value not in rule.allowed:
            near = did_you_mean(value, list(rule.allowed))
            problems.append(f"{where}: must be one of {', '.join(rule.allowed)}, got {value!r}{near}")
        if rule.path:
            update[name] = os.path.abspath(os.path.expanduser(value))
    return update


def _what_it_may_be(rule: ScenarioParameter, extra: Extra) -> str:
    if rule.allowed:
        return f", one of {', '.join(rule.allowed)}"
    lines = described(rule.layout, {"subject": extra.subject, "condition": extra.condition})
    return "".join(["; what has to stand there:", *(f"\n    {line}" for line in lines)]) if lines else ""


def data_faults(task: Task, extra: Extra) -> list[str]:
    """What of a task's own data is not there or has another form, and then the form that it has to have."""
    rule = task.helm.parameters.get("data_path")
    if rule is None or not rule.layout or extra.data_path is None:
        return []
    values = {"subject": extra.subject, "condition": extra.condition}
    found = faults(rule.layout, Path(extra.data_path), values)
    if not found:
        return []
    return [*found, f"{task.name} needs:", *(f"  {line}" for line in described(rule.layout, values))]


def _tasks_with(name: str) -> str:
    having = [task.name for task in load_framework().evaluations if name in task.helm.parameters]
    return f"; it belongs to {', '.join(having)}" if having else ""
