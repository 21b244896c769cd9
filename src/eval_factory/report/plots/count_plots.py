"""Plots of counts: how values are distributed, and bars with their numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eval_factory.report.plots.axis import LABEL_HEIGHT, Axis, axis_of
from eval_factory.report.plots.drawing import (
    FONT_SIZE,
    WIDTH,
    Drawing,
    Line,
    Rect,
    Shape,
    Text,
    hatching,
    label,
    text_width,
)
from eval_factory.report.plots.estimate_plots import MARGIN, ROW, Mark

BINS = 20
MOST_DISTINCT = 12
"""So many different values have a bar each."""
PLOT_HEIGHT = 150.0
_LABEL_ROOM = 190.0
_NUMBER_ROOM = 150.0
_ROOM_OF_A_COUNT = 34.0


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    text: str
    """The number, as it is shown."""
    hatched: bool = False
    """Of what a reader has to be told apart from the others, such as failures."""


@dataclass(frozen=True)
class Bin:
    """How many values are from `low` to `high`; only the last one's `high` is one of its values."""

    low: float
    high: float
    count: int

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


def histogram(
    title: str,
    values: Sequence[float],
    *,
    axis_label: str,
    scale: tuple[float, float] | None = None,
    marks: Sequence[Mark] = (),
) -> Drawing:
    """How often each value, or each stretch of the scale, occurs.

    Args:
        values: what is not finite is left out, and counted in the description.
        marks: values to be shown with a dashed line, such as a median.
    """
    finite = [value for value in values if math.isfinite(value)]
    axis = axis_of([*finite, *(mark.value for mark in marks)], MARGIN + 6, WIDTH - MARGIN - 6, scale)
    distinct = len(set(finite)) <= MOST_DISTINCT
    bins = bins_of(finite, axis)
    top = 22.0 + 18.0 * len(marks)
    bottom = top + PLOT_HEIGHT
    shapes = [*axis.shapes(top, bottom, axis_label)]
    shapes += _columns(axis, bins, bottom, distinct=distinct)
    for number, mark in enumerate(marks):
        x, y = axis.x(mark.value), 14.0 + 18.0 * number
        text = f"{mark.label}: {axis.number(mark.value)}"
        half = text_width(text) / 2
        shapes.append(Line(x, y + 4, x, bottom, "second", 1.5, dashed=True))
        shapes.append(Text(min(max(x, axis.left + half), axis.right - half), y, text, "middle"))
    told = [f"{len(finite)} values", *(_told(axis, one) for one in bins if one.count)]
    told += [f"{mark.label}: {axis.number(mark.value)}" for mark in marks]
    if left_out := len(values) - len(finite):
        told.append(f"{left_out} that are no numbers are left out")
    return Drawing(title, "; ".join(told) + ".", bottom + LABEL_HEIGHT, tuple(shapes))


def bars(title: str, rows: Sequence[Bar], *, axis_label: str, scale: tuple[float, float] | None = None) -> Drawing:
    """Bars below each other in the order that is given, from zero, each with its number at its end."""
    axis = axis_of([0.0, *(row.value for row in rows)], _LABEL_ROOM, WIDTH - _NUMBER_ROOM, scale or (0.0, 0.0))
    bottom = 8.0 + ROW * len(rows)
    shapes: list[Shape] = [*axis.shapes(4.0, bottom, axis_label)]
    for number, row in enumerate(rows):
        shapes += _bar(axis, row, 8.0 + ROW * number)
    told = [f"{row.label}: {row.text}" for row in rows]
    return Drawing(title, "; ".join(told) + ".", bottom + LABEL_HEIGHT, tuple(shapes))


def bins_of(values: Sequence[float], axis: Axis) -> list[Bin]:
    """A bin a value where there are few different ones, else equal parts of the axis."""
    counts = Counter(values)
    if len(counts) <= MOST_DISTINCT:
        return [Bin(value, value, count) for value, count in sorted(counts.items())]
    step = (axis.high - axis.low) / BINS
    found = Counter(min(BINS - 1, int((value - axis.low) / step)) for value in values)
    return [Bin(axis.low + step * number, axis.low + step * (number + 1), found[number]) for number in range(BINS)]


def _columns(axis: Axis, bins: Sequence[Bin], bottom: float, *, distinct: bool) -> Iterator[Shape]:
    most = max((one.count for one in bins), default=1)
    width = _width_of_column(axis, bins) if distinct else (axis.right - axis.left) / BINS - 1
    for one in bins:
        if not one.count:
            continue
        height = (PLOT_HEIGHT - 6) * one.count / most
        x = axis.x(one.middle)
        yield Rect(x - width / 2, bottom - height, width, height, "data", _told(axis, one))
        if width >= text_width(str(one.count)) - 4:
            yield Text(x, bottom - height - 4, str(one.count), "middle")


def _width_of_column(axis: Axis, bins: Sequence[Bin]) -> float:
    """Columns do not touch, however close two values are."""
    places = [axis.x(one.middle) for one in bins]
    gaps = [right - left for left, right in pairwise(places)]
    return max(2.0, min(_ROOM_OF_A_COUNT, *(gap - 2 for gap in gaps))) if gaps else _ROOM_OF_A_COUNT


def _bar(axis: Axis, row: Bar, y: float) -> Iterator[Shape]:
    baseline = y + (ROW + FONT_SIZE * 0.7) / 2
    start, end = axis.x(0.0), axis.x(row.value)
    left, width, height = min(start, end), abs(end - start), ROW - 6
    yield label(8.0, baseline, row.label, _LABEL_ROOM - 16)
    yield Rect(left, y + 3, width, height, "grid" if row.hatched else "data", f"{row.label}: {row.text}")
    if row.hatched:
        yield from hatching(left, y + 3, width, height, "ink")
    yield label(max(start, end) + 8, baseline, row.text, WIDTH - max(start, end) - 8)


def _told(axis: Axis, one: Bin) -> str:
    where = f"{one.low:.6g}" if one.low == one.high else f"{axis.number(one.low)} to {axis.number(one.high)}"
    return f"{where}: {one.count}"
