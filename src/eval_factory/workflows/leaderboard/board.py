"""Plans a leaderboard as a suite, and checks every run before the suite starts.

Each entry of the leaderboard's conf file becomes a `helm:` evaluation of the suite, and each model
becomes a target. A cell is the run of one evaluation for one target. `tables.py` writes the
outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from eval_factory.config.evaluation import RunRequest, build_evaluation, task_named
from eval_factory.config.resolved import Evaluation
from eval_factory.config.rules import prescribed_judges_by_role
from eval_factory.config.suite import Suite, build_suite
from eval_factory.config.suite_layers import name_of_type
from eval_factory.core.budget import Budget
from eval_factory.core.errors import ConfigError, HelmError, PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.rundir import RunDir
from eval_factory.data.bundle import refuse_inside_bundle
from eval_factory.plan.run_plan import slug_of
from eval_factory.tasks.framework import About, Framework, HelmEntry, Task, load_framework
from eval_factory.tasks.run_entry import TEXT_ENDPOINT_TYPES, run_entry_prefix
from eval_factory.tasks.run_specs import IMAGES, execution_refusal, processor_problem
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows.context import show_uncomputed_metrics, show_warnings
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.registry import (
    DATA_PATH,
    Entry,
    Leaderboard,
    read_entries,
    without_models,
)
from eval_factory.workflows.suite.planned_cells import (
    CheckedCell,
    checked_cells,
    missing_prerequisites,
    refuse_unready,
)

PRESCRIBED = {
    "temperature": None,
    "max_new_tokens": None,
    "extra.num_output_tokens": None,
    "extra.num_train_trials": None,
    "extra.on_failure": "exclude",
}
"""The only allowed values of some keys of config.params; None means that the user sets no value.

The leaderboard's entries or HELM's tables prescribe these values.
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
    cells: tuple[CheckedCell, ...] = ()  # the cells of the suite that can be run


def make_board(request: LeaderboardRequest, env: Mapping[str, str], screen: TextIO) -> Board:
    """Find the leaderboard, read its conf file, check every run, and return the board.

    Warnings and notes are written to `screen`.

    Raises:
        ConfigError: The leaderboard is unknown, no entry can be run, or an option is wrong.
        PrerequisiteError: The installed HELM lacks the schema, the conf file is unavailable, or
            every run lacks a prerequisite.
    """
    leaderboard = registry.find_leaderboard(request.name)
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
    # Without a text, this is a dry run, which does not download the conf file.
    entries = [] if text is None else read_entries(text, origin)
    distinct = without_models(entries, reasoning=request.reasoning)
    chosen = _of_priority(distinct, leaderboard.priority)
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
        may_execute = bool(extra.allow_code_execution)
        check_entries(chosen, leaderboard, origin, may_execute_answers=may_execute)
    folder = evaluation.output_dir.absolute()
    if data_dir is not None:
        refuse_inside_bundle(data_dir, folder, described_as="an output folder")
    models = {}
    for model in request.model or (evaluation.endpoint.model_id,):
        models[slug_of(model)] = model
    if leaderboard.schema_changes:
        # the path to which `write_tables` will write the changed copy
        schema = RunDir(folder / "helm").model_configs / schema.name
    limit = evaluation.params.limit_samples or leaderboard.max_eval_instances
    board = Board(leaderboard, schema, models, folder, max_eval_instances=limit)
    return _with_runs(board, chosen, evaluation, env, screen, dry_run=request.dry_run)


def _of_priority(entries: Iterable[Entry], priority: int) -> list[Entry]:
    """Return the entries of this or a higher priority; a smaller number is a higher priority."""
    chosen = []
    for entry in entries:
        if entry.priority is None or entry.priority <= priority:
            chosen.append(entry)
    return chosen


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
    chosen: Sequence[Entry], leaderboard: Leaderboard, origin: str, *, may_execute_answers: bool
) -> None:
    """Check that the chosen entries can be run.

    Args:
        chosen: The entries of the wanted priority.
        leaderboard: The leaderboard.
        origin: The path or address of the conf file, for messages.
        may_execute_answers: True if the user allows runs to execute the code in a model's answers.

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
    problems = []
    for entry in runnable:
        arguments = dict(entry.arguments)
        # Each of the two functions returns None if there is no problem.
        problems.append(processor_problem(arguments))
        if not may_execute_answers:
            problems.append(execution_refusal(entry.run_spec, arguments))
    distinct_problems = dict.fromkeys(problem for problem in problems if problem is not None)
    if distinct_problems:
        raise ConfigError([f"{origin}: {problem}" for problem in distinct_problems])


def _asked_for(entries: Iterable[Entry]) -> str:
    """Return the needs beyond a chat endpoint, each with the number of entries that have it."""
    counts = Counter(entry.unmet_need for entry in entries if entry.unmet_need)
    return ", ".join(f"{need} ({count})" for need, count in counts.items())


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

    Args:
        board: The board without its runs.
        chosen: The entries of the wanted priority.
        evaluation: The user's settings, from `evaluation_of`.
        env: The environment with the keys.
        screen: The stream for warnings and notes.
        dry_run: True if the runs are only shown.
    """
    not_run = []
    runnable = []
    for entry in chosen:
        if entry.is_left_out(board.leaderboard):
            not_run.append(NotRun(entry, f"asks for {entry.unmet_need}", exit_code=0))
        else:
            runnable.append(entry)
    if not_run:
        screen.write(
            f"{len(not_run)} entries are left out, because a chat endpoint lacks: "
            f"{_asked_for(chosen)}\n"
        )
    entries_by_name, not_run_without_task = _evaluations_of(runnable, evaluation)
    not_run += not_run_without_task
    _show_missing_paths(chosen, screen)
    suite = _suite(board, entries_by_name, evaluation, env) if entries_by_name else None
    cells = _cells_of(suite, env, screen, dry_run=dry_run)
    # An evaluation that is not ready for one model is run for no model.
    unready = {}
    for checked in cells:
        if not checked.is_ready:
            unready[checked.cell.evaluation] = checked
    for name, checked in unready.items():
        # A failed entry has the exit code 3 if it only lacks data or a package, and otherwise 4.
        code = HelmError.exit_code if checked.problems else PrerequisiteError.exit_code
        reason = "; ".join((*checked.problems, *checked.missing))
        for entry in entries_by_name.pop(name):
            not_run.append(NotRun(entry, reason, code))
    _show_failures(not_run, screen)
    if unready:  # their entries were removed above, so the suite is built again without them
        suite = _suite(board, entries_by_name, evaluation, env)
    return replace(
        board,
        suite=suite,
        entries={name: tuple(entries) for name, entries in entries_by_name.items()},
        not_run=tuple(not_run),
        cells=tuple(checked for checked in cells if checked.cell.evaluation in entries_by_name),
    )


