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
Cases of one source, such as a patient's note, and labels of one conversation are not independent.
The score is not corrected if the judge hardly distinguishes met from not met.

This method takes the labels for the truth. If enough items have labels of several physicians,
another method replaces it: `latent_class` estimates the judge's sensitivity and specificity against
the truth behind the labels, and the interval is a bootstrap interval.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval_factory.scoring import intervals
from eval_factory.scoring.intervals import PROPORTION
from eval_factory.scoring.latent_class import (
    PSEUDO_ITEMS,
    SEED,
    JudgeRates,
    judge_rates,
    widened_percentile_interval,
)
from eval_factory.tasks.physician_labels import MIN_ITEMS, LabelledItems, LabelledPairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHOD = "rogan-gladen-fieller"  # the method if the labels are taken for the truth
BY_TRUTH = "latent-class-bootstrap"  # the method if the truth behind the labels is estimated
MIN_YOUDEN = 0.05
"""The lowest sensitivity + specificity - 1 with which a score is corrected."""

# The reasons why a score is not corrected:
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

PSEUDO_SIZE_FACTOR = 0.5
"""The number of pairs in the pseudo-cluster of each kind of pair, as a multiple of `_pseudo_size`.

A pseudo-cluster is an added conversation that was not observed; all its pairs are of one kind. The
constant of the same name in scoring/agreement_figures.py is 0.75. benchmarks/judge_coverage.py
prints how often the intervals of this module cover the true score.
"""


@dataclass(frozen=True)
class Labels:
    """The labels of a passport."""

    pairs: Sequence[LabelledPairs]  # counts of pairs of decisions, the judge's and a physician's
    items: Sequence[LabelledItems] = ()  # counts of items; empty for a passport of version 1


