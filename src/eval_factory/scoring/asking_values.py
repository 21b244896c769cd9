"""Stores the main metric's values of each asking, and compares the askings of the same questions.

An asking is one way to ask all questions, such as a repeat, other words or a doubt. The intervals
take into account that questions may share a source, such as a note or a patient.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

from eval_factory.core.asked_again_records import Change, Share
from eval_factory.helm.metric_facts import metric_facts_of
from eval_factory.scoring.confidence import Unit, mean_over_questions, unit_of, units_of
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import PROPORTION, Bounds
from eval_factory.scoring.mean_over_askings import metrics_with_name_and_split_of
from eval_factory.scoring.paired import paired_difference
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    is_derived,
    sources_of,
    with_missing_counted,
)
from eval_factory.tasks.asking_forms import REPEAT_PREFIX, SAME_WORDS_PREFIX, is_further_asking
from eval_factory.tasks.choice_question import number_of_order

FIRST_ASKING = ""  # the name of a question's first asking, in its original form
MIN_IN_GROUP = 10  # the smallest number of questions in a group whose change is reported


def names_of_repeats(times: int) -> list[str]:
    """Return the names of all askings in the same words, the first asking included.

    `times` is the number of these askings.
    """
    return [FIRST_ASKING, *(f"{REPEAT_PREFIX}{number}" for number in range(2, times + 1))]


def split_right_and_wrong(
    units: Iterable[Unit], values: Mapping[Unit, float]
) -> tuple[list[Unit], list[Unit]]:
    """Return two lists: the questions with the full value (1), and the questions with less."""
    right = []
    wrong = []
    for unit in units:
        if values[unit] >= 1.0:
            right.append(unit)
        else:
            wrong.append(unit)
    return right, wrong


class AskingValues:
    """The main metric's values of each asking.

    A unit is a question in one trial. The methods call a unit a question. An answer is unread if no
    rule finds the option that it states.
    """

    def __init__(
        self,
        draft: Draft,
        main: MetricValues,
        metrics_asked_again: Sequence[MetricValues],
        right: RightAnswers,
        unchanged: Collection[InstanceKey],
        *,
        times: int,
    ) -> None:
        """Sort the main metric's values by asking.

        Args:
            draft: the unfinished result.
            main: the values of the main metric for the first asking.
            metrics_asked_again: HELM's metrics of the further askings.
            right: the part that reads the answers.
            unchanged: the further askings with the original prompt: HELM's perturbation was to
                change the question, and found nothing to change.
            times: the number of askings of each question in the same words.
        """
        self._main = main
        self._members = draft.tally.members
        self._missing = draft.missing
        self._as_zero = draft.missing_as_zero
        self._right = right
        self.scale = main.scale
        # A metric without a known scale is treated as a proportion.
        known_scale = metric_facts_of(main.name, main.scale).scale or PROPORTION
        self.has_right = known_scale == PROPORTION
        """True if a value of 1 means a right answer; False if the metric is a rating."""
        self.is_read_by_reader = self.has_right and right.is_read_by_reader
        """True if the answer reader, and not HELM's match, decides which answers are right."""
        self._repeats = names_of_repeats(times)[1:]
        # name of an asking -> the value of each instance
        self._by_name: dict[str, Mapping[InstanceKey, float]] = {FIRST_ASKING: main.values}
        self.perturbations_of_helm: dict[str, str] = {}
        """Family -> name of the perturbation, for HELM's own perturbations.

        Each of HELM's perturbations is a family of its own, so the key equals the value. The dict
        has keys because `changed_answers` uses it in place of the families of `extra.perturb`,
        whose perturbations have other names.
        """
        # `draft.metrics` has the metrics of HELM's own perturbations.
        for metric in metrics_with_name_and_split_of(main, (*metrics_asked_again, *draft.metrics)):
            if metric.perturbation and not is_derived(metric):
                self._add(metric.perturbation, metric.values, unchanged)

    def _add(
        self, name: str, values: Mapping[InstanceKey, float], unchanged: Collection[InstanceKey]
    ) -> None:
        """Add the values of an asking, without the questions that the perturbation left as they
        were.
        """
        changed = {}
        for key, value in values.items():
            if key not in unchanged:
                changed[key] = value
        self._by_name[name] = changed
        # All perturbations are HELM's own, except further askings and orders of the choices.
        if not is_further_asking(name) and number_of_order(name) is None:
            self.perturbations_of_helm[name] = name

    def values_of(self, name: str) -> dict[Unit, float]:
        """Return the value of each question in an asking, without the answers that no rule reads.

        If the answer reader decides which answers are right, its decision (1 or 0) replaces the
        metric's value. Questions without an answer are left out or have the value 0, as in the
        score.
        """
        values = self._by_name.get(name, {})
        counted = with_missing_counted(
            values, self._missing & values.keys(), failed_as_zero=self._as_zero
        )
        by_unit = {}
        for key, value in counted.items():
            if self._right.is_unread(key):
                continue
            by_unit[unit_of(key)] = value
            if self.is_read_by_reader and key in self._right.correctness:
                by_unit[unit_of(key)] = float(self._right.correctness[key])
        return by_unit

    def count_unread_in(self, names: Sequence[str]) -> int:
        """Count the questions with an unread answer in at least one of the named askings.

        Only questions that have a value in all named askings count.
        """
        count = 0
        units_of_askings = [self._units_of(name) for name in names]
        for unit in set.intersection(*units_of_askings):
            if self._right.is_unread_in(unit, names):
                count += 1
        return count

    def _units_of(self, name: str) -> set[Unit]:
        """Return the questions of an asking."""
        return units_of(self._by_name.get(name, {}))

    def count_not_asked(self, name: str) -> int:
        """Count the questions that have a first asking, but not this asking."""
        units = self._units_of(name)
        count = 0
        for key in self._by_name[FIRST_ASKING]:
            if unit_of(key) not in units:
                count += 1
        return count

    def sources(self, units: Sequence[Unit]) -> list[str] | None:
        """Return the source of each question.

        The result is None if the task declares no sources and each question has only one trial.
        All trials of a question have the same source.
        """
        questions = [question for question, _ in units]
        sources = sources_of(self._main, questions)
        has_several_trials = len(set(questions)) < len(questions)
        if sources is None and has_several_trials:
            return questions  # the id of the question is the source of all its trials
        return sources

    def mean_over_questions(
        self,
        units: Collection[Unit],
        value_of: Callable[[Unit], float],
        scale: Bounds | None = PROPORTION,
    ) -> Share | None:
        """Return the mean over the questions, with its interval; None if there is no question.

        Args:
            units: the questions.
            value_of: returns the value of a question. True counts as 1 and False as 0.
            scale: the lowest and the highest possible value; None if the scale is not known.
        """
        values = {unit: float(value_of(unit)) for unit in units}
        return mean_over_questions(values, self.sources, scale)

    def share_right(self, units: Collection[Unit], values: Mapping[Unit, float]) -> Share | None:
        """Return the share of questions with the full value (1); None if there is no question."""
        return self.mean_over_questions(units, lambda unit: values[unit] >= 1.0)

    def change_from_first(self, name: str, among: Collection[Unit] | None = None) -> Change | None:
        """Return the change of the mean value from the first asking to another asking.

        With repeats, the value before the change is a question's mean over the repeats.

        Args:
            name: the name of the other asking.
            among: the questions to compare; all questions if None. The number of unread answers is
                reported only for all questions.

        Returns:
            None if no question has a value in both askings.
        """
        before = self.values_of(FIRST_ASKING)
        after = self.values_of(name)
        units = []
        for unit in before:
            if unit in after and (among is None or unit in among):
                units.append(unit)
        if not units:
            return None
        comparison = paired_difference(
            [self._value_before(unit, before[unit]) for unit in units],
            [after[unit] for unit in units],
            clusters=self.sources(units),
            scale=self.scale,
        )
        unread = 0
        if among is None:
            unread = self.count_unread_in([FIRST_ASKING, name])
        return Change(
            questions=len(units),
            before=comparison.value_a,
            after=comparison.value_b,
            difference=comparison.difference,
            ci_low=comparison.ci_low,
            ci_high=comparison.ci_high,
            p_value=comparison.p_value,
            **self._flips(units, before, after),
            unread=unread,
        )

    def _flips(
        self, units: Sequence[Unit], before: Mapping[Unit, float], after: Mapping[Unit, float]
    ) -> dict[str, Share | None]:
        """Return three shares of questions, by their field in `Change`.

        - `right_to_wrong`: the share that became wrong, among the questions that were right.
        - `wrong_to_right`: the share that became right, among the questions that were wrong.
        - `same_words`: for comparison, the share of wrong answers when questions that were right
          were asked again in the same words.

        The mapping is empty if the metric is a rating.
        """
        if not self.has_right:
            return {}
        was_right, was_wrong = split_right_and_wrong(units, before)
        wrong_share = self._wrong_share_in_same_words
        asked_in_same_words = [unit for unit in was_right if unit in wrong_share]
        return {
            "right_to_wrong": self.mean_over_questions(was_right, lambda unit: after[unit] < 1.0),
            "wrong_to_right": self.share_right(was_wrong, after),
            "same_words": self.mean_over_questions(
                asked_in_same_words, lambda unit: wrong_share[unit]
            ),
        }

    def _value_before(self, unit: Unit, first: float) -> float:
        """Return a question's value before the change: the mean of its first value and its
        repeats.
        """
        values = [first]
        for by_unit in self._values_of_repeats:
            if unit in by_unit:
                values.append(by_unit[unit])
        return statistics.fmean(values)

    @cached_property
    def _values_of_repeats(self) -> list[dict[Unit, float]]:
        """The values of each repeat, without the first asking."""
        return list(map(self.values_of, self._repeats))

    @cached_property
    def _wrong_share_in_same_words(self) -> dict[Unit, float]:
        """The share of wrong answers to each question that was asked again in the same words.

        The mapping has only the questions whose first answer was right.
        """
        askings = self._values_of_repeats
        if not askings:
            # Without `extra.repeats`, another option may have asked some questions again in the
            # same words, to measure the changes by chance.
            askings = [
                self.values_of(name) for name in self._by_name if name.startswith(SAME_WORDS_PREFIX)
            ]
        shares = {}
        for unit, first_value in self.values_of(FIRST_ASKING).items():
            wrong = [float(values[unit] < 1.0) for values in askings if unit in values]
            if first_value >= 1.0 and wrong:
                shares[unit] = statistics.fmean(wrong)
        return shares

    def changes_by_group(self, name: str) -> dict[str, dict[str, Change]]:
        """Return the change from the first asking to another asking, for each group of questions.

        The outer key is a field of the instances, and the inner key is a value of that field.
        Only questions with a value in both askings count. A group is left out if fewer than
        `MIN_IN_GROUP` of its questions count. A group of all questions is left out, too, because
        its change is that of all questions.
        """
        before = self.values_of(FIRST_ASKING)
        after = self.values_of(name)
        groups: dict[str, dict[str, Change]] = {}
        for field_name, by_value in self._members.items():
            for value, keys in by_value.items():
                units = units_of(keys) & before.keys() & after.keys()
                if MIN_IN_GROUP <= len(units) < len(before):
                    change = self.change_from_first(name, units)
                    if change is not None:
                        groups.setdefault(field_name, {})[value] = change
        return groups
