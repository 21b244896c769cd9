"""The statistics of one instance in a tenth of the memory: the values alone; names are shared by all instances.

HELM keeps some thirty `Stat` objects of nine fields for each instance and metric to the end of a run, about 12 kB. Of a
statistic that was taken of one value, all fields follow from that value by `Stat.add`; so they are made when somebody
looks at them, by HELM's own arithmetic, and given up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby, islice
from math import copysign, sqrt
from operator import add, mul
from struct import Struct
from typing import Any

Kind = Callable[[float], Any]
"""What a value is made of again when it was packed: its type."""

LARGEST = 2**53
"""A float holds every whole number up to here."""

TOGETHER = 1_000
"""Instances whose values are taken as columns at a time: a few hundred kilobytes."""


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

    def columns(self, packed: bytes) -> Iterator[tuple[int, Sequence[Any]]]:
        """Place and values of each statistic that was taken of something; `packed`: one instance after the other."""
        values = self._form.iter_unpack(packed) if self.kinds else ()
        for place, column in enumerate(zip(*values, strict=True)):
            kind = self.kinds[place]
            if kind is not empty:
                yield place, column if kind is float else [kind(value) for value in column]

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

    @property
    def packed(self) -> bytes:
        return self._packed


def runs_of(found: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    """Those that follow each other and have one shape, `TOGETHER` at most; what is not packed comes alone."""
    for shape, group in groupby(found, lambda stats: stats.shape if isinstance(stats, PackedStats) else None):
        while run := list(islice(group, 1 if shape is None else TOGETHER)):
            yield run


def columns_of(run: Sequence[PackedStats]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Name and values of each statistic that instances of one shape have."""
    shape = run[0].shape
    return ((shape.names[place], values) for place, values in shape.columns(b"".join(one.packed for one in run)))


def add_all(total: Any, values: Sequence[Any]) -> None:
    """`Stat.add` of one value after the other, but for what follows from the sums.

    Column by column, where HELM goes instance by instance: it refuses a name that an instance has twice.

    Not `sum()`: from Python 3.12 on it rounds less than HELM's additions do.
    """
    total.sum = reduce(add, values, total.sum)
    total.sum_squared = reduce(add, map(mul, values, values), total.sum_squared)
    least, most = min(values), max(values)
    if total.min is None or least < total.min:
        total.min = least
    if total.max is None or most > total.max:
        total.max = most
    total.count += len(values)


class Packer:
    """Packs lists of `Stat`. Shapes and names are kept once; several threads may pack at the same time."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        """`make`: HELM's `Stat`, which is made of a name."""
        self._make = make
        self._shapes: dict[Any, Shape] = {}

    def pack(self, stats: Sequence[Any]) -> Sequence[Any]:
        """The same statistics in less memory; what was given where one of them was not taken of a single number."""
        packed = self._packed(stats, lambda: tuple(stat.name for stat in stats), None)
        return stats if packed is None else packed

    def pack_in(self, stats: Sequence[Any], context: Any, renamed: Callable[[Any, Any], Any]) -> Sequence[Any] | None:
        """With other names; None where they cannot be packed.

        Args:
            context: with the `name` of a statistic's name, all that the new one depends on.
            renamed: a statistic and the context -> its new name.
        """
        names = tuple(stat.name.name for stat in stats)
        return self._packed(stats, lambda: tuple(renamed(stat, context) for stat in stats), (context, names))

    def _packed(self, stats: Sequence[Any], names: Callable[[], tuple[Any, ...]], key: Any) -> Sequence[Any] | None:
        kinds, values = [], []
        for stat in stats:
            kind = kind_of(stat) if type(stat) is self._make else None
            if kind is None:
                return None
            kinds.append(kind)
            values.append(0.0 if kind is empty else stat.min)
        named = key or names()
        shape = self._shapes.get((*kinds, named))
        if shape is None:
            shape = self._shapes.setdefault((*kinds, named), Shape(names(), tuple(kinds), self._make))
        return PackedStats(shape, shape.pack(values))


def kind_of(stat: Any) -> Kind | None:
    """How a statistic is packed; None where `Stat(name).add(value)` would not give it again, field by field."""
    value = stat.min
    if stat.count == 0:
        unset = (value, stat.max, stat.mean, stat.variance, stat.stddev) == (None,) * 5
        return empty if unset and _same((stat.sum, stat.sum_squared), (0, 0)) else None
    kind = _number(value)
    if stat.count != 1 or kind is None or stat.max is not value:
        return None
    square, mean = value * value, value / 1
    variance = square / 1 - mean**2
    if variance < 0:
        variance = 0
    found = (stat.sum, stat.sum_squared, stat.mean, stat.variance, stat.stddev)
    return kind if _same(found, (0 + value, 0 + square, mean, variance, sqrt(variance))) else None


def _number(value: Any) -> Kind | None:
    kind = type(value)
    if kind is int:
        return int if -LARGEST <= value <= LARGEST else None
    if kind is float or (kind.__module__ == "numpy" and kind.__name__ == "float64"):
        return None if value == 0 and copysign(1, value) < 0 else kind
    return None


def _same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    return found == expected and [*map(type, found)] == [*map(type, expected)]
