"""`@frozen_record`: what `@dataclass(frozen=True)` makes of a class, in a quarter of the time.

`dataclass` compiles six methods for each class that it meets, which was a tenth of a dry run. Only `__init__` differs
so much from class to class that it has to be compiled: the others stand here, once. An instance takes a little longer:
for records of which there are many thousands, a dataclass is better.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Type checkers alone look at it, and typing_extensions takes long to import."""
        return lambda decorator: decorator


Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen_record(kind: type[Kind]) -> type[Kind]:
    """A dataclass whose instances do not change, are equal if their fields are, and can be hashed if these can be.

    A `__repr__` of the class, or of one that it inherits from, is kept. What inherits from it is no frozen dataclass.
    """
    for name in ("__setattr__", "__delattr__", "__eq__", "__hash__"):
        setattr(kind, name, vars(_Methods)[name])
    if kind.__repr__ is object.__repr__:
        kind.__repr__ = _Methods.__repr__  # type: ignore[method-assign, assignment]
    return dataclass(eq=False, repr=False)(kind)


class _Methods:
    """The same for every record."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __setattr__(self, name: str, value: object) -> None:
        """`__init__` gives each field its value; nothing does so a second time."""
        if name in self.__dict__ or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        values = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"


def _values(record: Any) -> tuple[Any, ...]:
    """Of its fields: beside them an instance may hold what it worked out once (`cached_property`)."""
    return tuple(getattr(record, one.name) for one in fields(record) if one.compare)
