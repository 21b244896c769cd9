"""The cells of models whose servers the suite starts: one server after another, each for all cells of its target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eval_factory.config.serve_model import LAUNCH, health_url, settings_of, variables_of, words_of
from eval_factory.config.suite import Suite
from eval_factory.core.errors import NotReportableError
from eval_factory.core.nouns import RunStatus
from eval_factory.core.secrets import is_place, names_a_secret
from eval_factory.executors.environment import ALLOWED
from eval_factory.executors.served import ServedModel, ServerFailedError, ServerSpec
from eval_factory.workflows.context import HUB_TOKEN
from eval_factory.workflows.suite.cell_outcome import FAILED, MISSING, PARTIAL
from eval_factory.workflows.suite.finished_cells import is_complete_run, keeps_partial_result
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_journal import CELL_ENDED, cell_fields
from eval_factory.workflows.suite.suite_options import CellReport
from eval_factory.workflows.suite.suite_probe import Answer

if TYPE_CHECKING:
    from eval_factory.workflows.suite.run_suite import Work

OF_THE_MACHINE = ("CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "LC_")
"""Beginnings of variables by which a server finds GPUs."""
OF_A_JOB = "SLURM_"
"""Beginning of the variables by which Slurm knows whose steps are started."""
RunCells = Callable[["Work", Sequence[PlannedCell], "ServedModel | None"], None]


def run_by_server(work: Work, run: RunCells) -> None:
    """Bring every cell that is left to its end: first those whose endpoints are there, then target by target.

    Two models that are served are never there at the same time: each may need all of the machine.

    Raises:
        KeyboardInterrupt: no server and no cell runs any more.
    """
    there = [planned for planned in work.left if planned.cell.target not in work.suite.serve]
    if there:
        run(work, there, None)
    for target in work.suite.serve:
        cells = [planned for planned in work.left if planned.cell.target == target]
        if not cells:
            continue
        if not work.options.fresh and all(is_complete_run(planned.plan) for planned in cells):
            run(work, cells, None)  # they are only collected
        elif work.stopped is not None:
            leave(work, cells, MISSING, NotReportableError.exit_code, work.stopped)
        else:
            _serve_and_run(work, target, cells, run)


def _serve_and_run(work: Work, target: str, cells: Sequence[PlannedCell], run: RunCells) -> None:
    say = work.journal.say
    for name in variables_of(work.suite.serve[target]):
        if name not in work.env:
            say(f"warning: the server of {target}: the variable {name} (serve.env) is not set")
    with ServedModel(server_spec(work.suite, target, cells, work.env), say, work.journal.tick) as server:
        try:
            server.start()
        except ServerFailedError as error:
            say(str(error))
            leave(work, cells, FAILED, error.exit_code, "not begun: " + str(error).split("\n")[0])
        else:
            run(work, cells, server)
            _name_its_log(work, target, cells, server)


def _name_its_log(work: Work, target: str, cells: Sequence[PlannedCell], server: ServedModel) -> None:
    """A model may hang while its health URL answers: its requests fail one by one, and nothing names the server."""
    ended = [work.reports[planned.number].status for planned in cells if planned.number in work.reports]
    if (FAILED in ended or PARTIAL in ended) and server.lost() is None:
        work.journal.say(
            f"the server of {target} answered its health URL to the end, and not all of its cells are complete; what it"
            f" said stands in {' and '.join(map(str, server.logs))}"
        )


def server_spec(suite: Suite, target: str, cells: Sequence[PlannedCell], env: Mapping[str, str]) -> ServerSpec:
    serve = suite.serve[target]
    variables, launch = variables_of(serve), tuple(serve.get(LAUNCH, ()))
    names = {HUB_TOKEN, *filter(names_a_secret, variables)}
    for planned in cells:
        names.update(planned.plan.evaluation.key_names())
    seen = server_environment(env, variables)
    if launch:
        seen |= {name: env[name] for name in env if name.startswith(OF_A_JOB) and not names_a_secret(name)}
    return ServerSpec(
        name=target,
        words=words_of(serve),
        health=health_url(serve),
        log=suite.folder.server_log(target),
        env=seen,
        settings=settings_of(serve),
        secrets=tuple(sorted(env[name] for name in names if env.get(name) and not is_place(env[name]))),
        start_time_limit_s=float(serve["start_time_limit_s"]),
        hang_time_limit_s=float(serve["hang_time_limit_s"]),
        stop_grace_s=float(serve["stop_grace_s"]),
        max_restarts=serve["max_restarts"],
        replicas=serve.get("replicas", 1),  # a job that an earlier version submitted does not say it
        launch=launch,
    )


def server_environment(env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What finds programs, files and GPUs, and the variables that are named: no key of a judge or a model."""
    kept = {
        name: value
        for name, value in env.items()
        if (name in ALLOWED or name.startswith(OF_THE_MACHINE)) and not names_a_secret(name)
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **{name: env[name] for name in names if name in env}}


def leave(work: Work, cells: Sequence[PlannedCell], status: RunStatus, exit_code: int, reason: str) -> None:
    """These cells are not begun. One that has a result with gaps keeps it."""
    for planned in cells:
        cell = planned.cell
        kept = PARTIAL if not work.options.fresh and keeps_partial_result(planned.plan) else status
        told: dict[str, Any] = {"attempt": 0, "exit_code": exit_code, "status": kept, "reason": reason}
        told |= {"collected": False, "reused_from": None, "identity": planned.plan.identity}
        work.journal.tell(CELL_ENDED, **cell_fields(cell), **told)
        work.reports[planned.number] = CellReport(cell.target, cell.evaluation, kept, cell.folder, exit_code, reason)


def asks_server(server: ServedModel) -> Callable[[PlannedCell], Answer]:
    """Whether the endpoint of a cell is there: its server says so."""

    def ask(_planned: PlannedCell) -> Answer:
        ready = server.is_ready()
        return Answer(answered=ready, warning=None if ready else "the server does not answer")

    return ask
