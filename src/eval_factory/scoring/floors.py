"""Computes the floors of a run: the best scores without a model, by the run's own metrics.

A trivial answer is an answer without a model, such as an empty text or always the same option. The
values of HELM's metrics for these answers were computed inside helm-run
(`helm/trivial_answers.py`). This module computes the corrected values, by the rules for the model's
answers.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from eval_factory.core import formats
from eval_factory.core.results import Floor, JudgeProbe, Score
from eval_factory.helm import output
from eval_factory.helm.criteria import decisions_of
from eval_factory.helm.trivial_answers import (
    EMPTY_STRATEGY,
    MAJORITY_STRATEGY,
    PADDED_STRATEGY,
    StrategyScores,
    TrivialScores,
    ehr_sql_annotation_of_strategy,
    read_trivial_scores,
)
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.jury import Jury
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.scores import InstanceKey, MetricValues, helm_mean, is_judged
from eval_factory.scoring.stated_options import EXACT_MATCH, LENIENT_SUFFIX
from eval_factory.tasks.errata import CORRECTED_SUFFIX
from eval_factory.tasks.reasoned import REASONED_SUFFIX

INCOMPLETE_FLOORS = "the best score without a model is incomplete: "
"""The beginning of the note on floors that are missing."""


class _Strategy:
    """A way to answer without a model, with its values of HELM's metrics and of the corrected
    metrics.
    """

    def __init__(
        self,
        plan: Plan,
        trivial: TrivialScores,
        scored: StrategyScores,
        run_metrics: Sequence[MetricValues],
    ) -> None:
        """Store the scores of one strategy.

        Args:
            plan: the plan of the run.
            trivial: the scores of all strategies.
            scored: the scores of this strategy.
            run_metrics: HELM's metrics of the model's answers.

        Raises:
            ValueError: the number of a metric's values is not the number of questions.
        """
        # `scored.values` maps the name of a metric to its column: a value for each question.
        if any(len(column) != len(trivial.questions) for column in scored.values.values()):
            raise ValueError("a column without a value for each question")
        self.scored = scored
        self._questions = trivial.questions
        self._run_metrics = run_metrics
        self.corrections = Corrections.of(plan, self.metrics())

    def metrics(self) -> Iterator[MetricValues]:
        """Yield the strategy's metrics, with the labels of the run's metrics.

        Questions that HELM perturbed are left out. The metrics are computed at each call and not
        stored, because the values of all strategies together would fill the memory.
        """
        for metric in self._run_metrics:
            column = self.scored.values.get(metric.name)
            if column is None or metric.perturbation is not None:
                continue
            values: dict[InstanceKey, float] = {}
            for (instance, trial, split), value in zip(self._questions, column, strict=True):
                if value is not None and split == metric.split:
                    values[instance, trial, None] = float(value)
            if values:
                yield replace(
                    metric, helm_mean=None, values=values, counts={}, forms={}, clusters=None
                )

    def add(self, number: int, key: InstanceKey, state: output.RequestState) -> None:
        """Pass a question with its trivial answer to the rules that correct metrics.

        Args:
            number: the index of the question among the trivial scores.
            key: the instance.
            state: the request for the model's answer.
        """
        # The answer is None for the strategy of a random option, for which only HELM's mean values
        # are known. The rules then get an empty answer. This raises no floor, because the empty
        # answer is a strategy, too.
        answer = self.scored.answer_to(number) or ""
        if self.scored.annotation is not None:
            # HELM executed the model's query. The trivial answer's query replaces this query.
            annotations = dict(state.annotations or {})
            executed = annotations.get("ehr_sql", {})
            annotations["ehr_sql"] = ehr_sql_annotation_of_strategy(
                executed, self.scored.annotation
            )
            state = state.model_copy(update={"annotations": annotations})
        self.corrections.add_answer(key, state, answer)


class FloorScores(Part):
    """The floors of one run. An error in their computation becomes a note, so that the result is
    not lost.
    """

    def __init__(self, plan: Plan, run: output.HelmRun, metrics: Sequence[MetricValues]) -> None:
        """Read the scores of the trivial strategies, if the run computed them.

        `metrics` are HELM's metrics of the model's answers.
        """
        self._strategies: list[_Strategy] = []
        # instance -> the index of its question among the trivial scores
        self._numbers: dict[InstanceKey, int] = {}
        self._error: Exception | None = None  # the first error, after which no rule is called
        self._trivial: TrivialScores | None = None
        trivial = read_trivial_scores(plan.rundir.helm)
        if trivial is None or trivial.run != run.run_spec.name:
            return  # There are no scores, or they are from a run with another name.
        self._trivial = trivial
        for number, (instance, trial, _) in enumerate(trivial.questions):
            self._numbers[instance, trial, None] = number
        try:
            for scored in trivial.strategies:
                self._strategies.append(_Strategy(plan, trivial, scored, metrics))
        except ValueError as error:
            self._strategies = []
            self._error = error

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Pass the request's question to each strategy, for the corrected metrics."""
        number = self._numbers.get(key)
        if number is None or self._error is not None:
            return
        try:
            for strategy in self._strategies:
                strategy.add(number, key, state)
        except Exception as error:  # a rule may raise anything
            self._error = error

    def weigh(self, draft: Draft) -> None:
        """Compare the finished scores with the floors.

        The judges' floor is their mean mark of a text that says nothing, or, if it is higher, the
        mark of an empty answer. If the judges were not asked about such a text, the jury's floor is
        assumed to be the mark of an empty answer.
        """
        floors = self._floors()
        # A trivial answer is an option's letter alone, or contains no option's letter. HELM, the
        # lenient reading and the reading of reasoned answers find the same option in such an
        # answer, so their metrics have the same floor.
        for ending in (LENIENT_SUFFIX, REASONED_SUFFIX):
            for metric in draft.metrics:
                helm_label = metric.label.replace(ending, "", 1)
                if _is_by_reading(metric, ending) and helm_label in floors:
                    floors[metric.label] = floors[helm_label]
        draft.floors = floors | _floors_of_judges(draft)
        draft.notes.extend(notes_on_floors(draft.main, draft.scores, draft.floors))
        draft.notes.extend(self._notes())

    def _floors(self) -> dict[str, Floor]:
        """Return the floor of each metric, by its label: the score of the best strategy."""
        # (label, name) of a metric -> strategy -> mean value
        means: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        # (label of a metric, strategy) -> number of values
        counts: dict[tuple[str, str], int] = {}
        for strategy in self._strategies:
            for metric in chain(strategy.metrics(), self._corrected(strategy)):
                means[metric.label, metric.name][strategy.scored.name] = helm_mean(metric.values)
                counts[metric.label, strategy.scored.name] = len(metric.values)
        floors = {}
        for (label, name), by_strategy in means.items():
            is_lower_better = self._trivial is not None and name in self._trivial.lower_is_better
            # Of equally good strategies, the first in this list is chosen. A name such as
            # `always A` is more specific than `majority`, which is therefore sorted to the end:
            # False is sorted before True.
            strategies = sorted(by_strategy, key=lambda strategy: strategy == MAJORITY_STRATEGY)
            if is_lower_better:
                best = min(strategies, key=by_strategy.__getitem__)
            else:
                best = max(strategies, key=by_strategy.__getitem__)
            floors[label] = Floor(
                best,
                value=by_strategy[best],
                instances=counts[label, best],
                answers=by_strategy,
                lower_is_better=is_lower_better,
            )
        return floors

    def _corrected(self, strategy: _Strategy) -> list[MetricValues]:
        """Return a strategy's corrected metrics; none if a rule failed for any strategy so far."""
        if self._error is not None:
            return []
        try:
            return strategy.corrections.metrics()
        except Exception as error:  # a rule raised on the trivial answers to many questions
            self._error = error
            return []

    def _notes(self) -> Iterator[Note]:
        """Yield a note on each part that is missing from the floors."""
        trivial = self._trivial
        if trivial is not None and trivial.error is not None:
            yield Note(
                Importance.BACKGROUND,
                f"the best score without a model could not be computed: {trivial.error}",
            )
        if self._error is not None:
            kind = type(self._error).__name__
            yield Note(
                Importance.BACKGROUND,
                f"{INCOMPLETE_FLOORS}{kind} while answers without a model were scored",
            )


