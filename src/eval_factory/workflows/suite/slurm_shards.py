"""A cell that several tasks ask, each a part of it: what a task does, and which tasks are missing.

The key of a part is that of its cell with `.2-of-5` behind it. The task that ends last, whichever it is, puts the
answers of all parts together and scores the cell; where it was lost, a task with the cell's own key does that alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eval_factory.core.shard_spec import ShardPart, folder_name
from eval_factory.executors.slurm_waves import Wave
from eval_factory.plan.prices import budget_of
from eval_factory.plan.run_plan import Plan, shards_of
from eval_factory.workflows.suite.cell_outcome import COMPLETE, PARTIAL
from eval_factory.workflows.suite.slurm_store import CellStore, Ended, PlanLine, SlurmStore

OTHER_DIVISIONS = ".*-of-*"
GONE = "what its parts had asked is gone: run the same command again"


def part_keys(key: str, of: int) -> list[str]:
    """Of a cell's key; none where one task does all of it."""
    return [f"{key}.{folder_name(index, of)}" for index in range(1, of + 1)] if of > 1 else []


def cell_key(key: str) -> str:
    """Of a part's key, or of the cell's own."""
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


def name_of(key: str) -> str:
    """For people: of the cell, and of its part."""
    cell, _, name = key.rpartition("/")
    part = name.partition(".")[2]
    return f"{cell} {part}" if part else cell


@dataclass(frozen=True)
class Tasks:
    """Of one cell."""

    key: str
    of: int

    @classmethod
    def of_plan(cls, key: str, plan: Plan) -> Tasks:
        """One task where a limit of the run's own is to be kept, which several machines cannot count together: that
        task has its shards on its own machine.
        """
        return cls(key, 1 if budget_of(plan) else shards_of(plan))

    @property
    def keys(self) -> list[str]:
        """All that may be queued for it."""
        return [self.key, *part_keys(self.key, self.of)]

    @property
    def first(self) -> list[str]:
        """What is submitted of a cell of which nothing has been asked."""
        return part_keys(self.key, self.of) or [self.key]

    def missing(self, store: SlurmStore, queued: Collection[str], waves: Sequence[Wave]) -> list[str]:
        """The keys of the tasks that are to be submitted, where the cell is not done.

        While some of its parts are at work, only those that were lost are begun again: what has ended with gaps waits
        for the cell's end.
        """
        parts = part_keys(self.key, self.of)
        working = [key for key in self.keys if key in queued]
        if not parts:
            return [] if working else [self.key]
        if self.key in working:
            return []
        left = [key for key in parts if key not in queued and done_part(store.cell(key)) is None]
        if working:
            return [key for key in left if end_of_part(store, key, waves) is None]
        return left or [self.key]


def lines_of(line: PlanLine, tasks: Tasks, chosen: Collection[str], run_id: str) -> Iterator[PlanLine]:
    """The lines of a cell's chosen tasks, and of the cell itself.

    Args:
        line: of the cell.
        run_id: under which the parts ask that are begun now.
    """
    for index, key in enumerate(part_keys(tasks.key, tasks.of), 1):
        if key in chosen:
            yield replace(line, key=key, of=tasks.of, part=index, run_id=run_id)
    yield replace(line, of=tasks.of, run_id=run_id if tasks.of > 1 else "")


def run_id_of(known: Iterable[PlanLine], tasks: Tasks, chosen: Collection[str], new: str) -> str:
    """That of the parts that have asked, where only the scoring is missing; otherwise a new one."""
    before = next((line.run_id for line in known if line.key == tasks.key and line.of == tasks.of), "")
    return before if before and list(chosen) == [tasks.key] else new


@dataclass(frozen=True)
class Step:
    """Something that a task does, in an attempt's folder of its own."""

    cell: CellStore
    """Where it is published: the cell's, or a part's."""
    line: PlanLine
    wave: int
    """Under which it is published."""
    merged: tuple[Path, ...] = ()
    """Output folders whose answers are put into the attempt's, besides those of an earlier attempt."""
    part: ShardPart | None = None
    asked_as: str | None = None
    """The run of the parts, where their answers are scored."""


def steps(store: SlurmStore, wave: Wave, line: PlanLine) -> Iterator[Step]:
    """What a task has to do; each step has been done, and published or not, when the next is asked for."""
    cell = store.cell(line.key)
    is_scoring = line.of > 1 and line.part == 0
    if not is_scoring and cell.done() is None and cell.ended(wave.number) is None:
        part = ShardPart(line.part, line.of, line.run_id) if line.part else None
        yield Step(cell, line, wave.number, tuple(_other_divisions(store, line)), part)
    if line.of > 1:
        yield from _scoring(store, line)


def _other_divisions(store: SlurmStore, line: PlanLine) -> Iterator[Path]:
    """What was asked when the cell was divided otherwise, where this part begins for the first time."""
    own = store.cell(line.key)
    if not line.part or own.attempts():
        return
    cell = store.cell(cell_key(line.key))
    same = {store.cell(key).folder for key in part_keys(cell_key(line.key), line.of)}
    for folder in sorted(cell.folder.parent.glob(f"{cell.folder.name}{OTHER_DIVISIONS}")):
        attempts = CellStore(folder).attempts() if folder not in same else []
        if attempts:
            yield attempts[-1] / "out"


def _scoring(store: SlurmStore, line: PlanLine) -> Iterator[Step]:
    """By the task that ends last: all parts have ended, and nobody else does it."""
    key = cell_key(line.key)
    waves, cell, keys = store.waves(), store.cell(key), part_keys(key, line.of)
    last = latest_wave(waves, [key, *keys])
    if cell.done() is not None or cell.ended(last) is not None:
        return
    ends = [end_of_part(store, one, waves) for one in keys]
    known = [end for end in ends if end is not None]
    if len(known) < len(keys):
        if line.part == 0:
            cell.publish(Ended("", "missing", 1, GONE, 0), last, complete=False)
        return
    if not cell.claims(last, line.key):
        return
    failed = next((end for end in known if end.status not in (COMPLETE, PARTIAL)), None)
    if failed is not None:
        cell.publish(replace(failed, attempt=""), last, complete=False)
        return
    whole = next(one for one in store.plan() if one.key == key)
    outputs = [store.cell(one).output(end.attempt) for one, end in zip(keys, known, strict=True)]
    yield Step(cell, whole, last, tuple(outputs), asked_as=whole.run_id)


def latest_wave(waves: Iterable[Wave], keys: Collection[str]) -> int:
    """The last in which one of them was submitted; 0 where none was."""
    return max((wave.number for wave in waves if not set(keys).isdisjoint(wave.keys)), default=0)


def done_part(part: CellStore) -> Ended | None:
    """A part that has nothing left to ask, and whose answers are there."""
    done = part.done()
    return done if done is not None and part.output(done.attempt).is_dir() else None


def end_of_part(store: SlurmStore, key: str, waves: Sequence[Wave]) -> Ended | None:
    """How a part ended for good, or in the last wave that it was submitted in."""
    part = store.cell(key)
    return done_part(part) or part.ended(latest_wave(waves, [key]))


def is_over(store: SlurmStore, waves: Sequence[Wave], wave: Wave, key: str) -> bool:
    """Whether the task of this key, in this wave, needs its keys no more."""
    whole, own = store.cell(cell_key(key)), store.cell(key)
    if key == cell_key(key):
        return own.done() is not None or own.ended(wave.number) is not None
    of = int(key.rpartition("-of-")[2])
    last = latest_wave(waves, [cell_key(key), *part_keys(cell_key(key), of)])
    return whole.done() is not None or whole.ended(last) is not None
