"""Scores, groups and differences: the right numbers at the right places."""

from __future__ import annotations

import math

import pytest

from eval_factory.report.drawing import WIDTH, Circle, Drawing, Line, Polygon, Rect, Text
from eval_factory.report.plot_kinds import Axis, Mark, PlottedValue, difference_plot, dot_plot, interval_plot

UNIT = (0.0, 1.0)
SCORE = PlottedValue("exact_match", 0.5, 0.25, 0.75, 100)


def texts(drawing: Drawing) -> list[str]:
    return [shape.text for shape in drawing.shapes if isinstance(shape, Text)]


def text_of(drawing: Drawing, beginning: str) -> Text:
    (found,) = [shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text.startswith(beginning)]
    return found


def lines(drawing: Drawing, colour: str) -> list[tuple[float, float, float, float]]:
    return [
        (shape.x1, shape.y1, shape.x2, shape.y2)
        for shape in drawing.shapes
        if isinstance(shape, Line) and shape.colour == colour
    ]


def dots(drawing: Drawing) -> list[tuple[float, float]]:
    return [(shape.x, shape.y) for shape in drawing.shapes if isinstance(shape, Circle)]


def diamonds(drawing: Drawing) -> list[Polygon]:
    return [shape for shape in drawing.shapes if isinstance(shape, Polygon) and len(shape.points) == 4]


def test_an_estimate_is_told_with_its_interval() -> None:
    axis = Axis(0, 1, 0, 1)
    assert SCORE.told(axis) == "0.500 (0.250 to 0.750)"
    for low, high in ((None, 0.7), (0.2, None), (math.nan, 0.7), (0.2, math.inf)):
        assert PlottedValue("x", 0.5, low, high).told(axis) == "0.500"


def test_a_score_stands_on_its_scale() -> None:
    drawing = interval_plot("Score", SCORE, scale=UNIT)
    assert dots(drawing) == [(320, 44)]  # the axis goes from 24 to 616
    assert lines(drawing, "data") == [(172, 44, 468, 44), (172, 39, 172, 49), (468, 39, 468, 49)]
    over = text_of(drawing, "0.500")
    assert (over.text, over.x, over.y, over.anchor) == ("0.500 (0.250 to 0.750)", 320, 24, "middle")
    assert (drawing.title, drawing.width, drawing.height) == ("Score", WIDTH, 112)
    assert drawing.description == "exact_match: 0.500 (0.250 to 0.750), a 95 % interval."


def test_a_score_without_an_interval_is_a_dot() -> None:
    drawing = interval_plot("Score", PlottedValue("exact_match", 1.0), scale=UNIT)
    assert lines(drawing, "data") == []
    assert dots(drawing) == [(616, 44)]
    assert drawing.description == "exact_match: 1.000."
    over = text_of(drawing, "1.000")
    assert over.x == pytest.approx(616 - 19.5)  # its words end where the axis does
    left = text_of(interval_plot("Score", PlottedValue("exact_match", 0.0), scale=UNIT), "0.000")
    assert left.x == pytest.approx(24 + 19.5)


def test_what_a_score_is_compared_with_has_a_row_each() -> None:
    marks = [Mark("chance", 0.25), Mark("always A", 0.5)]
    drawing = interval_plot("Score", SCORE, scale=UNIT, marks=marks)
    triangles = [shape.points[0] for shape in drawing.shapes if isinstance(shape, Polygon)]
    assert triangles == [(320, 68), (172, 92)]  # from the right: no line crosses the other's words
    assert lines(drawing, "second") == [(320, 28, 320, 74), (172, 28, 172, 98)]
    chance = text_of(drawing, "chance")
    assert (chance.text, chance.x, chance.anchor) == ("chance: 0.250", 184, "start")
    assert drawing.height == 112 + 2 * 24
    assert drawing.description.endswith("; always A: 0.500; chance: 0.250.")


