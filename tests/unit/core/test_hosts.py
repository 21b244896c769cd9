from __future__ import annotations

import pytest

from eval_factory.core.urls import host_of, origin_of, place_of


def test_place_of() -> None:
    assert place_of("https://Host.example/v1") == ("host.example", 443)
    assert place_of("http://[::1]:8000/v1") == ("::1", 8000)
    assert place_of("demo://baseline") is None
    assert place_of("") is None


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("Host.Example.", "host.example"), (b"HOST.example", "host.example"), ("fe80::1%eth0", "fe80::1"), (None, ""),
        ("stra\u00dfe.test", "xn--strae-oqa.test"), ("\u2603\u0301\u200d.test", "\u2603\u0301\u200d.test"),
    ],
)  # fmt: skip
def test_a_host_has_one_spelling(name: object, host: str) -> None:
    assert host_of(name) == host


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
