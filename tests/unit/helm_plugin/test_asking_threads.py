"""More threads than places, while the model is asked."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from eval_factory.helm_plugin.asking_threads import MoreThreads, threads_for


@dataclass(frozen=True)
class Spec:
    parallelism: int
    dry_run: bool = False


class Executor:
    """Notes its threads; HELM's has the same attribute."""

    def __init__(self, threads: int, *, fails: bool = False) -> None:
        self.execution_spec = Spec(threads, dry_run=True)
        self.context = "context"
        self.seen: list[Spec] = []
        self._fails = fails

    def execute(self, state: str) -> str:
        self.seen.append(self.execution_spec)
        if self._fails:
            raise ValueError("no answer")
        return f"{state} asked"


@pytest.mark.parametrize(("places", "threads"), [(1, 1), (15, 15), (16, 20), (17, 21), (32, 40), (128, 160)])
def test_a_quarter_more_where_they_are_many(places: int, threads: int) -> None:
    assert threads_for(places) == threads


@pytest.mark.parametrize(
    ("places", "threads", "seen"), [(128, 128, 160), (4, 4, 4), (128, 32, 32), (32, 128, 128), (None, 128, 128)]
)
def test_only_where_helm_has_a_thread_for_each_place(places: int | None, threads: int, seen: int) -> None:
    inner = Executor(threads)
    more = MoreThreads(inner, lambda state: places if state == "state" else -1)
    assert more.execute("state") == "state asked"
    assert inner.seen == [Spec(seen, dry_run=True)]
    assert more.execution_spec == Spec(threads, dry_run=True)
    assert more.context == "context"


def test_they_are_as_many_as_before_after_a_failure() -> None:
    """A leaderboard goes on with its next run."""
    inner = Executor(32, fails=True)
    more = MoreThreads(inner, lambda _state: 32)
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            more.execute("state")
    assert inner.seen == [Spec(40, dry_run=True)] * 2
    assert inner.execution_spec == Spec(32, dry_run=True)
