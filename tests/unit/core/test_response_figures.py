"""Figures of responses."""

from __future__ import annotations

from eval_factory.core.results import RequestSpan


def test_a_span_lasts_from_the_first_request_to_the_last_response() -> None:
    assert RequestSpan(10.0, 12.5).seconds == 2.5
