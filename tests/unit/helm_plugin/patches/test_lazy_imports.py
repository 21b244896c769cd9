"""Packages that are imported at first use: a made-up one, each time under another name."""

from __future__ import annotations

import importlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eval_factory.helm_plugin.patches import lazy_imports

_numbers = itertools.count()
Package = Callable[[], str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Makes packages with a function, a class, a constant and a module inside; each is deferred."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def make() -> str:
        name = f"made_up_{next(_numbers)}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(
            f"from {name}.inside import double\n__version__ = '7'\nLIMITS = [1, 2]\n\n\n"
            "class Base:\n    word = 'real'\n"
        )
        (folder / "inside.py").write_text("def double(number):\n    return 2 * number\n")
        (folder / "beside.py").write_text("WORD = 'imported by nobody'\n")
        importlib.invalidate_caches()
        lazy_imports.defer([name])
        made.append(name)
        return name

    yield make
    for name in made:
        lazy_imports._finder.roots.discard(name)
        for loaded in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[loaded]
    sys.meta_path.remove(lazy_imports._finder)


def is_real(name: str) -> bool:
    return type(sys.modules[name]) is ModuleType


def test_imported_at_the_first_call_only(package: Package) -> None:
    name = package()
    module = importlib.import_module(f"{name}.inside")
    double = module.double
    assert not is_real(name)
    assert double(4) == 8
    assert is_real(name)
    assert module.double is sys.modules[f"{name}.inside"].double


def test_a_module_of_a_package_that_the_package_itself_does_not_import(package: Package) -> None:
    name = package()
    beside = importlib.import_module(name).beside
    assert not is_real(name)
    assert beside.WORD == "imported by nobody"
    assert is_real(f"{name}.beside")
    name = package()
    missing, of_a_module = importlib.import_module(name).missing, importlib.import_module(f"{name}.inside").missing
    for deferred in (missing, of_a_module):
        with pytest.raises(AttributeError, match="missing"):
            deferred.anything()


def test_class_as_base_and_in_isinstance(package: Package) -> None:
    base = importlib.import_module(package()).Base

    class Derived(base):  # type: ignore[misc, valid-type]
        pass

    assert Derived.word == "real"
    assert isinstance(Derived(), base)
    assert not isinstance(3, base)
    assert issubclass(Derived, base)


def test_constants_and_version(package: Package) -> None:
    module = importlib.import_module(package())
    limits = module.LIMITS
    assert (list(limits), limits[1], 2 in limits, module.__version__) == ([1, 2], 2, True, "7")


def test_what_is_not_there_is_not_found(package: Package) -> None:
    name = package()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{name}.elsewhere")
    with pytest.raises(AttributeError):
        importlib.import_module(name).nothing()
    lazy_imports.defer(["made_up_and_never_made"])
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("made_up_and_never_made")


def test_a_replaced_function_is_replaced_in_the_real_module(package: Package) -> None:
    name = package()
    inside: Any = importlib.import_module(f"{name}.inside")
    inside.double = lambda number: -number
    assert is_real(name)
    assert sys.modules[f"{name}.inside"].double(3) == -3


def test_told_when_it_is_imported(package: Package) -> None:
    name, told = package(), []
    assert lazy_imports.is_deferred(name)
    lazy_imports.when_imported(name, lambda: told.append(name))
    module = importlib.import_module(name)
    assert told == []
    module.double(1)
    assert told == [name]
    assert not lazy_imports.is_deferred(name)


def test_many_threads_at_once(package: Package) -> None:
    name = package()
    double = importlib.import_module(f"{name}.inside").double
    start, results = threading.Barrier(8), []

    def use() -> None:
        start.wait()
        results.append(double(2))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == [4] * 8


def test_what_is_imported_already_stays(package: Package) -> None:
    lazy_imports.defer(["json"])
    assert type(importlib.import_module("json.decoder")) is ModuleType
    package()  # so that the fixture has something to clean up
