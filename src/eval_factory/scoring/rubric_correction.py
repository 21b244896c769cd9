"""Adds the corrected score of a rubric to a result, and notes what the correction assumes.

`judge_correction` computes the correction. It needs the passport of the judge: a file with the
measured agreement of the judge with physicians (docs/trust-a-judge.md).
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import CorrectedPart, JudgeCorrection
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.judge_correction import (
    CasePoints,
    JudgeCorrectedScore,
    Labels,
    NotCorrected,
    corrected_score,
    weights_of,
)
from eval_factory.scoring.judge_passports import StoredPassport, passport_of
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.rubric import JudgedCase, RubricTally
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.physician_labels import MIN_ITEMS, LabelledPairs
from eval_factory.tasks.rubric_case import JUDGE_CORRECTED_SUFFIX, positive_points

# the reason why a score is absent, besides the reasons in `judge_correction`
FEW_CASES = "the judge decided fewer than two cases of this run"
MAX_RATE_DIFFERENCE = 0.2
"""A note warns if the judge's share of `met` differs by more than this between labels and run."""
MIN_MATCHED_SHARE = 0.5
"""A note warns if less than this share of the run's points belongs to labelled categories."""


@dataclass
class RubricCorrection(Part):
    """The part of a result that corrects a rubric's score by the passport of its judge."""

    passport: StoredPassport
    rubric: RubricTally
    corrected: JudgeCorrectedScore | None = None  # None until, and unless, the score is corrected
    # the reason, if the score is not corrected; `FEW_CASES` until `corrected_score` was called
    why_absent: str = FEW_CASES
    matched_share: float = 0.0  # the share of the run's points whose category has enough labels

    @classmethod
    def of(cls, plan: Plan, rubric: RubricTally | None) -> RubricCorrection | None:
        """Return the part, or None if the run has no rubric or no passport.

        Raises:
            ConfigError: The passport belongs to another judge.
        """
        if rubric is None or plan.evaluation.extra.judge_passport is None:
            return None
        return cls(passport_of(plan, plan.rundir.model_configs), rubric)

    @property
    def label(self) -> str:
        """The label of the corrected metric."""
        return self.rubric.metric + JUDGE_CORRECTED_SUFFIX

    def count(self, draft: Draft) -> None:
        """Add the metric of the corrected scores, with a value for each case.

        Runs can then be compared and gated by the corrected score as by any other metric.
        """
        for metric in draft.metrics:
            if metric.label == self.rubric.metric:
                corrected = self._corrected_metric(metric, draft)
                if corrected is not None:
                    draft.metrics.append(corrected)
                return

    def _corrected_metric(self, metric: MetricValues, draft: Draft) -> MetricValues | None:
        """Return the corrected value of each case; None if the score cannot be corrected."""
        cases = self._cases(metric, failed_as_zero=draft.failed_as_zero)
        if len(cases) < 2:
            return None
        pairs_by_category = Counter[str | None]()
        for pair in self.passport.pairs:
            pairs_by_category[pair.category] += sum(pair.counts)
        points_by_category = self._points_by_category(cases)
        weights, self.matched_share = weights_of(pairs_by_category, points_by_category)
        points_given = [given for given, _ in cases.values()]
        points_if_all_met = [if_all_met for _, if_all_met in cases.values()]
        clusters = [_source_of(key, draft) for key in cases]
        lowest = statistics.fmean(self.rubric.cases[key].lowest_score() for key in cases)
        points_of_cases = CasePoints(points_given, points_if_all_met, clusters, lowest)
        labels = Labels(self.passport.pairs, self.passport.items)
        corrected = corrected_score(points_of_cases, labels, weights, self._votes(draft))
        if isinstance(corrected, NotCorrected):
            self.why_absent = corrected.reason
            return None
        self.corrected = corrected
        values = {key: corrected.score_of_case(*points) for key, points in cases.items()}
        return MetricValues(
            label=self.label, name=self.label, helm_mean=None, values=values, split=metric.split
        )

    def _votes(self, draft: Draft) -> list[tuple[float, Hashable]]:
        """Return the judge's decision about each criterion, and the source of its case."""
        votes: list[tuple[float, Hashable]] = []
        for key, case in self.rubric.cases.items():
            # For each criterion, `case.votes` has a dict from judge to decision. It is None for a
            # case without an answer.
            for votes_of_judges in case.votes or ():
                met = votes_of_judges.get(self.passport.judge)
                if met is not None:
                    votes.append((float(met), _source_of(key, draft)))
        return votes

    def _cases(
        self, metric: MetricValues, *, failed_as_zero: bool
    ) -> dict[InstanceKey, tuple[float, float]]:
        """Return for each case its `points_given` and `points_if_all_met`, as in `CasePoints`.

        A case without an answer counts as 0 if `failed_as_zero`. Other cases that the judge did not
        score are left out.
        """
        cases = {}
        for key in metric.values:
            case = self.rubric.cases[key]
            score = case.score_by(self.passport.judge)
            if score is not None:
                cases[key] = (score, _points_if_all_met(case))
            elif case.votes is None and failed_as_zero:
                # With two zeros, the correction leaves the score of the case at 0.
                cases[key] = (0.0, 0.0)
        return cases

    def _points_by_category(self, keys: Iterable[InstanceKey]) -> dict[str | None, float]:
        """Return for each category the sum of its criteria's absolute points over these cases.

        The points of each case are shares of its positive points.
        """
        labelled_categories = {pair.category for pair in self.passport.pairs}
        points: dict[str | None, float] = defaultdict(float)
        for key in keys:
            criteria = self.rubric.cases[key].criteria
            for criterion in criteria:
                category = _first_of(criterion.tags, labelled_categories)
                points[category] += abs(criterion.points) / positive_points(criteria)
        return points

    def publish(self, draft: Draft) -> None:
        """Replace the mean of the cases' corrected values, and note what the correction assumes.

        The corrected score that replaces the mean is clipped to the possible range, and its
        interval includes the uncertainty of the labels.
        """
        score = draft.scores.get(self.label)
        corrected = self.corrected
        if corrected is not None and score is not None:
            stats = replace(
                score.stats,
                mean=corrected.value,
                stderr=None,
                ci_low=corrected.ci_low,
                ci_high=corrected.ci_high,
                ci_method=corrected.method,
            )
            draft.scores[self.label] = replace(
                score, value=corrected.value, stats=stats, scale=self._scale(corrected)
            )
        draft.notes.add(Importance.DOUBTFUL, *self._notes())

    def _scale(self, corrected: JudgeCorrectedScore) -> tuple[float, float]:
        """Return the lowest and the highest corrected value that any case can have.

        A case has an extreme value if the judge gave the case its lowest or its highest score.
        """
        extremes = []
        for case in self.rubric.cases.values():
            if positive_points(case.criteria):
                points_if_all_met = _points_if_all_met(case)
                extremes.append(corrected.score_of_case(case.lowest_score(), points_if_all_met))
                highest_score = 1.0
                extremes.append(corrected.score_of_case(highest_score, points_if_all_met))
        return min(extremes), max(extremes)

    def _notes(self) -> Iterator[str]:
        """Yield the notes on the correction, or on the reason why there is none."""
        passport = self.passport
        judge = passport.judge
        if passport.bias is not None:
            _, low, high = passport.bias
            if low <= 0 <= high:
                interval = f"{formats.points(low, sign='+')} to {formats.points(high, sign='+')}"
                yield (
                    f"{self.label}: judge {judge} is not shown to have a bias ({interval} points): "
                    "its own score may need no correction"
                )
        if self.corrected is None:
            yield (
                f"{self.label} is absent: the passport of judge {judge} cannot correct its score, "
                f"because {self.why_absent}"
            )
            return
        labels = formats.counted(_number_of_labels(passport.pairs), "label")
        yield (
            f"{self.label} assumes that judge {judge} is as often wrong about these answers as "
            f"about those of its passport ({labels}, {passport.date})"
        )
        differences = list(self._differences_from_labels())
        if differences:
            yield (
                f"{self.label} may be wrong, because the run differs from the labels: "
                f"{'; '.join(differences)}"
            )

    def _differences_from_labels(self) -> Iterator[str]:
        """Yield the ways in which the run's answers differ from the labelled answers."""
        passport = self.passport
        share = self._share_met()
        if abs(share - passport.says_met) > MAX_RATE_DIFFERENCE:
            yield (
                f"the judge says 'met' of {formats.percent(share, digits=0)} of the criteria in "
                f"this run, and of {formats.percent(passport.says_met, digits=0)} among the labels"
            )
        lengths = list(self.rubric.lengths.values())
        if passport.usual_lengths is not None and lengths:
            low, high = passport.usual_lengths
            middle = statistics.median(lengths)
            if not low <= middle <= high:
                yield (
                    f"the median answer of this run has {formats.short(middle)} characters, and "
                    f"nine of ten labelled answers have {formats.short(low)} to "
                    f"{formats.short(high)}"
                )
        if self._categories_with_labels() and self.matched_share < MIN_MATCHED_SHARE:
            matched = formats.percent(self.matched_share, digits=0)
            yield f"only {matched} of the points belong to criteria whose category has labels"

    def _share_met(self) -> float:
        """Return the share of criteria that the judge calls met; 0 if the judge decided none."""
        decisions = []
        for case in self.rubric.cases.values():
            for votes_of_judges in case.votes or ():
                met = votes_of_judges.get(self.passport.judge)
                if met is not None:
                    decisions.append(met)
        if not decisions:
            return 0.0
        return statistics.fmean(decisions)

    def _categories_with_labels(self) -> list[str]:
        """Return the categories of the labels, sorted."""
        categories = {pair.category for pair in self.passport.pairs}
        return sorted(category for category in categories if category is not None)

    def report(self, draft: Draft) -> None:
        """Add the correction to the rubric's report."""
        corrected = self.corrected
        if draft.rubric is None or corrected is None:
            return
        judge = draft.rubric.judges[self.passport.judge]
        correction = JudgeCorrection(
            judge=self.passport.judge,
            judge_score=judge.score,
            value=corrected.value,
            ci_low=corrected.ci_low,
            ci_high=corrected.ci_high,
            ci_method=corrected.method,
            youden_stderr=corrected.youden_stderr,
            sensitivity=corrected.sensitivity,
            specificity=corrected.specificity,
            labels=_number_of_labels(self.passport.pairs),
            matched_points=self.matched_share,
            passport_date=self.passport.date,
            passport_sha256=self.passport.sha256,
            categories=dict(self._categories(draft)),
        )
        draft.rubric = replace(draft.rubric, correction=correction)

    def _categories(self, draft: Draft) -> Iterator[tuple[str, CorrectedPart]]:
        """Yield each category that labels and run share, with its share of criteria met.

        The corrected share and its interval are added, if the share can be corrected. Each
        criterion has the same weight. Categories with fewer than ten decisions or labels are left
        out.
        """
        for name in self._categories_with_labels():
            pairs = [pair for pair in self.passport.pairs if pair.category == name]
            votes: list[tuple[float, Hashable]] = []
            for key, case in self.rubric.cases.items():
                for met in self._decisions_in(case, name):
                    votes.append((float(met), _source_of(key, draft)))
            if len(votes) < MIN_ITEMS or _number_of_labels(pairs) < MIN_ITEMS:
                continue
            decisions, clusters = zip(*votes, strict=True)
            items = [item for item in self.passport.items if item.category == name]
            # Each decision is a case with a single criterion of one point.
            cases = CasePoints(
                points_given=decisions,
                points_if_all_met=[1.0] * len(decisions),
                clusters=clusters,
                lowest=0.0,
            )
            part = CorrectedPart(
                criteria=len(decisions),
                judge=statistics.fmean(decisions),
                value=None,
                ci_low=None,
                ci_high=None,
            )
            corrected = corrected_score(cases, Labels(pairs, items), weights={}, votes=votes)
            if isinstance(corrected, JudgeCorrectedScore):
                part = replace(
                    part,
                    value=corrected.value,
                    ci_low=corrected.ci_low,
                    ci_high=corrected.ci_high,
                )
            yield one_line(name), part

    def _decisions_in(self, case: JudgedCase, category: str) -> list[bool]:
        """Return the judge's decisions about the case's criteria of this category."""
        decisions = []
        # A case without an answer has criteria, but no votes.
        for criterion, votes_of_judges in zip(case.criteria, case.votes or (), strict=False):
            met = votes_of_judges.get(self.passport.judge)
            if category in criterion.tags and met is not None:
                decisions.append(met)
        return decisions


def _source_of(key: InstanceKey, draft: Draft) -> str:
    """Return the source of an instance, such as a patient's note.

    If the task declares no sources, return the instance's id.
    """
    instance_id = key[0]
    return draft.tally.clusters.get(instance_id, instance_id)


def _points_if_all_met(case: JudgedCase) -> float:
    """Return the points of a case if all its criteria were met, as in `CasePoints`."""
    points = sum(criterion.points for criterion in case.criteria)
    return points / positive_points(case.criteria)


def _first_of(tags: Sequence[str], categories: Collection[str | None]) -> str | None:
    """Return the first tag that is a category; None if no tag is."""
    for tag in tags:
        if tag in categories:
            return tag
    return None


def _number_of_labels(pairs: Sequence[LabelledPairs]) -> int:
    """Return the number of labelled pairs of decisions."""
    return sum(sum(pair.counts) for pair in pairs)
