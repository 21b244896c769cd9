"""Makes HELM ask questions again in other forms, ask further turns after answers, and compute more
metrics.

A run entry may hold `repeats=3,perturb=typos+units,pushback=2,confidence=stated,cost_of_wrong=1.0`.
Each of these options has an expander, which changes the run spec. Most expanders add perturbations.
`tasks/asking_forms.py` defines the names and the texts of the further askings.

`AskingWhatFollows` wraps HELM's executor. It asks a further turn (a doubt, a question about the
confidence or about the letter of the chosen option) after the answer has arrived. All questions of
one depth are asked together: first every question in its original form and in all other forms, then
the first further turn of each question. Replies about the confidence or the letter go into files of
eval-factory, because no metric of HELM reads these replies. With `extra.blind_control` the same
questions are also asked with other pictures: grey pictures, or the pictures of another question.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.adapter_spec import (
    ADAPT_CHAT,
    ADAPT_MULTIPLE_CHOICE_JOINT,
    AdapterSpec,
)
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.augmentations.data_augmenter import DataAugmenterSpec
from helm.benchmark.augmentations.perturbation import Perturbation, PerturbationSpec
from helm.benchmark.metrics.common_metric_specs import get_basic_generation_metric_specs
from helm.benchmark.run_expander import RUN_EXPANDERS, RunExpander
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import Input, Instance, Output, Reference
from helm.common.media_object import MediaObject, MultimediaObject
from helm.common.request import GeneratedOutput, RequestResult

from eval_factory.core.safe_files import write_atomic
from eval_factory.endpoint.media import FILE_MARK
from eval_factory.helm import names
from eval_factory.tasks import asking_forms
from eval_factory.tasks.choice_question import (
    NONE_OF_THE_OTHERS,
    may_lose_its_right_option,
    options_shown,
)
from eval_factory.tasks.reasoned import MAX_TOKENS, reasoned_tasks
from eval_factory.tasks.rubric_case import ANSWER


class SameInput(Input):  # type: ignore[misc]
    """An input with the original text that does not compare equal to the original input.

    HELM drops a perturbed instance whose input equals the original input. An instance with this
    input is not dropped, because objects of two different dataclasses are never equal.
    """


def same_input(instance: Instance) -> SameInput:
    """Return the instance's input in a form that HELM does not drop from a perturbed instance."""
    original = instance.input
    return SameInput(original.text, original.multimedia_content, original.messages)


def with_more_askings(run_spec: RunSpec, specs: Sequence[PerturbationSpec]) -> RunSpec:
    """Return the run spec with these perturbations added to its earlier perturbations.

    Raises:
        ValueError: the run spec has perturbations that are not eval-factory's.
    """
    earlier_specs = run_spec.data_augmenter_spec.perturbation_specs
    if any(not spec.class_name.startswith(f"{__package__}.") for spec in earlier_specs):
        raise ValueError(
            "data_augmentation cannot be used with keys that ask questions again; "
            f"{run_spec.name} has both"
        )
    augmented = DataAugmenterSpec(
        perturbation_specs=[*earlier_specs, *specs],
        should_augment_eval_instances=True,
        should_include_original_eval=True,
        should_skip_unchanged_eval=True,
    )
    return replace(run_spec, data_augmenter_spec=augmented)


