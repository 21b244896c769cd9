"""A suite on Slurm: submit what is missing, take over what is done, and go on from the suite's folder alone.

The cells of a suite as jobs of Slurm: what each task has to know, which arrays there are, their batch scripts.

What of the submitter's environment a task gets: by a file that only its user can read, and that goes away.

`--fresh` on Slurm: the cells forget what they were answered, before anything is submitted.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.config.suite import Suite
from eval_factory.config.suite_model import LAUNCH, variables_of
from eval_factory.core.errors import BusyError, ConfigError, InterruptedRunError, NotReportableError
from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor, names_a_secret
from eval_factory.executors.process import ALLOWED
from eval_factory.executors.slurm import (
    OWN,
    BatchJob,
    QueuedTask,
    QueueUnknownError,
    Slurm,
    Wanted,
    Wave,
    active,
    arrays,
    batch_script,
    hopeless,
    reason_in_words,
    step_words,
)
from eval_factory.plan.credentials import CREDENTIALS_VARIABLE
from eval_factory.plan.run_plan import leaves_of
from eval_factory.workflows.context import HUB_TOKEN, is_our_folder, start_over
from eval_factory.workflows.resume import read_state
from eval_factory.workflows.suite.cell_outcome import COMPLETE, FAILED, MISSING, PARTIAL, WAITING
from eval_factory.workflows.suite.finished_cells import OF_NO_RESULT, finished, put_in_place
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.slurm_store import (
    EndedCell,
    PlanLine,
    SlurmStore,
    cell_key,
    clean_up_after,
    clean_up_after_all,
    forget_keys,
)
from eval_factory.workflows.suite.suite_journal import CELL_ENDED, cell_fields
from eval_factory.workflows.suite.suite_report import CellReport

if TYPE_CHECKING:
    from eval_factory.workflows.suite.run_suite import Work

MODULE = "eval_factory.workflows.suite.slurm_worker"
SERVERS = "servers"
"""Beside what is asked of Slurm: for how many servers of a model."""
_OF_ENDPOINTS = ("requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True)
class Job:
    """An array that is to be submitted."""

    cells: Sequence[PlannedCell]
    keys: Sequence[str]
    resources: Mapping[str, Any]
    at_once: int


def key_of(planned: PlannedCell) -> str:
    """Of a cell with all that its result depends on; a relative path, too."""
    settings = {
        path: value
        for path, value in leaves_of(planned.plan.evaluation.as_dict())
        if path not in OF_NO_RESULT and value is not None
    }
    said = json.dumps([planned.plan.identity, settings], sort_keys=True, default=str)
    digest = hashlib.sha256(said.encode()).hexdigest()[:12]
    return f"{planned.cell.target}/{planned.cell.evaluation}/{digest}"


def refuse_what_slurm_cannot(suite: Suite, env: Mapping[str, str]) -> None:
    """
    Raises:
        ConfigError: something that tasks on several machines cannot keep together, or a secret for a batch script.
    """
    limits = [name for name, value in vars(suite.budget).items() if value is not None]
    problems = [
        f"suite.{name}: cannot be held by jobs on several machines together; suite.params.extra.{name} holds for"
        " each cell: give every cell its part there, or choose executor local"
        for name in limits
    ]
    problems += [
        f"{target}: a job has no srun inside of suite.slurm.container, which starts each of its serve.replicas; put the"
        " container into serve.command instead"
        for target, serve in suite.serve.items()
        if serve["replicas"] > 1 and suite.slurm[target]["container"]
    ]
    redactor = Redactor.from_environment(env, filter(names_a_secret, env))
    if redactor.tree(suite.slurm, known_only=True) != suite.slurm:
        problems.append(
            "suite.slurm: holds the value of a variable that is a secret (it is not shown), and is written into files;"
            " keys reach the jobs without it"
        )
    if problems:
        raise ConfigError(problems)


def at_once(suite: Suite, cells: Iterable[PlannedCell]) -> dict[str, int]:
    """Endpoint -> how many of its cells run at once: what is asked for, but no more than each can have a request of."""
    found: dict[str, int] = {}
    for planned in cells:
        asked_for = 1 if planned.cell.target in suite.serve else suite.slurm[planned.cell.target]["tasks_at_once"]
        most = min(asked_for, *_limits(planned).values())
        found[planned.group] = min(most, found.get(planned.group, most))
    return found


def plan_line(planned: PlannedCell, suite: Suite, share: int, *, no_preflight: bool, debug: bool) -> PlanLine:
    """
    Args:
        share: how many tasks have the endpoint's limits together.
    """
    document = copy.deepcopy(dict(planned.cell.document))
    limits = _limits(planned)
    document["config"]["params"]["parallelism"] = _part(limits["parallelism"], share)
    for name in _OF_ENDPOINTS:
        if name in limits:
            document["target"]["api_endpoint"][name] = _part(limits[name], share)
    cell = planned.cell
    return PlanLine(
        key_of(planned), cell.target, cell.evaluation, document, suite.max_attempts, no_preflight, debug,
        served_of(suite, cell.target),
    )  # fmt: skip


def served_of(suite: Suite, target: str) -> dict[str, Any] | None:
    """What a task needs to serve a target's model; None where somebody else does."""
    if target not in suite.serve:
        return None
    at_once = min(suite.max_processes, suite.slurm[target]["cpus"])
    serve, resources = suite.serve[target], suite.slurm[target]
    if serve["replicas"] > 1:
        serve = {**serve, LAUNCH: step_words(resources)}
    return {"serve": serve, "max_processes": at_once, "max_outage_s": suite.max_outage_s}


