"""What becomes of the answers when the choices of a question stand in another order (`extra.shuffle_choices`).

The question is the unit: its orders are not independent of each other, so they make one value each, and sources that
questions share are clusters of them. HELM's own score stays that of the original order.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.results import ALL_ORDERS, ChoiceOrders, Share
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.asked_again import add_mean_over
from eval_factory.scoring.confidence import Unit, share_of
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.readability import option_read
from eval_factory.scoring.request_states import has_failed, text_of
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.choice_question import number_of_order, why_kept

NO_OPTION = "no option"  # what an answer is counted as that names none


@dataclass
class ChoiceOrderCheck:
    wanted: int  # orders of each question
    pattern: str | None  # by which HELM finds a label in an answer; None: the answer is the label
    by_order: Sequence[MetricValues]  # HELM's metrics of the questions in other orders
    asked: dict[Unit, dict[int, str | None]] = field(default_factory=lambda: defaultdict(dict))
    """Order -> the text of the option that was chosen; a request that failed is not in it."""
    orders: dict[Unit, int] = field(default_factory=Counter)  # how many orders each question was asked in
    kept: dict[Unit, str] = field(default_factory=dict)
    letters: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls, plan: Plan, run: output.HelmRun, metrics: Sequence[MetricValues]
    ) -> tuple[ChoiceOrderCheck | None, Sequence[MetricValues]]:
        """The check, and the metrics without those that are of other orders alone; None where there is one order."""
        wanted = plan.evaluation.run.config.params.extra.shuffle_choices
        if wanted is None:
            return None, metrics
        original = [one for one in metrics if one.perturbation is None]
        others = [one for one in metrics if one.perturbation is not None and number_of_order(one.perturbation)]
        return cls(wanted, run.run_spec.adapter_spec.output_mapping_pattern, others), original

    def add(self, key: InstanceKey, state: output.RequestState) -> None:
        order = number_of_order(key[2])
        if order is None:
            return
        unit = key[:2]
        self.orders[unit] += 1
        why = why_kept([reference.output.text for reference in state.instance.references])
        if why is not None:
            self.kept[unit] = why
        if has_failed(state):
            return
        options = state.output_mapping or {}
        label = option_read(text_of(state), self.pattern)
        self.asked[unit][order] = options.get(label)
        self.letters[label if label in options else NO_OPTION] += 1

    def values_of(self, main: MetricValues) -> dict[int, MetricValues]:
        """Order -> the main metric's values in it."""
        same = [one for one in self.by_order if (one.name, one.split) == (main.name, main.split)]
        found = {number_of_order(metric.perturbation): metric for metric in same}
        return {1: main, **{order: metric for order, metric in sorted(found.items(), key=str) if order is not None}}

    def complete(self, draft: Draft) -> None:
        """Add the report, the main metric's score over all orders of each question, and its bounds."""
        main, missing = draft.main_values, draft.missing
        draft.choice_orders = self.report(main, missing)
        if main is None:
            return
        add_mean_over(draft, list(self.values_of(main).values()), ALL_ORDERS)

    def report(self, main: MetricValues | None, missing: set[InstanceKey]) -> ChoiceOrders:
        """Over the questions that were asked in more than one order."""
        moved = [unit for unit, count in self.orders.items() if count > 1]
        answered = {unit: self.asked[unit] for unit in moved if len(self.asked[unit]) > 1}
        changed = {unit: float(len(set(by_order.values())) > 1) for unit, by_order in answered.items()}
        clusters = (None if main is None else main.clusters) or {}

        def share(values: Mapping[Unit, float]) -> Share | None:
            return share_of(values, lambda units: [clusters.get(question, question) for question, _ in units], None)

        by_order = {} if main is None else self.values_of(main)
        means: dict[str, float | None] = {}
        worst: dict[Unit, float] = {}
        several = set(moved)
        for order, metric in by_order.items():
            asked = [value for key, value in metric.values.items() if key[:2] in several and key not in missing]
            means[str(order)] = statistics.fmean(asked) if asked else None
            for key, value in metric.values.items():
                worst[key[:2]] = min(value, worst.get(key[:2], value))
        lost = {key[:2] for key in missing}
        return ChoiceOrders(
            orders=self.wanted,
            questions=len(moved),
            kept=dict(sorted(Counter(self.kept.values()).items())),
            by_order=means,
            changed=share(changed),
            # of the questions whose every order was answered: each answer has the full value
            right_in_all=share(
                {unit: float(worst[unit] >= 1.0) for unit in moved if unit in worst and unit not in lost}
            ),
            letters=dict(sorted(self.letters.items())),
        )