def _show_failures(not_run: Iterable[NotRun], screen: TextIO) -> None:
    """Write a warning to `screen` for each entry that an error prevents from being run."""
    for skipped in not_run:
        if skipped.exit_code:  # 0: the entry is left out on purpose
            reason = one_line(skipped.reason)
            screen.write(f"warning: cannot run {skipped.entry.row_name}: {reason}\n")


def _show_missing_paths(entries: Iterable[Entry], screen: TextIO) -> None:
    """Write a warning to `screen` for each `data_path` that does not exist."""
    missing_paths: Counter[str] = Counter()
    for entry in entries:
        path = entry.argument(DATA_PATH)
        if path and not Path(path).exists():
            missing_paths[path] += 1
    for path, count in missing_paths.items():
        screen.write(f"warning: data_path {path} does not exist; {count} entries need it\n")


def _evaluations_of(
    entries: Iterable[Entry], evaluation: Evaluation
) -> tuple[dict[str, list[Entry]], list[NotRun]]:
    """Return the entries of each evaluation of the suite, by the evaluation's name.

    Entries with the same description share one evaluation. The second value is the list of entries
    that cannot be run.
    """
    entries_by_name: dict[str, list[Entry]] = {}
    description_of_name: dict[str, str] = {}  # maps each used name, in lower case
    not_run = []
    for entry in entries:
        problems: list[str] = []  # gets the reason if there is no task
        if task_named(_type_of(entry, evaluation), evaluation.framework, problems) is None:
            # The entry comes from a conf file: the reason must not name the key `config.type`.
            reason = "; ".join(problems).replace("config.type: ", "")
            not_run.append(NotRun(entry, reason, HelmError.exit_code))
            continue
        # The name becomes the name of a folder, and some file systems ignore the case of letters.
        # A name that an entry with another description already uses therefore gets a number.
        name_without_number = name_of_type(entry.description, evaluation.framework)
        name = name_without_number
        number = 2
        while description_of_name.get(name.lower(), entry.description) != entry.description:
            name = f"{name_without_number}-{number}"
            number += 1
        description_of_name[name.lower()] = entry.description
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
    show_uncomputed_metrics(plans, env, screen)
    missing = chain.from_iterable(cell.missing for cell in cells)
    lacks_a_key = any("no API key" in text for text in missing)
    none_is_ready = not any(cell.is_ready for cell in cells)
    # A missing key affects all entries, so the command ends even if some cells are ready.
    if lacks_a_key or none_is_ready:
        refuse_unready(cells)  # raises no error if there are no cells
    return cells


def _type_of(entry: Entry, evaluation: Evaluation) -> str:
    """Return the value of `config.type` for the entry."""
    return f"{run_entry_prefix(evaluation.framework)}{entry.description}"


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
    # `_params_of` gives each evaluation only those judges that its entry asks.
    judges = {judge["name"]: dict(judge) for judge in extra.pop("judges", None) or []}
    # The limits of the budget, such as max_cost, and the executor are keys of the suite itself:
    # all runs share them.
    shared_settings = {}
    for limit in fields(Budget):
        if limit.name in extra:
            shared_settings[limit.name] = extra.pop(limit.name)
    if not evaluation.executor.is_local:
        slurm = {}
        for name, value in evaluation.executor.slurm.items():
            if value is not None:
                slurm[name] = value
        shared_settings |= {"executor": evaluation.executor.name, "slurm": slurm}
    params = {**params, "limit_samples": board.max_eval_instances}
    params["extra"] = {**extra, "num_train_trials": board.leaderboard.num_train_trials}
    evaluations = []
    for name, entries in entries_by_name.items():
        entry = entries[0]  # the entries of one evaluation differ only in their groups
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
        **shared_settings,
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
    return tuple(prescribed_judges_by_role(entry.judges))  # only the roles


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

    A run config is therefore read by the same rules as for `run_eval`. The evaluation itself is
    never run. The entries determine the possible judges. If `entries` is None, the entries are
    unknown, and the user's judges are ignored.

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
    run_eval_request = RunRequest(run_config=request.run_config, flags=flags, overrides=overrides)
    evaluation = build_evaluation(run_eval_request, framework, env, task)
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
    endpoint_types = (IMAGES,) if leaderboard.makes_images else TEXT_ENDPOINT_TYPES
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
            # (`organization/model`), from which `prescribed_judges_by_role` derives the same roles.
            prescribed_judges=tuple(f"{role}/{role}" for role in judge_roles),
        ),
        about=About(tags=(), access=leaderboard.access, source=leaderboard.conf, instances=None),
    )