def test_where_there_is_no_room_on_the_right_words_stand_on_the_left() -> None:
    marks = [Mark("a", 0.95), Mark("b", 0.9)]
    drawing = interval_plot("Score", SCORE, scale=UNIT, marks=marks)
    assert [shape.text for shape in drawing.shapes if isinstance(shape, Text) and ": " in shape.text] == [
        "b: 0.900", "a: 0.950",
    ]  # fmt: skip
    words = text_of(drawing, "b: ")
    assert words.x == pytest.approx(24 + 592 * 0.9 - 12)
    assert words.anchor == "end"
    mixed = interval_plot("Score", SCORE, scale=UNIT, marks=[Mark("low", 0.01), Mark("high", 0.99)])
    assert [text_of(mixed, name).anchor for name in ("high", "low")] == ["end", "start"]
    assert text_of(mixed, "high").y < text_of(mixed, "low").y


def test_bounds_are_a_hatched_band() -> None:
    drawing = interval_plot("Score", SCORE, scale=UNIT, bounds=(0.25, 0.5))
    band = next(shape for shape in drawing.shapes if isinstance(shape, Rect))
    assert (band.x, band.y, band.width, band.height) == (172, 33, 148, 22)
    hatched = [line for line in lines(drawing, "faint") if 172 <= line[0] <= line[2] <= 320]
    assert len(hatched) == 28
    told = "if all that is missing were wrong, right: 0.250, 0.500"
    assert told in texts(drawing)
    assert told in drawing.description
    assert drawing.height == 112 + 24


def test_a_value_beyond_its_scale_is_on_the_axis() -> None:
    drawing = interval_plot("Score", PlottedValue("BERTScore", -0.5, -0.6, 1.2), scale=UNIT, bounds=(-1.0, 0.5))
    assert all(24 <= x <= 616 for x, _ in dots(drawing))
    assert min(line[0] for line in lines(drawing, "data")) > 24


GROUPS = [
    PlottedValue("small", 0.9, 0.5, 1.0, 10),
    PlottedValue("large", 0.5, 0.4, 0.6, 400),
    PlottedValue("middle", 0.75, 0.7, 0.8, 60, stands_out=True),
]


def test_groups_are_sorted_by_their_value() -> None:
    drawing = dot_plot("Groups", GROUPS, axis_label="exact_match", scale=UNIT)
    rows = [shape.text for shape in drawing.shapes if isinstance(shape, Text) and shape.x == 8 and shape.y < 90]
    assert rows == ["small", "middle", "large"]
    assert [text for text in texts(drawing) if text.startswith("n=")] == ["n=10", "n=60", "n=400"]
    axis = Axis(0, 1, 240, 450)
    assert dots(drawing) == [(axis.x(0.9), 24), (axis.x(0.5), 72)]
    (diamond,) = diamonds(drawing)
    assert diamond.points[0] == (axis.x(0.75), 48 - 8)
    assert diamond.fill == "second"
    assert lines(drawing, "data")[:2] == [(axis.x(0.5), 24, axis.x(1), 24), (axis.x(0.5), 19, axis.x(0.5), 29)]
    number = text_of(drawing, "0.900")
    assert (number.text, number.x) == ("0.900 (0.500 to 1.000)", 462)
    assert "diamond: differs from the rest of the instances (p < 0.05, Holm)" in texts(drawing)
    assert drawing.description.startswith("small (10 instances): 0.900 (0.500 to 1.000); middle (60 instances): 0.750")
    assert drawing.height == 12 + 72 + 4 + 46 + 24


def test_groups_of_one_value_are_sorted_by_name() -> None:
    rows = [PlottedValue(name, 0.5, count=5) for name in "bca"]
    drawing = dot_plot("Groups", rows, axis_label="x", scale=UNIT)
    assert drawing.description == ("a (5 instances): 0.500; b (5 instances): 0.500; c (5 instances): 0.500.")
    assert drawing.height == 12 + 72 + 4 + 46
    assert not any("diamond" in text for text in texts(drawing))


