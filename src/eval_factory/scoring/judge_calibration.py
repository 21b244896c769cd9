"""Computes the agreement of a judge with physicians, and of the physicians with each other.

Judge and physicians give decisions (met or not) or marks on a scale. An item is one criterion or
question about one answer. A label is a physician's mark. The figures are computed from pairs of
marks of one item: each pair of the judge and a physician, and each ordered pair of two
physicians, as in the published figures of HealthBench (arXiv 2505.08775, section 6). Every interval
treats conversations as clusters. All functions are pure.
"""

from __future__ import annotations

import hashlib
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, combinations, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_factory.core.enums import Word
from eval_factory.scoring import intervals
from eval_factory.scoring.agreement import index_of_nearest
from eval_factory.tasks.message_files import (
    MIN_ITEMS,
    LabelledItem,
    LabelledItems,
    LabelledPairs,
)

MIN_POOLED = 3  # the smallest number of categories for an estimate of their spread
PSEUDO_CLUSTERS = 0.75
"""The weight of the pseudo-cluster for each of the four kinds of pairs of decisions, as a multiple
of `pseudo_size_of_mean`. With 0.5, the intervals of rare faults cover only 90 %;
benchmarks/judge_coverage.py prints the coverage.
"""
DECISIONS = (False, True)  # the possible marks of an item that is met or not
_Z = statistics.NormalDist().inv_cdf(0.975)  # half the width of a 95 % interval, in standard errors
Pair = tuple[str, float, float]
"""A conversation, and two marks in it: of the judge and a physician, or of two physicians."""
# the lowest possible value of a figure; 0 for the figures not listed here (the highest is 1)
_LOWEST = {"kappa": -1.0, "ac1": -1.0, "bias": -1.0}


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


class Change(Word):
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
    shift: Figure  # the share of `met` after the change less the share before


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
    """The agreement with the majority of an item's physicians. Items with a tie are left out. None
    if all items have a tie.
    """
    by_physician: Mapping[str, AgreementPart] = field(default_factory=dict)
    """The agreement with each physician, the physician with most items first."""
    # the pairs of decisions by judge and physician, from which a score is corrected
    pairs: Sequence[LabelledPairs] = ()
    # groups of items with equal decisions, which show the physicians' disagreement
    kinds: Sequence[LabelledItems] = ()
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
    calibration = Calibration(
        total=part_of(items, marks, fewest=1),
        conversations=len(set(map(_conversation_of, items))),
        physicians=len(set(chain.from_iterable(item.physicians for item in items))),
        gap=_gap(items, marks),
        categories=pooled(_parts_by(((item.category, item) for item in items), marks)),
    )
    if is_scale:
        return replace(calibration, marks=tuple(marks))
    return replace(
        calibration,
        always=_only_decision(items),
        lengths={name: part_of(third) for name, third in _thirds(items).items()},
        languages=pooled(_parts_by((item.language, item) for item in items)),
        majority=_with_majority(items),
        by_physician=_with_each_physician(items),
        pairs=_labelled_pairs(items),
        kinds=_labelled_items(items),
        usual_lengths=_usual_lengths(items),
        says_met=statistics.fmean(_judged(items)),
    )


def _conversation_of(item: LabelledItem) -> str:
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
    named: Iterable[tuple[str | None, LabelledItem]], marks: Sequence[float] = DECISIONS
) -> dict[str, AgreementPart]:
    """Return the agreement in the items with each name, sorted by name.

    Args:
        named: a name and an item, for each item; items whose name is None are left out.
        marks: the possible marks, the lowest first.
    """
    by_name: dict[str, list[LabelledItem]] = defaultdict(list)
    for name, item in named:
        if name is not None:
            by_name[name].append(item)
    return {name: part_of(by_name[name], marks) for name in sorted(by_name)}