def _is_by_reading(metric: MetricValues, ending: str) -> bool:
    """Return True if the metric is one of HELM's metrics, but its answers were read in another way.

    `ending` is the ending of the metric's name for this way of reading. The lenient reading exists
    for one metric only.
    """
    if ending == LENIENT_SUFFIX:
        return metric.name == EXACT_MATCH + LENIENT_SUFFIX
    return metric.name.endswith(ending)


def _floors_of_judges(draft: Draft) -> dict[str, Floor]:
    """Return the floor of each judged metric, by its label.

    The floor is the judges' mean mark of a text that says nothing, or the mark of an empty answer,
    whichever is higher. Only a jury has a mark of empty answers.
    """
    probe = draft.judge_probe
    floors = {}
    for metric in draft.metrics:
        by_answer = {}  # name of a trivial answer -> its mark
        if probe is not None and _is_by_judges(metric, draft):
            by_answer[PADDED_STRATEGY] = probe.value
        if is_judged(metric, draft.jury_metric):
            by_answer[EMPTY_STRATEGY] = draft.tally.ratings.form.lowest
        if not by_answer:
            continue
        best = max(by_answer, key=by_answer.__getitem__)
        count = len(metric.values)
        if probe is not None:
            count = probe.instances
        floors[metric.label] = Floor(
            best,
            value=by_answer[best],
            instances=count,
            answers=by_answer,
            assumed=probe is None,
        )
    return floors