class AsItIs(Perturbation):  # type: ignore[misc]
    """A perturbation that leaves the question unchanged.

    The question is asked again for another draw, for which the request's `random` differs; with
    other pictures; or for a further turn after the answer.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    # No perturbation of this module uses the seed that HELM passes: random choices depend on the
    # instance's id.
    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        return replace(instance, input=same_input(instance), perturbation=self.description)


class WithOtherWords(AsItIs):
    """A perturbation that words the question differently, by a family of `tasks/perturbations.py`.

    A question that the family does not change is not asked again, because HELM skips unchanged
    instances.
    """

    def __init__(self, family: str) -> None:
        super().__init__(asking_forms.PERTURB + family)
        self._family = family

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        # Imported late, because few runs have `perturb`.
        from eval_factory.tasks.perturbations import perturbed

        # The text may lack the choices, and words in the choices can forbid a change too.
        choices = "\n".join(reference.output.text for reference in instance.references)
        changed = _with_changed_text(
            instance.input, lambda text: perturbed(self._family, text, str(instance.id), choices)
        )
        if changed is None:
            return instance
        return replace(instance, input=changed, perturbation=self.description)


class MayAbstain(AsItIs):
    """A perturbation that allows the answer "I do not know", and states the cost of a wrong answer.

    A question with options gets "I do not know" as one more option.
    """

    def __init__(self, cost_of_wrong: float, *, has_options: bool) -> None:
        super().__init__(asking_forms.ABSTAIN)
        self._instruction = asking_forms.may_abstain_text(cost_of_wrong)
        self._has_options = has_options

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        changed = _with_changed_text(
            instance.input, lambda text: f"{text.rstrip()}\n{self._instruction}"
        )
        references = list(instance.references)
        if self._has_options:
            # Without tags, the option is not a right answer for HELM.
            references.append(Reference(Output(text=asking_forms.ABSTENTION), tags=[]))
        return replace(
            instance, input=changed, references=references, perturbation=self.description
        )


class OptionsOnly(AsItIs):
    """A perturbation that shows the choices of a question, and a fixed sentence as its text."""

    def __init__(self) -> None:
        super().__init__(asking_forms.OPTIONS_ONLY)

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        changed = _with_changed_text(instance.input, lambda _text: asking_forms.QUESTION_NOT_SHOWN)
        return replace(instance, input=changed, perturbation=self.description)


class NoneOfTheOthers(AsItIs):
    """A perturbation that replaces the right choice by "none of the others".

    A question stays unchanged, and is not asked again, unless it has exactly one right choice and
    "none of the others" would be right in the place of this choice.
    """

    def __init__(self) -> None:
        super().__init__(asking_forms.NONE_OF_THE_OTHERS)

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        choices = [reference.output.text for reference in instance.references]
        right = [reference for reference in instance.references if reference.is_correct]
        text = instance.input.text
        if len(right) != 1 or not may_lose_its_right_option(text, choices):
            return instance
        references = []
        for reference in instance.references:
            if reference.is_correct:
                reference = replace(reference, output=Output(text=NONE_OF_THE_OTHERS))
            references.append(reference)
        return replace(
            instance,
            input=same_input(instance),
            references=references,
            perturbation=self.description,
        )


def _with_changed_text(original: Input, change: Callable[[str], str | None]) -> Input | None:
    """Return a copy of the input with changed text; None if `change` returns None.

    In a conversation, the text of the last turn is changed. The copy is a plain `Input`, because
    some scenarios use subclasses that cannot be constructed from a text.
    """
    if not original.messages:
        text = change(original.text)
        if text is None:
            return None
        return Input(text, original.multimedia_content)
    *earlier, last = original.messages
    text = change(str(last["content"]))
    turns = [*earlier, {**last, "content": text}]
    if text is None:
        return None
    return Input(messages=turns, multimedia_content=original.multimedia_content)


def spec_of(kind: type, **args: Any) -> PerturbationSpec:
    """Return the spec by which HELM constructs a perturbation of this class."""
    return PerturbationSpec(class_name=f"{kind.__module__}.{kind.__qualname__}", args=args)


def _adapter_with_confidence(adapter: AdapterSpec) -> AdapterSpec:
    """Return an adapter whose prompt asks for the answer and the confidence together.

    Raises:
        ValueError: the adapter is HELM's adapter for chats, which sends no instructions.
    """
    if adapter.method == ADAPT_CHAT:
        raise ValueError(
            f"extra.confidence: {asking_forms.STATED_ONLY} changes the instructions of a prompt, "
            "and this run spec sends no instructions"
        )
    parts = (adapter.instructions.strip(), asking_forms.ANSWER_WITH_CONFIDENCE)
    instructions = "\n".join(filter(None, parts)) + "\n"
    tokens = adapter.max_tokens + asking_forms.CONFIDENCE_TOKENS
    # A stop sequence such as a line break could end the output before the confidence.
    return replace(adapter, instructions=instructions, max_tokens=tokens, stop_sequences=[])


def _abstention_specs(run_spec: RunSpec, cost: str) -> list[PerturbationSpec]:
    """Return a list with the spec of `MayAbstain`; `cost` is the value of `cost_of_wrong`."""
    has_options = run_spec.adapter_spec.method == ADAPT_MULTIPLE_CHOICE_JOINT
    return [spec_of(MayAbstain, cost_of_wrong=float(cost), has_options=has_options)]


def register_expander(option: str, expand: Callable[[RunSpec, str], RunSpec]) -> None:
    """Register the function that expands `option=value` in a run entry.

    Args:
        option: the name of the option.
        expand: the function. Its arguments are a run spec and the option's value, and it returns
            the changed run spec.
    """

    class Expander(RunExpander):  # type: ignore[misc]
        name = option

        def __init__(self, value: Any) -> None:
            self._value = str(value)

        def expand(self, run_spec: RunSpec) -> list[RunSpec]:
            return [expand(run_spec, self._value)]

    RUN_EXPANDERS[option] = Expander


def _with_more_metrics(run_spec: RunSpec, value: str) -> RunSpec:
    """Expand `more_metrics=rouge_l+f1_score`: add HELM's metrics for free-text answers to a run.

    A metric that the run already has is not added again.

    Raises:
        ValueError: the questions of the run have options.
    """
    # HELM's f1_score raises an error for an answer that names no option.
    if "multiple_choice" in run_spec.adapter_spec.method:
        raise ValueError(f"extra.metrics: {run_spec.name} has options")
    metrics = list(run_spec.metric_specs)
    present = set()
    for metric in metrics:
        present.update(metric.args.get("names", ()))
        # SummarizationMetric computes rouge_l too, although its arguments do not name rouge_l.
        if metric.class_name.endswith(".SummarizationMetric"):
            present.add("rouge_l")
    new = [name for name in value.split("+") if name not in present]
    if new:
        metrics += get_basic_generation_metric_specs(new)
    return replace(run_spec, metric_specs=metrics)


def _with_confidence_asked(run_spec: RunSpec, form: str) -> RunSpec:
    """Return a run spec that asks for the confidence: in the same prompt, or in a further turn.

    `form` is a value of `extra.confidence`: `stated_only` for the same prompt, else `stated`.

    Raises:
        ValueError: the run spec cannot ask in this form.
    """
    if form == asking_forms.STATED_ONLY:
        return replace(run_spec, adapter_spec=_adapter_with_confidence(run_spec.adapter_spec))
    return with_more_askings(run_spec, [spec_of(AsItIs, name=asking_forms.CONFIDENCE)])


def _register_askings(option: str, specs: Callable[[RunSpec, str], list[PerturbationSpec]]) -> None:
    """Register an option that adds perturbations; `specs` returns the perturbations' specs."""
    register_expander(
        option, lambda run_spec, value: with_more_askings(run_spec, specs(run_spec, value))
    )


