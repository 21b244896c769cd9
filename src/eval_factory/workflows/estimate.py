"""What a run will ask, take and cost, found out without asking: from the configuration and from cached answers.

Each figure says where it is from. What nobody knows is None; nothing is guessed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from eval_factory.config.evaluation import Evaluation
from eval_factory.core.budget import BY_ENDPOINT, Budget, Price
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint.openai_api import usage_of
from eval_factory.endpoint.paid_answers import USAGE, told_cost
from eval_factory.plan.prices import budget_of, prices_of, unknown_price
from eval_factory.plan.run_plan import EndpointPlan, Plan, make_plan
from eval_factory.report.reader import load_result
from eval_factory.tasks.run_specs import load_index
from eval_factory.workflows.estimate_figures import (
    SECONDS_OF_HOUR,
    SECONDS_OF_MINUTE,
    beyond,
    figures_in_words,
    lines_beyond,
    sum_of,
)
from eval_factory.workflows.prompt_sizes import BYTES_A_TOKEN, PromptSizes, prompt_sizes

_KEPT = f"""
SELECT r.latency_s, {USAGE}
FROM responses r WHERE role = ? AND model_id = ? ORDER BY created, key
"""  # noqa: S608 - of constants


@dataclass(frozen=True)
class KeptFigures:
    """Means of kept answers; None where not all of them say it."""

    answers: int
    prompt_tokens: float | None
    completion_tokens: float | None
    latency_s: float | None
    told_cost: float | None
    """US dollars, as the answers say themselves."""


def kept_figures(cache_db: Path, role: str, model_id: str) -> KeptFigures:
    """Of the answers of a model in a role."""
    rows: list[tuple[float, str | None]] = []
    if cache_db.is_file():
        with closing(sqlite3.connect(cache_db, timeout=30)) as connection:
            rows = list(connection.execute(_KEPT, (role, model_id)))
    usages = [None if text is None else json.loads(text) for _, text in rows]
    counts = [usage_of({"usage": usage}) for usage in usages]
    return KeptFigures(
        answers=len(rows),
        prompt_tokens=_mean([prompt for prompt, _ in counts]),
        completion_tokens=_mean([completion for _, completion in counts]),
        latency_s=_mean([latency for latency, _ in rows]),
        told_cost=_mean([told_cost(usage) for usage in usages]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


_AGAIN = "again where it says nothing usable"
RUN_FIRST = "unknown: run it with limit_samples first, then estimate again"
Look = Callable[[Plan, Mapping[str, str]], PromptSizes]


@dataclass(frozen=True)
class RoleEstimate:
    """What the model, or a judge, will be asked; None: nobody knows."""

    role: str
    model_id: str
    requests: int | None
    prompt_tokens: float | None
    completion_tokens: float | None
    cost: float | None
    """US dollars."""
    hours: float | None
    """With the parallelism and the limits a minute that are configured; of asking alone."""
    sources: Mapping[str, str]
    """Name of a figure -> where it is from, or why it is not known."""

    @property
    def tokens(self) -> float | None:
        return sum_of([self.prompt_tokens, self.completion_tokens])


@dataclass(frozen=True)
class Estimate:
    """Of one run. A sum of which a part is not known is None."""

    task: str
    roles: tuple[RoleEstimate, ...]
    """The model first."""
    kept: int
    """Answers that the output folder holds already: those of them that are needed again cost nothing."""
    budget: Budget

    @property
    def requests(self) -> int | None:
        total = sum_of([one.requests for one in self.roles])
        return None if total is None else int(total)

    @property
    def tokens(self) -> float | None:
        return sum_of([one.tokens for one in self.roles])

    @property
    def cost(self) -> float | None:
        return sum_of([one.cost for one in self.roles])

    @property
    def hours(self) -> float | None:
        """The judges are asked after the model, and all at once."""
        judges = [one.hours for one in self.roles if one.role != MODEL_ROLE]
        known = [hours for hours in judges if hours is not None]
        slowest = None if len(known) < len(judges) else max(known, default=0.0)
        return sum_of([*(one.hours for one in self.roles if one.role == MODEL_ROLE), slowest])

    @property
    def beyond(self) -> dict[str, float]:
        """Name of a limit that this run will reach -> how much it would take."""
        return beyond(self.budget, self)

    def as_dict(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "task": self.task,
            "requests": self.requests,
            "tokens": self.tokens,
            "cost": self.cost,
            "currency": "USD",
            "hours": self.hours,
            "kept_answers": self.kept,
            "beyond": self.beyond,
            "roles": [asdict(one) for one in self.roles],
        }

    def to_text(self) -> str:
        """For the screen."""
        lines = [f"{self.task}: {figures_in_words(self)}"]
        for one in self.roles:
            lines.append(f"  {one.role} ({one.model_id}): {figures_in_words(one)}")
            lines += [f"    {name}: {source}" for name, source in one.sources.items()]
        if self.kept:
            lines.append(f"  {self.kept:,} answers are kept in the output folder: those needed again cost nothing")
        lines += lines_beyond(self.budget, self)
        lines.append("  loading data and scoring take time too; requests that are tried again are not counted")
        return "\n".join(lines)


def estimate(
    evaluation: Evaluation, env: Mapping[str, str], *, look_at_data: bool = True, look: Look | None = None
) -> Estimate:
    """Of a run of this evaluation. No endpoint is asked, and nothing is downloaded.

    Args:
        look_at_data: make the requests, without sending any, where it is not known how many and how long they are: it
            takes seconds, and the data have to be here.
        look: what does so in place of `prompt_sizes`.
    """
    plan = make_plan(evaluation)
    figures = {one.role: _earlier(plan, one) for one in plan.endpoints}
    before = _asked_before(plan)
    helm, extra = evaluation.task.helm, evaluation.run.config.params.extra
    grouped = helm.rubric and (extra.criteria_per_request or 1) > 1  # results tell criteria, not requests
    unknown = before is None or figures[MODEL_ROLE].prompt_tokens is None or grouped
    sizes = (look or prompt_sizes)(plan, env) if unknown and look_at_data else None
    requests, source = _requests(plan, before, sizes)
    of_judges = _of_judges(plan, before, sizes, requests, source)
    known = prices_of(plan).known
    roles = []
    for one in plan.endpoints:
        count, where = (requests, source) if one is plan.model else of_judges
        asked = _Asked(count, where, figures[one.role], sizes if one is plan.model else None)
        roles.append(_of_role(plan, one, asked, known.get(one.role)))
    return Estimate(plan.task_name, tuple(roles), sum(one.answers for one in figures.values()), budget_of(plan))


@dataclass(frozen=True)
class _Asked:
    """What is known of the requests to one endpoint."""

    requests: int | None
    source: str
    figures: KeptFigures
    sizes: PromptSizes | None


def _earlier(plan: Plan, endpoint: EndpointPlan) -> KeptFigures:
    """Of answers in the output folder; another task's prompts are longer or shorter."""
    try:
        document = parse_own(plan.rundir.run_config.read_text(encoding="utf-8"))
        is_of_task = document["config"]["type"] == plan.evaluation.run.config.type
    except (OSError, ValueError, KeyError, TypeError):
        is_of_task = False
    cache_db = plan.rundir.cache_db if is_of_task else plan.rundir.root / "none"
    return kept_figures(cache_db, endpoint.role, endpoint.model_id)


