"""Writes the outcome of a leaderboard: `leaderboard.json`, HELM's tables, and a summary.

A row is the outcome of one entry for one model. HELM's tables show the runs of the rows whose
scores may be reported.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TextIO

from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import (
    EvalFactoryError,
    HelmError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.run_statuses import WITH_RESULT
from eval_factory.core.rundir import PRIVATE_FOLDER, RunDir, SuiteDir
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.helm import names
from eval_factory.helm.command import command_line, helm_program
from eval_factory.plan.run_plan import key_destination_lines
from eval_factory.report.reader import load_result
from eval_factory.workflows import view_site
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.board import Board
from eval_factory.workflows.leaderboard.registry import Entry
from eval_factory.workflows.resume import read_last_run_state
from eval_factory.workflows.suite.planned_cells import redactor_of_all
from eval_factory.workflows.suite.suite_report import CellReport

_MAX_SHOWN = 10  # the maximum number of failed runs that the summary names
# the states of a row
IN_TABLES = "in the tables"
KEPT_OUT = "kept out"  # the scores are not reportable
_FAILED = "failed"  # the run has no result
_LEFT_OUT = "left out"  # the entry needs more than a chat endpoint
_WAITING = "waiting"  # the run is a Slurm job that has not ended


@dataclass(frozen=True)
class BoardRow:
    """The outcome of one entry for one model."""

    run: str  # the entry, without its model
    model_id: str
    state: str
    reason: str | None = None
    # the numbers of instances in `validity.instances` of the result; None without a result
    requested: int | None = None
    failed: int | None = None
    unjudged: int | None = None
    main_metric: str | None = None
    score: float | None = None
    folder: str | None = None  # the folder of the run, relative to the leaderboard's folder
    identity: str | None = None  # the identity of the run that the row describes
    groups: tuple[str, ...] = ()
    max_eval_instances: int | None = None


def board_rows(board: Board, cells: Sequence[CellReport]) -> list[tuple[BoardRow, int]]:
    """Return the rows of the board, each with the exit code of its run."""
    rows = []
    for cell in cells:
        rows += [_row(board, cell, entry) for entry in board.entries[cell.evaluation]]
    for skipped in board.not_run:
        state = _FAILED if skipped.exit_code else _LEFT_OUT
        for model in board.models.values():
            row = BoardRow(skipped.entry.row_name, model, state, skipped.reason)
            rows.append((row, skipped.exit_code))
    return rows


def _row(board: Board, cell: CellReport, entry: Entry) -> tuple[BoardRow, int]:
    """Return the row of an entry by the report of its cell, and the exit code of the run."""
    row = BoardRow(
        run=entry.row_name,
        model_id=board.models[cell.target],
        state=_FAILED,
        reason=cell.reason,
        groups=entry.groups or (),
    )
    if cell.status == RunStatus.WAITING:
        return replace(row, state=_WAITING), 0
    if cell.status not in WITH_RESULT:
        need = _unmet_need_in(cell.reason or "")
        if need is not None:
            return replace(row, state=_LEFT_OUT, reason=f"asks for {need}"), 0
        return row, cell.exit_code
    result = load_result(cell.folder).result
    last_run = read_last_run_state(RunDir(cell.folder))
    counts = result.validity.instances
    score = result.scores.get(result.main_metric)
    gaps = None  # a text about the instances without a score
    if counts.failed or counts.unjudged:
        gaps = f"{counts.failed} of {counts.requested} requests failed"
    if counts.unjudged:
        gaps = f"{gaps}, {counts.unjudged} not judged"
    row = replace(
        row,
        reason=gaps,
        requested=counts.requested,
        failed=counts.failed,
        unjudged=counts.unjudged,
        folder=cell.folder.relative_to(board.folder).as_posix(),
        identity=None if last_run is None else last_run.identity,
        max_eval_instances=board.max_eval_instances,
    )
    if not result.reportable:
        kept_out = replace(row, state=KEPT_OUT, reason=gaps or cell.reason)
        return kept_out, NotReportableError.exit_code
    value = None if score is None else score.value
    return replace(row, state=IN_TABLES, main_metric=result.main_metric, score=value), 0


def _unmet_need_in(reason: str) -> str | None:
    """Return what an entry needs and a chat endpoint lacks; None if the run ended otherwise.

    A run can find out only after its start that the entry needs more than a chat endpoint.
    `checked_run_specs` in helm_plugin/runner.py then writes a reason such as "mmlu:x asks a model
    for images; eval-factory ...". The need in this reason is "images".
    """
    _, phrase, rest = reason.partition("asks a model for ")
    if not phrase:
        return None
    return rest.partition(";")[0]


def stored_rows(folder: Path) -> dict[str, list[BoardRow]]:
    """Return the rows in leaderboard.json, of all models, by the name of the leaderboard.

    The result is empty if the file is missing or cannot be read.
    """
    try:
        text = SuiteDir(folder).leaderboard.read_text(encoding="utf-8")
        rows_by_name = {}
        for name, records in parse_json(text)["leaderboards"].items():
            rows = []
            for record in records:
                groups = tuple(record["groups"])  # JSON has lists, and no tuples
                rows.append(BoardRow(**{**record, "groups": groups}))
            rows_by_name[name] = rows
        return rows_by_name
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_rows(
    folder: Path, name: str, models: Iterable[str], rows: Sequence[BoardRow]
) -> list[BoardRow]:
    """Write the rows of one leaderboard and some models to leaderboard.json.

    Rows of other leaderboards and other models are preserved. Returns all rows of this leaderboard.
    """
    all_rows = stored_rows(folder)
    # The leaderboard is removed and added at the end: `board_runs` shows the last leaderboard.
    updated_models = set(models)
    other_models = [row for row in all_rows.pop(name, ()) if row.model_id not in updated_models]
    all_rows[name] = [*other_models, *rows]
    written = {}
    for leaderboard, its_rows in all_rows.items():
        written[leaderboard] = [asdict(row) for row in its_rows]
    document = {"schema_version": 2, "leaderboards": written}
    write_atomic(
        SuiteDir(folder).leaderboard, json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    )
    return all_rows[name]


def board_runs(folder: Path) -> tuple[list[view_site.ViewedRun], str]:
    """Return the runs in the tables of a leaderboard, and the text of its schema.

    The leaderboard is the one that was run last in the folder.

    Raises:
        PrerequisiteError: No run is in the tables, or the installed HELM lacks the schema.
    """
    rows_by_name = stored_rows(folder)
    if rows_by_name:
        last_name = list(rows_by_name)[-1]  # `write_rows` adds the leaderboard at the end
        runs = [run for run, _ in runs_in_tables(folder, rows_by_name[last_name])]
        if runs:
            leaderboard = registry.find_leaderboard(last_name)
            schema = registry.schema_path(leaderboard)
            if schema is not None:
                return runs, registry.schema_text(leaderboard, schema)
    raise PrerequisiteError(f"{folder}: has no run of a leaderboard whose tables could be shown")


def runs_in_tables(
    folder: Path, rows: Iterable[BoardRow]
) -> list[tuple[view_site.ViewedRun, BoardRow]]:
    """Return the runs of the rows that are in the tables, each run with its row.

    A row is left out if its folder now has another run. For example, a later command replaced the
    run, but ended before it wrote new rows.
    """
    viewed = []
    for row in rows:
        if row.folder is None or row.state != IN_TABLES:
            continue
        run_folder = folder / row.folder
        last_run = read_last_run_state(RunDir(run_folder))
        if last_run is not None and last_run.identity == row.identity:
            viewed.append((view_site.viewed_as_entry(run_folder, row.run, row.groups), row))
    return viewed


def _summarize_command(board: Board) -> list[str]:
    """Return the helm-summarize command that makes the tables."""
    work = RunDir(board.folder / "helm")
    return view_site.summarize_command(work, board.leaderboard.name, board.schema, work.root)


def commands_of(board: Board, env: Mapping[str, str], screen: TextIO, *, debug: bool) -> list[str]:
    """Return the commands of all runs and tables, redacted, and show where each key is sent.

    The lines about the keys are written to `screen`.
    """
    plans = []
    for cell in board.cells:
        if cell.plan is not None:
            plans.append(cell.plan)
    redactor = redactor_of_all(plans, env)
    key_lines = key_destination_lines(list(chain.from_iterable(plan.endpoints for plan in plans)))
    screen.writelines(redactor.redact_text(f"key of {line}\n") for line in dict.fromkeys(key_lines))
    runs = [command_line(plan, debug=debug) for plan in plans]
    return [
        redactor.redact_text(shlex.join(argv))
        for argv in (*runs, _summarize_command(board), _server_command(board))
    ]


def _server_command(board: Board) -> list[str]:
    """Return the command that starts HELM's server for the tables."""
    return [
        *helm_program("helm-server"),
        "--suite",
        board.leaderboard.name,
        "--output-path",
        str(board.folder / "helm"),
    ]


