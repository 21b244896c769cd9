"""Runs a suite on Slurm: submits the unfinished cells as jobs, and reports the cells that have
ended.

Each submission is one or more job arrays. A submitted array is called a wave. A task of an array
runs one cell, or all cells of a target whose model server the task starts.

All state is in the suite's folder, so that a later command can continue the suite.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.config.suite import Suite
from eval_factory.config.suite_model import LAUNCH_KEY, inherited_variables
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError, InterruptedRunError, NotReportableError
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import PRIVATE, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor, names_a_secret
from eval_factory.executors.runs import Ended, ExecutorRun, Lost, RunState, Started, Waiting
from eval_factory.executors.slurm import MEMORY_SIZE, QueueUnknownError, Slurm, step_command
from eval_factory.executors.slurm_runs import SlurmRuns, refuse_cells_in_slurm, wave_script
from eval_factory.executors.slurm_waves import SlurmSettings, SlurmStore, cell_of, split_into_arrays
from eval_factory.plan.credentials import CREDENTIALS_VARIABLE
from eval_factory.workflows.context import HUB_TOKEN, start_over
from eval_factory.workflows.suite.finished_cells import (
    has_usable_partial_result,
    is_complete_run,
    settings_of_result,
)
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions

if TYPE_CHECKING:
    from eval_factory.workflows.suite.cell_loop import Work

WORKER = ("-m", "eval_factory.workflows.suite.slurm_worker")
_POLL_S = 3.0  # the interval between two queries of Slurm's queue, in seconds
QUEUED = "queued in Slurm"  # the reason of a cell whose job is queued or runs
_LOST = "its task is gone from Slurm and left no result; see its log"
_DEFAULT_MAX_ARRAY_SIZE = 1001  # the maximum number of tasks in an array, by Slurm's default


def run_on_slurm(work: Work, slurm: Slurm, sleep: Callable[[float], None] = time.sleep) -> None:
    """Submit all unfinished cells. With the option `wait`, also wait until all jobs have ended.

    When the function returns, every cell has a report.

    Raises:
        ConfigError, PrerequisiteError: not all cells could be submitted. The same command continues
            the suite.
        BusyError: with the option `fresh`, a cell is still in Slurm, or another process works in
            its folder.
        InterruptedRunError: the user or `suite cancel` interrupted the command. After an interrupt
            by the user, the jobs continue.
    """
    folder = work.suite.folder
    slurm_runs = SlurmRuns(
        folder,
        slurm,
        WORKER,
        env=work.env,
        secrets=variables_for_tasks(work.cells, work.suite),
        say=work.journal.say,
    )
    # creates the folders, and deletes the mark of an earlier `suite cancel`
    slurm_runs.store.create_folders()
    if work.options.fresh:
        delete_results(work.unreported, folder, slurm)
    invocation = SlurmInvocation(work, slurm_runs)
    try:
        while True:
            states = invocation.poll_slurm()
            if slurm_runs.store.cancelled.exists():  # `suite cancel` ends this command like Ctrl-C
                raise KeyboardInterrupt
            if states is not None:
                invocation.act_on_states(states)
                if not work.unreported or not work.options.wait:
                    break
            work.journal.tick()
            sleep(_POLL_S)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "no longer waiting; the submitted jobs continue in Slurm: "
            f"eval-factory suite status {folder.chosen_folder}\n"
            f"  to end them: eval-factory suite cancel {folder.chosen_folder}"
        ) from None
    for planned in work.unreported:  # the jobs of these cells continue after this command
        work.reports[planned.number] = CellReport.of(
            planned.cell, RunStatus.WAITING, QUEUED, exit_code=0
        )


@dataclass
class SlurmInvocation:
    """One invocation of a suite on Slurm."""

    work: Work
    slurm_runs: SlurmRuns
    submitted: Counter[str] = field(default_factory=Counter)
    """The number of times that this invocation has submitted a run, by the name of the run."""
    # when Slurm stopped answering, in seconds of time.monotonic; None if the last query succeeded
    silent_since: float | None = None

    def poll_slurm(self) -> Mapping[str, RunState] | None:
        """Ask Slurm, and return the state of each run by the run's name.

        Returns None if Slurm did not answer and will be asked again.

        Raises:
            QueueUnknownError: Slurm has not answered for `max_outage_s` seconds, or Slurm did not
                answer and the option `wait` is not set.
        """
        try:
            states = self.slurm_runs.poll()
        except QueueUnknownError as error:
            now = time.monotonic()
            if self.silent_since is None:
                self.silent_since = now
                self.work.journal.say(str(error).split("\n", 1)[0])
            silent_s = now - self.silent_since
            if not self.work.options.wait or silent_s > self.work.suite.max_outage_s:
                raise
            return None
        self.silent_since = None
        return states

    def act_on_states(self, states: Mapping[str, RunState]) -> None:
        """Report ended cells, cancel jobs that can never start, and submit cells without a job.

        `states`: the state of each run, by the name of the run.
        """
        cells = {run_name(planned): planned for planned in self.work.unreported}
        names_in_slurm = {
            name for name, state in states.items() if isinstance(state, (Waiting, Started))
        }
        self._end_outdated(names_in_slurm, cells.keys())
        to_submit = []
        for name, planned in cells.items():
            state = states.get(name, Lost())  # a run that was never submitted has no state
            if isinstance(state, Waiting) and state.never_starts:
                self.slurm_runs.end([name])
                reason = (
                    f"Slurm would never have started it ({state.reason}), so it was cancelled; "
                    "correct suite.slurm"
                )
                self.work.report_end(planned, RunStatus.FAILED, ConfigError.exit_code, reason)
            elif name not in names_in_slurm and not self._report_if_ended(planned, state):
                to_submit.append(planned)
        # Deletes the keys of ended job arrays. For each array with queued tasks, submits a job that
        # deletes the keys later.
        self.slurm_runs.clean_up()
        if to_submit:
            self._submit(to_submit)

    def _end_outdated(
        self, names_in_slurm: AbstractSet[str], current_names: AbstractSet[str]
    ) -> None:
        """Cancel each run in Slurm whose cell has another configuration now.

        Args:
            names_in_slurm: the names of the runs whose task waits or runs.
            current_names: the names of the runs of the cells without a report.
        """
        cells_of_current = {cell_of(name) for name in current_names}
        for name in names_in_slurm - current_names:
            # The name of a run contains a digest of its settings. If the cell also has a current
            # run, the run in Slurm has other settings.
            if cell_of(name) in cells_of_current:
                self.work.journal.say(
                    f"{cell_of(name)}: its configuration has changed: its old job is ended first"
                )
                self.slurm_runs.end([name])

    def _submit(self, cells: Sequence[PlannedCell]) -> None:
        """Write the run config of each cell, and submit the cells."""
        runs = executor_runs_of(cells, self.work.suite, self.slurm_runs.store, self.work.options)
        # Several job arrays may share the limits of an endpoint, and run at the same time. Arrays
        # that `begin` splits, because Slurm limits their size, are counted as one array here.
        group_of_each_array = [
            SlurmSettings.of(array[0]).group
            for array in split_into_arrays(runs, max_size=len(runs))
        ]
        for planned, run in zip(cells, runs, strict=True):
            array_count = group_of_each_array.count(planned.group)
            sharing_tasks = SlurmSettings.of(run).at_once * array_count
            file = Path(run.run_config)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, to_yaml(document_of(planned, sharing_tasks)), mode=PRIVATE)
        self.slurm_runs.begin(runs)
        self.submitted.update(run.name for run in runs)

    def _report_if_ended(self, planned: PlannedCell, state: RunState) -> bool:
        """Report a cell without a task in Slurm, if the cell has ended; return True if it has.

        A cell has ended in three cases: its run is complete; its run ended after this invocation
        submitted the run; or the last of `max_attempts` submissions was lost.
        """
        name = run_name(planned)
        end = self.slurm_runs.recorded_end(name) if isinstance(state, Ended) else None
        if end is not None and end.status == RunStatus.COMPLETE:
            if is_complete_run(planned.plan):
                self.work.report_end(
                    planned,
                    RunStatus.COMPLETE,
                    end.exit_code,
                    end.reason,
                    starts=end.attempts,
                )
                return True
            end = None  # somebody has deleted the folder of the run: the cell is submitted again
        if not self.submitted[name]:
            return False  # the end, if any, is of an earlier invocation; the cell is submitted now
        if end is not None:
            status = RunStatus.FAILED
            if has_usable_partial_result(planned.plan):
                status = RunStatus.PARTIAL
            elif end.status == RunStatus.MISSING:
                status = RunStatus.MISSING
            self.work.report_end(planned, status, end.exit_code, end.reason, starts=end.attempts)
            return True
        if self.submitted[name] < self.work.suite.max_attempts:
            return False
        self.work.report_end(
            planned,
            RunStatus.MISSING,
            NotReportableError.exit_code,
            _LOST,
            starts=self.submitted[name],
        )
        return True


def run_name(planned: PlannedCell) -> str:
    """Return the name of a cell's run: `target/evaluation/digest`.

    The digest depends on all settings that affect the result: a changed configuration is a new run.
    """
    settings = [planned.plan.identity, settings_of_result(planned.plan.evaluation.as_dict())]
    settings_text = json.dumps(settings, sort_keys=True, default=str)
    digest = hashlib.sha256(settings_text.encode()).hexdigest()[:12]
    return f"{planned.cell.target}/{planned.cell.evaluation}/{digest}"


def refuse_unsupported_by_slurm(suite: Suite, env: Mapping[str, str]) -> None:
    """Check that Slurm jobs can follow all settings of the suite.

    Raises:
        ConfigError: the suite has a limit that jobs on several machines cannot share, several
            servers in a container or with memory that cannot be divided, or a secret in
            `suite.slurm`.
    """
    problems = []
    for name in suite.budget.stated_limits:
        problems.append(
            f"suite.{name}: jobs on several machines cannot share a limit; "
            f"suite.params.extra.{name} limits each cell: give every cell its part there, "
            "or choose executor local"
        )
    for target, serve in suite.serve.items():
        if serve["replicas"] == 1:
            continue
        memory = suite.slurm[target]["mem"]
        if memory is not None and not MEMORY_SIZE.fullmatch(str(memory)):
            problems.append(
                f"{target}: suite.slurm.mem: {memory!r} cannot be divided among the CPUs of "
                "each of serve.replicas; write a number with a unit, such as 8G"
            )
        if suite.slurm[target]["container"]:
            problems.append(
                f"{target}: srun starts each of serve.replicas, and a job has no srun inside of "
                "suite.slurm.container; put the container into serve.command instead"
            )
    redactor = Redactor.from_environment(env, filter(names_a_secret, env))
    if redactor.redact_tree(suite.slurm, known_only=True) != suite.slurm:
        problems.append(
            "suite.slurm: holds the value of a variable that is a secret (the value is not shown), "
            "and suite.slurm is written into files: remove the value; the jobs get the keys anyway"
        )
    if problems:
        raise ConfigError(problems)


def script_lines(
    suite: Suite, cells: Sequence[PlannedCell], env: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of the batch scripts.

    Raises:
        ConfigError: the suite has a setting that Slurm jobs cannot follow.
    """
    refuse_unsupported_by_slurm(suite, env)
    store = SlurmStore(suite.folder)
    runs = executor_runs_of(cells, suite, store, SuiteOptions())
    yield (
        "\n# batch scripts for a suite without earlier results; "
        "run_suite writes them and passes each to sbatch"
    )
    # run_suite asks scontrol for the actual maximum
    for number, array in enumerate(
        split_into_arrays(runs, max_size=_DEFAULT_MAX_ARRAY_SIZE), start=1
    ):
        names = ", ".join(cell_of(run.name) for run in array)
        yield f"\n# {store.script_file(number)}: {names}"
        # `ID` stands for the suite's id, which a dry run does not make
        script = wave_script(array, number, store, job_name=f"ef-ID-w{number}", worker=WORKER)
        yield script.rstrip("\n")


