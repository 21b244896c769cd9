"""Packages that are imported when something of theirs is first used.

HELM's modules import large packages at their top (nltk with scikit-learn and pandas, `datasets` with pyarrow) for
functions that most runs never call. A finder before the usual ones gives such a package, and each of its modules, an
empty module whose names are placeholders; the first use of a placeholder imports the real package and forgets the
empty ones.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from importlib import util
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_MISSING = object()
_RESOLVED_DUNDERS = frozenset({"__version__", "__all__", "__doc__"})


class Deferred:
    """A function, class or object of a module that is not imported yet."""

    def __init__(self, module: str, name: str) -> None:
        self.__dict__.update(_module=module, _name=name, _value=_MISSING)

    def _resolved(self) -> Any:
        value = self.__dict__["_value"]
        if value is _MISSING:
            value = _member(self.__dict__["_module"], self.__dict__["_name"])
            self.__dict__["_value"] = value
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._resolved()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resolved(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._resolved(), name, value)

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._resolved(),)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._resolved())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._resolved())

    def __getitem__(self, key: Any) -> Any:
        return self._resolved()[key]

    def __iter__(self) -> Any:
        return iter(self._resolved())

    def __contains__(self, item: Any) -> bool:
        return item in self._resolved()

    def __or__(self, other: Any) -> Any:
        return self._resolved() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._resolved()


class LazyModule(types.ModuleType):
    """Stands for a module until one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _RESOLVED_DUNDERS:
            raise AttributeError(name)
        real = sys.modules.get(self.__name__)
        if real is not None and real is not self:
            return getattr(real, name)
        if name in _RESOLVED_DUNDERS:
            return getattr(_real_module(self.__name__), name)
        return Deferred(self.__name__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """The import system's own names stay here; a replaced function belongs into the real module."""
        if name.startswith("__") or isinstance(value, LazyModule):
            super().__setattr__(name, value)
        else:
            setattr(_real_module(self.__name__), name, value)


class _LazyLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return LazyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing: that is the point."""


class _LazyFinder(MetaPathFinder):
    def __init__(self, roots: Iterable[str]) -> None:
        self.roots = set(roots)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.roots:
            return None
        real = PathFinder.find_spec(fullname, path)
        if real is None:
            return None
        is_package = real.submodule_search_locations is not None
        spec = ModuleSpec(fullname, _LazyLoader(), origin=real.origin, is_package=is_package)
        if is_package:
            spec.submodule_search_locations = real.submodule_search_locations
        return spec


_finder = _LazyFinder(())
_after_import: dict[str, Callable[[], None]] = {}


def defer(roots: Iterable[str]) -> None:
    """Import the packages `roots` at first use only; those already imported stay as they are."""
    _finder.roots.update(root for root in roots if root not in sys.modules)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def is_deferred(root: str) -> bool:
    """Whether the package `root` would be imported at first use, and was not yet."""
    return _finder in sys.meta_path and root in _finder.roots


def when_imported(root: str, then: Callable[[], None]) -> None:
    """Call `then` as soon as the package `root` is really there; it may be called more than once."""
    if root in sys.modules and not isinstance(sys.modules[root], LazyModule):
        then()
    else:
        _after_import[root] = then


def _member(module: str, name: str) -> Any:
    """What `from module import name` gives: a module of a package need not be imported yet."""
    real = _real_module(module)
    try:
        return getattr(real, name)
    except AttributeError:
        if not hasattr(real, "__path__") or util.find_spec(f"{module}.{name}") is None:
            raise
        return importlib.import_module(f"{module}.{name}")


def _real_module(name: str) -> types.ModuleType:
    """The real module. Any number of threads may ask: the import system has its own locks."""
    root = name.partition(".")[0]
    _finder.roots.discard(root)
    for loaded, module in sys.modules.copy().items():  # of list(), a thread that imports can make a RuntimeError
        if isinstance(module, LazyModule) and loaded.partition(".")[0] == root:
            sys.modules.pop(loaded, None)
    module = importlib.import_module(name)
    then = _after_import.get(root)
    if then is not None:
        then()
    return module
