"""Computes the agreement of a judge with physicians, and of the physicians with each other.

An item is one criterion or question about one answer. A mark is a decision about an item (met or
not), or a rating on a scale. A label is a physician's mark. The figures are computed from pairs of
marks of one item: each pair of the judge and a physician, and each ordered pair of two
physicians, as in the published figures of HealthBench (arXiv 2505.08775, section 6). Every interval
treats conversations as clusters. All functions are pure.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_factory.core.enums import TextEnum
from eval_factory.scoring import intervals
from eval_factory.scoring.agreement import index_of_nearest
from eval_factory.tasks.physician_labels import (
    MIN_ITEMS,
    LabelledItem,
    LabelledItems,
    LabelledPairs,
)

MIN_POOLED = 3  # the smallest number of categories for an estimate of their spread
PSEUDO_CLUSTERS = 0.75
"""The number of pairs in a pseudo-cluster, as a multiple of `intervals.pseudo_size_of_mean`.

A pseudo-cluster is an added conversation that was not observed; all its pairs are of one kind.
With 0.5, the 95 % intervals of rare faults cover only 90 %; benchmarks/judge_coverage.py prints the
coverage.
"""
DECISIONS = (False, True)  # the possible marks of an item that is met or not
_Z = statistics.NormalDist().inv_cdf(0.975)  # half the width of a 95 % interval, in standard errors
Pair = tuple[str, float, float]
"""The conversation of an item, and two marks of the item: of the judge and a physician, or of two
physicians.
"""
# the lowest possible value of a figure; 0 for the figures not listed here (the highest is 1)
_LOWEST = {"kappa": -1.0, "ac1": -1.0, "bias": -1.0}
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


class QuestionChange(TextEnum):
    """The change of a question that a judge was asked again."""

    AGAIN = "asked again"
    PADDED = "polite words added"
    PRAISED = "praise of itself added"
    REORDERED = "criteria in another order"


@dataclass(frozen=True)
class Steadiness:
    """The comparison of a judge's decisions about changed questions with its decisions about the
    original questions.
    """

    decisions: int  # the number of decisions about changed questions
    flips: Figure  # the share of decisions that changed
    shift: Figure  # the share of `met` about changed questions less that about original questions


@dataclass(frozen=True)
class Calibration:
    """The calibration of a judge with the labels of physicians."""

    total: AgreementPart
    conversations: int
    physicians: int
    gap: Figure  # the judge's macro F1 (on a scale: kappa) less the physicians'
    categories: Mapping[str, AgreementPart]
    # all possible marks on a scale; empty for decisions
    marks: Sequence[float] = ()
    # The fields below have values only for decisions, not for marks on a scale.
    always: bool | None = None  # the judge's only decision about all items; None if it gave both
    # thirds of the items by the length of the answer in characters, if all lengths are known
    lengths: Mapping[str, AgreementPart] = field(default_factory=dict)
    languages: Mapping[str, AgreementPart] = field(default_factory=dict)
    majority: AgreementPart | None = None
    """The agreement with the majority of an item's physicians, without the items that have a tie.
    None if all items have a tie.
    """
    by_physician: Mapping[str, AgreementPart] = field(default_factory=dict)
    """The agreement with each physician, the physician with most items first."""
    # the pairs of decisions by judge and physician, from which a score is corrected
    pairs: Sequence[LabelledPairs] = ()
    # groups of items with equal decisions, which show the physicians' disagreement
    item_groups: Sequence[LabelledItems] = ()
    # the 5 % and the 95 % quantile of the answers' lengths, in characters
    usual_lengths: tuple[float, float] | None = None
    says_met: float = 0.0  # the share of items about which the judge decides `met`


def calibration_of(
    items: Sequence[LabelledItem], marks: Sequence[float] = DECISIONS
) -> Calibration:
    """Return all figures of a judge.

    Args:
        items: at least one labelled item with the judge's mark. Some items must have the labels of
            two physicians.
        marks: the possible marks, the lowest first. With more than two marks, kappa has squared
            weights, and the bias is a share of the scale.
    """
    is_scale = len(marks) > 2
    physicians: set[str] = set()
    for item in items:
        physicians.update(item.physicians)
    with_category = [(item.category, item) for item in items]
    calibration = Calibration(
        total=part_of(items, marks, fewest=1),
        conversations=len(set(map(conversation_of, items))),
        physicians=len(physicians),
        gap=_gap(items, marks),
        categories=with_pooled_figures(_parts_by(with_category, marks)),
    )
    if is_scale:
        return replace(calibration, marks=tuple(marks))
    with_language = [(item.language, item) for item in items]
    return replace(
        calibration,
        always=_only_decision(items),
        lengths={name: part_of(third) for name, third in _thirds(items).items()},
        languages=with_pooled_figures(_parts_by(with_language)),
        majority=_agreement_with_majority(items),
        by_physician=_agreement_with_each_physician(items),
        pairs=_labelled_pairs(items),
        item_groups=_labelled_items(items),
        usual_lengths=_usual_lengths(items),
        says_met=statistics.fmean(_judged(items)),
    )


def conversation_of(item: LabelledItem) -> str:
    """Return the conversation of an item."""
    return item.conversation


def _judged(items: Sequence[LabelledItem]) -> list[float]:
    """Return the judge's mark of each item."""
    return [item.judged for item in items]