def _with_reasoning(run_spec: RunSpec, task: str) -> RunSpec:
    """Return a run spec that asks for reasoning and then a last line with the answer.

    `task` is the name of the run's task in the table of reasoned tasks.

    Raises:
        ValueError: the benchmark's instructions differ from the instructions that eval-factory's
            table of reasoned tasks knows.
    """
    entry = reasoned_tasks()[task]
    original = run_spec.adapter_spec
    adapter = replace(
        original,
        instructions=entry.instructions(original.instructions),
        output_prefix=entry.request,
        max_tokens=MAX_TOKENS,
        stop_sequences=[],
        max_train_instances=original.max_train_instances if entry.has_examples else 0,
    )
    return replace(run_spec, adapter_spec=adapter)


register_expander("answer_style", _with_reasoning)
register_expander("more_metrics", _with_more_metrics)
register_expander("confidence", _with_confidence_asked)
_register_askings("cost_of_wrong", _abstention_specs)
# The original question is the first draw, so the repeats begin with draw 2.
_register_askings(
    "repeats",
    lambda _, count: [
        spec_of(AsItIs, name=f"{asking_forms.REPEAT}{draw}") for draw in range(2, int(count) + 1)
    ],
)
_register_askings(
    "perturb", lambda _, names: [spec_of(WithOtherWords, family=name) for name in names.split("+")]
)
_register_askings(
    "pushback",
    lambda _, count: [
        spec_of(AsItIs, name=f"{asking_forms.PUSHBACK}{turn}") for turn in range(1, int(count) + 1)
    ],
)
_register_askings("options_only", lambda *_: [spec_of(OptionsOnly)])
_register_askings("none_of_the_others", lambda *_: [spec_of(NoneOfTheOthers)])
_register_askings("ask_unread", lambda *_: [spec_of(AsItIs, name=asking_forms.ASK_LETTER)])
# A single asking. Its name states the maximum number of questions that are asked again; see
# `chance_repeats`.
_register_askings(
    "chance_questions", lambda _, count: [spec_of(AsItIs, name=f"{asking_forms.SAME_WORDS}{count}")]
)
_register_askings(
    "blind_control",
    lambda *_: [
        spec_of(AsItIs, name=asking_forms.BLIND + kind) for kind in asking_forms.BLIND_WITH
    ],
)