def _is_by_judges(metric: MetricValues, draft: Draft) -> bool:
    """Return True if the metric is a jury's or a rubric's score."""
    if is_judged(metric, draft.jury_metric):
        return True
    if draft.run.rubric is None:
        return False
    rubric_metric, _ = draft.run.rubric
    return metric.label == rubric_metric


def notes_on_floors(
    main: str, scores: Mapping[str, Score], floors: Mapping[str, Floor]
) -> Iterator[Note]:
    """Yield the notes on the floors of the main score and of its corrected value.

    A first note names the scores that are not better than their floors. It never names the lenient
    score. If the corrected or the lenient score is better than its floor, the end of the note says
    so. A second note reports that the floor of the main score is assumed.
    """
    not_better = []
    conclusion = "This score does not show that the model read the questions"
    for label in (main, f"{main}{CORRECTED_SUFFIX}", f"{main}{LENIENT_SUFFIX}"):
        score = scores.get(label)
        floor = floors.get(label)
        if score is None or floor is None:
            continue
        low = score.stats.ci_low
        high = score.stats.ci_high
        if low is None or high is None:
            low = high = score.value  # Without an interval, the score itself is compared.
        better = low > floor.value
        worse = high < floor.value
        if floor.lower_is_better:
            better = high < floor.value
            worse = low > floor.value
        if better and label != main:
            conclusion = (
                f"{label}, which reads the same answers in another way, is better than its own "
                "best score without a model"
            )
        elif not better and not label.endswith(LENIENT_SUFFIX):
            comparison = _comparison_with_floor(score, is_worse=worse)
            value = formats.score(floor.value)
            best = f"the best score without a model ({floor.marked_name}: {value})"
            not_better.append(f"{label}: {comparison} {best}")
    if not_better:
        yield Note(Importance.DOUBTFUL, f"{'; '.join(not_better)}. {conclusion}")
    if main in scores and main in floors and floors[main].assumed:
        yield Note(
            Importance.BACKGROUND,
            f"the best score without a model of {main}, {floors[main].value:g}, is assumed: an "
            "answer without content gets this mark. No judge was asked about such an answer; "
            "extra.probe_judges: true asks the judges",
        )


