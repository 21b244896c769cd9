from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.load import interpolate, load_run_config, parse_overrides
from eval_factory.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1", {"a": {"b": 1}}),
        ("a.b=1,a.c=two", {"a": {"b": 1, "c": "two"}}),
        ("a=true,b=null,c=1.5", {"a": True, "b": None, "c": 1.5}),
        ('url="http://h/v1?x=1,y=2",n=3', {"url": "http://h/v1?x=1,y=2", "n": 3}),
        ("a=[1, 2],b={c: 3}", {"a": [1, 2], "b": {"c": 3}}),
        ("a=", {"a": ""}),
        ("a='1'", {"a": "1"}),
        ("url=http://h:80/v1", {"url": "http://h:80/v1"}),
    ],
)
def test_overrides(text: str, expected: dict[str, Any]) -> None:
    assert parse_overrides((text,)) == expected


def test_later_overrides_win() -> None:
    assert parse_overrides(("a.b=1", "a.b=2,a.c=3")) == {"a": {"b": 2, "c": 3}}


@pytest.mark.parametrize("text", ["novalue", "=1", "a..b=1", 'a="open'])
def test_broken_overrides(text: str) -> None:
    with pytest.raises(ConfigError, match="--overrides"):
        parse_overrides((text,))


def test_interpolation() -> None:
    problems: list[str] = []
    tree = {"a": "${X}", "b": ["pre-${X}-${Y:-dflt}"], "n": "${N}", "plain": 3, "jinja": "{{ 7*7 }}", "${X}": 1}
    done = interpolate(tree, {"X": "x", "N": "12"}, "", problems)
    assert done == {"a": "x", "b": ["pre-x-dflt"], "n": 12, "plain": 3, "jinja": "{{ 7*7 }}", "${X}": 1}
    assert problems == []


def test_interpolation_names_what_is_not_set() -> None:
    problems: list[str] = []
    interpolate({"a": {"b": "${NOT_THERE}"}}, {}, "", problems)
    assert len(problems) == 1
    assert problems[0].startswith("a.b: the environment variable NOT_THERE is not set")


def test_not_text(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a UTF-8 text"):
        load_run_config(file)
    with pytest.raises(ConfigError, match="is a folder"):
        load_run_config(tmp_path)
    with pytest.raises(ConfigError, match="no such file"):
        load_run_config(tmp_path / "none.yml")
