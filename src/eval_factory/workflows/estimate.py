"""Estimates the requests, tokens, cost and time of a run without sending a request.

The figures come from the configuration, from cached answers, and from a helm-run in a temporary
folder that prepares all requests but sends none of them (`measured_prompts.py`).

Each figure has a source. A figure that cannot be determined is None. If the lengths of the answers
are unknown, their maximum is counted.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from eval_factory.config.resolved import Evaluation
from eval_factory.core import formats
from eval_factory.core.budget import BY_ENDPOINT, BYTES_PER_TOKEN, Price
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint.openai_answers import token_counts_of
from eval_factory.endpoint.paid_answers import USAGE_SQL, stated_cost
from eval_factory.helm.trivial_answers import PADDED_QUESTION_COUNT
from eval_factory.plan.prices import budget_of, prices_of, unknown_price_message
from eval_factory.plan.run_plan import EndpointPlan, Plan, make_plan
from eval_factory.report.reader import load_result
from eval_factory.tasks.typical_tokens import typical_requests
from eval_factory.workflows.estimate_records import (
    SECONDS_PER_HOUR,
    Estimate,
    RoleEstimate,
    sum_or_none,
)
from eval_factory.workflows.measured_prompts import Measure, PromptSizes, prompt_sizes

SECONDS_PER_MINUTE = 60.0
# the SQL query for the latency and the usage of each answer in the cache
_CACHED_ANSWERS = f"""
SELECT r.latency_s, {USAGE_SQL}
FROM responses r WHERE role = ? AND model_id = ? ORDER BY created, key
"""  # noqa: S608 - the text only contains constants
# parts of the texts about the sources of figures
_AGAIN_IF_UNUSABLE = "and again if the answer cannot be used"
RUN_FIRST = "unknown: run the evaluation with limit_samples first, then estimate again"


@dataclass(frozen=True)
class CachedFigures:
    """The number of cached answers, and means over them; a mean is None if an answer lacks it."""

    answers: int
    prompt_tokens: float | None
    completion_tokens: float | None
    latency_s: float | None  # in seconds
    stated_cost: float | None  # in US dollars, as the endpoint states it in the answers


class RequestCount(NamedTuple):
    """A number of requests, with its source."""

    number: int | None  # None if it is unknown
    source: str  # where the number comes from, or why it is unknown


class TokenCount(NamedTuple):
    """The tokens of all requests to an endpoint, with their source."""

    prompts: float | None  # the tokens of all prompts together; None if unknown
    answers: float | None  # the tokens of all answers together; None if unknown
    source: str  # where the numbers come from, or why they are unknown


def estimate(
    evaluation: Evaluation,
    env: Mapping[str, str],
    *,
    look_at_data: bool = True,
    measure: Measure | None = None,
    quick: bool = False,
) -> Estimate:
    """Estimate a run of the evaluation. No request is sent, and nothing is downloaded.

    Args:
        evaluation: The evaluation that would be run.
        env: The environment of the helm-run that prepares the requests.
        look_at_data: True if unknown numbers and lengths of requests may be measured by preparing
            the requests. This takes seconds and needs the data on this machine.
        measure: The function that measures the requests instead of `prompt_sizes`.
        quick: True to prepare no requests for a task whose typical sizes are known.
    """
    plan = make_plan(evaluation)
    cache_db = _cache_of_task(plan)
    cached = {}
    for endpoint in plan.endpoints:
        cached[endpoint.role] = cached_figures(cache_db, endpoint.role, endpoint.model_id)
    earlier_requests = _earlier_requests(plan)
    typical = None
    measured = None
    if _needs_sizes(plan, earlier_requests, cached):
        typical = typical_sizes(plan)
        typical_is_enough = quick and typical is not None
        if look_at_data and not typical_is_enough:
            measure_sizes = measure or prompt_sizes
            measured = measure_sizes(plan, env)
    sizes = typical
    # Measured sizes have priority over typical sizes, but the measurement may have failed.
    if measured is not None and (typical is None or measured.requests is not None):
        sizes = measured
    requests = _request_count(plan, earlier_requests, measured)
    judge_requests = _judge_requests(plan, earlier_requests, sizes, requests)
    judge_requests = _with_judge_probes(plan, judge_requests, questions=requests.number)
    prices = prices_of(plan).known
    roles = []
    for endpoint in plan.endpoints:
        is_model = endpoint is plan.model
        roles.append(
            _role_estimate(
                plan,
                endpoint,
                requests=requests if is_model else judge_requests,
                cached=cached[endpoint.role],
                sizes=sizes if is_model else None,
                price=prices.get(endpoint.role),
            )
        )
    return Estimate(
        task=plan.task_name,
        roles=tuple(roles),
        cached_answers=sum(figures.answers for figures in cached.values()),
        budget=budget_of(plan),
        at_most=evaluation.stop_when is not None,
    )


def _needs_sizes(
    plan: Plan, earlier_requests: int | None, cached: Mapping[str, CachedFigures]
) -> bool:
    """Return True if the output folder lacks a figure that the sizes of the prompts give.

    Args:
        plan: The plan of the run.
        earlier_requests: The number of requests of the result in the output folder, or None.
        cached: The figures of the answers in the output folder, by role.
    """
    if earlier_requests is None:
        return True
    if MODEL_ROLE in cached and cached[MODEL_ROLE].prompt_tokens is None:
        return True
    # A result has the number of criteria, but not of requests that ask about several criteria.
    return plan.evaluation.task.helm.rubric and _criteria_per_request(plan) > 1


def _criteria_per_request(plan: Plan) -> int:
    """Return the number of a rubric's criteria about which one request to a judge asks."""
    return plan.evaluation.extra.criteria_per_request or 1


