"""Checks if answers change when a question lists its choices in another order
(`extra.shuffle_choices`).
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.asked_again_records import Share
from eval_factory.core.results import ALL_ORDERS_SUFFIX, ChoiceOrders
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.confidence import Unit, mean_over_questions, unit_of, units_of
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.mean_over_askings import (
    add_mean_over_askings,
    metrics_with_name_and_split_of,
)
from eval_factory.scoring.part import Part
from eval_factory.scoring.readability import option_that_helm_reads
from eval_factory.scoring.request_states import answer_text_of, has_failed
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.asking_forms import REPEAT_PREFIX, SAME_WORDS_PREFIX, is_further_asking
from eval_factory.tasks.choice_question import (
    number_of_order,
    perturbation_of_order,
    why_not_reordered,
)

NO_OPTION = "no option"  # the key, among the letters, for answers that name no option


@dataclass
class ChoiceOrderCheck(Part):
    """The answers to questions whose choices were listed in several orders.

    The orders of one question are not independent, so each question counts as one value.
    """

    wanted: int  # the number of orders in which each question is to be asked
    pattern: str | None
    """The regular expression with which HELM finds a label in an answer. None if HELM takes the
    whole answer as the label.
    """
    by_order: Sequence[MetricValues]  # HELM's metrics of the questions in the other orders
    chosen: dict[Unit, dict[int, str | None]] = field(default_factory=lambda: defaultdict(dict))
    """Question -> order -> the text of the chosen option, or None if the answer names no option.
    Requests that failed are left out.
    """
    # the number of orders in which each question was asked
    order_counts: dict[Unit, int] = field(default_factory=Counter)
    not_reordered: dict[Unit, str] = field(default_factory=dict)
    """Question -> the reason why its choices stay in their original order."""
    letters: Counter[str] = field(default_factory=Counter)
    """Letter -> how often it was chosen, over all orders; `NO_OPTION` for answers without one."""
    right: RightAnswers | None = None
    """The part that reads the answers. `RightAnswers` sees each request before this part does."""

    @classmethod
    def of(
        cls, plan: Plan, run: output.HelmRun, metrics: Sequence[MetricValues]
    ) -> tuple[ChoiceOrderCheck | None, Sequence[MetricValues]]:
        """Return the check, and the metrics of the questions in their original order.

        These metrics include the metrics of questions that were asked again in another way. The
        metrics that HELM derives from the orders, such as worst cases, are left out. If the run
        asks questions in their original order only, the check is None, and all metrics are
        returned.
        """
        wanted = plan.evaluation.extra.shuffle_choices
        if wanted is None:
            return None, metrics
        in_original_order = []
        in_other_orders = []
        for metric in metrics:
            # Another order of the choices is not a further asking: no metric is in both lists.
            if metric.perturbation is None or is_further_asking(metric.perturbation):
                in_original_order.append(metric)
            # For None (the original order), `number_of_order` would return 1.
            if metric.perturbation is not None and number_of_order(metric.perturbation):
                in_other_orders.append(metric)
        pattern = run.run_spec.adapter_spec.output_mapping_pattern
        return cls(wanted, pattern, in_other_orders), in_original_order

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store the option that was chosen, if the request asks a question in one of the orders."""
        _, _, perturbation = key
        order = number_of_order(perturbation)
        if order is None:
            return
        unit = unit_of(key)
        self.order_counts[unit] += 1
        reason = why_not_reordered(
            [reference.output.text for reference in state.instance.references]
        )
        if reason is not None:
            self.not_reordered[unit] = reason
        if has_failed(state):
            return
        options = state.output_mapping or {}  # label -> text of the option
        label = option_that_helm_reads(answer_text_of(state), self.pattern)
        self.chosen[unit][order] = options.get(label)
        if label in options:
            self.letters[label] += 1
        else:
            self.letters[NO_OPTION] += 1

    def values_of(self, main: MetricValues) -> dict[int, MetricValues]:
        """Return the main metric's values in each order, by the order's number, from 1.

        After the original order, the orders are sorted as texts, as in all earlier results: 10
        comes before 2.
        """
        by_number = {}
        for metric in metrics_with_name_and_split_of(main, self.by_order):
            order = number_of_order(metric.perturbation)
            if order is not None:
                by_number[order] = metric
        values = {1: main}
        for order in sorted(by_number, key=str):
            values[order] = by_number[order]
        return values

    def compare(self, draft: Draft) -> None:
        """Add the report, and the main metric's score over all orders of each question, with its
        bounds.
        """
        main = draft.main_values
        draft.choice_orders = self.order_report(main, draft.missing)
        if main is not None:
            add_mean_over_askings(draft, list(self.values_of(main).values()), ALL_ORDERS_SUFFIX)

    def order_report(self, main: MetricValues | None, missing: set[InstanceKey]) -> ChoiceOrders:
        """Return the report on the questions that were asked in more than one order.

        Args:
            main: the values of the main metric in the original order, if there are any.
            missing: the instances without a value that counts.
        """
        reordered = [unit for unit, count in self.order_counts.items() if count > 1]
        by_order = {}
        right_in_all = {}
        clusters: Mapping[str, str] = {}
        rule = None
        if main is not None:
            by_order = self._means_by_order(main, reordered, missing)
            right_in_all = self._right_in_all_orders(main, reordered, missing)
            clusters = main.clusters or {}
        if self.right is not None:
            rule = self.right.reading_rule()

        def sources(units: Sequence[Unit]) -> list[str]:
            return [clusters.get(question, question) for question, _ in units]

        def share(values: Mapping[Unit, float]) -> Share | None:
            # Without a stated scale, values from 0 to 1 are treated as a proportion.
            return mean_over_questions(values, sources, scale=None)

        return ChoiceOrders(
            orders=self.wanted,
            questions=len(reordered),
            kept=dict(sorted(Counter(self.not_reordered.values()).items())),
            by_order=by_order,
            changed=share(self._changed(reordered)),
            right_in_all=share(right_in_all),
            letters=dict(sorted(self.letters.items())),
            right_by=rule,
            same_words=share(self._changed_in_same_words(reordered)),
        )

    def _changed(self, reordered: Sequence[Unit]) -> dict[Unit, float]:
        """Return 1 for each question whose answers differ between orders, and 0 if all are equal.

        Questions with fewer than two answers are left out.
        """
        answers = self._answers()
        changed = {}
        for unit in reordered:
            by_order = answers[unit]
            if len(by_order) > 1:
                changed[unit] = float(len(set(by_order.values())) > 1)
        return changed

    def _answers(self) -> dict[Unit, dict[int, str | None]]:
        """Return the option that was chosen for each question in each order.

        If the answer reader decides which answers are right, the reader also finds the options.
        Answers that the reader cannot read are then left out. Otherwise, HELM's match finds the
        options, and the option of an answer that names none is None.
        """
        if self.right is None or not self.right.is_read_by_reader:
            return self.chosen
        answers: dict[Unit, dict[int, str | None]] = defaultdict(dict)
        for unit, by_order in self.chosen.items():
            for order in by_order:
                text = self.right.comparable_answer((*unit, _name_of_order(order)))
                if text is not None:
                    answers[unit][order] = text
        return answers

    def _means_by_order(
        self, main: MetricValues, reordered: Sequence[Unit], missing: set[InstanceKey]
    ) -> dict[str, float | None]:
        """Return the mean value in each order, by the order's number; None if no value counts."""
        means: dict[str, float | None] = {}
        questions = set(reordered)
        for order, metric in self.values_of(main).items():
            values = []
            for key, value in self._values_by_reader(metric.values).items():
                if unit_of(key) in questions and key not in missing:
                    values.append(value)
            means[str(order)] = None
            if values:
                means[str(order)] = statistics.fmean(values)
        return means

    def _right_in_all_orders(
        self, main: MetricValues, reordered: Sequence[Unit], missing: set[InstanceKey]
    ) -> dict[Unit, float]:
        """Return 1 for each question with the full value in every order, and 0 for the rest.

        Questions with a missing or unread answer in some order are left out.
        """
        lowest: dict[Unit, float] = {}
        for metric in self.values_of(main).values():
            for key, value in self._values_by_reader(metric.values).items():
                unit = unit_of(key)
                lowest[unit] = min(value, lowest.get(unit, value))
        left_out = units_of(missing) | self._unread_in_some_order(reordered)
        right = {}
        for unit in reordered:
            if unit in lowest and unit not in left_out:
                right[unit] = float(lowest[unit] >= 1.0)
        return right

    def _values_by_reader(self, values: Mapping[InstanceKey, float]) -> dict[InstanceKey, float]:
        """Return the values by the answer reader, without unread answers.

        If HELM's match decides which answers are right, return the passed values.
        """
        if self.right is None or not self.right.is_read_by_reader:
            return dict(values)
        by_reader = {}
        for key, value in values.items():
            if not self.right.is_unread(key):
                # A failed request has the metric's value, because `right` has no entry for it.
                by_reader[key] = float(self.right.correctness.get(key, value))
        return by_reader

    def _unread_in_some_order(self, units: Sequence[Unit]) -> set[Unit]:
        """Return the questions that have an unread answer in at least one order.

        `_right_in_all_orders` leaves these questions out, because an unread answer may be right.
        The set is empty if HELM's match decides which answers are right.
        """
        unread = set[Unit]()
        if self.right is None or not self.right.is_read_by_reader:
            return unread
        names = list(map(_name_of_order, range(1, self.wanted + 1)))
        for unit in units:
            if self.right.is_unread_in(unit, names):
                unread.add(unit)
        return unread

    def _changed_in_same_words(self, units: Sequence[Unit]) -> dict[Unit, float]:
        """Return the share of each question's repeated askings that got another choice.

        A repeated asking has the same words and the same order of choices. Questions without a
        readable repeated answer are left out.
        """
        if self.right is None:
            return {}
        changes: dict[Unit, list[float]] = defaultdict(list)
        for key in self.right.helm_matches:  # the keys are all askings that have an answer
            _, _, perturbation = key
            if perturbation is None or not perturbation.startswith(
                (REPEAT_PREFIX, SAME_WORDS_PREFIX)
            ):
                continue
            unit = unit_of(key)
            first = self.right.comparable_answer((*unit, None))
            repeated = self.right.comparable_answer(key)
            if first is not None and repeated is not None:
                changes[unit].append(float(repeated != first))
        by_unit = {}
        for unit in units:
            if unit in changes:
                by_unit[unit] = statistics.fmean(changes[unit])
        return by_unit


def _name_of_order(order: int) -> str | None:
    """Return the name of the perturbation of an order; None for order 1, the original order."""
    if order == 1:
        return None
    return perturbation_of_order(order)
