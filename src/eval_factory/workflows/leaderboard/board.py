"""Runs a leaderboard as a suite, and writes `leaderboard.json`, HELM's tables and a summary.

Each entry of the leaderboard's conf file becomes a `helm:` evaluation of the suite, and each model
becomes a target.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from eval_factory.config.evaluation import Request, build_evaluation, task_named
from eval_factory.config.resolved import Evaluation
from eval_factory.config.rules import prescribed_roles
from eval_factory.config.suite import Suite, build_suite
from eval_factory.config.suite_layers import name_of_type
from eval_factory.core.budget import Budget
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import (
    ConfigError,
    EvalFactoryError,
    HelmError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.foreign_text import one_line, own_lines
from eval_factory.core.run_statuses import WITH_RESULT
from eval_factory.core.rundir import PRIVATE_FOLDER, RunDir, SuiteDir
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.data.bundle import refuse_inside
from eval_factory.helm import names
from eval_factory.helm.command import command_line, helm_program
from eval_factory.plan.run_plan import slug_of, where_keys_go
from eval_factory.report.reader import load_result
from eval_factory.tasks.framework import About, Framework, HelmEntry, Task, load_framework
from eval_factory.tasks.run_entry import ENDPOINT_TYPES, prefix_of
from eval_factory.tasks.run_specs import IMAGES, execution_refusal, wrong_processor
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows import view_site
from eval_factory.workflows.context import show_uncomputed, show_warnings
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.registry import (
    DATA_PATH,
    Entry,
    Leaderboard,
    of_any_model,
    read_entries,
)
from eval_factory.workflows.resume import read_state
from eval_factory.workflows.suite.planned_cells import (
    CheckedCell,
    checked_cells,
    missing_prerequisites,
    redactor_of_all,
    refuse_unready,
)
from eval_factory.workflows.suite.suite_report import CellReport

PRESCRIBED = {
    "temperature": None,
    "max_new_tokens": None,
    "extra.num_output_tokens": None,
    "extra.num_train_trials": None,
    "extra.on_failure": "exclude",
}
"""The only allowed values of some keys of config.params, because the leaderboard's entries or
HELM's tables prescribe them.
"""


FLAGS = {
    "output_dir": "config.output_dir",
    "max_eval_instances": "config.params.limit_samples",
    "parallelism": "config.params.parallelism",
    "min_coverage": "config.params.extra.min_coverage",
    "data_dir": "config.params.extra.data_dir",
    "offline": "config.params.extra.offline",
    "allow_code_execution": "config.params.extra.allow_code_execution",
    "model_url": "target.api_endpoint.url",
    "model_type": "target.api_endpoint.type",
    "api_key_name": "target.api_endpoint.api_key",
}
"""The run config key that each option of `leaderboard run` sets."""


@dataclass(frozen=True)
class LeaderboardRequest:
    """The leaderboard that the user wants to run, with the options of the command."""

    name: str
    # values by the names in FLAGS; a missing value comes from the run config, the leaderboard or
    # the framework
    flags: Mapping[str, Any]
    run_config: Path | None = None
    model: tuple[str, ...] = ()  # the models' IDs; empty: the model of the run config
    conf: Path | None = None  # HELM's conf file with the entries; None: the leaderboard's own
    overrides: tuple[str, ...] = ()
    reasoning: bool = False  # True to prefer the entries with more output tokens
    dry_run: bool = False


@dataclass(frozen=True)
class NotRun:
    """An entry that is not run for any model."""

    entry: Entry
    reason: str
    # 0 if the entry is left out because the entry needs more than a chat endpoint; otherwise the
    # exit code of the error that prevents the run
    exit_code: int


@dataclass(frozen=True)
class Board:
    """A leaderboard with all its planned runs. Creating a board writes no files."""

    leaderboard: Leaderboard  # as the catalogue describes it
    schema: Path  # HELM's schema, or the changed copy if the catalogue has changes for it
    models: Mapping[str, str]  # the model's ID for each target of the suite
    folder: Path  # the output folder of the leaderboard
    max_eval_instances: int  # the maximum number of instances of each run
    suite: Suite | None = None  # None if the conf was not downloaded, or if no entry can be run
    entries: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    """The entries of each evaluation of the suite, by the evaluation's name. Several entries share
    one evaluation if they only differ in their groups.
    """
    not_run: tuple[NotRun, ...] = ()
    cells: tuple[CheckedCell, ...] = ()  # the cells of the suite: one for each entry and model


def make_board(request: LeaderboardRequest, env: Mapping[str, str], screen: TextIO) -> Board:
    """Find the leaderboard, read its conf file, check every run, and return the board.

    Warnings and notes are written to `screen`.

    Raises:
        ConfigError: The leaderboard is unknown, no entry can be run, or an option is wrong.
        PrerequisiteError: The installed HELM lacks the schema, the conf file is unavailable, or
            every run lacks a prerequisite.
    """
    leaderboard = registry.find(request.name)
    schema = _schema_of(leaderboard, request)
    # These settings say where the conf file is; its entries are not known yet.
    extra = evaluation_of(request, leaderboard, env, entries=None).extra
    if extra.upstream != HELM.name:
        raise ConfigError(
            f"config.params.extra.upstream: the leaderboards of this command are {HELM.name}'s; "
            f"run the benchmarks of {extra.upstream} as a suite of helm: entries "
            "(docs/upstreams.md)"
        )
    data_dir = Path(extra.data_dir).expanduser() if extra.data_dir else None
    local_only = request.dry_run or extra.offline
    text, origin = registry.conf_of(
        leaderboard, file=request.conf, data_dir=data_dir, local_only=local_only
    )
    if text is None and extra.offline:
        raise PrerequisiteError(
            f"offline: {leaderboard.conf} is not on this machine; give the file with --conf FILE, "
            "or a bundle with --data_dir"
        )
    entries = [] if text is None else read_entries(text, origin)
    distinct = of_any_model(entries, reasoning=request.reasoning)
    chosen = []
    for entry in distinct:
        # a smaller number is a higher priority
        if entry.priority is None or entry.priority <= leaderboard.priority:
            chosen.append(entry)
    evaluation = evaluation_of(request, leaderboard, env, chosen)
    show_warnings(evaluation, screen)
    screen.writelines(f"{leaderboard.name} needs: {line}\n" for line in leaderboard.need_lines())
    if text is None:
        screen.write(f"the conf would be downloaded: {origin}\n")
    else:
        screen.write(
            f"{origin}: {len(entries)} entries, {len(distinct)} distinct entries for one model,"
            f" {len(chosen)} of priority {leaderboard.priority} or before\n"
        )
        check_entries(chosen, leaderboard, origin, allowed=bool(extra.allow_code_execution))
    folder = evaluation.output_dir.absolute()
    if data_dir is not None:
        refuse_inside(data_dir, folder, "an output folder")
    models = {}
    for model in request.model or (evaluation.endpoint.model_id,):
        models[slug_of(model)] = model
    if leaderboard.schema_changes:
        # the path to which `write_tables` will write the changed copy
        schema = RunDir(folder / "helm").model_configs / schema.name
    limit = evaluation.params.limit_samples or leaderboard.max_eval_instances
    board = Board(leaderboard, schema, models, folder, max_eval_instances=limit)
    return _with_runs(board, chosen, evaluation, env, screen, dry_run=request.dry_run)


def _schema_of(leaderboard: Leaderboard, request: LeaderboardRequest) -> Path:
    """Return the path of HELM's schema for a leaderboard, after checking the request.

    Raises:
        ConfigError: A model is given twice, or no entry can be run with a chat endpoint.
        PrerequisiteError: The installed HELM lacks the schema.
    """
    repeated = sorted({model for model in request.model if request.model.count(model) > 1})
    if repeated:
        raise ConfigError(f"--model: {', '.join(repeated)} is given twice")
    if leaderboard.lacks and request.conf is None:
        raise ConfigError(
            f"{leaderboard.name} asks for {leaderboard.lacks}: "
            "no entry can be run with a chat endpoint"
        )
    schema = registry.schema_path(leaderboard)
    if schema is None:
        raise PrerequisiteError(
            f"{leaderboard.name}: HELM {registry.helm_version()} has no {leaderboard.schema_file}\n"
            "  install the version of HELM that the leaderboard was made with"
        )
    return schema


def check_entries(
    chosen: Sequence[Entry], leaderboard: Leaderboard, origin: str, *, allowed: bool
) -> None:
    """Check that the chosen entries can be run.

    Args:
        chosen: The entries of the wanted priority.
        leaderboard: The leaderboard.
        origin: The path or address of the conf file, for messages.
        allowed: True if the user allows runs to execute a model's answers.

    Raises:
        ConfigError: No entry can be run, an entry has a wrong argument, or an entry would execute a
            model's answers without permission.
    """
    if not chosen:
        raise ConfigError(
            f"{origin}: no entry has priority {leaderboard.priority} or before: nothing to run"
        )
    runnable = []
    for entry in chosen:
        if not entry.is_left_out(leaderboard):
            runnable.append(entry)
    if not runnable:
        raise ConfigError(
            f"{origin}: no entry can be run with a chat endpoint: "
            f"the entries ask for {_asked_for(chosen)}"
        )
    problems = [wrong_processor(dict(entry.arguments)) for entry in runnable]
    if not allowed:
        problems += [execution_refusal(entry.run_spec, dict(entry.arguments)) for entry in runnable]
    distinct_problems = dict.fromkeys(problem for problem in problems if problem is not None)
    if distinct_problems:
        raise ConfigError([f"{origin}: {problem}" for problem in distinct_problems])


def _asked_for(entries: Iterable[Entry]) -> str:
    """Return the needs beyond a chat endpoint, each with the number of entries that have it."""
    counts = Counter(entry.asks for entry in entries if entry.asks)
    return ", ".join(f"{modality} ({count})" for modality, count in counts.items())


def _with_runs(
    board: Board,
    chosen: Sequence[Entry],
    evaluation: Evaluation,
    env: Mapping[str, str],
    screen: TextIO,
    *,
    dry_run: bool,
) -> Board:
    """Return the board with a cell for each run of each model.

    Entries that cannot be run are reported on `screen`; the other entries are run nevertheless.
    """
    not_run = []
    runnable = []
    for entry in chosen:
        if entry.is_left_out(board.leaderboard):
            not_run.append(NotRun(entry, f"asks for {entry.asks}", exit_code=0))
        else:
            runnable.append(entry)
    if not_run:
        screen.write(
            f"{len(not_run)} entries are left out, because a chat endpoint lacks: "
            f"{_asked_for(chosen)}\n"
        )
    entries_by_name, unknown = _evaluations_of(runnable, evaluation)
    not_run += unknown
    missing_paths: Counter[str] = Counter()
    for entry in chosen:
        path = entry.argument(DATA_PATH)
        if path and not Path(path).exists():
            missing_paths[path] += 1
    for path, count in missing_paths.items():
        screen.write(f"warning: data_path {path} does not exist; {count} entries need it\n")
    suite = _suite(board, entries_by_name, evaluation, env) if entries_by_name else None
    cells = _cells_of(suite, env, screen, dry_run=dry_run)
    # An evaluation that is not ready for one model is run for no model.
    unready = {}
    for cell in cells:
        if not cell.ready:
            unready[cell.cell.evaluation] = cell
    for name, cell in unready.items():
        code = HelmError.exit_code if cell.problems else PrerequisiteError.exit_code
        reason = "; ".join((*cell.problems, *cell.missing))
        for entry in entries_by_name.pop(name):
            not_run.append(NotRun(entry, reason, code))
    for skipped in not_run:
        if skipped.exit_code:
            reason = one_line(skipped.reason)
            screen.write(f"warning: cannot run {skipped.entry.row_name}: {reason}\n")
    if unready:  # their entries were removed above, so the suite is built again without them
        suite = _suite(board, entries_by_name, evaluation, env)
    return replace(
        board,
        suite=suite,
        entries={name: tuple(entries) for name, entries in entries_by_name.items()},
        not_run=tuple(not_run),
        cells=tuple(cell for cell in cells if cell.cell.evaluation in entries_by_name),
    )


def _evaluations_of(
    entries: Iterable[Entry], evaluation: Evaluation
) -> tuple[dict[str, list[Entry]], list[NotRun]]:
    """Return the entries of each evaluation of the suite, by the evaluation's name.

    The second value is the list of entries that cannot be run.
    """
    entries_by_name: dict[str, list[Entry]] = {}
    not_run = []
    for entry in entries:
        problems: list[str] = []  # gets the reason if there is no task
        if task_named(_type_of(entry, evaluation), evaluation.framework, problems) is None:
            reason = "; ".join(problems).replace("config.type: ", "")
            not_run.append(NotRun(entry, reason, HelmError.exit_code))
            continue
        # Names that are equal, or differ only in case, would lead to one folder. Such names of
        # different entries get a number.
        plain_name = name_of_type(entry.description, evaluation.framework)
        used = {name.lower(): first.description for name, (first, *_) in entries_by_name.items()}
        name = plain_name
        number = 2
        # a name can be used if no entry has it, or if it belongs to an entry with this description
        while used.get(name.lower(), entry.description) != entry.description:
            name = f"{plain_name}-{number}"
            number += 1
        entries_by_name.setdefault(name, []).append(entry)
    return entries_by_name, not_run


def _cells_of(
    suite: Suite | None, env: Mapping[str, str], screen: TextIO, *, dry_run: bool
) -> tuple[CheckedCell, ...]:
    """Return the cells of the suite, each checked; some of them may not be ready.

    Raises:
        ConfigError, PrerequisiteError: A key is missing, or no cell can be run.
    """
    cells = () if suite is None else checked_cells(suite, env)
    if dry_run:
        screen.writelines(
            f"warning: a run would stop: {text}\n" for text in missing_prerequisites(cells)
        )
        # The dry run also shows the commands of cells that lack a prerequisite.
        cells = tuple(replace(cell, missing=()) for cell in cells)
    plans = []
    for cell in cells:
        if cell.plan is not None:
            plans.append(cell.plan)
    show_uncomputed(plans, env, screen)
    # A missing key affects all entries, so the command ends even if some cells are ready.
    missing = chain.from_iterable(cell.missing for cell in cells)
    lacks_a_key = any("no API key" in text for text in missing)
    if lacks_a_key or (cells and not any(cell.ready for cell in cells)):
        refuse_unready(cells)
    return cells


def _type_of(entry: Entry, evaluation: Evaluation) -> str:
    """Return the value of `config.type` for the entry."""
    return f"{prefix_of(evaluation.framework)}{entry.description}"


def _suite(
    board: Board,
    entries_by_name: Mapping[str, Sequence[Entry]],
    evaluation: Evaluation,
    env: Mapping[str, str],
) -> Suite:
    """Return a suite with an evaluation for each name in `entries_by_name`, and a target per model.

    The endpoint, the judges and the parameters are those of `evaluation`.
    """
    user_settings = evaluation.as_given()
    params = user_settings["config"].get("params", {})
    endpoint = user_settings["target"]["api_endpoint"]
    extra = dict(params.get("extra", {}))
    judges = {judge["name"]: dict(judge) for judge in extra.pop("judges", None) or []}
    settings = {}
    for limit in fields(Budget):
        if limit.name in extra:
            settings[limit.name] = extra.pop(limit.name)
    params = {**params, "limit_samples": board.max_eval_instances}
    params["extra"] = {**extra, "num_train_trials": board.leaderboard.num_train_trials}
    if not evaluation.executor.is_local:
        slurm = {}
        for name, value in evaluation.executor.slurm.items():
            if value is not None:
                slurm[name] = value
        settings |= {"executor": evaluation.executor.name, "slurm": slurm}
    evaluations = []
    for name, (entry, *_) in entries_by_name.items():
        evaluations.append(
            {
                "name": name,
                "type": _type_of(entry, evaluation),
                "params": _params_of(entry, evaluation, judges),
            }
        )
    targets = []
    for name, model in board.models.items():
        targets.append({"name": name, "api_endpoint": {**endpoint, "model_id": model}})
    section = {
        "output_dir": str(board.folder),
        "params": params,
        "evaluations": evaluations,
        "targets": targets,
        **settings,
    }
    return build_suite(None, document={"suite": section}, env=env)


def _params_of(entry: Entry, evaluation: Evaluation, judges: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the entry's evaluation that differ from those of the suite.

    A parameter is null if the entry itself sets it, so that the suite's value is not used. `judges`
    are the judges that the user configures, by name.
    """
    params: dict[str, Any] = {"extra": {}}
    chosen_judges = []
    for role in _roles_of(entry, evaluation.framework):
        if role in judges:
            chosen_judges.append(judges[role])
        elif judges and _has_jury(entry):
            # The user's judges replace the complete default jury, so the default judge of this role
            # is added again.
            judge = evaluation.framework.judges[role]
            key_name = getattr(evaluation.extra, judge.api_key)
            chosen_judges.append({"name": role, "model_id": judge.model_id, "api_key": key_name})
    if chosen_judges:
        params["extra"]["judges"] = chosen_judges
    if entry.argument("num_train_trials") is not None:
        params["extra"]["num_train_trials"] = None
    if entry.argument("max_eval_instances") is not None:
        params["limit_samples"] = None
    return params