def _role_estimate(
    plan: Plan,
    endpoint: EndpointPlan,
    *,
    requests: RequestCount,
    cached: CachedFigures,
    sizes: PromptSizes | None,
    price: Price | None,
) -> RoleEstimate:
    """Return the estimate for the model or one judge, each figure with its source.

    Args:
        plan: The plan of the run.
        endpoint: The endpoint of the model or the judge.
        requests: The number of requests to the endpoint.
        cached: The figures of the answers in the output folder.
        sizes: The sizes of the model's prompts; None for a judge.
        price: The price of the endpoint's tokens; None if unknown.
    """
    count = requests.number
    tokens = _tokens(count, cached, sizes)
    cost, cost_source = _cost(endpoint, count, cached, tokens, price)
    all_tokens = sum_or_none([tokens.prompts, tokens.answers])
    hours, time_source = _time(plan, endpoint, count, cached.latency_s, all_tokens)
    return RoleEstimate(
        role=endpoint.role,
        model_id=endpoint.model_id,
        requests=count,
        prompt_tokens=tokens.prompts,
        completion_tokens=tokens.answers,
        cost=cost,
        hours=hours,
        sources={
            "requests": requests.source,
            "tokens": tokens.source,
            "cost": cost_source,
            "time": time_source,
        },
    )


def _with_judge_probes(
    plan: Plan, judge_requests: RequestCount, *, questions: int | None
) -> RequestCount:
    """Return the number of a judge's requests with the requests of `probe_judges`.

    Args:
        plan: The plan of the run.
        judge_requests: The number of the judge's other requests.
        questions: The number of questions to the model; None if unknown.
    """
    count = judge_requests.number
    if not plan.evaluation.extra.probe_judges or not count or not questions:
        return judge_requests
    # With `probe_judges`, the judges also rate a padded answer to some of the questions. A padded
    # answer needs count / questions requests.
    padded_answers = min(PADDED_QUESTION_COUNT, questions)
    probes = count * padded_answers // questions
    source = f"{judge_requests.source}; {probes} more with probe_judges"
    return RequestCount(count + probes, source)


def _cache_of_task(plan: Plan) -> Path | None:
    """Return the path of the cache in the output folder, if its answers are about the plan's task.

    Otherwise return None: the prompts of another task have other lengths.
    """
    try:
        document = parse_own_text(plan.rundir.run_config.read_text(encoding="utf-8"))
        is_of_task = document["config"]["type"] == plan.evaluation.run.config.type
    except (OSError, ValueError, KeyError, TypeError):
        is_of_task = False
    return plan.rundir.cache_db if is_of_task else None


def _earlier_requests(plan: Plan) -> int | None:
    """Return the number of requests of the result in the output folder.

    Returns None if the folder has no result, or a result of another configuration.
    """
    try:
        result = load_result(plan.rundir.root).result
    except PrerequisiteError:
        return None
    if result.provenance.run_identity != plan.identity:
        return None
    return result.validity.instances.requested