GREY = 128  # the grey level of a blank picture, from 0 (black) to 255 (white)
NO_ANSWER = "(no answer)"
"""The text that replaces an empty answer in a conversation: many endpoints refuse an empty turn."""

_Key = tuple[str, int, str]
"""The instance id, the train trial index, and the name of the asking, which is empty for the
original question.
"""


def answer_in_data(state: RequestState) -> str | None:
    """Return the answer that the data hold for the question; None if the data hold no answer."""
    answer: str | None = (state.instance.extra_data or {}).get(ANSWER)
    return answer


def answered(text: str) -> RequestResult:
    """Return a successful result of HELM with this text as the model's answer."""
    output = GeneratedOutput(text, 0, [], finish_reason={"reason": "stop"})
    return RequestResult(True, [], [output], cached=True, request_time=0)


class AskingWhatFollows:
    """A wrapper of HELM's executor that also asks the further turns.

    A run without further askings is executed by HELM's executor alone. If the data hold all answers
    (`has_answers`), no model is asked. The caller has to state `has_answers`. An instance with the
    key `ANSWER` does not prove it, because a column of a user's table may have this name too.
    """

    def __init__(self, inner: Any, output_path: Path, *, has_answers: bool = False) -> None:
        self._inner = inner
        self._has_answers = has_answers
        self.execution_spec = inner.execution_spec
        self._output_path = output_path

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        """Return the scenario state with the answers that HELM scores.

        Replies about the confidence or the letter are written to files and are not returned. A
        question that was not asked, because its asking was not needed, is not returned either.
        """
        if self._has_answers:
            return replace(scenario_state, request_states=self._from_data(scenario_state))
        if any(state.instance.input.multimedia_content for state in scenario_state.request_states):
            states = [sent_with_text(state) for state in scenario_state.request_states]
            scenario_state = replace(scenario_state, request_states=states)
        # `confidence: stated_only`: each output holds the answer and the confidence.
        if asking_forms.ANSWER_WITH_CONFIDENCE in scenario_state.adapter_spec.instructions:
            executed = self._inner.execute(scenario_state)
            file = self._output_path / names.CONFIDENCE_FILE
            write_replies(
                file, executed.request_states, lambda text: asking_forms.split_confidence(text)[1]
            )
            without_confidence = [with_answer_alone(state) for state in executed.request_states]
            return replace(executed, request_states=without_confidence)
        if not any(
            asking_forms.is_asked_again(_asking_name(state))
            for state in scenario_state.request_states
        ):
            return self._inner.execute(scenario_state)
        answered_by_key = self._answered_by_key(scenario_state)
        answered_states = []  # in HELM's order
        for state in scenario_state.request_states:
            if _key(state) in answered_by_key:
                answered_states.append(answered_by_key[_key(state)])
        for name, file_name in REPLY_FILES.items():
            if any(_asking_name(state) == name for state in scenario_state.request_states):
                replies = [state for state in answered_states if _asking_name(state) == name]
                write_replies(self._output_path / file_name, replies)
        scored = [state for state in answered_states if _asking_name(state) not in REPLY_FILES]
        return replace(scenario_state, request_states=scored)

    def _from_data(self, scenario_state: ScenarioState) -> list[RequestState]:
        """Return each question with the answer that the data hold.

        An earlier check of the data made sure that every question has an answer.
        """
        states = []
        for state in scenario_state.request_states:
            states.append(replace(state, result=answered(answer_in_data(state) or "")))
        return states

    def _answered_by_key(self, scenario_state: ScenarioState) -> dict[_Key, RequestState]:
        """Ask all questions, depth by depth, and return the asked questions with their answers.

        A question whose asking turns out not to be needed is missing in the returned mapping.
        """
        by_depth: dict[int, list[RequestState]] = defaultdict(list)
        for state in scenario_state.request_states:
            by_depth[_depth(state)].append(state)
        blindfold = Blindfold(scenario_state.request_states, self._output_path)
        answered_by_key = dict[_Key, RequestState]()
        for depth, states in sorted(by_depth.items()):
            to_ask = []
            if depth:
                for state in states:
                    if is_asked_now(state, answered_by_key):
                        to_ask.append(with_further_turn(state, answered_by_key))
                for state in chance_repeats(states, answered_by_key):
                    to_ask.append(with_room(_with_own_draw(state)))
            else:
                for state in states:
                    to_ask.append(blindfold.on(_with_own_draw(with_room(state))))
            for state in self._answered(scenario_state, to_ask):
                answered_by_key[_key(state)] = state
        return answered_by_key

    def _answered(
        self, scenario_state: ScenarioState, states: list[RequestState]
    ) -> Iterator[RequestState]:
        """Ask the questions that have no result yet, and yield all questions with their results.

        Only a further turn after a failed request already has a result: that of the failed request.
        """
        to_ask = []
        for state in states:
            if state.result is None:
                to_ask.append(state)
            else:
                yield state
        if to_ask:
            executed = self._inner.execute(replace(scenario_state, request_states=to_ask))
            yield from executed.request_states


