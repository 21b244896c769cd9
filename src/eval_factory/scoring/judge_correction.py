"""Corrects a rubric's score for the mistakes of its judge.

The correction estimates the score that physicians would have given. The judge's passport contains
physicians' labels of other answers; these labels show how often the judge errs.

The method is that of W. J. Rogan and B. Gladen, American Journal of Epidemiology 107:71-76, 1978.
Of the criteria that are met, a judge calls the share `sensitivity` met. Of the criteria that are
not met, the judge calls the share `1 - specificity` met. So the true share of met criteria can be
computed from the share that the judge calls met. A rubric's score is a share, too, weighted by
points. Each case has the points that the judge gave (A), and the points of all its criteria (B):

    score = (mean A - (1 - specificity) mean B) / (sensitivity + specificity - 1)

The interval consists of every score that the data do not contradict (E. C. Fieller, JRSS B
16:175-185, 1954). The interval covers the uncertainty of the run's cases and that of the labels.
The score is not corrected if the judge hardly distinguishes met from not met.

This method takes the labels for the truth. If enough items have labels of several physicians,
another method replaces it: `latent_class` estimates the judge's sensitivity and specificity against
the truth behind the labels, and the interval is a bootstrap interval.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import CorrectedPart, JudgeCorrection
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring import intervals
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import PROPORTION
from eval_factory.scoring.judge_passports import StoredPassport, passport_of
from eval_factory.scoring.latent_class import (
    PSEUDO_ITEMS,
    SEED,
    JudgeRates,
    expanded_ends,
    judge_rates,
)
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.rubric import JudgedCase, RubricTally
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.physician_labels import MIN_ITEMS, LabelledItems, LabelledPairs
from eval_factory.tasks.rubric_case import JUDGE_CORRECTED, positive_points

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHOD = "rogan-gladen-fieller"  # the method if the labels are taken for the truth
BY_TRUTH = "latent-class-bootstrap"  # the method if the truth behind the labels is estimated
MIN_YOUDEN = 0.05
"""The lowest sensitivity + specificity - 1 with which a score is corrected."""

# The reasons why a score is not corrected:
FEW_CASES = "the judge decided fewer than two cases of this run"
FEW_LABELS = "the passport has too few labels"
FEW_SOURCES = "the run has too few sources"
SAYS_LITTLE = "the judge's 'met' and 'not met' depend too little on the physicians' decisions"
ERRS_OTHERWISE = "the judge makes other mistakes in this run than among the labels"
OTHER_SHARE = "the judge says 'met' more or less often in this run than among the labels"
FEW_DOUBLE = f"too few items were labelled by two physicians, and {OTHER_SHARE}"
FIRST_VERSION = (
    "the passport is of the first version, which does not contain the physicians' decisions about "
    f"each item ('calibrate' makes a new passport), and {OTHER_SHARE}"
)

MAX_RATE_DIFFERENCE = 0.2
"""A note warns if the judge's share of `met` differs by more than this between labels and run."""
MIN_MATCHED_SHARE = 0.5
"""A note warns if less than this share of the run's points belongs to labelled categories."""
PSEUDO_CLUSTERS = 0.5
"""The number of pairs in the pseudo-cluster of each kind of pair, as a multiple of `_pseudo_size`.

The constant of the same name in scoring/judge_calibration.py is 0.75. benchmarks/judge_coverage.py
prints how often the intervals of this module cover the true score.
"""


@dataclass(frozen=True)
class Labels:
    """The labels of a passport."""

    pairs: Sequence[LabelledPairs]  # counts of pairs of decisions, the judge's and a physician's
    items: Sequence[LabelledItems] = ()  # counts of items; empty for a passport of version 1


@dataclass(frozen=True)
class JudgedCases:
    """The cases of a run; the sequences have one element for each case.

    Points are shares of the case's positive points.
    """

    points_given: Sequence[float]  # the points that the judge gave: the case's score
    points_possible: Sequence[float]  # the points of all criteria, also of negative criteria
    clusters: Sequence[Hashable]  # the source of the case
    lowest: float  # the lowest possible mean score of the cases; the highest is 1