def _lengths_of(items: Sequence[LabelledItem]) -> list[int]:
    """Return the known lengths of the answers, in characters."""
    return [item.length for item in items if item.length is not None]


def _conversations_of(pairs: Sequence[tuple[str, Any, Any]]) -> list[str]:
    """Return the conversation of each pair."""
    return [conversation for conversation, _, _ in pairs]


def _only_decision(items: Sequence[LabelledItem]) -> bool | None:
    """Return the judge's only decision about all items; None if the judge gave both decisions."""
    decisions = set(_judged(items))
    if len(decisions) > 1:
        return None
    return bool(decisions.pop())


def _usual_lengths(items: Sequence[LabelledItem]) -> tuple[float, float] | None:
    """Return the lengths, in characters, between which nine of ten answers are.

    None if fewer than two lengths are known.
    """
    lengths = _lengths_of(items)
    if len(lengths) < 2:
        return None
    limits = statistics.quantiles(lengths, n=20, method="inclusive")
    return limits[0], limits[-1]  # the 5 % and the 95 % quantile


def _parts_by(
    named_items: Iterable[tuple[str | None, LabelledItem]], marks: Sequence[float] = DECISIONS
) -> dict[str, AgreementPart]:
    """Return the agreement in the items with each name, sorted by name.

    Args:
        named_items: pairs of a name, such as a category, and an item. Items whose name is None are
            left out.
        marks: the possible marks, the lowest first.
    """
    by_name: dict[str, list[LabelledItem]] = defaultdict(list)
    for name, item in named_items:
        if name is not None:
            by_name[name].append(item)
    return {name: part_of(by_name[name], marks) for name in sorted(by_name)}


def _agreement_with_majority(items: Sequence[LabelledItem]) -> AgreementPart | None:
    """Return the agreement with the majority of physicians; None if all items have a tie."""
    items_without_tie = []
    for item in items:
        share_met = statistics.fmean(item.labels)
        if share_met != 0.5:
            # The majority's decision replaces the labels. It belongs to no physician by name.
            decision = share_met > 0.5
            items_without_tie.append(replace(item, labels=(decision,), physicians=("",)))
    if not items_without_tie:
        return None
    return part_of(items_without_tie, fewest=1)


def _agreement_with_each_physician(items: Sequence[LabelledItem]) -> dict[str, AgreementPart]:
    """Return the agreement with each physician, the physician with most items first."""
    named_items: list[tuple[str | None, LabelledItem]] = []
    for item in items:
        for name, label in zip(item.physicians, item.labels, strict=True):
            named_items.append((name, replace(item, labels=(label,), physicians=(name,))))
    parts = _parts_by(named_items)
    names = sorted(parts, key=lambda name: parts[name].items, reverse=True)
    return {name: parts[name] for name in names}


def _labelled_pairs(items: Sequence[LabelledItem]) -> list[LabelledPairs]:
    """Count the pairs of decisions in each conversation and category.

    A number replaces the name of a conversation, in the order of the items.
    """
    # (number of the conversation, category) -> counts of (judge's decision, physician's decision)
    counts: dict[tuple[int, str | None], Counter[tuple[float, float]]] = defaultdict(Counter)
    numbers: dict[str, int] = {}
    for item in items:
        number = numbers.setdefault(item.conversation, len(numbers))
        for label in item.labels:
            counts[number, item.category][item.judged, label] += 1
    pairs = []
    for (number, category), count_of in counts.items():
        # A decision equals 1 (met) or 0.
        counts_of_kinds = (count_of[1, 1], count_of[1, 0], count_of[0, 1], count_of[0, 0])
        pairs.append(LabelledPairs(number, category, counts_of_kinds))
    return pairs


