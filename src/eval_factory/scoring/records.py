"""Every instance of a run with all that is known about its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.results import InstanceRecord
from eval_factory.endpoint import openai_api, response_cache
from eval_factory.helm import output
from eval_factory.helm.judge_output import injection_signs
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.jury_scores import is_judged
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.request_states import categories_of, finish_reason_of, has_failed, key_of, text_of
from eval_factory.scoring.tally import Tally


@dataclass(frozen=True)
class CachedAnswer:
    """What the cache knows of an answer, without its text."""

    tokens: tuple[int | None, int | None]
    latency_s: float


def cached_answers(cache_db: Path) -> dict[str, CachedAnswer]:
    return {
        row["key"]: CachedAnswer(openai_api.usage_of(json.loads(row["response"])), row["latency_s"])
        for row in response_cache.read_answers(cache_db)
    }


@dataclass(frozen=True)
class InstanceRecords:
    """Every instance with all that is known about its answer, read anew each time it is gone through."""

    plan: Plan
    run: output.HelmRun
    metrics: Sequence[MetricValues]
    answers: Mapping[str, CachedAnswer]
    tally: Tally
    jury_metric: str | None
    variants: Sequence[Mapping[str, str | None]]
    """The changes with which requests were answered that the endpoint refused as they were."""

    def __iter__(self) -> Iterator[InstanceRecord]:
        return map(self._record, self.run.request_states())

    def _record(self, state: output.RequestState) -> InstanceRecord:
        key = key_of(state)
        model = self.plan.model
        body = model.body_of(state.request)
        keys = openai_api.request_keys(model.url, body, state.request.get("random"), self.variants)
        answer = next((self.answers[kept] for kept in keys if kept in self.answers), None)
        tokens = answer.tokens if answer else (None, None)
        failed = has_failed(state)
        result = state.result
        return InstanceRecord(
            id=state.instance.id,
            split=state.instance.split or "",
            sub_split=state.instance.sub_split,
            trial=state.train_trial_index,
            perturbation=key[2],
            prompt=state.request.get("prompt", ""),
            references=tuple({"text": r.output.text, "tags": r.tags} for r in state.instance.references),
            categories=categories_of(state.instance),
            completion=None if failed or not result or not result.completions else result.completions[0].text,
            metrics={} if failed else self._metrics(key),
            finish_reason=finish_reason_of(state),
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            latency_s=answer.latency_s if answer else None,
            cached=bool(result and result.cached),
            error=result.error if result and not result.success else None,
            judges={} if failed else self.tally.ratings.means_of(key),
            unjudged=key in self.tally.unjudged,
            injection=tuple(injection_signs(text_of(state))) if self.run.jury else (),
        )

    def _metrics(self, key: InstanceKey) -> dict[str, float]:
        unjudged = key in self.tally.unjudged
        return {
            metric.name: metric.values[key]
            for metric in self.metrics
            if key in metric.values and not (unjudged and is_judged(metric, self.jury_metric))
        }
