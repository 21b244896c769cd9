"""Finds the jury of each size that agrees best with physicians, from the decisions of its judges.

The judges have already decided about all labelled items. A table counts the pairs of a jury's and a
physician's decision about the items of one conversation. Its four kinds of pairs are: both say met,
only the jury, only the physician, neither. All functions are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_factory.scoring.agreement_figures import (
    LOWEST_OF_AGREEMENT,
    Figure,
    agreement_of,
    by_jackknife,
    conversation_of,
    pairs_of,
    tables_of,
)
from eval_factory.tasks.physician_labels import LabelledItem

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
    # macro F1 on conversations that were not used to choose the jury
    cross_validated: Figure
    cost_per_1000: float | None
    """Dollars for 1,000 requests to each judge; None if the cost of a judge is not known."""


def best_juries(
    items: Sequence[LabelledItem],
    decisions: Mapping[str, Sequence[bool]],
    costs: Mapping[str, float | None],
) -> list[BestJury]:
    """Return the best jury of each odd size, up to `MAX_SIZE` judges.

    The best of many juries is partly best by chance, on the labels by which it was chosen. The
    cross-validated figure is therefore the figure to trust. Only the first `MAX_JUDGES` judges are
    considered.

    Args:
        items: the labelled items.
        decisions: dict from a judge to its decision about each item, for at least two judges.
        costs: dict from a judge to dollars per 1,000 requests; None if not known.
    """
    names = list(decisions)[:MAX_JUDGES]
    rows = np.array([decisions[name] for name in names], bool)  # one row of decisions per judge
    folds = _folds_of(items)
    best_of_sizes = []
    pairs, _ = pairs_of(items)  # only their conversations are used, not the decisions in `items`
    _, pseudo_sizes = tables_of(pairs)
    for size in range(1, min(len(names), MAX_SIZE) + 1, 2):
        juries = list(combinations(range(len(names)), size))  # each with the numbers of its judges
        tables_of_juries = []
        for jury in juries:
            decisions_of_jury = _majority(rows[list(jury)])
            tables_of_juries.append(_tables_by(items, decisions_of_jury))
        tables = np.array(tables_of_juries)  # of shape (juries, conversations, kinds)
        best = int(np.argmax(_f1(tables.sum(axis=1))))  # the index of the best jury
        f1_on_labels = float(_f1(tables[best].sum(axis=0)))
        unseen = _tables_on_unseen(tables, folds)
        # macro F1 is the first of the three figures of `agreement_of`
        f1_on_unseen, *_ = by_jackknife(
            unseen, pseudo_sizes, pairs, agreement_of, lowest=LOWEST_OF_AGREEMENT
        )
        members = tuple(names[number] for number in juries[best])
        cost = _cost_of(members, costs)
        best_of_sizes.append(BestJury(members, f1_on_labels, f1_on_unseen, cost))
    return best_of_sizes


def _folds_of(items: Sequence[LabelledItem]) -> NDArray[Any]:
    """Return the number of the fold of each conversation, in the order of the items.

    A hash of the conversation's name chooses the fold, so the choice is the same in each run.
    """
    folds = []
    for name in dict.fromkeys(map(conversation_of, items)):
        name_hash = int(hashlib.sha256(name.encode()).hexdigest(), 16)
        folds.append(name_hash % FOLDS)
    return np.array(folds)


def _majority(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the majority's decision about each item. `rows` has a row of decisions per judge."""
    return np.asarray(rows.sum(axis=0) * 2 > len(rows))


def _tables_on_unseen(tables: NDArray[Any], folds: NDArray[Any]) -> NDArray[Any]:
    """Return the table of each conversation, by the jury that is best on the other folds.

    Args:
        tables: the tables of all juries, of shape (juries, conversations, kinds).
        folds: the number of the fold of each conversation.
    """
    unseen: NDArray[Any] = np.zeros_like(tables[0])
    for fold in range(FOLDS):
        is_in_fold = folds == fold
        # the index of the jury that is best on the other folds
        best = int(np.argmax(_f1(tables[:, ~is_in_fold].sum(axis=1))))
        unseen[is_in_fold] = tables[best, is_in_fold]
    return unseen


def _cost_of(members: Sequence[str], costs: Mapping[str, float | None]) -> float | None:
    """Return the dollars for 1,000 requests to each judge; None if a cost is not known."""
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
    pairs, _ = pairs_of(judged_by_jury)
    tables, _ = tables_of(pairs)
    return tables


def _f1(tables: NDArray[Any]) -> NDArray[Any]:
    """Return macro F1, with 0 (the worst value) if it is not defined."""
    return np.nan_to_num(agreement_of(tables)[..., 0])