@dataclass(frozen=True)
class JudgeCorrectedScore:
    """A corrected score with its 95 % interval, and the judge's sensitivity and specificity."""

    value: float
    ci_low: float
    ci_high: float
    sensitivity: float
    specificity: float
    method: str = METHOD
    # the standard error of sensitivity + specificity - 1, which were estimated from the labels
    youden_stderr: float | None = None

    def of_case(self, points_given: float, points_possible: float) -> float:
        """Return the corrected score of one case, whose points are as in `JudgedCases`.

        The mean over all cases is `value`, unless `value` was clipped to the possible range.
        """
        return _rogan_gladen(points_given, points_possible, self.sensitivity, self.specificity)


def weights_of(
    pairs_in: Mapping[str | None, int], points_in: Mapping[str | None, float]
) -> tuple[dict[str | None, float], float]:
    """Weight the labels so that their mix of categories is that of the run.

    A category is matched if it has at least `MIN_ITEMS` labelled pairs, and criteria in the run.
    Criteria of other categories are treated like the average labelled criterion.

    Args:
        pairs_in: dict from a category to the number of its labelled pairs.
        points_in: dict from a category to the sum of the absolute points of the run's criteria.

    Returns:
        A dict from a category to the weight of one labelled pair; and the share of the run's points
        whose category is matched.
    """
    matched = []  # a list, because sums of floats depend on the order
    for name, pairs in pairs_in.items():
        if name is not None and pairs >= MIN_ITEMS and points_in.get(name):
            matched.append(name)
    total_pairs = sum(pairs_in.values())
    total_points = sum(points_in.values())
    matched_share = 0.0
    if total_points:
        matched_share = sum(points_in[name] for name in matched) / total_points
    # The points whose category is not matched are represented by all labels, with equal weight.
    weights = dict.fromkeys(pairs_in, 1 - matched_share)
    for name in matched:
        share_of_run = points_in[name] / total_points
        weights[name] += share_of_run / (pairs_in[name] / total_pairs)
    return weights, matched_share


@dataclass(frozen=True)
class NotCorrected:
    """The reason why a score cannot be corrected."""

    reason: str


def corrected_score(
    cases: JudgedCases,
    labels: Labels,
    weights: Mapping[str | None, float],
    votes: Sequence[tuple[float, Hashable]],
) -> JudgeCorrectedScore | NotCorrected:
    """Return the corrected score, or the reason why the score cannot be corrected.

    If enough items have labels of several physicians, the judge is measured against the truth
    behind the labels. Otherwise the judge is measured against the labels themselves. Labels of one
    physician per item do not show how often physicians err. A correction by such labels is valid
    only if the judge calls about the same share of criteria met in the run and among the labels.

    Args:
        cases: the cases of the run.
        labels: the labels of the passport.
        weights: dict from a category to the weight of one labelled pair.
        votes: for each criterion of the run that the judge decided: 1 (met) or 0, and the source
            of its case.
    """
    rates = judge_rates(labels.items, weights)
    if rates is not None:
        return _corrected_by_truth(cases, rates)
    if share_met_differs(votes, labels.pairs):
        return NotCorrected(FEW_DOUBLE if labels.items else FIRST_VERSION)
    return corrected_by_labels(cases, labels.pairs, weights)


def share_met_differs(
    votes: Sequence[tuple[float, Hashable]], pairs: Sequence[LabelledPairs]
) -> bool:
    """Return True if the judge's share of `met` differs between the run and the labels.

    A difference counts if it is greater than half the width of its 95 % interval. Also return True
    if the run or the labels have too few sources for an interval.

    Args:
        votes: for each criterion of the run that the judge decided: 1 (met) or 0, and the source
            of its case.
        pairs: pairs of decisions, the judge's and a physician's.
    """
    votes_among_labels = []
    for pair in pairs:
        met_by_both, met_by_judge, met_by_physician, met_by_none = pair.counts
        votes_among_labels += [(1.0, pair.conversation)] * (met_by_both + met_by_judge)
        votes_among_labels += [(0.0, pair.conversation)] * (met_by_physician + met_by_none)
    shares = []
    variance = 0.0  # of the difference: the sum of the variances of the two shares
    degrees = []
    for decisions in (votes, votes_among_labels):
        values = [value for value, _ in decisions]
        clusters = [cluster for _, cluster in decisions]
        if len(values) < 2 or intervals.effective_clusters(clusters) < intervals.MIN_CLUSTERS:
            return True
        size = intervals.pseudo_size_of_mean(clusters)
        variance += intervals.mean_and_variance(values, clusters, PROPORTION, size)[1]
        shares.append(statistics.fmean(values))
        degrees.append(intervals.effective_clusters(clusters) - 1)
    half_width = intervals.t_quantile(min(degrees)) * math.sqrt(variance)
    return abs(shares[0] - shares[1]) > half_width