def _labelled_items(items: Sequence[LabelledItem]) -> list[LabelledItems]:
    """Count the items with equal decisions in each conversation and category.

    Conversations have the same numbers as in `_labelled_pairs`.
    """
    numbers: dict[str, int] = {}
    # the keys: number of the conversation, category, the judge's decision, number of labels, number
    # of labels `met`
    counts = Counter[tuple[int, str | None, bool, int, int]]()
    for item in items:
        number = numbers.setdefault(item.conversation, len(numbers))
        met = sum(map(bool, item.labels))
        counts[number, item.category, bool(item.judged), len(item.labels), met] += 1
    return [LabelledItems(*kind, items=count) for kind, count in counts.items()]


def steadiness_of(items: Sequence[LabelledItem], changed: Sequence[tuple[int, bool]]) -> Steadiness:
    """Return the steadiness of a judge's decisions.

    Args:
        items: the items with the judge's decisions about the original questions.
        changed: at least one pair: the index of an item, and the judge's decision about its changed
            question.
    """
    conversations = [items[index].conversation for index, _ in changed]
    # the differences between decisions: 1 if `not met` became `met`, -1 if `met` became `not met`
    differences = [float(met) - float(items[index].judged) for index, met in changed]
    return Steadiness(
        decisions=len(changed),
        flips=_mean_of(list(map(abs, differences)), conversations),
        shift=_mean_of(differences, conversations, lowest=-1.0),
    )


def _mean_of(values: Sequence[float], clusters: Sequence[str], lowest: float = 0.0) -> Figure:
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
    judged = _judged(items)
    mean_labels = [statistics.fmean(item.labels) for item in items]
    differences = []
    for mark, mean_label in zip(judged, mean_labels, strict=True):
        differences.append((mark - mean_label) / width)
    mean_difference = _mean_of(differences, list(map(conversation_of, items)), lowest=-1.0)
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
    return _mean_of(is_equal, conversations)


def _gap(items: Sequence[LabelledItem], marks: Sequence[float]) -> Figure:
    """Return the judge's agreement with physicians less the physicians' agreement with each other.

    The jackknife leaves out both tables of a conversation together, because the two agreements
    depend on each other.
    """
    pairs, among_physicians = pairs_of(items)
    judge_tables, judge_sizes = tables_of(pairs, marks)
    physician_tables, physician_sizes = tables_of(among_physicians, marks, all_pairs=pairs)
    agreement = _agreement_by(marks)
    kinds = len(marks) ** 2
    figure = 1  # the index of kappa among the figures, for marks on a scale
    if len(marks) == 2:
        figure = 0  # the index of macro F1, for decisions

    def gap_in(tables: NDArray[Any]) -> NDArray[Any]:
        by_judge = agreement(tables[..., :kinds])
        by_physicians = agreement(tables[..., kinds:])
        gaps: NDArray[Any] = by_judge - by_physicians
        return gaps[..., [figure]]  # The list keeps the axis of figures, with one figure.

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
        pseudo_size = PSEUDO_CLUSTERS * intervals.pseudo_size_of_mean(_conversations_of(pairs))
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
    # a row for each conversation, and one for each pseudo-cluster, which has only one kind of pair
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


