"""Measures of how far raters agree: Krippendorff's alpha, intraclass correlation, weighted kappa,
Gwet's AC1. Pure.
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
from eval_factory.tasks.jury_form import HELMS_FORM, JuryForm


def ordinal_alpha(units: Iterable[Collection[float]]) -> float | None:
    """Krippendorff's alpha of ordinal ratings: 1 is agreement in everything, 0 as by chance, below
    0 less than that.

    K. Krippendorff, Content Analysis (2nd edition, 2004), chapter 11; the same, step by step, in
    his Computing Krippendorff's Alpha-Reliability (2011, repository.upenn.edu/asc_papers/43). With
    n_uc the times that unit u was given the rating c, m_u the ratings of u, and only the units with
    m_u of 2 or more:

        o_ck  = sum over u of n_uc n_uk / (m_u - 1)                              coincidences of c
        and k, for c < k n_c   = sum over u of n_uc,   n = sum of n_c
        d_ck  = n_c / 2 + (sum of n_g for the ratings g between c and k) + n_k / 2          ordinal
        difference alpha = 1 - (n - 1) (sum of o_ck d_ck^2 for c < k) / (sum of n_c n_k d_ck^2 for c
        < k)

    Fractions up to the last division: the order of units or raters changes no digit. None if
    alpha is not defined: no unit has two ratings, or those that have were all given the same
    rating.
    """
    counts = Counter(tuple(sorted(ratings)) for ratings in units if len(ratings) > 1)
    n: Counter[float] = Counter()
    for ratings, times in counts.items():
        for rating in ratings:
            n[rating] += times
    squares = _squared_ordinal_differences(n)
    expected = sum(n[low] * n[high] * square for (low, high), square in squares.items())
    if not expected:
        return None
    observed = Fraction(0)
    for ratings, times in counts.items():
        weight = Fraction(times, len(ratings) - 1)
        for pair in combinations(ratings, 2):
            observed += weight * squares.get(pair, 0)
    return float(1 - (n.total() - 1) * observed / expected)


def _squared_ordinal_differences(n: Mapping[float, int]) -> dict[tuple[float, float], Fraction]:
    """Return d_ck^2 of each pair of ratings (c, k). `n` is how often each rating was given."""
    squares = {}
    for low, high in combinations(sorted(n), 2):
        between = sum(times for rating, times in n.items() if low < rating < high)
        squares[low, high] = Fraction(n[low] + 2 * between + n[high], 2) ** 2
    return squares


def icc_agreement(rows: Sequence[Sequence[float]]) -> float | None:
    """The intraclass correlation of single ratings, two-way random effects, absolute agreement:
    ICC(2,1).

    P. E. Shrout, J. L. Fleiss, Psychological Bulletin 86:420-428, 1979; ICC(A,1) of K. O. McGraw,
    S. P. Wong, Psychological Methods 1:30-46, 1996. With the mean squares of rows (things), columns
    (raters) and error:

        ICC = (MS_rows - MS_error) / (MS_rows + (k - 1) MS_error + k (MS_columns - MS_error) / n)

    A row has the ratings of all raters, in the same order. None with fewer than two things or
    raters, and where all ratings are equal.
    """
    count = len(rows)
    if count < 2 or len(rows[0]) < 2:
        return None
    raters = len(rows[0])
    center = statistics.fmean(chain.from_iterable(rows))
    row_means = map(statistics.fmean, rows)
    column_means = map(statistics.fmean, zip(*rows, strict=True))
    of_rows = raters * _sum_of_squares(row_means, center)
    of_columns = count * _sum_of_squares(column_means, center)
    total = _sum_of_squares(chain.from_iterable(rows), center)
    rows_square = of_rows / (count - 1)
    columns_square = of_columns / (raters - 1)
    error_square = max(0.0, total - of_rows - of_columns) / ((count - 1) * (raters - 1))
    below = (
        rows_square + (raters - 1) * error_square + raters * (columns_square - error_square) / count
    )
    if below <= 0:
        return None
    return (rows_square - error_square) / below


def _sum_of_squares(values: Iterable[float], center: float) -> float:
    return sum((value - center) ** 2 for value in values)


def weighted_kappa(pairs: Collection[tuple[float, float]]) -> float | None:
    """Cohen's kappa of two raters with squared weights (J. Cohen, Psychological Bulletin
    70:213-220, 1968).

    With x and y the two raters' ratings: 1 - mean((x - y)^2) / (the mean of (x - y)^2 over all
    pairs of an x with any y). On two values (met or not) it is Cohen's unweighted kappa. None
    without pairs, and where all ratings are equal.
    """
    if not pairs:
        return None
    first, second = zip(*pairs, strict=True)
    observed = statistics.fmean((x - y) ** 2 for x, y in pairs)
    apart = statistics.fmean(first) - statistics.fmean(second)
    expected = statistics.pvariance(first) + statistics.pvariance(second) + apart**2
    if not expected:
        return None
    # 0 by chance alone, and not what floats leave of it
    kappa: float = round(1 - observed / expected, 12) + 0.0
    return kappa


def gwet_ac1(units: Collection[Collection[float]], categories: int) -> float | None:
    """Gwet's AC1 of any number of raters, some ratings of which may be missing.

    K. L. Gwet, British Journal of Mathematical and Statistical Psychology 61:29-48, 2008. With r_ik
    the raters who put thing i into category k, r_i all who rated it, q the number of categories and
    pi_k the mean of r_ik / r_i:

        p_a = mean over things with r_i > 1 of  sum of r_ik (r_ik - 1) / (r_i (r_i - 1))
        p_e = sum of pi_k (1 - pi_k) / (q - 1)
        AC1 = (p_a - p_e) / (1 - p_e)

    Args:
        units: the ratings of each thing.
        categories: how many there are, used or not.

    Returns:
        None if nothing was rated twice, or there is only one category.
    """
    rated = [Counter(unit) for unit in units if unit]
    twice = [counts for counts in rated if counts.total() > 1]
    if not twice or categories < 2:
        return None
    agreement = statistics.fmean(map(_share_of_equal_pairs, twice))
    shares: Counter[float] = Counter()
    for counts in rated:
        for category, times in counts.items():
            shares[category] += times / counts.total() / len(rated)  # type: ignore[assignment]
    chance = sum(share * (1 - share) for share in shares.values()) / (categories - 1)
    return (agreement - chance) / (1 - chance)


def _share_of_equal_pairs(counts: Counter[float]) -> float:
    """The share of the ordered pairs of a thing's raters that agree."""
    equal = sum(times * (times - 1) for times in counts.values())
    return equal / (counts.total() * (counts.total() - 1))