def _corrected_by_truth(
    cases: JudgedCases, rates: JudgeRates
) -> JudgeCorrectedScore | NotCorrected:
    """Return the score corrected by the judge's rates against the truth, or the reason for none.

    The interval is from a bootstrap of the run and the labels.
    """
    import numpy as np

    # the effective number of conversations with labels, or of the run's sources if it is smaller
    units = min(rates.effective_conversations, intervals.effective_clusters(cases.clusters))
    if units < intervals.MIN_CLUSTERS:
        return NotCorrected(FEW_SOURCES)
    # Youden's index: sensitivity + specificity - 1
    youden = rates.sensitivity + rates.specificity - 1
    resampled_youdens = rates.resampled.sum(axis=1) - 1
    lowest_youden, _ = expanded_ends(resampled_youdens, rates.effective_conversations)
    if youden <= MIN_YOUDEN or lowest_youden <= MIN_YOUDEN:
        return NotCorrected(SAYS_LITTLE)
    given, possible = _resampled_means(cases, len(resampled_youdens))
    given_by_mistake = (1 - rates.resampled[:, 1]) * possible
    # In a few resamples, the index may be near 0 or negative. Without the limit, the quotient could
    # then be extremely large, or have the wrong sign.
    scores = (given - given_by_mistake) / np.maximum(resampled_youdens, MIN_YOUDEN)
    low, high = expanded_ends(scores, units)
    if low > 1 or high < cases.lowest:  # all scores in the interval are impossible
        return NotCorrected(ERRS_OTHERWISE)
    mean = _rogan_gladen(
        statistics.fmean(cases.points_given),
        statistics.fmean(cases.points_possible),
        rates.sensitivity,
        rates.specificity,
    )
    value = min(1.0, max(cases.lowest, mean))
    return JudgeCorrectedScore(
        value=value,
        ci_low=max(cases.lowest, min(low, value)),
        ci_high=min(1.0, max(high, value)),
        sensitivity=rates.sensitivity,
        specificity=rates.specificity,
        method=BY_TRUTH,
        youden_stderr=float(resampled_youdens.std(ddof=1)),
    )