@dataclass(frozen=True)
class CasePoints:
    """The points of a run's cases; the sequences have one element for each case.

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

    def score_of_case(self, points_given: float, points_possible: float) -> float:
        """Return the corrected score of one case, whose points are as in `CasePoints`.

        The mean over all cases is `value`, unless `value` was clipped to the possible range.
        """
        return _rogan_gladen(
            points_given=points_given,
            points_possible=points_possible,
            sensitivity=self.sensitivity,
            specificity=self.specificity,
        )


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
        share_of_labels = pairs_in[name] / total_pairs
        weights[name] += share_of_run / share_of_labels
    return weights, matched_share


@dataclass(frozen=True)
class NotCorrected:
    """The reason why a score cannot be corrected."""

    reason: str


def corrected_score(
    cases: CasePoints,
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
        # the numbers of pairs in which both, only the judge, only the physician, neither says met
        both, judge_only, physician_only, neither = pair.counts
        votes_among_labels += [(1.0, pair.conversation)] * (both + judge_only)
        votes_among_labels += [(0.0, pair.conversation)] * (physician_only + neither)
    shares = []
    variance = 0.0  # of the difference: the sum of the variances of the two shares
    degrees = []  # the degrees of freedom of each share
    for decisions in (votes, votes_among_labels):
        values = [value for value, _ in decisions]
        clusters = [cluster for _, cluster in decisions]
        if len(values) < 2 or intervals.effective_clusters(clusters) < intervals.MIN_CLUSTERS:
            return True
        size = intervals.pseudo_size_of_mean(clusters)
        _, variance_of_share = intervals.mean_and_variance(values, clusters, PROPORTION, size)
        variance += variance_of_share
        shares.append(statistics.fmean(values))
        degrees.append(intervals.effective_clusters(clusters) - 1)
    half_width = intervals.t_quantile(min(degrees)) * math.sqrt(variance)
    return abs(shares[0] - shares[1]) > half_width


def _corrected_by_truth(cases: CasePoints, rates: JudgeRates) -> JudgeCorrectedScore | NotCorrected:
    """Return the score corrected by the judge's rates against the truth, or the reason for none.

    The interval is from a bootstrap of the run and the labels.
    """
    import numpy as np

    # the effective number of conversations with labels, or of the run's sources if it is smaller
    units = min(rates.effective_conversations, intervals.effective_clusters(cases.clusters))
    if units < intervals.MIN_CLUSTERS:
        return NotCorrected(FEW_SOURCES)
    resampled_sensitivities, resampled_specificities = rates.resampled.T
    # Youden's index: sensitivity + specificity - 1
    youden = rates.sensitivity + rates.specificity - 1
    resampled_youdens = resampled_sensitivities + resampled_specificities - 1
    lowest_youden, _ = widened_percentile_interval(resampled_youdens, rates.effective_conversations)
    if youden <= MIN_YOUDEN or lowest_youden <= MIN_YOUDEN:
        return NotCorrected(SAYS_LITTLE)
    given, possible = _resampled_means(cases, len(resampled_youdens))
    given_by_mistake = (1 - resampled_specificities) * possible
    # In a few resamples, the index may be near 0 or negative. Without the limit, the quotient could
    # then be extremely large, or have the wrong sign.
    scores = (given - given_by_mistake) / np.maximum(resampled_youdens, MIN_YOUDEN)
    low, high = widened_percentile_interval(scores, units)
    if low > 1 or high < cases.lowest:  # all scores in the interval are impossible
        return NotCorrected(ERRS_OTHERWISE)
    mean = _rogan_gladen(
        points_given=statistics.fmean(cases.points_given),
        points_possible=statistics.fmean(cases.points_possible),
        sensitivity=rates.sensitivity,
        specificity=rates.specificity,
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


def _resampled_means(cases: CasePoints, resamples: int) -> tuple[NDArray[Any], NDArray[Any]]:
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
    cases: CasePoints, pairs: Sequence[LabelledPairs], weights: Mapping[str | None, float]
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
    # as in `intervals.effective_clusters`
    effective_conversations = float(sizes.sum() ** 2 / (sizes**2).sum())
    if effective_conversations < intervals.MIN_UNITS:
        return NotCorrected(FEW_LABELS)
    sensitivity, specificity = map(float, _rates(tables.sum(axis=0)))
    # The jackknife leaves out one conversation at a time. A pseudo-cluster of each kind of pair is
    # added, because the labels may contain no example of a rare mistake.
    pseudo_size = PSEUDO_SIZE_FACTOR * _pseudo_size(sizes, effective_conversations)
    rows = np.vstack([tables, pseudo_size * np.eye(4)])
    rates_without_row = _rates(rows.sum(axis=0) - rows)
    deviations = rates_without_row - rates_without_row.mean(axis=0)
    # the variances and the covariance of sensitivity and specificity, of shape (2, 2)
    covariances = (len(rows) - 1) / len(rows) * deviations.T @ deviations
    # The interval uses the rates with the pseudo-clusters; the score uses those without.
    interval = _interval(cases, _rates(rows.sum(axis=0)), covariances, effective_conversations)
    if interval is None or not sensitivity + specificity > 1:  # `not >` also catches nan
        return NotCorrected(SAYS_LITTLE)
    low, high = interval
    if low > 1 or high < cases.lowest:  # all scores in the interval are impossible
        return NotCorrected(ERRS_OTHERWISE)
    mean = _rogan_gladen(
        points_given=statistics.fmean(cases.points_given),
        points_possible=statistics.fmean(cases.points_possible),
        sensitivity=sensitivity,
        specificity=specificity,
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

    # the numbers of pairs in which both, only the judge, only the physician, or neither says met
    both, judge_only, physician_only, neither = np.moveaxis(tables, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        sensitivity = both / (both + physician_only)
        specificity = neither / (judge_only + neither)
        return np.stack([sensitivity, specificity], axis=-1)


def _rogan_gladen(
    points_given: float, points_possible: float, sensitivity: float, specificity: float
) -> float:
    """Return the corrected score by the formula in the module's docstring."""
    given_by_mistake = (1 - specificity) * points_possible
    return (points_given - given_by_mistake) / (sensitivity + specificity - 1)


def _interval(
    cases: CasePoints,
    rates: NDArray[Any],
    covariances: NDArray[Any],
    effective_conversations: float,
) -> intervals.Bounds | None:
    """Return Fieller's interval of the corrected score; None if it is unbounded.

    The interval consists of every score S with D^2 <= t^2 var(D), where
    D = A - sensitivity S - (1 - specificity) (B - S). The ends of the interval are the roots of a
    quadratic. A and B are the means in the module's docstring. D changes by -S with sensitivity,
    and by B - S with specificity. So the variance is

        var(D) = var(cases) + S^2 var(sensitivity) + (B - S)^2 var(specificity)
                 - 2 S (B - S) cov(sensitivity, specificity)
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
    # the scale of the differences, with the lowest and the highest possible score of a case
    lowest = min(cases.lowest - given_by_mistake, *differences)
    highest = max(1.0 - given_by_mistake, *differences)
    _, case_variance = intervals.mean_and_variance(
        differences,
        cases.clusters,
        scale=(lowest, highest),
        pseudo_size=intervals.pseudo_size_of_mean(cases.clusters),
    )
    mean = statistics.fmean(differences)
    # the effective number of conversations with labels, or of the run's sources if it is smaller
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
