"""How far a judge agrees with physicians, beside how far they agree with each other: in decisions,
or marks on a scale.

Pairs are (the judge, a physician) of each item, and each ordered pair of an item's physicians, as
in the published figures of HealthBench (arXiv 2505.08775, section 6). Every interval is one by
clusters of conversations. Pure.
"""

from __future__ import annotations

import hashlib
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, combinations, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_factory.core.nouns import Word
from eval_factory.scoring import intervals
from eval_factory.scoring.agreement import nearest_rating
from eval_factory.tasks.message_files import (
    FEWEST_ITEMS,
    LabelledItem,
    LabelledItems,
    LabelledPairs,
)

FEWEST_POOLED = 3  # categories, to know how far they are apart
PSEUDO_CLUSTERS = 0.75
"""Of each of the four pairs of decisions, in clusters of `mean_end_weight`. With 0.5, intervals of
rare faults cover 90 %; benchmarks/judge_coverage.py prints what they cover.
"""
DECISIONS = (False, True)  # the marks that there are, where an item is met or not
_Z = statistics.NormalDist().inv_cdf(0.975)
Pair = tuple[str, float, float]
"""Conversation, what the judge (or one physician) says, what the physician (or another one)
says.
"""
_LOWEST = {"kappa": -1.0, "ac1": -1.0, "bias": -1.0}  # 0 of the other figures; the highest is 1


@dataclass(frozen=True)
class Figure:
    """A number with its 95 % interval; None: not defined, or too little to say."""

    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None

    @property
    def holds_0(self) -> bool:
        return self.ci_low is None or self.ci_high is None or self.ci_low <= 0 <= self.ci_high


@dataclass(frozen=True)
class Figures:
    """F1 is the mean of `met` and `not met`; sensitivity the share called met of what a physician
    called met, specificity the same of not met. Bias: the judge's share of met less the mean of the
    items' mean labels.
    """

    f1_macro: Figure
    kappa: Figure
    ac1: Figure
    sensitivity: Figure
    specificity: Figure
    bias: Figure


@dataclass(frozen=True)
class Part:
    """All items, a category or a third of the lengths."""

    items: int
    labels: int
    judge: Figures | None
    physicians: Figures | None


class Change(Word):
    """How a question was changed that a judge was asked again."""

    AGAIN = "asked again"
    PADDED = "polite words added"
    PRAISED = "praise of itself added"
    REORDERED = "criteria in another order"


@dataclass(frozen=True)
class Steadiness:
    """Of the decisions about changed questions, beside those about the same ones as they were."""

    decisions: int
    flips: Figure  # the share of those that are another one
    shift: Figure  # how much more often the judge says `met`, in shares


@dataclass(frozen=True)
class Calibration:
    total: Part
    conversations: int
    physicians: int
    gap: Figure  # the judge's macro F1 (of marks on a scale kappa) less the physicians'
    categories: Mapping[str, Part]
    # of marks on a scale all that there are; empty, and the rest filled, of decisions
    marks: Sequence[float] = ()
    always: bool | None = None  # what the judge said of every item; None where it said both
    # thirds by the answer's characters, where they are known
    lengths: Mapping[str, Part] = field(default_factory=dict)
    languages: Mapping[str, Part] = field(default_factory=dict)
    majority: Part | None = None
    """With what most physicians of an item say; items of a tie are left out. None where all are
    ties.
    """
    by_physician: Mapping[str, Part] = field(default_factory=dict)
    """With each physician, the one with most labels first."""
    # decisions of the judge and of physicians, as a score's correction needs them
    pairs: Sequence[LabelledPairs] = ()
    # the same by item, from which the mistakes of physicians are told apart
    kinds: Sequence[LabelledItems] = ()
    # between which nine of ten answers are, in characters
    usual_lengths: tuple[float, float] | None = None
    says_met: float = 0.0  # the judge, as a share of the items


