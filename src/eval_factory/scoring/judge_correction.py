"""Corrects a rubric's score for the mistakes of its judge.

The correction estimates the score that physicians would have given. The judge's passport contains
physicians' labels of other answers; these labels show how often the judge errs.

The method is that of W. J. Rogan and B. Gladen, American Journal of Epidemiology 107:71-76, 1978.
Of the criteria that are met, a judge calls the share `sensitivity` met. Of the criteria that are
not met, the judge calls the share `1 - specificity` met. So the true share of met criteria can be
computed from the share that the judge calls met. A rubric's score is a share, too, weighted by
points. Each case has the points that the judge gave (A), and the points that it would have if all
its criteria were met (B). Points of negative criteria are subtracted in both:

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
"""The number of pairs in a pseudo-cluster, as a multiple of the result of `_pseudo_size`.

A pseudo-cluster is an added conversation that was not observed; all its pairs are of one kind. The
constant of the same name in scoring/agreement_figures.py is 0.75. benchmarks/judge_coverage.py
prints how often the intervals of this module cover the true score.
"""
MEAN_PSEUDO_WEIGHT = 0.5
"""The mean weight of a pseudo-source, as a multiple of `intervals.pseudo_size_of_mean` cases.

A pseudo-source is an added source that was not observed; all its cases have the lowest possible
score, or all have the highest. As for the pseudo-items in latent_class.py, half a unit of each kind
is Jeffreys' prior.
"""


@dataclass(frozen=True)
class Labels:
    """The labels of a passport."""

    pairs: Sequence[LabelledPairs]  # counts of pairs of decisions, the judge's and a physician's
    items: Sequence[LabelledItems] = ()  # counts of items; empty for a passport of version 1


@dataclass(frozen=True)
class CasePoints:
    """The points of a run's cases; the sequences have one element for each case.

    Points are shares of the sum of the case's positive points. A negative criterion, such as a
    wrong statement, subtracts points if it is met.
    """

    points_given: Sequence[float]  # the points that the judge gave: the case's score
    # The points if all criteria were met. Negative criteria keep their sign: a case with criteria
    # of 3, 1 and -2 points has (3 + 1 - 2) / 4 = 0.5.
    points_if_all_met: Sequence[float]
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

    def score_of_case(self, points_given: float, points_if_all_met: float) -> float:
        """Return the corrected score of one case, whose points are as in `CasePoints`.

        The mean over all cases is `value`, unless `value` was clipped to the possible range.
        """
        return _rogan_gladen(
            points_given=points_given,
            points_if_all_met=points_if_all_met,
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
        # A pseudo-cluster at each end of the scale keeps the variance above 0, even if the judge
        # always decides the same.
        size = intervals.pseudo_size_of_mean(clusters)
        _, variance_of_share = intervals.mean_and_variance(
            values, clusters, scale=PROPORTION, pseudo_size=size
        )
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
    given, if_all_met = _resampled_means(cases, len(resampled_youdens))
    given_by_mistake = (1 - resampled_specificities) * if_all_met
    # In a few resamples, the index may be near 0 or negative. Without the limit, the quotient could
    # then be extremely large, or have the wrong sign.
    scores = (given - given_by_mistake) / np.maximum(resampled_youdens, MIN_YOUDEN)
    low, high = widened_percentile_interval(scores, units)
    if low > 1 or high < cases.lowest:  # all scores in the interval are impossible
        return NotCorrected(ERRS_OTHERWISE)
    mean = _rogan_gladen(
        points_given=statistics.fmean(cases.points_given),
        points_if_all_met=statistics.fmean(cases.points_if_all_met),
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
    """Return the resampled means of both kinds of points, each of shape (resamples,).

    The kinds are `points_given` and `points_if_all_met`. Sources are resampled with replacement.
    For the given points, each resample also gets a pseudo-source of random weight at each end of
    the scale, because a sample of nearly equal cases understates the spread. The pseudo-sources
    pull the means towards the middle of the scale. The means are therefore shifted, so that their
    average is again the mean of the sample.
    """
    import numpy as np

    # source -> the sums of its given points and of its points if all criteria were met, and the
    # number of its cases
    sums_of_sources: dict[Hashable, NDArray[Any]] = defaultdict(lambda: np.zeros(3))
    for given, if_all_met, source in zip(
        cases.points_given, cases.points_if_all_met, cases.clusters, strict=True
    ):
        sums_of_sources[source] += (given, if_all_met, 1.0)
    tables = np.array(list(sums_of_sources.values()))
    rng = np.random.default_rng(SEED)
    sources = len(tables)
    times_drawn = rng.multinomial(sources, np.full(sources, 1 / sources), size=resamples)
    # each of shape (resamples,)
    sums_given, sums_if_all_met, numbers_of_cases = (times_drawn @ tables).T
    cases_of_source = intervals.pseudo_size_of_mean(cases.clusters)
    # The mean of a gamma distribution with scale 1 is its shape.
    weights = rng.gamma(MEAN_PSEUDO_WEIGHT, size=(resamples, 2))
    pseudo_cases = weights * cases_of_source  # the number of cases in each pseudo-source
    cases_at_lowest, cases_at_highest = pseudo_cases.T
    sums_with_pseudo = sums_given + cases_at_lowest * cases.lowest + cases_at_highest * 1.0
    means_given = sums_with_pseudo / (numbers_of_cases + pseudo_cases.sum(axis=1))
    shifted = means_given - means_given.mean() + statistics.fmean(cases.points_given)
    return shifted, sums_if_all_met / numbers_of_cases


def corrected_by_labels(
    cases: CasePoints, pairs: Sequence[LabelledPairs], weights: Mapping[str | None, float]
) -> JudgeCorrectedScore | NotCorrected:
    """Return the score corrected by the judge's rates against the labels, or the reason for none.

    The rates are sensitivity and specificity. Their variances are those of a jackknife, which
    leaves out one conversation at a time (as `agreement_figures.by_jackknife` does).

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
    # A pseudo-cluster of each of the four kinds of pair is added, as a row of the table: the labels
    # may contain no example of a rare mistake.
    pseudo_size = PSEUDO_SIZE_FACTOR * _pseudo_size(sizes, effective_conversations)
    pseudo_clusters = pseudo_size * np.eye(4)
    rows = np.vstack([tables, pseudo_clusters])
    rates_without_row = _rates(rows.sum(axis=0) - rows)  # a row of both rates for each left-out row
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
        points_if_all_met=statistics.fmean(cases.points_if_all_met),
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
    """Return the number of pairs in a pseudo-cluster, before it is multiplied by the factor.

    The number is the mean size of a conversation. If a few conversations are large, the number is
    greater, and near the size of an effective conversation: a pseudo-cluster must not be small
    beside the conversations that decide the result. `intervals.pseudo_size_of_mean` has the same
    formula, for values that all have the weight 1.

    Args:
        sizes: the weighted number of pairs in each conversation.
        effective_conversations: the number of equal conversations that are worth as much.
    """
    mean_size = sizes.mean()
    effective_size = sizes.sum() / effective_conversations
    return float(max(mean_size, effective_size - mean_size / 2))


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
    points_given: float, points_if_all_met: float, sensitivity: float, specificity: float
) -> float:
    """Return the corrected score by the formula in the module's docstring.

    The arguments are either those of one case, or the means over all cases.
    """
    given_by_mistake = (1 - specificity) * points_if_all_met
    return (points_given - given_by_mistake) / (sensitivity + specificity - 1)