def _roles_of(entry: Entry, framework: Framework) -> tuple[str, ...]:
    """Return the roles of the judges that the entry asks."""
    if _has_jury(entry):
        return tuple(framework.judges)
    return tuple(prescribed_roles(entry.judges))


def _has_jury(entry: Entry) -> bool:
    """Return True if a jury rates the answers of the entry."""
    return entry.indexed is not None and entry.indexed.has_jury


def evaluation_of(
    request: LeaderboardRequest,
    leaderboard: Leaderboard,
    env: Mapping[str, str],
    entries: Sequence[Entry] | None,
) -> Evaluation:
    """Return the user's settings for a leaderboard as one evaluation.

    A run config is therefore read by the same rules as for `run_eval`. The entries determine the
    possible judges. If `entries` is None, the entries are unknown, and the user's judges are
    ignored.

    Raises ConfigError with all problems of the configuration.
    """
    flags = {FLAGS[name]: value for name, value in request.flags.items()}
    flags["config.type"] = leaderboard.name
    if request.model:
        flags["target.api_endpoint.model_id"] = request.model[0]
    overrides = request.overrides
    if entries is None:
        overrides = (*overrides, "config.params.extra.judges=null")
    framework = load_framework()
    roles_of_entries: dict[str, None] = {}  # a set in the order of the entries
    for entry in entries or ():
        roles_of_entries |= dict.fromkeys(_roles_of(entry, framework))
    task = _task_of(leaderboard, roles_of_entries or leaderboard.judges)
    as_run_eval = Request(run_config=request.run_config, flags=flags, overrides=overrides)
    evaluation = build_evaluation(as_run_eval, framework, env, task)
    params = evaluation.params
    problems = []
    for path, prescribed in PRESCRIBED.items():
        section = params.extra if "." in path else params
        if getattr(section, path.removeprefix("extra.")) != prescribed:
            problems.append(
                f"config.params.{path}: cannot be set here, "
                f"because {leaderboard.name} prescribes the value"
            )
    if problems:
        raise ConfigError(problems)
    return evaluation


