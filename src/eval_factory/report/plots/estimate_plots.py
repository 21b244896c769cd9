"""Plots of estimates with their intervals: one score, groups of instances, differences between two results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eval_factory.report.plots.axis import LABEL_HEIGHT, Axis, axis_of
from eval_factory.report.plots.drawing import (
    FONT_SIZE,
    WIDTH,
    Circle,
    Drawing,
    Line,
    Rect,
    Shape,
    Text,
    diamond,
    fitted,
    hatching,
    label,
    text_width,
    triangle,
)

MOST_ROWS = 30
"""Groups that a dot plot shows: the largest ones."""
ROW = 24.0
MARGIN = 24.0
_LEFT = 8.0
_LABEL_ROOM = 180.0
_COUNT_ROOM = 60.0
_NUMBERS_ROOM = 190.0
_GAP = 12.0
"""Between a shape and its words."""
_MIDDLE = 0.35 * FONT_SIZE
"""From the middle of a row to the baseline of its text."""


@dataclass(frozen=True)
class Estimate:
    """A value with its interval, as far as there is one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    count: int | None = None
    """Instances."""
    stands_out: bool = False
    """Whether it is shown to differ: another shape."""

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.low is None or self.high is None or not math.isfinite(self.low + self.high):
            return None
        return self.low, self.high

    def told(self, axis: Axis) -> str:
        """`0.712 (0.630 to 0.790)`."""
        value = axis.number(self.value)
        if self.interval is None:
            return value
        return f"{value} ({axis.number(self.interval[0])} to {axis.number(self.interval[1])})"


@dataclass(frozen=True)
class Mark:
    """A value to compare with, such as chance."""

    label: str
    value: float


def interval_plot(
    title: str,
    score: Estimate,
    *,
    scale: tuple[float, float] | None,
    marks: Sequence[Mark] = (),
    bounds: tuple[float, float] | None = None,
) -> Drawing:
    """One score with its 95 % interval on its scale.

    Args:
        title: what it is the score of; `score.label` is the axis' name.
        scale: the least and the greatest value that there can be.
        marks: what trivial answers score, chance: a triangle in a row of its own each.
        bounds: the score if all that is missing were wrong, and if all were right: a hatched band.
    """
    values = [score.value, *(score.interval or ()), *(mark.value for mark in marks), *(bounds or ())]
    axis = axis_of(values, MARGIN, WIDTH - MARGIN, scale)
    middle, bottom = 44.0, 66.0 + ROW * (len(marks) + (bounds is not None))
    shapes = [*axis.shapes(middle - 16, bottom, score.label)]
    told = [f"{score.label}: {score.told(axis)}{', a 95 % interval' if score.interval else ''}"]
    row, labels = 74.0, list[Shape]()
    for mark, on_the_right in _in_rows(axis, marks):
        x, said = axis.x(mark.value), f"{mark.label}: {axis.number(mark.value)}"
        shapes.append(Line(x, middle - 16, x, row, "second", 1.5, dashed=True))
        shapes.append(triangle(x, row - 6, 6.0, "second", said))
        labels.append(_beside(axis, x, row, said, on_the_right=on_the_right))
        told.append(said)
        row += ROW
    shapes += labels  # over every line
    if bounds is not None:
        said = f"if all that is missing were wrong, right: {axis.number(bounds[0])}, {axis.number(bounds[1])}"
        shapes += _band(axis, bounds, middle - 11, 22.0, said)
        shapes += _swatch(axis.left, row)
        shapes.append(_beside(axis, axis.left + 20, row, said, on_the_right=True))
        told.append(said)
    shapes += _dot(axis, score, middle)
    shapes.append(_over(axis, score.told(axis), score.value, middle - 20))
    return Drawing(title, _sentences(told), bottom + LABEL_HEIGHT, tuple(shapes))


