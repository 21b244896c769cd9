"""Adds further askings to the run spec of a run: HELM then asks questions again in other forms.

A run entry may hold `repeats=3,perturb=typos+units,pushback=2,confidence=stated,cost_of_wrong=1.0`.
Each of these options has an expander, which changes the run spec. Most expanders add perturbations:
a further asking is a perturbation for HELM. Other expanders change the prompt or add metrics.

`tasks/asking_forms.py` defines the names and the texts of the further askings. `asking_executor.py`
asks the questions of the changed run spec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from helm.benchmark.adaptation.adapter_spec import (
    ADAPT_CHAT,
    ADAPT_MULTIPLE_CHOICE_JOINT,
    AdapterSpec,
)
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.augmentations.data_augmenter import DataAugmenterSpec
from helm.benchmark.augmentations.perturbation import Perturbation, PerturbationSpec
from helm.benchmark.metrics.common_metric_specs import get_basic_generation_metric_specs
from helm.benchmark.run_expander import RUN_EXPANDERS, RunExpander
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import Input, Instance, Output, Reference

from eval_factory.tasks import asking_forms
from eval_factory.tasks.choice_question import NONE_OF_THE_OTHERS_TEXT, may_lose_its_right_option
from eval_factory.tasks.reasoned import REASONED_MAX_TOKENS, reasoned_tasks

ORIGINAL_ASKING = ""  # the asking name of a question in its original form


def asking_name(state: RequestState) -> str:
    """Return the name of the perturbation that made a question, or `ORIGINAL_ASKING`.

    `state` is a question with its request, in HELM's form.
    """
    if not state.instance.perturbation:
        return ORIGINAL_ASKING
    return str(state.instance.perturbation.name)


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
    """Return the run spec with these perturbations in addition to its earlier perturbations.

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


