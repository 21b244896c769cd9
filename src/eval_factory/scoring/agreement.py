"""Measures how far raters agree: Krippendorff's alpha, intraclass correlation, weighted kappa and
Gwet's AC1. All functions are pure.

The class `Ratings` collects the ratings by the judges of a run, and reports their agreement and the
correlation of their marks with the lengths of the answers.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, combinations

from eval_factory.core.results import Agreement, JuryReport, RankCorrelation
from eval_factory.scoring.chance_agreement import chance_p
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.jury_form import HELMS_JURY_FORM, JuryForm


def ordinal_alpha(units: Iterable[Collection[float]]) -> float | None:
    """Return Krippendorff's alpha of ordinal ratings.

    1 means full agreement, 0 agreement as by chance, a negative value less agreement than by
    chance. Sources: K. Krippendorff, Content Analysis (2nd edition, 2004), chapter 11; his
    Computing Krippendorff's Alpha-Reliability (2011, repository.upenn.edu/asc_papers/43) shows the
    computation step by step. n_uc is the number of raters who gave unit u the rating c, and m_u is
    the number of ratings of u. Only the units with m_u of 2 or more count:

        o_ck  = sum over u of n_uc n_uk / (m_u - 1)       coincidences of c and k, for c < k
        n_c   = sum over u of n_uc
        n     = sum of n_c
        d_ck  = n_c / 2 + (sum of n_g for the ratings g between c and k) + n_k / 2
                                                          the ordinal difference of c and k
        alpha = 1 - (n - 1) (sum of o_ck d_ck^2 for c < k) / (sum of n_c n_k d_ck^2 for c < k)

    The sums are exact fractions, so that the order of units or raters changes no digit of the
    result.

    Args:
        units: the ratings of each unit, which is one rated answer or one question about it.

    Returns:
        None if alpha is not defined: no unit has two ratings, or all ratings are equal.
    """
    # Units with the same ratings are counted together, which saves time.
    counts = Counter(tuple(sorted(ratings)) for ratings in units if len(ratings) > 1)
    n: Counter[float] = Counter()  # rating c -> n_c
    for ratings, times in counts.items():
        for rating in ratings:
            n[rating] += times
    squares = _squared_ordinal_differences(n)
    expected_disagreement = sum(
        n[low] * n[high] * square for (low, high), square in squares.items()
    )
    if not expected_disagreement:
        return None
    observed_disagreement = Fraction(0)
    for ratings, times in counts.items():
        weight = Fraction(times, len(ratings) - 1)
        for pair in combinations(ratings, 2):
            # `squares` has no pair of equal ratings, whose difference is 0.
            observed_disagreement += weight * squares.get(pair, 0)
    return float(1 - (n.total() - 1) * observed_disagreement / expected_disagreement)


def _squared_ordinal_differences(n: Mapping[float, int]) -> dict[tuple[float, float], Fraction]:
    """Return d_ck^2 of each pair of ratings (c, k). `n` maps each rating to its frequency."""
    squares = {}
    for low, high in combinations(sorted(n), 2):
        between = sum(times for rating, times in n.items() if low < rating < high)
        squares[low, high] = Fraction(n[low] + 2 * between + n[high], 2) ** 2
    return squares


def icc_agreement(rows: Sequence[Sequence[float]]) -> float | None:
    """Return the intraclass correlation ICC(2,1): single ratings, two-way random effects, absolute
    agreement.

    Sources: P. E. Shrout, J. L. Fleiss, Psychological Bulletin 86:420-428, 1979; K. O. McGraw,
    S. P. Wong, Psychological Methods 1:30-46, 1996, who call this correlation ICC(A,1). MS_rows,
    MS_columns and MS_error are the mean squares of rows (items), columns (raters) and error, n is
    the number of items, and k is the number of raters:

        ICC = (MS_rows - MS_error) / (MS_rows + (k - 1) MS_error + k (MS_columns - MS_error) / n)

    Args:
        rows: the ratings of each item. All rows have the same raters, in the same order.

    Returns:
        None if there are fewer than two items or raters, or if the denominator is not positive
        (all ratings are equal, for example).
    """
    count = len(rows)
    if count < 2 or len(rows[0]) < 2:
        return None
    raters = len(rows[0])
    center = statistics.fmean(chain.from_iterable(rows))
    row_means = map(statistics.fmean, rows)
    column_means = map(statistics.fmean, zip(*rows, strict=True))
    rows_sum = raters * _sum_of_squares(row_means, center)
    columns_sum = count * _sum_of_squares(column_means, center)
    total_sum = _sum_of_squares(chain.from_iterable(rows), center)
    rows_square = rows_sum / (count - 1)
    columns_square = columns_sum / (raters - 1)
    # Rounding may make the sum of squares of the error slightly negative.
    error_square = max(0.0, total_sum - rows_sum - columns_sum) / ((count - 1) * (raters - 1))
    denominator = (
        rows_square + (raters - 1) * error_square + raters * (columns_square - error_square) / count
    )
    if denominator <= 0:
        return None
    return (rows_square - error_square) / denominator


def _sum_of_squares(values: Iterable[float], center: float) -> float:
    return sum((value - center) ** 2 for value in values)


def weighted_kappa(pairs: Collection[tuple[float, float]]) -> float | None:
    """Return Cohen's kappa of two raters with squared weights.

    Source: J. Cohen, Psychological Bulletin 70:213-220, 1968. x and y are the ratings of the two
    raters: kappa = 1 - mean((x - y)^2) / (the mean of (x - y)^2 over all pairs of any x with any
    y). On a scale with two values, such as met or not, weighted and unweighted kappa are equal.

    Returns:
        None if there are no pairs, or if all ratings are equal.
    """
    if not pairs:
        return None
    first, second = zip(*pairs, strict=True)  # all ratings of each rater
    observed = statistics.fmean((x - y) ** 2 for x, y in pairs)
    # The mean of (x - y)^2 over any x with any y is the sum of the two variances and the squared
    # difference of the means.
    mean_gap = statistics.fmean(first) - statistics.fmean(second)
    expected = statistics.pvariance(first) + statistics.pvariance(second) + mean_gap**2
    if not expected:
        return None
    # Rounding turns a tiny float error into an exact 0, and adding 0.0 turns -0.0 into 0.0.
    kappa: float = round(1 - observed / expected, 12) + 0.0
    return kappa


def gwet_ac1(units: Collection[Collection[float]], categories: int) -> float | None:
    """Return Gwet's AC1 of any number of raters. Ratings may be missing.

    Source: K. L. Gwet, British Journal of Mathematical and Statistical Psychology 61:29-48, 2008.
    r_ik is the number of raters who put item i into category k, r_i is the number of raters of
    item i, q is the number of categories, and pi_k is the mean of r_ik / r_i over the items:

        p_a = mean over items with r_i > 1 of  sum of r_ik (r_ik - 1) / (r_i (r_i - 1))
        p_e = sum of pi_k (1 - pi_k) / (q - 1)
        AC1 = (p_a - p_e) / (1 - p_e)

    Args:
        units: the ratings of each item.
        categories: the number of categories, used or not.

    Returns:
        None if no item was rated twice, or if there is only one category.
    """
    rated = [Counter(unit) for unit in units if unit]
    rated_twice = [counts for counts in rated if counts.total() > 1]
    if not rated_twice or categories < 2:
        return None
    agreement = statistics.fmean(map(_share_of_equal_pairs, rated_twice))
    shares: Counter[float] = Counter()  # category k -> pi_k
    for counts in rated:
        for category, times in counts.items():
            shares[category] += times / counts.total() / len(rated)  # type: ignore[assignment]
    chance = sum(share * (1 - share) for share in shares.values()) / (categories - 1)
    return (agreement - chance) / (1 - chance)


def _share_of_equal_pairs(counts: Counter[float]) -> float:
    """Return the share of the ordered pairs of one item's raters that agree."""
    equal = sum(times * (times - 1) for times in counts.values())
    return equal / (counts.total() * (counts.total() - 1))


