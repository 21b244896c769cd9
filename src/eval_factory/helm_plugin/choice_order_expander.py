"""Expands `shuffle_choices=N` in a run entry: HELM asks each question with its choices in N orders.

The original order counts as one of the N orders. HELM's own data augmentation makes the further
orders. The original question stays first and unperturbed, so HELM's statistics of the original
questions do not change. Each further order is a perturbation, which HELM adapts, asks and scores
like any other perturbation.
"""

from __future__ import annotations

from dataclasses import replace

from helm.benchmark.adaptation.adapter_spec import (
    ADAPT_MULTIPLE_CHOICE_JOINT,
    ADAPT_MULTIPLE_CHOICE_JOINT_MULTIMODAL,
)
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import Instance

from eval_factory.helm_plugin.further_askings import (
    FurtherAsking,
    perturbation_spec,
    register_expander,
    same_input,
    with_more_askings,
)
from eval_factory.tasks.choice_question import orders_of, perturbation_of_order


class ChoiceOrder(FurtherAsking):
    """A perturbation that shows the choices of a question in another order.

    A question stays unchanged if its choices have fewer orders than the number of this order, or if
    its choices must not be reordered.
    """

    def __init__(self, order: int) -> None:
        """Make the perturbation.

        `order` is the number of the order: 2 or more, because the original order is number 1.
        """
        super().__init__(perturbation_of_order(order))
        self._order = order

    # HELM's `seed` is not used: the orders depend on the instance's id and choices.
    def apply(self, instance: Instance, seed: int | None = None) -> Instance:  # noqa: ARG002
        choices = [reference.output.text for reference in instance.references]
        orders = orders_of(str(instance.id), choices, self._order)
        if len(orders) < self._order:
            return instance
        # `orders` begins with the original order and ends with the order of this perturbation.
        reordered = [instance.references[position] for position in orders[-1]]
        return replace(
            instance,
            input=same_input(instance),  # the same text, but unequal: HELM skips an equal input
            references=reordered,
            perturbation=self.description,
        )


def shuffle_choices(run_spec: RunSpec, orders: str) -> RunSpec:
    """Return a run spec that asks each question in further orders of its choices.

    Args:
        run_spec: a run spec of multiple-choice questions.
        orders: the number of orders as a text, the original order included.

    Raises:
        ValueError: the questions have no lettered choices, `orders` is not a number, or the run
            spec has perturbations that are not eval-factory's.
    """
    method = run_spec.adapter_spec.method
    if method not in (ADAPT_MULTIPLE_CHOICE_JOINT, ADAPT_MULTIPLE_CHOICE_JOINT_MULTIMODAL):
        raise ValueError(
            f"shuffle_choices needs questions with lettered options, and {run_spec.name} "
            f"is {method}"
        )
    further_orders = range(2, int(orders) + 1)
    specs = [perturbation_spec(ChoiceOrder, order=order) for order in further_orders]
    return with_more_askings(run_spec, specs)


register_expander("shuffle_choices", shuffle_choices)
