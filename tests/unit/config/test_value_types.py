"""The types of values in configurations, value by value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from eval_factory.config.model import Judge
from eval_factory.config.value_types import (
    RESERVED_HEADERS,
    Headers,
    OneLineText,
    Role,
    Url,
    urls_in,
)
from facts import refusal, says


def taken(kind: Any, value: object) -> object:
    return TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("demo://other", "the embedded endpoint is demo://baseline"),
        (
            "host/v1",
            "needs a scheme: https://... or http://..., or demo://baseline",
        ),
        ("ftp://host", "needs a scheme"),
        ("https:///v1", "names no host"),
        ("https://me:word@host/v1", "must not hold a user name or password (they are not shown)"),
        ("https://me@host/v1", "must not hold a user name or password"),
        ("https://h:99999/v1", "has a port that is not a number from 0 to 65535"),
        ("https://h:x/v1", "has a port that is not a number"),
        (
            "https://h/v1?key=9bQzCANARY7Kd0PL",
            "must not hold a secret (its field 'key' is not shown)",
        ),
        ([], "is an empty list; it needs the URL of at least one server"),
        (
            ["https://a", "https://b", "https://A/chat/completions/"],
            "the same server twice: https://a and https://A/chat",
        ),
        (
            ["https://a/chat/completions", "https://b/completions"],
            "URLs of chat and completions; all have to be of one",
        ),
        (["https://a", "host/v1"], "number 2 of the list: needs a scheme"),
        (
            ["https://a", "https://me:word@host/v1"],
            "number 2 of the list: must not hold a user name or password",
        ),
        (["https://a", 5], "must be a URL, or a list of URLs; number 2 of the list is not a URL"),
        (["https://a", "demo://baseline"], "hold only http:// and https:// URLs"),
        ({"a": "https://a"}, "must be text"),
        (7, "must be text"),
    ],
)
def test_urls_and_lists_of_them_that_are_none(url: object, said: str) -> None:
    told = refusal(Url, url)
    assert said in told
    assert "CANARY" not in told
    assert "word@" not in told


@pytest.mark.parametrize(
    "url",
    [
        "https://host/v1",
        "http://127.0.0.1:8000",
        "demo://baseline",
        "https://h:65535/v1?api-version=1",
        "https://h/v1?key=${GATEWAY_KEY}",
        ["https://a/v1", "http://b"],
    ],
)
def test_urls_of_endpoints(url: str | list[str]) -> None:
    assert taken(Url, url) == url


def test_several_servers_of_one_model() -> None:
    assert taken(Url, ["https://a/v1"]) == "https://a/v1"
    assert taken(Url, ["https://a/v1/chat/completions", "http://b/v1"]) != []
    assert taken(Url, ["https://a/one/v1", "https://a/two/v1"]) != []
    assert Judge(name="j", model_id="m", url=["https://a", "https://b"]).url == [
        "https://a",
        "https://b",
    ]
    assert [urls_in(url) for url in (None, "a", ["a", "b"])] == [(), ("a",), ("a", "b")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "must not be empty"),
        (" \t", "must not be empty"),
        ("a\nb", "one line"),
        ("a\x1f", "one line"),
    ],
)
def test_lines(value: str, said: str) -> None:
    assert said in refusal(OneLineText, value)
    assert taken(OneLineText, "a b é\x7f") == "a b é\x7f"
    assert "valid string" in refusal(OneLineText, 5)


@pytest.mark.parametrize("name", ["model", "Gpt", "2a", "-a", "a b", "", "a" + "b" * 41, "a\n"])
def test_what_cannot_be_a_role(name: str) -> None:
    says(refusal(Role, name), "lower-case letters", "not 'model'")
    for good in ("gpt", "a", "my-judge_2", "a" + "b" * 40):
        assert taken(Role, good) == good


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Authorization": "Bearer x"}, "api_key"),
        ({"host": "other"}, "host"),
        ({"a b": "c"}, "letters, digits and hyphens"),
        ({"X-A": "1\n2"}, "X-A"),
        ({"X-A": "1", "x-a": "2"}, "twice"),
        ({"X-Api-Key": "abcdefgh0123456789"}, "X-Api-Key"),
        ({"X-A": "nvapi-abcdefghijklmnopqrst0123"}, "variable"),
        ({"X-A": "${MY-TOKEN}"}, "not a variable"),
        ({"X-A": "a ${MY_TOKEN} ${"}, "not a variable"),
        ({"X-A": "caf\u00e9"}, "X-A"),
        ({"": "a"}, "letters, digits and hyphens"),
        *(({name: "a"}, f"{name} cannot be set here") for name in RESERVED_HEADERS),
    ],
)
def test_headers_that_cannot_be_sent_or_kept(headers: dict[str, str], said: str) -> None:
    assert said in refusal(Headers, headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"dataClassification": "confidential"},
        {"X-Api-Key": "${MY_API_KEY}"},
        {"X-A": "${FIRST_KEY}-${SECOND_KEY}", "HTTP-Referer": "https://x", "X-Price": "$5"},
        {"User-Agent": "curl/8", "Accept-Encoding": "gzip", "X-Empty": ""},
    ],
)
def test_headers_of_ones_own(headers: dict[str, str]) -> None:
    assert taken(Headers, headers) == headers
