"""Starts the unfinished cells of a suite, and decides what to do after the end of each process.

A cell is one evaluation of one target. Each start of a cell starts a process. A cell may need
several starts, for example after a failure.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from eval_factory.config.suite import Cell, Suite
from eval_factory.core.budget import SpendingTracker
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import (
    DEFECT_EXIT_CODE,
    BusyError,
    ConfigError,
    EndpointRefusedError,
    EndpointUnreachableError,
    HelmError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.core.safe_files import parse_json
from eval_factory.core.secrets import Redactor
from eval_factory.executors.runs import Ended, Executor, ExecutorRun, Lost, RunState, Started
from eval_factory.executors.served import ServedModel, ServerFailedError
from eval_factory.workflows.resume import read_last_run_state
from eval_factory.workflows.suite.endpoint_pauses import EndpointPauses, News
from eval_factory.workflows.suite.finished_cells import has_usable_partial_result, is_complete_run
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_journal import (
    CELL_ENDED,
    CELL_STARTED,
    ENDPOINT_BACK,
    ENDPOINT_PAUSED,
    SuiteJournal,
    cell_fields,
)
from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions
from eval_factory.workflows.suite.suite_status import reached_limit_text


def read_end_record(file: Path) -> Mapping[str, Any]:
    """Return the record that a cell's process wrote at its end.

    The record is empty if there is no readable record: the process was killed, or Python could not
    import a module.
    """
    try:
        record: dict[str, Any] = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record


class NextAction(Enum):
    """The action that follows the end of a cell's process.

    RESTART_AFTER_PROBE and PAUSE_ENDPOINT both pause the cell's limit group: no cell that shares
    the limits of the endpoint starts until the endpoint answers a probe. A start that ends with
    RESTART_AFTER_PROBE always counts towards `max_attempts`. A start that ends with PAUSE_ENDPOINT
    counts only if the endpoint answers the first probe of the pause.
    """

    NOTHING = "the cell is not started again"
    RESTART = "the cell is started again at once"
    RESTART_AFTER_PROBE = "the cell is started again as soon as its endpoint answers a probe"
    WAIT_FOR_FOLDER = "the cell is started again when no other process locks its folder"
    PAUSE_ENDPOINT = "all cells of the endpoint wait until the endpoint answers again"
    STOP_TARGET = "no cell of the target that needs requests is started any more"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one process of a cell."""

    next_action: NextAction
    status: RunStatus  # the cell's status if the cell is not started again
    # why the cell is not complete, or why its result is not reportable
    reason: str | None = None
    exit_code: int = 0  # the exit code that `run_eval` would have had
    # True if this start of the cell counts towards `max_attempts`
    counts_as_attempt: bool = True


