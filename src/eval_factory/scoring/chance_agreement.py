"""Tests if judges agree more than by chance. All functions are pure.

Agreement by chance depends on how often each mark is given: two judges who give a 5 to nearly
every answer agree on nearly every answer. The test therefore uses the marks that each judge gave,
and assigns them to the answers at random.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 20_261_128
PERMUTATIONS = 1_999  # the number of random permutations, without the observed order
ROUNDING = 1e-9  # the tolerance within which two mean differences count as equal

MarksOfJudge = Mapping[Any, Mapping[str, float]]
"""The marks that one judge gave: answer -> criterion -> mark."""


def chance_p(marks: Mapping[str, MarksOfJudge]) -> float | None:
    """Return the one-sided p value of the hypothesis that the judges agree by chance alone.

    Each permutation moves all marks that a judge gave to one answer together. Correlation between
    the criteria of an answer is therefore not counted as agreement. The statistic is the mean
    squared ordinal difference (as in Krippendorff's alpha) over the pairs of marks that two judges
    gave to the same criterion of the same answer. The observed order counts as one of the
    permutations, so that p is never 0.

    Args:
        marks: the marks of each judge.

    Returns:
        None if fewer than two judges gave marks, or if no two judges rated the same criterion of
        the same answer.
    """
    import numpy as np  # imported here because only runs with a jury need numpy

    judges = sorted(judge for judge, marks_of_judge in marks.items() if marks_of_judge)
    if len(judges) < 2:
        return None
    rated_answers: set[Hashable] = set()
    for judge in judges:
        rated_answers.update(marks[judge])
    # A fixed order makes p reproducible. Answers are sorted by text: some may not be comparable.
    answers = sorted(rated_answers, key=repr)
    tables, distinct_marks = _tables({judge: marks[judge] for judge in judges}, answers)
    differences = _ordinal_differences(tables, distinct_marks)
    observed = _mean_difference(tables, differences)
    if observed is None:
        return None
    rng = np.random.default_rng(SEED)
    # The count begins at 1 because the observed order is one of the permutations.
    at_most_observed = 1
    for _ in range(PERMUTATIONS):
        # The first judge's order is fixed: only the order of the judges relative to each other
        # matters.
        permuted = [tables[0]]
        for table in tables[1:]:
            permuted.append(table[rng.permutation(len(answers))])
        difference = _mean_difference(permuted, differences)
        # None if this order puts no two marks on the same criterion of the same answer.
        if difference is not None and difference <= observed + ROUNDING:
            at_most_observed += 1
    return at_most_observed / (PERMUTATIONS + 1)


def _tables(
    marks: Mapping[str, MarksOfJudge], answers: list[Hashable]
) -> tuple[list[NDArray[Any]], list[float]]:
    """Return one table of marks per judge, and the distinct marks of all judges, the lowest first.

    A table has a row for each answer and a column for each criterion. A cell is the index of the
    mark in the list of distinct marks, or -1 if the judge gave no mark.
    """
    import numpy as np

    column_of: dict[str, int] = {}
    distinct: set[float] = set()
    for by_answer in marks.values():
        for by_criterion in by_answer.values():
            distinct.update(by_criterion.values())
            for criterion in by_criterion:
                column_of.setdefault(criterion, len(column_of))
    distinct_marks = sorted(distinct)
    index_of = {mark: index for index, mark in enumerate(distinct_marks)}
    row_of = {answer: row for row, answer in enumerate(answers)}
    tables: list[NDArray[Any]] = []
    for by_answer in marks.values():
        table = np.full((len(answers), len(column_of)), -1, dtype=np.int64)
        for answer, by_criterion in by_answer.items():
            for criterion, mark in by_criterion.items():
                table[row_of[answer], column_of[criterion]] = index_of[mark]
        tables.append(table)
    return tables, distinct_marks


def _ordinal_differences(tables: list[NDArray[Any]], distinct_marks: list[float]) -> NDArray[Any]:
    """Return the squared ordinal difference of each pair of marks (see `agreement.ordinal_alpha`).

    Each difference is divided by the total number of marks before it is squared. The division
    changes no comparison in `chance_p`.
    """
    import numpy as np

    times = np.zeros(len(distinct_marks))
    for table in tables:
        times += np.bincount(table[table >= 0], minlength=len(distinct_marks))
    # The ordinal difference of two marks is the difference of their middle ranks.
    middle_ranks = np.cumsum(times) - times / 2
    # a row and a column for each mark
    rank_differences = middle_ranks[:, None] - middle_ranks[None, :]
    differences: NDArray[Any] = (rank_differences / times.sum()) ** 2
    return differences


def _mean_difference(tables: list[NDArray[Any]], differences: NDArray[Any]) -> float | None:
    """Return the mean squared difference over all pairs of marks that two judges gave to the same
    criterion of the same answer; None if there is no pair.
    """
    total = 0.0
    pairs = 0
    for first, second in combinations(tables, 2):
        rated_by_both = (first >= 0) & (second >= 0)
        total += float(differences[first[rated_by_both], second[rated_by_both]].sum())
        pairs += int(rated_by_both.sum())
    if not pairs:
        return None
    return total / pairs
