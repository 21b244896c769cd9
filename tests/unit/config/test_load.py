from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.load import interpolate, parse_overrides
from eval_factory.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1", {"a": {"b": 1}}), ("a.b=1,a.c=two", {"a": {"b": 1, "c": "two"}}),
        ("a=true,b=null,c=1.5", {"a": True, "b": None, "c": 1.5}),
        ('url="http://h/v1?x=1,y=2",n=3', {"url": "http://h/v1?x=1,y=2", "n": 3}),
        ("a=[1, 2],b={c: 3}", {"a": [1, 2], "b": {"c": 3}}), ("a=", {"a": ""}), ("a='1'", {"a": "1"}),
        ("url=http://h:80/v1", {"url": "http://h:80/v1"}),
    ],
)  # fmt: skip
def test_overrides(text: str, expected: dict[str, Any]) -> None:
    assert parse_overrides((text,)) == expected


def test_later_overrides_win() -> None:
    assert parse_overrides(("a.b=1", "a.b=2,a.c=3")) == {"a": {"b": 2, "c": 3}}


@pytest.mark.parametrize("text", ["novalue", "=1", "a..b=1", 'a="open'])
def test_broken_overrides(text: str) -> None:
    with pytest.raises(ConfigError, match="--overrides"):
        parse_overrides((text,))


def interpolated(tree: Any, env: dict[str, str]) -> tuple[Any, list[str]]:
    problems: list[str] = []
    return interpolate(tree, env, "", problems), problems


def test_interpolation() -> None:
    tree = {"a": "${X}", "b": ["pre-${X}-${Y:-dflt}"], "n": "${N}", "plain": 3, "jinja": "{{ 7*7 }}", "${X}": 1}
    done = {"a": "x", "b": ["pre-x-dflt"], "n": 12, "plain": 3, "jinja": "{{ 7*7 }}", "${X}": 1}
    assert interpolated(tree, {"X": "x", "N": "12"}) == (done, [])
    _, (problem,) = interpolated({"a": {"b": "${NOT_THERE}"}}, {})
    assert problem.startswith("a.b: the environment variable NOT_THERE is not set")


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
        *((url, url) for url in (f"https://h/v1{end}" for end in ("?sig=${ID}", ";sig=${ID}", "#sig=${ID}", "?sig=v2-${ID}", "#${GATEWAY_KEY}"))),
    ],
)  # fmt: skip
def test_a_secret_in_a_url_is_filled_in_by_who_sends_it(url: str, expected: str) -> None:
    def tree(url: str) -> dict[str, Any]:
        judges = [{"url": url}, {"url": ["http://h", url]}]
        return {
            "target": {"api_endpoint": {"url": url}}, "config": {"params": {"extra": {"judges": judges}}},
            "suite": {"targets": [{"api_endpoint": {"url": [url]}}]},
        }  # fmt: skip

    assert interpolated(tree(url), ENV) == (tree(expected), [])


def test_a_secret_in_a_request_is_filled_in_by_who_sends_it() -> None:
    fields = {
        "user_token": "${ID}", "tier": "${HOST}", "deep": [{"x": "a ${GATEWAY_KEY}"}], "api_key": ["${ID}", ["${ID}"]],
    }  # fmt: skip
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
    assert done["target"]["api_endpoint"] == {"adapter_config": {"params_to_add": kept}, "api_key": "t"}
    assert "LOST_KEY is not set" in problem
