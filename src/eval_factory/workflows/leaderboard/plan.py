"""What a leaderboard's run is: its row, its conf's entries, a plan for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.helm.model_files import deployment_of
from eval_factory.plan.prices import budget_of
from eval_factory.plan.run_plan import EndpointPlan, Plan, make_plan
from eval_factory.workflows.leaderboard import commands, registry
from eval_factory.workflows.leaderboard.conf import conf_of
from eval_factory.workflows.leaderboard.conf_entries import Entry, read_entries, rewritten
from eval_factory.workflows.leaderboard.registry import Leaderboard
from eval_factory.workflows.leaderboard.request import LeaderboardRequest, evaluation_of


@dataclass(frozen=True)
class Job:
    """What will be run; making it touches nothing on disk."""

    request: LeaderboardRequest
    row: Leaderboard
    schema: str
    plans: tuple[Plan, ...]
    """One for each model; they differ in nothing else."""
    origin: str
    found: tuple[Entry, ...] | None
    """The conf's entries as they stand there; None where a dry run would have to download it."""

    @property
    def suite(self) -> str:
        return self.row.name

    @property
    def rundir(self) -> RunDir:
        return self.plans[0].rundir

    @property
    def max_eval_instances(self) -> int:
        return self.plans[0].evaluation.run.config.params.limit_samples or self.row.max_eval_instances

    @property
    def min_coverage(self) -> float:
        return self.plans[0].evaluation.run.config.params.extra.min_coverage

    @property
    def endpoints(self) -> tuple[EndpointPlan, ...]:
        """Every model, and the judges."""
        return (*(plan.model for plan in self.plans), *self.plans[0].prescribed)

    def entries(self, plan: Plan) -> list[Entry]:
        """The conf's entries for one model."""
        return rewritten(self.found or (), deployment_of(plan.model), reasoning=self.request.reasoning)

    def of_priority(self, plan: Plan) -> list[Entry]:
        return [entry for entry in self.entries(plan) if entry.runs_at(self.row.priority)]

    def left_out(self, plan: Plan) -> list[Entry]:
        """Those that no endpoint for text can be asked with."""
        return [entry for entry in self.of_priority(plan) if entry.asks is not None]

    def to_run(self, plan: Plan) -> list[Entry]:
        return [entry for entry in self.of_priority(plan) if entry.asks is None]

    def run_command(self, plan: Plan) -> list[str]:
        return commands.run_command(
            self.rundir,
            suite=self.suite,
            model=deployment_of(plan.model),
            run_entries=self.rundir.run_entries_of(plan.model.slug),
            max_eval_instances=self.max_eval_instances,
            num_train_trials=self.row.num_train_trials,
            priority=self.row.priority,
            parallelism=plan.model.parallelism,
            debug=self.request.debug,
        )

    def summarize_command(self) -> list[str]:
        return commands.summarize_command(self.rundir, suite=self.suite, schema=self.schema, debug=self.request.debug)

    def server_command(self) -> list[str]:
        return commands.server_command(self.rundir, suite=self.suite)


def make_job(request: LeaderboardRequest, env: Mapping[str, str]) -> Job:
    """Find the leaderboard, read its conf, work out endpoints and judges.

    Raises:
        ConfigError: there is no such leaderboard, no text endpoint can run it, or something given is wrong.
        PrerequisiteError: HELM has no such schema, or the conf is unavailable.
    """
    row = registry.find(request.name)
    if row.lacks and request.conf is None:
        raise ConfigError(f"{row.name} asks for {row.lacks}: nothing of it can be run with an endpoint for text")
    schema = registry.schema_path(row)
    if schema is None:
        raise PrerequisiteError(
            f"{row.name}: HELM {registry.helm_version()} has no {row.schema_file}\n"
            "  install the version of HELM that the leaderboard was made with"
        )
    models = request.model or (None,)
    extra = evaluation_of(request, row, env, model=models[0]).run.config.params.extra
    data_dir = Path(extra.data_dir).expanduser() if extra.data_dir else None
    text, origin = conf_of(row, file=request.conf, data_dir=data_dir, look_only=request.dry_run or extra.offline)
    if text is None and extra.offline:
        raise PrerequisiteError(f"offline: {row.conf} is not here; give it with --conf FILE, or a bundle, --data_dir")
    found = None if text is None else tuple(read_entries(text, origin))
    judges: Sequence[str] = tuple(row.judges.values())
    if found is not None:
        asked = [entry for entry in found if entry.runs_at(row.priority) and entry.asks is None]
        judges = list(dict.fromkeys(judge for entry in asked for judge in entry.judges))
    plans = tuple(make_plan(evaluation_of(request, row, env, model=model, judges=judges)) for model in models)
    if budget_of(plans[0]):
        raise ConfigError(
            "config.params.extra: a leaderboard has no max_cost, max_requests, max_tokens_total or max_wall_s:"
            " leave them out; --max_eval_instances bounds it"
        )
    return Job(request, row, str(schema), plans, origin, found)
