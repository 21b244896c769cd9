"""Draws plots: estimates with their intervals, histograms, and bars with their numbers.

`result_plots` makes the plots of a result with these functions. All lengths are in CSS pixels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eval_factory.core import formats
from eval_factory.core.results import Score
from eval_factory.report import drawing
from eval_factory.report.drawing import (
    FONT_SIZE,
    WIDTH,
    Drawing,
    Shape,
    cut_to_width,
    label,
    text_width,
)

LABEL_HEIGHT = 46.0  # the height of ticks, their numbers and the axis label, below the axis
ROW_HEIGHT = 24.0
MARGIN = 24.0
_LEFT_MARGIN = 8.0
_LABEL_WIDTH = 180.0  # the width of a row's label
_COUNT_WIDTH = 60.0  # the width of a row's number of instances
_NUMBERS_WIDTH = 190.0  # the width of a row's value and interval
_LINE_WIDTH = 1.5  # the width of a dashed line, and of the line at zero
_WHISKER_WIDTH = 2.5  # the width of the lines of an interval
_DOT_RADIUS = 5.5
_GAP = 12.0  # the distance between a shape and its text
_BASELINE_OFFSET = 0.35 * FONT_SIZE  # from the middle of a row down to the baseline of its text
BINS = 20  # the number of bins of a histogram
MAX_GROUPS = 30  # the maximum number of groups in a plot
MAX_DISTINCT = 12  # the maximum number of different values that have a bar each
PLOT_HEIGHT = 150.0  # the height of a histogram without its axis
_MARK_HEIGHT = 18.0  # the height of a mark's text above a histogram
_MAX_BAR_WIDTH = 34.0  # the maximum width of a histogram's bar for a single value
_BAR_LABEL_WIDTH = 190.0  # the width of the label at the left of a bar chart
_BAR_NUMBER_WIDTH = 150.0  # the width of the number at the right of a bar chart


@dataclass(frozen=True)
class Axis:
    """A linear axis from left to right."""

    low: float  # the value at the left end
    high: float  # the value at the right end
    left: float  # the x coordinate of the left end
    right: float  # the x coordinate of the right end

    def x(self, value: float) -> float:
        """Return the x coordinate of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)

    def number(self, value: float) -> str:
        """Return a number with as many decimals as the range of the axis needs.

        Examples are 0.712 on an axis from 0 to 1, and 3.85 on an axis from 1 to 5.
        """
        span = self.high - self.low
        # For very short and very long axes, a fixed number of decimals would not fit.
        if 0 < span < 0.02 or span >= 1e6:
            return formats.short(value)
        # The longer the axis, the fewer decimals: three up to a length of 2, two up to 20 ...
        for max_span, digits in ((2, 3), (20, 2), (200, 1)):
            if span <= max_span:
                return formats.decimals(value, digits)
        return formats.decimals(value, digits=0)

    def ticks(self) -> list[float]:
        """Return the values of about five ticks, at multiples of 1, 2 or 5 times a power of ten.

        On an axis from 0 to 0.7, the step from tick to tick is 0.2: the ticks are 0, 0.2, 0.4, 0.6.
        """
        tolerance = 1e-9  # for rounding errors
        minimum_step = (self.high - self.low) / 5
        # The step is the first of power, 2 * power, 5 * power, 10 * power that is long enough.
        power = 10.0 ** math.floor(math.log10(minimum_step))
        step = 10 * power
        for factor in (1, 2, 5):
            if power * factor >= minimum_step * (1 - tolerance):
                step = power * factor
                break
        # The first and the last tick, as multiples of the step.
        first = math.ceil(self.low / step - tolerance)
        last = math.floor(self.high / step + tolerance)
        last = min(last, first + 50)  # guards against rounding errors; usual are about 6 ticks
        return [number * step for number in range(first, last + 1)]

    def shapes(self, top: float, bottom: float, name: str) -> Iterator[Shape]:
        """Yield the shapes of the axis: grid lines, the axis line, ticks, numbers and the name.

        The grid lines run from `top` down to the axis line at `bottom`.
        """
        for tick in self.ticks():
            x = self.x(tick)
            yield drawing.line(x, top, x, bottom, "grid")
            yield drawing.line(x, bottom, x, bottom + 4, "ink")
            if abs(tick) < 1e-9 * (self.high - self.low):  # avoids the text "-0"
                tick = 0.0
            yield drawing.text_shape(x, bottom + 6 + FONT_SIZE, f"{tick:.6g}", "middle")
        yield drawing.line(self.left, bottom, self.right, bottom, "ink")
        middle = (self.left + self.right) / 2
        # The name may reach to the nearer edge of the drawing, less a margin of 8.
        name_width = 2 * (min(middle, WIDTH - middle) - 8)
        yield label(middle, bottom + 40, name, name_width, anchor="middle")