def _asked_before(plan: Plan) -> int | None:
    """How many requests the result of this very run in the output folder is made of."""
    try:
        result = load_result(plan.rundir.root).result
    except PrerequisiteError:
        return None
    return result.validity.instances.requested if result.provenance.run_identity == plan.identity else None


def _requests(plan: Plan, before: int | None, sizes: PromptSizes | None) -> tuple[int | None, str]:
    if before is not None:
        return before, "as many as the result in the output folder is made of"
    if sizes is not None and sizes.requests is not None:
        return sizes.requests, "counted in the data, each trial and perturbation"
    limit, instances = plan.evaluation.run.config.params.limit_samples, plan.evaluation.task.about.instances
    if instances is None:
        why = "" if sizes is None else f" ({sizes.reason})"
        return None, f"unknown: nobody has counted the instances{why}"
    trials = _trials(plan.evaluation)
    told = f"instances of the test split x {trials} {'trial' if trials == 1 else 'trials'}"
    orders = plan.evaluation.run.config.params.extra.shuffle_choices
    if orders is not None:
        told += f" x {orders} orders of the choices, at most"
    return min(limit or instances, instances) * trials * (orders or 1), told


def _of_judges(
    plan: Plan, before: int | None, sizes: PromptSizes | None, requests: int | None, source: str
) -> tuple[int | None, str]:
    """How many requests each judge gets, and where that is from."""
    if not plan.evaluation.task.helm.rubric:
        return requests, f"{source}; a judge is asked once for each answer, {_AGAIN}"
    by_criterion = f"a judge is asked about each criterion of each answer, {_AGAIN}"
    if sizes is not None and sizes.requests is not None:
        return sizes.judge_requests, f"criteria counted in the data; {by_criterion}"
    if before is not None and (plan.evaluation.run.config.params.extra.criteria_per_request or 1) == 1:
        due = load_result(plan.rundir.root).result.validity.judgements
        if due is not None and plan.judges:
            return due.due // len(plan.judges), f"the criteria of the result in the output folder; {by_criterion}"
    return None, f"unknown: nobody has counted the criteria; {by_criterion}"


