"""What came of a leaderboard's runs: `leaderboard.json`, HELM's tables, and the lines for the screen."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

from eval_factory.core.errors import EvalFactoryError, HelmError, NotReportableError, PrerequisiteError
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.nouns import RunStatus
from eval_factory.core.rundir import PRIVATE_FOLDER, RunDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.helm import names
from eval_factory.helm.command import command_line, helm_program
from eval_factory.plan.run_plan import where_keys_go
from eval_factory.report.reader import load_result
from eval_factory.workflows.context import HUB_TOKEN
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.board import Board
from eval_factory.workflows.leaderboard.registry import Entry
from eval_factory.workflows.resume import read_state
from eval_factory.workflows.suite.suite_report import CellReport
from eval_factory.workflows.view_site import (
    ViewedRun,
    lay_out,
    make_tables,
    summarize_command,
    viewed_as,
    without_colons,
)

_MAX_SHOWN = 10
IN_TABLES, KEPT_OUT, _FAILED, _LEFT_OUT, _WAITING = "in the tables", "kept out", "failed", "left out", "waiting"
"""Kept out: nobody can stand behind its scores. Left out: it asks for what no chat endpoint has. Waiting: in Slurm."""


@dataclass(frozen=True)
class BoardRow:
    """One entry of one model, and what came of it."""

    run: str  # the entry, without its model
    model_id: str
    state: str
    reason: str | None = None
    requested: int | None = None
    failed: int | None = None
    unjudged: int | None = None
    main_metric: str | None = None
    score: float | None = None
    folder: str | None = None  # of the run, in the leaderboard's folder
    identity: str | None = None  # of the run that this was said of
    groups: tuple[str, ...] = ()
    max_eval_instances: int | None = None


def board_rows(board: Board, cells: Sequence[CellReport]) -> list[tuple[BoardRow, int]]:
    """Each with the exit code that it means."""
    found = [_row(board, cell, entry) for cell in cells for entry in board.entries[cell.evaluation]]
    for one in board.not_run:
        state = _FAILED if one.exit_code else _LEFT_OUT
        found += [(BoardRow(one.entry.run, model, state, one.reason), one.exit_code) for model in board.models.values()]
    return found


def _row(board: Board, cell: CellReport, entry: Entry) -> tuple[BoardRow, int]:
    row = BoardRow(entry.run, board.models[cell.target], _FAILED, cell.reason, groups=entry.groups or ())
    if cell.status == RunStatus.WAITING:
        return replace(row, state=_WAITING), 0
    if cell.status not in (RunStatus.COMPLETE, RunStatus.PARTIAL):
        _, asks, more = (cell.reason or "").partition("asks a model for ")
        if asks:
            return replace(row, state=_LEFT_OUT, reason=f"asks for {more.partition(';')[0]}"), 0
        return row, cell.exit_code
    result, state = load_result(cell.folder).result, read_state(RunDir(cell.folder))
    counts, score = result.validity.instances, result.scores.get(result.main_metric)
    gaps = f"{counts.failed} of {counts.requested} requests failed" if counts.failed or counts.unjudged else None
    gaps = f"{gaps}, {counts.unjudged} not judged" if counts.unjudged else gaps
    row = replace(
        row,
        reason=gaps,
        requested=counts.requested,
        failed=counts.failed,
        unjudged=counts.unjudged,
        folder=cell.folder.relative_to(board.folder).as_posix(),
        identity=None if state is None else state.identity,
        max_eval_instances=board.max_eval_instances,
    )
    if not result.reportable:
        return replace(row, state=KEPT_OUT, reason=gaps or cell.reason), NotReportableError.exit_code
    value = None if score is None else score.value
    return replace(row, state=IN_TABLES, main_metric=result.main_metric, score=value), 0


def known_rows(folder: Path) -> dict[str, list[BoardRow]]:
    """Leaderboard -> rows of every model; nothing where the file cannot be read."""
    try:
        document = json.loads(SuiteDir(folder).leaderboard.read_text(encoding="utf-8"))["leaderboards"]
        return {
            name: [BoardRow(**{**row, "groups": tuple(row["groups"])}) for row in rows]
            for name, rows in document.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_rows(folder: Path, name: str, models: Iterable[str], rows: Sequence[BoardRow]) -> list[BoardRow]:
    """Write leaderboard.json; what it says of other leaderboards and models stays. Returns all of this leaderboard."""
    known, ours = known_rows(folder), set(models)
    known[name] = [*(row for row in known.pop(name, ()) if row.model_id not in ours), *rows]
    written = {name: [asdict(row) for row in rows] for name, rows in known.items()}
    document = {"schema_version": 2, "leaderboards": written}
    write_atomic(SuiteDir(folder).leaderboard, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return known[name]


def board_runs(folder: Path) -> tuple[list[ViewedRun], str]:
    """What stands in a leaderboard's tables, and HELM's schema for it: of the last one that was run in the folder.
    Raises PrerequisiteError: nothing does, or HELM has no such schema any more."""
    name, rows = next(reversed(known_rows(folder).items()), ("", []))
    runs = [run for run, _ in runs_in_tables(folder, rows)]
    row = registry.find(name) if runs else None
    schema = None if row is None else registry.schema_path(row)
    if row is None or schema is None:
        raise PrerequisiteError(f"{folder}: holds no run of a leaderboard whose tables could be shown")
    return runs, registry.schema_text(row, schema)


def runs_in_tables(folder: Path, rows: Iterable[BoardRow]) -> list[tuple[ViewedRun, BoardRow]]:
    """Those whose folder still holds the run that the row is of: one model's runs may have been run again since."""
    found = []
    for row in rows:
        own = None if row.folder is None else folder / row.folder
        state = None if own is None or row.state != IN_TABLES else read_state(RunDir(own))
        if own is not None and state is not None and state.identity == row.identity:
            found.append((viewed_as(own, row.run, row.groups), row))
    return found


