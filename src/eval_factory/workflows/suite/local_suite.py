"""Runs the cells of a suite on this machine, and starts model servers for them if needed.

A cell is one evaluation of one target. In the suite's file, a target may have a section `serve`
with the command of a server for its model. The suite then starts the server for the target's cells.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence

from eval_factory.config.suite import Suite
from eval_factory.config.suite_model import (
    LAUNCH_KEY,
    command_words,
    health_url,
    inherited_variables,
    stated_variables,
)
from eval_factory.core.budget import SpendingTracker
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import (
    EndpointUnreachableError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.secrets import is_existing_path, names_a_secret
from eval_factory.endpoint.shared_limits import LimitServer
from eval_factory.executors.process import ALLOWED_VARIABLES
from eval_factory.executors.runs import LocalRuns
from eval_factory.executors.served import ServedModel, ServerFailedError, ServerSpec
from eval_factory.workflows.context import HUB_TOKEN
from eval_factory.workflows.suite.cell_loop import CellLoop, Work
from eval_factory.workflows.suite.endpoint_pauses import EndpointPauses, EndpointProbe, ProbeAnswer
from eval_factory.workflows.suite.finished_cells import (
    groups_that_answered,
    is_complete_run,
    total_spending,
)
from eval_factory.workflows.suite.planned_cells import (
    PlannedCell,
    limits_of,
)

# the command that runs one cell; the executor appends the id of its own process
CELL_PROCESS = (sys.executable, "-m", "eval_factory.workflows.suite.cell_process")
_MACHINE_VARIABLE_PREFIXES = ("CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "LC_")
"""Beginnings of the names of variables that describe the machine: its GPUs and its locale."""
_SERVE_KEYS = (
    "start_time_limit_s",
    "hang_time_limit_s",
    "stop_grace_s",
    "max_restarts",
    "replicas",
)
"""Fields of ServerSpec that have the same names as keys of `serve` in the suite's file."""


def run_by_server(
    work: Work, run: Callable[[Work, Sequence[PlannedCell], ServedModel | None], None]
) -> None:
    """Run every cell that has no report yet, and start the servers of targets with `serve`.

    The folder of such a cell may already hold a complete run of an earlier invocation.

    Cells of targets without `serve` run first, all together. The other targets run one after
    another, because the server of a single target may need the complete machine.

    Args:
        work: the invocation of the suite.
        run: runs some cells, as `run_cells` does. It gets `work`, the cells, and the server of
            their model, or None.

    Raises:
        KeyboardInterrupt: the run was interrupted; all servers and cells have been ended.
    """
    say = work.journal.say
    cells_without_server = []
    for planned in work.unreported:
        if planned.cell.target not in work.suite.serve:
            cells_without_server.append(planned)
    no_server = None
    if cells_without_server:
        run(work, cells_without_server, no_server)
    for target, serve in work.suite.serve.items():
        cells = []
        for planned in work.unreported:
            if planned.cell.target == target:
                cells.append(planned)
        if not cells:
            continue
        all_are_complete = all(is_complete_run(planned.plan) for planned in cells)
        if all_are_complete and not work.options.fresh:
            # The results of these cells are only collected: no request needs a server.
            run(work, cells, no_server)
            continue
        if work.stopped is not None:  # a limit of the suite is reached
            exit_code = NotReportableError.exit_code
            work.report_unstarted(cells, RunStatus.MISSING, exit_code, work.stopped)
            continue
        for name in inherited_variables(serve):
            if name not in work.env:
                say(f"warning: the server of {target}: the variable {name} (serve.env) is not set")
        with ServedModel(
            server_spec(work.suite, target, cells, work.env), say, work.journal.tick
        ) as server:
            try:
                server.start()
            except ServerFailedError as error:
                say(str(error))
                reason = str(error).split("\n")[0]
                work.report_unstarted(
                    cells, RunStatus.FAILED, error.exit_code, f"not started: {reason}"
                )
                continue
            run(work, cells, server)