RatingsByRater = Mapping[str, float]
"""The ratings of one question about one answer: rater -> rating."""


def agreement_among_raters(units: Sequence[RatingsByRater], scale: Sequence[float]) -> Agreement:
    """Return the agreement of raters. A rater may have rated only some of the answers.

    Alpha and AC1 use the nearest rating on the scale. Kappa is the mean over pairs of raters. The
    intraclass correlation uses only the questions that every rater answered.

    Args:
        units: the ratings of each question about an answer.
        scale: the possible ratings, the lowest first.
    """
    rated_twice = [unit for unit in units if len(unit) > 1]
    raters = sorted(set(chain.from_iterable(rated_twice)))
    complete_rows = []  # the ratings of each question that every rater answered
    for unit in rated_twice:
        if len(unit) == len(raters):
            complete_rows.append([unit[rater] for rater in raters])
    nearest = [_indices_of_nearest(unit.values(), scale) for unit in rated_twice]
    alpha = ordinal_alpha(nearest)
    ac1 = gwet_ac1(nearest, len(scale))
    kappas = []  # one kappa for each pair of raters, over the questions that both rated
    for pair in combinations(raters, 2):
        kappa = weighted_kappa(_ratings_by_both(rated_twice, pair))
        if kappa is not None:
            kappas.append(kappa)
    mean_kappa = None
    if kappas:
        mean_kappa = statistics.fmean(kappas)
    return Agreement(
        n=len(rated_twice),
        alpha=alpha,
        icc=icc_agreement(complete_rows),
        weighted_kappa=mean_kappa,
        ac1=ac1,
    )