def calibration_of(
    items: Sequence[LabelledItem], marks: Sequence[float] = DECISIONS
) -> Calibration:
    """All figures of at least one item; some have the labels of two physicians. `marks`: that there
    are, the least first; of more than two, kappa has squared weights, and bias is a share of the
    scale.
    """
    found = Calibration(
        total=part_of(items, marks, fewest=1),
        conversations=len({item.conversation for item in items}),
        physicians=len(set(chain.from_iterable(item.physicians for item in items))),
        gap=_gap(items, marks),
        categories=pooled(_parts_by(((item.category, item) for item in items), marks)),
        marks=tuple(marks) if len(marks) > 2 else (),
    )
    if found.marks:
        return found
    lengths = [item.length for item in items if item.length is not None]
    ends = statistics.quantiles(lengths, n=20, method="inclusive") if len(lengths) > 1 else None
    said = {item.judged for item in items}
    return replace(
        found,
        always=bool(said.pop()) if len(said) == 1 else None,
        lengths={name: part_of(third) for name, third in _thirds(items).items()},
        languages=pooled(_parts_by((item.language, item) for item in items)),
        majority=_with_majority(items),
        by_physician=_with_each(items),
        pairs=_labelled_pairs(items),
        kinds=_kinds(items),
        usual_lengths=None if ends is None else (ends[0], ends[-1]),
        says_met=statistics.fmean(item.judged for item in items),
    )


def _parts_by(
    named: Iterable[tuple[str | None, LabelledItem]], marks: Sequence[float] = DECISIONS
) -> dict[str, Part]:
    found: dict[str, list[LabelledItem]] = defaultdict(list)
    for name, item in named:
        if name is not None:
            found[name].append(item)
    return {name: part_of(found[name], marks) for name in sorted(found)}


def _with_majority(items: Sequence[LabelledItem]) -> Part | None:
    shares = ((item, statistics.fmean(item.labels)) for item in items)
    decided = [
        replace(item, labels=(share > 0.5,), physicians=("",))
        for item, share in shares
        if share != 0.5
    ]
    return part_of(decided, fewest=1) if decided else None


def _with_each(items: Sequence[LabelledItem]) -> dict[str, Part]:
    named: list[tuple[str | None, LabelledItem]] = []
    for item in items:
        for name, label in zip(item.physicians, item.labels, strict=True):
            named.append((name, replace(item, labels=(label,), physicians=(name,))))
    found = _parts_by(named)
    return dict(sorted(found.items(), key=lambda part: -part[1].items))


def _labelled_pairs(items: Sequence[LabelledItem]) -> list[LabelledPairs]:
    counts: dict[tuple[str, str | None], Counter[tuple[float, float]]] = defaultdict(Counter)
    for item in items:
        counts[item.conversation, item.category].update(
            (item.judged, label) for label in item.labels
        )
    kinds = ((True, True), (True, False), (False, True), (False, False))
    numbers = {
        name: number for number, name in enumerate(dict.fromkeys(name for name, _ in counts))
    }
    return [
        LabelledPairs(numbers[name], category, tuple(found[kind] for kind in kinds))  # type: ignore[arg-type]
        for (name, category), found in counts.items()
    ]


def _kinds(items: Sequence[LabelledItem]) -> list[LabelledItems]:
    """Conversations have the numbers that they have in `_labelled_pairs`."""
    numbers: dict[str, int] = {}
    counts = Counter[tuple[int, str | None, bool, int, int]]()
    for item in items:
        number = numbers.setdefault(item.conversation, len(numbers))
        met = sum(bool(label) for label in item.labels)
        counts[number, item.category, bool(item.judged), len(item.labels), met] += 1
    return [LabelledItems(*kind, items=count) for kind, count in counts.items()]


def steadiness_of(items: Sequence[LabelledItem], changed: Sequence[tuple[int, bool]]) -> Steadiness:
    """`changed`: number of the item, and the decision about it when something was changed; at
    least one.
    """
    clusters = [items[number].conversation for number, _ in changed]
    moved = [float(met) - float(items[number].judged) for number, met in changed]
    return Steadiness(
        len(changed),
        _mean_of(list(map(abs, moved)), clusters),
        _mean_of(moved, clusters, lowest=-1.0),
    )


def _mean_of(values: Sequence[float], clusters: Sequence[str], lowest: float = 0.0) -> Figure:
    """`lowest`: that a value can be; the highest is 1. One value alone has no interval."""
    interval = intervals.interval_of_mean(values, scale=(lowest, 1.0), clusters=clusters)
    return Figure(statistics.fmean(values), interval.low, interval.high)


def part_of(
    items: Sequence[LabelledItem], marks: Sequence[float] = DECISIONS, fewest: int = FEWEST_ITEMS
) -> Part:
    labels = sum(len(item.labels) for item in items)
    width = marks[-1] - marks[0]
    if len(items) < fewest:
        return Part(len(items), labels, None, None)
    means = [statistics.fmean(item.labels) for item in items]
    apart = [(item.judged - mean) / width for item, mean in zip(items, means, strict=True)]
    # the difference of the means, not the mean of the differences: its last digits are the
    # published ones
    bias = (statistics.fmean(item.judged for item in items) - statistics.fmean(means)) / width
    interval = _mean_of(apart, [item.conversation for item in items], lowest=-1.0)
    pairs, among = pairs_of(items)
    judge = _figures(pairs, marks, replace(interval, value=bias))
    return Part(
        len(items), labels, judge, _figures(among, marks, Figure(0.0, 0.0, 0.0)) if among else None
    )