def dot_plot(
    title: str,
    rows: Sequence[Estimate],
    *,
    axis_label: str,
    scale: tuple[float, float] | None = None,
    whole: float | None = None,
    elsewhere: int = 0,
    most: int = MOST_ROWS,
) -> Drawing:
    """Groups below each other, the highest value first, each with its instances and interval.

    Args:
        whole: the score of all instances: a dashed line.
        elsewhere: instances that are in no group of these.
        most: so many groups are shown, those with the most instances.
    """
    shown = sorted(rows, key=lambda row: -(row.count or 0))[:most]
    shown.sort(key=lambda row: (-row.value, row.label))
    axis = _axis_of_rows(shown, scale, whole)
    top = 30.0 if whole is not None else 12.0
    bottom = top + ROW * len(shown) + 4
    shapes = [*axis.shapes(top - 4, bottom, axis_label), *_whole(axis, whole, top, bottom)]
    for number, row in enumerate(shown):
        shapes += _row(axis, row, top + ROW * (number + 0.5))
    told = [f"{row.label} ({row.count} instances): {row.told(axis)}" for row in shown]
    if whole is not None:
        told.insert(0, f"all instances: {axis.number(whole)}")
    foot = list(_foot(shown, len(rows) - len(shown), elsewhere))
    shapes += [Text(_LEFT, bottom + LABEL_HEIGHT + ROW * number + FONT_SIZE, text) for number, text in enumerate(foot)]
    return Drawing(title, _sentences([*told, *foot]), bottom + LABEL_HEIGHT + ROW * len(foot), tuple(shapes))


def difference_plot(
    title: str,
    rows: Sequence[Estimate],
    *,
    names: tuple[str, str],
    axis_label: str,
    margin: float | None = None,
    higher_is_better: bool = True,
) -> Drawing:
    """Differences b - a with their intervals around a line at zero.

    Args:
        names: what a and b are called.
        margin: a difference that does not matter: a hatched band around zero.
    """
    ends = [abs(value) for row in rows for value in (row.value, *(row.interval or ())) if math.isfinite(value)]
    reach = max([*ends, margin or 0.0]) * 1.15 or 1.0
    axis = axis_of([], _LABEL_ROOM + _COUNT_ROOM, WIDTH - _NUMBERS_ROOM, (-reach, reach))
    top, bottom = 30.0, 30.0 + ROW * len(rows) + 4
    shapes: list[Shape] = [*axis.shapes(top - 4, bottom, axis_label)]
    told = [f"{row.label}: {row.told(axis)}" for row in rows]
    if margin is not None:
        said = f"hatched: differences up to {axis.number(margin)} (the margin)"
        shapes += _band(axis, (-margin, margin), top - 4, bottom - top + 4, said)
        shapes.append(Text(_LEFT, bottom + LABEL_HEIGHT + FONT_SIZE, said))
        told.append(said)
    shapes.append(Line(axis.x(0), top - 4, axis.x(0), bottom, "ink", 1.5))
    lower, upper = names if higher_is_better else names[::-1]
    shapes += _sides(axis, lower, upper, top - 12)
    for number, row in enumerate(rows):
        shapes += _row(axis, row, top + ROW * (number + 0.5))
    told.append(f"{upper} is better above zero, {lower} below")
    height = bottom + LABEL_HEIGHT + (ROW if margin is not None else 0)
    return Drawing(title, _sentences(told), height, tuple(shapes))


def _sides(axis: Axis, lower: str, upper: str, y: float) -> Iterator[Shape]:
    """Which of the two is better on which side of zero."""
    zero, around = axis.x(0), text_width(" is better") + 16
    left, right = (fitted(name, room - around) for name, room in ((lower, zero), (upper, WIDTH - zero)))
    yield Text(zero - 8, y, f"{left} is better", "end", title="" if left == lower else lower)
    yield Text(zero + 8, y, f"{right} is better", title="" if right == upper else upper)


def _axis_of_rows(rows: Sequence[Estimate], scale: tuple[float, float] | None, whole: float | None) -> Axis:
    values = [value for row in rows for value in (row.value, *(row.interval or ()))]
    return axis_of([*values, whole], _LABEL_ROOM + _COUNT_ROOM, WIDTH - _NUMBERS_ROOM, scale)


