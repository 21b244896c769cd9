"""pydantic without its search for plug-ins, yaml without the pattern of its reader in Python."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from types import ModuleType
from typing import Any

import pytest

from eval_factory.cli import slim_imports
from eval_factory.cli.slim_imports import METADATA, import_pydantic, import_slim, import_yaml

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
    monkeypatch.setattr(slim_imports, "import_module", imported)
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

    monkeypatch.setattr(slim_imports, "import_module", not_there)
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


@pytest.fixture
def no_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has imported nothing of it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "yaml"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("no_yaml")
def test_the_reader_in_python_finds_what_it_found() -> None:
    compile_at_once = re.compile
    import_slim()
    assert re.compile is compile_at_once
    yaml: Any = sys.modules["yaml"]
    pattern = yaml.reader.Reader.NON_PRINTABLE
    assert not isinstance(pattern, re.Pattern)
    assert isinstance(yaml.resolver.Resolver.yaml_implicit_resolvers["t"][0][1], re.Pattern), "others are compiled"
    assert yaml.load("a: [é, \U0001f600]", Loader=yaml.SafeLoader) == {"a": ["é", "\U0001f600"]}
    with pytest.raises(yaml.reader.ReaderError, match="#x0007: special characters are not allowed") as raised:
        yaml.load("ab\x07", Loader=yaml.SafeLoader)
    assert raised.value.position == 2


def test_yaml_is_not_imported_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", ModuleType("yaml"))
    monkeypatch.setattr(slim_imports, "import_module", lambda name: pytest.fail(f"{name} is imported"))
    import_yaml()


@pytest.mark.usefixtures("no_yaml")
def test_patterns_are_compiled_again_where_yaml_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> ModuleType:
        assert not isinstance(re.compile("\U0010ffff"), re.Pattern)
        assert isinstance(re.compile("a", flags=re.IGNORECASE), re.Pattern)
        assert re.compile(b"a").search(b"a")
        raise ImportError("no yaml")

    compile_at_once = re.compile
    monkeypatch.setattr(slim_imports, "import_module", broken)
    with pytest.raises(ImportError, match="no yaml"):
        import_yaml()
    assert re.compile is compile_at_once
