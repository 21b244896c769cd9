"""An estimate of what a run will ask, take and cost, made without asking: from the configuration,
from cached answers, and from the requests that helm-run makes in a temporary folder, without
sending any.

Each figure says where it is from. What nobody knows is None; nothing is guessed.
"""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from eval_factory.config.resolved import Evaluation
from eval_factory.core import formats
from eval_factory.core import logs as event_names
from eval_factory.core.budget import (
    BY_ENDPOINT,
    BYTES_PER_TOKEN,
    MAX_COST,
    MAX_REQUESTS,
    MAX_TOKENS,
    MAX_WALL,
    Budget,
    Price,
)
from eval_factory.core.errors import EvalFactoryError, PrerequisiteError
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.data.hub import HF_OFFLINE
from eval_factory.endpoint.openai_api import tokens_of
from eval_factory.endpoint.paid_answers import USAGE, stated_cost
from eval_factory.helm import names
from eval_factory.helm.command import command_line, model_files
from eval_factory.helm.trivial_answers import PADDED_QUESTIONS
from eval_factory.plan.prices import budget_of, prices_of, unknown_price
from eval_factory.plan.run_plan import EndpointPlan, Plan, make_plan
from eval_factory.report.reader import load_result
from eval_factory.tasks.typical_tokens import typical_requests
from eval_factory.workflows.context import RunContext, redactor_of
from eval_factory.workflows.helm_run import run_helm
from eval_factory.workflows.prepare import data_settings, find_bundle, place_data

SECONDS_OF_HOUR = 3600.0
SECONDS_OF_MINUTE = 60.0
_KEPT = f"""
SELECT r.latency_s, {USAGE}
FROM responses r WHERE role = ? AND model_id = ? ORDER BY created, key
"""  # noqa: S608 - of constants
_AGAIN = "and again if its answer cannot be used"
RUN_FIRST = "unknown: run it with limit_samples first, then estimate again"
Look = Callable[[Plan, Mapping[str, str]], "PromptSizes"]


def sum_or_none(parts: Iterable[float | None]) -> float | None:
    """Return the sum of the parts; None if a part is not known."""
    values = list(parts)
    if None in values:
        return None
    return sum(part for part in values if part is not None)


def figures_in_words(of: RoleEstimate | Total) -> str:
    """Return the figures in words: `40 requests, 2,864 tokens, 0.02 USD, 1.5 min`."""
    cost = "unknown cost" if of.cost is None else formats.money(of.cost)
    time = "unknown time" if of.hours is None else formats.hours(of.hours)
    requests, tokens = (
        formats.count(number, missing="unknown") for number in (of.requests, of.tokens)
    )
    return f"{requests} requests, {tokens} tokens, {cost}, {time}"


@dataclass(frozen=True)
class RoleEstimate:
    """An estimate of what the model, or a judge, will be asked; None: nobody knows."""

    role: str
    model_id: str
    requests: int | None
    prompt_tokens: float | None
    completion_tokens: float | None
    cost: float | None  # US dollars
    # the time of asking alone, with the configured parallelism and limits a minute
    hours: float | None
    sources: Mapping[str, str]  # name of a figure -> where it is from, or why it is not known

    @property
    def tokens(self) -> float | None:
        return sum_or_none([self.prompt_tokens, self.completion_tokens])


class Total(ABC):
    """The sum of what several parts take. A sum of which a part is not known is None."""

    budget: Budget

    @property
    @abstractmethod
    def parts(self) -> Sequence[RoleEstimate | Total]: ...

    @property
    @abstractmethod
    def hours(self) -> float | None: ...

    @property
    def requests(self) -> float | None:
        return sum_or_none(part.requests for part in self.parts)

    @property
    def tokens(self) -> float | None:
        return sum_or_none(part.tokens for part in self.parts)

    @property
    def cost(self) -> float | None:
        return sum_or_none(part.cost for part in self.parts)

    @property
    def beyond(self) -> dict[str, float]:
        """The limits that will be reached before the end, by name: for each, how much is needed."""
        seconds = None if self.hours is None else self.hours * SECONDS_OF_HOUR
        needed = {
            MAX_COST: self.cost,
            MAX_REQUESTS: self.requests,
            MAX_TOKENS: self.tokens,
            MAX_WALL: seconds,
        }
        stated = self.budget.stated.items()
        return {
            name: value
            for name, limit in stated
            if (value := needed[name]) is not None and value > limit
        }

    def figures(self) -> dict[str, Any]:
        """Return the figures for other programs."""
        sums = {"requests": self.requests, "tokens": self.tokens, "cost": self.cost}
        return {**sums, "currency": "USD", "hours": self.hours}

    def lines_beyond(self) -> list[str]:
        return [
            f"  {name} ({self.budget.stated[name]:g}) will be reached before the end"
            for name in self.beyond
        ]