def _comparison_with_floor(score: Score, *, is_worse: bool) -> str:
    """Return the words that compare a score that is not better than its floor with this floor."""
    low = score.stats.ci_low
    high = score.stats.ci_high
    if low is None or high is None:
        return f"{formats.score(score.value)}, without an interval, is no better than"
    interval = f"the 95 % interval {formats.between(low, high)}"
    if is_worse:
        return f"{interval} is worse than"
    return f"{interval} includes"


MIN_PROBED = 3  # the smallest number of questions with marks for a floor of the judges
Probes = Mapping[str, Mapping[str, Any]]
"""Id of an instance -> the judges' annotations of the text that says nothing."""
Marks = list[dict[str, float]]
"""The marks of the text that says nothing, with an entry for each question: judge -> mark."""


@dataclass(frozen=True)
class ProbedJudges(Part):
    """The judges' marks of a text that says nothing, if the judges were asked (`probe_judges`)."""

    rubric: RubricTally | None
    jury: Jury | None

    def weigh(self, draft: Draft) -> None:
        """Report the judges' marks of a text that says nothing: they are the judges' floor.

        `FloorScores.weigh`, which is called after this method, uses them.
        """
        if not draft.plan.evaluation.extra.probe_judges:
            return
        probes = output.read_run_record(draft.plan.rundir.helm).judge_probe
        if self.rubric is not None:
            report_probe(marks_by_rubric(probes, self.rubric), draft)
        elif self.jury is not None and draft.run.jury is not None:
            report_probe(marks_by_jury(probes, draft.run.jury, self.jury.names), draft)


def report_probe(marks: Marks, draft: Draft) -> None:
    """Report the mean of the marks, if at least `MIN_PROBED` questions have marks."""
    means_of_questions = [statistics.fmean(by_judge.values()) for by_judge in marks if by_judge]
    if len(means_of_questions) < MIN_PROBED:
        too_few = (
            "the judges gave a text that says nothing too few marks: how they rate such a text is "
            "not known"
        )
        draft.notes.add(Importance.DOUBTFUL, f"probe_judges: {too_few}")
        return
    marks_by_judge: dict[str, list[float]] = defaultdict(list)
    for by_judge in marks:
        for judge, mark in by_judge.items():
            marks_by_judge[judge].append(mark)
    means = {}
    for judge, marks_of_judge in marks_by_judge.items():
        means[judge] = statistics.fmean(marks_of_judge)
    count = len(means_of_questions)
    draft.judge_probe = JudgeProbe(
        instances=count, value=statistics.fmean(means_of_questions), means=means
    )
    marks_text = ", ".join(
        f"{judge} gives it {formats.score(mean)}" for judge, mean in means.items()
    )
    draft.notes.add(Importance.BACKGROUND, f"{PADDED_STRATEGY}, to {count} questions: {marks_text}")


def marks_by_jury(probes: Probes, jury: output.JuryNames, judges: Mapping[str, str]) -> Marks:
    """Return the mean of each judge's ratings of the text that says nothing, for each question.

    Args:
        probes: the annotations of the text that says nothing.
        jury: the jury's names in HELM's output.
        judges: judge -> its name in HELM's annotations.
    """
    marks: Marks = []
    for probe in probes.values():
        by_judge = {}
        for judge, name in judges.items():
            ratings = output.ratings_of(probe, jury, name)
            if ratings:
                by_judge[judge] = statistics.fmean(ratings.values())
        marks.append(by_judge)
    return marks


def marks_by_rubric(probes: Probes, rubric: RubricTally) -> Marks:
    """Return the share of a rubric's points that each judge gives the text that says nothing.

    Questions without a case in the rubric are left out.
    """
    marks: Marks = []
    # The trials of an instance have the same criteria, so any of their cases serves.
    cases = {instance: case for (instance, _, _), case in rubric.cases.items()}
    for instance, probe in probes.items():
        case = cases.get(instance)
        if case is None:
            continue
        votes = decisions_of(probe, rubric.judges, len(case.criteria))
        judged = replace(case, votes=tuple(votes))
        by_judge = {}
        for judge in rubric.judges:
            score = judged.score_by(judge)
            if score is not None:
                by_judge[judge] = score
        marks.append(by_judge)
    return marks
