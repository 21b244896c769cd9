"""A suite on Slurm: submit what is missing, take over what is done, and go on from the suite's folder alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eval_factory.core.errors import BusyError, ConfigError, InterruptedRunError, NotReportableError
from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import write_atomic
from eval_factory.executors.slurm_commands import QueuedTask, QueueUnknownError, Slurm
from eval_factory.executors.slurm_reasons import OWN, in_words
from eval_factory.executors.slurm_waves import Wanted, Wave, active, arrays, hopeless
from eval_factory.workflows.resume import read_state
from eval_factory.workflows.suite.cell_outcome import COMPLETE, FAILED, MISSING, PARTIAL, WAITING
from eval_factory.workflows.suite.finished_cells import finished
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.reuse import put_in_place
from eval_factory.workflows.suite.slurm_clean_up import clean_up_after, clean_up_after_all, forget_keys
from eval_factory.workflows.suite.slurm_environment import named_by_servers, secrets_of, write_environment
from eval_factory.workflows.suite.slurm_fresh import begin_anew
from eval_factory.workflows.suite.slurm_jobs import (
    at_once,
    key_of,
    plan_line,
    script_of,
    wanted,
)
from eval_factory.workflows.suite.slurm_store import Ended, SlurmStore, cell_key
from eval_factory.workflows.suite.suite_journal import CELL_ENDED, cell_fields
from eval_factory.workflows.suite.suite_options import CellReport

if TYPE_CHECKING:
    from eval_factory.workflows.suite.run_suite import Work

POLL_S = 3.0
QUEUED = "queued in Slurm"
"""Why a cell that goes on without this command is not complete."""
LOST = "its task is gone from Slurm and left no result; see its log"
Sleep = Callable[[float], None]


def run_on_slurm(work: Work, slurm: Slurm, sleep: Sleep = time.sleep) -> None:
    """Until everything is submitted; with `wait` until everything has ended. Every cell then has a report.

    Raises:
        ConfigError, PrerequisiteError: nothing was submitted, or not all: the same command goes on.
        InterruptedRunError: while it waited. The jobs go on.
    """
    store = SlurmStore(work.suite.folder)
    run = SlurmRun(work, slurm, store, store.begin())
    if work.options.fresh:
        begin_anew(work.left, store, slurm)
    try:
        run.to_the_end(sleep)
    except KeyboardInterrupt:
        folder = work.suite.folder.named
        raise InterruptedRunError(
            f"no longer waiting; what is submitted goes on in Slurm: eval-factory suite status {folder}\n"
            f"  to end it: eval-factory suite cancel {folder}"
        ) from None


@dataclass
class SlurmRun:
    """One invocation."""

    work: Work
    slurm: Slurm
    store: SlurmStore
    suite_id: str
    submitted: dict[str, list[int]] = field(default_factory=dict)
    """Key of a task -> the waves in which this invocation submitted it."""
    queue_silent_since: float | None = None
    told: set[str] = field(default_factory=set)
    """What is waited for, as far as it has been said."""

    def to_the_end(self, sleep: Sleep) -> None:
        while True:
            queued = self._queued()
            if self.store.cancelled.exists():
                raise KeyboardInterrupt
            if queued is not None:
                self._step(queued)
                if not self.work.left or not self.work.options.wait:
                    break
            self.work.journal.tick()
            sleep(POLL_S)
        self._report_queued()

    def _queued(self) -> dict[str, QueuedTask] | None:
        """What waits or runs; None where Slurm does not say and is asked again."""
        try:
            found = active(self.slurm.queue(), self.store.waves())
        except QueueUnknownError as error:
            now = time.monotonic()
            if self.queue_silent_since is None:
                self.queue_silent_since = now
                self.work.journal.say(str(error).split("\n", 1)[0])
            if not self.work.options.wait or now - self.queue_silent_since > self.work.suite.max_outage_s:
                raise
            return None
        self.queue_silent_since = None
        return {cell_key(key): task for key, task in found.items()}

    def _step(self, queued: dict[str, QueuedTask]) -> None:
        """Take over what is done, end what waits for ever, submit what is missing.

        The queue was read before: what ended since then is in neither, and its result is found now.
        """
        for key, task in hopeless(queued).items():
            self._give_up(key, task)
            del queued[key]
        waves = self.store.waves()
        for planned in self.work.left:
            self._look_at(planned, queued, waves)
        forget_keys(self.store, queued.values())
        clean_up_after_all(self.store, queued.values(), self._resources(), self.slurm, self.work.journal.say)
        self._say_what_is_waited_for(queued.values())
        left = [planned for planned in self.work.left if key_of(planned) not in queued]
        if left:
            self._submit(left)

    def _give_up(self, key: str, task: QueuedTask) -> None:
        self.slurm.cancel(task.job_name, [task])
        planned = next((one for one in self.work.left if key_of(one) == key), None)
        if planned is not None:
            reason = f"Slurm would never have started it ({task.reason}), so it was cancelled; set suite.slurm right"
            self._end(planned, FAILED, ConfigError.exit_code, reason)

    def _look_at(self, planned: PlannedCell, queued: Mapping[str, QueuedTask], waves: Sequence[Wave]) -> None:
        key = key_of(planned)
        cell = self.store.cell(key)
        done = cell.done()
        if done is not None:
            if self._take(planned, done):
                self._end(planned, COMPLETE, done.exit_code, done.reason, done.attempts)
                return
            cell.forget_done()
        own = self.submitted.get(key, [])
        ended = next((found for wave in reversed(own) if (found := cell.ended(wave)) is not None), None)
        if ended is not None:
            has_result = ended.status == PARTIAL and self._take(planned, ended)
            status: RunStatus = PARTIAL if has_result else MISSING if ended.status == MISSING else FAILED
            self._end(planned, status, ended.exit_code, ended.reason, ended.attempts)
        elif key not in queued and len(own) >= self.work.suite.max_attempts:
            self._end(planned, MISSING, NotReportableError.exit_code, LOST, len(own))
        elif not own and key not in queued:
            self._take_what_earlier_waves_left(planned, waves)

    def _take_what_earlier_waves_left(self, planned: PlannedCell, waves: Sequence[Wave]) -> None:
        """A result with gaps stands in the cell's folder while the cell is asked again."""
        key = key_of(planned)
        cell = self.store.cell(key)
        for wave in reversed([wave.number for wave in waves if key in map(cell_key, wave.keys)]):
            ended = cell.ended(wave)
            if ended is not None:
                if ended.status == PARTIAL:
                    self._take(planned, ended)
                return

    def _take(self, planned: PlannedCell, ended: Ended) -> bool:
        """Make the attempt's folder the cell's, if it is not already. Whether the result is there."""
        output = self.store.cell(key_of(planned)).output(ended.attempt)
        if ended.attempt and output.is_dir():
            target = planned.plan.rundir.root
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                put_in_place(output, target, self.work.suite.folder)
            except BusyError:
                self.work.journal.say(f"{planned.cell.name}: somebody works in {target}: its result is not taken over")
                return False
            return True
        state = read_state(planned.plan.rundir)
        return finished(planned.plan) is not None or (state is not None and state.identity == planned.plan.identity)

    def _submit(self, cells: Sequence[PlannedCell]) -> None:
        suite, options = self.work.suite, self.work.options
        tasks = at_once(suite, cells)
        chosen = (wanted(one, suite, tasks[one.group]) for one in cells)
        found = list(arrays(chosen, self.slurm.largest_array()))
        arrays_of = {group: sum(array[0].group == group for array in found) for group in tasks}
        shares = {group: at_once_of * arrays_of[group] for group, at_once_of in tasks.items()}
        lines = (
            plan_line(one, suite, shares[one.group], no_preflight=options.no_preflight, debug=options.debug)
            for one in cells
        )
        self.store.write_plan(lines)
        for array in found:
            self._submit_array(array)

    def _submit_array(self, array: Sequence[Wanted]) -> None:
        """List, keys and folder of logs are there before sbatch is called; what it says is needed by nobody."""
        keys = [one.key for one in array]
        wave = self.store.new_wave(self.suite_id, keys, together=array[0].together)
        script = self.store.script(wave.number)
        write_atomic(script, script_of(array, wave.job_name, wave.number, self.store), mode=PRIVATE)
        environment = self.store.environment(wave.number)
        write_environment(environment, self.work.env, secrets_of(self.work.cells) | named_by_servers(self.work.suite))
        for key in keys:
            self.submitted.setdefault(key, []).append(wave.number)
        try:
            job = self.slurm.submit(script)
        except BaseException:
            self._take_back(wave)
            raise
        many = "1 cell" if len(keys) == 1 else f"{len(keys):,} cells"
        self.work.journal.say(f"submitted {many} to Slurm: {wave.job_name} (job {job})")
        clean_up_after(self.store, wave, job, json.loads(array[0].resources), self.slurm, self.work.journal.say)

    def _take_back(self, wave: Wave) -> None:
        """sbatch failed, or did not say: what it may have queued ends, for it has no keys any more."""
        self.store.environment(wave.number).unlink(missing_ok=True)

    def _resources(self) -> dict[str, Mapping[str, Any]]:
        """Key -> what its task asks of Slurm."""
        slurm = self.work.suite.slurm
        return {key_of(planned): slurm[planned.cell.target] for planned in self.work.cells}

    def _say_what_is_waited_for(self, queued: Iterable[QueuedTask]) -> None:
        """Each reason once: which of them squeue shows changes from minute to minute."""
        for task in queued:
            if task.state == "PENDING" and task.reason not in OWN and task.reason not in self.told:
                self.told.add(task.reason)
                job = f"{task.job_id}_{task.index}"
                self.work.journal.say(f"{task.job_name} waits in Slurm: {in_words(task.reason, job)}")

    def _report_queued(self) -> None:
        """What goes on when this command has returned."""
        for planned in self.work.left:
            cell = planned.cell
            self.work.reports[planned.number] = CellReport(
                cell.target, cell.evaluation, WAITING, cell.folder, 0, QUEUED
            )  # fmt: skip

    def _end(
        self, planned: PlannedCell, status: RunStatus, exit_code: int, reason: str | None, attempts: int = 0
    ) -> None:
        cell = planned.cell
        told = {"attempt": attempts, "exit_code": exit_code, "status": status, "reason": reason}
        self.work.journal.tell(CELL_ENDED, **cell_fields(cell), **told, collected=False, reused_from=None)
        self.work.reports[planned.number] = CellReport(
            cell.target, cell.evaluation, status, cell.folder, exit_code, reason, attempts
        )
