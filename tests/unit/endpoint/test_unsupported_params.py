from __future__ import annotations

from typing import Any

import pytest

from eval_factory.endpoint.replies import changes_asked_for, described_changes

BODY = {"model": "m", "max_tokens": 5, "temperature": 0.0, "top_p": 1}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            {"max_tokens": "max_completion_tokens"},
        ),
        ("Unsupported value: 'temperature' does not support 0", {"temperature": None}),
        ('unsupported: "top_p"', {"top_p": None}),
        ("Unsupported value: 'temperature' and 'top_p'", {"temperature": None}),
        ("Unsupported value: 'stop'", {}),
        ("'temperature' is too high", {}),
        ("Unsupported: the patient's temperature", {}),
        ("", {}),
    ],
)
def test_what_an_error_names(text: str, changes: dict[str, Any]) -> None:
    assert changes_asked_for(text, BODY) == changes


def test_nothing_is_renamed_that_was_not_sent() -> None:
    assert changes_asked_for("Use 'max_completion_tokens'", {"model": "m"}) == {}


def test_in_words() -> None:
    assert described_changes({"temperature": None, "max_tokens": "max_completion_tokens"}) == (
        "the endpoint refuses temperature: it was left out, the model's own default was used",
        "the endpoint takes max_completion_tokens in place of max_tokens",
    )