REPLY_FILES = {
    asking_forms.CONFIDENCE: names.CONFIDENCE_FILE,
    asking_forms.ASK_LETTER: names.LETTERS_FILE,
}
"""The name of an asking -> the file for the replies to this asking. No metric of HELM reads these
replies.
"""


def sent_with_text(state: RequestState) -> RequestState:
    """Return a request that also sends the pictures of its instance.

    HELM's adapters for text leave the pictures out. A request stays unchanged if its instance has
    no pictures, if the request already has the pictures, or if its text has no mark `FILE_MARK`.
    """
    pictures = state.instance.input.multimedia_content
    request = state.request
    text = "".join((request.prompt, *(message["content"] for message in request.messages or ())))
    is_ready = pictures is None or request.multimodal_prompt is not None or FILE_MARK not in text
    if is_ready:
        return state
    return replace(state, request=replace(request, multimodal_prompt=pictures))


def write_replies(
    file: Path, states: Iterable[RequestState], reply_in: Callable[[str], str | None] = str
) -> None:
    """Write the replies to these questions into a JSON file.

    An entry of the file has the instance, the trial, the reply and the error. The reply is null if
    the request failed or the answer holds no reply. The error states why the request failed: a
    later run may then still get a reply.

    Args:
        file: the path of the JSON file.
        states: the questions with their results.
        reply_in: returns the reply that an answer holds, or None. By default, the complete answer
            is the reply.
    """
    lines = []
    for state in states:
        reply = None
        error = None
        if state.result and state.result.success:
            reply = reply_in(state.result.completions[0].text)
        elif state.result:
            error = state.result.error
        lines.append(
            {
                "instance": state.instance.id,
                "trial": state.train_trial_index,
                "reply": reply,
                "error": error,
            }
        )
    write_atomic(file, json.dumps(lines) + "\n")


