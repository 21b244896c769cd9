"""A frozen record is what a frozen dataclass is."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from functools import cached_property
from typing import Any

import pytest

from eval_factory.core.frozen_record import frozen_record


@frozen_record
class Point:
    """A record."""

    x: int
    names: tuple[str, ...] = ()
    secret: str = field(default="s", repr=False)
    note: str = field(default="", compare=False)

    @cached_property
    def double(self) -> int:
        return 2 * self.x


@frozen_record
class Other:
    """Another with the same fields."""

    x: int
    names: tuple[str, ...] = ()
    secret: str = "s"


@dataclass(frozen=True)
class Plain:
    """Python's own."""

    x: int
    names: tuple[str, ...] = ()
    secret: str = field(default="s", repr=False)
    note: str = field(default="", compare=False)


class Shown:
    """Has a text of its own."""

    def __repr__(self) -> str:
        return "shown"


@frozen_record
class Heir(Shown):
    """Keeps it."""

    x: int


def _error(change: Any) -> str:
    with pytest.raises(FrozenInstanceError) as caught:
        change()
    return str(caught.value)


@pytest.mark.parametrize("name", ["x", "note", "nonsense"])
def test_nothing_can_be_changed_or_deleted(name: str) -> None:
    record, plain = Point(1), Plain(1)
    assert _error(lambda: setattr(record, name, 2)) == _error(lambda: setattr(plain, name, 2))
    assert _error(lambda: delattr(record, name)) == _error(lambda: delattr(plain, name))
    assert (record.x, record.note) == (1, "")
    assert not hasattr(record, "nonsense")


def test_records_are_equal_if_the_fields_that_count_are() -> None:
    assert Point(1, ("a",)) == Point(1, ("a",), note="not compared")
    assert Point(1) != Point(2)
    assert Point(1) != Point(1, secret="t")
    assert Point(1).__eq__(Other(1)) is NotImplemented
    assert len({Point(1), Point(1, note="n"), Point(2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1, names=["a"]))  # type: ignore[arg-type]


def test_what_was_worked_out_once_does_not_count() -> None:
    asked = Point(1)
    assert asked.double == 2
    assert asked == Point(1)
    assert hash(asked) == hash(Point(1))
    assert repr(asked) == repr(Point(1))


def test_its_text_is_a_dataclasss_unless_it_has_one() -> None:
    assert repr(Point(1, ("a",))) == repr(Plain(1, ("a",))).replace("Plain", "Point")
    assert repr(Heir(1)) == "shown"


def test_a_copy_is_a_record_too() -> None:
    record = Point(1, ("a",))
    for same in (copy.deepcopy(record), pickle.loads(pickle.dumps(record)), replace(record)):  # noqa: S301
        assert same == record
        assert _error(lambda same=same: setattr(same, "x", 2))
    assert replace(record, x=3) == Point(3, ("a",))
