"""The check whether answers change when the choices of a question stand in another order
(`extra.shuffle_choices`).
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.asked_again_records import Share
from eval_factory.core.results import ALL_ORDERS, ChoiceOrders
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.confidence import Unit, share_of, units_of
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.mean_over_askings import add_mean_over, same_metric
from eval_factory.scoring.part import Part
from eval_factory.scoring.readability import option_read
from eval_factory.scoring.request_states import has_failed, text_of
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.asking_forms import REPEAT, SAME_WORDS, is_asked_again
from eval_factory.tasks.choice_question import name_of, number_of_order, why_kept

NO_OPTION = "no option"  # the count of answers that name no option


@dataclass
class ChoiceOrderCheck(Part):
    """The answers to questions whose choices stood in several orders.

    A question's orders are not independent of each other, so they make one value each.
    """

    wanted: int  # orders of each question
    pattern: str | None  # by which HELM finds a label in an answer; None: the answer is the label
    by_order: Sequence[MetricValues]  # HELM's metrics of the questions in other orders
    chosen: dict[Unit, dict[int, str | None]] = field(default_factory=lambda: defaultdict(dict))
    """Order -> the text of the option that was chosen; a request that failed is not in it."""
    # how many orders each question was asked in
    orders: dict[Unit, int] = field(default_factory=Counter)
    kept: dict[Unit, str] = field(default_factory=dict)
    """Questions whose choices stay in their order, each with the reason."""
    letters: Counter[str] = field(default_factory=Counter)
    right: RightAnswers | None = None  # reads the same answers; it sees each request before

    @classmethod
    def of(
        cls, plan: Plan, run: output.HelmRun, metrics: Sequence[MetricValues]
    ) -> tuple[ChoiceOrderCheck | None, Sequence[MetricValues]]:
        """Return the check, or None if there is one order; and the metrics without those that are
        of other orders alone.
        """
        wanted = plan.evaluation.extra.shuffle_choices
        if wanted is None:
            return None, metrics
        original = []
        of_other_orders = []
        for metric in metrics:
            if metric.perturbation is None or is_asked_again(metric.perturbation):
                original.append(metric)
            if metric.perturbation is not None and number_of_order(metric.perturbation):
                of_other_orders.append(metric)
        pattern = run.run_spec.adapter_spec.output_mapping_pattern
        return cls(wanted, pattern, of_other_orders), original

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        order = number_of_order(key[2])
        if order is None:
            return
        unit = key[:2]
        self.orders[unit] += 1
        reason = why_kept([reference.output.text for reference in state.instance.references])
        if reason is not None:
            self.kept[unit] = reason
        if has_failed(state):
            return
        options = state.output_mapping or {}
        label = option_read(text_of(state), self.pattern)
        self.chosen[unit][order] = options.get(label)
        if label in options:
            self.letters[label] += 1
        else:
            self.letters[NO_OPTION] += 1

    def values_of(self, main: MetricValues) -> dict[int, MetricValues]:
        """Return the main metric's values in each order, by the order's number."""
        by_number = {}
        for metric in same_metric(main, self.by_order):
            order = number_of_order(metric.perturbation)
            if order is not None:
                by_number[order] = metric
        return {1: main, **{order: by_number[order] for order in sorted(by_number, key=str)}}

    def compare(self, draft: Draft) -> None:
        """Add the report, the main metric's score over all orders of each question, and its
        bounds.
        """
        main = draft.main_values
        draft.choice_orders = self.order_report(main, draft.missing)
        if main is not None:
            add_mean_over(draft, list(self.values_of(main).values()), ALL_ORDERS)

    def order_report(self, main: MetricValues | None, missing: set[InstanceKey]) -> ChoiceOrders:
        """Report on the questions that were asked in more than one order."""
        moved = [unit for unit, count in self.orders.items() if count > 1]
        by_order = {}
        right_in_all = {}
        clusters: Mapping[str, str] = {}
        rule = None
        if main is not None:
            by_order = self._means_by_order(main, moved, missing)
            right_in_all = self._right_in_all_orders(main, moved, missing)
            clusters = main.clusters or {}
        if self.right is not None:
            rule = self.right.reading_rule()

        def sources(units: Sequence[Unit]) -> list[str]:
            return [clusters.get(question, question) for question, _ in units]

        def share(values: Mapping[Unit, float]) -> Share | None:
            return share_of(values, sources, None)

        return ChoiceOrders(
            orders=self.wanted,
            questions=len(moved),
            kept=dict(sorted(Counter(self.kept.values()).items())),
            by_order=by_order,
            changed=share(self._changed(moved)),
            right_in_all=share(right_in_all),
            letters=dict(sorted(self.letters.items())),
            right_by=rule,
            same_words=share(self._changed_in_same_words(moved)),
        )

    def _changed(self, moved: Sequence[Unit]) -> dict[Unit, float]:
        """1 for a question with several answers that are not all the same, 0 for one whose answers
        are.
        """
        answers = self._answers()
        changed = {}
        for unit in moved:
            of_question = answers[unit]
            if len(of_question) > 1:
                changed[unit] = float(len(set(of_question.values())) > 1)
        return changed

    def _answers(self) -> dict[Unit, dict[int, str | None]]:
        """Return the choice in each order; without answers that no rule reads, where the reader
        decides.
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
        self, main: MetricValues, moved: Sequence[Unit], missing: set[InstanceKey]
    ) -> dict[str, float | None]:
        means: dict[str, float | None] = {}
        questions = set(moved)
        for order, metric in self.values_of(main).items():
            values = []
            for key, value in self._by_the_rule(metric.values).items():
                if key[:2] in questions and key not in missing:
                    values.append(value)
            means[str(order)] = None
            if values:
                means[str(order)] = statistics.fmean(values)
        return means

    def _right_in_all_orders(
        self, main: MetricValues, moved: Sequence[Unit], missing: set[InstanceKey]
    ) -> dict[Unit, float]:
        """1 for a question with the full value in every order; of questions whose every order was
        answered, and read.
        """
        worst: dict[Unit, float] = {}
        for metric in self.values_of(main).values():
            for key, value in self._by_the_rule(metric.values).items():
                worst[key[:2]] = min(value, worst.get(key[:2], value))
        left_out = units_of(missing) | self._unread_in_some_order(moved)
        right = {}
        for unit in moved:
            if unit in worst and unit not in left_out:
                right[unit] = float(worst[unit] >= 1.0)
        return right

    def _by_the_rule(self, values: Mapping[InstanceKey, float]) -> dict[InstanceKey, float]:
        if self.right is None or not self.right.is_read_by_reader:
            return dict(values)
        ruled = {}
        for key, value in values.items():
            if not self.right.is_unread(key):
                ruled[key] = float(self.right.right.get(key, value))
        return ruled

    def _unread_in_some_order(self, units: Sequence[Unit]) -> set[Unit]:
        """Questions with an answer that no rule reads: nobody knows whether it is right."""
        unread = set[Unit]()
        if self.right is None or not self.right.is_read_by_reader:
            return unread
        names = list(map(_name_of_order, range(1, self.wanted + 1)))
        for unit in units:
            if self.right.is_unread_in(unit, names):
                unread.add(unit)
        return unread

    def _changed_in_same_words(self, units: Sequence[Unit]) -> dict[Unit, float]:
        """Return how often each question's choice was another one when only the draw was."""
        if self.right is None:
            return {}
        changes: dict[Unit, list[float]] = defaultdict(list)
        for key in self.right.helm_matches:
            if not (key[2] or "").startswith((REPEAT, SAME_WORDS)):
                continue
            first = self.right.comparable_answer((*key[:2], None))
            repeated = self.right.comparable_answer(key)
            if first is not None and repeated is not None:
                changes[key[:2]].append(float(repeated != first))
        by_unit = {}
        for unit in units:
            if unit in changes:
                by_unit[unit] = statistics.fmean(changes[unit])
        return by_unit


def _name_of_order(order: int) -> str | None:
    """The perturbation of an order; the first one is the question as it is."""
    if order == 1:
        return None
    return name_of(order)
