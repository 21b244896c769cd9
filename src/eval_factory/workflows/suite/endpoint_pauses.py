"""Endpoints that are gone: asked a cheap question now and then, until they are back or it has taken too long."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum

from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_probe import Answer

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
AT_ONCE = 16


class News(Enum):
    """What is new of an endpoint that is looked after."""

    THERE = "it answers the first question: it was not gone"
    GONE = "it does not answer the first question"
    BACK = "it answers again"
    GIVEN_UP = "it has not answered for too long"


@dataclass
class Pause:
    """Of one group."""

    planned: PlannedCell
    """A cell whose model's endpoint is asked."""
    reason: str
    since: float
    asked: int = 0
    next_at: float = 0.0
    question: Future[Answer] | None = None

    def pause_s(self) -> float:
        doubled: float = FIRST_PAUSE_S * 2.0 ** (self.asked - 1)
        return min(LONGEST_PAUSE_S, doubled)


@dataclass
class EndpointPauses:
    """One thread uses it; the questions are asked in others."""

    ask: Callable[[PlannedCell], Answer]
    max_outage_s: float
    clock: Callable[[], float] = time.monotonic
    pauses: dict[str, Pause] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def look_after(self, planned: PlannedCell, reason: str, *, gone: bool = False) -> None:
        """Begin no cell of this one's group until its endpoint has answered.

        Args:
            gone: it has just been asked, and did not answer.
        """
        if planned.group not in self.pauses:
            pause = self.pauses[planned.group] = Pause(planned, reason, self.clock())
            if gone:
                self._wait_on(pause)

    def news(self) -> list[tuple[str, News, str]]:
        """(group, what is new, why it was paused); who is told that it is over begins its cells again."""
        found = []
        for group, pause in list(self.pauses.items()):
            new = self._news_of(pause)
            if new is None:
                continue
            if new is not News.GONE:
                del self.pauses[group]
            found.append((group, new, pause.reason))
        return found

    def _news_of(self, pause: Pause) -> News | None:
        now = self.clock()
        if pause.question is None:
            if pause.asked and now - pause.since >= self.max_outage_s:
                return News.GIVEN_UP
            if now >= pause.next_at:
                pause.question = self._pool.submit(self.ask, pause.planned)
            return None
        if not pause.question.done():
            return None
        answer, pause.question = pause.question.result(), None
        first = pause.asked == 0
        if not answer.gone:
            return News.THERE if first else News.BACK
        self._wait_on(pause)
        return News.GONE if first else None

    def _wait_on(self, pause: Pause) -> None:
        pause.asked += 1
        pause.next_at = self.clock() + pause.pause_s()
