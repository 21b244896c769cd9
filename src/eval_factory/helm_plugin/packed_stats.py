"""The statistics of one instance in a tenth of the memory: the values alone; names are shared by all instances.

HELM keeps some thirty `Stat` objects of nine fields for each instance and metric to the end of a run, about 12 kB. Of a
statistic that was taken of one value, all fields follow from that value by `Stat.add`; so they are made when somebody
looks at them, by HELM's own arithmetic, and given up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import copysign, sqrt
from struct import Struct
from typing import Any

Kind = Callable[[float], Any]
"""What a value is made of again when it was packed: its type."""

LARGEST = 2**53
"""A float holds every whole number up to here."""


def empty(_value: float) -> None:
    """The kind of a statistic that was taken of nothing."""


class Shape:
    """What instances of one sort have in common: the names of their statistics, and the types of the values."""

    __slots__ = ("_form", "_make", "kinds", "names")

    def __init__(self, names: tuple[Any, ...], kinds: tuple[Kind, ...], make: Callable[[Any], Any]) -> None:
        self.names, self.kinds, self._make = names, kinds, make
        self._form = Struct(f"={len(names)}d")

    def pack(self, values: Sequence[float]) -> bytes:
        return self._form.pack(*values)

    def values(self, packed: bytes) -> list[Any]:
        """None for a statistic that was taken of nothing."""
        return [kind(value) for kind, value in zip(self.kinds, self._form.unpack(packed), strict=True)]

    def stat(self, place: int, value: Any) -> Any:
        """HELM's own record, made anew."""
        return self._make(self.names[place]).add(value)


class PackedStats(Sequence[Any]):
    """A list of `Stat` that nobody changes. Its entries are made anew each time that they are looked at."""

    __slots__ = ("_packed", "shape")

    def __init__(self, shape: Shape, packed: bytes) -> None:
        self.shape, self._packed = shape, packed

    def __len__(self) -> int:
        return len(self.shape.names)

    def __iter__(self) -> Iterator[Any]:
        return map(self.shape.stat, range(len(self)), self.values())

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def values(self) -> list[Any]:
        """The number that each was taken of; None: of none."""
        return self.shape.values(self._packed)


class Packer:
    """Packs lists of `Stat`. Shapes and names are kept once; several threads may pack at the same time."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        """`make`: HELM's `Stat`, which is made of a name."""
        self._make = make
        self._shapes: dict[tuple[tuple[Kind, ...], tuple[Any, ...]], Shape] = {}

    def pack(self, stats: list[Any]) -> Sequence[Any]:
        """The same statistics in less memory; the list itself where one of them was not taken of a single number."""
        kinds, values = [], []
        for stat in stats:
            kind = kind_of(stat) if type(stat) is self._make else None
            if kind is None:
                return stats
            kinds.append(kind)
            values.append(0.0 if kind is empty else stat.min)
        key = tuple(kinds), tuple(stat.name for stat in stats)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes.setdefault(key, Shape(key[1], key[0], self._make))
        return PackedStats(shape, shape.pack(values))


def kind_of(stat: Any) -> Kind | None:
    """How a statistic is packed; None where `Stat(name).add(value)` would not give it again, field by field."""
    if stat.count == 0:
        unset = (stat.min, stat.max, stat.mean, stat.variance, stat.stddev) == (None,) * 5
        return empty if unset and _same(stat.sum, 0) and _same(stat.sum_squared, 0) else None
    value = stat.min
    kind = _number(value)
    if stat.count != 1 or kind is None or stat.max is not value:
        return None
    square, mean = value * value, value / 1
    variance = square / 1 - mean**2
    if variance < 0:
        variance = 0
    follows = (
        _same(stat.sum, 0 + value)
        and _same(stat.sum_squared, 0 + square)
        and _same(stat.mean, mean)
        and _same(stat.variance, variance)
        and _same(stat.stddev, sqrt(variance))
    )
    return kind if follows else None


def _number(value: Any) -> Kind | None:
    kind = type(value)
    if kind is int:
        return int if -LARGEST <= value <= LARGEST else None
    if kind is float or (kind.__module__ == "numpy" and kind.__name__ == "float64"):
        return None if value == 0 and copysign(1, value) < 0 else kind
    return None


def _same(one: object, other: object) -> bool:
    return one == other and type(one) is type(other)
