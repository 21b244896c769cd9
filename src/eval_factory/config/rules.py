"""Checks a run config against the rules of its task, and sets the values that the task fixes.

For example, a task accepts only some endpoint types, or needs a parameter of its scenario. Another
task has no judges. The `_..._problems` functions yield messages for the user. `_CHECKS`, at the end
of the module, lists most of these functions; `with_task_rules` calls them.

The checks come first, and then the parameters of scenarios. The checks of the keys that change how
questions are asked are in `asking_rules.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from eval_factory.config.asking_rules import (
    ask_unread_problems,
    asked_again_problems,
    choice_order_problems,
    keys_that_ask_again,
    reasoning_problems,
    shows_no_pictures,
)
from eval_factory.config.merge import Source, ValueSources
from eval_factory.config.model import EXTRA_PATH, Judge
from eval_factory.config.resolved import Evaluation
from eval_factory.config.value_types import urls_in
from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.asking_forms import ASKING_KEYS
from eval_factory.tasks.framework import BENCHMARK_KEY, Task
from eval_factory.tasks.run_entry import CONFIG_TYPE, duplicate_settings
from eval_factory.tasks.run_specs import IMAGES, execution_refusal
from eval_factory.tasks.upstreams import HELM

SCENARIO_PARAMETERS = (
    "data_path",
    "subject",
    "condition",
    "subset",
    "language",
    "category",
    "version",
)
"""Keys of params.extra that are refused for a task that does not declare them."""

_ROLES = {
    "openai": "gpt",
    "meta": "llama",
    "anthropic": "claude",
}
"""The organization of each of HELM's default judges -> the role of the judge. The role is also the
beginning of the model's name, such as `gpt` in `gpt-4o`.
"""

_NOT_ALLOWED_IN_ROLE = re.compile(r"[^a-z0-9_-]+")
"""Characters that the name of a role cannot contain, such as the point in `gpt-4.1`."""


def with_task_rules(evaluation: Evaluation, problems: list[str]) -> Evaluation:
    """Check the evaluation, and return it with the values that its task sets.

    Paths in the scenario's parameters and in `stop_when` become absolute.

    Args:
        evaluation: the evaluation to check.
        problems: the list to which the problems of the evaluation are added.
    """
    for check in _CHECKS:
        problems += check(evaluation)
    update: dict[str, Any] = _scenario_values(evaluation, problems)
    # Not in `_CHECKS`: the problems of batches come after those of the scenario's parameters.
    problems += _batch_problems(evaluation)
    stop = evaluation.extra.stop_when
    if stop.differs_from is not None:
        absolute_path = os.path.abspath(stop.differs_from)
        update["stop_when"] = stop.model_copy(update={"differs_from": absolute_path})
    if update:
        evaluation = evaluation.with_extra(update)
    sources = _with_first_names(evaluation.task, evaluation.sources)
    return replace(evaluation, sources=sources)


def _run_entry_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem for each setting that the run entry also holds."""
    return duplicate_settings(evaluation.task, evaluation.params)


def _code_execution_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem if the task executes answers and the run config does not allow it."""
    helm = evaluation.task.helm
    # `execution_refusal` returns its message even if the run config allows the execution.
    message = execution_refusal(helm.run_spec, helm.arguments)
    if message is not None and not evaluation.extra.allow_code_execution:
        yield f"{CONFIG_TYPE}: {message}"


def _metric_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem if the task cannot compute further metrics."""
    task = evaluation.task
    if evaluation.extra.metrics and not _accepts_metrics(task):
        yield (
            f"{EXTRA_PATH}.metrics: {task.name} cannot have further metrics: the benchmark's own "
            "file names all metrics, or the task has a rubric, options or no main metric"
        )


