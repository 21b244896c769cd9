"""Corrected values of metrics that are known to be wrong, from the same answers, beside HELM's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.correction_rules import Case, Rule, rule_of
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.request_states import gold_and_choices
from eval_factory.tasks.errata import Erratum, load_errata

ONE_IN = 2
"""A rule may raise on one answer, or on one in two."""


@dataclass
class Corrections:
    """The errata of a run spec, and the values that their rules give."""

    version: int
    errata: Sequence[Erratum]
    rules: Mapping[str, Rule]
    helm: Mapping[str, MetricValues]
    values: dict[str, dict[InstanceKey, float]] = field(default_factory=lambda: defaultdict(dict))
    unanswered: list[tuple[InstanceKey, Case]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    raised: dict[str, list[Exception]] = field(default_factory=lambda: defaultdict(list))
    """By erratum: what its rule raised on answers that it cannot read; they do not count in the corrected value."""

    @classmethod
    def of(cls, plan: Plan, metrics: Sequence[MetricValues]) -> Corrections:
        """Those whose metric HELM computed."""
        known = load_errata()
        helm = {metric.label: metric for metric in metrics}
        about = known.of(plan.evaluation.task.helm.run_spec, plan.scenario_arguments)
        errata = [erratum for erratum in about if erratum.metric in helm]
        return cls(known.version, errata, {erratum.id: rule_of(erratum) for erratum in errata}, helm)

    def add(self, key: InstanceKey, state: output.RequestState, answer: str | None) -> None:
        """One instance. `answer` is None where the request failed."""
        if not self.errata:
            return
        case = _case(state, answer or "")
        if answer is None:
            self.unanswered.append((key, case))
        else:
            self._take(key, case, answered=True)

    def _take(self, key: InstanceKey, case: Case, *, answered: bool) -> None:
        for label, errata in self._by_label().items():
            helm = self.helm[str(errata[0].metric)].values.get(key)
            if helm is None:
                continue
            value = self._value(errata, replace(case, helm=helm))
            if value is not None:
                self.values[label][key] = value if answered else 0.0

    def _by_label(self) -> dict[str, list[Erratum]]:
        """Several errata may be about one metric: each rule begins with what the one before has made of the value."""
        found: dict[str, list[Erratum]] = {}
        for erratum in self.errata:
            found.setdefault(erratum.label, []).append(erratum)
        return found

    def _value(self, errata: Sequence[Erratum], case: Case) -> float | None:
        """None: the instance does not count, which is counted here."""
        value = case.helm
        for erratum in errata:
            try:
                value = self.rules[erratum.id](replace(case, helm=value))
            except Exception as error:  # an answer may hold anything
                self.raised[erratum.id].append(error)
                return None
            if value is None:
                self.left_out[erratum.id] += 1
                return None
        return value

    def metrics(self) -> list[MetricValues]:
        """Once, after all instances. One without an answer has no value that counts; it keeps its place for the bounds,
        unless another one takes it (of two that are the same). Raises what a rule raised on most answers.
        """
        for key, case in self.unanswered:
            self._take(key, case, answered=False)
        for erratum in self.errata:
            raised, values = self.raised[erratum.id], self.values[erratum.label]
            if len(raised) > max(1, len(values) // ONE_IN):  # the rule's fault, not the answers'
                raise raised[0]
        helms = {label: self.helm[str(errata[0].metric)] for label, errata in self._by_label().items()}
        return [
            MetricValues(
                label, label, None, merged=True, scale=helm.scale,
                values=self.values[label], split=helm.split, perturbation=helm.perturbation,
            )
            for label, helm in helms.items()
            if self.values[label]
        ]  # fmt: skip

    def notes(self) -> list[str]:
        return [
            f"{erratum.label} (errata {', '.join(filter(None, (str(self.version), erratum.id, erratum.upstream)))}):"
            f" {erratum.defect}. Corrected: {erratum.corrected}{self._how_many_less(erratum)}"
            for erratum in self.errata
        ]

    def _how_many_less(self, erratum: Erratum) -> str:
        count = self.left_out[erratum.id] + len(self.raised[erratum.id])
        return f"; {count} {'instance does' if count == 1 else 'instances do'} not count in it" if count else ""


def _case(state: output.RequestState, answer: str) -> Case:
    gold, choices = gold_and_choices(state.instance)
    return Case(
        prompt=state.instance.input.text,
        completion=answer,
        gold=gold,
        helm=None,
        extra=state.instance.extra_data or {},
        annotations=state.annotations or {},
        instance=state.instance.id,
        choices=choices,
    )