def axis_of(
    values: Iterable[float | None],
    left: float,
    right: float,
    scale: tuple[float, float] | None = None,
) -> Axis:
    """Return an axis that shows all finite values, and the complete scale if there is one.

    Without a scale, or if all these numbers are equal, the axis has a margin at both ends. If no
    value is negative, the margin does not go below 0. `left` and `right` are the x coordinates of
    the ends.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if scale is not None:
        finite += scale
    low = min(finite, default=0.0)
    high = max(finite, default=1.0)
    if scale is None or low == high:
        margin = (high - low) * 0.08
        if margin == 0:  # all values are equal
            margin = abs(high) * 0.1
        if margin == 0:  # all values are 0, or so small that their share is
            margin = 1.0
        if low < 0:
            low -= margin
        else:
            low = max(0.0, low - margin)
        high += margin
    return Axis(low, high, left, right)


@dataclass(frozen=True)
class PlottedValue:
    """A value of a plot, with its label and its interval, if it has one."""

    label: str
    value: float
    low: float | None = None  # the lower end of the interval
    high: float | None = None  # the upper end of the interval
    count: int | None = None  # the number of instances
    stands_out: bool = False
    """True if the value differs significantly from that of the other instances.

    Such a value is drawn as a diamond.
    """

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval; None if one end is missing or not finite."""
        if self.low is None or self.high is None:
            return None
        if not math.isfinite(self.low) or not math.isfinite(self.high):
            return None
        return self.low, self.high

    def text(self, axis: Axis) -> str:
        """Return the value with its interval: `0.712 (0.630 to 0.790)`."""
        number = axis.number(self.value)
        if self.interval is None:
            return number
        low, high = map(axis.number, self.interval)
        return f"{number} ({low} to {high})"


@dataclass(frozen=True)
class Mark:
    """A reference value that is drawn as a dashed line, such as chance."""

    label: str
    value: float

    def text(self, axis: Axis) -> str:
        """Return the label with the value."""
        return f"{self.label}: {axis.number(self.value)}"


def plotted_score(label: str, score: Score) -> PlottedValue:
    """Return a score for a plot. The score stands out if its p-value (Holm) is below 0.05."""
    stats = score.stats
    stands_out = stats.p_holm is not None and stats.p_holm < 0.05
    return PlottedValue(
        label=label,
        value=score.value,
        low=stats.ci_low,
        high=stats.ci_high,
        count=stats.count,
        stands_out=stands_out,
    )


