"""Imports while another process works: once, and done before anything else is imported."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from eval_factory.workflows.imports_ahead import ImportsAhead

ASKING = {"event": "phase", "phase": "asking the model"}
SCORING = {"event": "phase", "phase": "scoring"}


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """It takes a while, and counts how often it was begun."""
    (tmp_path / "never_begun.py").write_text("")
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\nready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_to_import", raising=False)
    return "slow_to_import"


@pytest.mark.parametrize("events", [(ASKING, SCORING), (SCORING,)])
def test_after_waiting_a_module_is_there_as_a_whole(events: tuple[dict[str, str], ...], slow_module: str) -> None:
    """The first phase in which this process has nothing to do begins them."""
    ahead = ImportsAhead(["no_such_module_at_all", slow_module, "never_begun"])
    for event in events:
        ahead(event)
    while slow_module not in sys.modules:
        time.sleep(0.001)
    ahead.wait()
    assert sys.modules[slow_module].ready is True
    assert "never_begun" not in sys.modules


@pytest.mark.parametrize(
    "event", [{"event": "phase", "phase": "loading data"}, {"event": "progress", "phase": "scoring"}]
)
def test_other_events_import_nothing(event: dict[str, str], slow_module: str) -> None:
    ahead = ImportsAhead([slow_module])
    ahead(event)
    ahead.wait()
    assert slow_module not in sys.modules
