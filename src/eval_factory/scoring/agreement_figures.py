"""Computes the figures of agreement of a judge with physicians, and of the physicians with each
other, with their intervals.

An item is one criterion or question about one answer. A mark is a decision about an item (met or
not), or a rating on a scale. A label is a physician's mark. The figures are computed from pairs of
marks of one item: each pair of the judge and a physician, and each ordered pair of two
physicians, as in the published figures of HealthBench (arXiv 2505.08775, section 6). Every interval
treats conversations as clusters. All functions are pure.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_factory.scoring import intervals
from eval_factory.scoring.agreement import index_of_nearest
from eval_factory.tasks.physician_labels import MIN_ITEMS, LabelledItem

PSEUDO_SIZE_FACTOR = 0.75
"""The number of pairs in a pseudo-cluster, as a multiple of `intervals.pseudo_size_of_mean`.

A pseudo-cluster is an added conversation that was not observed; all its pairs are of one kind.
With 0.5, the 95 % intervals of rare faults cover only 90 %; benchmarks/judge_coverage.py prints the
coverage.
"""
DECISIONS = (False, True)  # the possible marks of an item that is met or not
Pair = tuple[str, float, float]
"""The conversation of an item, and two marks of the item: of the judge and a physician, or of two
physicians.
"""
LOWEST_OF_AGREEMENT = (0.0, -1.0, -1.0)  # of macro F1, kappa and AC1


@dataclass(frozen=True)
class Figure:
    """A number with its 95 % interval.

    The value is None if the number is not defined. The ends of the interval are None if the value
    is None, or if there are too few data.
    """

    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None

    @property
    def includes_0(self) -> bool:
        """True if the interval includes 0, or if there is no interval."""
        return self.ci_low is None or self.ci_high is None or self.ci_low <= 0 <= self.ci_high


@dataclass(frozen=True)
class Figures:
    """The figures of agreement of a judge, or of physicians, with physicians."""

    f1_macro: Figure  # the mean of the F1 of `met` and of `not met`
    kappa: Figure
    ac1: Figure
    sensitivity: Figure  # among the labels `met`, the share that is also judged `met`
    specificity: Figure  # among the labels `not met`, the share that is also judged `not met`
    bias: Figure  # the judge's mean mark less the mean of the items' mean labels


@dataclass(frozen=True)
class AgreementPart:
    """The agreement in a part of the items, such as all items, a category, a language or a third
    by length.
    """

    items: int  # the number of items
    labels: int  # the number of the physicians' marks of these items
    judge: Figures | None  # None if there are too few items
    # None if there are too few items, or if no item has the labels of two physicians
    physicians: Figures | None


def conversation_of(item: LabelledItem) -> str:
    """Return the conversation of an item."""
    return item.conversation


def marks_of_judge(items: Sequence[LabelledItem]) -> list[float]:
    """Return the judge's mark of each item."""
    return [item.judged for item in items]


def _conversations_of(pairs: Sequence[tuple[str, Any, Any]]) -> list[str]:
    """Return the conversation of each pair."""
    return [conversation for conversation, _, _ in pairs]


def mean_of(values: Sequence[float], clusters: Sequence[str], lowest: float = 0.0) -> Figure:
    """Return the mean with its interval. A single value has no interval.

    Args:
        values: the values; the highest possible value is 1.
        clusters: the conversation of each value.
        lowest: the lowest possible value.
    """
    interval = intervals.interval_of_mean(values, scale=(lowest, 1.0), clusters=clusters)
    return Figure(statistics.fmean(values), interval.low, interval.high)


def part_of(
    items: Sequence[LabelledItem], marks: Sequence[float] = DECISIONS, fewest: int = MIN_ITEMS
) -> AgreementPart:
    """Return the figures of a part of the items.

    Args:
        items: the items of the part.
        marks: the possible marks, the lowest first.
        fewest: the smallest number of items for which figures are computed.
    """
    labels = sum(len(item.labels) for item in items)
    if len(items) < fewest:
        return AgreementPart(len(items), labels, judge=None, physicians=None)
    pairs, among_physicians = pairs_of(items)
    judge = _figures(pairs, marks, _bias(items, marks))
    physicians = None
    if among_physicians:
        # Each pair of physicians counts in both orders, so their bias is exactly 0.
        no_bias = Figure(0.0, ci_low=0.0, ci_high=0.0)
        physicians = _figures(among_physicians, marks, no_bias)
    return AgreementPart(len(items), labels, judge, physicians)