def executor_runs_of(
    cells: Sequence[PlannedCell], suite: Suite, store: SlurmStore, options: SuiteOptions
) -> list[ExecutorRun]:
    """Return the run of each cell, with all that an executor needs to start the run."""
    at_once = _tasks_at_once(cells, suite)
    runs = []
    for planned in cells:
        cell = planned.cell
        name = run_name(planned)
        serve = suite.serve.get(cell.target)
        resources = suite.slurm[cell.target]
        if serve is not None and serve["replicas"] > 1:
            serve = {**serve, LAUNCH_KEY: step_command(resources)}
        settings = SlurmSettings(
            group=planned.group,
            resources=resources,
            at_once=at_once[planned.group],
            serve=serve,
            max_processes=min(suite.max_processes, resources["cpus"]),
            max_attempts=suite.max_attempts,
            max_outage_s=suite.max_outage_s,
        )
        runs.append(
            ExecutorRun(
                name,
                run_config=str(store.run_config_file(name).absolute()),
                log=str(suite.folder.cell_log(cell.target, cell.evaluation).absolute()),
                record="",  # the Slurm task records the end of the run in the files of the wave
                debug=options.debug,
                # (): the task probes no endpoint; None: the task probes its endpoints
                probed=() if options.no_preflight else None,
                settings=asdict(settings),
            )
        )
    return runs


