"""Who looks on while a suite runs: a screen, a notebook, nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class SuiteObserver(Protocol):
    """Is told what happens, by the runner's own thread. It raises nothing that would end the suite."""

    def on_event(self, event: Mapping[str, Any]) -> None:
        """An event of the suite, as it stands in SuiteDir.events, once it is written there."""

    def tick(self) -> None:
        """Nothing new: a few times a second, so that what the cells do can be looked up and shown."""

    def say(self, text: str) -> None:
        """A line about the suite that is no event: a warning, what is waited for."""


class NobodyLooks:
    """The observer where nobody looks on."""

    def on_event(self, event: Mapping[str, Any]) -> None:
        pass

    def tick(self) -> None:
        pass

    def say(self, text: str) -> None:
        pass
