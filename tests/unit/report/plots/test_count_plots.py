"""Distributions and bars: the right numbers at the right places."""

from __future__ import annotations

import math

import pytest

from eval_factory.report.drawing import Drawing, Line, Rect, Text
from eval_factory.report.plot_kinds import BINS, Axis, Bar, Bin, Mark, bars, bins_of, histogram

UNIT = (0.0, 1.0)


def rects(drawing: Drawing) -> list[Rect]:
    return [shape for shape in drawing.shapes if isinstance(shape, Rect)]


def test_few_values_have_a_bin_each() -> None:
    assert bins_of([1, 0, 1], Axis(0, 1, 0, 1)) == [Bin(0, 0, 1), Bin(1, 1, 2)]
    assert len(bins_of(list(range(12)), Axis(0, 12, 0, 1))) == 12


def test_many_values_are_counted_by_equal_parts() -> None:
    bins = bins_of([number / 100 for number in range(101)], Axis(0, 1, 0, 1))
    assert len(bins) == BINS
    assert sum(one.count for one in bins) == 101
    assert bins[-1].count == 6  # with 1 itself
    assert (bins[1].low, bins[1].high, bins[1].middle) == pytest.approx((0.05, 0.1, 0.075))


def test_columns_stand_at_their_values() -> None:
    drawing = histogram("Distribution", [0, 1, 1, 1], axis_label="exact_match", scale=UNIT)
    zero, one = rects(drawing)
    assert (zero.x, zero.width) == (30 - 17, 34)  # the axis goes from 30 to 610
    assert one.x == 610 - 17
    assert (one.height, zero.height) == (144, 48)
    assert zero.y + zero.height == one.y + one.height == 172
    counts = [(shape.text, shape.x, shape.y) for shape in drawing.shapes if isinstance(shape, Text)][-2:]
    assert counts == [("1", 30, 120), ("3", 610, 24)]
    assert (zero.title, one.title) == ("0: 1", "1: 3")
    assert (drawing.title, drawing.height) == ("Distribution", 22 + 150 + 46)
    assert drawing.description == "4 values; 0: 1; 1: 3."


def test_columns_of_close_values_do_not_touch() -> None:
    first, second, third = rects(histogram("x", [0.50, 0.52, 1], axis_label="x", scale=UNIT))
    assert first.x + first.width < second.x < third.x
    assert first.width == pytest.approx(580 * 0.02 - 2)
    near = rects(histogram("x", [0.5, 0.5001, 1], axis_label="x", scale=UNIT))
    assert near[0].width == 2


def test_many_values_stand_in_parts_of_the_axis() -> None:
    drawing = histogram("x", [number / 40 for number in range(41)] + [0.01], axis_label="x", scale=UNIT)
    columns = rects(drawing)
    assert len(columns) == BINS
    assert columns[1].x == pytest.approx(30 + 580 / BINS + 0.5)
    assert columns[1].width == pytest.approx(580 / BINS - 1)
    assert columns[0].title == "0.000 to 0.050: 3"
    empty_inside = histogram("x", [*(0.01 * n for n in range(20)), 1.0], axis_label="x", scale=UNIT)
    assert len(rects(empty_inside)) == 5
    assert "0.500" not in empty_inside.description


def test_marks_have_a_line_and_words() -> None:
    marks = [Mark("median", 0.5), Mark("95 % are faster than", 1.0)]
    drawing = histogram("x", [0, 1], axis_label="seconds", scale=UNIT, marks=marks)
    dashed = [(shape.x1, shape.y1, shape.y2) for shape in drawing.shapes if isinstance(shape, Line) and shape.dashed]
    assert dashed == [(320, 18, 208), (610, 36, 208)]
    words = [shape for shape in drawing.shapes if isinstance(shape, Text)][-2:]
    assert [(shape.text, shape.y) for shape in words] == [("median: 0.500", 14), ("95 % are faster than: 1.000", 32)]
    assert words[0].x == 320
    assert words[1].x == pytest.approx(610 - 27 * 13 * 0.6 / 2)
    assert drawing.description == "2 values; 0: 1; 1: 1; median: 0.500; 95 % are faster than: 1.000."
    assert drawing.height == 22 + 36 + 150 + 46


def test_what_is_no_number_is_counted_and_left_out() -> None:
    drawing = histogram("x", [1.0, math.nan, math.inf], axis_label="x", scale=UNIT)
    assert len(rects(drawing)) == 1
    assert drawing.description == "1 values; 1: 1; 2 that are no numbers are left out."
    assert rects(histogram("x", [], axis_label="x")) == []


def test_bars_begin_at_zero() -> None:
    rows = [Bar("scored", 96, "96 of 100"), Bar("failed", 4, "4 of 100", hatched=True), Bar("cut off", 0, "0")]
    drawing = bars("Validity", rows, axis_label="instances", scale=(0, 100))
    scored, failed, none = rects(drawing)
    assert (scored.x, scored.y, scored.width, scored.height) == (190, 11, 288, 18)  # the axis goes from 190 to 490
    assert (failed.x, failed.y, failed.width) == (190, 35, 12)
    assert none.width == 0
    assert (scored.fill, failed.fill) == ("data", "grid")
    hatched = [shape for shape in drawing.shapes if isinstance(shape, Line) and 35 <= shape.y2 <= shape.y1 <= 53]
    assert len([line for line in hatched if line.x2 > line.x1 and line.y2 < line.y1]) == 4
    text = next(shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text == "96 of 100")
    assert (text.x, text.anchor) == (486, "start")
    name = next(shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text == "failed")
    assert name.x == 8
    assert 35 < name.y < 53
    assert drawing.description == "scored: 96 of 100; failed: 4 of 100; cut off: 0."
    assert drawing.height == 8 + 72 + 46


def test_bars_without_a_scale_reach_their_greatest_value() -> None:
    (rect,) = rects(bars("x", [Bar("a", 7.5, "7.5")], axis_label="x"))
    assert (rect.x, rect.width) == (190, 300)
    below = rects(bars("x", [Bar("a", -5, "-5"), Bar("b", 5, "5")], axis_label="x"))
    assert [(one.x, one.width) for one in below] == [(190, 150), (340, 150)]
    (of_ratings,) = rects(bars("x", [Bar("gpt", 2.5, "2.50")], axis_label="x", scale=(1, 5)))
    assert (of_ratings.x, of_ratings.width) == (190, 150)