def _output_dir_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem if the path of the output folder has a comma and is a part of the run entry.

    HELM splits a run entry at commas, and a comma cannot be quoted. The run entries of custom
    benchmarks and of tasks with judges hold the path of a file in the output folder.
    """
    task = evaluation.task
    if "," not in os.path.abspath(evaluation.output_dir):
        return
    tasks_with_path = None
    if BENCHMARK_KEY in task.helm.parameters:
        tasks_with_path = "custom benchmarks"
    elif task.helm.judges:
        tasks_with_path = "a task with judges"
    if tasks_with_path is not None:
        yield (
            f"config.output_dir: must not hold a comma for {tasks_with_path}: HELM ends a value "
            "at a comma"
        )


def _endpoint_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of the endpoint's type and of the maximum length of an answer."""
    task = evaluation.task
    endpoint = evaluation.endpoint
    if endpoint.type not in task.endpoint_types:
        yield (
            f"target.api_endpoint.type: {task.name} "
            f"runs on {' or '.join(task.endpoint_types)}, not on {endpoint.type}"
        )
    tokens = evaluation.params.max_new_tokens
    tokens_in_extra = evaluation.extra.num_output_tokens
    if tokens is not None and tokens_in_extra is not None and tokens != tokens_in_extra:
        yield (
            "config.params: max_new_tokens and extra.num_output_tokens are the same setting "
            f"and differ ({tokens} and {tokens_in_extra}); give one of them"
        )


WAITS_IN_JOB = (
    "a job would hold its node and only wait for batches, up to a day; leave out executor, or batch"
)
"""The advice if requests would be sent by batch from a job of a cluster."""


def _batch_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of sending requests by batch."""
    endpoint = evaluation.endpoint
    target = "target.api_endpoint"
    if endpoint.batch:
        yield from _batch_url_problems(f"{target}.batch", endpoint.urls)
        if endpoint.type == IMAGES:
            yield f"{target}.batch: pictures are not made by batch; leave it out"
        if endpoint.adapter_config.use_nvcf:
            yield f"{target}.batch: a cloud function (use_nvcf) has no batches; leave it out"
    judges_by_batch = [judge for judge in evaluation.extra.judges or [] if judge.batch]
    for judge in judges_by_batch:
        # A judge without a URL uses the URL of the target.
        urls = urls_in(judge.url) or endpoint.urls
        yield from _batch_url_problems(f"{EXTRA_PATH}.judges.{judge.name}.batch", urls)
    waits_for_batches = endpoint.batch or judges_by_batch
    if waits_for_batches and not evaluation.executor.is_local:
        yield f"executor: {WAITS_IN_JOB}"


def _batch_url_problems(path: str, urls: Sequence[str]) -> Iterator[str]:
    """Yield the problems of sending batches to these URLs; `path` is the path of a key `batch`."""
    if len(urls) > 1:
        yield f"{path}: a batch goes to one URL, and {len(urls)} are named; leave it out"
    # A URL with one of these schemes is always the only URL.
    if urls[0].startswith(("demo:", "served:")):
        yield f"{path}: {urls[0]} has no batches; leave it out"


def _judge_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem for each key about judges that does not fit the task."""
    task = evaluation.task
    extra = evaluation.extra
    if extra.judges is not None and not task.helm.judges:
        yield from _prescribed_judge_problems(task, extra.judges)
    if extra.criteria_per_request is not None and not task.helm.rubric:
        yield (
            f"{EXTRA_PATH}.criteria_per_request: {task.name} is not scored by a rubric; "
            "leave it out"
        )
    if extra.probe_judges and not task.helm.judges:
        yield (
            f"{EXTRA_PATH}.probe_judges: {task.name} is not scored by judges that can be named; "
            "leave it out"
        )


def _prescribed_judge_problems(task: Task, judges: Sequence[Judge]) -> Iterator[str]:
    """Yield the problems of the user's judges for a task whose judges HELM prescribes, if any."""
    roles = prescribed_judges_by_role(task.helm.prescribed_judges)
    if not roles:
        yield f"{EXTRA_PATH}.judges: {task.name} is not scored by judges"
        return
    for judge in judges:
        if judge.name not in roles:
            yield (
                f"{EXTRA_PATH}.judges: {task.name} has no judge {judge.name!r}; "
                f"HELM prescribes {', '.join(roles)}"
            )
        elif judge.structured:
            yield (
                f"{EXTRA_PATH}.judges.{judge.name}.structured: {task.name} asks its judges "
                "with HELM's own prompts, whose answers are not JSON; leave it out"
            )