def pairs_of(items: Sequence[LabelledItem]) -> tuple[list[Pair], list[Pair]]:
    """The judge with each physician, and each ordered pair of physicians."""
    with_judge: list[Pair] = []
    among: list[Pair] = []
    for item in items:
        with_judge += [(item.conversation, item.judged, label) for label in item.labels]
        among += [(item.conversation, *pair) for pair in permutations(item.labels, 2)]
    return with_judge, among


def _figures(pairs: Sequence[Pair], marks: Sequence[float], bias: Figure) -> Figures:
    tables, weights = tables_of(pairs, marks)
    f1, kappa, ac1 = by_jackknife(
        tables, weights, pairs, _agreement_by(marks), lowest=(0.0, -1.0, -1.0)
    )
    met, not_met = (
        _right(pairs, label) if len(marks) == 2 else Figure(None) for label in (True, False)
    )
    return Figures(f1, kappa, ac1, met, not_met, bias)


def _right(pairs: Sequence[Pair], label: bool) -> Figure:
    """Of what is labelled so the share that was said, with Wilson's interval on the effective
    number of pairs.
    """
    found = [float(said == label) for _, said, other in pairs if other == label]
    return (
        _mean_of(found, [name for name, _, other in pairs if other == label])
        if found
        else Figure(None)
    )


def _gap(items: Sequence[LabelledItem], marks: Sequence[float]) -> Figure:
    """Both tables of a conversation are left out together: the two agreements depend on each
    other.
    """
    pairs, among = pairs_of(items)
    (one, weights) = tables_of(pairs, marks)
    (other, more) = tables_of(among, marks, pairs)
    # macro F1, or kappa
    agreement = _agreement_by(marks)
    kinds = len(marks) ** 2
    at = 0 if len(marks) == 2 else 1

    def difference(tables: NDArray[Any]) -> NDArray[Any]:
        apart: NDArray[Any] = agreement(tables[..., :kinds]) - agreement(tables[..., kinds:])
        return apart[..., [at]]

    return by_jackknife(np.hstack([one, other]), weights + more, pairs, difference, lowest=(-1.0,))[
        0
    ]


def tables_of(
    pairs: Sequence[Pair], marks: Sequence[float] = DECISIONS, named: Sequence[Pair] = ()
) -> tuple[NDArray[Any], list[float]]:
    """Of each conversation its counts of each kind of pair, shape (conversations, marks squared),
    the greatest mark first: both met, only the first, only the second, none. And of each kind the
        pairs of its pseudo-cluster; marks on
    a scale have none. `named`: pairs with all conversations, in their order.
    """
    counts = Counter(pairs)
    rows = {
        name: row for row, name in enumerate(dict.fromkeys(name for name, _, _ in named or pairs))
    }
    place: dict[float, int] = {}
    for _, first, second in counts:
        place[first] = nearest_rating(first, marks)
        place[second] = nearest_rating(second, marks)
    tables = np.zeros((len(rows), len(marks), len(marks)))
    for (name, one, other), times in counts.items():
        tables[rows[name], place[one], place[other]] += times
    is_decided = pairs and len(marks) == 2
    weight = (
        PSEUDO_CLUSTERS * intervals.mean_end_weight([name for name, _, _ in pairs])
        if is_decided
        else 0.0
    )
    return tables[:, ::-1, ::-1].reshape(len(rows), -1), [weight] * len(marks) ** 2