def _request_count(
    plan: Plan, earlier_requests: int | None, measured: PromptSizes | None
) -> RequestCount:
    """Return the number of requests to the model.

    Args:
        plan: The plan of the run.
        earlier_requests: The number of requests of the result in the output folder, or None.
        measured: The measured sizes of the prompts, or None. Typical sizes are not passed, because
            `typical_sizes` computes them from the number that this function returns.
    """
    if earlier_requests is not None:
        return RequestCount(earlier_requests, "the requests of the result in the output folder")
    if measured is not None and measured.requests is not None:
        source = "counted in the data, with every trial and perturbation"
        return RequestCount(measured.requests, source)
    limit = plan.evaluation.params.limit_samples
    instances = plan.evaluation.task.about.instances
    chosen_ids = plan.evaluation.extra.instances  # the instances that the user named
    if chosen_ids is not None:
        instances = len(chosen_ids)
        limit = None
    if instances is None:
        why = ""
        if measured is not None:
            why = f" ({measured.reason})"
        source = f"unknown: the number of instances is not known{why}"
        return RequestCount(number=None, source=source)
    trials = plan.trials
    askings = plan.askings  # the maximum number of requests for a question in a trial
    trials_text = "1 trial" if trials == 1 else f"{trials} trials"
    calculation = f"instances of the test split x {trials_text}"
    if askings > 1:
        calculation += f" x {askings} (each question unchanged and asked again), at most"
    question_count = min(limit or instances, instances)
    # Asked again in the same words, these questions show how many right answers chance loses.
    repeated = min(plan.chance_questions, question_count)
    if repeated:
        calculation += f", and {repeated} correctly answered questions again"
    return RequestCount(question_count * trials * askings + repeated, calculation)


def _judge_requests(
    plan: Plan,
    earlier_requests: int | None,
    sizes: PromptSizes | None,
    requests: RequestCount,
) -> RequestCount:
    """Return the number of requests to each judge.

    Args:
        plan: The plan of the run.
        earlier_requests: The number of requests to the model of the result in the output folder, or
            None.
        sizes: The measured or typical sizes of the prompts, or None.
        requests: The number of requests to the model in this run.
    """
    if not plan.evaluation.task.helm.rubric:
        rule = f"a judge is asked once for each answer, {_AGAIN_IF_UNUSABLE}"
        return RequestCount(requests.number, f"{requests.source}; {rule}")
    rule = f"a judge is asked about each criterion of each answer, {_AGAIN_IF_UNUSABLE}"
    if sizes is not None and sizes.requests is not None:
        if sizes.typical:
            counted = "the typical number of criteria"
        else:
            counted = "criteria counted in the data"
        return RequestCount(sizes.judge_requests, f"{counted}; {rule}")
    if earlier_requests is not None and _criteria_per_request(plan) == 1:
        judgements = load_result(plan.rundir.root).result.validity.judgements
        if judgements is not None and plan.judges:
            count = judgements.due // len(plan.judges)
            criteria = "the criteria of the result in the output folder"
            return RequestCount(count, f"{criteria}; {rule}")
    why = "unknown: the number of criteria is not known"
    return RequestCount(number=None, source=f"{why}; {rule}")


def _tokens(count: int | None, cached: CachedFigures, sizes: PromptSizes | None) -> TokenCount:
    """Return the tokens of all prompts and of all answers, and the source of both numbers.

    `count` is the number of requests.
    """
    prompt_mean = cached.prompt_tokens
    completion_mean = cached.completion_tokens
    if count is not None and prompt_mean is not None and completion_mean is not None:
        source = f"the mean of {cached.answers:,} answers in the output folder"
        return TokenCount(count * prompt_mean, count * completion_mean, source)
    if sizes is None:
        return TokenCount(prompts=None, answers=None, source=RUN_FIRST)
    if sizes.requests is None:
        return TokenCount(prompts=None, answers=None, source=f"{RUN_FIRST} ({sizes.reason})")
    prompt_tokens = sizes.prompt_bytes / BYTES_PER_TOKEN
    prompts = "prompts in the data"
    if sizes.typical:
        prompts = f"prompts of typical length ({sizes.typical})"
    source = (
        f"{prompts}, {BYTES_PER_TOKEN} bytes a token; "
        "each answer counted with the maximum of tokens that an answer may have"
    )
    if sizes.media_tokens is not None:
        prompt_tokens += sizes.media_tokens
        source += (
            "; roughly counted: pictures as at OpenAI with 85 tokens and 170 a tile, "
            "WAV files with 10 tokens a second, other sounds with 0"
        )
    return TokenCount(prompt_tokens, float(sizes.most_tokens), source)


