"""`shuffle_choices=N` in a run entry: each question is asked with its choices in N orders, by HELM's own augmentation.

The question as it is stays first and unperturbed, so HELM's statistics of it are those of a run without this; each
further order is a perturbation, which HELM adapts, asks and scores like any.
"""

from __future__ import annotations

from dataclasses import replace

from helm.benchmark.adaptation.adapter_spec import ADAPT_MULTIPLE_CHOICE_JOINT, ADAPT_MULTIPLE_CHOICE_JOINT_MULTIMODAL
from helm.benchmark.augmentations.perturbation import Perturbation, PerturbationSpec
from helm.benchmark.augmentations.perturbation_description import PerturbationDescription
from helm.benchmark.run_expander import RUN_EXPANDERS, RunExpander
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import Instance

from eval_factory.helm_plugin.asked_again import same_input, with_more_askings
from eval_factory.tasks.choice_question import name_of, orders_of


class ChoiceOrder(Perturbation):  # type: ignore[misc]
    """The choices of a question in another order; a question that has no such order stays as it is."""

    name = "choice_order"

    def __init__(self, order: int) -> None:
        """Args: order: from 2 on."""
        self._order = order

    @property
    def description(self) -> PerturbationDescription:
        return PerturbationDescription(name=name_of(self._order))

    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002 - the id is the seed
        choices = [reference.output.text for reference in instance.references]
        orders = orders_of(str(instance.id), choices, self._order)
        if len(orders) < self._order:
            return instance
        return replace(
            instance,
            input=same_input(instance),
            references=[instance.references[at] for at in orders[-1]],
            perturbation=self.description,
        )


class ShuffleChoicesRunExpander(RunExpander):  # type: ignore[misc]
    """Adds the other orders to a run; its name stays HELM's."""

    name = "shuffle_choices"

    def __init__(self, value: int) -> None:
        """Args: value: how many orders, the original among them."""
        self.orders = int(value)

    def expand(self, run_spec: RunSpec) -> list[RunSpec]:
        """Raises ValueError where there are no choices to move, or inputs are perturbed in another way."""
        method = run_spec.adapter_spec.method
        if method not in (ADAPT_MULTIPLE_CHOICE_JOINT, ADAPT_MULTIPLE_CHOICE_JOINT_MULTIMODAL):
            raise ValueError(f"shuffle_choices needs questions with lettered options, and {run_spec.name} is {method}")
        path = f"{ChoiceOrder.__module__}.{ChoiceOrder.__qualname__}"
        specs = [PerturbationSpec(class_name=path, args={"order": order}) for order in range(2, self.orders + 1)]
        return [with_more_askings(run_spec, specs)]


RUN_EXPANDERS[ShuffleChoicesRunExpander.name] = ShuffleChoicesRunExpander