def outcome_of(
    code: int, record: Mapping[str, Any], *, may_try_again: bool, has_result: bool
) -> Outcome:
    """Return the outcome of a cell's process.

    Args:
        code: the exit code of the process; minus the signal's number if a signal killed it.
        record: the process's record of its end; empty if the process wrote none.
        may_try_again: True if the cell may have another attempt after this one.
        has_result: True if the cell's folder holds a partial result of an earlier attempt.
    """
    if record.get("status") is not None:  # the process wrote a result
        not_reportable = record.get("not_reportable")
        reason = None if not_reportable is None else not_reportable.split("\n")[0]
        if record["status"] == RunStatus.COMPLETE:
            # The record's exit code: 0 for a demo, although no score of a demo may be reported.
            code = record["exit_code"]
            return Outcome(NextAction.NOTHING, RunStatus.COMPLETE, reason, code)
        # The result has gaps: another attempt repeats the failed requests.
        gaps = reason or "some requests failed; the same command sends these requests again"
        next_action = NextAction.RESTART_AFTER_PROBE if may_try_again else NextAction.NOTHING
        return Outcome(next_action, RunStatus.PARTIAL, gaps, NotReportableError.exit_code)
    # Without a record, 1 is the exit code of Python, which could not import eval-factory.
    if not record and code == 1:
        code = DEFECT_EXIT_CODE
    error = record.get("error") or {}
    reason = _reason_of(code, error.get("message"))
    status = RunStatus.PARTIAL if has_result else RunStatus.FAILED
    # A process with a record but no result raises NotReportableError only for a reached limit of
    # the budget.
    if code in (NotReportableError.exit_code, InterruptedRunError.exit_code):
        status_if_stopped = RunStatus.PARTIAL if has_result else RunStatus.MISSING
        return Outcome(NextAction.NOTHING, status_if_stopped, reason, code)
    if code == BusyError.exit_code:
        return Outcome(NextAction.WAIT_FOR_FOLDER, status, reason, code, counts_as_attempt=False)
    # The two errors about endpoints have the exit code of a PrerequisiteError.
    if code == PrerequisiteError.exit_code:
        if error.get("type") == EndpointUnreachableError.__name__:
            return Outcome(NextAction.PAUSE_ENDPOINT, status, reason, code, counts_as_attempt=False)
        if error.get("type") == EndpointRefusedError.__name__:
            return Outcome(NextAction.STOP_TARGET, status, reason, code)
    if code in (PrerequisiteError.exit_code, ConfigError.exit_code):
        return Outcome(NextAction.NOTHING, status, reason, code)
    # helm-run failed, or a signal killed the process: another attempt may succeed.
    exit_code = code if code in (HelmError.exit_code, DEFECT_EXIT_CODE) else HelmError.exit_code
    next_action = NextAction.RESTART if may_try_again else NextAction.NOTHING
    return Outcome(next_action, status, reason, exit_code)


def _reason_of(code: int, message: str | None) -> str:
    """Return the reason of a failure, on one line.

    Args:
        code: the exit code of the process; minus the signal's number if a signal killed it.
        message: the error message of the process, if the process recorded an error.
    """
    if not message:
        if code < 0:
            return f"its process was killed by signal {-code}"
        return f"its process ended with exit code {code}"
    reason, *further_lines = message.split("\n")
    # a first line such as "FILE has mistakes:" says nothing without the line that follows
    if reason.endswith(":") and further_lines:
        return f"{reason} {further_lines[0].strip()}"
    return reason


_TICK_S = 0.1  # the maximum time that one round of the loop waits for changes, in seconds
_FOLDER_CHECK_INTERVAL_S = 2.0  # the interval between two attempts to lock a folder, in seconds
_INTERRUPTED = "interrupted"


@dataclass
class Work:
    """One invocation of a suite: the input, and the reports of the cells that have ended so far."""

    suite: Suite
    options: SuiteOptions
    env: Mapping[str, str]
    journal: SuiteJournal
    cells: tuple[PlannedCell, ...]
    redactor: Redactor
    # the start of the invocation, in seconds of time.monotonic
    began: float = field(default_factory=time.monotonic)
    # the report of each cell that has ended, by the number of the cell
    reports: dict[int, CellReport] = field(default_factory=dict)
    # the reports of the results that the suite's file names under `reuse`
    reused: list[CellReport] = field(default_factory=list)
    # the reason why no further cells that need requests are started; None: cells may be started
    stopped: str | None = None

    @property
    def unreported(self) -> list[PlannedCell]:
        """The cells that have no report yet."""
        unreported: list[PlannedCell] = []
        for planned in self.cells:
            if planned.number not in self.reports:
                unreported.append(planned)
        return unreported

    def report_end(
        self,
        planned: PlannedCell,
        status: RunStatus,
        exit_code: int,
        reason: str | None,
        *,
        starts: int = 0,
        collected: bool = False,
        tries_again: bool = False,
    ) -> None:
        """Report that a cell has ended, or that a start of the cell has ended.

        Args:
            planned: the cell.
            status: the status of the cell.
            exit_code: the exit code that `run_eval` would have had.
            reason: why the cell is not complete, or why its result is not reportable.
            starts: the number of times that the cell was started; events and reports call this
                number `attempt` or `attempts`.
            collected: True if the run was complete already, so that the last start only collected
                its result and sent no request.
            tries_again: True if the cell waits for its next start: it then gets no report yet.
        """
        report = CellReport.of(
            planned.cell, status, reason, starts, exit_code=exit_code, collected=collected
        )
        if not tries_again:
            self.reports[planned.number] = report
        self.record_end(report, planned.plan.identity, tries_again=tries_again)

    def record_end(
        self, report: CellReport, identity: str | None, *, tries_again: bool = False
    ) -> None:
        """Write the event about the end of a cell, or of a start, to the suite's journal."""
        again = {"again": True} if tries_again else {}
        self.journal.record(
            CELL_ENDED,
            **cell_fields(report),
            attempt=report.attempts,
            exit_code=report.exit_code,
            status=report.status,
            reason=report.reason,
            **again,
            collected=report.collected,
            reused_from=None if report.reused_from is None else str(report.reused_from),
            identity=identity,
        )

    def report_unstarted(
        self, cells: Iterable[PlannedCell], status: RunStatus, exit_code: int, reason: str
    ) -> None:
        """Report these cells, which will not be started.

        A cell whose folder has a valid partial result gets the status `partial`.
        """
        for planned in cells:
            cell_status = RunStatus.PARTIAL if self.has_valid_partial_result(planned) else status
            self.report_end(planned, cell_status, exit_code, reason)

    def has_valid_partial_result(self, planned: PlannedCell) -> bool:
        """Return True if the cell's folder has a partial result that this invocation may use.

        With the option `--fresh`, no earlier result may be used.
        """
        return not self.options.fresh and has_usable_partial_result(planned.plan)


