"""Computes the calibration of a judge with the labels of physicians.

A calibration has the figures of agreement in all items and in parts of the items: categories,
languages, lengths of the answers, and physicians. It also counts the pairs of decisions from which
a score is corrected. The docstring of agreement_figures.py explains items, marks and labels. All
functions are pure.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eval_factory.core.enums import TextEnum
from eval_factory.scoring.agreement_figures import (
    DECISIONS,
    AgreementPart,
    Figure,
    conversation_of,
    gap_of,
    marks_of_judge,
    mean_of,
    part_of,
)
from eval_factory.scoring.pooled_figures import with_pooled_figures
from eval_factory.tasks.physician_labels import LabelledItem, LabelledItems, LabelledPairs


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
        gap=gap_of(items, marks),
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
        says_met=statistics.fmean(marks_of_judge(items)),
    )


def _lengths_of(items: Sequence[LabelledItem]) -> list[int]:
    """Return the known lengths of the answers, in characters."""
    return [item.length for item in items if item.length is not None]


def _only_decision(items: Sequence[LabelledItem]) -> bool | None:
    """Return the judge's only decision about all items; None if the judge gave both decisions."""
    decisions = set(marks_of_judge(items))
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
        flips=mean_of(list(map(abs, differences)), conversations),
        shift=mean_of(differences, conversations, lowest=-1.0),
    )


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