def _with_majority(items: Sequence[LabelledItem]) -> AgreementPart | None:
    """Return the agreement with the majority of physicians; None if all items have a tie."""
    decided = []
    for item in items:
        share = statistics.fmean(item.labels)
        if share != 0.5:
            # The majority is one label, and no physician's name belongs to it.
            decided.append(replace(item, labels=(share > 0.5,), physicians=("",)))
    if not decided:
        return None
    return part_of(decided, fewest=1)


def _with_each_physician(items: Sequence[LabelledItem]) -> dict[str, AgreementPart]:
    """Return the agreement with each physician, the physician with most items first."""
    named: list[tuple[str | None, LabelledItem]] = []
    for item in items:
        for name, label in zip(item.physicians, item.labels, strict=True):
            named.append((name, replace(item, labels=(label,), physicians=(name,))))
    parts = _parts_by(named)
    return dict(sorted(parts.items(), key=lambda part: -part[1].items))


def _labelled_pairs(items: Sequence[LabelledItem]) -> list[LabelledPairs]:
    """Count the pairs of decisions in each conversation and category.

    A conversation is named by a number, in the order of the items.
    """
    counts: dict[tuple[int, str | None], Counter[tuple[float, float]]] = defaultdict(Counter)
    numbers: dict[str, int] = {}
    for item in items:
        number = numbers.setdefault(item.conversation, len(numbers))
        for label in item.labels:
            counts[number, item.category][item.judged, label] += 1
    pairs = []
    for (number, category), times in counts.items():
        # The keys are (judge, physician): True equals 1, and False equals 0.
        counts_of_kinds = (times[1, 1], times[1, 0], times[0, 1], times[0, 0])
        pairs.append(LabelledPairs(number, category, counts_of_kinds))
    return pairs


def _labelled_items(items: Sequence[LabelledItem]) -> list[LabelledItems]:
    """Count the items with equal decisions in each conversation and category.

    Each result stands for a group of such items. Conversations have the same numbers as in
    `_labelled_pairs`.
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
    clusters = [items[number].conversation for number, _ in changed]
    changes = [float(met) - float(items[number].judged) for number, met in changed]
    return Steadiness(
        len(changed),
        _mean_of(list(map(abs, changes)), clusters),
        _mean_of(changes, clusters, lowest=-1.0),
    )


def _mean_of(values: Sequence[float], clusters: Sequence[str], lowest: float = 0.0) -> Figure:
    """Return the mean with its interval. A single value has no interval.

    Args:
        values: the values, at most 1.
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
        return AgreementPart(len(items), labels, None, None)
    pairs, among_physicians = pairs_of(items)
    judge = _figures(pairs, marks, _bias(items, marks))
    physicians = None
    if among_physicians:
        # Each pair of physicians counts in both orders, so their bias is exactly 0.
        physicians = _figures(among_physicians, marks, Figure(0.0, 0.0, 0.0))
    return AgreementPart(len(items), labels, judge, physicians)


def _bias(items: Sequence[LabelledItem], marks: Sequence[float]) -> Figure:
    """Return the judge's mean mark less the mean of the items' mean labels, as a share of the
    scale.
    """
    width = marks[-1] - marks[0]
    judged = _judged(items)
    means = [statistics.fmean(item.labels) for item in items]
    differences = []
    for mark, mean in zip(judged, means, strict=True):
        differences.append((mark - mean) / width)
    interval = _mean_of(differences, list(map(_conversation_of, items)), lowest=-1.0)
    # The published bias is the difference of the means. The mean of the differences may have other
    # last digits.
    bias = (statistics.fmean(judged) - statistics.fmean(means)) / width
    return replace(interval, value=bias)


