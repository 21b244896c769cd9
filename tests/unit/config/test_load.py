"""Texts, mappings and variables, as what a run config holds."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from eval_factory.config.evaluation import as_tuple, request_of_arguments
from eval_factory.config.load import as_yaml_values, interpolate, parse_overrides
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import MAX_LEVELS
from facts import naming, says


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1", {"a": {"b": 1}}),
        ("a.b=1|a.b=2,a.c=3", {"a": {"b": 2, "c": 3}}),
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
    assert parse_overrides(tuple(text.split("|"))) == expected


@pytest.mark.parametrize("text", ["novalue", "=1", "a..b=1", 'a="open'])
def test_broken_overrides(text: str) -> None:
    with pytest.raises(ConfigError, match="--overrides"):
        parse_overrides((text,))


def interpolated(tree: Any, env: dict[str, str]) -> tuple[Any, list[str]]:
    problems: list[str] = []
    return interpolate(tree, env, "", problems), problems


def test_interpolation() -> None:
    tree = {
        "a": "${X}",
        "b": ["pre-${X}-${Y:-dflt}"],
        "n": "${N}",
        "plain": 3,
        "jinja": "{{ 7*7 }}",
        "${X}": 1,
    }
    done = {"a": "x", "b": ["pre-x-dflt"], "n": 12, "plain": 3, "jinja": "{{ 7*7 }}", "${X}": 1}
    assert interpolated(tree, {"X": "x", "N": "12"}) == (done, [])
    _, (problem,) = interpolated({"a": {"b": "${NOT_THERE}"}}, {})
    says(problem, "a.b: ", "NOT_THERE is not set")


ENV = {"GATEWAY_KEY": "k-1", "HOST": "host", "ID": "i", "TOKEN": "t"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://${HOST}:8000/v1", "http://host:8000/v1"),
        ("http://h/v1?key=${GATEWAY_KEY}", "http://h/v1?key=${GATEWAY_KEY}"),
        ("http://h/v1?a=${HOST}&api-key=${ID}", "http://h/v1?a=host&api-key=${ID}"),
        ("http://h/${GATEWAY_KEY:-none}/v1", "http://h/${GATEWAY_KEY}/v1"),
        ("http://h/v1?key=${OTHER_KEY:-none}", "http://h/v1?key=none"),
        ("http://${TOKEN}/v1", "http://t/v1"),
        *(
            (url, url)
            for url in (
                f"https://h/v1{end}"
                for end in (
                    "?sig=${ID}",
                    ";sig=${ID}",
                    "#sig=${ID}",
                    "?sig=v2-${ID}",
                    "#${GATEWAY_KEY}",
                )
            )
        ),
    ],
)
def test_a_secret_in_a_url_is_filled_in_by_who_sends_it(url: str, expected: str) -> None:
    def tree(url: str) -> dict[str, Any]:
        judges = [{"url": url}, {"url": ["http://h", url]}]
        return {
            "target": {"api_endpoint": {"url": url}},
            "config": {"params": {"extra": {"judges": judges}}},
            "suite": {"targets": [{"api_endpoint": {"url": [url]}}]},
        }

    assert interpolated(tree(url), ENV) == (tree(expected), [])


def test_a_secret_in_a_request_is_filled_in_by_who_sends_it() -> None:
    fields = {
        "user_token": "${ID}",
        "tier": "${HOST}",
        "deep": [{"x": "a ${GATEWAY_KEY}"}],
        "api_key": ["${ID}", ["${ID}"]],
    }
    tree = {
        "target": {
            "api_endpoint": {
                "adapter_config": {"params_to_add": {**fields, "lost_key": "${LOST_KEY}"}},
                "api_key": "${TOKEN}",
            }
        }
    }
    done, (problem,) = interpolated(tree, ENV)
    kept = {**fields, "tier": "host", "lost_key": None}
    assert done["target"]["api_endpoint"] == {
        "adapter_config": {"params_to_add": kept},
        "api_key": "t",
    }
    assert "LOST_KEY is not set" in problem


class Kind(str, enum.Enum):
    CHAT = "chat"


class Folder:
    def __fspath__(self) -> bytes:
        return b"of/bytes"


@pytest.mark.parametrize(
    ("value", "plain", "kind"),
    [
        ("text", "text", str),
        (np.str_("text"), "text", str),
        (Kind.CHAT, "chat", str),
        (Path("a/b"), "a/b", str),
        pytest.param(Folder(), "of/bytes", str, id="path-like"),
        (7, 7, int),
        (np.int64(7), 7, int),
        (0.5, 0.5, float),
        (np.float32(0.5), 0.5, float),
        (Fraction(1, 2), 0.5, float),
        (True, True, bool),
        (None, None, type(None)),
        ((1, Path("x")), [1, "x"], list),
        ([(), {}], [[], {}], list),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}, dict),
        (MappingProxyType({"a": MappingProxyType({"b": 1})}), {"a": {"b": 1}}, dict),
    ],
    ids=str,
)
def test_what_programs_have_becomes_what_a_file_would_hold(
    value: Any, plain: Any, kind: type
) -> None:
    found = as_yaml_values({"config": {"x": value}})["config"]["x"]
    assert found == plain
    assert type(found) is kind


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"a": {"sk-secret"}},
            "config.a: is of the type set; a run config holds texts, numbers, true, false, null",
        ),
        ({"b": [1, b"sk-secret"]}, "config.b[1]: is of the type bytes"),
        ({"d": np.array([1])}, "config.d: is of the type ndarray"),
        ({"n": float("nan")}, "config.n: must be a finite number"),
    ],
)
def test_a_value_that_no_file_could_hold_is_named_and_not_shown(
    wrong: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as told:
        as_yaml_values({"config": wrong})
    assert str(told.value).startswith(said)
    assert "secret" not in str(told.value)


def test_how_deep_it_may_be() -> None:
    def nest_paths(levels: int) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for _ in range(levels - 1):
            document = {"config": document}
        return document

    assert as_yaml_values(nest_paths(MAX_LEVELS)) == nest_paths(MAX_LEVELS)
    with pytest.raises(ConfigError, match=naming("config: is nested", "50 levels")):
        as_yaml_values(nest_paths(MAX_LEVELS + 1))


def test_a_flag_that_no_file_could_hold() -> None:
    with pytest.raises(ConfigError, match="of the type"):
        request_of_arguments(None, None, {"config.type": object()}, [])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ab", ("ab",)),
        (Path("a/b"), (Path("a/b"),)),
        (["a", "b"], ("a", "b")),
        (iter("ab"), ("a", "b")),
        ((), ()),
    ],
)
def test_one_alone_is_a_list_of_one(given: Any, expected: tuple[Any, ...]) -> None:
    assert as_tuple(given) == expected


def test_a_variable_in_a_header_is_a_secret_whatever_its_name() -> None:
    headers = {"a": "${PLAIN}", "b": "x-${PLAIN}", "c": "${NOT_SET:-d}"}
    for tree in (
        {"target": {"api_endpoint": {"headers": headers}}},
        {"config": {"params": {"extra": {"judges": [{"headers": headers}]}}}},
    ):
        done, problems = interpolated(tree, {"PLAIN": "value"})
        assert problems == []
        assert "value" not in str(done)
        assert "${PLAIN}" in str(done)
        assert "'c': 'd'" in str(done)