def _task_of(leaderboard: Leaderboard, judge_roles: Iterable[str]) -> Task:
    """Return a task for the leaderboard, so that its settings can be read as an evaluation's.

    `judge_roles` are the roles of the judges that the user may configure.
    """
    output_dir = registry.load_catalogue().output_dir
    endpoint_types = (IMAGES,) if leaderboard.makes_images else ENDPOINT_TYPES
    return Task(
        name=leaderboard.name,
        description=leaderboard.description,
        defaults={
            "config": {
                "type": leaderboard.name,
                "output_dir": output_dir.format(name=leaderboard.name),
                "supported_endpoint_types": endpoint_types,
            }
        },
        helm=HelmEntry(
            run_spec=leaderboard.name,
            scenario=leaderboard.name,
            main_metric=None,
            # The judges that the run config may configure, in the form of HELM's deployments
            # (`organization/model`). `prescribed_roles` derives the same roles from this form.
            prescribed_judges=tuple(f"{role}/{role}" for role in judge_roles),
        ),
        about=About(tags=(), access=leaderboard.access, source=leaderboard.conf, instances=None),
    )


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
        # A run can find out only after its start that the entry needs more than a chat endpoint.
        # `checked_run_specs` in helm_plugin/runner.py then writes a reason with this phrase.
        _, phrase, modality = (cell.reason or "").partition("asks a model for ")
        if phrase:
            return replace(row, state=_LEFT_OUT, reason=f"asks for {modality.partition(';')[0]}"), 0
        return row, cell.exit_code
    result = load_result(cell.folder).result
    state = read_state(RunDir(cell.folder))
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
        identity=None if state is None else state.identity,
        max_eval_instances=board.max_eval_instances,
    )
    if not result.reportable:
        kept_out = replace(row, state=KEPT_OUT, reason=gaps or cell.reason)
        return kept_out, NotReportableError.exit_code
    value = None if score is None else score.value
    return replace(row, state=IN_TABLES, main_metric=result.main_metric, score=value), 0