def interval_plot(
    title: str,
    score: PlottedValue,
    *,
    scale: tuple[float, float] | None,
    marks: Sequence[Mark] = (),
    bounds: tuple[float, float] | None = None,
) -> Drawing:
    """Return a plot of one score with its 95 % interval on its scale.

    Args:
        title: the title.
        score: the score with its interval.
        scale: the lowest and the highest possible score; None if not known.
        marks: reference values; each is a dashed line with a triangle and a text in its own row.
        bounds: the score if all missing answers were wrong, and if all of them were right. The
            range between the two is drawn as a hatched band.
    """
    values = [score.value, *(score.interval or ()), *(bounds or ())]
    for mark in marks:
        values.append(mark.value)
    axis = axis_of(values, MARGIN, WIDTH - MARGIN, scale)
    middle = 44.0  # the y coordinate of the score
    top = middle - 16
    row_count = len(marks)  # the rows below the score: a row for each mark, and one for the bounds
    if bounds is not None:
        row_count += 1
    bottom = middle + 22 + ROW_HEIGHT * row_count  # the y coordinate of the axis line
    shapes = [*axis.shapes(top, bottom, score.label)]
    score_text = f"{score.label}: {score.text(axis)}"
    if score.interval:
        score_text += ", a 95 % interval"
    descriptions = [score_text]
    first_row_y = middle + 30  # the y coordinate of the first row below the score
    mark_rows = _mark_rows(axis, marks)
    shapes += _mark_shapes(axis, mark_rows, top, first_row_y)
    for mark, _ in mark_rows:
        descriptions.append(mark.text(axis))
    if bounds is not None:
        bounds_text = " ... ".join(map(axis.number, bounds))
        text = f"missing answers all wrong ... all right: {bounds_text}"
        left, right = map(axis.x, bounds)
        shapes += _hatched_shapes(left, right, middle - 11, height=22.0, title=text)
        # In the last row, a small hatched box is in front of the text, as in a legend.
        y = first_row_y + ROW_HEIGHT * len(marks)
        shapes += _hatched_shapes(axis.left, axis.left + 24.0, y - 6, height=12.0)
        shapes.append(_text_beside(axis, axis.left + 20, y, text, on_the_right=True))
        descriptions.append(text)
    shapes += _dot_shapes(axis, score, middle)
    shapes.append(_text_over(axis, score.text(axis), score.value, middle - 20))
    return Drawing(title, "; ".join(descriptions) + ".", bottom + LABEL_HEIGHT, tuple(shapes))


def dot_plot(
    title: str,
    rows: Sequence[PlottedValue],
    *,
    axis_label: str,
    scale: tuple[float, float] | None = None,
    overall: float | None = None,
    outside_groups: int = 0,
    differs_from: str = "the rest of the instances",
) -> Drawing:
    """Return a plot of groups, one row for each, the highest value first.

    A row has the group's number of instances, its value and its interval. The plot shows at most
    `MAX_GROUPS` groups: those with the most instances.

    Args:
        title: The title.
        rows: The groups.
        axis_label: The name of the axis.
        scale: The ends of the axis; None if the values determine the ends.
        overall: The score of all instances, which is drawn as a dashed line.
        outside_groups: The number of instances that are in none of these groups.
        differs_from: What the rows with a diamond differ from significantly, as a noun phrase.
    """
    most_instances_first = sorted(rows, key=lambda row: -(row.count or 0))
    largest = most_instances_first[:MAX_GROUPS]
    shown = sorted(largest, key=lambda row: (-row.value, row.label))
    values: list[float] = []
    for row in shown:
        values.append(row.value)
        if row.interval:
            values += row.interval
    axis = axis_of([*values, overall], _LABEL_WIDTH + _COUNT_WIDTH, WIDTH - _NUMBERS_WIDTH, scale)
    top = 12.0
    if overall is not None:
        top = 30.0
    bottom = top + ROW_HEIGHT * len(shown) + 4
    shapes = [*axis.shapes(top - 4, bottom, axis_label)]
    descriptions = []
    if overall is not None:
        x = axis.x(overall)
        shapes.append(drawing.line(x, top - 4, x, bottom, "ink", _LINE_WIDTH, dashed=True))
        shapes.append(_text_over(axis, f"all: {axis.number(overall)}", overall, top - 10))
        descriptions.append(f"all instances: {axis.number(overall)}")
    for number, row in enumerate(shown):
        shapes += _row_shapes(axis, row, top + ROW_HEIGHT * (number + 0.5))
        descriptions.append(f"{row.label} ({row.count} instances): {row.text(axis)}")
    hidden = len(rows) - len(shown)
    foot_lines = list(_foot_lines(shown, hidden, outside_groups, differs_from))
    foot_top = bottom + LABEL_HEIGHT
    for number, text in enumerate(foot_lines):
        shapes.append(
            drawing.text_shape(_LEFT_MARGIN, foot_top + ROW_HEIGHT * number + FONT_SIZE, text)
        )
    description = "; ".join([*descriptions, *foot_lines]) + "."
    return Drawing(title, description, foot_top + ROW_HEIGHT * len(foot_lines), tuple(shapes))


