"""The rules that a run config must keep because of its task: its endpoint types, the parameters of
its scenario, its judges, its choices, the user's data that it reads.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.config.merge import Source, ValueSources
from eval_factory.config.model import urls_in
from eval_factory.config.resolved import Evaluation
from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.asking_forms import (
    ASKED_AGAIN_BY,
    ASKED_AGAIN_IF,
    KEYS_THAT_LOSE_ANSWERS,
    LOGPROBS,
    NEED_SHORT_ANSWERS,
    STATED,
    STATED_ONLY,
)
from eval_factory.tasks.framework import DATA_PATH, FileLayout, Framework, Task
from eval_factory.tasks.reasoned import (
    REASONED,
    reasoned_tasks,
    tasks_that_reason_already,
)
from eval_factory.tasks.run_entry import PATH_PARAMETERS, WHERE, duplicate_settings
from eval_factory.tasks.run_specs import IMAGES, refusal
from eval_factory.tasks.upstreams import HELM

_EXTRA = "config.params.extra"
_LEAVE_OUT = "leave it out"
_JOINT = "multiple_choice_joint"  # HELM's method unless a run entry names another
BY_PLACE = "by place"
"""A letter stands for the option in its position, and for nothing else: a value of
`HelmEntry.option_texts`.
"""


MOVE_CHOICES = ("shuffle_choices", "options_only", "none_of_the_others")
"""Keys of params.extra that need a list of options to which HELM itself puts the letters."""


def _cannot_be_shuffled(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem for each given key of `MOVE_CHOICES` that the task's options forbid."""
    for name in MOVE_CHOICES:
        if getattr(evaluation.extra, name):
            yield from _problems_of_moving_choices(evaluation.task, f"{_EXTRA}.{name}")


def _problems_of_moving_choices(task: Task, path: str) -> Iterator[str]:
    option_texts = task.helm.option_texts
    arguments = task.helm.arguments
    method = arguments.get("method", _JOINT)
    if option_texts is None:
        yield (f"{path}: HELM does not put letters before the options of {task.name}; {_LEAVE_OUT}")
    elif option_texts != BY_PLACE:
        yield (
            f"{path}: the instructions of {task.name} say what each letter stands for (A for "
            f"yes, B for no), so the order of its options cannot change; {_LEAVE_OUT}"
        )
    elif method != _JOINT:
        yield (
            f"{path}: with method={method} the options are not shown together; {_LEAVE_OUT}, "
            "or the method"
        )
    elif "data_augmentation" in arguments:
        yield (
            f"{path}: cannot be used with data_augmentation, which changes the questions in "
            f"another way; {_LEAVE_OUT}"
        )