def write_tables(
    board: Board, cells: Sequence[CellReport], env: Mapping[str, str], screen: TextIO
) -> EvalFactoryError | None:
    """Write leaderboard.json and HELM's tables, and show a summary on `screen`.

    Returns:
        The error that says why the tables are incomplete, or None if they are complete.

    Raises:
        HelmError: HELM could not make the tables.
    """
    redactor = Redactor.from_environment(env)
    coded_rows = []  # each row with the exit code of its run
    for row, code in board_rows(board, cells):
        if row.reason is not None:
            row = replace(row, reason=redactor.redact_text(row.reason))
        coded_rows.append((row, code))
    rows = [row for row, _ in coded_rows]
    all_rows = write_rows(board.folder, board.leaderboard.name, board.models.values(), rows)
    runs = runs_in_tables(board.folder, all_rows)
    work = RunDir(board.folder / "helm")
    # the folder of HELM's suite, at the path that helm-server expects
    suite = work.root / names.RUNS_FOLDER / board.leaderboard.name
    for folder in (work.model_configs, work.logs, suite.parent):
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with work.locked() as lock:
        shutil.rmtree(suite, ignore_errors=True)
        if runs:
            view_site.write_run_folders([run for run, _ in runs], suite, copies=False)
            original = registry.schema_path(board.leaderboard)
            if board.leaderboard.schema_changes and original is not None:
                # In this case `board.schema` is the path of the changed copy.
                write_atomic(board.schema, registry.schema_text(board.leaderboard, original))
            models = {run.model: row.model_id for run, row in runs}  # HELM's name -> the model's ID
            view_site.make_tables(
                work,
                lock,
                models=models,
                argv=_summarize_command(board),
                env=env,
                screen=screen,
            )
            view_site.rename_files_with_colons(suite)
    lines = board_summary(board, rows, in_tables=[row for _, row in runs])
    screen.write(printable_lines("\n".join(lines)) + "\n")
    return shortcoming(coded_rows)


