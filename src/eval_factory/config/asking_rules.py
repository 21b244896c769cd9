"""Checks the keys that change how questions are asked: again, in another order, or with reasoning.

For example, a key may need a task with short answers, or cannot be used together with another key.
The `..._problems` functions yield messages for the user, for `with_task_rules` in `rules.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from eval_factory.config.model import EXTRA_PATH
from eval_factory.config.resolved import Evaluation
from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.asking_forms import (
    ASKING_KEYS,
    KEYS_FOR_SHORT_ANSWERS,
    KEYS_THAT_LOSE_ANSWERS,
    LOGPROBS,
    STATED,
    STATED_ONLY,
)
from eval_factory.tasks.framework import BENCHMARK_KEY, Task
from eval_factory.tasks.reasoned import (
    REASONED_STYLE,
    reasoned_tasks,
    tasks_that_reason_already,
)
from eval_factory.tasks.run_specs import IMAGES

# HELM's method of asking multiple-choice questions, unless a run entry names another method
_JOINT = "multiple_choice_joint"
BY_PLACE = "by place"
"""A value of `HelmEntry.letter_meaning`: a letter only states the position of an option, so the
options can be reordered.
"""
KEYS_THAT_CHANGE_CHOICES = ("shuffle_choices", "options_only", "none_of_the_others")
"""Keys of params.extra that need a task in which HELM puts the letters before the options."""


def choice_order_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of the keys in `KEYS_THAT_CHANGE_CHOICES` that the run config sets."""
    for name in KEYS_THAT_CHANGE_CHOICES:
        if getattr(evaluation.extra, name):
            yield from _problems_of_changing_choices(evaluation.task, f"{EXTRA_PATH}.{name}")


def _problems_of_changing_choices(task: Task, path: str) -> Iterator[str]:
    """Yield a problem if the options of a task cannot be reordered or replaced.

    `path` is the path of the key that would change the options.
    """
    letter_meaning = task.helm.letter_meaning
    arguments = task.helm.arguments
    method = arguments.get("method", _JOINT)
    if letter_meaning is None:
        yield (f"{path}: HELM does not put letters before the options of {task.name}; leave it out")
    elif letter_meaning != BY_PLACE:
        yield (
            f"{path}: the instructions of {task.name} say what each letter stands for (A for "
            f"yes, B for no), so the order of its options cannot change; leave it out"
        )
    elif method != _JOINT:
        yield (
            f"{path}: with method={method} the options are not shown together; leave it out, "
            "or the method"
        )
    elif "data_augmentation" in arguments:
        yield (
            f"{path}: cannot be used with data_augmentation, which changes the questions in "
            f"another way; leave it out"
        )


def _confidence_problems(evaluation: Evaluation, other_keys: Collection[str]) -> Iterator[str]:
    """Yield the problems of `confidence`, the way to get the model's confidence in its answer.

    With `STATED`, a further turn asks for the confidence. With `STATED_ONLY`, one prompt asks for
    the answer and the confidence. With `LOGPROBS`, the confidence is computed from the log
    probabilities of the answer.

    Args:
        evaluation: the evaluation to check.
        other_keys: the other keys in the run config that ask questions again.
    """
    task = evaluation.task
    extra = evaluation.extra
    if extra.confidence == STATED_ONLY and other_keys:
        names = ", ".join(sorted(other_keys))
        yield (
            f"{EXTRA_PATH}.confidence: {STATED_ONLY} cannot be used with {names} (each of those "
            f"answers would hold a confidence too); take {STATED}"
        )
    if extra.confidence == STATED_ONLY and BENCHMARK_KEY in task.helm.parameters:
        # Imported late, because few runs are of a custom benchmark.
        from eval_factory.tasks.conversations import CONVERSATION_RUN_SPEC

        if task.helm.run_spec == CONVERSATION_RUN_SPEC:
            yield (
                f"{EXTRA_PATH}.confidence: {STATED_ONLY} changes the instructions of a prompt, and "
                f"conversations have none; take {STATED}"
            )
    adapter = evaluation.endpoint.adapter_config
    changed_parameters = {*adapter.params_to_add, *adapter.params_to_remove}
    if extra.confidence == LOGPROBS and "logprobs" in changed_parameters:
        yield (
            f"{EXTRA_PATH}.confidence: logprobs asks for log probabilities itself; leave logprobs "
            "out of target.api_endpoint.adapter_config"
        )