def server_spec(
    suite: Suite, target: str, cells: Sequence[PlannedCell], env: Mapping[str, str]
) -> ServerSpec:
    """Return the settings of the server of one target; `cells` are the target's cells."""
    serve = suite.serve[target]
    inherited_names = inherited_variables(serve)
    # In a Slurm job, the words of the command that starts the server as a step of the job.
    launch = tuple(serve.get(LAUNCH_KEY, ()))
    secret_names = {HUB_TOKEN, *filter(names_a_secret, inherited_names)}
    for planned in cells:
        secret_names.update(planned.plan.evaluation.key_variables())
    # The server gets the variables for programs, files, GPUs and the Slurm job, and the variables
    # that `serve` names. A key of a model or judge is passed on only if `serve` names its variable.
    prefixes: tuple[str, ...] = _MACHINE_VARIABLE_PREFIXES
    if launch:
        prefixes = (*prefixes, "SLURM_")
    passed_on = {}
    for name, value in env.items():
        # `ALLOWED_VARIABLES` are the variables that every process of eval-factory may get
        is_allowed = name in ALLOWED_VARIABLES or name.startswith(prefixes)
        if is_allowed and not names_a_secret(name):
            passed_on[name] = value
    passed_on["PYTHONUNBUFFERED"] = "1"  # the server's log shows each line at once
    for name in inherited_names:
        if name in env:
            passed_on[name] = env[name]
    secrets = set()  # these values are removed from the server's log
    for name in secret_names:
        value = env.get(name, "")
        if value and not is_existing_path(value):  # the path of a file with a key is not a secret
            secrets.add(value)
    return ServerSpec(
        name=target,
        words=command_words(serve),
        health=health_url(serve),
        log=suite.folder.server_log(target),
        env=passed_on,
        settings=stated_variables(serve),  # the variables with a value in the suite's file
        secrets=tuple(sorted(secrets)),
        launch=launch,
        **{name: serve[name] for name in _SERVE_KEYS},
    )


def _pause_or_fail_unreachable(
    work: Work, cells: Sequence[PlannedCell], probe: EndpointProbe, pauses: EndpointPauses
) -> None:
    """Pause, or report as failed, each cell with an endpoint whose probe failed.

    The targets of a limit group share the limits of one endpoint. If the endpoint of the cell's
    model is unreachable, but a model of the cell's limit group has answered in an earlier run, the
    whole group is paused. In all other cases the cell fails. Cells that need no request are left as
    they are.
    """
    answered_before = groups_that_answered(work.cells)
    for planned in cells:
        problem = probe.problem_of(planned)
        needs_no_request = is_complete_run(planned.plan) and not work.options.fresh
        if problem is None or needs_no_request:
            continue
        role, error = problem
        reason = str(error).split("\n")[0]
        is_gone = isinstance(error, EndpointUnreachableError) and role == MODEL_ROLE
        if is_gone and planned.group in answered_before:
            pauses.pause(planned, reason)
        else:
            work.report_unstarted(
                [planned],
                RunStatus.FAILED,
                PrerequisiteError.exit_code,
                f"not started: {reason}",
            )


def run_cells(work: Work, cells: Sequence[PlannedCell], server: ServedModel | None) -> None:
    """Run cells that have no report yet, within the limits that the cells share.

    `server`: the server of the cells' model; None if the suite starts no server for it.

    Raises:
        KeyboardInterrupt: the run was interrupted; the running cells have been ended.
    """
    suite = work.suite
    say = work.journal.say
    options = work.options
    limits_by_name, limit_names_of_cells = limits_of(
        (planned.plan.endpoints, planned.group) for planned in cells
    )
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(LocalRuns(CELL_PROCESS, work.env, suite.folder.log))
        probe = EndpointProbe(work.env, work.redactor, say)
        if not options.no_preflight and server is None:
            probe.probe_all(cells)
        tracker = None
        if suite.budget:  # the suite has a limit
            spent = total_spending(work.cells, say)  # in this and in earlier invocations
            tracker = SpendingTracker(suite.budget, spent, began=work.began)
        limit_server = stack.enter_context(LimitServer(limits_by_name, tracker))
        limits = {}
        for planned, names_by_role in zip(cells, limit_names_of_cells, strict=True):
            limits[planned.number] = SharedLimitsSettings(limit_server.address, names_by_role)

        def probe_model(planned: PlannedCell) -> ProbeAnswer:
            """Probe the endpoint of a cell's model. `EndpointPauses` calls this in other threads.

            Returns None if the endpoint answers, or if the user has switched probes off.
            """
            if server is not None:
                if server.is_ready():
                    return None
                return "the server does not answer"
            if options.no_preflight:
                return None
            return probe.probe_model(planned)

        pauses = EndpointPauses(probe_model, suite.max_outage_s)
        stack.callback(pauses.close)
        probed: dict[int, frozenset[str]] = {}
        # A cell with an entry in `probed` sends no probe. The suite does not probe a server that it
        # has started: the cells of the server have no entry, and probe their endpoints themselves.
        # If the user has switched probes off, each entry is an empty set.
        if server is None or options.no_preflight:
            for planned in cells:
                probed[planned.number] = probe.roles_that_answered(planned)
        loop = CellLoop(
            work, executor, pauses, probed, limits=limits, tracker=tracker, server=server
        )
        _pause_or_fail_unreachable(work, cells, probe, pauses)
        loop.add(planned for planned in cells if planned.number not in work.reports)
        loop.run()
