"""Statistics that are packed give again, field by field, what was packed; any other list stays as it is."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pytest

from eval_factory.helm_plugin.patches.slim_scoring import (
    _LARGEST,
    TOGETHER,
    PackedStats,
    Packer,
    add_all,
    runs_of,
    statistics_of,
)


@dataclass
class Stat:
    """HELM's arithmetic, of its `metrics/statistic.py`."""

    name: str
    count: int = 0
    sum: float = 0
    sum_squared: float = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    variance: float | None = None
    stddev: float | None = None

    def add(self, value: Any) -> Stat:
        if value is None:
            return self
        value = int(value) if isinstance(value, bool) else value
        self.sum += value
        self.sum_squared += value * value
        self.min = min(self.min, value) if self.min is not None else value
        self.max = max(self.max, value) if self.max is not None else value
        self.count += 1
        self.mean = self.sum / self.count
        variance = self.sum_squared / self.count - self.mean**2
        self.variance = 0 if variance < 0 else variance
        self.stddev = math.sqrt(self.variance)
        return self


def by_hand(stat: Stat, field: str, value: float) -> Stat:
    setattr(stat, field, value)
    return stat


def exactly(stats: Any) -> list[str]:
    """With types, and with the sign of a zero."""
    return [f"{[(repr(value), type(value)) for value in astuple(stat)]}" for stat in stats]


def test_what_was_packed_comes_out_again() -> None:
    source, packer = random.Random(0), Packer(Stat)  # noqa: S311 - invented numbers
    for _ in range(200):
        drawn = (source.gauss(0, 1e3), source.random(), np.float64(0.7))
        values = [0, 1, True, False, None, -3, _LARGEST, 0.0, 0.1, *drawn]
        stats = [Stat(f"s{number}").add(value) for number, value in enumerate(source.sample(values, k=6))]
        packed = packer.pack(stats)
        assert isinstance(packed, PackedStats)
        assert len(packed) == len(stats)
        assert exactly(packed) == exactly(stats) == exactly(packed[:])
        assert packed.values() == [stat.min for stat in stats]
        assert packed[1] == stats[1]


@pytest.mark.parametrize(
    "stat",
    [
        Stat("two values").add(1).add(2),
        Stat("twice the same").add(1).add(1),
        Stat("nan").add(float("nan")),
        Stat("infinite").add(float("inf")),
        Stat("sign of zero").add(-0.0),
        Stat("too large").add(_LARGEST + 1),
        Stat("too small").add(-_LARGEST - 1),
        Stat("another float").add(np.float32(0.5)),
        *(
            by_hand(Stat("by hand").add(2.5), field, value)
            for field, value in {
                "sum": 3.5, "sum_squared": 6.0, "max": 2.75, "mean": 1.0, "variance": 1, "stddev": 0.5, "count": 3,
            }.items()
        ),
        by_hand(Stat("type of the sum").add(2), "sum", 2.0),
        *(
            by_hand(Stat("not taken of anything"), field, 1.0)
            for field in ("sum", "sum_squared", "min", "max", "mean", "variance", "stddev")
        ),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_follow_from_one_number_stays_as_it_is(stat: Stat) -> None:
    stats = [Stat("a").add(1), stat]
    assert Packer(Stat).pack(stats) is stats


def test_names_are_kept_once_and_values_take_eight_bytes() -> None:
    packer = Packer(Stat)
    one, other, third = (packer.pack([Stat("a b"[:1]).add(value), Stat("c").add(0.5)]) for value in (1, 2, 1.0))
    assert isinstance(one, PackedStats) and isinstance(other, PackedStats) and isinstance(third, PackedStats)  # noqa: PT018
    assert one.shape is other.shape
    assert one.shape is not third.shape  # an int is written otherwise than a float
    many = packer.pack([Stat(f"s{number}").add(number) for number in range(1000)])
    assert isinstance(many, PackedStats)
    assert sys.getsizeof(many._packed) < 8 * 1000 + 100


def test_values_come_as_columns_of_instances_that_follow_each_other() -> None:
    packer = Packer(Stat)
    found = [packer.pack([Stat("a").add(number), Stat("none"), Stat("b").add(number / 7)]) for number in range(3)]
    several = [Stat("a").add(1).add(2)]
    others = [packer.pack([Stat("a").add(0.5)]), packer.pack(several), packer.pack([]), packer.pack([])]
    runs = list(runs_of([*found, *others, found[0]]))
    assert [len(run) for run in runs] == [3, 1, 1, 2, 1]
    assert runs[2] == [several]
    columns = {name: list(values) for name, values in statistics_of(runs[0])}
    assert columns == {"a": [0, 1, 2], "b": [0.0, 1 / 7, 2 / 7]}
    assert {type(value) for value in columns["a"]} == {int}
    assert list(statistics_of(runs[3])) == []


def test_no_more_than_a_few_are_taken_together() -> None:
    packer = Packer(Stat)
    packed = packer.pack([Stat("a").add(1)])
    assert [len(run) for run in runs_of([packed] * (TOGETHER + 1))] == [TOGETHER, 1]


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_columns_are_those_of_one_value_after_the_other(seed: int) -> None:
    source = random.Random(seed)  # noqa: S311 - invented numbers
    expected, total = Stat("a"), Stat("a")
    for _ in range(3):
        values = [source.choice([0, 1, source.gauss(0, 1e3), np.float64(source.random())]) for _ in range(40)]
        for value in values:
            expected.add(value)
        add_all(total, values)
    total.add(0), expected.add(0)  # what follows from the sums
    assert exactly([total]) == exactly([expected])


def test_statistics_are_packed_under_the_names_of_their_context() -> None:
    @dataclass(frozen=True)
    class Name:
        name: str
        split: str = ""

    def renamed(stat: Any, context: str) -> Name:
        return Name(stat.name.name, context)

    packer = Packer(Stat)
    stats = [Stat(Name("a", "own")).add(1), Stat(Name("b")).add(0.5)]  # type: ignore[arg-type]
    first, other, again = (packer.pack_in(stats, context, renamed) for context in ("test", "valid", "test"))
    assert [stat.name for stat in first or ()] == [Name("a", "test"), Name("b", "test")]
    assert [(stat.name, stat.sum) for stat in other or ()] == [(Name("a", "valid"), 1), (Name("b", "valid"), 0.5)]
    assert isinstance(first, PackedStats)
    assert isinstance(again, PackedStats)
    assert first.shape is again.shape
    assert packer.pack_in([Stat(Name("a")).add(1).add(2)], "test", renamed) is None  # type: ignore[arg-type]