def _wrong_confidence(evaluation: Evaluation, other_askings: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with `confidence`.

    Args:
        evaluation: the run, with `confidence`.
        other_askings: the other given keys that ask questions again.
    """
    task = evaluation.task
    extra = evaluation.extra
    if extra.confidence == STATED_ONLY and other_askings:
        names = ", ".join(sorted(other_askings))
        yield (
            f"{_EXTRA}.confidence: {STATED_ONLY} cannot be used with {names} (each of those "
            f"answers would hold a confidence, too); take {STATED}"
        )
    if extra.confidence == STATED_ONLY and BENCHMARK_KEY in task.helm.parameters:
        # imported here: few runs are of a custom benchmark
        from eval_factory.tasks.message_files import CONVERSATION_RUN_SPEC

        if task.helm.run_spec == CONVERSATION_RUN_SPEC:
            yield (
                f"{_EXTRA}.confidence: {STATED_ONLY} changes the instructions of a prompt, and "
                f"conversations have none; take {STATED}"
            )
    adapter = evaluation.endpoint.adapter_config
    changed_parameters = {*adapter.params_to_add, *adapter.params_to_remove}
    if extra.confidence == LOGPROBS and "logprobs" in changed_parameters:
        yield (
            f"{_EXTRA}.confidence: logprobs asks for log probabilities itself; leave logprobs "
            "out of target.api_endpoint.adapter_config"
        )


def _shows_no_pictures(evaluation: Evaluation) -> bool:
    """Return whether the task is known to show no pictures.

    Nothing is known of a custom benchmark that could not be read.
    """
    helm = evaluation.task.helm
    is_unread = BENCHMARK_KEY in helm.parameters and evaluation.benchmark is None
    return helm.media != IMAGES and not is_unread


def _cannot_be_asked_again(evaluation: Evaluation) -> Iterator[str]:
    """Yield which of `repeats`, `perturb`, `pushback` and others make no sense with this task."""
    task = evaluation.task
    extra = evaluation.extra
    given = []
    for name in (*ASKED_AGAIN_BY, *ASKED_AGAIN_IF):
        if getattr(extra, name):
            given.append(name)
    if given and "data_augmentation" in task.helm.arguments:
        yield (
            f"{_EXTRA}.{given[0]}: cannot be used with data_augmentation, which changes the "
            "questions in another way"
        )
    if extra.blind_control and _shows_no_pictures(evaluation):
        yield f"{_EXTRA}.blind_control: {task.name} shows no pictures; {_LEAVE_OUT}"
    changes_text = set(given) - {"repeats", "blind_control"}
    if extra.confidence == LOGPROBS:
        changes_text.discard("confidence")
    is_custom = BENCHMARK_KEY in task.helm.parameters
    # HELM drops the media of an input when it makes a new text of it
    if task.helm.media and changes_text and not is_custom:
        yield (
            f"{_EXTRA}.{min(changes_text)}: asks with text alone, and {task.name} "
            f"has {task.helm.media}; {_LEAVE_OUT}"
        )
    for name in given:
        if name in NEED_SHORT_ANSWERS and not _has_short_answers(task):
            yield (
                f"{_EXTRA}.{name}: each answer of {task.name} is rated, not right or wrong; "
                f"{_LEAVE_OUT}"
            )
    yield from _wrong_confidence(evaluation, set(given) - {"confidence"})
    yield from _wrong_perturbations(evaluation)


def _wrong_perturbations(evaluation: Evaluation) -> Iterator[str]:
    """Yield what is wrong with the families of `perturb`."""
    task = evaluation.task
    extra = evaluation.extra
    if extra.perturb is None:
        return
    # imported here: few runs have `perturb`
    from eval_factory.tasks.perturbations import CHECKED_FAMILIES, FAMILIES, not_offered

    refused: dict[str, list[str]] = defaultdict(list)
    unchecked: list[str] = []
    for name in extra.perturb:
        if name not in FAMILIES:
            near = did_you_mean(name, list(FAMILIES)) or f"; there are {', '.join(FAMILIES)}"
            yield f"{_EXTRA}.perturb: no family is called {name!r}{near}"
        elif (why := not_offered(name, task.name)) is not None:
            refused[why].append(name)
        elif task.helm.media and name in ("gender", "race"):
            refused["its pictures may show the patient"].append(name)
        elif FAMILIES[name].unchecked and not extra.perturb_unchecked:
            unchecked.append(name)
    if unchecked:
        yield (
            f"{_EXTRA}.perturb: {', '.join(unchecked)}: a clinician has to read the changed "
            f"questions; {_EXTRA}.perturb_unchecked: true allows them "
            f"(checked: {', '.join(CHECKED_FAMILIES)})"
        )
    for why, names in refused.items():
        yield (
            f"{_EXTRA}.perturb: {', '.join(names)} may change the right answers of {task.name} "
            f"({why}); {_LEAVE_OUT}"
        )


def _cannot_reason(evaluation: Evaluation) -> Iterator[str]:
    """Yield why `answer_style: reasoned` makes no sense with this task or endpoint."""
    task = evaluation.task
    extra = evaluation.extra
    endpoint = evaluation.endpoint
    if extra.answer_style != REASONED:
        return
    path = f"{_EXTRA}.answer_style"
    if task.name in tasks_that_reason_already():
        yield f"{path}: {task.name} asks for reasoning already; {_LEAVE_OUT}"
    elif task.name not in reasoned_tasks():
        yield (
            f"{path}: {task.name} takes no {REASONED} ('eval-factory ls {task.name}' says which "
            f"tasks do); {_LEAVE_OUT}"
        )
    elif extra.num_train_trials is not None and not reasoned_tasks()[task.name].has_examples:
        yield (
            f"{_EXTRA}.num_train_trials: {REASONED} leaves the examples of {task.name} out "
            f"({reasoned_tasks()[task.name].why_left_out}); {_LEAVE_OUT}"
        )
    if endpoint.type != "chat":
        yield f"{path}: {REASONED} needs a chat endpoint, not {endpoint.type}; {_LEAVE_OUT}"
    if extra.confidence in (LOGPROBS, STATED_ONLY):
        yield f"{path}: cannot be used with confidence: {extra.confidence}; take {STATED}"


def _cannot_ask_for_letters(evaluation: Evaluation) -> Iterator[str]:
    """Yield why `ask_unread` makes no sense with this task."""
    task = evaluation.task
    extra = evaluation.extra
    helm = task.helm
    reads_options = helm.answer_labels or helm.option_texts is not None
    may_read_options = helm.any_run_spec or BENCHMARK_KEY in helm.parameters
    if extra.ask_unread and not reads_options and not may_read_options:
        yield (
            f"{_EXTRA}.ask_unread: the score of {task.name} does not depend on a chosen option; "
            f"{_LEAVE_OUT}"
        )
    if extra.ask_unread and extra.confidence == STATED_ONLY:
        yield f"{_EXTRA}.ask_unread: cannot be used with confidence: {STATED_ONLY}; take {STATED}"


def chance_questions_of(evaluation: Evaluation) -> int:
    """Return how many rightly answered questions are asked again in the same words.

    It is 0 with `repeats`, which measure the same, and for tasks whose answers judges rate.
    """
    extra = evaluation.extra
    loses_answers = any(getattr(extra, name) for name in KEYS_THAT_LOSE_ANSWERS)
    if not loses_answers or extra.repeats is not None or not _has_short_answers(evaluation.task):
        return 0
    return extra.chance_questions or 0


def _judges_cannot_see(evaluation: Evaluation) -> Iterator[str]:
    """Yield why `judges_see_images` makes no sense with this task."""
    task = evaluation.task
    if not evaluation.extra.judges_see_images:
        return
    if not task.helm.judges and not task.helm.prescribed_judges:
        yield f"{_EXTRA}.judges_see_images: {task.name} is not scored by judges; {_LEAVE_OUT}"
    elif _shows_no_pictures(evaluation):
        yield f"{_EXTRA}.judges_see_images: {task.name} shows no pictures; {_LEAVE_OUT}"


def _has_short_answers(task: Task) -> bool:
    """Return whether answers are right or wrong by themselves (a label, an option, a value, a
    query), so that no judge has to read them.
    """
    helm = task.helm
    if helm.judges or helm.prescribed_judges or helm.rubric:
        return False
    has_form = helm.answer_labels or helm.answer_form is not None or helm.option_texts is not None
    return bool(has_form) or helm.any_run_spec or BENCHMARK_KEY in helm.parameters


SCENARIO_PARAMETERS = (
    "data_path",
    "subject",
    "condition",
    "subset",
    "language",
    "category",
    "version",
)
"""Keys of params.extra that only mean something to the tasks that declare them."""

BENCHMARK_KEY = "benchmark"
"""The key of params.extra that names a custom benchmark; HELM reads a file made of it."""

_ROLES = {
    "openai": "gpt",
    "meta": "llama",
    "anthropic": "claude",
}
"""Organization -> the role of its judge, for the organizations of HELM's default judges."""

_NOT_IN_A_ROLE = re.compile(r"[^a-z0-9_-]+")
"""Characters that the name of a role cannot have."""


def with_task_rules(evaluation: Evaluation, problems: list[str]) -> Evaluation:
    """Return the evaluation with its task's values, and add to `problems` what the task forbids."""
    for check in _CHECKS:
        problems += check(evaluation)
    task = evaluation.task
    update: dict[str, Any] = _scenario_values(evaluation, problems)
    stop = evaluation.extra.stop_when
    if stop.differs_from is not None:
        absolute = os.path.abspath(stop.differs_from)
        update["stop_when"] = stop.model_copy(update={"differs_from": absolute})
    problems += _cannot_go_by_batch(evaluation)
    if update:
        evaluation = evaluation.with_extra(update)
    return replace(evaluation, sources=_real_names(task, evaluation.sources))


def _repeats_run_entry(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem for each setting that the run entry holds, too."""
    return duplicate_settings(evaluation.task, evaluation.params)


def _executes_answers(evaluation: Evaluation) -> Iterator[str]:
    """Yield why the task needs a permission that the run config does not give."""
    helm = evaluation.task.helm
    refused = refusal(helm.run_spec, helm.arguments)
    if refused is not None and not evaluation.extra.allow_code_execution:
        yield f"{WHERE}: {refused}"


def _wrong_with_metrics(evaluation: Evaluation) -> Iterator[str]:
    task = evaluation.task
    if evaluation.extra.metrics and not _takes_metrics(task):
        yield (
            f"{_EXTRA}.metrics: {task.name} takes no further metrics: its own file names them, "
            "or it has a rubric, options or no main metric"
        )


def _wrong_with_output_dir(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem if a run entry would hold the folder's path and the path holds a comma.

    HELM splits a run entry at commas and offers no way to quote one.
    """
    task = evaluation.task
    if "," not in os.path.abspath(evaluation.output_dir):
        return
    tasks = None
    if BENCHMARK_KEY in task.helm.parameters:
        tasks = "custom benchmarks"
    elif task.helm.judges:
        tasks = "a task with judges"
    if tasks is not None:
        yield f"config.output_dir: must not hold a comma for {tasks}: HELM ends a value at a comma"


def _wrong_with_endpoint(evaluation: Evaluation) -> Iterator[str]:
    task = evaluation.task
    endpoint = evaluation.endpoint
    if endpoint.type not in task.endpoint_types:
        yield (
            f"target.api_endpoint.type: {task.name} "
            f"runs on {' or '.join(task.endpoint_types)}, not on {endpoint.type}"
        )
    params = evaluation.params
    given = params.max_new_tokens
    given_in_extra = params.extra.num_output_tokens
    if given is not None and given_in_extra is not None and given != given_in_extra:
        yield (
            "config.params: max_new_tokens and extra.num_output_tokens are the same setting "
            f"and differ ({given} and {given_in_extra}); give one of them"
        )


WAITS_IN_JOB = (
    "a job would hold its node and only wait for batches, up to a day; leave out executor, or batch"
)


def _cannot_go_by_batch(evaluation: Evaluation) -> Iterator[str]:
    """Yield what excludes `batch`."""
    endpoint = evaluation.endpoint
    target = "target.api_endpoint"
    if endpoint.batch:
        yield from _no_batches_at(f"{target}.batch", endpoint.urls)
        if endpoint.type == IMAGES:
            yield f"{target}.batch: pictures are not made by batch; {_LEAVE_OUT}"
        if endpoint.adapter_config.use_nvcf:
            yield f"{target}.batch: a cloud function (use_nvcf) has no batches; {_LEAVE_OUT}"
    waits = bool(endpoint.batch)
    for judge in evaluation.extra.judges or []:
        if judge.batch:
            waits = True
            urls = urls_in(judge.url) or endpoint.urls
            yield from _no_batches_at(f"{_EXTRA}.judges.{judge.name}.batch", urls)
    if waits and not evaluation.executor.is_local:
        yield f"executor: {WAITS_IN_JOB}"


def _no_batches_at(path: str, urls: Sequence[str]) -> Iterator[str]:
    if len(urls) > 1:
        yield f"{path}: a batch goes to one URL, and {len(urls)} are named; {_LEAVE_OUT}"
    if urls[0].startswith(("demo:", "served:")):
        yield f"{path}: {urls[0]} has no batches; {_LEAVE_OUT}"


def _wrong_with_judges(evaluation: Evaluation) -> Iterator[str]:
    task = evaluation.task
    extra = evaluation.extra
    if extra.judges is not None and not task.helm.judges:
        roles = prescribed_roles(task.helm.prescribed_judges)
        if not roles:
            yield f"{_EXTRA}.judges: {task.name} is not scored by judges"
        for judge in extra.judges:
            if roles and judge.name not in roles:
                yield (
                    f"{_EXTRA}.judges: {task.name} has no judge {judge.name!r}; "
                    f"HELM prescribes {', '.join(roles)}"
                )
            elif judge.structured:
                yield (
                    f"{_EXTRA}.judges.{judge.name}.structured: {task.name} asks its judges "
                    "with HELM's own prompts, whose answers are not JSON; leave it out"
                )
    if extra.criteria_per_request is not None and not task.helm.rubric:
        yield f"{_EXTRA}.criteria_per_request: {task.name} is not scored by a rubric; leave it out"
    if extra.probe_judges and not task.helm.judges:
        yield (
            f"{_EXTRA}.probe_judges: {task.name} is not scored by judges that can be named; "
            "leave it out"
        )


def _takes_metrics(task: Task) -> bool:
    if BENCHMARK_KEY in task.helm.parameters or task.helm.rubric or task.helm.option_texts:
        return False
    return bool(task.helm.main_metrics) or not task.helm.any_run_spec


def _wrong_with_instances(evaluation: Evaluation) -> Iterator[str]:
    extra = evaluation.extra
    if extra.instances is not None:
        settings = {
            "limit_samples": _limits_instances(evaluation),
            "stop_when": bool(extra.stop_when.rules),
            "sample_seed": extra.sample_seed is not None,
        }
        excluded = []
        for name, is_set in settings.items():
            if is_set:
                excluded.append(name)
        if excluded:
            yield (
                f"{_EXTRA}.instances: names the instances to ask, so leave {', '.join(excluded)} "
                "out"
            )
    if extra.sample_seed is not None and not _limits_instances(evaluation):
        yield (
            f"{_EXTRA}.sample_seed: without limit_samples all instances are asked, "
            "and none are drawn; set config.params.limit_samples, or leave it out"
        )


def _wrong_with_kind(evaluation: Evaluation) -> Iterator[str]:
    """Yield a problem for each given key that only tasks with pictures, or with a rubric, take."""
    task = evaluation.task
    extra = evaluation.extra
    is_indexed = task.helm.indexed is not None
    if extra.max_image_side is not None and task.helm.media != IMAGES and is_indexed:
        yield f"{_EXTRA}.max_image_side: {task.name} shows no pictures; {_LEAVE_OUT}"
    if extra.keep_image_metadata and task.helm.media is None and is_indexed:
        yield f"{_EXTRA}.keep_image_metadata: {task.name} sends no files; {_LEAVE_OUT}"
    has_own_rubric = task.helm.rubric and task.helm.upstream is HELM
    if extra.judge_passport is not None and not has_own_rubric:
        yield (
            f"{_EXTRA}.judge_passport: a passport is of a judge that eval-factory's own prompt "
            f"asks about criteria, and {task.name} has none; leave it out"
        )


def _wrong_with_made_pictures(evaluation: Evaluation) -> Iterator[str]:
    """Yield settings of text given to a task that answers with pictures, and the other way
    round.
    """
    task = evaluation.task
    params = evaluation.params
    endpoint = evaluation.endpoint
    if not task.helm.makes_images:
        if params.extra.only_generate:
            yield (
                f"{_EXTRA}.only_generate: the answers of {task.name} are not pictures; {_LEAVE_OUT}"
            )
        return
    if endpoint.is_demo:
        yield f"target.api_endpoint.url: {endpoint.url} makes no pictures"
    text_settings: dict[str, Any] = {}
    for name in ("max_new_tokens", "temperature", "top_p"):
        text_settings[name] = getattr(params, name)
    for name in ("num_output_tokens", "max_length", *ASKED_AGAIN_BY, *ASKED_AGAIN_IF):
        text_settings[f"extra.{name}"] = getattr(params.extra, name)
    text_settings["extra.stop_when"] = params.extra.stop_when.rules
    for name, value in text_settings.items():
        if value not in (None, False, {}):
            yield (
                f"config.params.{name}: is for answers in text, and the answers of {task.name} "
                f"are pictures; {_LEAVE_OUT}"
            )


def _wrong_with_stop_when(evaluation: Evaluation) -> Iterator[str]:
    """Yield what is wrong with `stop_when`, and which settings it excludes."""
    task = evaluation.task
    params = evaluation.params
    path = f"{_EXTRA}.stop_when"
    stop = params.extra.stop_when
    limit = params.limit_samples
    rules = stop.rules
    if not rules:
        usual = evaluation.framework.defaults.config["params"]["extra"]["stop_when"]
        if stop.model_dump() != usual:
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
            "valid at one look only"
        )
    askings = (*ASKED_AGAIN_BY, *ASKED_AGAIN_IF)
    names = []
    for name in askings:
        if getattr(params.extra, name):
            names.append(name)
    if names:
        yield (
            f"{path}: cannot be used with {', '.join(names)}: the intervals of questions that "
            "are asked again are valid at one look only"
        )
    if "max_eval_instances" in task.helm.arguments:
        yield (
            f"{path}: HELM would apply max_eval_instances at each look; write "
            "config.params.limit_samples instead"
        )
    if limit is not None and limit <= stop.first:
        yield (
            f"{path}.first: the first look would ask {stop.first} of at most {limit} instances "
            "(limit_samples), so there would be no second look; give a smaller number"
        )
    if stop.beats_floor and task.helm.judges and not params.extra.probe_judges:
        yield (
            f"{path}.beats_floor: the best score without a model is not known where judges "
            f"score; set {_EXTRA}.probe_judges: true, too"
        )


def _limits_instances(evaluation: Evaluation) -> bool:
    limit = evaluation.params.limit_samples
    return limit is not None or "max_eval_instances" in evaluation.task.helm.arguments


def _real_names(task: Task, sources: ValueSources) -> ValueSources:
    """Return the sources with each parameter under its first name.

    A value given by a parameter's other name was moved to the first name; so is its source.
    """
    not_given = (None, Source.FRAMEWORK, Source.TASK)
    moved = dict(sources)
    for name, rule in task.helm.parameters.items():
        first_path = f"{_EXTRA}.{name}"
        other_path = f"{_EXTRA}.{rule.other_name}"
        if rule.other_name is None or moved.get(other_path) in not_given:
            continue
        source = moved.pop(other_path)
        if moved.get(first_path) in not_given:
            moved[first_path] = source
    return moved


def prescribed_roles(deployments: Sequence[str]) -> dict[str, str]:
    """Return the deployments of the judges that HELM's annotators name themselves, by role.

    A judge whose role is taken already has its model's name as its role.
    """
    roles: dict[str, str] = {}
    for deployment in dict.fromkeys(deployments):
        organization, slash, model = deployment.partition("/")
        if slash:
            family = next((role for role in _ROLES.values() if model.startswith(role)), None)
            role = family or _ROLES.get(organization, organization)
            if role in roles:
                role = _NOT_IN_A_ROLE.sub("-", model.lower())
            roles[role] = deployment
    return roles


def _by_first_name(evaluation: Evaluation, problems: list[str]) -> dict[str, str | None]:
    """Return the values that were given by a parameter's other name, under its first name."""
    task = evaluation.task
    extra = evaluation.extra
    update: dict[str, str | None] = {}
    for name, rule in task.helm.parameters.items():
        if rule.other_name is None or getattr(extra, rule.other_name) is None:
            continue
        given = getattr(extra, name)
        other_value = getattr(extra, rule.other_name)
        if given not in (None, other_value):
            problems.append(
                f"{_EXTRA}: {name} and {rule.other_name} are the same setting of {task.name} "
                f"and differ ({given} and {other_value}); give one of them"
            )
        update[name] = given
        if given is None:
            update[name] = other_value
        update[rule.other_name] = None
    return update


def _scenario_values(evaluation: Evaluation, problems: list[str]) -> dict[str, str | None]:
    """Return the scenario's parameters that differ from what is given, and add what is wrong."""
    task = evaluation.task
    update = _by_first_name(evaluation, problems)
    extra = evaluation.extra.model_copy(update=update)
    for name in (*SCENARIO_PARAMETERS, BENCHMARK_KEY):
        value = getattr(extra, name)
        rule = task.helm.parameters.get(name)
        path = f"{_EXTRA}.{name}"
        if rule is None:
            if value is not None:
                problems.append(f"{path}: {_no_such_parameter(evaluation, name, value)}")
        elif rule.fixed is not None:
            if value not in (None, rule.fixed):
                problems.append(f"{path}: {task.name} is {name}={rule.fixed}, got {value!r}")
            update[name] = rule.fixed
        elif value is None:
            if rule.required:
                may_be = f"'eval-factory ls {task.name}' says what the file or folder has to hold"
                if rule.allowed:
                    may_be = f"one of {', '.join(rule.allowed)}"
                problems.append(f"{path}: is missing; {task.name} needs it: {may_be}")
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
    task = evaluation.task
    if task.helm.any_run_spec:
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


@dataclass(frozen=True)
class OwnData:
    """The user's files that a run reads.

    Attributes:
        key_path: the key of the run config that names them.
        path: a file, or a folder with the files.
        layout: the form that each of them has to have.
        values: the parameters that stand in the names of the files.
    """

    key_path: str
    path: Path
    layout: tuple[FileLayout, ...]
    values: Mapping[str, str | None]


def own_data_of(evaluation: Evaluation) -> OwnData | None:
    """Return the user's files that the run reads; None if the task reads none."""
    task = evaluation.task
    extra = evaluation.extra
    if task.helm.any_run_spec:
        return _data_of_run_entry(task, evaluation.framework)
    rule = task.helm.parameters.get(DATA_PATH)
    if rule is None or extra.data_path is None:
        return None
    values = {"subject": extra.subject, "condition": extra.condition}
    return OwnData(f"{_EXTRA}.{DATA_PATH}", Path(extra.data_path), rule.layout, values)


def _data_of_run_entry(task: Task, framework: Framework) -> OwnData | None:
    """Return the files that an argument of the run entry names."""
    for name, path in task.helm.arguments.items():
        if name in PATH_PARAMETERS:
            layout = _layout_of_run_spec(task.helm.run_spec, name, framework)
            return OwnData(f"{WHERE}: {name}", Path(path), layout, task.helm.arguments)
    return None


def _layout_of_run_spec(
    run_spec: str | None, name: str, framework: Framework
) -> tuple[FileLayout, ...]:
    """Return the layout that a task of framework.yml with this run spec states for a parameter."""
    for candidate in framework.evaluations:
        if candidate.helm.run_spec == run_spec and name in candidate.helm.parameters:
            return candidate.helm.parameters[name].layout
    return (FileLayout(),)


def data_faults(evaluation: Evaluation) -> list[str]:
    """Return which of the user's files are missing or have another form, and then the right form.

    The lines are one message: the first begins with the key, the others follow it.
    """
    own_data = own_data_of(evaluation)
    if own_data is None or all(entry == FileLayout() for entry in own_data.layout):
        return []
    from eval_factory.tasks.own_data import described_layout, faults

    data_problems = faults(own_data.layout, own_data.path, own_data.values)
    if not data_problems:
        return []
    first, *others = data_problems
    lines = [f"{own_data.key_path}: {first}", *others, f"{evaluation.task.name} needs:"]
    for line in described_layout(own_data.layout, own_data.values):
        lines.append(f"  {line}")
    return lines


_CHECKS: tuple[Callable[[Evaluation], Iterator[str]], ...] = (
    _wrong_with_endpoint,
    _repeats_run_entry,
    _executes_answers,
    _wrong_with_judges,
    _wrong_with_metrics,
    _judges_cannot_see,
    _wrong_with_instances,
    _wrong_with_stop_when,
    _wrong_with_kind,
    _wrong_with_made_pictures,
    _cannot_be_shuffled,
    _cannot_be_asked_again,
    _cannot_reason,
    _cannot_ask_for_letters,
    _wrong_with_output_dir,
)
"""The checks of a run against its task, in the order of their problems. Each yields problems."""