def _row(axis: Axis, row: Estimate, y: float) -> Iterator[Shape]:
    yield label(_LEFT, y + _MIDDLE, row.label, _LABEL_ROOM - 12)
    if row.count is not None:
        yield Text(axis.left - 14, y + _MIDDLE, f"n={row.count}", "end", "faint")
    yield from _dot(axis, row, y)
    yield Text(axis.right + 12, y + _MIDDLE, row.told(axis))


def _dot(axis: Axis, row: Estimate, y: float) -> Iterator[Shape]:
    """A whisker with ends, and a dot; a diamond where it stands out."""
    if row.interval is not None:
        low, high = (axis.x(end) for end in row.interval)
        yield Line(low, y, high, y, "data", 2.5)
        yield from (Line(end, y - 5, end, y + 5, "data", 2.5) for end in (low, high))
    said = f"{row.label}: {row.told(axis)}"
    if row.stands_out:
        yield diamond(axis.x(row.value), y, 8.0, "second", said)
    else:
        yield Circle(axis.x(row.value), y, 5.5, "data", said)


def _whole(axis: Axis, whole: float | None, top: float, bottom: float) -> Iterator[Shape]:
    if whole is not None:
        yield Line(axis.x(whole), top - 4, axis.x(whole), bottom, "ink", 1.5, dashed=True)
        yield _over(axis, f"all: {axis.number(whole)}", whole, top - 10)


def _foot(shown: Sequence[Estimate], hidden: int, elsewhere: int) -> Iterator[str]:
    if any(row.stands_out for row in shown):
        yield "diamond: differs from the rest of the instances (p < 0.05, Holm)"
    if hidden:
        yield "1 smaller group is not shown" if hidden == 1 else f"{hidden} smaller groups are not shown"
    if elsewhere:
        who = "1 instance is" if elsewhere == 1 else f"{elsewhere} instances are"
        yield f"{who} in groups too small for a score, or in none"


def _band(axis: Axis, ends: tuple[float, float], y: float, height: float, said: str) -> Iterator[Shape]:
    left, right = axis.x(ends[0]), axis.x(ends[1])
    yield Rect(left, y, right - left, height, "grid", said)
    yield from hatching(left, y, right - left, height, "faint")


def _over(axis: Axis, text: str, value: float, y: float) -> Text:
    """Centred over its value, and inside the axis."""
    half = text_width(text) / 2
    return Text(min(max(axis.x(value), axis.left + half), axis.right - half), y, text, "middle")


def _in_rows(axis: Axis, marks: Sequence[Mark]) -> list[tuple[Mark, bool]]:
    """The marks in the order of their rows, and whether each one's words stand to its right.

    Where there is room, all stand on one side, in the order in which no mark's line crosses another's words.
    """
    from_the_right = sorted(marks, key=lambda mark: -mark.value)
    if all(_room(axis, mark, on_the_right=True) for mark in marks):
        return [(mark, True) for mark in from_the_right]
    if all(_room(axis, mark, on_the_right=False) for mark in marks):
        return [(mark, False) for mark in from_the_right[::-1]]
    return [(mark, axis.x(mark.value) * 2 < axis.left + axis.right) for mark in from_the_right]


def _room(axis: Axis, mark: Mark, *, on_the_right: bool) -> bool:
    x = axis.x(mark.value)
    room = axis.right - x if on_the_right else x - axis.left
    return text_width(f"{mark.label}: {axis.number(mark.value)}") + _GAP <= room


def _beside(axis: Axis, x: float, y: float, text: str, *, on_the_right: bool) -> Text:
    if on_the_right:
        return label(x + _GAP, y + _MIDDLE, text, axis.right - x - _GAP)
    return label(x - _GAP, y + _MIDDLE, text, x - _GAP - axis.left, anchor="end")


def _swatch(x: float, y: float) -> Iterator[Shape]:
    yield Rect(x, y - 6, 24.0, 12.0, "grid")
    yield from hatching(x, y - 6, 24.0, 12.0, "faint")


def _sentences(told: Sequence[str]) -> str:
    return "; ".join(told) + "."