def _judge_picture_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the reason why `judges_see_images` does not fit the task."""
    task = evaluation.task
    if not evaluation.extra.judges_see_images:
        return
    if not task.helm.judges and not task.helm.prescribed_judges:
        yield f"{EXTRA_PATH}.judges_see_images: {task.name} is not scored by judges; leave it out"
    elif shows_no_pictures(evaluation):
        yield f"{EXTRA_PATH}.judges_see_images: {task.name} shows no pictures; leave it out"


def _accepts_metrics(task: Task) -> bool:
    """Return True if the task can compute further metrics."""
    if BENCHMARK_KEY in task.helm.parameters or task.helm.rubric or task.helm.letter_meaning:
        return False
    # Further metrics stand beside a main metric, which is not known for every run entry.
    return bool(task.helm.main_metrics) or not task.helm.is_run_entry


def _instance_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of the keys that choose the instances."""
    extra = evaluation.extra
    if extra.instances is not None:
        settings = {
            "limit_samples": _limits_instances(evaluation),
            "stop_when": bool(extra.stop_when.rules),
            "sample_seed": extra.sample_seed is not None,
        }
        conflicting = []
        for name, is_set in settings.items():
            if is_set:
                conflicting.append(name)
        if conflicting:
            yield (
                f"{EXTRA_PATH}.instances: names the instances to ask, so leave "
                f"{', '.join(conflicting)} out"
            )
    if extra.sample_seed is not None and not _limits_instances(evaluation):
        yield (
            f"{EXTRA_PATH}.sample_seed: without limit_samples all instances are asked, "
            "and none are drawn; set config.params.limit_samples, or leave sample_seed out"
        )


def _media_and_rubric_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of keys that need a task with pictures, or a task with a rubric."""
    task = evaluation.task
    extra = evaluation.extra
    # For a run spec that is not in the index of run specs, it is not known which media are sent.
    is_indexed = task.helm.indexed is not None
    if extra.max_image_side is not None and task.helm.media != IMAGES and is_indexed:
        yield f"{EXTRA_PATH}.max_image_side: {task.name} shows no pictures; leave it out"
    if extra.keep_image_metadata and task.helm.media is None and is_indexed:
        yield f"{EXTRA_PATH}.keep_image_metadata: {task.name} sends no files; leave it out"
    # medhelm asks the judges of a rubric with prompts of its own.
    has_own_judge_prompt = task.helm.rubric and task.helm.upstream is HELM
    if extra.judge_passport is not None and not has_own_judge_prompt:
        yield (
            f"{EXTRA_PATH}.judge_passport: a passport belongs to a judge that eval-factory's own "
            f"prompt asks about criteria, and {task.name} has no such judge; leave it out"
        )


def _made_picture_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem for each setting of text answers if the task's answers are pictures.

    If the answers are texts, yield a problem for `only_generate`.
    """
    task = evaluation.task
    params = evaluation.params
    endpoint = evaluation.endpoint
    if not task.helm.makes_images:
        if params.extra.only_generate:
            yield (
                f"{EXTRA_PATH}.only_generate: the answers of {task.name} are not pictures; "
                "leave it out"
            )
        return
    if endpoint.is_demo:
        yield f"target.api_endpoint.url: {endpoint.url} makes no pictures"
    text_settings: dict[str, Any] = {}
    for name in ("max_new_tokens", "temperature", "top_p"):
        text_settings[name] = getattr(params, name)
    for name in ("num_output_tokens", "max_length", *ASKING_KEYS):
        text_settings[f"extra.{name}"] = getattr(params.extra, name)
    text_settings["extra.stop_when"] = params.extra.stop_when.rules
    for name, value in text_settings.items():
        # `value in (None, False, {})` would be wrong: a temperature of 0 is equal to False.
        is_set = value is not None and value is not False and value != {}
        if is_set:
            yield (
                f"config.params.{name}: is for answers in text, and the answers of {task.name} "
                f"are pictures; leave it out"
            )


