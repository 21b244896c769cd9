"""Which jury of some judges agrees best with physicians. Pure.

A jury says what most of its judges say; sizes are odd, so there are no ties. Who chooses the best of many on the same
labels sees luck too: the figure that counts is cross-validated, on conversations that had no part in the choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from eval_factory.scoring.judge_calibration import Figure, agreement_of, f1_of_tables, pairs_of, tables_of
from eval_factory.tasks.physician_labels import LabelledItem

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDS, MOST_JUDGES, LARGEST = 5, 12, 7
"""Parts of the conversations; judges to choose from, which are 1,500 juries; judges in a jury."""


@dataclass(frozen=True)
class BestJury:
    """Of one size."""

    judges: tuple[str, ...]
    f1_macro: float  # with the physicians, on the labels by which it was chosen
    cross_validated: Figure  # of the best of each choice, on the conversations that had no part in it
    cost_per_1000: float | None  # criteria, in dollars; None where a judge's is not known


def best_juries(
    items: Sequence[LabelledItem], decisions: Mapping[str, Sequence[bool]], costs: Mapping[str, float | None]
) -> list[BestJury]:
    """The best of each odd size.

    Args:
        decisions: of two judges or more, about each item.
        costs: judge -> dollars per 1,000 criteria.
    """
    import numpy as np

    names, rows = list(decisions)[:MOST_JUDGES], np.array(list(decisions.values())[:MOST_JUDGES], bool)
    conversations = list(dict.fromkeys(item.conversation for item in items))
    folds = np.array([int(hashlib.sha256(name.encode()).hexdigest(), 16) % FOLDS for name in conversations])
    found = []
    for size in range(1, min(len(names), LARGEST) + 1, 2):
        juries = list(combinations(range(len(names)), size))
        tables = np.array([_tables(items, rows[list(jury)].sum(axis=0) * 2 > size) for jury in juries])
        best = int(np.argmax(_f1(tables.sum(axis=1))))
        unseen = np.zeros_like(tables[0])
        for fold in range(FOLDS):
            chosen = int(np.argmax(_f1(tables[:, folds != fold].sum(axis=1))))
            unseen[folds == fold] = tables[chosen, folds == fold]
        members = tuple(names[at] for at in juries[best])
        known = [cost for name in members if (cost := costs.get(name)) is not None]
        cost = sum(known) if len(known) == size else None
        own = float(_f1(tables[best].sum(axis=0)))
        found.append(BestJury(members, own, f1_of_tables(unseen, pairs_of(items)[0]), cost))
    return found


def _tables(items: Sequence[LabelledItem], said: NDArray[Any]) -> NDArray[Any]:
    by_jury = [replace(item, judged=bool(met)) for item, met in zip(items, said, strict=True)]
    return tables_of(pairs_of(by_jury)[0])[0]


def _f1(tables: NDArray[Any]) -> NDArray[Any]:
    """0 where it is not defined: nothing is worse."""
    import numpy as np

    return np.nan_to_num(agreement_of(tables)[..., 0])