@dataclass
class UnfinishedCell:
    """A cell that waits for a start or runs, with the state of its starts."""

    planned: PlannedCell
    end_file: Path  # the file in which the process records its end
    has_result: bool  # True if the folder has a partial result of an earlier start or invocation
    # the number of times that the cell was started; in events and reports, this number is called
    # `attempt` and `attempts`
    starts: int = 0
    counted_attempts: int = 0  # the number of ended starts that count towards `max_attempts`
    last_reported_start: int = 0  # the number of the last start that is in the journal
    # when the folder's lock is tried again, in seconds of time.monotonic;
    # None: no other process is known to lock the folder
    next_folder_check: float | None = None
    last_outcome: Outcome | None = None  # the outcome of the last process
    # the value of `complete_run_id` when the process was started
    complete_run_id_at_start: str | None = None

    @property
    def cell(self) -> Cell:
        """The cell itself."""
        return self.planned.cell

    def complete_run_id(self) -> str | None:
        """Return the id of the complete run in the cell's folder; None if there is none."""
        state = read_last_run_state(self.planned.plan.rundir)
        if state is None or not state.complete:
            return None
        return state.run_id

    @property
    def was_complete_at_start(self) -> bool:
        """True if the folder still has the complete run that it had when the process started.

        The process has then sent no request.
        """
        run_id = self.complete_run_id_at_start
        return run_id is not None and run_id == self.complete_run_id()


