"""The processes of all shards: begun together, watched until the last has ended, ended together.

One that is killed is begun again, alone, with what it had answered.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core import events as event_names
from eval_factory.core.events import EventWriter
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.rundir import RunDir
from eval_factory.core.shard_spec import folder_name
from eval_factory.executors.base import Finished, ProcessSpec
from eval_factory.executors.process import run_logged
from eval_factory.executors.progress import EventTail, ProgressDisplay
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.sharding.shard_ends import how_it_ended, is_begun_again
from eval_factory.workflows.sharding.shard_folders import Work
from eval_factory.workflows.sharding.shard_watch import ShardWatch

MODULE = "eval_factory.workflows.sharding.shard_process"
LOG = "shard.log"
TICK_S, PROGRESS_S = 0.2, 1.0


class _Ended(Exception):
    """The process of a shard is to end, for all of them are."""


@dataclass
class ShardThread:
    """One process, and the thread that waits for it."""

    index: int
    tail: EventTail
    finished: Finished | None = None
    error: BaseException | None = None
    """What kept the process from being run to its end."""
    thread: threading.Thread | None = None
    starts: int = 0
    seconds: float = 0.0
    """How long its processes were at work."""


@dataclass
class ShardThreads:
    """Of one invocation; one thread uses it."""

    context: RunContext
    work: Work
    env: Mapping[str, str]
    """What each process gets to see."""
    shards: list[ShardThread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self, indices: Sequence[int], watch: ShardWatch) -> list[ShardThread]:
        """Every shard to its end; progress goes to the screen, and to the events of the whole.

        Raises:
            KeyboardInterrupt: after all processes have been ended.
            PrerequisiteError: a process could not be started.
        """
        writer = EventWriter(self.context.rundir.events, self.work.run_id, self.context.redactor)
        own = EventTail(self.context.rundir.events, self.work.run_id)
        writer.emit(event_names.PHASE, phase=event_names.LOADING)
        try:
            for index in indices:
                shard = ShardThread(index, EventTail(RunDir(self.work.folder(index)).events, self.work.run_id))
                self.shards.append(shard)
                self._begin(shard)
            with ProgressDisplay(self.context.screen) as display:
                self._look(watch, writer, lambda: _show_new(own, display))
        finally:
            self._stop.set()
            for shard in self.shards:
                if shard.thread is not None:
                    shard.thread.join()
            writer.close()
        self._raise_error()
        return self.shards

    def _begin(self, shard: ShardThread) -> None:
        rundir = RunDir(self.work.folder(shard.index))
        argv = (sys.executable, "-m", MODULE, str(rundir.root))
        context = self.context
        spec = ProcessSpec(argv, self.env, rundir, context.lock, self.work.run_id, context.redactor)
        shard.finished, shard.starts = None, shard.starts + 1
        shard.thread = threading.Thread(target=self._run, args=(shard, spec), name=f"shard-{shard.index}", daemon=True)
        shard.thread.start()

    def _begin_again(self, shard: ShardThread, writer: EventWriter) -> None:
        """Its answers are in its own store, and under the same run: it asks only for what is missing there."""
        code = 0 if shard.finished is None else shard.finished.returncode
        name = folder_name(shard.index, self.work.of)
        message = f"shard {name} was lost ({how_it_ended(code)}); it is begun again and asks what is missing"
        self.context.log.warning(message)
        writer.emit(event_names.WARNING, role=MODEL_ROLE, shard=name, message=message)
        self._begin(shard)

    def _run(self, shard: ShardThread, spec: ProcessSpec) -> None:
        began = time.monotonic()
        try:
            shard.finished = run_logged(spec, log=spec.rundir.logs / LOG, on_tick=self._raise_if_stopped)
        except BaseException as error:
            shard.error = error
        finally:
            shard.seconds += time.monotonic() - began

    def _raise_if_stopped(self) -> None:
        if self._stop.is_set():
            raise _Ended

    def _look(self, watch: ShardWatch, writer: EventWriter, show: Callable[[], None]) -> None:
        """Until all have ended."""
        told_at = 0.0
        going_on = True
        while going_on:
            running = [shard for shard in self.shards if shard.thread is not None and shard.thread.is_alive()]
            going_on = bool(running)
            for shard in self.shards:
                state = watch.states[shard.index]
                for event in shard.tail.new():
                    state.take(event)
                    if watch.warnings(event) is not None:
                        told = {name: event[name] for name in ("role", "message")}
                        writer.emit(event_names.WARNING, shard=folder_name(shard.index, self.work.of), **told)
                state.ended = shard not in running
                if state.ended and _is_begun_again(shard, said_why=bool(state.failures)):
                    self._begin_again(shard, writer)
                    running.append(shard)
                    state.ended, going_on = False, True
            phase = watch.phase()
            if phase is not None:
                writer.emit(event_names.PHASE, **phase)
            if time.monotonic() - told_at >= PROGRESS_S or not running:
                told_at = time.monotonic()
                for counts in watch.progress():
                    writer.emit(event_names.PROGRESS, **counts)
            show()
            if running and running[0].thread is not None:
                running[0].thread.join(TICK_S)

    def _raise_error(self) -> None:
        for shard in self.shards:
            if shard.error is not None and not isinstance(shard.error, _Ended):
                raise shard.error


def _is_begun_again(shard: ShardThread, *, said_why: bool) -> bool:
    code = None if shard.finished is None else shard.finished.returncode
    return code is not None and is_begun_again(code, shard.starts, said_why=said_why)


def _show_new(tail: EventTail, display: ProgressDisplay) -> None:
    for event in tail.new():
        display.show(event)