def _trials(evaluation: Evaluation) -> int:
    """How often each instance is asked: more than once only where prompts hold examples, which are drawn anew."""
    spec = load_index().run_specs.get(evaluation.task.helm.run_spec)
    if evaluation.task.helm.zero_shot or (spec is not None and spec.zero_shot):
        return 1
    return evaluation.run.config.params.extra.num_train_trials or 1


def _of_role(plan: Plan, endpoint: EndpointPlan, asked: _Asked, price: Price | None) -> RoleEstimate:
    prompt, completion, of_tokens = _tokens(asked)
    cost, of_cost = _cost(endpoint, asked, prompt, completion, price)
    hours, of_hours = _time(plan, endpoint, asked, prompt, completion)
    return RoleEstimate(
        endpoint.role, endpoint.model_id, asked.requests, prompt, completion, cost, hours,
        {"requests": asked.source, "tokens": of_tokens, "cost": of_cost, "time": of_hours},
    )  # fmt: skip


def _tokens(asked: _Asked) -> tuple[float | None, float | None, str]:
    """Of prompts, of answers, and where they are from."""
    figures, sizes, count = asked.figures, asked.sizes, asked.requests
    if count is not None and figures.prompt_tokens is not None and figures.completion_tokens is not None:
        earlier = f"the mean of {figures.answers:,} answers in the output folder"
        return count * figures.prompt_tokens, count * figures.completion_tokens, earlier
    if sizes is None or sizes.requests is None:
        return None, None, RUN_FIRST if sizes is None else f"{RUN_FIRST} ({sizes.reason})"
    told = f"prompts in the data, {BYTES_A_TOKEN} bytes a token; answers at most, as many tokens as they may have"
    return sizes.prompt_bytes / BYTES_A_TOKEN, float(sizes.most_tokens), told


def _cost(
    endpoint: EndpointPlan, asked: _Asked, prompt: float | None, completion: float | None, price: Price | None
) -> tuple[float | None, str]:
    told, count = asked.figures.told_cost, asked.requests
    if told is not None and count is not None:
        return told * count, f"{BY_ENDPOINT}: what {asked.figures.answers:,} answers say they cost, each"
    if price is None:
        return None, f"unknown: {unknown_price(endpoint)}; config.params.extra.prices says it"
    if prompt is None or completion is None or not count:
        return None, f"unknown, as the tokens are ({price.source})"
    return count * price.of(prompt / count, completion / count), price.source


def _time(
    plan: Plan, endpoint: EndpointPlan, asked: _Asked, prompt: float | None, completion: float | None
) -> tuple[float | None, str]:
    """Hours of asking: whatever takes longest of the endpoint's own time and the two limits a minute."""
    count, latency = asked.requests, asked.figures.latency_s
    if count is None or latency is None:
        return None, RUN_FIRST if count is not None else "unknown, as the requests are"
    by_criterion = endpoint is not plan.model and plan.evaluation.task.helm.rubric  # all answers' side by side
    at_once = endpoint.parallelism if by_criterion else min(endpoint.parallelism, plan.model.parallelism)
    seconds = {f"{latency:.3g} s a request, {at_once} at once": count * latency / at_once}
    if endpoint.requests_per_minute is not None:
        seconds[f"{endpoint.requests_per_minute} requests a minute"] = (
            count / endpoint.requests_per_minute * SECONDS_OF_MINUTE
        )
    if endpoint.tokens_per_minute is not None and prompt is not None and completion is not None:
        tokens = prompt + completion
        seconds[f"{endpoint.tokens_per_minute} tokens a minute"] = (
            tokens / endpoint.tokens_per_minute * SECONDS_OF_MINUTE
        )
    longest = max(seconds, key=lambda name: seconds[name])
    return seconds[longest] / SECONDS_OF_HOUR, longest