def _bias(items: Sequence[LabelledItem], marks: Sequence[float]) -> Figure:
    """Return the judge's mean mark less the mean of the items' mean labels, as a share of the
    scale.
    """
    width = marks[-1] - marks[0]
    judged = marks_of_judge(items)
    mean_labels = [statistics.fmean(item.labels) for item in items]
    differences = []
    for mark, mean_label in zip(judged, mean_labels, strict=True):
        differences.append((mark - mean_label) / width)
    mean_difference = mean_of(differences, list(map(conversation_of, items)), lowest=-1.0)
    # The published bias is the difference of the means. The mean of the differences may have other
    # last digits.
    bias = (statistics.fmean(judged) - statistics.fmean(mean_labels)) / width
    return replace(mean_difference, value=bias)


def pairs_of(items: Sequence[LabelledItem]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of the judge and a physician, and the ordered pairs of two physicians."""
    with_judge: list[Pair] = []
    among_physicians: list[Pair] = []
    for item in items:
        for label in item.labels:
            with_judge.append((item.conversation, item.judged, label))
        for first, second in permutations(item.labels, 2):
            among_physicians.append((item.conversation, first, second))
    return with_judge, among_physicians


def _figures(pairs: Sequence[Pair], marks: Sequence[float], bias: Figure) -> Figures:
    """Return the figures of agreement in the pairs."""
    tables, pseudo_sizes = tables_of(pairs, marks)
    f1, kappa, ac1 = by_jackknife(
        tables, pseudo_sizes, pairs, _agreement_by(marks), lowest=LOWEST_OF_AGREEMENT
    )
    sensitivity = Figure(None)
    specificity = Figure(None)
    if len(marks) == 2:
        sensitivity = _recall(pairs, label=True)
        specificity = _recall(pairs, label=False)
    return Figures(f1, kappa, ac1, sensitivity, specificity, bias)


def _recall(pairs: Sequence[Pair], *, label: bool) -> Figure:
    """Return the share of pairs with equal decisions, among the pairs with this label.

    The label is the second mark of a pair. The interval is Wilson's, for the effective number of
    pairs. The figure is undefined if no pair has the label.
    """
    is_equal = []  # 1.0 if the two decisions of the pair are equal, else 0.0
    conversations = []
    for conversation, first, second in pairs:
        if second == label:
            is_equal.append(float(first == label))
            conversations.append(conversation)
    if not is_equal:
        return Figure(None)
    return mean_of(is_equal, conversations)


def gap_of(items: Sequence[LabelledItem], marks: Sequence[float]) -> Figure:
    """Return the judge's agreement with physicians less the physicians' agreement with each other.

    The jackknife leaves out both tables of a conversation together, because the two agreements
    depend on each other.
    """
    pairs, among_physicians = pairs_of(items)
    judge_tables, judge_sizes = tables_of(pairs, marks)
    physician_tables, physician_sizes = tables_of(among_physicians, marks, all_pairs=pairs)
    agreement = _agreement_by(marks)
    kinds = len(marks) ** 2
    index_of_figure = 1  # kappa, for marks on a scale
    if len(marks) == 2:
        index_of_figure = 0  # macro F1, for decisions

    def gap_in(tables: NDArray[Any]) -> NDArray[Any]:
        by_judge = agreement(tables[..., :kinds])
        by_physicians = agreement(tables[..., kinds:])
        gaps: NDArray[Any] = by_judge - by_physicians
        return gaps[..., [index_of_figure]]  # The list keeps the axis of figures, with one figure.

    (gap,) = by_jackknife(
        # In each row, the judge's table comes first, then the physicians' table.
        np.hstack([judge_tables, physician_tables]),
        [*judge_sizes, *physician_sizes],
        pairs,
        gap_in,
        lowest=(-1.0,),
    )
    return gap


def tables_of(
    pairs: Sequence[Pair], marks: Sequence[float] = DECISIONS, all_pairs: Sequence[Pair] = ()
) -> tuple[NDArray[Any], list[float]]:
    """Count the pairs of each kind (a combination of two marks) by conversation.

    The counts have the shape (conversations, kinds). The highest mark comes first. For decisions,
    the kinds are therefore: both marks say met, only the first, only the second, neither.

    Args:
        pairs: the pairs to count.
        marks: the possible marks, the lowest first.
        all_pairs: pairs that name all conversations, in their order; by default `pairs`.

    Returns:
        The counts, and the number of pairs in the pseudo-cluster of each kind. Marks on a scale
        have no pseudo-clusters: this number is 0.
    """
    rows: dict[str, int] = {}  # the index of each conversation's row
    for name, _, _ in all_pairs or pairs:
        rows.setdefault(name, len(rows))
    tables = np.zeros((len(rows), len(marks), len(marks)))
    for (name, first, second), count in Counter(pairs).items():
        cell = (rows[name], index_of_nearest(first, marks), index_of_nearest(second, marks))
        tables[cell] += count
    highest_first = tables[:, ::-1, ::-1]
    pseudo_size = 0.0
    if pairs and len(marks) == 2:
        pseudo_size = PSEUDO_SIZE_FACTOR * intervals.pseudo_size_of_mean(_conversations_of(pairs))
    return highest_first.reshape(len(rows), -1), [pseudo_size] * len(marks) ** 2


def _agreement_by(marks: Sequence[float]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function that computes the figures of agreement from tables."""
    if len(marks) == 2:
        return agreement_of
    return lambda tables: rating_agreement(tables, marks)


def agreement_of(tables: NDArray[Any]) -> NDArray[Any]:
    """Return macro F1, Cohen's kappa and Gwet's AC1 of many tables of decisions at once.

    A jackknife needs the figures of many tables. The figures equal those of scikit-learn's
    `f1_score(average="macro")` and `cohen_kappa_score`, and of `agreement.gwet_ac1`. Sources: J.
    Cohen, Educational and Psychological Measurement 20:37-46, 1960; K. L. Gwet, British Journal of
    Mathematical and Statistical Psychology 61:29-48, 2008.

    Args:
        tables: counts of shape (..., 4), in the order of `tables_of`.

    Returns:
        Figures of shape (..., 3). A figure is nan if it is not defined, such as macro F1 if nobody
        ever decided `not met`.
    """
    met_by_both, met_by_first, met_by_second, met_by_none = np.moveaxis(tables, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = tables.sum(axis=-1)
        differ = met_by_first + met_by_second
        f1_met = 2 * met_by_both / (2 * met_by_both + differ)
        f1_not_met = 2 * met_by_none / (2 * met_by_none + differ)
        f1 = (f1_met + f1_not_met) / 2
        equal = (met_by_both + met_by_none) / total
        # the shares of `met` among the first and among the second decisions of the pairs
        first_share = (met_by_both + met_by_first) / total
        second_share = (met_by_both + met_by_second) / total
        # the share of equal decisions that Cohen expects by chance
        chance = first_share * second_share + (1 - first_share) * (1 - second_share)
        kappa = (equal - chance) / (1 - chance)
        mean_share = (first_share + second_share) / 2
        gwets_chance = 2 * mean_share * (1 - mean_share)
        ac1 = (equal - gwets_chance) / (1 - gwets_chance)
        return np.stack([f1, kappa, ac1], axis=-1)


def rating_agreement(tables: NDArray[Any], marks: Sequence[float]) -> NDArray[Any]:
    """Return the figures of many tables of marks on a scale at once.

    The figures equal those of `agreement.weighted_kappa` and `agreement.gwet_ac1`, which name the
    sources of the formulas.

    Args:
        tables: counts of shape (..., number of marks squared), in the order of `tables_of`.
        marks: the possible marks, the lowest first.

    Returns:
        Figures of shape (..., 3): nan in the place of macro F1, weighted kappa and AC1.
    """
    count = len(marks)
    square = tables.reshape(*tables.shape[:-1], count, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = square / square.sum(axis=(-1, -2), keepdims=True)
        first_shares = shares.sum(axis=-1)
        second_shares = shares.sum(axis=-2)
        highest_first = marks[::-1]  # the order of the tables
        # the weight of a pair: the squared difference of its two marks
        weights = np.subtract.outer(highest_first, highest_first) ** 2
        disagreement = (shares * weights).sum(axis=(-1, -2))
        # the disagreement if the two marks of a pair were independent
        chance = np.einsum("...i,ij,...j->...", first_shares, weights, second_shares)
        kappa = 1 - disagreement / chance
        mean_shares = (first_shares + second_shares) / 2
        # the share of equal marks that Gwet expects by chance
        gwets_chance = (mean_shares * (1 - mean_shares)).sum(axis=-1) / (count - 1)
        equal = np.trace(shares, axis1=-2, axis2=-1)
        ac1 = (equal - gwets_chance) / (1 - gwets_chance)
        no_f1 = np.full_like(kappa, np.nan)
        return np.stack([no_f1, kappa, ac1], axis=-1)


def by_jackknife(
    tables: NDArray[Any],
    pseudo_sizes: Sequence[float],
    pairs: Sequence[tuple[str, Any, Any]],
    figures_of: Callable[[NDArray[Any]], NDArray[Any]],
    *,
    lowest: Sequence[float],
) -> list[Figure]:
    """Return figures with jackknife intervals, which leave out one conversation at a time.

    The intervals use the t quantile whose degrees of freedom are the effective number of
    conversations less one (B. Efron, C. Stein, Annals of Statistics 9:586-596, 1981). For each kind
    of pair, a pseudo-cluster with only this kind is added, as in `intervals.student_t_interval`.
    Otherwise an interval would be too short if a rare fault, or a judge's rare `not met`, is
    missing from the sample by chance. An interval is widened to include the value, if necessary.
    With fewer than `intervals.MIN_UNITS` effective conversations, the figures have no intervals.

    Args:
        tables: the counts of pairs, of shape (conversations, kinds).
        pseudo_sizes: the number of pairs in the pseudo-cluster of each kind.
        pairs: the pairs that the tables count.
        figures_of: computes figures of shape (..., figures) from tables of shape (..., kinds).
        lowest: the lowest possible value of each figure. The highest value is 1.
    """
    values = _none_for_nan(figures_of(tables.sum(axis=0)))
    effective_conversations = intervals.effective_clusters(_conversations_of(pairs))
    if effective_conversations < intervals.MIN_UNITS:
        return list(map(Figure, values))
    # A row for each conversation, and one for each pseudo-cluster, which has only one kind of pair.
    # Marks on a scale have rows of zeros, which also count as rows: they widen an interval by less
    # than a tenth.
    rows = np.vstack([tables, np.diag(pseudo_sizes)])
    centers = figures_of(rows.sum(axis=0))  # the middles of the intervals
    without_row = figures_of(rows.sum(axis=0) - rows)  # one row of figures without each row
    # the jackknife's variance for n rows: (n - 1) times the variance of the n figures
    stderrs = np.sqrt((len(rows) - 1) * without_row.var(axis=0))
    half_widths = intervals.t_quantile(effective_conversations - 1) * stderrs
    lows = (centers - half_widths).tolist()
    highs = (centers + half_widths).tolist()
    figures = []
    for value, lowest_value, low, high in zip(values, lowest, lows, highs, strict=True):
        if value is None:
            figures.append(Figure(None))
            continue
        ci_low = max(lowest_value, min(value, low))
        ci_high = min(1.0, max(value, high))
        figures.append(Figure(value, ci_low, ci_high))
    return figures


def _none_for_nan(figures: NDArray[Any]) -> list[float | None]:
    """Return the figures, with None in the place of nan."""
    values: list[float | None] = []
    for figure in figures:
        if np.isnan(figure):
            values.append(None)
        else:
            values.append(float(figure))
    return values