def pairs_of(items: Sequence[LabelledItem]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of the judge and each physician, and the ordered pairs of physicians."""
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
    tables, weights = tables_of(pairs, marks)
    f1, kappa, ac1 = by_jackknife(
        tables, weights, pairs, _agreement_by(marks), lowest=(0.0, -1.0, -1.0)
    )
    sensitivity = Figure(None)
    specificity = Figure(None)
    if len(marks) == 2:
        sensitivity = _recall(pairs, True)
        specificity = _recall(pairs, False)
    return Figures(f1, kappa, ac1, sensitivity, specificity, bias)


def _recall(pairs: Sequence[Pair], label: bool) -> Figure:
    """Return the share of pairs with equal decisions, among the pairs with this label.

    The label is the second mark of a pair. The interval is Wilson's, for the effective number of
    pairs. The figure is undefined if no pair has the label.
    """
    is_equal = []
    conversations = []
    for conversation, judged, physician_label in pairs:
        if physician_label == label:
            is_equal.append(float(judged == label))
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
    judge_tables, judge_weights = tables_of(pairs, marks)
    physician_tables, physician_weights = tables_of(among_physicians, marks, pairs)
    agreement = _agreement_by(marks)
    # The first `kinds` columns are the judge's table, and the others are the physicians' table.
    kinds = len(marks) ** 2
    figure = 1  # the index of kappa among the figures, for marks on a scale
    if len(marks) == 2:
        figure = 0  # the index of macro F1, for decisions

    def difference(tables: NDArray[Any]) -> NDArray[Any]:
        gaps: NDArray[Any] = agreement(tables[..., :kinds]) - agreement(tables[..., kinds:])
        return gaps[..., [figure]]

    (gap,) = by_jackknife(
        np.hstack([judge_tables, physician_tables]),
        judge_weights + physician_weights,
        pairs,
        difference,
        lowest=(-1.0,),
    )
    return gap


def tables_of(
    pairs: Sequence[Pair], marks: Sequence[float] = DECISIONS, all_pairs: Sequence[Pair] = ()
) -> tuple[NDArray[Any], list[float]]:
    """Count the pairs of each kind (a combination of two marks) by conversation.

    Args:
        pairs: the pairs to count.
        marks: the possible marks, the lowest first.
        all_pairs: pairs that name all conversations, in their order; by default `pairs`.

    Returns:
        The counts, and the weights of the pseudo-clusters. The counts have the shape
        (conversations, number of marks squared), and the highest mark comes first: with two marks,
        both say met, only the first does, only the second does, neither does. The weight of a
        pseudo-cluster is its number of pairs, one for each kind; it is 0 for marks on a scale.
    """
    rows: dict[str, int] = {}
    for name, _, _ in all_pairs or pairs:
        rows.setdefault(name, len(rows))
    tables = np.zeros((len(rows), len(marks), len(marks)))
    for (name, first, second), times in Counter(pairs).items():
        cell = (rows[name], index_of_nearest(first, marks), index_of_nearest(second, marks))
        tables[cell] += times
    weight = 0.0
    if pairs and len(marks) == 2:
        weight = PSEUDO_CLUSTERS * intervals.pseudo_size_of_mean(_conversations_of(pairs))
    return tables[:, ::-1, ::-1].reshape(len(rows), -1), [weight] * len(marks) ** 2


def _agreement_by(marks: Sequence[float]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function that computes the figures of agreement from tables."""
    if len(marks) == 2:
        return agreement_of
    return lambda tables: rating_agreement(tables, marks)


def agreement_of(tables: NDArray[Any]) -> NDArray[Any]:
    """Return macro F1, Cohen's kappa and Gwet's AC1 of many tables of decisions at once.

    A jackknife needs the figures of many tables. The values are those of scikit-learn's
    `f1_score(average="macro")` and `cohen_kappa_score`, and of `agreement.gwet_ac1`, for the pairs.
    Sources: J. Cohen, Educational and Psychological Measurement 20:37-46, 1960; K. L. Gwet, British
    Journal of Mathematical and Statistical Psychology 61:29-48, 2008.

    Args:
        tables: counts of shape (..., 4), in the order of `tables_of`.

    Returns:
        Figures of shape (..., 3). A figure is nan if it is not defined, such as macro F1 if nobody
        ever decided `not met`.
    """
    met, first, second, not_met = np.moveaxis(tables, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = tables.sum(axis=-1)
        differ = first + second
        f1 = (2 * met / (2 * met + differ) + 2 * not_met / (2 * not_met + differ)) / 2
        observed = (met + not_met) / total
        share = (met + first) / total
        second_share = (met + second) / total
        by_chance = share * second_share + (1 - share) * (1 - second_share)
        mean = (share + second_share) / 2
        guessed = 2 * mean * (1 - mean)
        return np.stack(
            [f1, (observed - by_chance) / (1 - by_chance), (observed - guessed) / (1 - guessed)],
            axis=-1,
        )


def rating_agreement(tables: NDArray[Any], marks: Sequence[float]) -> NDArray[Any]:
    """Return the figures of many tables of marks on a scale at once.

    The values are those of `agreement.weighted_kappa` and `agreement.gwet_ac1`.

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
        weights = np.subtract.outer(marks[::-1], marks[::-1]) ** 2
        kappa = 1 - (shares * weights).sum(axis=(-1, -2)) / np.einsum(
            "...i,ij,...j->...", first_shares, weights, second_shares
        )
        mean = (first_shares + second_shares) / 2
        guessed = (mean * (1 - mean)).sum(axis=-1) / (count - 1)
        observed = np.trace(shares, axis1=-2, axis2=-1)
        return np.stack(
            [np.full_like(kappa, np.nan), kappa, (observed - guessed) / (1 - guessed)], axis=-1
        )


def by_jackknife(
    tables: NDArray[Any],
    weights: Sequence[float],
    pairs: Sequence[tuple[str, Any, Any]],
    function: Callable[[NDArray[Any]], NDArray[Any]],
    *,
    lowest: Sequence[float],
) -> list[Figure]:
    """Return figures with jackknife intervals, which leave out one cluster at a time.

    The intervals use the t quantile with the effective number of clusters less one as its degrees
    of freedom (B. Efron, C. Stein, Annals of Statistics 9:586-596, 1981). For each kind of pair, a
    pseudo-cluster with only this kind is added, as in `intervals.student_t`: without it, an
    interval would be too short if a rare fault, or a judge's rare `not met`, is missing from the
    sample by chance. An interval is widened to include the value, if necessary. With fewer than
    `intervals.MIN_UNITS` effective clusters, the figures have no intervals.

    Args:
        tables: the counts of pairs, of shape (clusters, kinds).
        weights: the number of pairs in the pseudo-cluster of each kind.
        pairs: the pairs that the tables count.
        function: computes figures of shape (..., figures) from tables of shape (..., kinds).
        lowest: the lowest possible value of each figure. The highest value is 1.
    """
    values = _none_for_nan(function(tables.sum(axis=0)))
    units = intervals.effective_clusters(_conversations_of(pairs))
    if units < intervals.MIN_UNITS:
        return list(map(Figure, values))
    rows = np.vstack([tables, np.diag(weights)])
    center = function(rows.sum(axis=0))
    without_one = function(rows.sum(axis=0) - rows)  # the figures without each row
    stderr = np.sqrt((len(rows) - 1) * without_one.var(axis=0))
    half_width = intervals.t_quantile(units - 1) * stderr
    lows = (center - half_width).tolist()
    highs = (center + half_width).tolist()
    figures = []
    for value, floor, low, high in zip(values, lowest, lows, highs, strict=True):
        if value is None:
            figures.append(Figure(None))
        else:
            figures.append(Figure(value, max(floor, min(value, low)), min(1.0, max(value, high))))
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
    moves far towards the other groups.

    Args:
        values: the observed value of each group.
        errors: the standard errors of the values, each above 0.
    """
    value = np.array(values)
    variance = np.array(errors) ** 2
    between = np.linspace(0.0, 10 * max(float(np.std(values)), *errors), 2_001)[:, None] ** 2
    precision = 1 / (variance + between)
    common_variance = 1 / precision.sum(axis=1, keepdims=True)
    common = (value * precision).sum(axis=1, keepdims=True) * common_variance
    terms = np.log(precision) - (value - common) ** 2 * precision
    log_posterior = (np.log(common_variance) + terms.sum(axis=1, keepdims=True)) / 2
    # Subtracting the maximum keeps `exp` from an overflow, and cancels in the quotient.
    relative = np.exp(log_posterior - log_posterior.max())
    posterior = relative / relative.sum()
    own_share = between * precision  # the weight of a group's own value in its mean
    mean = own_share * value + (1 - own_share) * common
    spread = own_share * variance + (1 - own_share) ** 2 * common_variance
    pooled_mean = (posterior * mean).sum(axis=0)
    deviation = np.sqrt((posterior * (spread + (mean - pooled_mean) ** 2)).sum(axis=0))
    return list(zip(pooled_mean.tolist(), deviation.tolist(), strict=True))


def pooled(parts: Mapping[str, AgreementPart]) -> dict[str, AgreementPart]:
    """Return the parts with partially pooled figures.

    A figure is pooled over the parts in which it has an interval, if there are at least
    `MIN_POOLED` such parts.
    """
    pooled_parts = dict(parts)
    for agreement, figure in product(("judge", "physicians"), fields(Figures)):
        with_interval = {}
        for name, part in parts.items():
            # If the part has no such agreement (None), the default is an undefined figure.
            part_figure: Figure = getattr(getattr(part, agreement), figure.name, Figure(None))
            if part_figure.ci_low is None or part_figure.ci_high is None:
                continue
            if part_figure.ci_high > part_figure.ci_low:  # pooling needs a standard error above 0
                with_interval[name] = part_figure
        if len(with_interval) < MIN_POOLED:
            continue
        for name, pooled_figure in _pooled_figures(with_interval, _LOWEST.get(figure.name, 0.0)):
            figures = getattr(pooled_parts[name], agreement)
            changed: dict[str, Any] = {figure.name: pooled_figure}
            pooled_parts[name] = replace(
                pooled_parts[name], **{agreement: replace(figures, **changed)}
            )
    return pooled_parts


def _pooled_figures(figures: Mapping[str, Figure], lowest: float) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the pooled figure of each part.

    Args:
        figures: name of the part -> the figure, which has an interval.
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
    """Return the items in three parts by the length of the answer: name of the lengths -> items.

    The mapping is empty if some length is not known, or if there are fewer than three items. A part
    without items is left out.
    """
    lengths = _lengths_of(items)
    if len(lengths) < len(items) or len(items) < 3:
        return {}
    low, high = map(int, statistics.quantiles(lengths, n=3, method="inclusive"))
    names = [f"up to {low:,}", f"{low + 1:,} to {high:,}", f"{high + 1:,} and more"]
    thirds: list[list[LabelledItem]] = [[], [], []]
    for item, length in zip(items, lengths, strict=True):
        thirds[bisect_left((low, high), length)].append(item)
    return {name: third for name, third in zip(names, thirds, strict=True) if third}


FOLDS = 5  # the number of parts of the conversations for cross-validation
MAX_JUDGES = 12  # the largest number of judges to choose from, which make about 1,500 juries
MAX_SIZE = 7  # the largest number of judges in a jury


@dataclass(frozen=True)
class BestJury:
    """The jury of one size that agrees best with physicians.

    A jury decides by majority. Its size is odd, so that there are no ties.
    """

    judges: tuple[str, ...]
    f1_macro: float  # the agreement with physicians, on the labels by which the jury was chosen
    # macro F1 on conversations that were not used for the choice of the jury
    cross_validated: Figure
    cost_per_1000: float | None
    """Dollars per 1,000 criteria; None if the cost of a judge is not known."""


def best_juries(
    items: Sequence[LabelledItem],
    decisions: Mapping[str, Sequence[bool]],
    costs: Mapping[str, float | None],
) -> list[BestJury]:
    """Return the best jury of each odd size, up to `MAX_SIZE` judges.

    The best of many juries is partly best by chance on the labels by which this jury was chosen.
    The figure to trust is therefore the cross-validated figure. Only the first `MAX_JUDGES` judges
    are considered.

    Args:
        items: the labelled items.
        decisions: judge -> its decision about each item, for at least two judges.
        costs: judge -> dollars per 1,000 criteria; None if not known.
    """
    names = list(decisions)[:MAX_JUDGES]
    rows = np.array(list(decisions.values())[:MAX_JUDGES], bool)
    folds = _folds_of(items)
    juries_of_sizes = []
    pairs = pairs_of(items)[0]  # only their conversations are used, not the decisions in `items`
    weights = tables_of(pairs)[1]
    for size in range(1, min(len(names), MAX_SIZE) + 1, 2):
        juries = list(combinations(range(len(names)), size))
        tables = np.array([_tables_by(items, _majority(rows[list(jury)])) for jury in juries])
        best = int(np.argmax(_f1(tables.sum(axis=1))))
        unseen = _tables_on_unseen(tables, folds)
        f1, *_ = by_jackknife(unseen, weights, pairs, agreement_of, lowest=(0.0, -1.0, -1.0))
        f1_on_labels = float(_f1(tables[best].sum(axis=0)))
        members = tuple(names[number] for number in juries[best])
        juries_of_sizes.append(BestJury(members, f1_on_labels, f1, _cost_of(members, costs)))
    return juries_of_sizes


def _folds_of(items: Sequence[LabelledItem]) -> NDArray[Any]:
    """Return the number of the fold of each conversation, in the order of the items.

    A hash of the conversation's name chooses the fold, so the choice is the same in each run.
    """
    folds = []
    for name in dict.fromkeys(map(_conversation_of, items)):
        folds.append(int(hashlib.sha256(name.encode()).hexdigest(), 16) % FOLDS)
    return np.array(folds)


def _majority(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the majority's decision about each item. `rows` has a row of decisions per judge."""
    return np.asarray(rows.sum(axis=0) * 2 > len(rows))


def _tables_on_unseen(tables: NDArray[Any], folds: NDArray[Any]) -> NDArray[Any]:
    """Return the table of each conversation by the jury that is best on the other folds.

    Args:
        tables: the tables of all juries, of shape (juries, conversations, kinds).
        folds: the number of the fold of each conversation.
    """
    unseen: NDArray[Any] = np.zeros_like(tables[0])
    for fold in range(FOLDS):
        chosen = int(np.argmax(_f1(tables[:, folds != fold].sum(axis=1))))
        unseen[folds == fold] = tables[chosen, folds == fold]
    return unseen


def _cost_of(members: Sequence[str], costs: Mapping[str, float | None]) -> float | None:
    """Return the cost of a jury in dollars per 1,000 criteria; None if a cost is not known."""
    total = 0.0
    for name in members:
        cost = costs.get(name)
        if cost is None:
            return None
        total += cost
    return total


def _tables_by(items: Sequence[LabelledItem], decisions: NDArray[Any]) -> NDArray[Any]:
    """Return the table of each conversation, with the jury's decisions."""
    judged_by_jury = []
    for item, met in zip(items, decisions, strict=True):
        judged_by_jury.append(replace(item, judged=bool(met)))
    return tables_of(pairs_of(judged_by_jury)[0])[0]


def _f1(tables: NDArray[Any]) -> NDArray[Any]:
    """Return macro F1, with 0 (the worst value) if it is not defined."""
    return np.nan_to_num(agreement_of(tables)[..., 0])
