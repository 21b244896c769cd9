"""Sources are numbered as they are cited."""

from __future__ import annotations

import pytest

from eval_factory.report.bibliography import SOURCES, Citations
from eval_factory.report.method_sentences import INTERVALS


def test_a_source_keeps_its_number() -> None:
    cite = Citations()
    assert cite("wilson") == "[1]"
    assert cite("efron", "wilson") == "[2, 1]"
    assert cite("wilson") == "[1]"
    assert cite.listed() == [f"[1] {SOURCES['wilson']}.", f"[2] {SOURCES['efron']}."]
    assert Citations().listed() == []


def test_what_is_no_source_is_a_defect() -> None:
    with pytest.raises(KeyError):
        Citations()("nobody")


@pytest.mark.parametrize("method", INTERVALS)
def test_every_interval_has_sources(method: str) -> None:
    assert Citations()(*INTERVALS[method][1]).startswith("[1")