def _tasks_at_once(cells: Iterable[PlannedCell], suite: Suite) -> dict[str, int]:
    """Return a dict from each limit group to the maximum number of tasks that run at once.

    The tasks that run at once share the limits of the endpoint. The number therefore does not
    exceed any limit: each task needs at least one request.
    """
    at_once: dict[str, int] = {}
    for planned in cells:
        if planned.cell.target in suite.serve:
            wanted = 1  # a single task starts the server, and runs all cells of the target
        else:
            wanted = suite.slurm[planned.cell.target]["tasks_at_once"]
        allowed = min(wanted, *_limits(planned).values())
        at_once[planned.group] = min(allowed, at_once.get(planned.group, allowed))
    return at_once


def document_of(planned: PlannedCell, sharing_tasks: int) -> dict[str, Any]:
    """Return the run config of a cell, with an absolute output folder.

    `sharing_tasks`: the number of tasks that share the limits of the endpoint. The run config has
    the cell's part of each limit.
    """
    document = copy.deepcopy(dict(planned.cell.document))
    limits = {name: max(1, limit // sharing_tasks) for name, limit in _limits(planned).items()}
    document["config"]["output_dir"] = str(planned.plan.rundir.root.absolute())
    document["config"]["params"]["parallelism"] = limits.pop("parallelism")
    # without `parallelism`, only the limits of requests and tokens a minute are left
    document["target"]["api_endpoint"] |= limits
    return document


def _limits(planned: PlannedCell) -> dict[str, int]:
    """Return a dict from the name of each limit to its value; unstated limits are left out."""
    names = ("parallelism", "requests_per_minute", "tokens_per_minute")
    stated = {name: getattr(planned.plan.model, name) for name in names}
    return {name: value for name, value in stated.items() if value is not None}


def variables_for_tasks(cells: Iterable[PlannedCell], suite: Suite) -> set[str]:
    """Return the names of the variables with keys and settings of the cells and model servers.

    The tasks get these environment variables in addition to those that every task may get.
    """
    names = {HUB_TOKEN, CREDENTIALS_VARIABLE}
    for serve in suite.serve.values():
        names.update(inherited_variables(serve))
    for planned in cells:
        evaluation = planned.plan.evaluation
        names |= {*evaluation.key_variables(), *evaluation.setting_variables()}
        for endpoint in planned.plan.endpoints:
            names |= {*endpoint.key_names, *endpoint.secret_variables}
    return names


def delete_results(cells: Sequence[PlannedCell], folder: SuiteDir, slurm: Slurm) -> None:
    """Delete the answers and results of these cells (option `--fresh`).

    Raises:
        BusyError: a cell is still in Slurm: nothing was deleted. Or another process works in the
            folder of a cell: only the results of the cells before this cell were deleted.
        PrerequisiteError: Slurm does not report its queue; nothing was deleted.
    """
    refuse_cells_in_slurm(folder, [planned.cell.name for planned in cells], slurm)
    for planned in cells:
        rundir = planned.plan.rundir
        if rundir.marker.is_file():  # no run has used a folder without the marker
            with rundir.locked():
                start_over(rundir)