def shows_no_pictures(evaluation: Evaluation) -> bool:
    """Return True if the task is known to show no pictures.

    Return False for a custom benchmark that could not be read: its data may name pictures.
    """
    helm = evaluation.task.helm
    is_unread = BENCHMARK_KEY in helm.parameters and evaluation.benchmark is None
    return helm.media != IMAGES and not is_unread


def asked_again_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of the keys that ask questions again."""
    task = evaluation.task
    extra = evaluation.extra
    keys = keys_that_ask_again(evaluation)
    if keys and "data_augmentation" in task.helm.arguments:
        yield (
            f"{EXTRA_PATH}.{keys[0]}: cannot be used with data_augmentation, which changes the "
            "questions in another way"
        )
    if extra.blind_control and shows_no_pictures(evaluation):
        yield f"{EXTRA_PATH}.blind_control: {task.name} shows no pictures; leave it out"
    yield from _lost_media_problems(evaluation, keys)
    for key in keys:
        if key in KEYS_FOR_SHORT_ANSWERS and not _has_short_answers(task):
            yield (
                f"{EXTRA_PATH}.{key}: each answer of {task.name} is rated, not right or wrong; "
                "leave it out"
            )
    yield from _confidence_problems(evaluation, set(keys) - {"confidence"})
    yield from _perturbation_problems(evaluation)


def keys_that_ask_again(evaluation: Evaluation) -> list[str]:
    """Return the keys of params.extra that are set and ask questions again."""
    keys = []
    for key in ASKING_KEYS:
        if getattr(evaluation.extra, key):
            keys.append(key)
    return keys


def _lost_media_problems(evaluation: Evaluation, keys: Collection[str]) -> Iterator[str]:
    """Yield a problem if a key would ask questions again without their pictures or other media.

    HELM drops the media of an input if the text of the input is changed. A custom benchmark marks
    the positions of its pictures in the text, so its pictures are sent with a changed text too.
    """
    task = evaluation.task
    is_custom = BENCHMARK_KEY in task.helm.parameters
    # These two keys ask with the text of the question as it is.
    text_changing_keys = set(keys) - {"repeats", "blind_control"}
    if evaluation.extra.confidence == LOGPROBS:  # Log probabilities come with the first answer.
        text_changing_keys.discard("confidence")
    if task.helm.media and text_changing_keys and not is_custom:
        first_key = min(text_changing_keys)  # A set has no order, and the message must not vary.
        yield (
            f"{EXTRA_PATH}.{first_key}: asks with text alone, and {task.name} "
            f"has {task.helm.media}; leave it out"
        )


def _perturbation_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the problems of the families in `perturb`."""
    task = evaluation.task
    extra = evaluation.extra
    if extra.perturb is None:
        return
    # Imported late, because few runs have `perturb`.
    from eval_factory.tasks.perturbations import CHECKED_FAMILIES, FAMILIES, why_not_offered

    refused: dict[str, list[str]] = defaultdict(list)  # the reason -> the refused families
    unchecked: list[str] = []  # the families whose changed questions no clinician has read
    for name in extra.perturb:
        if name not in FAMILIES:
            hint = did_you_mean(name, list(FAMILIES)) or f"; there are {', '.join(FAMILIES)}"
            yield f"{EXTRA_PATH}.perturb: no family is called {name!r}{hint}"
            continue
        why = why_not_offered(name, task.name)
        if why is not None:
            refused[why].append(name)
        elif task.helm.media and name in ("gender", "race"):
            refused["its pictures may show the patient"].append(name)
        elif FAMILIES[name].unchecked and not extra.perturb_unchecked:
            unchecked.append(name)
    if unchecked:
        yield (
            f"{EXTRA_PATH}.perturb: {', '.join(unchecked)}: a clinician has to read the changed "
            f"questions; {EXTRA_PATH}.perturb_unchecked: true allows them "
            f"(checked: {', '.join(CHECKED_FAMILIES)})"
        )
    for why, names in refused.items():
        yield (
            f"{EXTRA_PATH}.perturb: {', '.join(names)} may change the right answers of {task.name} "
            f"({why}); leave it out"
        )