Unit = Mapping[str, float]  # of one question about one answer: rater -> rating


def agreement_among(units: Sequence[Unit], scale: Sequence[float]) -> Agreement:
    """Return the agreement of raters who did not all rate everything.

    Args:
        units: the ratings of each question about an answer.
        scale: the ratings that there are, the least first.
    """
    twice = [unit for unit in units if len(unit) > 1]
    raters = sorted(set(chain.from_iterable(twice)))
    uncut = [[unit[rater] for rater in raters] for unit in twice if len(unit) == len(raters)]
    nearest = [_nearest_ratings(unit.values(), scale) for unit in twice]
    alpha = ordinal_alpha(nearest)
    ac1 = gwet_ac1(nearest, len(scale))
    kappas = []  # each pair of raters has one, over what both rated
    for pair in combinations(raters, 2):
        kappa = weighted_kappa(_ratings_by_both(twice, pair))
        if kappa is not None:
            kappas.append(kappa)
    mean_kappa = None
    if kappas:
        mean_kappa = statistics.fmean(kappas)
    return Agreement(len(twice), alpha, icc_agreement(uncut), mean_kappa, ac1)


def _ratings_by_both(units: Sequence[Unit], raters: tuple[str, str]) -> list[tuple[float, float]]:
    first, second = raters
    return [(unit[first], unit[second]) for unit in units if unit.keys() >= {first, second}]


def agreement_with(
    marks: Sequence[tuple[float, Sequence[float]]], scale: Sequence[float]
) -> Agreement:
    """Return the agreement of a judge with the raters' mean; with their majority if the scale has
    two ends and nothing between.

    Args:
        marks: of each question about an answer the judge's mark and the people's ratings.
        scale: the ratings that there are, the least first.
    """
    pairs = []
    for mark, ratings in marks:
        rating = consensus(ratings, scale)
        if rating is not None:
            pairs.append((mark, rating))
    nearest = [_nearest_ratings(pair, scale) for pair in pairs]
    alpha = ordinal_alpha(nearest)
    ac1 = gwet_ac1(nearest, len(scale))
    return Agreement(len(pairs), alpha, icc_agreement(pairs), weighted_kappa(pairs), ac1)


def consensus(ratings: Sequence[float], scale: Sequence[float]) -> float | None:
    """The mean; of two ratings the one that most gave, None if as many gave the other."""
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


def _nearest_ratings(values: Iterable[float], scale: Sequence[float]) -> list[int]:
    return [nearest_rating(value, scale) for value in values]


def nearest_rating(value: float, scale: Sequence[float]) -> int:
    """The number of the rating that is nearest, from 0; of two that are as near, the lower
    one's.
    """
    return min(range(len(scale)), key=lambda number: abs(scale[number] - value))