def _resampled_means(cases: JudgedCases, resamples: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the means of the given and of the possible points, each of shape (resamples,).

    Sources are resampled with replacement. Each resample also gets a pseudo-source of random weight
    at each end of the scale, because a sample of nearly equal cases understates the spread. The
    means of the given points are then shifted so that their average is the mean of the sample.
    """
    import numpy as np

    # source -> the sum of its given points, of its possible points, and the number of its cases
    sums_of_sources: dict[Hashable, NDArray[Any]] = defaultdict(lambda: np.zeros(3))
    for given, possible, source in zip(
        cases.points_given, cases.points_possible, cases.clusters, strict=True
    ):
        sums_of_sources[source] += (given, possible, 1.0)
    tables = np.array(list(sums_of_sources.values()))
    rng = np.random.default_rng(SEED)
    sources = len(tables)
    times_drawn = rng.multinomial(sources, np.full(sources, 1 / sources), size=resamples)
    # each of shape (resamples,)
    sums_given, sums_possible, numbers_of_cases = (times_drawn @ tables).T
    size = intervals.pseudo_size_of_mean(cases.clusters)
    sizes_at_ends = rng.gamma(PSEUDO_ITEMS, size=(resamples, 2)) * size
    at_lowest, at_highest = sizes_at_ends.T  # the highest possible score is 1
    total = numbers_of_cases + sizes_at_ends.sum(axis=1)
    means_given = (sums_given + at_lowest * cases.lowest + at_highest) / total
    shifted = means_given - means_given.mean() + statistics.fmean(cases.points_given)
    return shifted, sums_possible / numbers_of_cases


def corrected_by_labels(
    cases: JudgedCases, pairs: Sequence[LabelledPairs], weights: Mapping[str | None, float]
) -> JudgeCorrectedScore | NotCorrected:
    """Return the score corrected by the judge's rates against the labels, or the reason for none.

    The rates are sensitivity and specificity.

    Args:
        cases: the cases of the run.
        pairs: pairs of decisions, the judge's and a physician's.
        weights: dict from a category to the weight of one labelled pair; 1 if the category is
            absent.
    """
    import numpy as np  # imported here, so that `eval-factory ls` starts quickly

    tables = _tables_by_conversation(pairs, weights)
    if not len(tables):
        return NotCorrected(FEW_LABELS)
    if intervals.effective_clusters(cases.clusters) < intervals.MIN_CLUSTERS:
        return NotCorrected(FEW_SOURCES)
    sizes = tables.sum(axis=1)  # the weighted number of pairs in each conversation
    effective_conversations = float(sizes.sum() ** 2 / (sizes**2).sum())
    if effective_conversations < intervals.MIN_UNITS:
        return NotCorrected(FEW_LABELS)
    sensitivity, specificity = map(float, _rates(tables.sum(axis=0)))
    # The jackknife leaves out one conversation at a time. A pseudo-cluster of each kind of pair is
    # added, because the labels may contain no example of a rare mistake.
    pseudo_size = PSEUDO_CLUSTERS * _pseudo_size(sizes, effective_conversations)
    rows = np.vstack([tables, pseudo_size * np.eye(4)])
    rates_without_row = _rates(rows.sum(axis=0) - rows)
    deviations = rates_without_row - rates_without_row.mean(axis=0)
    covariances = (len(rows) - 1) / len(rows) * deviations.T @ deviations
    # The interval uses the rates with the pseudo-clusters; the score uses those without.
    interval = _interval(cases, _rates(rows.sum(axis=0)), covariances, effective_conversations)
    if interval is None or not sensitivity + specificity > 1:  # `not >` also catches nan
        return NotCorrected(SAYS_LITTLE)
    low, high = interval
    if low > 1 or high < cases.lowest:  # all scores in the interval are impossible
        return NotCorrected(ERRS_OTHERWISE)
    mean = _rogan_gladen(
        statistics.fmean(cases.points_given),
        statistics.fmean(cases.points_possible),
        sensitivity,
        specificity,
    )
    value = min(1.0, max(cases.lowest, mean))
    return JudgeCorrectedScore(
        value=value,
        ci_low=max(cases.lowest, min(low, value)),
        ci_high=min(1.0, max(high, value)),
        sensitivity=sensitivity,
        specificity=specificity,
        # the variance of sensitivity + specificity: both variances, and twice their covariance
        youden_stderr=math.sqrt(covariances.sum()),
    )


def _pseudo_size(sizes: NDArray[Any], effective_conversations: float) -> float:
    """Return `intervals.pseudo_size_of_mean` of conversations with these weighted sizes."""
    return float(max(sizes.mean(), sizes.sum() / effective_conversations - sizes.mean() / 2))


def _tables_by_conversation(
    pairs: Sequence[LabelledPairs], weights: Mapping[str | None, float]
) -> NDArray[Any]:
    """Return the weighted counts of pairs, shape (conversations, 4).

    Conversations without any pair are left out.
    """
    import numpy as np

    by_conversation: dict[Hashable, NDArray[Any]] = defaultdict(lambda: np.zeros(4))
    for pair in pairs:
        weight = weights.get(pair.category, 1.0)
        by_conversation[pair.conversation] += weight * np.array(pair.counts, float)
    return np.array([table for table in by_conversation.values() if table.any()])


def _rates(tables: NDArray[Any]) -> NDArray[Any]:
    """Return sensitivity and specificity, shape (..., 2), of tables of shape (..., 4)."""
    import numpy as np

    met_by_both, met_by_judge, met_by_physician, met_by_none = np.moveaxis(tables, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        sensitivity = met_by_both / (met_by_both + met_by_physician)
        specificity = met_by_none / (met_by_judge + met_by_none)
        return np.stack([sensitivity, specificity], axis=-1)


def _rogan_gladen(
    points_given: float, points_possible: float, sensitivity: float, specificity: float
) -> float:
    """Return the corrected score by the formula in the module's docstring."""
    given_by_mistake = (1 - specificity) * points_possible
    return (points_given - given_by_mistake) / (sensitivity + specificity - 1)


def _interval(
    cases: JudgedCases,
    rates: NDArray[Any],
    covariances: NDArray[Any],
    effective_conversations: float,
) -> intervals.Bounds | None:
    """Return Fieller's interval of the corrected score; None if it is unbounded.

    The interval consists of every score S with D^2 <= t^2 var(D), where
    D = A - sensitivity S - (1 - specificity) (B - S). The ends of the interval are the roots of a
    quadratic. A and B are the means in the module's docstring.
    """
    sensitivity, specificity = map(float, rates)
    mean_possible = statistics.fmean(cases.points_possible)
    youden = sensitivity + specificity - 1
    # Subtract from each case the points that the judge gives by mistake. The variance of the
    # differences is the uncertainty of the run's cases.
    differences = []
    for given, possible in zip(cases.points_given, cases.points_possible, strict=True):
        differences.append(given - (1 - specificity) * possible)
    given_by_mistake = (1 - specificity) * mean_possible
    lowest = min(cases.lowest - given_by_mistake, *differences)
    highest = max(1.0 - given_by_mistake, *differences)
    _, case_variance = intervals.mean_and_variance(
        differences,
        cases.clusters,
        scale=(lowest, highest),
        size=intervals.pseudo_size_of_mean(cases.clusters),
    )
    mean = statistics.fmean(differences)
    units = min(effective_conversations, intervals.effective_clusters(cases.clusters))
    t = intervals.t_quantile(units - 1)
    (sensitivity_variance, covariance), (_, specificity_variance) = covariances.tolist()
    # the quadratic: square * S^2 - 2 * half * S + constant <= 0
    square = youden**2 - t * t * (sensitivity_variance + specificity_variance + 2 * covariance)
    half = mean * youden - t * t * mean_possible * (specificity_variance + covariance)
    constant = mean**2 - t * t * (case_variance + mean_possible**2 * specificity_variance)
    if square <= 0:
        return None
    root = math.sqrt(max(0.0, half * half - square * constant))
    return float(half - root) / square, float(half + root) / square


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
        return self.rubric.metric + JUDGE_CORRECTED

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
        pairs = Counter[str | None]()
        for pair in self.passport.pairs:
            pairs[pair.category] += sum(pair.counts)
        weights, self.matched_share = weights_of(pairs, self._points_by_category(cases))
        points_given, points_possible = zip(*cases.values(), strict=True)
        clusters = [_source_of(key, draft) for key in cases]
        lowest = statistics.fmean(self.rubric.cases[key].lowest() for key in cases)
        judged_cases = JudgedCases(points_given, points_possible, clusters, lowest)
        labels = Labels(self.passport.pairs, self.passport.items)
        corrected = corrected_score(judged_cases, labels, weights, self._votes(draft))
        if isinstance(corrected, NotCorrected):
            self.why_absent = corrected.reason
            return None
        self.corrected = corrected
        values = {key: corrected.of_case(*points) for key, points in cases.items()}
        return MetricValues(
            label=self.label, name=self.label, helm_mean=None, values=values, split=metric.split
        )

    def _votes(self, draft: Draft) -> list[tuple[float, Hashable]]:
        """Return the judge's decision about each criterion, and the source of its case."""
        votes: list[tuple[float, Hashable]] = []
        for key, case in self.rubric.cases.items():
            for votes_of_judges in case.votes or ():
                met = votes_of_judges.get(self.passport.judge)
                if met is not None:
                    votes.append((float(met), _source_of(key, draft)))
        return votes

    def _cases(
        self, metric: MetricValues, *, failed_as_zero: bool
    ) -> dict[InstanceKey, tuple[float, float]]:
        """Return for each case the given and the possible points, as in `JudgedCases`.

        A case without an answer counts as 0 if `failed_as_zero`. Other cases that the judge did not
        score are left out.
        """
        cases = {}
        for key in metric.values:
            case = self.rubric.cases[key]
            score = case.score_by(self.passport.judge)
            if score is not None:
                cases[key] = (score, _points_possible(case))
            elif case.votes is None and failed_as_zero:
                # With 0 possible points, the correction leaves the score of the case at 0.
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
                points_possible = _points_possible(case)
                extremes.append(corrected.of_case(case.lowest(), points_possible))
                extremes.append(corrected.of_case(1.0, points_possible))  # 1: the highest score
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
            cases = JudgedCases(
                points_given=decisions,
                points_possible=[1.0] * len(decisions),
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
    """Return the source of an instance; if the task declares no sources, the instance's id."""
    instance_id = key[0]
    return draft.tally.clusters.get(instance_id, instance_id)


def _points_possible(case: JudgedCase) -> float:
    """Return the points of all criteria of a case, as a share of its positive points."""
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