@dataclass(frozen=True)
class Estimate(Total):
    """The estimate of one run."""

    task: str
    roles: tuple[RoleEstimate, ...]  # the model first
    # answers that the output folder holds already: those of them that are needed again cost nothing
    kept: int
    budget: Budget
    at_most: bool = False  # True if `extra.stop_when` may end the run before all is asked

    @property
    def parts(self) -> Sequence[RoleEstimate]:
        return self.roles

    @property
    def hours(self) -> float | None:
        """The judges are asked after the model, and all at once."""
        model, *judges = [role.hours for role in self.roles]
        known_hours = []
        for hours in judges:
            if hours is not None:
                known_hours.append(hours)
        if len(known_hours) < len(judges):
            return None
        return sum_or_none([model, max(known_hours, default=0.0)])

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate for other programs."""
        return {
            "task": self.task,
            **({"at_most": True} if self.at_most else {}),
            **self.figures(),
            "kept_answers": self.kept,
            "beyond": self.beyond,
            "roles": [asdict(role) for role in self.roles],
        }

    def to_text(self) -> str:
        """Return the estimate for the screen."""
        lines = [f"{self.task}: {'at most ' * self.at_most}{figures_in_words(self)}"]
        for role in self.roles:
            lines.append(f"  {role.role} ({role.model_id}): {figures_in_words(role)}")
            lines += [f"    {name}: {source}" for name, source in role.sources.items()]
        if self.kept:
            lines.append(
                f"  {self.kept:,} answers are kept in the output folder: "
                "those needed again cost nothing"
            )
        lines += self.lines_beyond()
        lines.append(
            "  loading data and scoring take time too; "
            "requests that are tried again are not counted"
        )
        return "\n".join(lines)


def estimate(
    evaluation: Evaluation,
    env: Mapping[str, str],
    *,
    look_at_data: bool = True,
    look: Look | None = None,
    quick: bool = False,
) -> Estimate:
    """Estimate a run of this evaluation. No endpoint is asked, and nothing is downloaded.

    Args:
        evaluation: what would be run.
        env: the environment of the process that makes the requests.
        look_at_data: make the requests, without sending any, if it is not known how many and how
            long they are: it takes seconds, and the data have to be here.
        look: what does so in place of `prompt_sizes`.
        quick: make no requests of a task whose typical sizes are known.
    """
    plan = make_plan(evaluation)
    cache_db = _answers_of_task(plan)
    figures = {}
    for endpoint in plan.endpoints:
        figures[endpoint.role] = cached_figures(cache_db, endpoint.role, endpoint.model_id)
    before = _requests_before(plan)
    helm = evaluation.task.helm
    extra = evaluation.extra
    # results tell criteria, not requests
    grouped = helm.rubric and (extra.criteria_per_request or 1) > 1
    unasked = MODEL_ROLE in figures and figures[MODEL_ROLE].prompt_tokens is None
    unknown = before is None or unasked or grouped
    typical = typical_sizes(plan) if unknown else None
    measured = None
    if unknown and look_at_data and not (quick and typical):
        measured = (look or prompt_sizes)(plan, env)
    sizes = measured
    if typical and (measured is None or measured.requests is None):
        sizes = typical
    requests = _requests(plan, before, measured)
    of_judges = _with_judge_probes(plan, _of_judges(plan, before, sizes, *requests), requests[0])
    prices = prices_of(plan).known
    roles = []
    for endpoint in plan.endpoints:
        is_model = endpoint is plan.model
        roles.append(
            _role_estimate(
                plan,
                endpoint,
                requests if is_model else of_judges,
                figures[endpoint.role],
                sizes if is_model else None,
                prices.get(endpoint.role),
            )
        )
    kept = sum(role_figures.answers for role_figures in figures.values())
    at_most = evaluation.stop_when is not None
    return Estimate(plan.task_name, tuple(roles), kept, budget_of(plan), at_most)


def _role_estimate(
    plan: Plan,
    endpoint: EndpointPlan,
    requests: tuple[int | None, str],
    kept: CachedFigures,
    sizes: PromptSizes | None,
    price: Price | None,
) -> RoleEstimate:
    """Return what the model or one judge takes, each figure with its source.

    Args:
        plan: of the run.
        endpoint: the model's or a judge's.
        requests: their number, and where that is from.
        kept: figures of the answers that the output folder holds.
        sizes: of the model's prompts; None for a judge.
        price: of the endpoint's tokens; None: not known.
    """
    count, source = requests
    prompt, completion, of_tokens = _tokens(count, kept, sizes)
    cost, of_cost = _cost(endpoint, count, kept, prompt, completion, price)
    tokens = sum_or_none([prompt, completion])
    hours, of_hours = _time(plan, endpoint, count, kept.latency_s, tokens)
    sources = {"requests": source, "tokens": of_tokens, "cost": of_cost, "time": of_hours}
    return RoleEstimate(
        endpoint.role, endpoint.model_id, count, prompt, completion, cost, hours, sources
    )


def _with_judge_probes(
    plan: Plan, of_judges: tuple[int | None, str], questions: int | None
) -> tuple[int | None, str]:
    """Add the requests of `probe_judges` to those of a judge, and say so in their source."""
    count, source = of_judges
    if not plan.evaluation.extra.probe_judges or not count or not questions:
        return of_judges
    probes = count * min(PADDED_QUESTIONS, questions) // questions
    return count + probes, f"{source}; {probes} more with probe_judges"


def _answers_of_task(plan: Plan) -> Path:
    """Return the cache of the output folder, or a path without a file: another task's prompts are
    longer or shorter.
    """
    try:
        document = parse_own(plan.rundir.run_config.read_text(encoding="utf-8"))
        is_of_task = document["config"]["type"] == plan.evaluation.run.config.type
    except (OSError, ValueError, KeyError, TypeError):
        is_of_task = False
    if is_of_task:
        return plan.rundir.cache_db
    return plan.rundir.root / "none"


def _requests_before(plan: Plan) -> int | None:
    """Return how many requests the result of this very run in the output folder is made of; None if
    there is no such result.
    """
    try:
        result = load_result(plan.rundir.root).result
    except PrerequisiteError:
        return None
    if result.provenance.run_identity != plan.identity:
        return None
    return result.validity.instances.requested


def _requests(plan: Plan, before: int | None, sizes: PromptSizes | None) -> tuple[int | None, str]:
    if before is not None:
        return before, "as many as for the result in the output folder"
    if sizes is not None and sizes.requests is not None:
        return sizes.requests, "counted in the data, each trial and perturbation"
    limit = plan.evaluation.params.limit_samples
    instances = plan.evaluation.task.about.instances
    if (chosen := plan.evaluation.extra.instances) is not None:
        limit = instances = len(chosen)
    if instances is None:
        why = ""
        if sizes is not None:
            why = f" ({sizes.reason})"
        return None, f"unknown: the number of instances is not known{why}"
    trials = plan.trials
    askings = plan.askings
    calculation = f"instances of the test split x {trials} {'trial' if trials == 1 else 'trials'}"
    if askings > 1:
        calculation += f" x {askings} (each question as it is and asked again), at most"
    question_count = min(limit or instances, instances)
    by_chance = min(plan.chance_questions, question_count)
    if by_chance:
        calculation += f", and {by_chance} that were right once more"
    return question_count * trials * askings + by_chance, calculation


def _of_judges(
    plan: Plan, before: int | None, sizes: PromptSizes | None, requests: int | None, source: str
) -> tuple[int | None, str]:
    """Return how many requests each judge gets, and where that number is from."""
    if not plan.evaluation.task.helm.rubric:
        return requests, f"{source}; a judge is asked once for each answer, {_AGAIN}"
    by_criterion = f"a judge is asked about each criterion of each answer, {_AGAIN}"
    if sizes is not None and sizes.requests is not None:
        if sizes.typical:
            counted = "as many criteria as is typical"
        else:
            counted = "criteria counted in the data"
        return sizes.judge_requests, f"{counted}; {by_criterion}"
    if before is not None and (plan.evaluation.extra.criteria_per_request or 1) == 1:
        due = load_result(plan.rundir.root).result.validity.judgements
        if due is not None and plan.judges:
            return due.due // len(
                plan.judges
            ), f"the criteria of the result in the output folder; {by_criterion}"
    return None, f"unknown: the number of criteria is not known; {by_criterion}"


def _tokens(
    count: int | None, figures: CachedFigures, sizes: PromptSizes | None
) -> tuple[float | None, float | None, str]:
    """Return the tokens of prompts and of answers, and their source."""
    if (
        count is not None
        and figures.prompt_tokens is not None
        and figures.completion_tokens is not None
    ):
        earlier = f"the mean of {figures.answers:,} answers in the output folder"
        return count * figures.prompt_tokens, count * figures.completion_tokens, earlier
    if sizes is None or sizes.requests is None:
        return None, None, RUN_FIRST if sizes is None else f"{RUN_FIRST} ({sizes.reason})"
    prompt_tokens = sizes.prompt_bytes / BYTES_PER_TOKEN
    prompts = "prompts in the data"
    if sizes.typical:
        prompts = f"prompts of typical length ({sizes.typical})"
    source = (
        f"{prompts}, {BYTES_PER_TOKEN} bytes a token; "
        "each answer counted with as many tokens as it may have at most"
    )
    if sizes.media_tokens is not None:
        prompt_tokens += sizes.media_tokens
        source += (
            "; pictures counted as OpenAI's 85 tokens and 170 a tile, WAV 10 a second, "
            "other sounds 0: roughly"
        )
    return prompt_tokens, float(sizes.most_tokens), source


def _cost(
    endpoint: EndpointPlan,
    count: int | None,
    figures: CachedFigures,
    prompt: float | None,
    completion: float | None,
    price: Price | None,
) -> tuple[float | None, str]:
    if figures.stated_cost is not None and count is not None:
        return (
            figures.stated_cost * count,
            f"{BY_ENDPOINT}: the mean cost that {figures.answers:,} answers state",
        )
    if price is None:
        return None, f"unknown: {unknown_price(endpoint)}; set it in config.params.extra.prices"
    if prompt is None or completion is None or not count:
        return None, f"unknown, because the tokens are unknown ({price.source})"
    return count * price.of(prompt / count, completion / count), price.source


def _time(
    plan: Plan,
    endpoint: EndpointPlan,
    count: int | None,
    latency: float | None,
    tokens: float | None,
) -> tuple[float | None, str]:
    """Hours of asking: whatever takes longest of the endpoint's own time and the two limits a
    minute.
    """
    if count is None or latency is None:
        return None, RUN_FIRST if count is not None else "unknown, because the requests are unknown"
    # all answers' side by side
    by_criterion = endpoint is not plan.model and plan.evaluation.task.helm.rubric
    if by_criterion:
        at_once = endpoint.parallelism
    else:
        at_once = min(endpoint.parallelism, plan.model.parallelism)
    seconds = {
        f"{formats.seconds(latency)} a request, {at_once} at once": count * latency / at_once
    }
    if endpoint.requests_per_minute is not None:
        name = f"{endpoint.requests_per_minute} requests a minute"
        seconds[name] = count / endpoint.requests_per_minute * SECONDS_OF_MINUTE
    if endpoint.tokens_per_minute is not None and tokens is not None:
        name = f"{endpoint.tokens_per_minute} tokens a minute"
        seconds[name] = tokens / endpoint.tokens_per_minute * SECONDS_OF_MINUTE
    longest = max(seconds, key=lambda name: seconds[name])
    return seconds[longest] / SECONDS_OF_HOUR, longest


@dataclass(frozen=True)
class CachedFigures:
    """Means of cached answers; None if not all of them say it."""

    answers: int
    prompt_tokens: float | None
    completion_tokens: float | None
    latency_s: float | None
    stated_cost: float | None  # US dollars, as the answers say themselves


def cached_figures(cache_db: Path, role: str, model_id: str) -> CachedFigures:
    """Return the figures of the answers of a model in a role."""
    rows: list[tuple[float, str | None]] = []
    if cache_db.is_file():
        with closing(sqlite3.connect(cache_db, timeout=30)) as connection:
            rows = list(connection.execute(_KEPT, (role, model_id)))
    usages = [None if text is None else json.loads(text) for _, text in rows]
    counts = [tokens_of({"usage": usage}) for usage in usages]
    return CachedFigures(
        answers=len(rows),
        prompt_tokens=_mean([prompt for prompt, _ in counts]),
        completion_tokens=_mean([completion for _, completion in counts]),
        latency_s=_mean([latency for latency, _ in rows]),
        stated_cost=_mean([stated_cost(usage) for usage in usages]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known_values = []
    for value in values:
        if value is not None:
            known_values.append(value)
    if not (known_values and len(known_values) == len(values)):
        return None
    return fmean(known_values)


@dataclass(frozen=True)
class PromptSizes:
    """The sizes of a run's prompts; `requests` is None, and `reason` says why, if the data are not
    here.
    """

    requests: int | None
    prompt_bytes: int = 0
    most_tokens: int = 0  # the most tokens that all answers together may have
    reason: str = ""
    # the requests to each judge of a rubric, which is asked by criterion; 0 if there is no rubric
    judge_requests: int = 0
    media_tokens: int | None = None  # for pictures and sounds, roughly; None: none are sent
    typical: str = ""
    """The source of sizes that are typical of the task; "": the requests were measured."""


def typical_sizes(plan: Plan) -> PromptSizes | None:
    """Return the typical sizes of a public task that reads its own data; None: not known."""
    typical = typical_requests().get(plan.task_name)
    count, _ = _requests(plan, None, None)
    params = plan.evaluation.params
    if typical is None or count is None or params.extra.data_path is not None:
        return None
    answer_tokens = plan.evaluation.num_output_tokens or typical.answer_tokens
    media_tokens = None
    if typical.media_tokens:
        media_tokens = count * typical.media_tokens
    return PromptSizes(
        requests=count,
        prompt_bytes=count * typical.prompt_bytes,
        most_tokens=count * answer_tokens,
        judge_requests=round(count * typical.judge_requests),
        media_tokens=media_tokens,
        typical=typical.source,
    )


def prompt_sizes(plan: Plan, env: Mapping[str, str]) -> PromptSizes:
    """Return the sizes of a run's prompts, found without keys and without a network: what would
    have to be downloaded is not known.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="eval-factory-estimate-") as name:
            return sizes_in(_events(replace(plan, rundir=RunDir(Path(name))), env))
    except EvalFactoryError as error:
        return PromptSizes(None, reason=str(error).partition("\n")[0][:200])


