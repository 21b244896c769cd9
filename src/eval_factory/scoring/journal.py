"""Reads the facts of a run from cache.db: its attempts, its answers and their servers, its usage
and its cost.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.core.budget import BY_ENDPOINT, Cost, Price
from eval_factory.core.enums import ATTEMPT_STATES, AttemptState
from eval_factory.core.finish_reasons import FinishReason
from eval_factory.core.results import MODEL_ROLE, ResponseStatistics, Spent, SpentByRole, Usage
from eval_factory.endpoint import openai_answers, openai_api
from eval_factory.endpoint.finish_reasons import kind_of
from eval_factory.endpoint.media import UnusableMedium
from eval_factory.endpoint.paid_answers import cost_of, read_paid_answers, read_prices
from eval_factory.endpoint.response_cache import Answer, read_changes, read_rows
from eval_factory.helm import output
from eval_factory.plan.prices import (
    BATCH_SOURCE_SUFFIX,
    hosted_endpoints,
    price_in_user_table,
    unknown_price_message,
)
from eval_factory.plan.run_plan import EndpointPlan, Plan
from eval_factory.scoring.intervals import percentile


def read_attempts(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every attempt as a dict from column to value, in the order of the journal."""
    return read_rows(path, "SELECT * FROM attempts ORDER BY id")


