"""Values -> places on a drawing, with round numbers at the ticks, and numbers as a reader wants them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eval_factory.report.plots.drawing import FONT_SIZE, Line, Shape, Text, label

TICKS = 5
"""About so many steps."""
LABEL_HEIGHT = 46.0
"""Of ticks, their numbers and the axis' label, below the axis."""
_ROUND_STEPS = (1.0, 2.0, 5.0, 10.0)
_DIGITS_OF_SPAN = ((2.0, 3), (20.0, 2), (200.0, 1))
_MOST_TICKS = 50


@dataclass(frozen=True)
class Axis:
    """A linear axis from left to right."""

    low: float
    high: float
    left: float
    right: float

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)

    def number(self, value: float) -> str:
        """With as many digits as the axis' length is worth: 0.712 of 0 to 1, 3.85 of 1 to 5."""
        span = self.high - self.low
        digits = next((digits for most, digits in _DIGITS_OF_SPAN if span <= most), 0)
        if 0 < span < 0.02 or span >= 1e6:
            return f"{value:.4g}"
        shown = f"{value:.{digits}f}"
        return shown.removeprefix("-") if float(shown) == 0 else shown

    def ticks(self) -> list[float]:
        step = _round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, min(last, first + _MOST_TICKS) + 1)]

    def tick_text(self, value: float) -> str:
        return f"{0.0 if abs(value) < 1e-9 * (self.high - self.low) else value:.6g}"

    def shapes(self, top: float, bottom: float, name: str) -> Iterator[Shape]:
        """Grid lines from `top` to the axis at `bottom`; below it numbers and the axis' name."""
        for tick in self.ticks():
            x = self.x(tick)
            yield Line(x, top, x, bottom, "grid")
            yield Line(x, bottom, x, bottom + 4, "ink")
            yield Text(x, bottom + 6 + FONT_SIZE, self.tick_text(tick), "middle")
        yield Line(self.left, bottom, self.right, bottom, "ink")
        room = self.right - self.left
        yield label((self.left + self.right) / 2, bottom + 40, name, room, anchor="middle")


def axis_of(
    values: Iterable[float | None], left: float, right: float, scale: tuple[float, float] | None = None
) -> Axis:
    """An axis over its scale and all values; without a scale over the values, with a margin, from 0 at the least where
    nothing is below it."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if scale is not None:
        known += scale
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if scale is None or low == high:
        margin = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
        low, high = low - margin if low < 0 else max(0.0, low - margin), high + margin
    return Axis(low, high, left, right)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in _ROUND_STEPS if power * factor >= rough * (1 - 1e-9))