def sizes_in(events: Sequence[Mapping[str, Any]]) -> PromptSizes:
    """Return the sizes in the events of a measuring helm-run."""
    for event in events:
        if event["event"] == event_names.MEASURED:
            return PromptSizes(
                **{
                    size.name: event[size.name]
                    for size in fields(PromptSizes)
                    if size.name in event
                }
            )
    failed = []
    for event in events:
        if event["event"] == event_names.RUN_FAILED:
            failed.append(event["error"])
    kind = failed[0].partition(":")[0] if failed else "HELM made no requests"
    return PromptSizes(None, reason=f"its data are not here, or not all of them: {kind}")


def own_scenarios(plan: Plan) -> Path:
    """Return where the output folder has the data of earlier runs."""
    return RunDir(plan.evaluation.output_dir.absolute()).helm / names.SCENARIOS_FOLDER


def _events(plan: Plan, env: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    """Return the events of a helm-run in the plan's folder that may contact nobody; it sees the
    data that the output folder has.
    """
    log = logging.Logger("estimate")
    screen = io.StringIO()
    log.addHandler(logging.NullHandler())  # says nothing to anybody
    with plan.rundir.locked(screen.write) as lock:
        context = RunContext(plan.rundir, lock, env, redactor_of(plan.evaluation, env), log, screen)
        bundle = find_bundle(plan, env)
        offline = data_settings(plan, bundle, env)
        settings = replace(
            offline, allowed=(), proxies={}, libraries={**offline.libraries, **HF_OFFLINE}
        )
        scenarios = own_scenarios(plan)
        for made_folder in (scenarios, scenarios.with_name(names.PERTURBATIONS_FOLDER)):
            if made_folder.is_dir():
                plan.rundir.helm.mkdir(parents=True, exist_ok=True)
                (plan.rundir.helm / made_folder.name).symlink_to(
                    made_folder, target_is_directory=True
                )
        for name, text in model_files(plan).items():
            write_atomic(plan.rundir.model_configs / name, text, mode=PRIVATE)
        place_data(context, plan, bundle)
        argv = []
        for word in command_line(plan):
            argv.append(names.MEASURING_RUNNER_CLASS if word == names.RUNNER_CLASS else word)
        return run_helm(context, plan.evaluation, argv, settings).events
