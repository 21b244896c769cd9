from __future__ import annotations

import pytest

from eval_factory.core.urls import request_url


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
    assert request_url(url, kind) == expected


def test_a_cloud_functions_url_is_used_as_given() -> None:
    assert request_url("https://h/functions/abc/", "chat", use_nvcf=True) == "https://h/functions/abc"