def with_answer_alone(state: RequestState) -> RequestState:
    """Return the question with its answer, without the confidence that the answer also states."""
    if state.result is None or not state.result.success:
        return state
    completions = [
        replace(completion, text=asking_forms.split_confidence(completion.text)[0])
        for completion in state.result.completions
    ]
    return replace(state, result=replace(state.result, completions=completions))


def _asking_name(state: RequestState) -> str:
    """Return the name of the asking; an empty string for the original question."""
    if not state.instance.perturbation:
        return ""
    return str(state.instance.perturbation.name)


def _key(state: RequestState) -> _Key:
    return str(state.instance.id), state.train_trial_index, _asking_name(state)


def _depth(state: RequestState) -> int:
    """Return the depth of a question: 0 if the question does not depend on an answer.

    The questions of depth 0 are asked first, then those of depth 1, and so on. The depth of further
    turns, and of questions that are asked again to measure chance, is at least 1.
    """
    if _asking_name(state) in REPLY_FILES or _measures_chance(state):
        return 1
    return asking_forms.turn_of(_asking_name(state))


def _measures_chance(state: RequestState) -> bool:
    """Return True if the question is asked again in the same words, to measure chance."""
    return _asking_name(state).startswith(asking_forms.SAME_WORDS)


def within_chance_limit(states: Sequence[RequestState]) -> list[RequestState]:
    """Return the requests without those that exceed the limit on questions asked again in the same
    words.

    This is for counts and estimates before any answer is known; `chance_repeats` later chooses
    which of these questions are asked. The name of that asking states the limit. These questions
    come last in the returned list.
    """
    same_words = []
    rest = []
    for state in states:
        if _measures_chance(state):
            same_words.append(state)
        else:
            rest.append(state)
    if not same_words:
        return rest
    return rest + same_words[: asking_forms.same_words_limit(_asking_name(same_words[0]))]


def chance_repeats(
    states: Sequence[RequestState], done: Mapping[_Key, RequestState]
) -> list[RequestState]:
    """Return the requests that ask a rightly answered question again in the same words.

    At most the number of requests that the limit allows is returned, in the order of a hash of the
    ids. Questions whose answers are known to be right come first. An answer that only HELM's later
    scoring can decide about is drawn if the limit is not reached by these questions.
    """
    candidates: list[tuple[bool, bytes, RequestState]] = []
    for state in filter(_measures_chance, states):
        instance, trial, _ = _key(state)
        original = done[instance, trial, ""]
        right = is_right(original)
        if original.result is not None and original.result.success and right is not False:
            digest = sha256(f"chance of {instance} {trial}".encode()).digest()
            candidates.append((right is None, digest, state))
    # False sorts before True, so answers that are known to be right come first.
    candidates.sort(key=lambda candidate: candidate[:2])
    limit = 0
    if candidates:
        limit = asking_forms.same_words_limit(_asking_name(candidates[0][2]))
    return [state for _, _, state in candidates[:limit]]


def is_right(state: RequestState) -> bool | None:
    """Return True if the answer is right, False if wrong, and None if the text cannot decide.

    False is also returned for a failed request.
    """
    if state.result is None or not state.result.success:
        return False
    label = option_stated(state)
    answer = state.result.completions[0].text.strip()
    if label is not None:
        answer = label
    right = set()
    for reference in state.instance.references:
        if reference.is_correct:
            right.add(reference.output.text.strip())
    options = state.output_mapping or {}
    if options:
        if answer in options:
            return options[answer].strip() in right
        return None
    # If every right reference is a letter, another letter is wrong. A longer answer may be right
    # although its text differs.
    if len(answer) == 1 and all(len(text) == 1 for text in right):
        return answer in right
    if answer in right:
        return True
    return None


