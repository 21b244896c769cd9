"""pydantic without its search for plug-ins."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType

import pytest

from eval_factory.cli import pydantic_import
from eval_factory.cli.pydantic_import import METADATA, import_pydantic

REAL = importlib.metadata


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """A process that has imported neither; what stands in for the metadata while pydantic's loader is imported."""
    seen: list[ModuleType] = []

    def imported(name: str) -> ModuleType:
        if name == METADATA:
            return REAL
        assert name == "pydantic.plugin._loader"
        seen.append(sys.modules[METADATA])
        return seen[-1]

    monkeypatch.delitem(sys.modules, METADATA)
    monkeypatch.delitem(sys.modules, "pydantic")
    monkeypatch.setattr(pydantic_import, "import_module", imported)
    return seen


def test_the_metadata_are_stood_in_for_while_pydantic_is_imported_and_no_longer(
    fresh: list[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    import_pydantic()
    (later,) = fresh
    assert later is not REAL
    assert METADATA not in sys.modules
    monkeypatch.setattr(REAL, "entry_points", lambda **wanted: wanted)
    assert later.entry_points(group="pydantic") == {"group": "pydantic"}


def test_another_pydantic_is_imported_as_usual(fresh: list[ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(pydantic_import, "import_module", not_there)
    import_pydantic()
    assert METADATA not in sys.modules
    assert fresh == []


@pytest.mark.parametrize("there", [METADATA, "pydantic"])
def test_nothing_is_done_twice(fresh: list[ModuleType], monkeypatch: pytest.MonkeyPatch, there: str) -> None:
    module = ModuleType(there)
    monkeypatch.setitem(sys.modules, there, module)
    import_pydantic()
    assert fresh == []
    assert sys.modules[there] is module