class FurtherAsking(Perturbation):  # type: ignore[misc]
    """A perturbation of eval-factory. This base class leaves the question unchanged.

    `asking_executor.py` finds such a question by the perturbation's name, and then asks for another
    draw, replaces the pictures, or adds a further turn after the answer.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    # No perturbation of this module uses the seed that HELM passes: random choices depend on the
    # instance's id.
    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        return replace(instance, input=same_input(instance), perturbation=self.description)


class OtherWords(FurtherAsking):
    """A perturbation that changes the words of a question, as a family of `tasks/perturbations.py`
    does (such as `typos`).

    A question that the family does not change is not asked again, because HELM skips unchanged
    instances.
    """

    def __init__(self, family: str) -> None:
        super().__init__(asking_forms.PERTURB_PREFIX + family)
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


class MayAbstain(FurtherAsking):
    """A perturbation that allows the answer "I do not know", and states the cost of a wrong answer.

    A question with options gets "I do not know" as one more option.
    """

    def __init__(self, cost_of_wrong: float, *, has_options: bool) -> None:
        super().__init__(asking_forms.ABSTAIN_ASKING)
        self._instruction = asking_forms.may_abstain_text(cost_of_wrong)
        self._has_options = has_options

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        changed = _with_changed_text(
            instance.input, lambda text: f"{text.rstrip()}\n{self._instruction}"
        )
        references = list(instance.references)
        if self._has_options:
            # Without tags, the option is not a right answer for HELM.
            references.append(Reference(Output(text=asking_forms.I_DO_NOT_KNOW), tags=[]))
        return replace(
            instance, input=changed, references=references, perturbation=self.description
        )


class OptionsOnly(FurtherAsking):
    """A perturbation that shows the choices of a question, but a fixed sentence as the question."""

    def __init__(self) -> None:
        super().__init__(asking_forms.OPTIONS_ONLY_ASKING)

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        changed = _with_changed_text(instance.input, lambda _text: asking_forms.QUESTION_NOT_SHOWN)
        return replace(instance, input=changed, perturbation=self.description)


class NoneOfTheOthers(FurtherAsking):
    """A perturbation that replaces the right choice by "none of the others".

    A question is asked again only if it has exactly one right choice, and if "none of the others"
    would be the right answer without this choice.
    """

    def __init__(self) -> None:
        super().__init__(asking_forms.NONE_OF_THE_OTHERS_ASKING)

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        choices = [reference.output.text for reference in instance.references]
        right = [reference for reference in instance.references if reference.is_correct]
        if len(right) != 1 or not may_lose_its_right_option(instance.input.text, choices):
            return instance
        references = []
        for reference in instance.references:
            if reference.is_correct:
                reference = replace(reference, output=Output(text=NONE_OF_THE_OTHERS_TEXT))
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
    if text is None:
        return None
    turns = [*earlier, {**last, "content": text}]
    return Input(messages=turns, multimedia_content=original.multimedia_content)


def perturbation_spec(perturbation: type[FurtherAsking], **args: Any) -> PerturbationSpec:
    """Return the spec by which HELM constructs a perturbation with these arguments."""
    class_name = f"{perturbation.__module__}.{perturbation.__qualname__}"
    return PerturbationSpec(class_name=class_name, args=args)


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
    instructions = f"{asking_forms.ANSWER_WITH_CONFIDENCE}\n"
    benchmarks_instructions = adapter.instructions.strip()
    if benchmarks_instructions:
        instructions = f"{benchmarks_instructions}\n{instructions}"
    tokens = adapter.max_tokens + asking_forms.CONFIDENCE_TOKENS
    # A stop sequence such as a line break could end the output before the confidence.
    return replace(adapter, instructions=instructions, max_tokens=tokens, stop_sequences=[])


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


def _with_more_metrics(run_spec: RunSpec, metric_names: str) -> RunSpec:
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
    new = [name for name in metric_names.split("+") if name not in present]
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
    return with_more_askings(
        run_spec, [perturbation_spec(FurtherAsking, name=asking_forms.CONFIDENCE_ASKING)]
    )


def _with_reasoning(run_spec: RunSpec, task: str) -> RunSpec:
    """Return a run spec that asks for reasoning and then a last line with the answer.

    `task` is the name of the run's task in eval-factory's table of reasoned tasks.

    Raises:
        ValueError: the benchmark's instructions are not the instructions that this table expects.
    """
    entry = reasoned_tasks()[task]
    original = run_spec.adapter_spec
    adapter = replace(
        original,
        instructions=entry.instructions(original.instructions),
        output_prefix=entry.request,
        max_tokens=REASONED_MAX_TOKENS,
        stop_sequences=[],  # A stop sequence could end the output before its last line.
        max_train_instances=original.max_train_instances if entry.keeps_examples else 0,
    )
    return replace(run_spec, adapter_spec=adapter)


def _register_askings(
    option: str, askings: Callable[[RunSpec, str], list[PerturbationSpec]]
) -> None:
    """Register an option that adds perturbations to a run spec.

    Args:
        option: the name of the option.
        askings: returns the specs of these perturbations, from the run spec and the option's value.
    """

    def expand(run_spec: RunSpec, value: str) -> RunSpec:
        return with_more_askings(run_spec, askings(run_spec, value))

    register_expander(option, expand)


def _numbered_askings(prefix: str, numbers: range) -> list[PerturbationSpec]:
    """Return perturbations whose names are the prefix with each of the numbers."""
    return [perturbation_spec(FurtherAsking, name=f"{prefix}{number}") for number in numbers]


def _abstention_asking(run_spec: RunSpec, cost_of_wrong: str) -> list[PerturbationSpec]:
    has_options = run_spec.adapter_spec.method == ADAPT_MULTIPLE_CHOICE_JOINT
    return [
        perturbation_spec(MayAbstain, cost_of_wrong=float(cost_of_wrong), has_options=has_options)
    ]


def _repeat_askings(_run_spec: RunSpec, count: str) -> list[PerturbationSpec]:
    # The original question is the first draw, so the repeats begin with draw 2.
    return _numbered_askings(asking_forms.REPEAT_PREFIX, range(2, int(count) + 1))


def _other_words_askings(_run_spec: RunSpec, families: str) -> list[PerturbationSpec]:
    return [perturbation_spec(OtherWords, family=family) for family in families.split("+")]


def _pushback_askings(_run_spec: RunSpec, count: str) -> list[PerturbationSpec]:
    return _numbered_askings(asking_forms.PUSHBACK_PREFIX, range(1, int(count) + 1))


def _same_words_asking(_run_spec: RunSpec, max_questions: str) -> list[PerturbationSpec]:
    """Return one asking, whose name states how many questions may be asked again.

    `asking_executor.chance_repeats` chooses these questions.
    """
    name = f"{asking_forms.SAME_WORDS_PREFIX}{max_questions}"
    return [perturbation_spec(FurtherAsking, name=name)]


def _blind_askings(_run_spec: RunSpec, _value: str) -> list[PerturbationSpec]:
    return [
        perturbation_spec(FurtherAsking, name=asking_forms.BLIND_PREFIX + kind)
        for kind in asking_forms.BLIND_PICTURES
    ]


register_expander("answer_style", _with_reasoning)
register_expander("more_metrics", _with_more_metrics)
register_expander("confidence", _with_confidence_asked)
_register_askings("cost_of_wrong", _abstention_asking)
_register_askings("repeats", _repeat_askings)
_register_askings("perturb", _other_words_askings)
_register_askings("pushback", _pushback_askings)
_register_askings("chance_questions", _same_words_asking)
_register_askings("blind_control", _blind_askings)
# The last three options are only set to switch them on, so their value is not read. `ask_unread`
# asks for the letter of an answer that states no option.
_register_askings("options_only", lambda *_: [perturbation_spec(OptionsOnly)])
_register_askings("none_of_the_others", lambda *_: [perturbation_spec(NoneOfTheOthers)])
_register_askings(
    "ask_unread", lambda *_: [perturbation_spec(FurtherAsking, name=asking_forms.LETTER_ASKING)]
)