def _ratings_by_both(
    units: Sequence[RatingsByRater], raters: tuple[str, str]
) -> list[tuple[float, float]]:
    """Return the two raters' ratings of each question that both rated."""
    first, second = raters
    return [(unit[first], unit[second]) for unit in units if unit.keys() >= {first, second}]


def agreement_of_judge_with_people(
    marks: Sequence[tuple[float, Sequence[float]]], scale: Sequence[float]
) -> Agreement:
    """Return the agreement of a judge with the people's consensus.

    The consensus is the people's mean rating. On a scale with two values, the consensus is the
    people's majority, and a question with a tie is left out.

    Args:
        marks: the judge's mark and the people's ratings of each question about an answer.
        scale: the possible ratings, the lowest first.
    """
    pairs = []
    for mark, ratings in marks:
        rating = consensus(ratings, scale)
        if rating is not None:
            pairs.append((mark, rating))
    nearest = [_indices_of_nearest(pair, scale) for pair in pairs]
    alpha = ordinal_alpha(nearest)
    ac1 = gwet_ac1(nearest, len(scale))
    return Agreement(
        n=len(pairs),
        alpha=alpha,
        icc=icc_agreement(pairs),
        weighted_kappa=weighted_kappa(pairs),
        ac1=ac1,
    )


def consensus(ratings: Sequence[float], scale: Sequence[float]) -> float | None:
    """Return the mean of the ratings; on a scale with two values, the rating of the majority.

    The result is None if the scale has two values and there is a tie.
    """
    mean = statistics.fmean(ratings)
    if len(scale) > 2:
        return mean
    low, high = scale
    middle = (low + high) / 2
    if mean == middle:
        return None
    if mean > middle:
        return high
    return low


def _indices_of_nearest(values: Iterable[float], scale: Sequence[float]) -> list[int]:
    return [index_of_nearest(value, scale) for value in values]


def index_of_nearest(value: float, scale: Sequence[float]) -> int:
    """Return the index of the rating on the scale that is nearest to the value.

    If two ratings are equally near, the lower index counts.
    """
    return min(range(len(scale)), key=lambda number: abs(scale[number] - value))


def length_correlation(pairs: Sequence[tuple[float, int]]) -> RankCorrelation | None:
    """Return Spearman's correlation of a judge's marks with the lengths of the answers.

    The 95 % interval is computed on Fisher's z with the variance (1 + rho^2 / 2) / (n - 3) (D.
    Bonett, T. Wright, Psychometrika 65:23-28, 2000). If marks have many ties, the interval really
    covers the correlation in 94.5 to 99.7 % of samples, for n from 20 to 500.

    Args:
        pairs: the judge's mark and the length of each answer.

    Returns:
        None if there are fewer than four pairs, or if all marks or all lengths are equal.
    """
    n = len(pairs)
    if n < 4:
        return None
    marks, lengths = zip(*pairs, strict=True)
    if len(set(marks)) == 1 or len(set(lengths)) == 1:
        return None
    from scipy import stats  # imported here because only runs with judges need scipy

    rho = float(stats.spearmanr(pairs)[0])
    # Fisher's z of a perfect correlation is infinite. The interval is therefore computed as if two
    # neighbouring ranks had been exchanged, which lowers rho from 1 to `largest_rho`.
    largest_rho = 1 - 12 / (n * (n * n - 1))
    finite_rho = math.copysign(min(abs(rho), largest_rho), rho)
    variance = (1 + finite_rho * finite_rho / 2) / (n - 3)
    half_width = stats.norm.ppf(0.975) * math.sqrt(variance)
    fishers_z = math.atanh(finite_rho)
    low = math.tanh(fishers_z - half_width)
    high = math.tanh(fishers_z + half_width)
    # The interval must include rho, which for a perfect correlation is outside these ends.
    return RankCorrelation(rho, ci_low=min(low, rho), ci_high=max(high, rho), count=n)


ENOUGH_MARKS = 10
"""The least number of marks from which the report may say that a judge gave every answer the same
marks.
"""