def _agreement_by(marks: Sequence[float]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return agreement_of if len(marks) == 2 else lambda tables: rating_agreement(tables, marks)


def agreement_of(tables: NDArray[Any]) -> NDArray[Any]:
    """Macro F1, Cohen's kappa and Gwet's AC1 of many tables at once, as a jackknife needs them.

    The same as scikit-learn's `f1_score(average="macro")` and `cohen_kappa_score`, and
    `agreement.gwet_ac1`, of the pairs. J. Cohen, Educational and Psychological Measurement
    20:37-46, 1960; K. L. Gwet, British Journal of Mathematical and Statistical Psychology 61:29-48,
    2008.

    (..., 4), as `tables_of` counts -> (..., 3); nan where one is not defined, as macro F1 where
    nobody ever said `not met`.
    """
    met, first, second, not_met = np.moveaxis(tables, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = tables.sum(axis=-1)
        apart = first + second
        f1 = (2 * met / (2 * met + apart) + 2 * not_met / (2 * not_met + apart)) / 2
        observed = (met + not_met) / total
        one = (met + first) / total
        other = (met + second) / total
        by_chance = one * other + (1 - one) * (1 - other)
        mean = (one + other) / 2
        guessed = 2 * mean * (1 - mean)
        return np.stack(
            [f1, (observed - by_chance) / (1 - by_chance), (observed - guessed) / (1 - guessed)],
            axis=-1,
        )


def rating_agreement(tables: NDArray[Any], marks: Sequence[float]) -> NDArray[Any]:
    """nan (for macro F1), weighted kappa and AC1 of tables of shape (..., marks squared): the same
    as `agreement.weighted_kappa` and `gwet_ac1`.
    """
    count = len(marks)
    square = tables.reshape(*tables.shape[:-1], count, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = square / square.sum(axis=(-1, -2), keepdims=True)
        one = shares.sum(axis=-1)
        other = shares.sum(axis=-2)
        weights = np.subtract.outer(marks[::-1], marks[::-1]) ** 2
        kappa = 1 - (shares * weights).sum(axis=(-1, -2)) / np.einsum(
            "...i,ij,...j->...", one, weights, other
        )
        mean = (one + other) / 2
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
    """The jackknife of clusters (B. Efron, C. Stein, Annals of Statistics 9:586-596, 1981), with t
    of their effective number less one.

    For each kind of pair a pseudo-cluster of that kind alone is added, as `intervals.student_t`
    does: else a sample in which a rare fault, or a judge's rare `not met`, is missing by luck knows
    nothing of it. The interval is that of the table with them, and reaches as far as the value.

    Args:
        tables: shape (clusters, kinds).
        weights: of each kind the pairs of its pseudo-cluster.
        pairs: of which the tables are made.
        function: from tables of shape (..., kinds) to figures of shape (..., figures).
        lowest: that each figure can be; the highest is 1.
    """
    values = [None if value != value else float(value) for value in function(tables.sum(axis=0))]
    units = intervals.effective_clusters([name for name, _, _ in pairs])
    if units < intervals.FEWEST:
        return list(map(Figure, values))
    rows = np.vstack([tables, np.diag(weights)])
    center = function(rows.sum(axis=0))
    left_out = function(rows.sum(axis=0) - rows)
    half = intervals.t_quantile(units - 1) * np.sqrt((len(rows) - 1) * left_out.var(axis=0))
    found = zip(values, lowest, (center - half).tolist(), (center + half).tolist(), strict=True)
    return [
        Figure(None)
        if one is None
        else Figure(one, max(least, min(one, low)), min(1.0, max(one, high)))
        for one, least, low, high in found
    ]


def partial_pooling(values: Sequence[float], errors: Sequence[float]) -> list[tuple[float, float]]:
    """Of each of three groups or more the mean and the standard deviation that it has in the light
    of all groups.

    The normal hierarchical model with a flat prior of the standard deviation between groups, summed
    over a grid of it (A. Gelman et al., Bayesian Data Analysis, 3rd edition, 2013, section 5.4,
    equations 5.17 to 5.21; the prior: A. Gelman, Bayesian Analysis 1:515-534, 2006). A group with a
    large standard error moves far towards the others. `errors`: the standard errors of the values,
    each above 0.
    """
    value = np.array(values)
    variance = np.array(errors) ** 2
    between = np.linspace(0.0, 10 * max(float(np.std(values)), *errors), 2_001)[:, None] ** 2
    precision = 1 / (variance + between)
    of_common = 1 / precision.sum(axis=1, keepdims=True)
    common = (value * precision).sum(axis=1, keepdims=True) * of_common
    terms = np.log(precision) - (value - common) ** 2 * precision
    log = (np.log(of_common) + terms.sum(axis=1, keepdims=True)) / 2
    share = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    own = between * precision  # how much of a group's mean is its own
    mean = own * value + (1 - own) * common
    spread = own * variance + (1 - own) ** 2 * of_common
    middle = (share * mean).sum(axis=0)
    deviation = np.sqrt((share * (spread + (mean - middle) ** 2)).sum(axis=0))
    return list(zip(middle.tolist(), deviation.tolist(), strict=True))


def pooled(parts: Mapping[str, Part]) -> dict[str, Part]:
    """Parts with each figure pooled partially over those that have it with an interval, where
    these are three.
    """
    found = dict(parts)
    names = [field.name for field in fields(Figures)]
    for who, name in product(("judge", "physicians"), names):
        figures: dict[str, Any] = {
            key: getattr(getattr(part, who), name, Figure(None)) for key, part in parts.items()
        }
        own = {
            key: one
            for key, one in figures.items()
            if one.ci_low is not None and one.ci_high > one.ci_low
        }
        if len(own) < FEWEST_POOLED:
            continue
        errors = [(figure.ci_high - figure.ci_low) / 2 / _Z for figure in own.values()]
        made = partial_pooling([figure.value for figure in own.values()], errors)
        for key, (value, deviation) in zip(own, made, strict=True):
            low = max(_LOWEST.get(name, 0.0), value - _Z * deviation)
            high = min(1.0, value + _Z * deviation)
            changed: dict[str, Any] = {name: Figure(value, low, high)}
            found[key] = replace(found[key], **{who: replace(getattr(found[key], who), **changed)})
    return found


def _thirds(items: Sequence[LabelledItem]) -> dict[str, list[LabelledItem]]:
    lengths = [item.length for item in items if item.length is not None]
    if len(lengths) < len(items) or len(items) < 3:
        return {}
    low, high = (int(cut) for cut in statistics.quantiles(lengths, n=3, method="inclusive"))
    names = [f"up to {low:,}", f"{low + 1:,} to {high:,}", f"{high + 1:,} and more"]
    found: dict[str, list[LabelledItem]] = {name: [] for name in names}
    for item, length in zip(items, lengths, strict=True):
        found[names[bisect_left((low, high), length)]].append(item)
    return {name: some for name, some in found.items() if some}


FOLDS = 5
MAX_JUDGES = 12
MAX_SIZE = 7
"""Parts of the conversations; judges to choose from, which are 1,500 juries; judges in a jury."""


@dataclass(frozen=True)
class BestJury:
    """Of one size, which agrees best with physicians: it says what most of its judges say; an
    odd size has no ties.
    """

    judges: tuple[str, ...]
    f1_macro: float  # with the physicians, on the labels by which it was chosen
    # of the best of each choice, on the conversations that had no part in it
    cross_validated: Figure
    cost_per_1000: float | None  # criteria, in dollars; None where a judge's is not known


def best_juries(
    items: Sequence[LabelledItem],
    decisions: Mapping[str, Sequence[bool]],
    costs: Mapping[str, float | None],
) -> list[BestJury]:
    """The best of each odd size, by two judges' decisions or more about each item; `costs`: dollars
    per 1,000 criteria. Who chooses the best of many on the same labels sees luck, too: the figure
    that counts is cross-validated.
    """
    names = list(decisions)[:MAX_JUDGES]
    rows = np.array(list(decisions.values())[:MAX_JUDGES], bool)
    conversations = list(dict.fromkeys(item.conversation for item in items))
    folds = np.array(
        [int(hashlib.sha256(name.encode()).hexdigest(), 16) % FOLDS for name in conversations]
    )
    found = []
    pairs = pairs_of(items)[0]
    weights = tables_of(pairs)[1]
    for size in range(1, min(len(names), MAX_SIZE) + 1, 2):
        juries = list(combinations(range(len(names)), size))
        tables = np.array(
            [_tables_by(items, rows[list(jury)].sum(axis=0) * 2 > size) for jury in juries]
        )
        best = int(np.argmax(_f1(tables.sum(axis=1))))
        unseen = np.zeros_like(tables[0])
        for fold in range(FOLDS):
            chosen = int(np.argmax(_f1(tables[:, folds != fold].sum(axis=1))))
            unseen[folds == fold] = tables[chosen, folds == fold]
        members = tuple(names[at] for at in juries[best])
        known = [cost for name in members if (cost := costs.get(name)) is not None]
        cost = sum(known) if len(known) == size else None
        own = float(_f1(tables[best].sum(axis=0)))
        f1, *_ = by_jackknife(unseen, weights, pairs, agreement_of, lowest=(0.0, -1.0, -1.0))
        found.append(BestJury(members, own, f1, cost))
    return found


def _tables_by(items: Sequence[LabelledItem], said: NDArray[Any]) -> NDArray[Any]:
    by_jury = [replace(item, judged=bool(met)) for item, met in zip(items, said, strict=True)]
    return tables_of(pairs_of(by_jury)[0])[0]


def _f1(tables: NDArray[Any]) -> NDArray[Any]:
    """0 where it is not defined: nothing is worse."""
    return np.nan_to_num(agreement_of(tables)[..., 0])