def reasoning_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the reasons why `answer_style: reasoned` does not fit the task or other settings."""
    task = evaluation.task
    extra = evaluation.extra
    endpoint = evaluation.endpoint
    if extra.answer_style != REASONED_STYLE:
        return
    path = f"{EXTRA_PATH}.answer_style"
    if task.name in tasks_that_reason_already():
        yield f"{path}: {task.name} asks for reasoning already; leave it out"
    elif task.name not in reasoned_tasks():
        yield (
            f"{path}: {task.name} does not support {REASONED_STYLE} ('eval-factory ls {task.name}' "
            f"says which tasks do); leave it out"
        )
    elif extra.num_train_trials is not None and not reasoned_tasks()[task.name].keeps_examples:
        yield (
            f"{EXTRA_PATH}.num_train_trials: {REASONED_STYLE} leaves the examples of {task.name} "
            f"out ({reasoned_tasks()[task.name].why_examples_left_out}); leave it out"
        )
    if endpoint.type != "chat":
        yield f"{path}: {REASONED_STYLE} needs a chat endpoint, not {endpoint.type}; leave it out"
    if extra.confidence in (LOGPROBS, STATED_ONLY):
        yield f"{path}: cannot be used with confidence: {extra.confidence}; take {STATED}"


def ask_unread_problems(evaluation: Evaluation) -> Iterator[str]:
    """Yield the reasons why `ask_unread` does not fit the task or the other keys.

    With `ask_unread`, a question is asked again if no option can be read in its answer.
    """
    task = evaluation.task
    extra = evaluation.extra
    helm = task.helm
    has_options = helm.answer_labels or helm.letter_meaning is not None
    # The answers of a run entry or a custom benchmark are not known here.
    may_have_options = helm.is_run_entry or BENCHMARK_KEY in helm.parameters
    if extra.ask_unread and not has_options and not may_have_options:
        yield (
            f"{EXTRA_PATH}.ask_unread: the score of {task.name} does not depend on a chosen "
            "option; leave it out"
        )
    if extra.ask_unread and extra.confidence == STATED_ONLY:
        yield (
            f"{EXTRA_PATH}.ask_unread: cannot be used with confidence: {STATED_ONLY}; take {STATED}"
        )


def chance_questions_of(evaluation: Evaluation) -> int:
    """Return the maximum number of rightly answered questions to ask again in the same words.

    The number is 0 if no key is set that can lose right answers, or if judges rate the answers. It
    is also 0 with `repeats`, because `repeats` measure the same effect of chance.
    """
    extra = evaluation.extra
    can_lose_answers = any(getattr(extra, key) for key in KEYS_THAT_LOSE_ANSWERS)
    if not can_lose_answers:
        return 0
    if extra.repeats is not None:
        return 0
    if not _has_short_answers(evaluation.task):
        return 0
    return extra.chance_questions or 0


def _has_short_answers(task: Task) -> bool:
    """Return True if an answer is right or wrong without a judge.

    Such an answer is a label, an option, a value or a query. Also return True for a run entry or a
    custom benchmark without judges: the form of its answers is not known here.
    """
    helm = task.helm
    if helm.judges or helm.prescribed_judges or helm.rubric:
        return False
    has_form = helm.answer_labels or helm.answer_form is not None or helm.letter_meaning is not None
    return bool(has_form) or helm.is_run_entry or BENCHMARK_KEY in helm.parameters
