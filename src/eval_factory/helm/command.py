"""The run entry and the command line of helm-run, from the one template in framework.yml; HELM's other programs."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from eval_factory.helm import names
from eval_factory.helm.environments import environment_of
from eval_factory.helm.model_files import deployment_of
from eval_factory.plan.run_plan import HELM_SUITE, Plan
from eval_factory.tasks.asked_again import LOGPROBS
from eval_factory.tasks.upstreams import HELM, Upstream


class Program(list[str]):
    """What a command line begins with: one word, or an interpreter and what it runs."""


MODULES = {
    "helm-run": "helm.benchmark.run",
    "helm-summarize": "helm.benchmark.presentation.summarize",
    "helm-server": "helm.benchmark.server",
}


def helm_program(name: str, upstream: Upstream = HELM) -> Program:
    """One of HELM's programs, of the upstream's environment: never another one on PATH."""
    return Program(environment_of(upstream).program(MODULES[name], name))


def run_entry(plan: Plan) -> str:
    """`run_spec:key=value,...` with HELM's run expanders for tokens and temperature."""
    arguments: dict[str, Any] = dict(plan.scenario_arguments)
    if plan.evaluation.benchmark is not None:  # its judges stand in the file
        arguments["config_path"] = str(plan.rundir.model_configs / names.BENCHMARK)
    elif plan.judges:
        arguments["jury_config_path"] = str(plan.rundir.model_configs / names.JUDGES)
    params = plan.evaluation.run.config.params
    chosen = {
        "criteria_per_request": params.extra.criteria_per_request,
        "more_metrics": "+".join(params.extra.metrics) if params.extra.metrics else None,
        "shuffle_choices": params.extra.shuffle_choices,
        "repeats": params.extra.repeats,
        "perturb": "+".join(params.extra.perturb) if params.extra.perturb else None,
        "pushback": params.extra.pushback,
        "blind_control": params.extra.blind_control or None,
        "cost_of_wrong": params.extra.cost_of_wrong if params.extra.allow_abstain else None,
        "num_output_tokens": plan.evaluation.num_output_tokens,
        "temperature": params.temperature,
        "confidence": None if params.extra.confidence == LOGPROBS else params.extra.confidence,
    }
    arguments |= {name: value for name, value in chosen.items() if value is not None}
    arguments["model"] = deployment_of(plan.model)
    joined = ",".join(f"{key}={value}" for key, value in arguments.items())
    return f"{plan.evaluation.task.helm.run_spec}:{joined}"


def command_line(plan: Plan, *, debug: bool = False, at_most: int | None = None) -> list[str]:
    """The argument list of helm-run. `at_most`: instances, where a look asks fewer than the configuration says.

    The template is rendered once, every value quoted, and split as a shell would: what a value holds can neither
    become a second argument nor be evaluated.
    """
    plug_in = plan.evaluation.task.plug_in
    values = {
        "helm_run": helm_program("helm-run", plan.upstream),
        "run_entry": run_entry(plan),
        "suite": HELM_SUITE,
        "max_eval_instances": at_most or plan.evaluation.run.config.params.limit_samples or names.NO_LIMIT,
        "helm_dir": str(plan.rundir.helm),
        "model_configs_dir": str(plan.rundir.model_configs),
        "log_config": None if debug else str(plan.rundir.model_configs / names.LOGGING),
        "plugin": Program([names.PLUGIN_MODULE, *([plug_in.helm_plugin] if plug_in and plug_in.helm_plugin else [])]),
        "runner_class": names.RUNNER_CLASS,
        **plan.evaluation.as_dict(),
    }
    return shlex.split(_template(plan.evaluation.framework.defaults.command).render(values))


@cache
def _template(text: str) -> Template:
    """Compiled once: every cell of a suite has the same."""
    return Environment(undefined=StrictUndefined, autoescape=False, finalize=_quoted).from_string(text)


def _quoted(value: object) -> str:
    return shlex.join(value) if isinstance(value, Program) else shlex.quote(str(value))