def stored_rows(folder: Path) -> dict[str, list[BoardRow]]:
    """Return the rows in leaderboard.json, of all models, by the name of the leaderboard.

    The result is empty if the file is missing or cannot be read.
    """
    try:
        text = SuiteDir(folder).leaderboard.read_text(encoding="utf-8")
        rows_by_name = {}
        for name, rows in parse_json(text)["leaderboards"].items():
            rows_by_name[name] = [
                BoardRow(**{**row, "groups": tuple(row["groups"])}) for row in rows
            ]
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
    written = {
        leaderboard: [asdict(row) for row in its_rows] for leaderboard, its_rows in all_rows.items()
    }
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
    name, rows = next(reversed(rows_by_name.items()), ("", []))  # `write_rows` adds at the end
    runs = [run for run, _ in runs_in_tables(folder, rows)]
    leaderboard = registry.find(name) if runs else None
    schema = None if leaderboard is None else registry.schema_path(leaderboard)
    if leaderboard is None or schema is None:
        raise PrerequisiteError(
            f"{folder}: has no run of a leaderboard whose tables could be shown"
        )
    return runs, registry.schema_text(leaderboard, schema)


def runs_in_tables(
    folder: Path, rows: Iterable[BoardRow]
) -> list[tuple[view_site.ViewedRun, BoardRow]]:
    """Return the runs of the rows that are in the tables, each run with its row.

    A row is left out if its folder now has another run. For example, a later command replaced the
    run, but ended before it wrote new rows.
    """
    viewed = []
    for row in rows:
        run_folder = None if row.folder is None else folder / row.folder
        if run_folder is None or row.state != IN_TABLES:
            state = None  # without a state, the row is left out below
        else:
            state = read_state(RunDir(run_folder))
        if run_folder is not None and state is not None and state.identity == row.identity:
            viewed.append((view_site.viewed_as(run_folder, row.run, row.groups), row))
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
    key_lines = where_keys_go(list(chain.from_iterable(plan.endpoints for plan in plans)))
    screen.writelines(redactor.text(f"key of {line}\n") for line in dict.fromkeys(key_lines))
    runs = [command_line(plan, debug=debug) for plan in plans]
    return [
        redactor.text(shlex.join(argv))
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
    coded_rows = []
    for row, code in board_rows(board, cells):
        coded_rows.append((replace(row, reason=row.reason and redactor.text(row.reason)), code))
    all_rows = write_rows(
        board.folder, board.leaderboard.name, board.models.values(), [row for row, _ in coded_rows]
    )
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
                write_atomic(board.schema, registry.schema_text(board.leaderboard, original))
            models = {run.model: row.model_id for run, row in runs}
            view_site.make_tables(work, lock, models, _summarize_command(board), env, screen)
            view_site.rename_files_with_colons(suite)
    lines = board_summary(board, [row for row, _ in coded_rows], [row for _, row in runs])
    screen.write(own_lines("\n".join(lines)) + "\n")
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