def board_summary(
    board: Board, rows: Sequence[BoardRow], in_tables: Sequence[BoardRow]
) -> list[str]:
    """Return the lines of the summary for the screen.

    `rows` are the rows of this command's models, `in_tables` the rows of all models in the tables.
    """
    counts = Counter(row.state for row in rows)
    further_counts = "".join(
        f", {counts[state]} {state}" for state in (_LEFT_OUT, _WAITING) if counts[state]
    )
    states = (
        f"{counts[IN_TABLES]} runs in the tables, {counts[KEPT_OUT]} kept out, {counts[_FAILED]} "
        f"failed{further_counts}"
    )
    lines = [f"{board.leaderboard.name}: {states}"]
    for row in rows:
        if row.reason and row.state in (IN_TABLES, KEPT_OUT):
            suffix = ": kept out of the tables" if row.state == KEPT_OUT else ""
            lines.append(f"  {row.run}: {row.reason}{suffix}")
    failed = []
    for row in rows:
        if row.state == _FAILED:
            failed.append(row)
    lines += [f"  failed: {row.run}: {row.reason}" for row in failed[:_MAX_SHOWN]]
    if len(failed) > _MAX_SHOWN:
        lines.append(f"  ... and {len(failed) - _MAX_SHOWN} more")
    if len(in_tables) > counts[IN_TABLES]:
        lines.append(f"  with the runs of other models: {len(in_tables)} runs in the tables")
    limits = set()
    for row in in_tables:
        if row.max_eval_instances is not None:
            limits.add(row.max_eval_instances)
    if len(limits) > 1:
        numbers = " and ".join(str(limit) for limit in sorted(limits))
        lines.append(f"  warning: the tables compare runs of {numbers} instances at most")
    lines.append(f"  every run, its state and main score: {SuiteDir(board.folder).leaderboard}")
    if in_tables:
        lines.append(
            f"  to view the tables: {shlex.join(['eval-factory', 'view', str(board.folder)])}"
        )
        lines.append(f"  or: {shlex.join(_server_command(board))}")
    return lines


def shortcoming(coded_rows: Sequence[tuple[BoardRow, int]]) -> EvalFactoryError | None:
    """Return the error that says why the tables are incomplete; None if they are complete.

    `coded_rows` are the rows of this command's models, each with the exit code of its run. The
    error is a NotReportableError if runs are kept out of the tables. If runs failed, it is an
    error with the exit code of all failed runs, or a HelmError if their exit codes differ.
    """
    failed_codes = []  # the exit codes of the failed runs
    kept_out = 0
    attempted = 0  # all runs but those that were left out; also runs that failed to start
    for row, code in coded_rows:
        if row.state == _FAILED:
            failed_codes.append(code)
        if row.state == KEPT_OUT:
            kept_out += 1
        if row.state != _LEFT_OUT:
            attempted += 1
    remedy = "run the same command again: finished runs are kept, and stored answers are used again"
    if failed_codes:
        error_class: type[EvalFactoryError] = HelmError
        for candidate in (PrerequisiteError, NotReportableError):
            if set(failed_codes) == {candidate.exit_code}:
                error_class = candidate
        cause = "see above"
        if error_class is PrerequisiteError:
            cause = "because data or a package is missing"
        return error_class(f"{len(failed_codes)} of {attempted} runs failed, {cause}\n  {remedy}")
    if kept_out:
        return NotReportableError(
            f"NOT REPORTABLE: {kept_out} runs are kept out of the tables\n  {remedy}"
        )
    return None