def length_correlation(pairs: Sequence[tuple[float, int]]) -> RankCorrelation | None:
    """Return the correlation of a judge's marks and the lengths of the answers; None if it is not
    defined.

    The interval is Fisher's z with the variance (1 + rho^2 / 2) / (n - 3) (D. Bonett, T. Wright,
    Psychometrika 65:23-28, 2000). Of marks with many ties it covers 94.5 to 99.7 %, for n from 20
    to 500.
    """
    n = len(pairs)
    if n < 4:
        return None
    marks, lengths = zip(*pairs, strict=True)
    if len(set(marks)) == 1 or len(set(lengths)) == 1:
        return None
    from scipy import stats  # imported here: only judges need it

    rho = float(stats.spearmanr(pairs)[0])
    # no z is that of a perfect order: it counts as if two neighbours had changed places
    inner = math.copysign(min(abs(rho), 1 - 12 / (n * (n * n - 1))), rho)
    half = stats.norm.ppf(0.975) * math.sqrt((1 + inner * inner / 2) / (n - 3))
    low = math.tanh(math.atanh(inner) - half)
    high = math.tanh(math.atanh(inner) + half)
    return RankCorrelation(rho, min(low, rho), max(high, rho), n)


ENOUGH_MARKS = 10
"""Marks of a judge, from which on a report says that all answers got the same."""


@dataclass
class Ratings:
    """Every rating of a run: judge -> instance -> criterion -> rating."""

    by_judge: dict[str, dict[InstanceKey, dict[str, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # answers with nothing in them, which no judge is asked about
    lowest: set[InstanceKey] = field(default_factory=set)
    form: JuryForm = HELMS_FORM
    lengths: dict[InstanceKey, int] = field(default_factory=dict)  # of the answers, in characters

    def add(self, judge: str, instance: InstanceKey, ratings: Mapping[str, float]) -> None:
        if ratings:
            self.by_judge[judge][instance] = dict(ratings)

    def _units(self, judge: str) -> dict[tuple[InstanceKey, str], float]:
        """Return a judge's ratings, by instance and criterion."""
        units = {}
        for instance, ratings in self.by_judge[judge].items():
            for criterion, rating in ratings.items():
                units[instance, criterion] = rating
        return units

    def jury_scores(self, left_out: str | None = None) -> dict[InstanceKey, float]:
        """The jury's score of each instance: the mean of all its ratings, as HELM computes it."""
        sums: dict[InstanceKey, list[float]] = defaultdict(list)
        for judge, ratings in self.by_judge.items():
            if judge != left_out:
                for instance, given in ratings.items():
                    sums[instance].extend(given.values())
        rated = {instance: sum(values) / len(values) for instance, values in sums.items()}
        if left_out is not None and not rated:
            return {}  # the others said nothing
        return rated | dict.fromkeys(self.lowest, self.form.lowest)

    def mean_by_judge(self, instance: InstanceKey) -> dict[str, float]:
        """Return the mean of each judge's ratings of one instance."""
        means = {}
        for judge, ratings in self.by_judge.items():
            given = ratings.get(instance)
            if given:
                means[judge] = statistics.fmean(given.values())
        return means

    def report(self) -> JuryReport:
        means = {}
        leave_one_out = {}
        length_correlations = {}
        units = defaultdict(list)
        for judge in self.by_judge:
            of_judge = self._units(judge)
            for unit, rating in of_judge.items():
                units[unit].append(rating)
            means[judge] = statistics.fmean(of_judge.values())
            leave_one_out[judge] = self._mean_without(judge)
            length_correlations[judge] = length_correlation(self._marks_and_lengths(judge))
        kappas = {}
        for first, second in combinations(self.by_judge, 2):
            kappas[f"{first}/{second}"] = self._kappa(first, second)
        alpha = None
        chance = None
        if not self.form.shares:
            alpha = ordinal_alpha(units.values())
            chance = chance_p(self.by_judge)
        return JuryReport(
            means=means,
            krippendorff_alpha=alpha,
            weighted_kappa=kappas,
            leave_one_out=leave_one_out,
            labels=self.form.labels,
            criteria=self.form.criteria,
            length_correlation=length_correlations,
            agreement_p=chance,
            constant=tuple(filter(self._is_constant, self.by_judge)),
        )

    def _is_constant(self, judge: str) -> bool:
        """The judge gave enough marks to tell, and every answer the same ones."""
        different = {tuple(sorted(given.items())) for given in self.by_judge[judge].values()}
        return len(different) == 1 and len(self._units(judge)) >= ENOUGH_MARKS

    def _mean_without(self, judge: str) -> float | None:
        """The jury's score without a judge; None if the others said nothing."""
        scores = self.jury_scores(left_out=judge)
        if not scores:
            return None
        return statistics.fmean(scores.values())

    def _marks_and_lengths(self, judge: str) -> list[tuple[float, int]]:
        pairs = []
        for instance, ratings in self.by_judge[judge].items():
            if instance in self.lengths:
                pairs.append((statistics.fmean(ratings.values()), self.lengths[instance]))
        return pairs

    def _kappa(self, judge: str, second_judge: str) -> float | None:
        """The kappa of what both rated. Shares have none, for they have no weights: no two steps
        are as far apart as the next.
        """
        if self.form.shares:
            return None
        ratings = self._units(judge)
        second_ratings = self._units(second_judge)
        pairs = []
        for unit in ratings.keys() & second_ratings.keys():
            pairs.append((ratings[unit], second_ratings[unit]))
        return weighted_kappa(pairs)
