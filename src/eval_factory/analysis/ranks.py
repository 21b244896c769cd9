"""More than two models: tests corrected for their number, and which ranks a model may have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P values corrected for their number (S. Holm, Scand J Statist 6:65-70, 1979), in the same order.

    Where one is not known it stays so, and counts among them all the same.
    """
    order = sorted(range(len(p_values)), key=lambda number: _or_one(p_values[number]))
    corrected: list[float | None] = [None] * len(p_values)
    greatest = 0.0
    for place, number in enumerate(order):
        greatest = max(greatest, min(1.0, _or_one(p_values[number]) * (len(p_values) - place)))
        corrected[number] = None if p_values[number] is None else greatest
    return corrected


def _or_one(p_value: float | None) -> float:
    return 1.0 if p_value is None else p_value


def rank_intervals(count: int, shown: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The best and the worst rank that each model may have, 1 being the best; all together right in 95 % of samples.

    A model's best rank is one more than the models that are shown to be better, its worst leaves behind those that are
    shown to be worse (M. Mogstad, J. P. Romano, A. M. Shaikh, D. Wilhelm, Review of Economic Studies 91:476-518, 2024),
    here by paired tests with Holm's correction.

    Args:
        count: of models.
        shown: (better, worse) of the pairs whose corrected test shows a difference.
    """
    above, below = [0] * count, [0] * count
    for better, worse in shown:
        above[worse] += 1
        below[better] += 1
    return [(1 + above[number], count - below[number]) for number in range(count)]