def partial_pooling(values: Sequence[float], errors: Sequence[float]) -> list[tuple[float, float]]:
    """Return the posterior mean and standard deviation of each of three groups or more.

    The model is the normal hierarchical model with a flat prior of the standard deviation between
    groups. The posterior is summed over a grid of this standard deviation (A. Gelman et al.,
    Bayesian Data Analysis, 3rd edition, 2013, section 5.4, equations 5.17 to 5.21; the prior: A.
    Gelman, Bayesian Analysis 1:515-534, 2006). The mean of a group with a large standard error
    moves far towards the means of the other groups.

    Args:
        values: the observed value of each group.
        errors: the standard errors of the values, each above 0.
    """
    value = np.array(values)
    variance = np.array(errors) ** 2
    # One row for each standard deviation of the grid; in the arrays below, one column per group.
    # The grid ends at ten times the observed spread, where the posterior is almost 0.
    largest_deviation = 10 * max(float(np.std(values)), *errors)
    grid = np.linspace(0.0, largest_deviation, 2_001)[:, None]
    variance_between = grid**2
    # the mean that the groups have in common, and its variance, for each row of the grid
    precision = 1 / (variance + variance_between)
    common_variance = 1 / precision.sum(axis=1, keepdims=True)
    common_mean = (value * precision).sum(axis=1, keepdims=True) * common_variance
    # the posterior of the standard deviation between groups: a weight for each row
    terms = np.log(precision) - (value - common_mean) ** 2 * precision
    log_posterior = (np.log(common_variance) + terms.sum(axis=1, keepdims=True)) / 2
    # Subtracting the maximum protects `exp` from an overflow, and cancels in the quotient.
    relative = np.exp(log_posterior - log_posterior.max())
    posterior = relative / relative.sum()
    # the posterior mean of each group and its variance, for each row: a group's own value has the
    # weight `own_share`, and the common mean has the rest
    own_share = variance_between * precision
    mean = own_share * value + (1 - own_share) * common_mean
    variance_of_mean = own_share * variance + (1 - own_share) ** 2 * common_variance
    # the mean and the standard deviation over the grid
    pooled_mean = (posterior * mean).sum(axis=0)
    variance_on_grid = variance_of_mean + (mean - pooled_mean) ** 2
    deviation = np.sqrt((posterior * variance_on_grid).sum(axis=0))
    return list(zip(pooled_mean.tolist(), deviation.tolist(), strict=True))


def with_pooled_figures(parts: Mapping[str, AgreementPart]) -> dict[str, AgreementPart]:
    """Return the parts with partially pooled figures.

    A figure is pooled over the parts in which it has an interval, if there are at least
    `MIN_POOLED` such parts.
    """
    pooled_parts = dict(parts)
    figure_names = [field_of_figures.name for field_of_figures in fields(Figures)]
    for rater, figure_name in product(("judge", "physicians"), figure_names):
        with_interval = {}
        for name, part in parts.items():
            figure = _figure_of(part, rater, figure_name)
            if figure.ci_low is None or figure.ci_high is None:
                continue
            if figure.ci_high > figure.ci_low:  # pooling needs a standard error above 0
                with_interval[name] = figure
        if len(with_interval) < MIN_POOLED:
            continue
        lowest = _LOWEST.get(figure_name, 0.0)
        for name, pooled_figure in _pooled_figures(with_interval, lowest):
            part = pooled_parts[name]
            changed_figure: dict[str, Any] = {figure_name: pooled_figure}
            figures = replace(getattr(part, rater), **changed_figure)
            pooled_parts[name] = replace(part, **{rater: figures})
    return pooled_parts


def _figure_of(part: AgreementPart, rater: str, figure_name: str) -> Figure:
    """Return a figure of a part; an undefined figure if the part has no figures of the rater.

    Args:
        part: the part.
        rater: `judge` or `physicians`, a field of the part.
        figure_name: the name of a field of `Figures`.
    """
    figures = getattr(part, rater)
    if figures is None:
        return Figure(None)
    figure: Figure = getattr(figures, figure_name)
    return figure


def _pooled_figures(figures: Mapping[str, Figure], lowest: float) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the pooled figure of each part.

    Args:
        figures: dict from the name of a part to its figure, which has an interval.
        lowest: the lowest possible value of the figure.
    """
    values: list[Any] = []
    errors = []
    for figure in figures.values():
        values.append(figure.value)
        errors.append((figure.ci_high - figure.ci_low) / 2 / _Z)  # type: ignore[operator]
    for name, (value, deviation) in zip(figures, partial_pooling(values, errors), strict=True):
        low = max(lowest, value - _Z * deviation)
        high = min(1.0, value + _Z * deviation)
        yield name, Figure(value, low, high)


def _thirds(items: Sequence[LabelledItem]) -> dict[str, list[LabelledItem]]:
    """Return the items in three parts by the length of the answer.

    The keys name the lengths, such as `up to 800`. The dict is empty if a length is not known, or
    if there are fewer than three items. A part without items is left out.
    """
    lengths = _lengths_of(items)
    if len(lengths) < len(items) or len(items) < 3:
        return {}
    low, high = map(int, statistics.quantiles(lengths, n=3, method="inclusive"))
    names = [f"up to {low:,}", f"{low + 1:,} to {high:,}", f"{high + 1:,} and more"]
    thirds: list[list[LabelledItem]] = [[], [], []]
    for item, length in zip(items, lengths, strict=True):
        number = bisect_left((low, high), length)  # 0 up to `low`, 1 up to `high`, 2 above
        thirds[number].append(item)
    return {name: third for name, third in zip(names, thirds, strict=True) if third}