def _foot_lines(
    shown: Sequence[PlottedValue], hidden: int, outside_groups: int, differs_from: str
) -> Iterator[str]:
    """Yield the lines below the axis: the meaning of a diamond, and what the plot does not show."""
    if any(row.stands_out for row in shown):
        yield f"diamond: differs from {differs_from} (p < 0.05, Holm)"
    if hidden:
        yield f"{_counted_are(hidden, 'smaller group')} not shown"
    if outside_groups:
        instances_are = _counted_are(outside_groups, "instance")
        yield f"{instances_are} in groups too small for a score, or in none"


def _counted_are(count: int, word: str) -> str:
    """Return the number with noun and verb: `1 instance is`, `2 instances are`."""
    if count == 1:
        return f"1 {word} is"
    return f"{formats.counted(count, word)} are"


def difference_plot(
    title: str,
    row: PlottedValue,
    *,
    names: tuple[str, str],
    axis_label: str,
    higher_is_better: bool = True,
) -> Drawing:
    """Return a plot of the difference b - a with its interval, and with a line at zero.

    `names` are the names of a and b, in this order.
    """
    reach = 0.0  # the axis goes from -reach to reach
    for value in (row.value, *(row.interval or ())):
        if math.isfinite(value):
            reach = max(reach, abs(value))
    reach *= 1.15  # a margin of 15 %
    if reach == 0:  # All values are 0.
        reach = 1.0
    axis = axis_of([], _LABEL_WIDTH + _COUNT_WIDTH, WIDTH - _NUMBERS_WIDTH, scale=(-reach, reach))
    top = 30.0
    bottom = top + ROW_HEIGHT + 4
    shapes: list[Shape] = [*axis.shapes(top - 4, bottom, axis_label)]
    zero = axis.x(0)
    shapes.append(drawing.line(zero, top - 4, zero, bottom, "ink", _LINE_WIDTH))
    a, b = names  # If b - a is above zero, b has the higher score.
    if higher_is_better:
        better_below = a
        better_above = b
    else:
        better_below = b
        better_above = a
    # A name has the width from zero to the edge of the drawing, less the words behind the name
    # and two margins of 8.
    not_for_name = text_width(" is better") + 16
    shapes.append(_better_text(zero - 8, top - 12, better_below, zero - not_for_name, "end"))
    shapes.append(
        _better_text(zero + 8, top - 12, better_above, WIDTH - zero - not_for_name, "start")
    )
    shapes += _row_shapes(axis, row, top + ROW_HEIGHT / 2)
    description = (
        f"{row.label}: {row.text(axis)}; {better_above} is better above zero, {better_below} below."
    )
    return Drawing(title, description, bottom + LABEL_HEIGHT, tuple(shapes))


def _better_text(x: float, y: float, name: str, width: float, anchor: drawing.Anchor) -> Shape:
    """Return the text `NAME is better`. If the name is cut to `width`, the tooltip is the name."""
    shown = cut_to_width(name, width)
    tooltip = ""
    if shown != name:
        tooltip = name
    return drawing.text_shape(x, y, f"{shown} is better", anchor, title=tooltip)


def _row_shapes(axis: Axis, row: PlottedValue, y: float) -> Iterator[Shape]:
    """Yield the shapes of a row: label, number of instances, dot with whiskers, and value."""
    yield label(_LEFT_MARGIN, y + _BASELINE_OFFSET, row.label, _LABEL_WIDTH - 12)
    if row.count is not None:
        yield drawing.text_shape(
            axis.left - 14, y + _BASELINE_OFFSET, f"n={row.count}", "end", "faint"
        )
    yield from _dot_shapes(axis, row, y)
    yield drawing.text_shape(axis.right + 12, y + _BASELINE_OFFSET, row.text(axis))