@dataclass
class Ratings:
    """All ratings by the judges of a run."""

    # judge -> instance -> criterion -> rating
    by_judge: dict[str, dict[InstanceKey, dict[str, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # the instances with an empty answer, which get the form's lowest rating without a judge
    empty_answers: set[InstanceKey] = field(default_factory=set)
    form: JuryForm = HELMS_JURY_FORM
    lengths: dict[InstanceKey, int] = field(default_factory=dict)
    """The length of the answer to each instance, in characters."""

    def add(self, judge: str, instance: InstanceKey, ratings: Mapping[str, float]) -> None:
        """Add a judge's ratings of one instance, by criterion."""
        if ratings:
            self.by_judge[judge][instance] = dict(ratings)

    def _ratings_by(self, judge: str) -> dict[tuple[InstanceKey, str], float]:
        """Return a judge's ratings, by instance and criterion."""
        by_unit = {}
        for instance, ratings in self.by_judge[judge].items():
            for criterion, rating in ratings.items():
                by_unit[instance, criterion] = rating
        return by_unit

    def jury_scores(self, left_out: str | None = None) -> dict[InstanceKey, float]:
        """Return the jury's score of each instance: the mean of all ratings, as in HELM.

        Args:
            left_out: a judge whose ratings do not count. If no other judge rated anything, the
                method returns an empty mapping.
        """
        ratings_of: dict[InstanceKey, list[float]] = defaultdict(list)
        for judge, by_instance in self.by_judge.items():
            if judge != left_out:
                for instance, by_criterion in by_instance.items():
                    ratings_of[instance].extend(by_criterion.values())
        rated = {instance: sum(values) / len(values) for instance, values in ratings_of.items()}
        if left_out is not None and not rated:
            return {}
        return rated | dict.fromkeys(self.empty_answers, self.form.lowest)

    def mean_by_judge(self, instance: InstanceKey) -> dict[str, float]:
        """Return the mean of each judge's ratings of one instance.

        Judges that did not rate the instance are left out.
        """
        means = {}
        for judge, by_instance in self.by_judge.items():
            by_criterion = by_instance.get(instance)
            if by_criterion:
                means[judge] = statistics.fmean(by_criterion.values())
        return means

    def make_report(self) -> JuryReport:
        """Return the report on the judges: their mean marks, their agreement, and the correlation
        of their marks with the lengths of the answers.

        If the ratings are shares of a rubric's points, the agreement is not computed.
        """
        means = {}
        leave_one_out = {}
        length_correlations = {}
        ratings_of = defaultdict(list)  # (instance, criterion) -> the ratings by all judges
        for judge in self.by_judge:
            judge_ratings = self._ratings_by(judge)
            for unit, rating in judge_ratings.items():
                ratings_of[unit].append(rating)
            means[judge] = statistics.fmean(judge_ratings.values())
            leave_one_out[judge] = self._mean_without(judge)
            length_correlations[judge] = length_correlation(self._marks_and_lengths(judge))
        kappas = {}
        for first, second in combinations(self.by_judge, 2):
            kappas[f"{first}/{second}"] = self._kappa(first, second)
        alpha = None
        agreement_p = None
        if not self.form.is_continuous:
            alpha = ordinal_alpha(ratings_of.values())
            agreement_p = chance_p(self.by_judge)
        return JuryReport(
            means=means,
            krippendorff_alpha=alpha,
            weighted_kappa=kappas,
            leave_one_out=leave_one_out,
            labels=self.form.labels,
            criteria=self.form.criteria,
            length_correlation=length_correlations,
            agreement_p=agreement_p,
            constant=tuple(filter(self._is_constant, self.by_judge)),
        )

    def _is_constant(self, judge: str) -> bool:
        """Return True if a judge gave every answer the same marks, and at least `ENOUGH_MARKS`."""
        distinct = set()
        for by_criterion in self.by_judge[judge].values():
            distinct.add(tuple(sorted(by_criterion.items())))
        return len(distinct) == 1 and len(self._ratings_by(judge)) >= ENOUGH_MARKS

    def _mean_without(self, judge: str) -> float | None:
        """Return the jury's mean score without a judge; None if no other judge rated anything."""
        scores = self.jury_scores(left_out=judge)
        if not scores:
            return None
        return statistics.fmean(scores.values())

    def _marks_and_lengths(self, judge: str) -> list[tuple[float, int]]:
        """Return a judge's mean mark and the length of each answer whose length is known."""
        pairs = []
        for instance, ratings in self.by_judge[judge].items():
            if instance in self.lengths:
                pairs.append((statistics.fmean(ratings.values()), self.lengths[instance]))
        return pairs

    def _kappa(self, judge: str, second_judge: str) -> float | None:
        """Return the weighted kappa of two judges, over the criteria and instances that both rated.

        The result is None if `weighted_kappa` is not defined, or if the ratings are shares: kappa
        needs ratings with fixed steps.
        """
        if self.form.is_continuous:
            return None
        ratings = self._ratings_by(judge)
        second_ratings = self._ratings_by(second_judge)
        pairs = []
        for unit in ratings.keys() & second_ratings.keys():
            pairs.append((ratings[unit], second_ratings[unit]))
        return weighted_kappa(pairs)