def test_the_score_of_all_is_a_dashed_line() -> None:
    drawing = dot_plot("Groups", GROUPS, axis_label="x", scale=UNIT, whole=0.5)
    (dashed,) = [shape for shape in drawing.shapes if isinstance(shape, Line) and shape.dashed]
    assert (dashed.x1, dashed.y1, dashed.x2, dashed.y2) == (345, 26, 345, 106)
    assert text_of(drawing, "all:").text == "all: 0.500"
    assert drawing.description.startswith("all instances: 0.500; small")
    wider = dot_plot("Groups", GROUPS[:1], axis_label="x", whole=0.1)
    assert next(shape.x1 for shape in wider.shapes if isinstance(shape, Line) and shape.dashed) > 240


@pytest.mark.parametrize(
    ("most", "elsewhere", "told"),
    [
        (3, 0, []),
        (2, 0, ["1 smaller group is not shown"]),
        (1, 1, ["2 smaller groups are not shown", "1 instance is in groups too small for a score, or in none"]),
        (3, 7, ["7 instances are in groups too small for a score, or in none"]),
    ],
)
def test_what_is_not_shown_is_told(most: int, elsewhere: int, told: list[str]) -> None:
    drawing = dot_plot("Groups", GROUPS, axis_label="x", scale=UNIT, most=most, elsewhere=elsewhere)
    feet = [text for text in texts(drawing) if "shown" in text or "too small" in text]
    assert feet == told
    assert all(text in drawing.description for text in told)
    assert "large" in texts(drawing)  # the largest stays
    assert max(shape.y for shape in drawing.shapes if isinstance(shape, Text)) < drawing.height


def test_a_difference_stands_beside_zero() -> None:
    row = PlottedValue("exact_match", 0.1, -0.05, 0.2, 500)
    drawing = difference_plot("Difference", [row], names=("A (one)", "B (two)"), axis_label="B minus A")
    axis = Axis(-0.23, 0.23, 240, 450)
    assert [*dots(drawing)[0]] == pytest.approx([axis.x(0.1), 42])
    zero = [
        shape for shape in drawing.shapes if isinstance(shape, Line) and (shape.colour, shape.width) == ("ink", 1.5)
    ]
    assert [(line.x1, line.x2) for line in zero] == [(345, 345)]
    worse, better = text_of(drawing, "A (one)"), text_of(drawing, "B (two)")
    assert (worse.text, worse.x, worse.anchor) == ("A (one) is better", 337, "end")
    assert (better.text, better.x, better.anchor) == ("B (two) is better", 353, "start")
    assert drawing.description == ("exact_match: 0.100 (-0.050 to 0.200); B (two) is better above zero, A (one) below.")
    assert drawing.height == 30 + 24 + 4 + 46
    assert not any(isinstance(shape, Rect) for shape in drawing.shapes)


def test_where_less_is_better_the_sides_change() -> None:
    drawing = difference_plot(
        "Difference", [PlottedValue("error", 0.1)], names=("A", "B"), axis_label="B minus A", higher_is_better=False
    )
    assert text_of(drawing, "B is").anchor == "end"
    assert text_of(drawing, "A is").anchor == "start"
    assert drawing.description.endswith("A is better above zero, B below.")


def test_a_margin_is_a_hatched_band_around_zero() -> None:
    drawing = difference_plot("Difference", [PlottedValue("x", 0.1)], names=("A", "B" * 99), axis_label="d", margin=0.2)
    (band,) = [shape for shape in drawing.shapes if isinstance(shape, Rect)]
    axis = Axis(-0.23, 0.23, 240, 450)
    assert [band.x, band.width] == pytest.approx([axis.x(-0.2), axis.x(0.2) - axis.x(-0.2)])
    assert (band.y, band.height) == (26, 32)
    told = "hatched: differences up to 0.200 (the margin)"
    assert told in texts(drawing)
    assert told in drawing.description
    assert drawing.height == 30 + 24 + 4 + 46 + 24
    long = text_of(drawing, "BBB")
    assert long.text.endswith("… is better")
    assert long.title == "B" * 99


def test_no_difference_at_all_has_a_plot() -> None:
    drawing = difference_plot("Difference", [PlottedValue("x", 0.0)], names=("A", "B"), axis_label="d")
    assert dots(drawing) == [(345, 42)]
