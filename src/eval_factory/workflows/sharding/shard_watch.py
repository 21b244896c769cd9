"""What all shards of an evaluation do together, from what each tells of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eval_factory.core import events as event_names
from eval_factory.core.results import MODEL_ROLE

COUNTS = ("total", "done", "cached", "failed", "prompt_tokens", "completion_tokens")
ORDER = (event_names.LOADING, event_names.ASKING, event_names.JUDGING)
FAILURES = frozenset({event_names.FATAL, event_names.REFUSED, event_names.RUN_FAILED, event_names.LIMIT_REACHED})

Event = Mapping[str, Any]


@dataclass
class ShardState:
    """How far one shard is."""

    phase: str = ""
    totals: dict[str, int] = field(default_factory=dict)
    """Phase -> requests in it."""
    counts: dict[str, Event] = field(default_factory=dict)
    """Role -> its last count."""
    told: list[Event] = field(default_factory=list)
    """All but progress."""
    ended: bool = False
    of: int | None = None
    """How many requests to the model the whole evaluation has; None until the data are loaded."""
    mine: int = 0
    """How many of them are this shard's."""

    def take(self, event: Event) -> None:
        if event["event"] == event_names.PROGRESS:
            self.counts[event["role"]] = event
            return
        self.told.append(event)
        if event["event"] == event_names.SHARD:
            self.of, self.mine = event["of"], event["requests"]
        elif event["event"] == event_names.PHASE:
            self.phase = event["phase"]
            if "total" in event:
                self.totals[event["phase"]] = event["total"]

    @property
    def failures(self) -> list[Event]:
        return [event for event in self.told if event["event"] in FAILURES]


class ShardWatch:
    """Adds the shards up, by their numbers."""

    def __init__(self, shards: list[int]) -> None:
        self.states = {index: ShardState() for index in shards}
        self._phase = event_names.LOADING
        """Which is told when the first process is begun."""
        self._counted: dict[str, dict[str, Any]] = {}
        self._warned: set[tuple[str, str]] = set()

    def phase(self) -> dict[str, Any] | None:
        """The fields of a `phase` event, where all shards have come to a later one: the last of them counts."""
        working = [state for state in self.states.values() if not state.ended] or list(self.states.values())
        reached = min((ORDER.index(state.phase) if state.phase in ORDER else -1) for state in working)
        if reached <= ORDER.index(self._phase):
            return None
        self._phase = ORDER[reached]
        return {"phase": self._phase, **self._total(self._phase)}

    def _total(self, phase: str) -> dict[str, int]:
        totals = [state.totals[phase] for state in self.states.values() if phase in state.totals]
        return {"total": sum(totals)} if totals else {}

    def progress(self) -> Iterator[dict[str, Any]]:
        """The fields of `progress` events: sums for the model, then for each judge, where they have changed."""
        roles = dict.fromkeys(role for state in self.states.values() for role in state.counts)
        for role in roles:
            if (role == MODEL_ROLE) == (self._phase == event_names.ASKING):
                counts = [state.counts[role] for state in self.states.values() if role in state.counts]
                summed = {name: sum(count[name] for count in counts) for name in COUNTS}
                if role == MODEL_ROLE:
                    summed["total"] = self._total(event_names.ASKING).get("total", 0)
                if summed != self._counted.get(role):
                    self._counted[role] = summed
                    yield {"role": role, **summed}

    def warnings(self, event: Event) -> Event | None:
        """A warning that no shard has given before."""
        if event["event"] != event_names.WARNING:
            return None
        known = (event["role"], event["message"])
        first = known not in self._warned
        self._warned.add(known)
        return event if first else None

    def failures(self) -> list[Event]:
        """Why shards did not come to their end; of a limit that all share, how far all of them came."""
        found = [event for state in self.states.values() for event in state.failures]
        limits = [event for event in found if event["event"] == event_names.LIMIT_REACHED]
        if not limits:
            return [event for state in self.states.values() if state.failures for event in state.told]
        asked = {"event": event_names.PHASE, "phase": event_names.ASKING, "total": self._of}
        judged = self._total(event_names.JUDGING)
        phases = [asked, *([{"event": event_names.PHASE, "phase": event_names.JUDGING, **judged}] if judged else [])]
        summed = {**limits[0], "countable": all(event["countable"] for event in limits), "answered": self._answered()}
        return [*phases, summed]

    @property
    def _of(self) -> int:
        return max((state.of or 0 for state in self.states.values()), default=0)

    def _answered(self) -> dict[str, int]:
        """By role; the shards that had nothing left to ask have answered all that is theirs."""
        loaded = all(state.of is not None for state in self.states.values())
        answered = {MODEL_ROLE: self._of - sum(state.mine for state in self.states.values()) if loaded else 0}
        for state in self.states.values():
            for role, count in state.counts.items():
                answered[role] = answered.get(role, 0) + count["done"] - count["failed"]
        return answered
