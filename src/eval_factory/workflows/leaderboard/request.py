"""What the user asked for, checked: the flags, and what a run config says of endpoints and judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from eval_factory.config.evaluation import Evaluation, Request, build_evaluation
from eval_factory.config.model import Line, Parallelism, Positive, Url, VariableName
from eval_factory.core.errors import ConfigError
from eval_factory.core.strict_model import StrictModel
from eval_factory.tasks.framework import About, HelmEntry, Task, load_framework
from eval_factory.tasks.run_entry import ENDPOINT_TYPES
from eval_factory.workflows.leaderboard.registry import Leaderboard, load_catalogue


def _each_once(models: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({model for model in models if models.count(model) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is given twice")
    return models


class LeaderboardRequest(StrictModel):
    """The flags of `leaderboard run`; what is None is the run config's, the leaderboard's or the framework's."""

    name: Line
    run_config: Path | None = None
    model: Annotated[tuple[Line, ...], AfterValidator(_each_once)] = ()
    model_url: Url | None = None
    model_type: Literal["chat", "completions"] | None = None
    api_key_name: VariableName | None = None
    conf: Path | None = None
    data_dir: Path | None = None
    output_dir: Line | None = None
    max_eval_instances: Positive | None = None
    parallelism: Parallelism | None = None
    min_coverage: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    overrides: tuple[str, ...] = ()
    reasoning: bool = False
    offline: bool = False
    allow_code_execution: bool = False
    dry_run: bool = False
    no_preflight: bool = False
    debug: bool = False


def checked(flags: Mapping[str, Any]) -> LeaderboardRequest:
    """Raises ConfigError with all that is wrong; a value that may be a key is never shown."""
    try:
        return LeaderboardRequest.model_validate(flags)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [f"--{detail['loc'][0]}: {detail['msg'].removeprefix('Value error, ')}" for detail in found]
        raise ConfigError(problems) from None


PRESCRIBED = {
    "temperature": None,
    "max_new_tokens": None,
    "extra.num_output_tokens": None,
    "extra.num_train_trials": None,
    "extra.on_failure": "exclude",
}
"""Values of config.params that a leaderboard's entries or HELM's tables leave no choice of."""


def evaluation_of(
    request: LeaderboardRequest,
    row: Leaderboard,
    env: Mapping[str, str],
    *,
    model: str | None = None,
    judges: Sequence[str] | None = None,
) -> Evaluation:
    """The settings of one model as an evaluation's, so that a run config means the same as for `run_eval`.

    Args:
        model: its id; the run config's where it is None.
        judges: deployments that HELM asks by these names. None: not known yet, and no judge is looked at.

    Raises:
        ConfigError: with every problem that was found.
    """
    flags: dict[str, Any] = {
        "config.type": row.name,
        "config.output_dir": request.output_dir,
        "config.params.limit_samples": request.max_eval_instances,
        "config.params.parallelism": request.parallelism,
        "config.params.extra.min_coverage": request.min_coverage,
        "config.params.extra.data_dir": None if request.data_dir is None else str(request.data_dir),
        "config.params.extra.offline": request.offline or None,
        "config.params.extra.allow_code_execution": request.allow_code_execution or None,
        "target.api_endpoint.url": request.model_url,
        "target.api_endpoint.model_id": model,
        "target.api_endpoint.type": request.model_type,
        "target.api_endpoint.api_key": request.api_key_name,
    }
    given = {path: value for path, value in flags.items() if value is not None}
    overrides = request.overrides if judges is not None else (*request.overrides, "config.params.extra.judges=null")
    framework = load_framework()
    asked = Request(run_config=request.run_config, flags=given, overrides=overrides)
    evaluation = build_evaluation(asked, framework, env, _task(row, judges or ()))
    params = evaluation.run.config.params
    problems = []
    for path, only in PRESCRIBED.items():
        section = params.extra if path.startswith("extra.") else params
        if getattr(section, path.removeprefix("extra.")) != only:
            problems.append(f"config.params.{path}: cannot be given here, {row.name} has its own")
    if problems:
        raise ConfigError(problems)
    return evaluation


def _task(row: Leaderboard, judges: Sequence[str]) -> Task:
    folder = load_catalogue().output_dir.format(name=row.name)
    defaults = {"type": row.name, "output_dir": folder, "supported_endpoint_types": ENDPOINT_TYPES}
    return Task(
        name=row.name,
        description=row.description,
        defaults={"config": defaults},
        helm=HelmEntry(run_spec=row.name, scenario=row.name, main_metric=None, prescribed_judges=tuple(judges)),
        about=About(tags=(), access=row.access, source=row.conf, instances=None),
    )
