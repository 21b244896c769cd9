"""A leaderboard as a suite: its conf's entries, each a `helm:` evaluation, for one model or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TextIO

from eval_factory.config.evaluation import Evaluation, Request, build_evaluation, task_named
from eval_factory.config.rules import prescribed_roles
from eval_factory.config.suite import Suite, build_suite
from eval_factory.config.suite_layers import name_of_type
from eval_factory.core.budget import Budget
from eval_factory.core.errors import ConfigError, HelmError, PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.rundir import RunDir
from eval_factory.data.bundle import refuse_inside
from eval_factory.plan.run_plan import slug_of
from eval_factory.tasks.framework import About, Framework, HelmEntry, Task, load_framework
from eval_factory.tasks.run_entry import ENDPOINT_TYPES, prefix_of
from eval_factory.tasks.run_specs import refusal, wrong_processor
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows.context import show_warnings
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.registry import DATA_PATH, Entry, Leaderboard, of_any_model, read_entries
from eval_factory.workflows.suite.planned_cells import CheckedCell, checked_cells, missing_prerequisites, refuse_unready

PRESCRIBED = {
    "temperature": None,
    "max_new_tokens": None,
    "extra.num_output_tokens": None,
    "extra.num_train_trials": None,
    "extra.on_failure": "exclude",
}
"""Values of config.params that a leaderboard's entries or HELM's tables leave no choice of."""


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
"""Flag of `leaderboard run` -> the value of a run config that it stands for."""


@dataclass(frozen=True)
class LeaderboardRequest:
    name: str
    flags: Mapping[str, Any]  # as in FLAGS; what is left out is the run config's, the leaderboard's or the framework's
    run_config: Path | None = None
    model: tuple[str, ...] = ()
    conf: Path | None = None
    overrides: tuple[str, ...] = ()
    reasoning: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class NotRun:
    """An entry that no run is started of, for any model."""

    entry: Entry
    reason: str
    exit_code: int  # 0: it is left out, for it asks for more than a chat endpoint has


@dataclass(frozen=True)
class Board:
    """What will be run; making it writes nothing."""

    row: Leaderboard
    schema: Path  # HELM's; of a row with `schema_changes` the one that is written from it
    models: Mapping[str, str]  # target of the suite -> the model's id
    folder: Path
    max_eval_instances: int
    suite: Suite | None = None  # None where the conf would have to be downloaded to know it
    entries: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    """Evaluation of the suite -> the entries that it is the run of: these differ in their groups alone."""
    not_run: tuple[NotRun, ...] = ()
    cells: tuple[CheckedCell, ...] = ()


def make_board(request: LeaderboardRequest, env: Mapping[str, str], screen: TextIO) -> Board:
    """Find the leaderboard, read its conf, check every run; what there is to say of it is shown on `screen`.

    Raises:
        ConfigError: there is no such leaderboard, nothing of it can be run, or something given is wrong.
        PrerequisiteError: HELM has no such schema, the conf is unavailable, or every run lacks something.
    """
    row = registry.find(request.name)
    twice = sorted({model for model in request.model if request.model.count(model) > 1})
    if twice:
        raise ConfigError(f"--model: {', '.join(twice)} is given twice")
    if row.lacks and request.conf is None:
        raise ConfigError(f"{row.name} asks for {row.lacks}: nothing of it can be run with a chat endpoint")
    schema = registry.schema_path(row)
    if schema is None:
        raise PrerequisiteError(
            f"{row.name}: HELM {registry.helm_version()} has no {row.schema_file}\n"
            "  install the version of HELM that the leaderboard was made with"
        )
    extra = evaluation_of(request, row, env, None).run.config.params.extra
    if extra.upstream != HELM.name:
        raise ConfigError(
            f"config.params.extra.upstream: the leaderboards of this command are {HELM.name}'s; a suite of helm:"
            f" entries runs what {extra.upstream} has (docs/upstreams.md)"
        )
    data_dir = Path(extra.data_dir).expanduser() if extra.data_dir else None
    text, origin = registry.conf_of(
        row, file=request.conf, data_dir=data_dir, look_only=request.dry_run or extra.offline
    )
    if text is None and extra.offline:
        raise PrerequisiteError(f"offline: {row.conf} is not here; give it with --conf FILE, or a bundle, --data_dir")
    found = [] if text is None else read_entries(text, origin)
    different = of_any_model(found, reasoning=request.reasoning)
    chosen = [entry for entry in different if entry.priority is None or entry.priority <= row.priority]
    evaluation = evaluation_of(request, row, env, chosen)
    show_warnings(evaluation, screen)
    screen.writelines(f"{row.name} needs: {line}\n" for line in row.needed())
    if text is None:
        screen.write(f"the conf would be downloaded: {origin}\n")
    else:
        screen.write(
            f"{origin}: {len(found)} entries, {len(different)} different ones for one model,"
            f" {len(chosen)} of priority {row.priority} or before\n"
        )
        refuse_what_cannot_run(chosen, row, origin, allowed=bool(extra.allow_code_execution))
    folder = evaluation.output_dir.absolute()
    if data_dir is not None:
        refuse_inside(data_dir, folder, "an output folder")
    models = {slug_of(model): model for model in request.model or (evaluation.run.target.api_endpoint.model_id,)}
    schema = RunDir(folder / "helm").model_configs / schema.name if row.schema_changes else schema
    board = Board(row, schema, models, folder, evaluation.run.config.params.limit_samples or row.max_eval_instances)
    return _with_runs(board, chosen, evaluation, env, screen, dry_run=request.dry_run)


def refuse_what_cannot_run(chosen: Sequence[Entry], row: Leaderboard, origin: str, *, allowed: bool) -> None:
    """Raises ConfigError: nothing is left, or entries would execute what a model answers and nobody allowed it."""
    if not chosen:
        raise ConfigError(f"{origin}: no entry has priority {row.priority} or before: nothing to run")
    run = [entry for entry in chosen if not entry.asks]
    if not run:
        raise ConfigError(f"{origin}: nothing of it can be run with a chat endpoint: it asks for {_asked_for(chosen)}")
    given = [(entry.run_spec, dict(entry.arguments)) for entry in run]
    problems = [wrong_processor(arguments) for _, arguments in given]
    problems += [] if allowed else [refusal(run_spec, arguments) for run_spec, arguments in given]
    if any(problems):
        raise ConfigError([f"{origin}: {problem}" for problem in dict.fromkeys(filter(None, problems))])


def _asked_for(entries: Iterable[Entry]) -> str:
    counts = Counter(entry.asks for entry in entries if entry.asks)
    return ", ".join(f"{asked} ({count})" for asked, count in counts.items())


def _with_runs(
    board: Board,
    chosen: Sequence[Entry],
    evaluation: Evaluation,
    env: Mapping[str, str],
    screen: TextIO,
    *,
    dry_run: bool,
) -> Board:
    """With a cell for each run of each model; what cannot be run is reported, and costs itself alone."""
    not_run = [NotRun(entry, f"asks for {entry.asks}", 0) for entry in chosen if entry.asks]
    if not_run:
        screen.write(f"{len(not_run)} entries are left out, a chat endpoint has none of: {_asked_for(chosen)}\n")
    named, unknown = _evaluations_of([entry for entry in chosen if not entry.asks], evaluation)
    not_run += unknown
    paths = Counter(path for entry in chosen if (path := entry.argument(DATA_PATH)) and not Path(path).exists())
    for path, count in paths.items():
        screen.write(f"warning: data_path {path} does not exist; {count} entries need it\n")
    suite = _suite(board, named, evaluation, env) if named else None
    cells = _ready_cells(suite, env, screen, dry_run=dry_run)
    wrong = {one.cell.evaluation: one for one in cells if not one.ready}
    for name, one in wrong.items():
        code = HelmError.exit_code if one.problems else PrerequisiteError.exit_code
        not_run += [NotRun(entry, "; ".join((*one.problems, *one.missing)), code) for entry in named.pop(name)]
    screen.writelines(
        f"warning: cannot run {one.entry.run}: {one_line(one.reason)}\n" for one in not_run if one.exit_code
    )
    return replace(
        board,
        suite=_suite(board, named, evaluation, env) if wrong else suite,
        entries={name: tuple(same) for name, same in named.items()},
        not_run=tuple(not_run),
        cells=tuple(one for one in cells if one.cell.evaluation in named),
    )


def _evaluations_of(entries: Iterable[Entry], evaluation: Evaluation) -> tuple[dict[str, list[Entry]], list[NotRun]]:
    """Evaluation of the suite -> the entries that it is the run of; and those that are no run."""
    named: dict[str, list[Entry]] = {}
    not_run = []
    for entry in entries:
        problems: list[str] = []
        if task_named(_type_of(entry, evaluation), evaluation.framework, problems) is None:
            reason = "; ".join(problems).replace("config.type: ", "")
            not_run.append(NotRun(entry, reason, HelmError.exit_code))
            continue
        # two entries that would have the same folders are numbered
        plain = name_of_type(entry.description, evaluation.framework)
        possible = [plain, *(f"{plain}-{number}" for number in range(2, len(named) + 3))]
        used = {name.lower(): same[0].description for name, same in named.items()}
        name = next(one for one in possible if used.get(one.lower(), entry.description) == entry.description)
        named.setdefault(name, []).append(entry)
    return named, not_run


def _ready_cells(
    suite: Suite | None, env: Mapping[str, str], screen: TextIO, *, dry_run: bool
) -> tuple[CheckedCell, ...]:
    """Raises ConfigError, PrerequisiteError: none of them can be run."""
    cells = () if suite is None else checked_cells(suite, env)
    if dry_run:
        screen.writelines(f"warning: a run would stop: {text}\n" for text in missing_prerequisites(cells))
        cells = tuple(replace(one, missing=()) for one in cells)
    lacks_a_key = any("no API key" in text for one in cells for text in one.missing)  # no matter of one entry
    if lacks_a_key or (cells and not any(one.ready for one in cells)):
        refuse_unready(cells)
    return cells


def _type_of(entry: Entry, evaluation: Evaluation) -> str:
    """The entry as `config.type` names it."""
    return f"{prefix_of(evaluation.framework)}{entry.description}"


def _suite(board: Board, named: Mapping[str, Sequence[Entry]], evaluation: Evaluation, env: Mapping[str, str]) -> Suite:
    """Every entry, and what the user said of endpoints, judges and parameters."""
    given = evaluation.as_given()
    params, endpoint = given["config"].get("params", {}), given["target"]["api_endpoint"]
    extra = dict(params.get("extra", {}))
    judges = {judge["name"]: dict(judge) for judge in extra.pop("judges", None) or []}
    own = {name: extra.pop(name) for name in [one.name for one in fields(Budget)] if name in extra}
    params = {**params, "limit_samples": board.max_eval_instances}
    params["extra"] = {**extra, "num_train_trials": board.row.num_train_trials}
    if evaluation.executor.is_slurm:
        slurm = {name: value for name, value in evaluation.executor.slurm.items() if value is not None}
        own |= {"executor": evaluation.executor.name, "slurm": slurm}
    evaluations = [
        {"name": name, "type": _type_of(entry, evaluation), "params": _params_of(entry, evaluation, judges)}
        for name, (entry, *_) in named.items()
    ]
    targets = [{"name": name, "api_endpoint": {**endpoint, "model_id": model}} for name, model in board.models.items()]
    section = {"output_dir": str(board.folder), "params": params, "evaluations": evaluations, "targets": targets, **own}
    return build_suite(None, document={"suite": section}, env=env)


def _params_of(entry: Entry, evaluation: Evaluation, judges: Mapping[str, Any]) -> dict[str, Any]:
    """What holds for the entry alone. Null: what it says of its own, where the suite says something for all."""
    params: dict[str, Any] = {"extra": {}}
    # those of the user's judges that the entry asks; of a jury the others stay at the model's URL
    asked = {role: judges.get(role) for role in _roles_of(entry, evaluation.framework)}
    if judges and entry.known is not None and entry.known.has_jury:
        all_extra = evaluation.run.config.params.extra
        for role, judge in evaluation.framework.judges.items():
            key = getattr(all_extra, judge.api_key)
            asked[role] = asked[role] or {"name": role, "model_id": judge.model_id, "api_key": key}
    if any(asked.values()):
        params["extra"]["judges"] = [judge for judge in asked.values() if judge is not None]
    if entry.argument("num_train_trials") is not None:
        params["extra"]["num_train_trials"] = None
    if entry.argument("max_eval_instances") is not None:
        params["limit_samples"] = None
    return params


def _roles_of(entry: Entry, framework: Framework) -> tuple[str, ...]:
    """Of the judges that the entry asks."""
    has_jury = entry.known is not None and entry.known.has_jury
    return tuple(framework.judges if has_jury else prescribed_roles(entry.judges))


def evaluation_of(
    request: LeaderboardRequest, row: Leaderboard, env: Mapping[str, str], entries: Sequence[Entry] | None
) -> Evaluation:
    """The settings as an evaluation's, so that a run config means the same as for `run_eval`. `entries` say what judges
    there are; None: not known yet, and no judge is looked at. Raises ConfigError: with every problem."""
    flags = {FLAGS[name]: value for name, value in request.flags.items()}
    flags["config.type"] = row.name
    if request.model:
        flags["target.api_endpoint.model_id"] = request.model[0]
    overrides = request.overrides if entries is not None else (*request.overrides, "config.params.extra.judges=null")
    framework = load_framework()
    folder = registry.load_catalogue().output_dir.format(name=row.name)
    roles = dict.fromkeys(role for entry in entries or () for role in _roles_of(entry, framework)) or row.judges
    task = Task(
        name=row.name,
        description=row.description,
        defaults={"config": {"type": row.name, "output_dir": folder, "supported_endpoint_types": ENDPOINT_TYPES}},
        helm=HelmEntry(
            run_spec=row.name,
            scenario=row.name,
            main_metric=None,
            prescribed_judges=tuple(f"{role}/{role}" for role in roles),  # those that may be named
        ),
        about=About(tags=(), access=row.access, source=row.conf, instances=None),
    )
    asked = Request(run_config=request.run_config, flags=flags, overrides=overrides)
    evaluation = build_evaluation(asked, framework, env, task)
    params = evaluation.run.config.params
    problems = [
        f"config.params.{path}: cannot be given here, {row.name} has its own"
        for path, only in PRESCRIBED.items()
        if getattr(params.extra if "." in path else params, path.removeprefix("extra.")) != only
    ]
    if problems:
        raise ConfigError(problems)
    return evaluation
