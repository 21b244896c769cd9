"""Questions that are asked again, by HELM's own augmentation, what follows on their answers, and
more metrics.

`repeats=3,perturb=typos+units,pushback=2,confidence=stated,cost_of_wrong=1.0` in a run entry: each
is an expander that adds perturbations to a run; what each is for stands in `tasks/asking_forms.py`.

What follows on an answer (a doubt, how sure the model is) is asked when that answer is there, by
`AskingWhatFollows`, HELM's executor. All questions of one depth are asked together: first each as
it is and in all other forms, then the first turn after it. What the model says of how sure it is
goes into a file of our own: no metric reads it. With `extra.blind_control` the same questions are
asked without their pictures too.
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
from eval_factory.endpoint.media import PLACE
from eval_factory.helm import names
from eval_factory.tasks import asking_forms as again
from eval_factory.tasks.choice_question import (
    NONE_OF_THE_OTHERS,
    may_lose_its_right_option,
    options_shown,
)
from eval_factory.tasks.reasoned import MAX_TOKENS, reasoned_tasks
from eval_factory.tasks.rubric_case import ANSWER


class SameInput(Input):  # type: ignore[misc]
    """The input of a question that is asked again as it is: HELM drops a perturbed instance
    whose input is equal.
    """


def same_input(instance: Instance) -> SameInput:
    original = instance.input
    return SameInput(original.text, original.multimedia_content, original.messages)


def with_more_askings(run_spec: RunSpec, specs: Sequence[PerturbationSpec]) -> RunSpec:
    """Return the run spec with further askings. Raises ValueError: inputs are perturbed in another
    way.
    """
    before = run_spec.data_augmenter_spec.perturbation_specs
    if any(not spec.class_name.startswith(f"{__package__}.") for spec in before):
        raise ValueError(
            "data_augmentation cannot be used with keys that ask questions again; "
            f"{run_spec.name} has both"
        )
    augmented = DataAugmenterSpec(
        perturbation_specs=[*before, *specs],
        should_augment_eval_instances=True,
        should_include_original_eval=True,
        should_skip_unchanged_eval=True,
    )
    return replace(run_spec, data_augmenter_spec=augmented)


class AsItIs(Perturbation):  # type: ignore[misc]
    """The question as it is, for another draw (its request's `random` differs) or for what
    follows on its answer.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002 - the id is the seed
        return replace(instance, input=same_input(instance), perturbation=self.description)


class WithOtherWords(AsItIs):
    """The question in the words of a family; one that the family leaves alone is not asked
    again.
    """

    def __init__(self, family: str) -> None:
        super().__init__(again.PERTURB + family)
        self._family = family

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        from eval_factory.tasks.perturbations import (
            perturbed,
        )  # reads its tables: few runs have one

        choices = "\n".join(reference.output.text for reference in instance.references)
        changed = _with_text(
            instance.input, lambda text: perturbed(self._family, text, str(instance.id), choices)
        )
        if changed is None:
            return instance
        return replace(instance, input=changed, perturbation=self.description)


class MayAbstain(AsItIs):
    """The question with "I do not know" as one more option, or among what may be answered."""

    def __init__(self, cost_of_wrong: float, *, has_options: bool) -> None:
        super().__init__(again.ABSTAIN)
        self._said = again.may_abstain_text(cost_of_wrong)
        self._has_options = has_options

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        changed = _with_text(instance.input, lambda text: f"{text.rstrip()}\n{self._said}")
        references = list(instance.references)
        if self._has_options:
            references.append(Reference(Output(text=again.ABSTENTION), tags=[]))
        return replace(
            instance, input=changed, references=references, perturbation=self.description
        )


class OptionsOnly(AsItIs):
    """The choices of a question without the question."""

    def __init__(self) -> None:
        super().__init__(again.OPTIONS_ONLY)

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        shown = _with_text(instance.input, lambda _text: again.QUESTION_NOT_SHOWN)
        return replace(instance, input=shown, perturbation=self.description)


class NoneOfTheOthers(AsItIs):
    """The question with its right choice replaced; as it is where that would not be right."""

    def __init__(self) -> None:
        super().__init__(again.NONE_OF_THE_OTHERS)

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


def _with_text(original: Input, change: Callable[[str], str | None]) -> Input | None:
    """The input with its text changed, of a conversation the last turn's; None if the change
    leaves it alone.

    Some scenarios have inputs of a kind of their own, which cannot be made of a text: this is a
    plain one.
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
    return PerturbationSpec(class_name=f"{kind.__module__}.{kind.__qualname__}", args=args)


def _with_confidence(adapter: AdapterSpec) -> AdapterSpec:
    """Asks for answer and confidence in one. Raises ValueError: HELM's adapter for chats sends
    no instructions.
    """
    if adapter.method == ADAPT_CHAT:
        raise ValueError(
            f"extra.confidence: {again.STATED_ONLY} changes the instructions of a prompt, and "
            "this run spec sends none"
        )
    instructions = (
        "\n".join(filter(None, (adapter.instructions.strip(), again.ANSWER_WITH_CONFIDENCE, "")))
        + "\n"
    )
    tokens = adapter.max_tokens + again.CONFIDENCE_TOKENS
    return replace(adapter, instructions=instructions, max_tokens=tokens, stop_sequences=[])


def _may_abstain(run_spec: RunSpec, cost: str) -> list[PerturbationSpec]:
    has_options = run_spec.adapter_spec.method == ADAPT_MULTIPLE_CHOICE_JOINT
    return [spec_of(MayAbstain, cost_of_wrong=float(cost), has_options=has_options)]


def register_expander(option: str, expand: Callable[[RunSpec, str], RunSpec]) -> None:
    """Register what expands `option=value` in a run entry."""

    class Expander(RunExpander):  # type: ignore[misc]
        name = option

        def __init__(self, value: Any) -> None:
            self._value = str(value)

        def expand(self, run_spec: RunSpec) -> list[RunSpec]:
            return [expand(run_spec, self._value)]

    RUN_EXPANDERS[option] = Expander


def _with_more_metrics(run_spec: RunSpec, value: str) -> RunSpec:
    """Expand `more_metrics=rouge_l+f1_score`: HELM's metrics of any answer, beside a run's own
    metrics.

    Metrics that the run has already are left out: a score comes once.
    """
    # f1_score of what names no option is an error of HELM's
    if "multiple_choice" in run_spec.adapter_spec.method:
        raise ValueError(f"extra.metrics: {run_spec.name} has options")
    metrics = list(run_spec.metric_specs)
    present = set()
    for metric in metrics:
        present.update(metric.args.get("names", ()))
        if metric.class_name.endswith(".SummarizationMetric"):
            present.add("rouge_l")
    new = [name for name in value.split("+") if name not in present]
    if new:
        metrics += get_basic_generation_metric_specs(new)
    return replace(run_spec, metric_specs=metrics)


def _asked_for_confidence(run_spec: RunSpec, form: str) -> RunSpec:
    if form == again.STATED_ONLY:
        return replace(run_spec, adapter_spec=_with_confidence(run_spec.adapter_spec))
    return with_more_askings(run_spec, [spec_of(AsItIs, name=again.CONFIDENCE)])


def _register_askings(option: str, specs: Callable[[RunSpec, str], list[PerturbationSpec]]) -> None:
    register_expander(
        option, lambda run_spec, value: with_more_askings(run_spec, specs(run_spec, value))
    )


def _reasoned(run_spec: RunSpec, task: str) -> RunSpec:
    """Asks for reasoning and a last line, in place of the benchmark's form. Raises ValueError: its
    instructions are others than those that were looked at.
    """
    entry = reasoned_tasks()[task]
    before = run_spec.adapter_spec
    adapter = replace(
        before,
        instructions=entry.instructions(before.instructions),
        output_prefix=entry.request,
        max_tokens=MAX_TOKENS,
        stop_sequences=[],
        max_train_instances=before.max_train_instances if entry.has_examples else 0,
    )
    return replace(run_spec, adapter_spec=adapter)


register_expander("answer_style", _reasoned)
register_expander("more_metrics", _with_more_metrics)
register_expander("confidence", _asked_for_confidence)
_register_askings("cost_of_wrong", _may_abstain)
_register_askings(
    "repeats",
    lambda _, n: [spec_of(AsItIs, name=f"{again.REPEAT}{at}") for at in range(2, int(n) + 1)],
)
_register_askings(
    "perturb", lambda _, names: [spec_of(WithOtherWords, family=name) for name in names.split("+")]
)
_register_askings(
    "pushback",
    lambda _, n: [spec_of(AsItIs, name=f"{again.PUSHBACK}{at + 1}") for at in range(int(n))],
)
_register_askings("options_only", lambda *_: [spec_of(OptionsOnly)])
_register_askings("none_of_the_others", lambda *_: [spec_of(NoneOfTheOthers)])
_register_askings("ask_unread", lambda *_: [spec_of(AsItIs, name=again.ASK_LETTER)])
_register_askings("chance_questions", lambda _, n: [spec_of(AsItIs, name=f"{again.SAME_WORDS}{n}")])
_register_askings(
    "blind_control",
    lambda *_: [spec_of(AsItIs, name=again.BLIND + kind) for kind in again.BLIND_WITH],
)


GREY = 128
# the text in place of an empty answer: many endpoints refuse an empty turn
NO_ANSWER = "(no answer)"

# (instance, trial, name of the asking); its name is empty if the question is as it is
_Key = tuple[str, int, str]


def answer_in_data(state: RequestState) -> str | None:
    """Return the answer that a benchmark which `has_answers` holds for a question."""
    answer: str | None = (state.instance.extra_data or {}).get(ANSWER)
    return answer


def answered(text: str) -> RequestResult:
    """A result as if a model had answered with this text."""
    output = GeneratedOutput(text, 0, [], finish_reason={"reason": "stop"})
    return RequestResult(True, [], [output], cached=True, request_time=0)


class AskingWhatFollows:
    """Wraps HELM's executor; a run that asks nothing again goes through it as it is.

    Where the data hold all answers, nobody is asked. Only the benchmark can say so: a column of a
    user's table may have any name.
    """

    def __init__(self, inner: Any, output_path: Path, *, has_answers: bool = False) -> None:
        self._inner = inner
        self._has_answers = has_answers
        self.execution_spec = inner.execution_spec
        self._output_path = output_path

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        if self._has_answers:
            return replace(scenario_state, request_states=self._from_data(scenario_state))
        if any(state.instance.input.multimedia_content for state in scenario_state.request_states):
            states = [sent_with_text(state) for state in scenario_state.request_states]
            scenario_state = replace(scenario_state, request_states=states)
        if again.ANSWER_WITH_CONFIDENCE in scenario_state.adapter_spec.instructions:
            executed = self._inner.execute(scenario_state)
            file = self._output_path / names.CONFIDENCE_FILE
            write_replies(
                file, executed.request_states, lambda text: again.split_confidence(text)[1]
            )
            alone = [with_answer_alone(state) for state in executed.request_states]
            return replace(executed, request_states=alone)
        if not any(again.is_asked_again(_name(state)) for state in scenario_state.request_states):
            return self._inner.execute(scenario_state)
        by_key = self._by_key(scenario_state)
        in_order = []
        for state in scenario_state.request_states:
            if _key(state) in by_key:
                in_order.append(by_key[_key(state)])
        for name, name_of_file in FILES_OF_REPLIES.items():
            if any(_name(state) == name for state in scenario_state.request_states):
                replies = [state for state in in_order if _name(state) == name]
                write_replies(self._output_path / name_of_file, replies)
        scored = [state for state in in_order if _name(state) not in FILES_OF_REPLIES]
        return replace(scenario_state, request_states=scored)

    def _from_data(self, scenario_state: ScenarioState) -> list[RequestState]:
        """Return each question with its answer of the data, which the check found in all."""
        states = []
        for state in scenario_state.request_states:
            states.append(replace(state, result=answered(answer_in_data(state) or "")))
        return states

    def _by_key(self, scenario_state: ScenarioState) -> dict[_Key, RequestState]:
        """Ask all questions, depth by depth; return those that were asked, with their answers."""
        by_depth: dict[int, list[RequestState]] = defaultdict(list)
        for state in scenario_state.request_states:
            by_depth[_depth(state)].append(state)
        blindfold = Blindfold(scenario_state.request_states, self._output_path)
        by_key = dict[_Key, RequestState]()
        for depth, states in sorted(by_depth.items()):
            to_ask = []
            if depth:
                right_answers = by_chance(states, by_key)
                for state in states:
                    if is_asked_now(state, by_key):
                        to_ask.append(following(state, by_key))
                for state in right_answers:
                    to_ask.append(with_room(_repeated(state)))
            else:
                for state in states:
                    to_ask.append(blindfold.on(_repeated(with_room(state))))
            for state in self._answered(scenario_state, to_ask):
                by_key[_key(state)] = state
        return by_key

    def _answered(
        self, scenario_state: ScenarioState, states: list[RequestState]
    ) -> Iterator[RequestState]:
        """Ask the questions that have no result yet; yield all with their results."""
        to_ask = []
        for state in states:
            if state.result is None:
                to_ask.append(state)
            else:
                yield state
        if to_ask:
            executed = self._inner.execute(replace(scenario_state, request_states=to_ask))
            yield from executed.request_states


FILES_OF_REPLIES = {
    again.CONFIDENCE: names.CONFIDENCE_FILE,
    again.ASK_LETTER: names.LETTERS_FILE,
}
"""The file of each asking's replies, which no metric of HELM's reads."""


def sent_with_text(state: RequestState) -> RequestState:
    """Return a request with the pictures that stand beside its instance's text: HELM's adapters for
    text leave them out.
    """
    pictures = state.instance.input.multimedia_content
    request = state.request
    text = "".join((request.prompt, *(message["content"] for message in request.messages or ())))
    is_ready = pictures is None or request.multimodal_prompt is not None or PLACE not in text
    if is_ready:
        return state
    return replace(state, request=replace(request, multimodal_prompt=pictures))


def write_replies(
    file: Path, states: Iterable[RequestState], reply_in: Callable[[str], str | None] = str
) -> None:
    """Write the replies of these questions.

    A reply (what `reply_in` finds in an answer) is null if there is none; `error` says why, if a
    reply may still come.
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
    if state.result is None or not state.result.success:
        return state
    alone = [
        replace(completion, text=again.split_confidence(completion.text)[0])
        for completion in state.result.completions
    ]
    return replace(state, result=replace(state.result, completions=alone))


def _name(state: RequestState) -> str:
    """The name of the asking; empty if the question is asked as it is."""
    if not state.instance.perturbation:
        return ""
    return str(state.instance.perturbation.name)


def _key(state: RequestState) -> _Key:
    return str(state.instance.id), state.train_trial_index, _name(state)


def _depth(state: RequestState) -> int:
    if _name(state) in FILES_OF_REPLIES or _tells_chance(state):
        return 1
    return again.turn_of(_name(state))


def _tells_chance(state: RequestState) -> bool:
    return _name(state).startswith(again.SAME_WORDS)


def asked_at_most(states: Sequence[RequestState]) -> list[RequestState]:
    """Return the requests, with no more that ask in the same words again than the limit allows."""
    same_words = []
    rest = []
    for state in states:
        if _tells_chance(state):
            same_words.append(state)
        else:
            rest.append(state)
    if not same_words:
        return rest
    return rest + same_words[: again.same_words_limit(_name(same_words[0]))]


def by_chance(
    states: Sequence[RequestState], done: Mapping[_Key, RequestState]
) -> list[RequestState]:
    """Return those requests that ask a question again whose answer was right, up to the limit,
    drawn by a hash of ids.

    If nobody knows which answers are right before HELM scores them, any that came will do.
    """
    candidates: list[tuple[bool, bytes, RequestState]] = []
    for state in filter(_tells_chance, states):
        instance, trial, _ = _key(state)
        first = done[instance, trial, ""]
        right = is_right(first)
        if first.result is not None and first.result.success and right is not False:
            digest = sha256(f"chance of {instance} {trial}".encode()).digest()
            candidates.append((right is None, digest, state))
    candidates.sort(key=lambda candidate: candidate[:2])
    limit = 0
    if candidates:
        limit = again.same_words_limit(_name(candidates[0][2]))
    return [state for _, _, state in candidates[:limit]]


def is_right(state: RequestState) -> bool | None:
    """Compare the answer with the right references; None if its text alone does not decide."""
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
    if len(answer) == 1 and all(len(text) == 1 for text in right):
        return answer in right
    if answer in right:
        return True
    return None


def _repeated(state: RequestState) -> RequestState:
    """Another draw has an answer of its own: `random` is a part of its key, and goes to no
    endpoint.
    """
    if not _name(state).startswith((again.REPEAT, again.SAME_WORDS)):
        return state
    marks = [mark for mark in (state.request.random, _name(state)) if mark]
    return replace(state, request=replace(state.request, random=" ".join(marks)))


_TEXTS = {again.CONFIDENCE: again.ASK_CONFIDENCE, again.ASK_LETTER: again.ASK_FOR_LETTER}


def is_asked_now(state: RequestState, done: Mapping[_Key, RequestState]) -> bool:
    """Decide if a further turn follows on the answer: a letter is asked for if none is read."""
    if _tells_chance(state):
        return False
    if _name(state) != again.ASK_LETTER:
        return True
    instance, trial, _ = _key(state)
    first = done[instance, trial, ""]
    if first.result is None or not first.result.success:
        return False
    return option_stated(first) is None


def option_stated(state: RequestState) -> str | None:
    """The label of the option that the answer states, as the collector reads it."""
    from eval_factory.reading import stated_option  # most runs ask nothing again

    answer: str = state.result.completions[0].text.strip()
    options = state.output_mapping or options_shown(state.instance.input.text)
    if not options:
        labels = [reference.output.text.strip() for reference in state.instance.references]
        options = dict.fromkeys(labels, "")
    if answer in options:
        return answer
    return stated_option(answer, options)


def following(state: RequestState, done: Mapping[_Key, RequestState]) -> RequestState:
    """The request with the answer before it; where that one failed or was withheld, its result."""
    turn = again.turn_of(_name(state))
    instance, trial, _ = _key(state)
    before = done[instance, trial, f"{again.PUSHBACK}{turn - 1}" if turn > 1 else ""]
    if before.result is None or not before.result.success:
        return replace(state, result=before.result)
    answer = before.result.completions[0].text
    request_before = before.request
    new = again.pushback_text(instance, turn) if turn else _TEXTS[_name(state)]
    earlier = request_before.messages or [{"role": "user", "content": request_before.prompt}]
    turns = [
        {"role": "assistant", "content": answer.strip() or NO_ANSWER},
        {"role": "user", "content": new},
    ]
    # the prompt for an endpoint of completions
    text = f"{request_before.prompt}{answer}\n\n{new}\n"
    request = replace(request_before, messages=[*earlier, *turns], prompt=text, stop_sequences=[])
    return with_room(replace(state, request=request))


def with_room(state: RequestState) -> RequestState:
    """The request with at least as many tokens as its asking needs."""
    granted = state.request.max_tokens
    if not again.has_more_tokens(_name(state)) or granted >= again.MIN_ANSWER_TOKENS:
        return state
    return replace(state, request=replace(state.request, max_tokens=again.MIN_ANSWER_TOKENS))


class Blindfold:
    """Replaces the pictures of questions: by grey ones of their size, or by those of another
    question.

    A model that answers as well then did not need the pictures.
    """

    def __init__(self, states: Sequence[RequestState], output_path: Path) -> None:
        """Take all questions as `states`; the pictures of those that are asked as they are change
        places.
        """
        self._folder = output_path / names.SCENARIOS_FOLDER / "blind_control"
        pictures_of = {}
        if any(map(_is_blind, states)):
            for state in states:
                if state.instance.perturbation is None:
                    pictures_of[str(state.instance.id)] = _pictures(state)
        contents = {name: _contents(pictures) for name, pictures in pictures_of.items()}
        drawn = sorted(
            filter(pictures_of.get, pictures_of), key=lambda name: sha256(name.encode()).digest()
        )
        self._others: dict[str, list[MediaObject]] = {}
        for index, name in enumerate(drawn):
            self._others[name] = []
            for candidate in (*drawn[index + 1 :], *drawn[:index]):
                if contents[candidate].isdisjoint(contents[name]):
                    self._others[name] = pictures_of[candidate]
                    break

    def on(self, state: RequestState) -> RequestState:
        """Return the request with other pictures; as it is if it has none, or no question has
        another one.
        """
        prompt = state.request.multimodal_prompt
        if not _is_blind(state) or prompt is None:
            return state
        replacements = cycle(self._others.get(str(state.instance.id), ()))
        is_blank = _name(state) == again.BLIND + again.BLANK
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
        from PIL import Image  # few runs have pictures

        try:
            with Image.open(str(picture.location)) as opened:
                size = opened.size
        except OSError:  # a broken file fails its request in either form
            return picture
        file = self._folder / f"blank_{size[0]}x{size[1]}.png"
        if not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", size, GREY).save(file)
        return MediaObject(content_type="image/png", location=str(file))


def _is_blind(state: RequestState) -> bool:
    return _name(state).startswith(again.BLIND)


def _pictures(state: RequestState) -> list[MediaObject]:
    prompt = state.request.multimodal_prompt
    if not prompt:
        return []
    return [medium for medium in prompt.media_objects if _is_picture(medium)]


def _is_picture(medium: MediaObject) -> bool:
    return bool(medium.is_type("image") and medium.location)


def _contents(pictures: Sequence[MediaObject]) -> set[bytes]:
    """Questions may share a picture, under another name too."""
    contents = set()
    for picture in pictures:
        file = Path(str(picture.location))
        if file.is_file():
            contents.add(sha256(file.read_bytes()).digest())
    return contents