def wanted(planned: PlannedCell, suite: Suite, tasks_at_once: int) -> Wanted:
    """The cell, as something to be submitted."""
    serve, asked = suite.serve.get(planned.cell.target), suite.slurm[planned.cell.target]
    resources = json.dumps(asked if serve is None else {**asked, SERVERS: serve["replicas"]}, sort_keys=True)
    return Wanted(key_of(planned), planned.group, resources, tasks_at_once, serve is not None)


def script_of(array: Sequence[Wanted], name: str, number: int, store: SlurmStore) -> str:
    """The batch script of one wave."""
    resources = json.loads(array[0].resources)
    resources["python"] = resources["python"] or sys.executable
    job = BatchJob(
        servers=resources.pop(SERVERS, 1),
        name=name,
        tasks=1 if array[0].together else len(array),
        at_once=array[0].at_once,
        log=_absolute(store.logs(number)),
        resources=resources,
        argv=(
            "-m",
            MODULE,
            str(_absolute(store.plan_file)),
            str(_absolute(store.wave_file(number))),
        ),
    )
    return batch_script(job)


def _limits(planned: PlannedCell) -> dict[str, int]:
    model = planned.plan.model
    stated = {"parallelism": model.parallelism, **{name: getattr(model, name) for name in _OF_ENDPOINTS}}
    return {name: value for name, value in stated.items() if value is not None}


def _part(limit: int, share: int) -> int:
    return max(1, limit // share)


def _absolute(path: Path) -> Path:
    return path.absolute()


OF_THE_MACHINE = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP", "PYTHONPATH", "VIRTUAL_ENV",
        "CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SYSTEMROOT",
    }
)  # fmt: skip
"""The node, and the lines before the evaluation, say these themselves."""


def secrets_of(cells: Iterable[PlannedCell]) -> set[str]:
    """Names of variables that a cell reads, and that may be secret."""
    names = {HUB_TOKEN, CREDENTIALS_VARIABLE}
    for planned in cells:
        evaluation = planned.plan.evaluation
        names |= {*evaluation.key_names(), *evaluation.setting_names()}
        for endpoint in planned.plan.endpoints:
            names |= {*endpoint.key_names, *endpoint.secret_variables}
    return names


def named_by_servers(suite: Suite) -> set[str]:
    """Names of variables that the servers of models get."""
    return {name for serve in suite.serve.values() for name in variables_of(serve)}


def write_environment(path: Path, env: Mapping[str, str], secrets: Iterable[str]) -> None:
    names = {*(ALLOWED - OF_THE_MACHINE), *secrets}
    kept = {name: value for name, value in env.items() if name in names}
    write_atomic(path, json.dumps({"secrets": sorted(set(secrets) & kept.keys()), "values": kept}), mode=PRIVATE)


def take_environment(path: Path, env: MutableMapping[str, str]) -> None:
    """Keys are the submitter's; of settings, what the node or the lines before the evaluation say comes first.

    Raises:
        FileNotFoundError: the wave has ended, or was cancelled.
    """
    kept = json.loads(path.read_text(encoding="utf-8"))
    for name, value in kept["values"].items():
        if name in kept["secrets"] or name not in env:
            env[name] = value


MOST_NAMED = 3


def begin_anew(cells: Sequence[PlannedCell], store: SlurmStore, slurm: Slurm) -> None:
    """Delete attempts, answers and results of these cells; of none where one of them is in Slurm.

    Raises:
        BusyError: one of them waits or runs in Slurm, or somebody works in its folder.
        QueueUnknownError: Slurm does not say.
    """
    queued = {cell_key(key) for key in active(slurm.queue(), store.waves())}
    busy = [planned.cell.name for planned in cells if key_of(planned) in queued]
    if busy:
        folder = shlex.quote(str(store.suite.named))
        more = f" and {len(busy) - MOST_NAMED} more" if len(busy) > MOST_NAMED else ""
        raise BusyError(
            f"--fresh: in Slurm already: {', '.join(busy[:MOST_NAMED])}{more}\n"
            "  without --fresh the command takes them over; to begin anew, end them first:"
            f" eval-factory suite cancel {folder}"
        )
    for planned in cells:
        rundir = planned.plan.rundir
        if is_our_folder(rundir):
            with rundir.locked():
                start_over(rundir)
        cell = store.cell(key_of(planned))
        for one in (cell, *cell.parts()):
            shutil.rmtree(one.folder, ignore_errors=True)


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

    def _take(self, planned: PlannedCell, ended: EndedCell) -> bool:
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
                self.work.journal.say(f"{task.job_name} waits in Slurm: {reason_in_words(task.reason, job)}")

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
