"""Values -> places, ticks and numbers."""

from __future__ import annotations

import math

import pytest

from eval_factory.report.drawing import Line, Text
from eval_factory.report.plot_kinds import Axis, axis_of


def test_a_value_has_its_place() -> None:
    axis = Axis(1, 5, 100, 300)
    assert [axis.x(value) for value in (1, 2, 5)] == [100, 150, 300]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (1, 5, [1, 2, 3, 4, 5]),
        (-0.13, 0.13, [-0.1, 0, 0.1]),
        (0, 96, [0, 20, 40, 60, 80]),
        (0, 7.3, [0, 2, 4, 6]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert Axis(low, high, 0, 1).ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high", "value", "told"),
    [
        (0, 1, 0.71249, "0.712"),
        (-1, 1, -0.0001, "0.000"),
        (1, 5, 3.849, "3.85"),
        (0, 20, 2, "2.00"),
        (0, 100, 12.34, "12.3"),
        (0, 1000, 12.6, "13"),
        (0, 0.01, 0.001234, "0.001234"),
        (0, 2e6, 1234567.0, "1.235e+06"),
    ],
)
def test_numbers_have_the_digits_that_the_axis_is_worth(low: float, high: float, value: float, told: str) -> None:
    assert Axis(low, high, 0, 1).number(value) == told


def test_zero_is_zero_at_its_tick() -> None:
    axis = Axis(-0.3, 0.3, 100, 200)
    assert [shape.text for shape in axis.shapes(0, 1, "x") if isinstance(shape, Text)] == ["-0.2", "0", "0.2", "x"]


def ends(*values: float | None, scale: tuple[float, float] | None = None) -> tuple[float, float]:
    axis = axis_of(values, 10, 90, scale)
    assert (axis.left, axis.right) == (10, 90)
    return axis.low, axis.high


def test_an_axis_holds_its_scale_and_all_values() -> None:
    assert ends(0.3, None, scale=(0, 1)) == (0, 1)
    assert ends(-0.5, 1.5, scale=(0, 1)) == (-0.5, 1.5)
    assert ends(math.nan, math.inf, scale=(1, 5)) == (1, 5)


def test_without_a_scale_there_is_a_margin() -> None:
    assert ends(10, 20) == pytest.approx((9.2, 20.8))
    assert ends(-1, 1) == pytest.approx((-1.16, 1.16))
    assert ends(0, 10) == pytest.approx((0, 10.8))  # what is never negative has no axis below 0
    assert ends(4, 4) == pytest.approx((3.6, 4.4))
    assert ends(0) == pytest.approx((0, 1))
    assert ends(0, scale=(0, 0)) == (0, 1)
    assert ends() == pytest.approx((0, 1.08))


def test_shapes_of_an_axis() -> None:
    shapes = list(Axis(0, 1, 100, 200).shapes(10, 50, "exact_match"))
    grid = [shape for shape in shapes if isinstance(shape, Line) and shape.colour == "grid"]
    assert [(line.x1, line.y1, line.x2, line.y2) for line in grid][:2] == [(100, 10, 100, 50), (120, 10, 120, 50)]
    texts = [(shape.text, shape.x, shape.y) for shape in shapes if isinstance(shape, Text)]
    assert texts[0] == ("0", 100, 69)
    assert texts[-1] == ("exact_match", 150, 90)
    long = list(Axis(0, 1, 100, 200).shapes(10, 50, "x" * 99))[-1]
    assert isinstance(long, Text)
    assert len(long.text) == 36  # 284 of 300 pixels around the middle: 8 stay free at the edge
    near = list(Axis(0, 1, 540, 560).shapes(10, 50, "x" * 99))[-1]
    assert isinstance(near, Text)
    assert len(near.text) == 21  # 164 of 180, on the other side
    assert Line(100, 50, 200, 50, "ink") in shapes
    assert Line(120, 50, 120, 54, "ink") in shapes