def _with_own_draw(state: RequestState) -> RequestState:
    """Return the request with its own cache key, if the question is asked for another draw.

    `random` is a part of the cache key and is never sent, so each draw gets its own answer.
    """
    if not _asking_name(state).startswith((asking_forms.REPEAT, asking_forms.SAME_WORDS)):
        return state
    # The request may already have a value of `random`, which stays a part of the new value.
    marks = [mark for mark in (state.request.random, _asking_name(state)) if mark]
    return replace(state, request=replace(state.request, random=" ".join(marks)))


_FURTHER_TURN_TEXTS = {
    asking_forms.CONFIDENCE: asking_forms.ASK_CONFIDENCE,
    asking_forms.ASK_LETTER: asking_forms.ASK_FOR_LETTER,
}
"""The name of an asking -> the text of its further turn. `pushback_text` returns other texts."""


def is_asked_now(state: RequestState, done: Mapping[_Key, RequestState]) -> bool:
    """Return True if the further turn is asked after the answer in `done`.

    The letter of the chosen option is asked for only if the request succeeded and its answer states
    no option. Questions that measure chance are not further turns: `chance_repeats` chooses them.
    """
    if _measures_chance(state):
        return False
    if _asking_name(state) != asking_forms.ASK_LETTER:
        return True
    instance, trial, _ = _key(state)
    original = done[instance, trial, ""]
    if original.result is None or not original.result.success:
        return False
    return option_stated(original) is None


def option_stated(state: RequestState) -> str | None:
    """Return the label of the option that the answer states; None if the answer states no option.

    The request must have succeeded. The collector of scores reads answers in the same way.
    """
    # Imported late, because most runs have no further askings.
    from eval_factory.reading import stated_option

    answer: str = state.result.completions[0].text.strip()
    options = state.output_mapping or options_shown(state.instance.input.text)
    if not options:
        # Without listed options, each reference is a label, such as "yes".
        labels = [reference.output.text.strip() for reference in state.instance.references]
        options = dict.fromkeys(labels, "")
    if answer in options:
        return answer
    return stated_option(answer, options)


def with_further_turn(state: RequestState, done: Mapping[_Key, RequestState]) -> RequestState:
    """Return the request for a further turn, with the earlier turns and the earlier answer.

    If the earlier request failed or was withheld, the returned state has the earlier request's
    result, and is not asked.
    """
    turn = asking_forms.turn_of(_asking_name(state))
    instance, trial, _ = _key(state)
    earlier_name = f"{asking_forms.PUSHBACK}{turn - 1}" if turn > 1 else ""
    earlier = done[instance, trial, earlier_name]
    if earlier.result is None or not earlier.result.success:
        return replace(state, result=earlier.result)
    answer = earlier.result.completions[0].text
    earlier_request = earlier.request
    if turn:
        new_text = asking_forms.pushback_text(instance, turn)
    else:
        new_text = _FURTHER_TURN_TEXTS[_asking_name(state)]
    messages = [
        *(earlier_request.messages or [{"role": "user", "content": earlier_request.prompt}]),
        {"role": "assistant", "content": answer.strip() or NO_ANSWER},
        {"role": "user", "content": new_text},
    ]
    # Endpoints of the completions type read the prompt, all others read the messages.
    prompt = f"{earlier_request.prompt}{answer}\n\n{new_text}\n"
    request = replace(earlier_request, messages=messages, prompt=prompt, stop_sequences=[])
    return with_room(replace(state, request=request))


def with_room(state: RequestState) -> RequestState:
    """Return the request with `max_tokens` raised to the number of tokens that its asking needs."""
    needed = asking_forms.MIN_ANSWER_TOKENS
    needs_more = asking_forms.has_more_tokens(_asking_name(state))
    if not needs_more or state.request.max_tokens >= needed:
        return state
    return replace(state, request=replace(state.request, max_tokens=needed))