@dataclass
class CellLoop:
    """Starts cells, waits for their ends, and decides what to do next.

    Only one thread may use an instance.
    """

    work: Work
    executor: Executor
    pauses: EndpointPauses
    probed: Mapping[int, frozenset[str] | None]
    """The roles whose endpoints answered the suite's probe, by the number of the cell.

    A cell without an entry, or with None, probes its endpoints itself.
    """
    limits: Mapping[int, SharedLimitsSettings] = field(default_factory=dict)
    """The shared limits that apply to a cell's requests, by the number of the cell."""
    # counts the spending of all cells; None if the suite has no budget
    tracker: SpendingTracker | None = None
    # the server of the model that all of these cells ask; None: the suite starts no server
    server: ServedModel | None = None
    # the cells that wait, by number
    _waiting: dict[int, UnfinishedCell] = field(default_factory=dict)
    # the cells that run, by name
    _running: dict[str, UnfinishedCell] = field(default_factory=dict)

    def add(self, cells: Iterable[PlannedCell]) -> None:
        """Add cells that wait for their start."""
        for planned in cells:
            config = self.work.suite.folder.cell_config(
                planned.cell.target, planned.cell.evaluation
            )
            end_file = config.with_name(f"{planned.cell.evaluation}.end.json")
            self._waiting[planned.number] = UnfinishedCell(
                planned, end_file, self.work.has_valid_partial_result(planned)
            )

    def run(self) -> None:
        """Run the cells until every cell has a report.

        Raises:
            KeyboardInterrupt: the run was interrupted. All running cells have been ended, and every
                cell has a report.
        """
        try:
            while self._waiting or self._running:
                self._start_ready_cells()
                # `poll` waits for at most `_TICK_S` seconds before it reads the states
                self._process_states(self.executor.poll(_TICK_S))
                self._check_server()
                self._check_pauses()
                self._check_budget()
                self.work.journal.tick()
        except KeyboardInterrupt:
            self.work.journal.say("interrupted: ending the cells that run ...")
            self._end_running(
                Outcome(
                    NextAction.NOTHING,
                    RunStatus.MISSING,
                    _INTERRUPTED,
                    InterruptedRunError.exit_code,
                )
            )
            cells_left = [*self._running.values(), *self._waiting.values()]
            self._give_up(
                cells_left, RunStatus.MISSING, InterruptedRunError.exit_code, _INTERRUPTED
            )
            raise

    def _start_ready_cells(self) -> None:
        """Start waiting cells until `max_processes` cells run.

        Cells of the endpoint with the fewest running cells come first. All endpoints are then busy
        at the same time. While one cell of an endpoint loads data or is scored, another cell of
        that endpoint sends requests.
        """
        while len(self._running) < self.work.suite.max_processes:
            unfinished = self._next_cell()
            if unfinished is None:
                return
            self._start(unfinished)

    def _next_cell(self) -> UnfinishedCell | None:
        """Return the waiting cell that is started next; None if no waiting cell can be started."""
        ready = []
        for unfinished in self._waiting.values():
            is_paused = unfinished.planned.group in self.pauses.paused_groups
            if self._folder_is_free(unfinished) and not is_paused:
                ready.append(unfinished)
        running_in_group: Counter[str] = Counter()
        for unfinished in self._running.values():
            running_in_group[unfinished.planned.group] += 1

        def order(unfinished: UnfinishedCell) -> tuple[int, int]:
            # Cells of the same endpoint are started in the order of the suite.
            return running_in_group[unfinished.planned.group], unfinished.planned.number

        return min(ready, key=order, default=None)

    def _start(self, unfinished: UnfinishedCell) -> None:
        """Start a process for this cell."""
        folder = self.work.suite.folder
        options = self.work.options
        cell = unfinished.cell
        number = unfinished.planned.number
        self._running[cell.name] = self._waiting.pop(number)
        unfinished.end_file.unlink(missing_ok=True)
        unfinished.starts += 1
        unfinished.complete_run_id_at_start = unfinished.complete_run_id()
        probed = self.probed.get(number)
        run = ExecutorRun(
            name=cell.name,
            run_config=str(folder.cell_config(cell.target, cell.evaluation)),
            log=str(folder.cell_log(cell.target, cell.evaluation)),
            record=str(unfinished.end_file),
            # `--fresh` deletes answers of earlier invocations, not those of an earlier start
            fresh=options.fresh and unfinished.starts == 1,
            debug=options.debug,
            probed=None if probed is None else tuple(sorted(probed)),
            limits=self.limits.get(number),
            served_at=None if self.server is None else " ".join(self.server.addresses),
        )
        self.executor.begin([run])

    def _end_running(self, outcome: Outcome) -> None:
        """End all running cells. `outcome`: the outcome of each cell that wrote no result."""
        self.executor.end()
        self._process_states(self.executor.poll(), outcome)

    def _process_states(
        self, states: Mapping[str, RunState], outcome_if_no_result: Outcome | None = None
    ) -> None:
        """Report each cell that has started, and process the end of each cell that has ended.

        `outcome_if_no_result`: the outcome of ended cells that have written no result; None: the
        outcome follows from the exit code.
        """
        for name, unfinished in list(self._running.items()):
            # None: an interrupt came before the executor had started the cell
            state = states.get(name)
            if isinstance(state, Started) and unfinished.last_reported_start != unfinished.starts:
                unfinished.last_reported_start = unfinished.starts
                cell = cell_fields(unfinished.cell)
                identity = unfinished.planned.plan.identity
                self.work.journal.record(
                    CELL_STARTED,
                    **cell,
                    attempt=unfinished.starts,
                    pid=state.pid,
                    identity=identity,
                )
            elif isinstance(state, (Ended, Lost)):
                del self._running[name]
                # A lost process is treated as if SIGKILL had killed it.
                code = -int(signal.SIGKILL) if isinstance(state, Lost) else state.code
                self._process_end(unfinished, code, outcome_if_no_result)

    def _process_end(
        self, unfinished: UnfinishedCell, code: int, outcome_if_no_result: Outcome | None
    ) -> None:
        """Record the end of a cell's process, and prepare the next action."""
        record = read_end_record(unfinished.end_file)
        wrote_result = record.get("status") is not None
        attempts_with_this = unfinished.counted_attempts + 1
        may_try_again = attempts_with_this < self.work.suite.max_attempts
        outcome = outcome_of(
            code, record, may_try_again=may_try_again, has_result=unfinished.has_result
        )
        if outcome_if_no_result is not None and not wrote_result:
            if unfinished.has_result:
                outcome = replace(outcome_if_no_result, status=RunStatus.PARTIAL)
            else:
                outcome = outcome_if_no_result
        if outcome.counts_as_attempt:
            unfinished.counted_attempts += 1
        unfinished.has_result = unfinished.has_result or wrote_result
        unfinished.last_outcome = outcome
        tries_again = outcome.next_action not in (NextAction.NOTHING, NextAction.STOP_TARGET)
        self.work.report_end(
            unfinished.planned,
            outcome.status,
            outcome.exit_code,
            outcome.reason,
            starts=unfinished.starts,
            collected=unfinished.was_complete_at_start,
            tries_again=tries_again,
        )
        if tries_again:
            self._waiting[unfinished.planned.number] = unfinished
        self._take_next_action(unfinished, outcome)

    def _take_next_action(self, unfinished: UnfinishedCell, outcome: Outcome) -> None:
        """Prepare the action that follows the end of a cell's process.

        A cell that starts again, perhaps later, is already in `_waiting`.
        """
        reason = outcome.reason or ""  # every outcome with a next action has a reason
        if outcome.next_action is NextAction.STOP_TARGET:
            others_of_target = []
            for other in self._waiting.values():
                if other.cell.target == unfinished.cell.target and not self._only_collects(other):
                    others_of_target.append(other)
            self._give_up(
                others_of_target, RunStatus.FAILED, outcome.exit_code, f"not started: {reason}"
            )
        elif outcome.next_action in (NextAction.PAUSE_ENDPOINT, NextAction.RESTART_AFTER_PROBE):
            self.pauses.pause(unfinished.planned, reason)
        elif outcome.next_action is NextAction.WAIT_FOR_FOLDER:
            if unfinished.next_folder_check is None:
                self.work.journal.say(f"{unfinished.cell.name}: waiting: {reason}")
            unfinished.next_folder_check = time.monotonic() + _FOLDER_CHECK_INTERVAL_S

    def _only_collects(self, unfinished: UnfinishedCell) -> bool:
        """Return True if the cell would send no request and would only collect its result.

        Such a cell is started even if a limit or a refusal stops the other cells.
        """
        return is_complete_run(unfinished.planned.plan) and not self.work.options.fresh

    def _folder_is_free(self, unfinished: UnfinishedCell) -> bool:
        """Return True if no other process is known to lock the cell's folder.

        The lock is only tried after the cell has found its folder locked, and at most once every
        `_FOLDER_CHECK_INTERVAL_S` seconds.
        """
        if unfinished.next_folder_check is None:
            return True
        if time.monotonic() < unfinished.next_folder_check:
            return False
        try:
            with unfinished.planned.plan.rundir.locked():
                unfinished.next_folder_check = None
        except BusyError:
            unfinished.next_folder_check = time.monotonic() + _FOLDER_CHECK_INTERVAL_S
        except PrerequisiteError:
            # The folder cannot be locked at all: the cell itself will report the problem.
            unfinished.next_folder_check = None
        return unfinished.next_folder_check is None

    def _check_pauses(self) -> None:
        """Record which endpoints are gone or back, and end cells whose wait is over.

        A cell's wait is over after `max_outage_s` seconds, or if its attempts are used up.
        """
        for group, news, reason in self.pauses.take_news():
            cells = []
            for unfinished in self._waiting.values():
                if unfinished.planned.group == group:
                    cells.append(unfinished)
            if news is News.GONE:
                names = [unfinished.cell.name for unfinished in cells]
                self.work.journal.record(ENDPOINT_PAUSED, group=group, reason=reason, cells=names)
            elif news is News.BACK:
                self.work.journal.record(ENDPOINT_BACK, group=group)
            elif news is News.GIVEN_UP:
                why_given_up = (
                    f"its endpoint has not answered for {self.work.suite.max_outage_s:.0f} s: "
                    f"{reason}"
                )
                self._give_up(cells, RunStatus.FAILED, PrerequisiteError.exit_code, why_given_up)
            else:  # NEVER_GONE
                self._count_unreached_endpoint(cells)

    def _count_unreached_endpoint(self, cells: Iterable[UnfinishedCell]) -> None:
        """Count the last start of each cell that could not reach its endpoint as an attempt.

        The endpoint has answered the first probe, so the endpoint was not gone. A cell whose
        attempts are used up ends.
        """
        for unfinished in cells:
            last = unfinished.last_outcome
            if last is not None and last.next_action is NextAction.PAUSE_ENDPOINT:
                unfinished.counted_attempts += 1
                if unfinished.counted_attempts >= self.work.suite.max_attempts:
                    reason = last.reason or ""  # this outcome has a reason
                    self._give_up([unfinished], RunStatus.FAILED, last.exit_code, reason)

    def _check_server(self) -> None:
        """If all servers of the model are lost, end the running cells and wait for a new server.

        The cells then start again and reuse the answers that they already have. If no new server
        starts, the cells end.
        """
        if self.server is None:
            return
        has_cells_left = self._waiting or self._running
        if not has_cells_left or self.server.why_lost() is None:
            return
        loss_reason = "the server of its model was lost"
        self._end_running(
            Outcome(
                NextAction.RESTART,
                RunStatus.MISSING,
                loss_reason,
                PrerequisiteError.exit_code,
                counts_as_attempt=False,
            )
        )
        try:
            self.server.wait_until_ready()
        except ServerFailedError as error:
            self.work.journal.say(str(error))
            reason = str(error).split("\n")[0]
            self._give_up(
                [*self._running.values(), *self._waiting.values()],
                RunStatus.MISSING,
                error.exit_code,
                reason,
            )

    def _check_budget(self) -> None:
        """Stop starting cells if a limit of the suite's budget is reached.

        Running cells notice the limit at their next request.
        """
        if self.tracker is not None and self.work.stopped is None:
            spent = self.tracker.spent
            seconds = self.tracker.seconds_left
            reached = reached_limit_text(self.work.suite.budget, spent, seconds)
            if reached is not None:
                self.work.journal.say(f"{reached}: no more cells are started")
                self.work.stopped = f"not started: {reached}"
        if self.work.stopped is not None:
            cells_to_end = []
            for unfinished in self._waiting.values():
                if not self._only_collects(unfinished):
                    cells_to_end.append(unfinished)
            self._give_up(
                cells_to_end, RunStatus.MISSING, NotReportableError.exit_code, self.work.stopped
            )

    def _give_up(
        self, cells: list[UnfinishedCell], status: RunStatus, exit_code: int, reason: str
    ) -> None:
        """Report these cells, which will not be started again.

        A cell whose folder has a partial result gets the status `partial`.
        """
        for unfinished in cells:
            self._waiting.pop(unfinished.planned.number, None)
            final_status = RunStatus.PARTIAL if unfinished.has_result else status
            self.work.report_end(
                unfinished.planned,
                final_status,
                exit_code,
                reason,
                starts=unfinished.starts,
                collected=unfinished.was_complete_at_start,
            )
            # An interrupt may come after a cell is in `_running`, but before its process starts.
            self._running.pop(unfinished.cell.name, None)
