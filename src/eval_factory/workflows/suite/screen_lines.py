"""A suite as lines of text, for a notebook or a log: a line as each cell begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from eval_factory.core.foreign_text import one_line
from eval_factory.workflows.suite.suite_journal import (
    CELL_ENDED,
    CELL_STARTED,
    ENDPOINT_BACK,
    ENDPOINT_PAUSED,
    SUITE_STARTED,
)


class ScreenLines:
    """Looks on and writes to `screen`; one that takes no more is written to no more, and ends no suite."""

    def __init__(self, screen: TextIO) -> None:
        self._screen: TextIO | None = screen

    def on_event(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == SUITE_STARTED:
            self.say(f"{event['total']} cell{'' if event['total'] == 1 else 's'}")
        elif kind == CELL_STARTED:
            again = f", attempt {event['attempt']}" if event["attempt"] > 1 else ""
            self.say(f"{_cell(event)}: begun{again}")
        elif kind == CELL_ENDED:
            before = " before" if event["collected"] else ""
            reason = f": {event['reason']}" if event["reason"] else ""
            again = "; it waits for its next attempt" if event.get("again") else ""
            self.say(f"{_cell(event)}: {event['status']}{before}{reason}{again}")
        elif kind == ENDPOINT_PAUSED:
            self.say(f"{event['group']} is waited for: {event['reason']}")
        elif kind == ENDPOINT_BACK:
            self.say(f"{event['group']} is back")

    def tick(self) -> None:
        pass

    def say(self, text: str) -> None:
        if self._screen is None:
            return
        try:
            self._screen.write(one_line(text) + "\n")
        except (OSError, ValueError):  # nobody reads it, or it is closed
            self._screen = None


def _cell(event: Mapping[str, Any]) -> str:
    return f"{event['target']}/{event['evaluation']}"
