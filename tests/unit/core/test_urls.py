from __future__ import annotations

import re

import pytest

from eval_factory.core import urls
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.urls import SERVED_AT, host_and_port_of, origin_of, served_url, server_urls
from facts import naming


@pytest.mark.parametrize(
    ("url", "kind", "expected"),
    [
        ("https://h/v1", "chat", "https://h/v1/chat/completions"),
        ("https://h/v1/", "chat", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions", "chat", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions/", "chat", "https://h/v1/chat/completions"),
        ("https://h/v1/completions", "completions", "https://h/v1/completions"),
        ("https://h/v1", "completions", "https://h/v1/completions"),
        ("https://h/v1/chat/completions", "completions", "https://h/v1/completions"),
        ("https://h", "chat", "https://h/chat/completions"),
        ("https://h/d/x?api-version=1", "chat", "https://h/d/x/chat/completions?api-version=1"),
    ],
)
def test_url(url: str, kind: str, expected: str) -> None:
    assert urls.request_url(url, kind) == expected
    assert (
        urls.request_url("https://h/functions/abc/", "chat", use_nvcf=True)
        == "https://h/functions/abc"
    )


def test_place_of() -> None:
    assert host_and_port_of("https://Host.example/v1") == ("host.example", 443)
    assert host_and_port_of("http://[::1]:8000/v1") == ("::1", 8000)
    assert host_and_port_of("demo://baseline") is None
    assert host_and_port_of("") is None


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("Host.Example.", "host.example"),
        (b"HOST.example", "host.example"),
        ("fe80::1%eth0", "fe80::1"),
        (None, ""),
        ("stra\u00dfe.test", "xn--strae-oqa.test"),
        ("\u2603\u0301\u200d.test", "\u2603\u0301\u200d.test"),
    ],
)
def test_a_host_has_one_spelling(name: object, host: str) -> None:
    assert urls.normal_host_name(name) == host


def test_an_origin_is_scheme_host_and_port() -> None:
    assert origin_of("https://Host.example/v1") == origin_of("https://host.example:443/v2?x=1")
    others = (
        "http://host.example/v1",
        "https://host.example:80",
        "https://example",
        "served://host.example",
        "demo://x",
    )
    assert len({origin_of(url) for url in (*others, "https://host.example")}) == 6


def test_it_names_the_command_and_not_where_it_runs() -> None:
    url = served_url("/opt/bin/vLLM serve 'my/model'  --port {port}", "/v1")
    assert re.fullmatch(r"served://vllm-[0-9a-f]{12}/v1", url)
    assert served_url('/opt/bin/vLLM serve my/model --port   "{port}"', "/v1") == url
    assert served_url("/opt/bin/vLLM serve my/model --seed 1 --port {port}", "/v1") != url
    assert served_url("a 'b c'", "") != served_url("a b c", "")
    assert served_url("/x/§ y", "").startswith("served://server-")
    assert len(served_url("p" * 90, "")) == len("served://") + 30 + 13


def test_where_it_is_reached() -> None:
    one = "http://127.0.0.1:1"
    two = "http://127.0.0.1:2"
    assert server_urls("https://served.example/v1", {SERVED_AT: one}) == (
        "https://served.example/v1",
    )
    assert server_urls("served://x-1/api/v1", {SERVED_AT: one}) == (f"{one}/api/v1",)
    assert server_urls("served://x-1/v1", {SERVED_AT: f"{one} {two}"}) == (f"{one}/v1", f"{two}/v1")
    assert urls.is_at_a_server(f"{two}/v1", {SERVED_AT: f"{one} {two}"})
    assert not urls.is_at_a_server("http://127.0.0.1:3/v1", {SERVED_AT: one})
    assert not urls.is_at_a_server("http://127.0.0.1:3/v1", {})
    with pytest.raises(PrerequisiteError, match=naming("served://x-1/v1", "run_suite")):
        server_urls("served://x-1/v1", {SERVED_AT: ""})