def _cost(
    endpoint: EndpointPlan,
    count: int | None,
    cached: CachedFigures,
    tokens: TokenCount,
    price: Price | None,
) -> tuple[float | None, str]:
    """Return the cost of the requests in US dollars, and the source of the price.

    `count` is the number of requests, and `tokens` are the tokens of all these requests.
    """
    if cached.stated_cost is not None and count is not None:
        source = f"{BY_ENDPOINT}: the mean of the costs that {cached.answers:,} answers state"
        return cached.stated_cost * count, source
    if price is None:
        return (
            None,
            f"unknown: {unknown_price_message(endpoint)}; set it in config.params.extra.prices",
        )
    if tokens.prompts is None or tokens.answers is None or not count:
        return None, f"unknown, because the tokens are unknown ({price.source})"
    # The price of a request may depend on its length, so a request of mean length is priced.
    cost_of_request = price.cost_of(tokens.prompts / count, tokens.answers / count)
    return count * cost_of_request, price.source


def _time(
    plan: Plan,
    endpoint: EndpointPlan,
    count: int | None,
    latency: float | None,
    tokens: float | None,
) -> tuple[float | None, str]:
    """Return the hours that the requests take, and the constraint that determines this time.

    Three constraints are compared, and the slowest determines the time: the latency with the
    configured parallelism, the requests per minute, and the tokens per minute.
    """
    if count is None:
        return None, "unknown, because the requests are unknown"
    if latency is None:
        return None, RUN_FIRST
    # A judge of a rubric gets the criteria of all answers in parallel. Any other judge is asked
    # once per answer, so the model's parallelism limits the judge's, too.
    judges_each_criterion = endpoint is not plan.model and plan.evaluation.task.helm.rubric
    if judges_each_criterion:
        at_once = endpoint.parallelism
    else:
        at_once = min(endpoint.parallelism, plan.model.parallelism)
    # maps the text of each constraint to the seconds that the requests take under it
    latency_constraint = f"{formats.seconds(latency)} a request, {at_once} at once"
    seconds_by_constraint = {latency_constraint: count * latency / at_once}
    if endpoint.requests_per_minute is not None:
        minutes = count / endpoint.requests_per_minute
        name = f"{endpoint.requests_per_minute} requests a minute"
        seconds_by_constraint[name] = minutes * SECONDS_PER_MINUTE
    if endpoint.tokens_per_minute is not None and tokens is not None:
        minutes = tokens / endpoint.tokens_per_minute
        name = f"{endpoint.tokens_per_minute} tokens a minute"
        seconds_by_constraint[name] = minutes * SECONDS_PER_MINUTE
    slowest = max(seconds_by_constraint, key=lambda name: seconds_by_constraint[name])
    return seconds_by_constraint[slowest] / SECONDS_PER_HOUR, slowest


def cached_figures(cache_db: Path | None, role: str, model_id: str) -> CachedFigures:
    """Return the figures of the cached answers of a model in a role.

    If there is no cache, the number of answers is 0.
    """
    rows: list[tuple[float, str | None]] = []  # (latency, usage as JSON) of each answer
    if cache_db is not None and cache_db.is_file():
        with closing(sqlite3.connect(cache_db, timeout=30)) as connection:
            rows = list(connection.execute(_CACHED_ANSWERS, (role, model_id)))
    usages = [None if text is None else json.loads(text) for _, text in rows]
    counts = [token_counts_of({"usage": usage}) for usage in usages]  # (prompt, completion) tokens
    return CachedFigures(
        answers=len(rows),
        prompt_tokens=_mean([prompt for prompt, _ in counts]),
        completion_tokens=_mean([completion for _, completion in counts]),
        latency_s=_mean([latency for latency, _ in rows]),
        stated_cost=_mean([stated_cost(usage) for usage in usages]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values; None if there are no values, or if any value is None."""
    known_values = []
    for value in values:
        if value is not None:
            known_values.append(value)
    if not known_values or len(known_values) < len(values):
        return None
    return fmean(known_values)


def typical_sizes(plan: Plan) -> PromptSizes | None:
    """Return the typical sizes of a task with its public data; None if they are unknown."""
    typical = typical_requests().get(plan.task_name)
    count = _request_count(plan, earlier_requests=None, measured=None).number
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
