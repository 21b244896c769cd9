"""yaml without the pattern of its reader in Python."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest

from eval_factory.cli import yaml_import
from eval_factory.cli.yaml_import import import_yaml


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has imported nothing of it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "yaml"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("fresh")
def test_the_reader_in_python_finds_what_it_found() -> None:
    compile_at_once = re.compile
    import_yaml()
    assert re.compile is compile_at_once
    yaml: Any = sys.modules["yaml"]
    pattern = yaml.reader.Reader.NON_PRINTABLE
    assert not isinstance(pattern, re.Pattern)
    assert isinstance(yaml.resolver.Resolver.yaml_implicit_resolvers["t"][0][1], re.Pattern), "others are compiled"
    assert yaml.load("a: [é, \U0001f600]", Loader=yaml.SafeLoader) == {"a": ["é", "\U0001f600"]}
    with pytest.raises(yaml.reader.ReaderError, match="#x0007: special characters are not allowed") as raised:
        yaml.load("ab\x07", Loader=yaml.SafeLoader)
    assert raised.value.position == 2


def test_nothing_is_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", ModuleType("yaml"))
    monkeypatch.setattr(yaml_import, "import_module", lambda name: pytest.fail(f"{name} is imported"))
    import_yaml()


@pytest.mark.usefixtures("fresh")
def test_patterns_are_compiled_again_where_yaml_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> ModuleType:
        assert not isinstance(re.compile("\U0010ffff"), re.Pattern)
        assert isinstance(re.compile("a", re.IGNORECASE), re.Pattern)
        assert re.compile(b"a").search(b"a")
        raise ImportError("no yaml")

    compile_at_once = re.compile
    monkeypatch.setattr(yaml_import, "import_module", broken)
    with pytest.raises(ImportError, match="no yaml"):
        import_yaml()
    assert re.compile is compile_at_once