def _dot_shapes(axis: Axis, row: PlottedValue, y: float) -> Iterator[Shape]:
    """Yield the interval as a whisker, and the value as a dot, or as a diamond if it stands out."""
    if row.interval is not None:
        low, high = map(axis.x, row.interval)
        yield drawing.line(low, y, high, y, "data", _WHISKER_WIDTH)
        for end in (low, high):
            yield drawing.line(end, y - 5, end, y + 5, "data", _WHISKER_WIDTH)
    text = f"{row.label}: {row.text(axis)}"
    x = axis.x(row.value)
    if row.stands_out:
        yield drawing.polygon(((x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)), "second", text)
    else:
        yield drawing.circle(x, y, _DOT_RADIUS, "data", text)


def _hatched_shapes(
    left: float, right: float, top: float, *, height: float, title: str = ""
) -> Iterator[Shape]:
    """Yield a box that is hatched with lines from lower left to upper right."""
    width = right - left
    step = 6.0  # the distance between two lines, along a side of the box
    yield drawing.rect(left, top, width, height, "grid", title)
    for number in range(1, math.ceil((width + height) / step)):
        # x is counted from `left`, and y from `top`. At all points of the line, x + y = total.
        total = step * number
        # The line starts at the left side, where x is 0, or at the lower side, where y is `height`.
        start_x = max(0.0, total - height)
        start_y = total - start_x
        # The line ends at the upper side, where y is 0, or at the right side, where x is `width`.
        end_x = min(width, total)
        end_y = total - end_x
        yield drawing.line(left + start_x, top + start_y, left + end_x, top + end_y, "faint")


def _text_over(axis: Axis, text: str, value: float, y: float) -> Shape:
    """Return a text that is centred over its value, but does not go beyond the ends of the axis."""
    half = text_width(text) / 2
    centre = max(axis.x(value), axis.left + half)  # not beyond the left end
    centre = min(centre, axis.right - half)  # not beyond the right end
    return drawing.text_shape(centre, y, text, "middle")


def _mark_rows(axis: Axis, marks: Sequence[Mark]) -> list[tuple[Mark, bool]]:
    """Return the marks in the order of their rows, each with True if its text is on its right.

    All texts are on the same side if they are narrow enough. The line of a mark goes down through
    the rows above its own. In this order of the rows, no line crosses the text of another mark,
    unless two wide texts on different sides each cover the other's line.
    """
    right_to_left = sorted(marks, key=lambda mark: -mark.value)
    # pairs of the x coordinate of a mark and the width of its text
    extents = [(axis.x(mark.value), text_width(mark.text(axis)) + _GAP) for mark in marks]
    all_fit_on_the_right = all(width <= axis.right - x for x, width in extents)
    if all_fit_on_the_right:
        return [(mark, True) for mark in right_to_left]
    all_fit_on_the_left = all(width <= x - axis.left for x, width in extents)
    if all_fit_on_the_left:
        return [(mark, False) for mark in reversed(right_to_left)]
    # Each text is on the side of its mark that has more space.
    middle = (axis.left + axis.right) / 2
    rows = []
    waiting = right_to_left
    while waiting:
        mark = _mark_of_next_row(axis, waiting)
        rows.append((mark, axis.x(mark.value) < middle))
        waiting = [other for other in waiting if other is not mark]
    return rows


def _mark_of_next_row(axis: Axis, waiting: Sequence[Mark]) -> Mark:
    """Return a mark whose text covers the line of no other waiting mark; else the first mark."""
    for mark in waiting:
        if not _covers_a_line(axis, mark, waiting):
            return mark
    return waiting[0]


def _covers_a_line(axis: Axis, mark: Mark, others: Sequence[Mark]) -> bool:
    """Return True if the text of a mark, on the side with more space, covers another's line."""
    x = axis.x(mark.value)
    width = text_width(mark.text(axis)) + _GAP
    left = x - width
    right = x
    if x < (axis.left + axis.right) / 2:
        left = x
        right = x + width
    return any(left < axis.x(other.value) < right for other in others if other is not mark)