def read_answers(path: Path, role: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield every stored answer as a dict from column to value, the oldest answer first.

    The columns `request` and `response` are JSON text. The first query sorts only the row ids, and
    a second query reads each row. A single query would sort the rows together with their texts; if
    there are many texts, SQLite does this on disk.

    Args:
        path: the file cache.db.
        role: the role whose answers are read; None for all roles.
    """
    ids = "SELECT rowid FROM responses WHERE :role IS NULL OR role = :role ORDER BY created, key"
    return read_rows(path, ids, "SELECT * FROM responses WHERE rowid = ?", role=role)


def typed_answers(path: Path) -> Iterator[Answer]:
    """Yield every stored answer, the oldest first, with its request and response parsed."""
    return map(_typed, read_answers(path))


def _typed(row: Mapping[str, Any]) -> Answer:
    """Return the answer in a row, with its request and response parsed.

    If either is not readable as JSON, both stay text.
    """
    try:
        bodies = {"request": json.loads(row["request"]), "response": json.loads(row["response"])}
    except (RecursionError, ValueError):
        bodies = {}
    return Answer(**{**row, **bodies})


def read_servers(path: Path) -> dict[str, str]:
    """Return the URL of each answer's server, by the key of the answer.

    The mapping is empty if cache.db does not record servers, because there was only one server.
    """
    tables = read_rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'answered_at'")
    if next(tables, None) is None:
        return {}
    rows = read_rows(path, "SELECT key, server FROM answered_at")
    return {row["key"]: row["server"] for row in rows}


def finish_reasons(path: Path, role: str) -> dict[str, int]:
    """Return the number of a role's stored answers by finish reason, the most frequent first.

    If endpoints have different words for one reason, these are counted together. Answers without a
    finish reason are not counted.
    """
    # `json_extract` fails on a text that is not JSON. The CASE replaces such a response by NULL.
    query = """
        SELECT reason, count(*) AS answers FROM (
            SELECT json_extract(response, '$.choices[0].finish_reason') AS reason
            FROM (
                SELECT CASE WHEN json_valid(response) THEN response END AS response
                FROM responses WHERE role = :role
            )
        ) WHERE typeof(reason) = 'text' GROUP BY reason ORDER BY answers DESC, reason
    """
    counts: Counter[str] = Counter()
    for row in read_rows(path, query, role=role):
        reason = row["reason"]
        counts[kind_of(reason) or reason] += row["answers"]
    return dict(counts.most_common())


def read_roles(path: Path) -> list[str]:
    """Return the roles that have answers, sorted by name."""
    rows = read_rows(path, "SELECT DISTINCT role FROM responses ORDER BY role")
    return [row["role"] for row in rows]


@dataclass(frozen=True)
class CachedAnswer:
    """The facts about an answer in the cache, without its text."""

    # the numbers of tokens of the prompt and of the completion; None if not counted
    tokens: tuple[int | None, int | None] = (None, None)
    latency_s: float | None = None  # in seconds
    # True if the model's thinking was removed from the text before the answer was scored
    stripped: bool = False
    unfinished: bool = False  # True if the answer ends within the thinking
    declined: bool = False  # True if the endpoint reports that the model refused
    # each token of the answer with its log probability, if the endpoint returned them
    logprobs: tuple[tuple[str, float], ...] = ()
    # the prompt tokens from the server's own cache; some servers do not count these in `tokens`
    cached_tokens: int = 0
    thought_key: str | None = None  # the key of the stored answer that has the model's thinking


UNKNOWN_ANSWER = CachedAnswer()  # replaces an answer that is not stored; its figures are None


def cached_answer(answer: Answer, model: EndpointPlan) -> tuple[CachedAnswer, str | None]:
    """Return the facts about a stored answer, and the model's thinking before the answer.

    The thinking comes from a field of its own, from the text between markers, or from both. The
    thinking is None if the response has no thinking.
    """
    response = answer.response
    facts = CachedAnswer(
        answer.tokens,
        answer.latency_s,
        logprobs=openai_answers.logprobs_in(response),
        cached_tokens=openai_answers.cached_tokens_of(response),
    )
    try:
        choices = openai_answers.read_answer(response, model.endpoint_type)
    except openai_answers.UnusableAnswer:  # somebody has changed the cache
        return facts, None
    choice = choices[0]  # HELM scores the first choice
    is_cut_off = choice.finish_reason == openai_answers.CUT_OFF
    split = model.adapter.split_reasoning(choice.text, cut_off=is_cut_off)
    # True if the thinking has a field of its own, and the text was cut off before the answer began
    is_only_thought = is_cut_off and not split.answer.strip() and bool(choice.reasoning)
    facts = replace(
        facts,
        stripped=split.answer != choice.text,
        unfinished=split.unfinished or is_only_thought,
        declined=choice.finish_reason == FinishReason.REFUSAL or _has_refusal(response),
    )
    thoughts = []
    for thought in (choice.reasoning, split.thought):
        if thought and thought.strip():
            thoughts.append(thought.strip())
    if not thoughts:
        return facts, None
    return replace(facts, thought_key=answer.key), "\n\n".join(thoughts)


def _has_refusal(response: Any) -> bool:
    """Return True if the response's message has a refusal.

    Responses from endpoints that do not chat have no message.
    """
    if "choices" not in response:
        return False
    message = response["choices"][0].get("message")
    return isinstance(message, dict) and bool(message.get("refusal"))


@dataclass(frozen=True)
class StoredAnswers:
    """The stored answers, with the methods that find the answer to a request of HELM."""

    model: EndpointPlan
    answers: Mapping[str, CachedAnswer]  # key of the stored answer -> its facts; for all roles
    sets_of_changes: Sequence[Mapping[str, openai_api.Change]]
    """The endpoint refused some requests, and answered them after one of these sets of changes.

    A set is a dict from a parameter to its change.
    """
    cache_db: Path

    @classmethod
    def of(
        cls, plan: Plan, on_answer: Callable[[Answer], None] = lambda _answer: None
    ) -> StoredAnswers:
        """Read all stored answers.

        Args:
            plan: the plan of the run.
            on_answer: is called with each answer, so that the caller need not read the file, too.
        """
        model = plan.model
        cache_db = plan.rundir.cache_db
        by_key = {}
        for answer in typed_answers(cache_db):
            on_answer(answer)
            if answer.role == model.role:
                by_key[answer.key], _ = cached_answer(answer, model)
            else:  # of a judge's answer, no other facts are needed
                by_key[answer.key] = CachedAnswer(answer.tokens, answer.latency_s)
        return cls(model, by_key, read_changes(cache_db, model.url, model.model_id), cache_db)

    def answer_to(self, state: output.RequestState) -> CachedAnswer | None:
        """Return the answer to a request; None if the request failed, or if the answer is no longer
        stored.
        """
        try:
            body = self.model.body_of(state.request)
        except UnusableMedium:
            return None
        for possible_body in self._possible_bodies(body):
            # `random` distinguishes equal requests that were sent repeatedly on purpose.
            key = self.model.key_of(possible_body, state.request.get("random"))
            if key in self.answers:
                return self.answers[key]
        return None

    def _possible_bodies(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the body of a request without changes, and then with each set of changes."""
        yield body
        for changes in self.sets_of_changes:
            if changes.keys() <= body.keys():
                yield openai_api.with_changes(body, changes)

    def thinking_before(self, answer: CachedAnswer | None) -> str | None:
        """Return the model's thinking before an answer; None if there is none.

        Each call reads the thinking from cache.db. It is many times as long as the answer, so it
        does not stay in memory.
        """
        if answer is None or answer.thought_key is None:
            return None
        rows = read_rows(
            self.cache_db, "SELECT * FROM responses WHERE key = :key", key=answer.thought_key
        )
        row = next(rows, None)  # one row at most, because keys are unique
        if row is None:
            return None
        _, thought = cached_answer(_typed(row), self.model)
        return thought

    def messages_of(self, state: output.RequestState) -> tuple[Mapping[str, Any], ...]:
        """Return the messages of a request.

        The tuple is empty if the only message is the prompt, or if the prompt has pictures or
        sound.
        """
        if state.request.get(output.MULTIMODAL_PROMPT):
            return ()
        # A request that is not a chat has no messages.
        messages = self.model.body_of(state.request).get("messages") or ()
        prompt_only = [{"role": "user", "content": state.request.get("prompt", "")}]
        if list(messages) == prompt_only:
            return ()
        return tuple(messages)

    def logprobs_of(self, state: output.RequestState) -> tuple[tuple[str, float], ...]:
        """Return each token of the answer to a request, with its log probability."""
        return (self.answer_to(state) or UNKNOWN_ANSWER).logprobs


_TIMED = tuple(state for state, facts in ATTEMPT_STATES.items() if facts.is_timed)
_SENT = tuple(state for state, facts in ATTEMPT_STATES.items() if facts.is_sent)
_WITH_ANSWER = tuple(state for state, facts in ATTEMPT_STATES.items() if facts.has_answer)


@dataclass
class _RoleUsage:
    """The usage of one role in one run: its requests, tokens, times and costs."""

    requests: int = 0
    cached: int = 0  # the number of requests answered from the cache
    retries: int = 0
    tokens: list[tuple[int | None, int | None]] = field(default_factory=list)
    """The numbers of tokens of each answer: of the prompt, of the completion."""
    latencies: list[float] = field(default_factory=list)  # in seconds
    costs: list[float] = field(default_factory=list)
    """The cost of each answer with a known price, in US dollars."""
    sources: set[str] = field(default_factory=set)  # the sources of these costs
    prices: set[Price] = field(default_factory=set)  # the prices from which costs were computed
    unpriced: int = 0  # the number of answers without a known cost

    def add(self, attempt: Mapping[str, Any]) -> None:
        """Count an attempt."""
        outcome = attempt["outcome"]
        if outcome in _SENT:
            self.requests += 1
        if outcome == AttemptState.CACHED:
            self.cached += 1
        if outcome == AttemptState.RETRIED:
            self.retries += 1
        if outcome == AttemptState.ANSWERED:
            self.tokens.append((attempt["prompt_tokens"], attempt["completion_tokens"]))
            self.latencies.append(attempt["latency_s"])


class UsageOfFolder(NamedTuple):
    """The usage of the runs in a folder, and the answers that its last run used."""

    usage: Usage  # with all known costs
    # the changes that the endpoint required in the requests for `used_keys`
    changes: list[str]
    used_keys: set[str]
    """The keys of the answers that this run received or took from the cache.

    Only these keys show which answers this run used: other answers in cache.db may be from another
    endpoint. The keys include those of answers that were archived since the run.
    """


def usage_of(plan: Plan, run_id: str, wall_s: float) -> UsageOfFolder:
    """Return the usage of the runs in a folder, and the answers that one run used.

    Args:
        plan: the plan of the run.
        run_id: the id of the helm-run that made the result.
        wall_s: the duration of this helm-run, in seconds.
    """
    usages: dict[tuple[str, str], _RoleUsage] = defaultdict(_RoleUsage)  # by run and role
    used_keys: set[str] = set()
    changes_by_key: dict[str, set[str]] = defaultdict(set)
    for attempt in read_attempts(plan.rundir.cache_db):
        usages[attempt["run_id"], attempt["role"]].add(attempt)
        # In an answered attempt, `error` lists the changes of the request that were necessary.
        if attempt["outcome"] == AttemptState.ANSWERED and attempt["error"]:
            changes_by_key[attempt["key"]].update(attempt["error"].split("; "))
        if attempt["run_id"] == run_id and attempt["outcome"] in _WITH_ANSWER:
            used_keys.add(attempt["key"])
    _add_costs(plan, usages)
    usages_of_run = {
        (run, role): role_usage for (run, role), role_usage in usages.items() if run == run_id
    }
    roles = [endpoint.role for endpoint in plan.endpoints]
    total = Usage(
        this_run=_spent_by_role(usages_of_run, roles),
        all_runs=_spent_by_role(usages, roles),
        runs=len({run for run, _ in usages}),
        wall_s=wall_s,
        cost_unknown=_why_cost_is_unknown(plan, usages),
    )
    changes = set(chain.from_iterable(changes_by_key[key] for key in used_keys))
    return UsageOfFolder(total, sorted(changes), used_keys)


def _add_costs(plan: Plan, usages: Mapping[tuple[str, str], _RoleUsage]) -> None:
    """Add the cost of each answer to the usage of its run and role."""
    stored_prices = read_prices(plan.rundir.cache_db)
    endpoints = {endpoint.role: endpoint for endpoint in plan.endpoints}
    for answer in read_paid_answers(plan.rundir.cache_db):
        role_usage = usages[answer.run_id, answer.role]
        price = stored_prices.get((answer.run_id, answer.role))
        endpoint = endpoints.get(answer.role)
        if endpoint is not None:
            # The user's current price table takes precedence over the stored price.
            came_by_batch = price is not None and price.source.endswith(BATCH_SOURCE_SUFFIX)
            price = price_in_user_table(plan, endpoint, by_batch=came_by_batch) or price
        cost_and_source = cost_of(answer.usage, answer.tokens, price)
        if cost_and_source is None:
            role_usage.unpriced += 1
            continue
        cost, source = cost_and_source
        role_usage.costs.append(cost)
        role_usage.sources.add(source)
        if price is not None and source != BY_ENDPOINT:
            role_usage.prices.add(price)


def _why_cost_is_unknown(plan: Plan, usages: Mapping[tuple[str, str], _RoleUsage]) -> str | None:
    """Return a text with the roles that have answers of unknown cost, and the reason for each.

    Only roles whose endpoints cost money count. The result is None if there is no such role.
    """
    hosted = hosted_endpoints(plan)
    reasons: dict[str, str] = {}  # by role: a role may have answers in several runs
    for run, role in sorted(usages):
        if usages[run, role].unpriced and role in hosted:
            reasons[role] = f"{role}: {unknown_price_message(hosted[role])}"
    if not reasons:
        return None
    return "; ".join(reasons.values())


def _spent_by_role(
    usages: Mapping[tuple[str, str], _RoleUsage], roles: Sequence[str]
) -> SpentByRole:
    """Return the usage of each role.

    The plan's `roles` come first, then the model's role, then the other roles by name.
    """
    by_role: dict[str, list[_RoleUsage]] = defaultdict(list)
    for (_, role), usage in usages.items():
        by_role[role].append(usage)
    # False is sorted before True: the model's role comes before the other roles.
    used_roles = sorted(by_role, key=lambda role: (role != MODEL_ROLE, role))
    ordered_roles = dict.fromkeys((*roles, *used_roles))  # drops the second occurrence of a role
    spent = {role: _spent(by_role[role]) for role in ordered_roles if role in by_role}
    return SpentByRole(_spent(usages.values()), spent)


def _spent(usages: Collection[_RoleUsage]) -> Spent:
    """Return the sum of several usages."""
    tokens: list[tuple[int | None, int | None]] = []
    latencies: list[float] = []
    costs: list[float] = []
    prices: set[Price] = set()
    sources: set[str] = set()
    requests = 0
    cached = 0
    retries = 0
    unpriced = 0
    for usage in usages:
        requests += usage.requests
        cached += usage.cached
        retries += usage.retries
        unpriced += usage.unpriced
        tokens += usage.tokens
        latencies += usage.latencies
        costs += usage.costs
        prices |= usage.prices
        sources |= usage.sources
    cost = None
    if costs:
        cost = Cost(
            value=fsum(costs),
            source=", ".join(sorted(sources)),
            priced_requests=len(costs),
            unpriced_requests=unpriced,
            price=None,
        )
        if len(prices) == 1:
            cost = replace(cost, price=prices.pop())
    return Spent(
        requests=requests,
        cached=cached,
        retries=retries,
        prompt_tokens=_sum_counted(prompt for prompt, _ in tokens),
        completion_tokens=_sum_counted(completion for _, completion in tokens),
        latency_p50_s=percentile(latencies, 0.50),
        latency_p95_s=percentile(latencies, 0.95),
        cost=cost,
    )


def _sum_counted(counts: Iterable[int | None]) -> int | None:
    """Return the sum of the known token counts.

    Without answers, the result is 0. With answers but without any known count, the result is None.

    Args:
        counts: the count of each answer; None if unknown.
    """
    all_counts = list(counts)
    known = [count for count in all_counts if count is not None]
    if all_counts and not known:
        return None
    return sum(known)


def response_statistics(cache_db: Path) -> ResponseStatistics:
    """Return the statistics of the requests to the evaluated model, over all runs in the folder.

    Only requests whose time was measured count. Requests to judges are left out, because these
    statistics are those in the results of NVIDIA's EvalFactory, which does not count judges.
    """
    # run id -> (time at which its first request started, time at which its last request ended)
    spans: dict[str, tuple[float, float]] = {}
    codes: Counter[int] = Counter()
    latencies: list[float] = []
    tokens: list[tuple[int | None, int | None]] = []
    for attempt in read_attempts(cache_db):
        if attempt["role"] != MODEL_ROLE or attempt["outcome"] not in _TIMED:
            continue
        started = attempt["started"]
        ended = attempt["started"] + attempt["latency_s"]
        first, last = spans.get(attempt["run_id"], (started, ended))
        spans[attempt["run_id"]] = (min(first, started), max(last, ended))
        if attempt["status"] is None:  # the endpoint sent no response
            continue
        codes[attempt["status"]] += 1
        latencies.append(attempt["latency_s"])
        if attempt["outcome"] == AttemptState.ANSWERED:
            tokens.append((attempt["prompt_tokens"], attempt["completion_tokens"]))
    return ResponseStatistics(
        responses=codes.total(),
        successful=len(tokens),
        prompt_tokens=_mean_and_maximum(prompt for prompt, _ in tokens),
        completion_tokens=_mean_and_maximum(completion for _, completion in tokens),
        total_tokens=_mean_and_maximum(
            prompt + completion
            for prompt, completion in tokens
            if prompt is not None and completion is not None
        ),
        latency_s=_mean_and_maximum(latencies),
        status_codes=dict(sorted(codes.items())),
        finish_reasons=finish_reasons(cache_db, MODEL_ROLE),
        runs=tuple(sorted(spans.values())),
    )


def _mean_and_maximum(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Return the mean and the maximum of the known values; None for both if no value is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return sum(known) / len(known), max(known)
