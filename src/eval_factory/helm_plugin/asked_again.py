"""Expanders of the run entry: questions that are asked again, by HELM's own augmentation, and more metrics.

`repeats=3,perturb=typos+units,pushback=2,confidence=stated,cost_of_wrong=1.0` in a run entry; what each is for stands
in `tasks/asked_again.py`. What follows on an answer is asked by `follow_ups.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from helm.benchmark.adaptation.adapter_spec import ADAPT_CHAT, ADAPT_MULTIPLE_CHOICE_JOINT, AdapterSpec
from helm.benchmark.augmentations.data_augmenter import DataAugmenterSpec
from helm.benchmark.augmentations.perturbation import Perturbation, PerturbationSpec
from helm.benchmark.augmentations.perturbation_description import PerturbationDescription
from helm.benchmark.metrics.common_metric_specs import get_basic_generation_metric_specs
from helm.benchmark.run_expander import RUN_EXPANDERS, RunExpander
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import Input, Instance, Output, Reference

from eval_factory.tasks.asked_again import (
    ABSTAIN,
    ABSTENTION,
    ANSWER_WITH_CONFIDENCE,
    BLIND,
    BLIND_WITH,
    CONFIDENCE,
    CONFIDENCE_TOKENS,
    PERTURB,
    PUSHBACK,
    REPEAT,
    STATED_ONLY,
    may_abstain_text,
)


class SameInput(Input):  # type: ignore[misc]
    """The input of a question that is asked again as it is: HELM drops a perturbed instance whose input is equal."""


def same_input(instance: Instance) -> SameInput:
    asked = instance.input
    return SameInput(asked.text, asked.multimedia_content, asked.messages)


def with_more_askings(run_spec: RunSpec, specs: Sequence[PerturbationSpec]) -> RunSpec:
    """Raises ValueError: inputs are perturbed in another way."""
    before = run_spec.data_augmenter_spec.perturbation_specs
    if any(not spec.class_name.startswith(f"{__package__}.") for spec in before):
        raise ValueError(
            f"data_augmentation and what asks questions again exclude each other; {run_spec.name} has both"
        )
    augmented = DataAugmenterSpec(
        perturbation_specs=[*before, *specs],
        should_augment_eval_instances=True,
        should_include_original_eval=True,
        should_skip_unchanged_eval=True,
    )
    return replace(run_spec, data_augmenter_spec=augmented)


class AsItIs(Perturbation):  # type: ignore[misc]
    """The question as it is, for another draw (its request's `random` differs) or for what follows on its answer."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def description(self) -> PerturbationDescription:
        return PerturbationDescription(name=self.name)

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002 - the id is the seed
        return replace(instance, input=same_input(instance), perturbation=self.description)


class WithOtherWords(AsItIs):
    """The question in the words of a family; one that the family leaves alone is not asked again."""

    def __init__(self, family: str) -> None:
        super().__init__(PERTURB + family)
        self._family = family

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        from eval_factory.tasks.perturbations import perturbed  # reads its tables: few runs have one

        choices = "\n".join(reference.output.text for reference in instance.references)
        changed = _with_text(instance.input, lambda text: perturbed(self._family, text, str(instance.id), choices))
        return instance if changed is None else replace(instance, input=changed, perturbation=self.description)


class MayAbstain(AsItIs):
    """The question with "I do not know" as one more option, or among what may be answered."""

    def __init__(self, cost_of_wrong: float, *, has_options: bool) -> None:
        super().__init__(ABSTAIN)
        self._said, self._has_options = may_abstain_text(cost_of_wrong), has_options

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        asked = _with_text(instance.input, lambda text: f"{text.rstrip()}\n{self._said}")
        more = [Reference(Output(text=ABSTENTION), tags=[])] if self._has_options else []
        references = [*instance.references, *more]
        return replace(instance, input=asked, references=references, perturbation=self.description)


def _with_text(asked: Input, change: Callable[[str], str | None]) -> Input | None:
    """The input with its text changed, of a conversation the last turn's; None where the change leaves it alone.

    Some scenarios have inputs of a kind of their own, which cannot be made of a text: this is a plain one.
    """
    if not asked.messages:
        text = change(asked.text)
        return None if text is None else Input(text, asked.multimedia_content)
    *earlier, last = asked.messages
    text = change(str(last["content"]))
    turns = [*earlier, {**last, "content": text}]
    return None if text is None else Input(messages=turns, multimedia_content=asked.multimedia_content)


def _spec(kind: type, **args: Any) -> PerturbationSpec:
    return PerturbationSpec(class_name=f"{kind.__module__}.{kind.__qualname__}", args=args)


def _with_confidence(adapter: AdapterSpec) -> AdapterSpec:
    """Asks for answer and confidence in one. Raises ValueError: HELM's adapter for chats sends no instructions."""
    if adapter.method == ADAPT_CHAT:
        raise ValueError(f"extra.confidence: {STATED_ONLY} takes instructions, which this run spec sends none of")
    instructions = "\n".join(filter(None, (adapter.instructions.strip(), ANSWER_WITH_CONFIDENCE, ""))) + "\n"
    tokens = adapter.max_tokens + CONFIDENCE_TOKENS
    return replace(adapter, instructions=instructions, max_tokens=tokens, stop_sequences=[])


def _may_abstain(run_spec: RunSpec, cost: str) -> list[PerturbationSpec]:
    has_options = run_spec.adapter_spec.method == ADAPT_MULTIPLE_CHOICE_JOINT
    return [_spec(MayAbstain, cost_of_wrong=float(cost), has_options=has_options)]


_SPECS: dict[str, Callable[[RunSpec, str], list[PerturbationSpec]]] = {
    "repeats": lambda _run_spec, times: [_spec(AsItIs, name=f"{REPEAT}{n}") for n in range(2, int(times) + 1)],
    "perturb": lambda _run_spec, names: [_spec(WithOtherWords, family=name) for name in names.split("+")],
    "pushback": lambda _run_spec, turns: [_spec(AsItIs, name=f"{PUSHBACK}{n + 1}") for n in range(int(turns))],
    "confidence": lambda _run_spec, _how: [_spec(AsItIs, name=CONFIDENCE)],
    "cost_of_wrong": _may_abstain,
    "blind_control": lambda _run_spec, _yes: [_spec(AsItIs, name=BLIND + with_) for with_ in BLIND_WITH],
}


def _register(key: str, specs: Callable[[RunSpec, str], list[PerturbationSpec]]) -> None:
    class Expander(RunExpander):  # type: ignore[misc]
        name = key

        def __init__(self, value: Any) -> None:
            self._value = str(value)

        def expand(self, run_spec: RunSpec) -> list[RunSpec]:
            if self._value == STATED_ONLY:
                return [replace(run_spec, adapter_spec=_with_confidence(run_spec.adapter_spec))]
            return [with_more_askings(run_spec, specs(run_spec, self._value))]

    RUN_EXPANDERS[key] = Expander


for _key, _specs in _SPECS.items():
    _register(_key, _specs)


class MoreMetricsRunExpander(RunExpander):  # type: ignore[misc]
    """`more_metrics=rouge_l+f1_score`: what HELM computes of any answer, beside a run's own metrics.

    Without those that the run has: a score comes once.
    """

    name = "more_metrics"

    def __init__(self, value: str) -> None:
        self._names = value.split("+")

    def expand(self, run_spec: RunSpec) -> list[RunSpec]:
        if "multiple_choice" in run_spec.adapter_spec.method:  # f1_score of what names no option is an error of HELM's
            raise ValueError(f"extra.metrics: {run_spec.name} has options")
        own = run_spec.metric_specs
        known = {name for one in own for name in one.args.get("names", ())}
        known |= {"rouge_l" for one in own if one.class_name.endswith(".SummarizationMetric")}
        new = [name for name in self._names if name not in known]
        return [replace(run_spec, metric_specs=[*own, *(get_basic_generation_metric_specs(new) if new else ())])]


RUN_EXPANDERS[MoreMetricsRunExpander.name] = MoreMetricsRunExpander