def _summarize_command(board: Board) -> list[str]:
    work = RunDir(board.folder / "helm")
    return summarize_command(work, board.row.name, board.schema, work.root)


def commands_of(board: Board, env: Mapping[str, str], screen: TextIO, *, debug: bool) -> list[str]:
    """HELM's commands, redacted; which key goes where is shown on `screen`."""
    plans = [one.plan for one in board.cells if one.plan is not None]
    keys = dict.fromkeys(name for plan in plans for name in plan.evaluation.key_names())
    redactor = Redactor.from_environment(env, [*keys, HUB_TOKEN])
    places = where_keys_go([endpoint for plan in plans for endpoint in plan.endpoints])
    screen.writelines(redactor.text(f"key of {line}\n") for line in dict.fromkeys(places))
    runs = [command_line(plan, debug=debug) for plan in plans]
    return [redactor.text(shlex.join(argv)) for argv in (*runs, _summarize_command(board), _server_command(board))]


def _server_command(board: Board) -> list[str]:
    """For the user to start."""
    return [*helm_program("helm-server"), "--suite", board.row.name, "--output-path", str(board.folder / "helm")]


def tables_of(
    board: Board, cells: Sequence[CellReport], env: Mapping[str, str], screen: TextIO
) -> EvalFactoryError | None:
    """Write leaderboard.json and HELM's tables, and say what there is. Returns why they are not complete, with the exit
    code; None where they are. Raises HelmError: HELM could not make them."""
    redactor = Redactor.from_environment(env)
    found = [
        (replace(row, reason=row.reason and redactor.text(row.reason)), code) for row, code in board_rows(board, cells)
    ]
    everybodys = write_rows(board.folder, board.row.name, board.models.values(), [row for row, _ in found])
    runs = runs_in_tables(board.folder, everybodys)
    work = RunDir(board.folder / "helm")
    suite = work.root / names.RUNS_FOLDER / board.row.name  # where helm-server looks for it
    for own in (work.model_configs, work.logs, suite.parent):
        own.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with work.locked() as lock:
        shutil.rmtree(suite, ignore_errors=True)
        if runs:
            lay_out([run for run, _ in runs], suite, copies=False)
            original = registry.schema_path(board.row)
            if board.row.schema_changes and original is not None:
                write_atomic(board.schema, registry.schema_text(board.row, original))
            models = {run.model: row.model_id for run, row in runs}
            make_tables(work, lock, models, _summarize_command(board), env, screen)
            without_colons(suite)
    screen.write(own_lines("\n".join(board_summary(board, [row for row, _ in found], [row for _, row in runs]))) + "\n")
    return shortcoming(found)


def board_summary(board: Board, rows: Sequence[BoardRow], in_tables: Sequence[BoardRow]) -> list[str]:
    """The lines for the screen."""
    counts = Counter(row.state for row in rows)
    others = "".join(f", {counts[state]} {state}" for state in (_LEFT_OUT, _WAITING) if counts[state])
    numbers = f"{counts[IN_TABLES]} runs in the tables, {counts[KEPT_OUT]} kept out, {counts[_FAILED]} failed{others}"
    lines = [f"{board.row.name}: {numbers}"]
    for row in rows:
        if row.reason and row.state in (IN_TABLES, KEPT_OUT):
            lines.append(f"  {row.run}: {row.reason}{': kept out of the tables' if row.state == KEPT_OUT else ''}")
    failed = [row for row in rows if row.state == _FAILED]
    lines += [f"  failed: {row.run}: {row.reason}" for row in failed[:_MAX_SHOWN]]
    lines += [f"  ... and {len(failed) - _MAX_SHOWN} more"] if len(failed) > _MAX_SHOWN else []
    if len(in_tables) > counts[IN_TABLES]:
        lines.append(f"  with those of other models: {len(in_tables)} runs in the tables")
    limits = sorted({row.max_eval_instances or 0 for row in in_tables})
    if len(limits) > 1:
        lines.append(f"  warning: the tables compare runs of {' and '.join(map(str, limits))} instances at most")
    lines.append(f"  every run, its state and main score: {SuiteDir(board.folder).leaderboard}")
    if in_tables:
        lines.append(f"  to look at them: {shlex.join(['eval-factory', 'view', str(board.folder)])}")
        lines.append(f"  or: {shlex.join(_server_command(board))}")
    return lines


def shortcoming(found: Sequence[tuple[BoardRow, int]]) -> EvalFactoryError | None:
    """PrerequisiteError or HelmError: some runs failed. NotReportableError: some are kept out of the tables."""
    failed = [code for row, code in found if row.state == _FAILED]
    kept_out = sum(row.state == KEPT_OUT for row, _ in found)
    again = "run the same command again: what is finished stays, what was answered is not asked again"
    if failed:
        alike = {one.exit_code: one for one in (PrerequisiteError, NotReportableError)} if len(set(failed)) == 1 else {}
        kind = alike.get(failed[0], HelmError)
        what = "for want of data or a package" if kind is PrerequisiteError else "see above"
        return kind(
            f"{len(failed)} of {sum(row.state != _LEFT_OUT for row, _ in found)} runs failed, {what}\n  {again}"
        )
    if kept_out:
        return NotReportableError(f"NOT REPORTABLE: {kept_out} runs are kept out of the tables\n  {again}")
    return None
