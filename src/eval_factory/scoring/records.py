"""Every instance of a run with all that is known about its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.core.results import InstanceRecord
from eval_factory.endpoint import openai_api, response_cache
from eval_factory.endpoint.media import UnusableMedium
from eval_factory.endpoint.response_cache import Answer
from eval_factory.helm import output
from eval_factory.helm.criteria import decision_signs
from eval_factory.helm.instance_fields import categories_of
from eval_factory.helm.judge_output import injection_signs
from eval_factory.plan.run_plan import EndpointPlan, Plan
from eval_factory.scoring import journal
from eval_factory.scoring.readability import Raw, Readability, raw_of
from eval_factory.scoring.request_states import finish_reason_of, has_failed, key_of, media_of, prompt_of, text_of
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.scores import MetricValues, is_judged
from eval_factory.scoring.tally import Tally


@dataclass(frozen=True)
class CachedAnswer:
    """What the cache knows of an answer, without its text."""

    tokens: tuple[int | None, int | None]
    latency_s: float
    raw: Raw
    logprobs: tuple[tuple[str, float], ...] = ()  # of the answer's tokens, where the endpoint gave them
    thought_under: str | None = None  # the key of the answer, where it holds what the model thought


@dataclass(frozen=True)
class StoredAnswers:
    """The stored answer to each of HELM's requests to the model."""

    model: EndpointPlan
    answers: Mapping[str, CachedAnswer]
    variants: Sequence[Mapping[str, str | None]]
    """The changes with which requests were answered that the endpoint refused as they were."""
    cache_db: Path | None = None

    @classmethod
    def of(cls, plan: Plan, also: Callable[[Answer], None] = lambda _answer: None) -> StoredAnswers:
        """Goes through all stored answers, once; `also` gets each."""
        model, cache_db = plan.model, plan.rundir.cache_db
        found = {}
        for answer in journal.typed_answers(cache_db):
            also(answer)
            is_models = answer.role == model.role
            raw, thought = raw_of(answer.response, model) if is_models else (Raw(), None)
            tokens = openai_api.logprobs_in(answer.response) if is_models else ()
            thought_under = answer.key if thought else None
            found[answer.key] = CachedAnswer(answer.tokens, answer.latency_s, raw, tokens, thought_under)
        return cls(model, found, response_cache.read_changes(cache_db, model.url, model.model_id), cache_db)

    def to(self, state: output.RequestState) -> CachedAnswer | None:
        """None where it failed, or is not there any more."""
        try:
            body = self.model.body_of(state.request)
        except UnusableMedium:
            return None
        bodies = [body, *(openai_api.changed(body, one) for one in self.variants if one.keys() <= body.keys())]
        keys = (self.model.key_of(one, state.request.get("random")) for one in bodies)
        return next((self.answers[one] for one in keys if one in self.answers), None)

    def thought_of(self, answer: CachedAnswer | None) -> str | None:
        """Read when it is asked for: what models think is many times as long as what they answer."""
        if self.cache_db is None or answer is None or answer.thought_under is None:
            return None
        stored = journal.read_cached_answer(self.cache_db, answer.thought_under)
        return None if stored is None else raw_of(stored.response, self.model)[1]

    def turns_of(self, state: output.RequestState) -> tuple[Mapping[str, Any], ...]:
        """The messages that were sent; none where the prompt was all that was."""
        if state.request.get(output.MULTIMODAL_PROMPT):
            return ()
        messages = self.model.body_of(state.request).get("messages") or ()
        alone = [{"role": "user", "content": state.request.get("prompt", "")}]
        return () if list(messages) == alone else tuple(messages)

    def logprobs_of(self, state: output.RequestState) -> tuple[tuple[str, float], ...]:
        return () if (answer := self.to(state)) is None else answer.logprobs

    def raw_to(self, state: output.RequestState) -> Raw | None:
        return None if (answer := self.to(state)) is None else answer.raw


@dataclass(frozen=True)
class InstanceRecords:
    """Every instance with all that is known about its answer, read again each time."""

    run: output.HelmRun
    metrics: Sequence[MetricValues]
    answers: StoredAnswers
    tally: Tally
    jury_metric: str | None
    readability: Readability
    judges: Mapping[str, str] = field(default_factory=dict)  # judge -> its name in HELM's annotations
    rubric: RubricTally | None = None

    def __iter__(self) -> Iterator[InstanceRecord]:
        return map(self._record, self.run.request_states())

    def _record(self, state: output.RequestState) -> InstanceRecord:
        key, result, failed = key_of(state), state.result, has_failed(state)
        answer, jury, rubric = self.answers.to(state), self.run.jury, self.rubric
        tokens = answer.tokens if answer else (None, None)
        unjudged = key in self.tally.unjudged
        metrics, judges, judgements = {}, {}, {}
        if not failed:
            metrics = {
                metric.name: metric.values[key]
                for metric in self.metrics
                if key in metric.values and not (unjudged and is_judged(metric, self.jury_metric))
            }
            judges = self.tally.ratings.means_of(key) if rubric is None else rubric.scores_by_judge(key)
        if not failed and jury is not None:
            said = {judge: output.judgement_of(state.annotations, jury, name) for judge, name in self.judges.items()}
            judgements = {judge: judgement for judge, judgement in said.items() if judgement}
        signs_of = decision_signs if rubric is not None else injection_signs if jury else lambda _text: ()
        return InstanceRecord(
            id=state.instance.id,
            split=state.instance.split or "",
            sub_split=state.instance.sub_split,
            trial=state.train_trial_index,
            perturbation=key[2],
            prompt=prompt_of(state),
            references=tuple({"text": r.output.text, "tags": r.tags} for r in state.instance.references),
            categories={**({} if rubric is None else rubric.fields_of(key)), **categories_of(state.instance)},
            completion=None if failed or not result or not result.completions else result.completions[0].text,
            metrics=metrics,
            finish_reason=finish_reason_of(state),
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            latency_s=answer.latency_s if answer else None,
            cached=bool(result and result.cached),
            error=result.error if result and not result.success else None,
            judges=judges,
            unjudged=unjudged,
            injection=tuple(signs_of(text_of(state))),
            signs=("empty",) * (key in self.tally.empty) + self.readability.signs_of(key),
            cluster=self.tally.clusters.get(state.instance.id),
            turns=self.answers.turns_of(state),
            media=media_of(state, self.run.folder.parents[2]),
            reasoning=self.answers.thought_of(answer),
            judgements=judgements,
            criteria=() if rubric is None else rubric.criteria_in(state),
        )