def _mark_shapes(
    axis: Axis, rows: Sequence[tuple[Mark, bool]], top: float, first_row_y: float
) -> list[Shape]:
    """Return a dashed line, a triangle and a text for each mark.

    Args:
        axis: the axis of the plot.
        rows: the marks in the order of their rows, as `_mark_rows` returns them.
        top: the y coordinate at which the lines begin.
        first_row_y: the y coordinate of the first row.
    """
    lines: list[Shape] = []
    texts: list[Shape] = []
    for number, (mark, on_the_right) in enumerate(rows):
        x = axis.x(mark.value)
        y = first_row_y + ROW_HEIGHT * number
        text = mark.text(axis)
        lines.append(drawing.line(x, top, x, y, "second", _LINE_WIDTH, dashed=True))
        # The line ends at a triangle that points up.
        triangle = ((x, y - 6), (x + 6, y + 6), (x - 6, y + 6))
        lines.append(drawing.polygon(triangle, "second", text))
        texts.append(_text_beside(axis, x, y, text, on_the_right=on_the_right))
    return [*lines, *texts]  # The texts come last, so that no line is drawn over a text.


def _text_beside(axis: Axis, x: float, y: float, text: str, *, on_the_right: bool) -> Shape:
    """Return a text to the right or to the left of a mark at (x, y)."""
    if on_the_right:
        return label(x + _GAP, y + _BASELINE_OFFSET, text, axis.right - x - _GAP)
    return label(x - _GAP, y + _BASELINE_OFFSET, text, x - _GAP - axis.left, anchor="end")


@dataclass(frozen=True)
class Bar:
    """A bar of a bar chart."""

    label: str
    value: float
    text: str  # the value as it is shown
    hatched: bool = False  # True for a bar of another kind, such as failures


@dataclass(frozen=True)
class Bin:
    """The number of values from `low` to `high`.

    `high` itself belongs to the next bin, except in the last bin. In a bin of a single value, `low`
    and `high` are this value.
    """

    low: float
    high: float
    count: int

    @property
    def middle(self) -> float:
        """The middle between `low` and `high`."""
        return (self.low + self.high) / 2

    def text(self, axis: Axis) -> str:
        """Return the range of the bin with its count."""
        if self.low == self.high:
            return f"{self.low:.6g}: {self.count}"
        return f"{axis.number(self.low)} to {axis.number(self.high)}: {self.count}"


def histogram(
    title: str,
    values: Sequence[float],
    *,
    axis_label: str,
    scale: tuple[float, float] | None = None,
    marks: Sequence[Mark] = (),
) -> Drawing:
    """Return a histogram of the values, with the marks as dashed lines.

    If there are at most `MAX_DISTINCT` different values, each value has a bar. Values that are not
    finite are left out; the description has their number.
    """
    finite = [value for value in values if math.isfinite(value)]
    axis = axis_of(
        [*finite, *(mark.value for mark in marks)], MARGIN + 6, WIDTH - MARGIN - 6, scale
    )
    bins = bins_of(finite, axis)
    top = 22.0 + _MARK_HEIGHT * len(marks)
    bottom = top + PLOT_HEIGHT
    shapes = [*axis.shapes(top, bottom, axis_label), *_bin_shapes(axis, bins, bottom)]
    for number, mark in enumerate(marks):
        x = axis.x(mark.value)
        y = 14.0 + _MARK_HEIGHT * number
        shapes.append(drawing.line(x, y + 4, x, bottom, "second", _LINE_WIDTH, dashed=True))
        shapes.append(_text_over(axis, mark.text(axis), mark.value, y))
    descriptions = [f"{len(finite)} values"]
    for value_bin in bins:
        if value_bin.count:
            descriptions.append(value_bin.text(axis))
    for mark in marks:
        descriptions.append(mark.text(axis))
    left_out = len(values) - len(finite)
    if left_out:
        descriptions.append(f"{left_out} that are not numbers are left out")
    return Drawing(title, "; ".join(descriptions) + ".", bottom + LABEL_HEIGHT, tuple(shapes))


