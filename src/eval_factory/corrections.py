"""Corrected values of metrics that are known to be wrong, from the same answers, beside HELM's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.errata.load import Erratum, load_errata
from eval_factory.errata.rules import Case, Rule, rule_of
from eval_factory.helm import output
from eval_factory.plan import Plan
from eval_factory.scores import Context, InstanceKey


@dataclass
class Corrections:
    """The errata of a run spec, and the values that their rules give."""

    version: int
    errata: Sequence[Erratum]
    rules: Mapping[str, Rule]
    helm: Mapping[str, Context]
    values: dict[str, dict[InstanceKey, float]] = field(default_factory=lambda: defaultdict(dict))

    @classmethod
    def of(cls, plan: Plan, contexts: Sequence[Context]) -> Corrections:
        """Those whose metric HELM computed."""
        known = load_errata()
        helm = {context.label: context for context in contexts}
        about = known.of(plan.evaluation.task.helm.run_spec, plan.scenario_arguments)
        errata = [erratum for erratum in about if erratum.metric in helm]
        return cls(known.version, errata, {erratum.id: rule_of(erratum) for erratum in errata}, helm)

    def add(self, key: InstanceKey, state: output.RequestState, answer: str | None) -> None:
        """One instance. `answer` is None where the request failed: no value counts then; it keeps its place for the
        bounds."""
        for erratum in self.errata:
            helm = self.helm[str(erratum.metric)].values.get(key)
            if helm is None:
                continue
            value = 0.0 if answer is None else self.rules[erratum.id](_case(state, answer, helm))
            if value is not None:
                self.values[erratum.label][key] = value

    def contexts(self) -> list[Context]:
        return [Context(label, label, None, merged=True, values=values) for label, values in self.values.items()]

    def notes(self) -> list[str]:
        return [
            f"{erratum.label} (errata {', '.join(filter(None, (str(self.version), erratum.id, erratum.upstream)))}):"
            f" {erratum.defect}. Corrected: {erratum.corrected}"
            for erratum in self.errata
        ]


def _case(state: output.RequestState, answer: str, helm: float) -> Case:
    right = (reference.output.text for reference in state.instance.references if output.CORRECT_TAG in reference.tags)
    return Case(
        prompt=state.instance.input.text,
        completion=answer,
        gold=next(right, ""),
        helm=helm,
        extra=state.instance.extra_data or {},
        annotations=state.annotations or {},
    )