def _stop_when_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of `stop_when`, also together with other settings.

    With `stop_when`, a run asks some instances, checks its rule, and asks more instances if the
    rule does not hold yet. Each check is a look; `first` is the number of instances before the
    first look.
    """
    task = evaluation.task
    params = evaluation.params
    path = f"{EXTRA_PATH}.stop_when"
    stop = params.extra.stop_when
    max_instances = params.limit_samples
    rules = stop.rules
    if not rules:
        # A section without a rule has no effect. If it has other values, the user forgot the rule.
        default = evaluation.framework.defaults.config["params"]["extra"]["stop_when"]
        if stop.model_dump() != default:
            yield f"{path}: names no rule; give half_width, beats_floor or differs_from"
        return
    if len(rules) > 1:
        yield f"{path}: has {' and '.join(rules)}; give one of them"
    if params.extra.sample_seed is not None:
        yield (
            f"{path}: cannot be used with sample_seed (its samples are in proportion to "
            "groups, and a larger sample does not hold all of a smaller one); leave "
            "sample_seed out: stop_when.seed draws"
        )
    if params.extra.judge_passport is not None:
        yield (
            f"{path}: cannot be used with judge_passport: the interval of a corrected score is "
            "only valid for a single look"
        )
    keys = keys_that_ask_again(evaluation)
    if keys:
        yield (
            f"{path}: cannot be used with {', '.join(keys)}: the intervals of questions that "
            "are asked again are only valid for a single look"
        )
    if "max_eval_instances" in task.helm.arguments:
        yield (
            f"{path}: HELM would apply max_eval_instances at each look; write "
            "config.params.limit_samples instead"
        )
    if max_instances is not None and max_instances <= stop.first:
        yield (
            f"{path}.first: the first look would ask {stop.first} of at most {max_instances} "
            "instances (limit_samples), so there would be no second look; give a smaller number"
        )
    if stop.beats_floor and task.helm.judges and not params.extra.probe_judges:
        yield (
            f"{path}.beats_floor: the best score without a model is not known if judges "
            f"score the answers; also set {EXTRA_PATH}.probe_judges: true"
        )


def _limits_instances(evaluation: Evaluation) -> bool:
    """Return True if the number of instances is limited, also by an argument of a run entry."""
    if evaluation.params.limit_samples is not None:
        return True
    return "max_eval_instances" in evaluation.task.helm.arguments


def _with_first_names(task: Task, sources: ValueSources) -> ValueSources:
    """Return the sources of the values, with each parameter under its first name.

    A parameter may have another name: for the task `clear`, `subject` is another name of
    `condition`, the first name. `_by_first_name` moves the value of the other name to the first
    name. This function moves the source of the value.
    """
    not_from_user = (None, Source.FRAMEWORK, Source.TASK)  # None: the value has no source
    moved = dict(sources)
    for name, rule in task.helm.parameters.items():
        first_path = f"{EXTRA_PATH}.{name}"
        other_path = f"{EXTRA_PATH}.{rule.other_name}"
        if rule.other_name is None or moved.get(other_path) in not_from_user:
            continue
        source = moved.pop(other_path)
        if moved.get(first_path) in not_from_user:
            moved[first_path] = source
    return moved


def prescribed_judges_by_role(deployments: Sequence[str]) -> dict[str, str]:
    """Return the deployments of the judges that HELM's annotators prescribe, by the judges' roles.

    The role is `gpt`, `llama` or `claude` if the model's name begins so, or if the organization
    belongs to this role. For other judges, the role is the organization. If another judge already
    has this role, the role is made from the name of the model.

    Args:
        deployments: names such as `openai/gpt-4o`. A name without an organization is skipped.
    """
    deployment_of_role: dict[str, str] = {}
    for deployment in dict.fromkeys(deployments):  # each name once
        organization, slash, model = deployment.partition("/")
        if not slash:
            continue
        role = _ROLES.get(organization, organization)
        for model_role in _ROLES.values():
            if model.startswith(model_role):
                role = model_role
        if role in deployment_of_role:
            role = _NOT_ALLOWED_IN_ROLE.sub("-", model.lower())
        deployment_of_role[role] = deployment
    return deployment_of_role


def _by_first_name(evaluation: Evaluation, problems: list[str]) -> dict[str, str | None]:
    """Return the updates of params.extra that move values to the first names of parameters.

    For example, `subject` is another name of the parameter `condition` of the task `clear`.

    Args:
        evaluation: the evaluation.
        problems: the list to which a problem is added if both names have different values.
    """
    task = evaluation.task
    extra = evaluation.extra
    update: dict[str, str | None] = {}
    for name, rule in task.helm.parameters.items():
        if rule.other_name is None or getattr(extra, rule.other_name) is None:
            continue
        value = getattr(extra, name)
        other_value = getattr(extra, rule.other_name)
        if value not in (None, other_value):
            problems.append(
                f"{EXTRA_PATH}: {name} and {rule.other_name} are the same setting of {task.name} "
                f"and differ ({value} and {other_value}); give one of them"
            )
        update[name] = other_value if value is None else value
        update[rule.other_name] = None
    return update


def _scenario_values(evaluation: Evaluation, problems: list[str]) -> dict[str, str | None]:
    """Return the updates of the scenario's parameters.

    Values move to the first names of their parameters, values that the task fixes are set, and
    paths become absolute.

    Args:
        evaluation: the evaluation.
        problems: the list to which the problems of the parameters are added.
    """
    task = evaluation.task
    update = _by_first_name(evaluation, problems)
    extra = evaluation.extra.model_copy(update=update)
    for name in (*SCENARIO_PARAMETERS, BENCHMARK_KEY):
        value = getattr(extra, name)
        rule = task.helm.parameters.get(name)
        path = f"{EXTRA_PATH}.{name}"
        if rule is None:
            if value is not None:
                problems.append(f"{path}: {_no_such_parameter(evaluation, name, value)}")
        elif rule.fixed is not None:
            if value not in (None, rule.fixed):
                problems.append(f"{path}: {task.name} is {name}={rule.fixed}, got {value!r}")
            update[name] = rule.fixed
        elif value is None:
            if rule.required:
                hint = f"'eval-factory ls {task.name}' says what the file or folder has to hold"
                if rule.allowed:
                    hint = f"one of {', '.join(rule.allowed)}"
                problems.append(f"{path}: is missing; {task.name} needs it: {hint}")
        else:
            if "," in value and name in SCENARIO_PARAMETERS:
                problems.append(
                    f"{path}: must not hold a comma, at which HELM ends a value: {value!r}"
                )
            if rule.allowed and value not in rule.allowed:
                near = did_you_mean(value, list(rule.allowed))
                problems.append(
                    f"{path}: must be one of {', '.join(rule.allowed)}, got {value!r}{near}"
                )
            if rule.path:
                update[name] = os.path.abspath(os.path.expanduser(value))
    return update


def _no_such_parameter(evaluation: Evaluation, name: str, value: str) -> str:
    """Return the message about a parameter that the task does not have."""
    task = evaluation.task
    if task.helm.is_run_entry:
        return (
            "write the arguments of a run entry in config.type: "
            f"helm:{task.helm.run_spec}:{name}={value}"
        )
    tasks_with_it = []
    for candidate in evaluation.framework.evaluations:
        if name in candidate.helm.parameters:
            tasks_with_it.append(candidate.name)
    if not tasks_with_it:
        return f"{task.name} has no {name}"
    return f"{task.name} has no {name}; it belongs to {', '.join(tasks_with_it)}"


_CHECKS: tuple[Callable[[Evaluation], Iterator[str]], ...] = (
    _endpoint_problems,
    _run_entry_problems,
    _code_execution_problems,
    _judge_problems,
    _metric_problems,
    _judge_picture_problems,
    _instance_problems,
    _stop_when_problems,
    _media_and_rubric_problems,
    _made_picture_problems,
    choice_order_problems,
    asked_again_problems,
    reasoning_problems,
    ask_unread_problems,
    _output_dir_problems,
)
"""The checks of an evaluation against its task. Problems are listed in the order of the checks."""