def _bin_shapes(axis: Axis, bins: Sequence[Bin], bottom: float) -> Iterator[Shape]:
    """Yield the bar of each bin, with the count above the bar if the bar is wide enough."""
    max_count = max((value_bin.count for value_bin in bins), default=1)
    width = _bin_width(axis, bins)
    for value_bin in bins:
        if value_bin.count:
            # The highest bar ends 6 pixels below the top of the plot.
            height = (PLOT_HEIGHT - 6) * value_bin.count / max_count
            x = axis.x(value_bin.middle)
            text = value_bin.text(axis)
            yield drawing.rect(x - width / 2, bottom - height, width, height, "data", text)
            count = str(value_bin.count)
            # `text_width` estimates digits as too wide, so a bar may be 4 pixels narrower.
            if width >= text_width(count) - 4:
                yield drawing.text_shape(x, bottom - height - 4, count, "middle")


def _bin_width(axis: Axis, bins: Sequence[Bin]) -> float:
    """Return the width of the bars.

    Bars of single values have a gap of at least 2 pixels, if possible. Bars of equal bins have a
    gap of 1 pixel.
    """
    if len(bins) > MAX_DISTINCT:  # `bins_of` made `BINS` bins of equal width
        return (axis.right - axis.left) / BINS - 1
    width = _MAX_BAR_WIDTH
    for left, right in pairwise(bins):
        distance = axis.x(right.middle) - axis.x(left.middle)
        width = min(width, distance - 2)
    return max(2.0, width)


def bars(
    title: str, rows: Sequence[Bar], *, axis_label: str, scale: tuple[float, float] | None = None
) -> Drawing:
    """Return a bar chart with one bar in each row, in the order of `rows`.

    The bars begin at zero. Each bar has its number at its end.
    """
    values = [0.0, *(row.value for row in rows)]
    # An axis without a scale has margins. The scale (0, 0) adds no number and avoids the margins.
    axis = axis_of(values, _BAR_LABEL_WIDTH, WIDTH - _BAR_NUMBER_WIDTH, scale or (0.0, 0.0))
    top = 8.0
    bottom = top + ROW_HEIGHT * len(rows)
    bar_height = ROW_HEIGHT - 6
    shapes: list[Shape] = [*axis.shapes(top - 4, bottom, axis_label)]
    for number, row in enumerate(rows):
        row_top = top + ROW_HEIGHT * number
        bar_top = row_top + 3
        baseline = row_top + ROW_HEIGHT / 2 + _BASELINE_OFFSET
        left, right = sorted((axis.x(0.0), axis.x(row.value)))
        shapes.append(label(_LEFT_MARGIN, baseline, row.label, _BAR_LABEL_WIDTH - 16))
        tooltip = f"{row.label}: {row.text}"
        if row.hatched:
            shapes += _hatched_shapes(left, right, bar_top, height=bar_height, title=tooltip)
        else:
            shapes.append(drawing.rect(left, bar_top, right - left, bar_height, "data", tooltip))
        shapes.append(label(right + 8, baseline, row.text, WIDTH - right - 8))
    description = "; ".join(f"{row.label}: {row.text}" for row in rows)
    return Drawing(title, f"{description}.", bottom + LABEL_HEIGHT, tuple(shapes))


def bins_of(values: Sequence[float], axis: Axis) -> list[Bin]:
    """Return one bin for each different value, in ascending order.

    If there are more than `MAX_DISTINCT` different values, return `BINS` bins of equal width, which
    cover the axis.
    """
    counts = Counter(values)
    if len(counts) <= MAX_DISTINCT:
        return [Bin(value, value, count) for value, count in sorted(counts.items())]
    step = (axis.high - axis.low) / BINS
    counts_by_bin: Counter[int] = Counter()
    for value in values:
        number = int((value - axis.low) / step + 1e-9)  # 1e-9 is a tolerance for rounding
        # The value at the right end of the axis belongs to the last bin.
        counts_by_bin[min(number, BINS - 1)] += 1
    bins = []
    for number in range(BINS):
        low = axis.low + step * number
        high = axis.low + step * (number + 1)
        bins.append(Bin(low, high, counts_by_bin[number]))
    return bins
