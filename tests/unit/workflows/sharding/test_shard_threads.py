"""Shards whose processes end as the test says: nothing is started."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from eval_factory.core import events
from eval_factory.core.events import EventWriter
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.redaction import Redactor
from eval_factory.executors.base import Finished, ProcessSpec
from eval_factory.workflows.sharding import shard_threads
from eval_factory.workflows.sharding.shard_folders import Work
from eval_factory.workflows.sharding.shard_threads import ShardThread, ShardThreads
from eval_factory.workflows.sharding.shard_watch import ShardWatch
from unit.builders import context, plan


class Processes:
    """The exit codes of each shard's starts, in their order; the last one is that of all further ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **codes: tuple[int, ...]) -> None:
        self.codes, self.starts = codes, Counter[str]()
        self.says_why: set[str] = set()
        self.clock = 100.0
        monkeypatch.setattr(shard_threads, "run_logged", self._run)
        monkeypatch.setattr(shard_threads, "time", SimpleNamespace(monotonic=lambda: self.clock))

    def _run(self, spec: ProcessSpec, *, log: Path, on_tick: Callable[[], None]) -> Finished:
        on_tick()
        self.clock += 5.0
        name = "s" + spec.rundir.root.name[0]
        assert log.parent == spec.rundir.logs
        self.starts[name] += 1
        if name in self.says_why:
            writer = EventWriter(spec.rundir.events, spec.run_id, Redactor(()))
            writer.emit(events.FATAL, role="model", message="401")
            writer.close()
        codes = self.codes[name]
        return Finished(codes[min(self.starts[name], len(codes)) - 1], ())


def run(tmp_path: Path, *indices: int) -> list[ShardThread]:
    whole = plan({"config.output_dir": str(tmp_path)})
    whole.rundir.create()
    work = Work(whole, 3, "r1", "w", HelmRunSettings())
    for index in indices:
        (work.folder(index) / "logs").mkdir(parents=True)
    return ShardThreads(context(whole.rundir), work, {}).run(list(indices), ShardWatch(list(indices)))


def told(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "logs" / "events.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [event["message"] for event in found if event["event"] == events.WARNING]


def test_a_killed_shard_alone_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, s1=(0,), s2=(-9, 0), s3=(0,))
    ended = run(tmp_path, 1, 2, 3)
    assert processes.starts == {"s1": 1, "s2": 2, "s3": 1}
    assert [(shard.index, shard.finished, shard.starts) for shard in ended] == [
        (1, Finished(0, ()), 1), (2, Finished(0, ()), 2), (3, Finished(0, ()), 1),
    ]  # fmt: skip
    assert told(tmp_path) == ["shard 2-of-3 was lost (killed by signal 9); it is begun again and asks what is missing"]


def test_one_that_is_killed_again_and_again_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, s1=(137,), s2=(0,))
    first, second = run(tmp_path, 1, 2)
    assert processes.starts == {"s1": 3, "s2": 1}
    assert (first.finished, first.starts) == (Finished(137, ()), 3)
    assert second.finished == Finished(0, ())
    assert len(told(tmp_path)) == 2


def test_one_that_said_why_it_ended_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, s1=(-15,), s2=(4,))
    processes.says_why.add("s1")
    run(tmp_path, 1, 2)
    assert processes.starts == {"s1": 1, "s2": 1}
    assert told(tmp_path) == []


def test_the_time_of_all_starts_is_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Processes(monkeypatch, s2=(-9, 0))
    (shard,) = run(tmp_path, 2)
    assert shard.seconds == 5.0 + 5.0