class Blindfold:
    """The replacement of questions' pictures by grey pictures of equal size, or by the pictures of
    another question.

    If a model answers as well with the replacements, the model did not need the pictures.
    """

    def __init__(self, states: Sequence[RequestState], output_path: Path) -> None:
        """Choose for each question with pictures another question, whose pictures replace them.

        The other question is the next one in the order of a hash that shares no picture. A question
        keeps its pictures if every other question shares one.

        Args:
            states: all questions of the run; the pictures come from the original questions.
            output_path: the run's folder, in which grey pictures are stored.
        """
        self._folder = output_path / names.SCENARIOS_FOLDER / "blind_control"
        pictures_of = {}
        if any(map(_is_blind, states)):
            for state in states:
                if state.instance.perturbation is None:
                    pictures_of[str(state.instance.id)] = _pictures(state)
        hashes_of = {name: _content_hashes(pictures) for name, pictures in pictures_of.items()}
        with_pictures = [name for name, pictures in pictures_of.items() if pictures]
        shuffled = sorted(with_pictures, key=lambda name: sha256(name.encode()).digest())
        self._others: dict[str, list[MediaObject]] = {}
        for index, name in enumerate(shuffled):
            self._others[name] = []
            for candidate in (*shuffled[index + 1 :], *shuffled[:index]):
                if hashes_of[candidate].isdisjoint(hashes_of[name]):
                    self._others[name] = pictures_of[candidate]
                    break

    def on(self, state: RequestState) -> RequestState:
        """Return the request with its pictures replaced.

        The request stays unchanged if it has no pictures or is not part of the blind control. It
        also stays unchanged if pictures of another question are wanted and no other question has
        different pictures.
        """
        prompt = state.request.multimodal_prompt
        if not _is_blind(state) or prompt is None:
            return state
        # `replacements` is empty if no other question has different pictures.
        replacements = cycle(self._others.get(str(state.instance.id), ()))
        is_blank = _asking_name(state) == asking_forms.BLIND + asking_forms.BLANK
        changed = []
        for medium in prompt.media_objects:
            if not _is_picture(medium):
                changed.append(medium)
            elif is_blank:
                changed.append(self._blank(medium))
            else:
                changed.append(next(replacements, medium))
        return replace(
            state, request=replace(state.request, multimodal_prompt=MultimediaObject(changed))
        )

    def _blank(self, picture: MediaObject) -> MediaObject:
        """Return a grey picture of the same size, stored in a file of the run's folder.

        The original picture is returned if the file of this picture cannot be read.
        """
        from PIL import Image  # imported late, because few runs have pictures

        try:
            with Image.open(str(picture.location)) as opened:
                size = opened.size
        except OSError:
            # A broken picture makes its request fail with or without the blind control.
            return picture
        file = self._folder / f"blank_{size[0]}x{size[1]}.png"
        if not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", size, GREY).save(file)
        return MediaObject(content_type="image/png", location=str(file))


def _is_blind(state: RequestState) -> bool:
    return _asking_name(state).startswith(asking_forms.BLIND)


def _pictures(state: RequestState) -> list[MediaObject]:
    prompt = state.request.multimodal_prompt
    if not prompt:
        return []
    return [medium for medium in prompt.media_objects if _is_picture(medium)]


def _is_picture(medium: MediaObject) -> bool:
    return bool(medium.is_type("image") and medium.location)


def _content_hashes(pictures: Sequence[MediaObject]) -> set[bytes]:
    """Return the hashes of the pictures' contents. Pictures without a local file are skipped.

    Contents are compared, because two questions may show one picture under two file names.
    """
    contents = set()
    for picture in pictures:
        file = Path(str(picture.location))
        if file.is_file():
            contents.add(sha256(file.read_bytes()).digest())
    return contents
