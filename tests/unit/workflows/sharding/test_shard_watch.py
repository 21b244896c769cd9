"""What several shards tell, added up."""

from __future__ import annotations

from typing import Any

from eval_factory.core import events
from eval_factory.workflows.sharding.shard_watch import COUNTS, ShardWatch


def counted(role: str = "model", **counts: int) -> dict[str, Any]:
    return {"event": events.PROGRESS, "role": role, **dict.fromkeys(COUNTS, 0), **counts}


def phase(name: str, **fields: int) -> dict[str, Any]:
    return {"event": events.PHASE, "phase": name, **fields}


def share(requests: int, of: int) -> dict[str, Any]:
    return {"event": events.SHARD, "requests": requests, "of": of}


def test_a_phase_begins_when_the_last_is_in_it() -> None:
    watch = ShardWatch([1, 2])
    assert watch.phase() is None
    watch.states[1].take(phase(events.ASKING, total=3))
    assert watch.phase() is None
    watch.states[2].take(phase(events.ASKING, total=2))
    assert watch.phase() == {"phase": events.ASKING, "total": 5}
    assert watch.phase() is None
    watch.states[1].take(phase(events.JUDGING, total=3))
    assert watch.phase() is None
    watch.states[1].ended = True
    assert watch.phase() is None
    watch.states[2].take(phase(events.JUDGING, total=2))
    assert watch.phase() == {"phase": events.JUDGING, "total": 5}


def test_a_phase_never_comes_again() -> None:
    watch = ShardWatch([1, 2])
    watch.states[1].take(phase(events.JUDGING, total=3))
    watch.states[2].take(phase(events.ASKING, total=2))
    watch.states[2].ended = True
    assert watch.phase() == {"phase": events.JUDGING, "total": 3}
    watch.states[1].ended = True  # now the one that was lost while it asked counts too
    assert watch.phase() is None


def test_counts_are_sums_and_told_when_they_change() -> None:
    watch = ShardWatch([1, 2])
    for number, state in watch.states.items():
        state.take(phase(events.ASKING, total=10))
        state.take(counted(total=10, done=number, failed=1, prompt_tokens=100))
        state.take(counted("judge", done=7))
    watch.phase()
    summed = {"role": "model", **dict.fromkeys(COUNTS, 0), "total": 20, "done": 3, "failed": 2, "prompt_tokens": 200}
    assert list(watch.progress()) == [summed]
    assert list(watch.progress()) == []
    watch.states[1].take(counted(total=10, done=5))
    assert [one["done"] for one in watch.progress()] == [7]
    for state in watch.states.values():
        state.take(phase(events.JUDGING, total=10))
    watch.phase()
    assert [(one["role"], one["done"], one["total"]) for one in watch.progress()] == [("judge", 14, 0)]


def test_the_same_warning_is_given_once() -> None:
    watch = ShardWatch([1, 2])
    warning = {"event": events.WARNING, "role": "model", "message": "slow"}
    assert watch.warnings(warning) == warning
    assert watch.warnings(warning) is None
    assert watch.warnings({**warning, "role": "judge"}) is not None
    assert watch.warnings(phase(events.ASKING)) is None


def test_why_shards_failed_is_told_with_the_phase_they_were_in() -> None:
    watch = ShardWatch([1, 2])
    fatal = {"event": events.FATAL, "role": "model", "message": "401"}
    watch.states[1].take(phase(events.ASKING, total=1))
    assert watch.failures() == []
    watch.states[2].take(phase(events.LOADING))
    watch.states[2].take(fatal)
    assert watch.failures() == [phase(events.LOADING), fatal]


def test_a_limit_is_everybodys_and_shards_that_were_complete_count() -> None:
    watch = ShardWatch([1, 2])
    for state in watch.states.values():
        state.take(share(4, of=12))
        state.take(phase(events.ASKING, total=4))
    watch.states[1].take(counted(total=4, done=4, failed=1))
    watch.states[1].take(phase(events.JUDGING, total=4))
    watch.states[1].take(counted("judge", done=2))
    watch.states[2].take(counted(total=4, done=2))
    for countable, state in zip((True, False), watch.states.values(), strict=True):
        limit = {"event": events.LIMIT_REACHED, "limit": "max_requests", "countable": countable, "answered": {}}
        state.take(limit)
    answered = {"model": 4 + 3 + 2, "judge": 2}
    assert watch.failures() == [
        phase(events.ASKING, total=12),
        phase(events.JUDGING, total=4),
        {"event": events.LIMIT_REACHED, "limit": "max_requests", "countable": False, "answered": answered},
    ]