def _interval(
    cases: CasePoints,
    rates: NDArray[Any],
    covariances: NDArray[Any],
    effective_conversations: float,
) -> intervals.Bounds | None:
    """Return Fieller's interval of the corrected score; None if it is unbounded.

    A and B are the means in the module's docstring. If S is the true score, the judge is expected
    to give sensitivity S + (1 - specificity) (B - S) points. D is the difference of A from them:

        D = A - sensitivity S - (1 - specificity) (B - S)

    The interval consists of every score S with D^2 <= t^2 var(D). Its ends are the roots of a
    quadratic. D changes by -S with sensitivity, and by B - S with specificity. So the variance is

        var(D) = var(cases) + S^2 var(sensitivity) + (B - S)^2 var(specificity)
                 - 2 S (B - S) cov(sensitivity, specificity)

    Args:
        cases: the cases of the run.
        rates: sensitivity and specificity: (2,).
        covariances: the variances and the covariance of the two rates: (2, 2).
        effective_conversations: the effective number of conversations with labels.
    """
    sensitivity, specificity = map(float, rates)
    mean_if_all_met = statistics.fmean(cases.points_if_all_met)  # B
    youden = sensitivity + specificity - 1
    # Subtract from each case the points that the judge gives by mistake. The variance of the
    # differences is the uncertainty of the run's cases.
    differences = []
    for given, if_all_met in zip(cases.points_given, cases.points_if_all_met, strict=True):
        differences.append(given - (1 - specificity) * if_all_met)
    given_by_mistake = (1 - specificity) * mean_if_all_met
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
    youden_variance = sensitivity_variance + specificity_variance + 2 * covariance
    # D is mean - youden * S. Sorted by the powers of S, D^2 - t^2 var(D) <= 0 is the quadratic
    # square * S^2 - 2 * half * S + constant <= 0.
    square = youden**2 - t * t * youden_variance
    half = mean * youden - t * t * mean_if_all_met * (specificity_variance + covariance)
    constant = mean**2 - t * t * (case_variance + mean_if_all_met**2 * specificity_variance)
    if square <= 0:  # Youden's index is not shown to differ from 0, with which every score fits
        return None
    root = math.sqrt(max(0.0, half * half - square * constant))
    return float(half - root) / square, float(half + root) / square
