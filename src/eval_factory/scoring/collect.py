"""HELM's output and the request journal -> one typed result with its validity.

Files that grow with the instances are gone through entry by entry (`seen.py` has the pass over requests and answers).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.core.results import (
    InstanceRecord,
    Score,
    Stats,
    TaskResult,
    Validity,
)
from eval_factory.data.pins import notes_on_revisions
from eval_factory.endpoint import openai_api, response_cache
from eval_factory.helm import output
from eval_factory.helm.judge_output import injection_signs
from eval_factory.helm.main_metric import chosen_main_metric
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.data_notes import notes_on_data
from eval_factory.scoring.notes import Importance, Notes
from eval_factory.scoring.provenance import provenance_of
from eval_factory.scoring.scores import Context, InstanceKey, bounds_of, score_of, scores_by_group
from eval_factory.scoring.tally import (
    Seen,
    categories_of,
    finish_reason_of,
    has_failed,
    key_of,
    look_at_states,
    notes_of,
    text_of,
)
from eval_factory.scoring.usage import usage_of
from eval_factory.tasks.errata import CORRECTED

JURY_SCALE = (1.0, 5.0)
"""HELM's juries score from 1 to 5."""


def collect(
    plan: Plan,
    runs: Sequence[Path],
    *,
    run_id: str,
    wall_s: float,
    git_hash: str | None,
    data_bundle: Mapping[str, Any] | None = None,
) -> TaskResult:
    """The result of a finished helm-run.

    Args:
        runs: the run folders that this run wrote; a task is one.
        run_id: whose attempts in the journal are this run's.
        wall_s: seconds that helm-run took.
        data_bundle: the record of the data bundle that was read.
    """
    run = output.read_run(runs[0])
    entry = plan.evaluation.task.helm
    main_split = run.main_split(entry.main_split)
    contexts = _contexts(run, main_split)
    corrections = Corrections.of(plan, contexts)
    answers = _answers(plan.rundir.cache_db)
    seen = look_at_states(plan, run, corrections)
    _keep_places(contexts, seen, main_split)
    contexts += corrections.contexts()
    jury_metric = run.jury.metric if run.jury else None
    helms = _helms_own(contexts, jury_metric, seen)
    contexts = [_of_the_jury(context, seen) if _is_judged(context, jury_metric) else context for context in contexts]
    notes = Notes()
    notes.add(Importance.BACKGROUND, *plan.evaluation.task.about.notes)
    if entry.main_split not in (None, main_split):
        other = f"no instance of the main split {entry.main_split} was asked: these scores are of {main_split}"
        notes.add(Importance.DOUBTFUL, other)
    scores: dict[str, Score] = {}
    bounds: dict[str, tuple[float, float]] = {}
    zero = plan.evaluation.run.config.params.extra.on_failure == "zero"
    for context in contexts:
        missing, as_zero = _missing_of(context, jury_metric, seen, zero=zero)
        score = score_of(context, missing, zero=as_zero)
        if score is None:
            unheard = not seen.failed and _is_judged(context, jury_metric)
            cause = "no judge scored any answer" if unheard else "it cannot be computed without the failed instances"
            notes.add(Importance.INCOMPLETE, f"{context.label}: absent, {cause}")
            continue
        scores[context.label] = score
        limits = bounds_of(context, missing)
        if limits is not None:
            bounds[context.label] = limits
    main, why = chosen_main_metric(entry, [context.label for context in contexts])
    main_context = next((context for context in contexts if context.label == main), None)
    missing, as_zero = _missing_of(main_context, jury_metric, seen, zero=zero) if main_context else (seen.failed, zero)
    instances = seen.counts(missing)
    usage, adjustments = usage_of(plan.rundir.cache_db, run_id, wall_s)
    notes.extend([*notes_of(plan, run, instances, seen, scores), *notes_on_data(plan)])
    notes.add(Importance.DOUBTFUL, *notes_on_revisions(plan), *adjustments)
    notes.add(Importance.BACKGROUND, *corrections.notes())
    notes.add(Importance.DOUBTFUL if main in scores else Importance.NO_RESULT, *why)
    reportable = main in scores and instances.coverage >= plan.evaluation.run.config.params.extra.min_coverage
    return TaskResult(
        task=plan.task_name,
        main_metric=main,
        scores={name: scores[name] for name in sorted(scores, key=lambda name: name != main)} | helms,
        groups=scores_by_group(main_context, seen.members, missing, zero=as_zero) if main_context else {},
        validity=Validity(
            instances,
            seen.judges,
            bounds,
            seen.ratings.report() if run.jury else None,
            notes.texts(),
            seen.causes.listed(),
            main_split,
            {split: len(ids) for split, ids in sorted(seen.splits.items())},
        ),
        usage=usage,
        provenance=provenance_of(
            plan, run.scenario_name or entry.scenario, seen.prompts.hexdigest(), git_hash, data_bundle
        ),
        instances=_Records(
            plan,
            run,
            contexts,
            answers,
            seen,
            jury_metric,
            response_cache.read_changes(plan.rundir.cache_db, plan.model.url, plan.model.model_id),
        ),
        reportable=reportable,
        status="complete" if instances.scored == instances.requested else "partial",
        something_to_ask=seen.something_to_ask,
    )


def _keep_places(contexts: Sequence[Context], seen: Seen, main_split: str | None) -> None:
    """A metric that raises on an empty answer too gives no value at all; its place is kept for 0 and the bounds."""
    for key, split in seen.split_of_unscorable.items():
        for context in contexts:
            label = output.score_label(output.MetricName(name=context.name, split=split), main_split)
            if context.values and context.label == label and key[2] is None and key not in context.values:
                context.values[key], context.helm_mean, context.merged = 0.0, None, True


def _is_judged(context: Context, jury_metric: str | None) -> bool:
    return context.name.removesuffix(CORRECTED) == jury_metric


def _of_the_jury(context: Context, seen: Seen) -> Context:
    """With the lowest mark for each answer that says nothing: no judge is asked, and HELM gives a default."""
    marks = dict.fromkeys(seen.silent & context.values.keys(), JURY_SCALE[0])
    if all(context.values[key] == mark for key, mark in marks.items()):
        return replace(context, scale=JURY_SCALE)
    return replace(context, scale=JURY_SCALE, values=context.values | marks, helm_mean=None, merged=True)


def _helms_own(contexts: Sequence[Context], jury_metric: str | None, seen: Seen) -> dict[str, Score]:
    """What HELM makes of its default for answers without a judgement, where there are such."""
    found = {}
    for context in contexts:
        if context.name == jury_metric and context.helm_mean is not None and seen.failed | seen.unjudged | seen.silent:
            whole = Stats(len(context.values), context.helm_mean, None, None, None, None, None)
            found[f"{context.label}.helm"] = context.score(context.helm_mean, whole)
    return found


def _missing_of(context: Context, jury_metric: str | None, seen: Seen, *, zero: bool) -> tuple[set[InstanceKey], bool]:
    """(instances without a value that counts, whether they count as 0: it is no mark of a jury's)."""
    if _is_judged(context, jury_metric):
        return seen.failed | seen.unjudged, False
    return seen.failed, zero


def _contexts(run: output.HelmRun, main_split: str | None) -> list[Context]:
    """Each metric in each context with its values, HELM's order kept."""
    found: dict[str, Context] = {}
    for stat in run.stats:
        if stat.mean is None or not output.is_score(stat.name.name):
            continue
        label = output.score_label(stat.name, main_split)
        if label in found:
            found[label].merged, found[label].helm_mean = True, None
        else:
            perturbation = output.perturbation_label(stat.name)
            found[label] = Context(
                label, stat.name.name, stat.mean, merged=False, split=stat.name.split, perturbation=perturbation
            )
    keys: dict[InstanceKey, InstanceKey] = {}
    labels: dict[output.MetricName, str] = {}
    is_perturbed = False
    for entry in run.per_instance_stats():
        is_perturbed = is_perturbed or entry.perturbation is not None
        key = (entry.instance_id, entry.train_trial_index, entry.perturbation.name if entry.perturbation else None)
        key = keys.setdefault(key, key)
        for stat in entry.stats:
            label = labels.get(stat.name) or labels.setdefault(stat.name, output.score_label(stat.name, main_split))
            context = found.get(label)
            if context is not None and stat.mean is not None:
                context.values[key] = stat.mean
    if is_perturbed:
        return list(found.values())
    # HELM writes 'worst case' statistics all the same; they repeat the plain ones.
    perturbed = {output.score_label(stat.name, main_split) for stat in run.stats if stat.name.perturbation is not None}
    return [context for label, context in found.items() if label not in perturbed]


@dataclass(frozen=True)
class _Answer:
    """What the cache knows of an answer, without its text."""

    tokens: tuple[int | None, int | None]
    latency_s: float


def _answers(cache_db: Path) -> dict[str, _Answer]:
    return {
        row["key"]: _Answer(openai_api.usage_of(json.loads(row["response"])), row["latency_s"])
        for row in response_cache.read_answers(cache_db)
    }


@dataclass(frozen=True)
class _Records:
    """Every instance with all that is known about its answer, read anew each time it is gone through."""

    plan: Plan
    run: output.HelmRun
    contexts: Sequence[Context]
    answers: Mapping[str, _Answer]
    seen: Seen
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
            judges={} if failed else self.seen.ratings.means_of(key),
            unjudged=key in self.seen.unjudged,
            injection=tuple(injection_signs(text_of(state))) if self.run.jury else (),
        )

    def _metrics(self, key: InstanceKey) -> dict[str, float]:
        unjudged = key in self.seen.unjudged
        return {
            context.name: context.values[key]
            for context in self.contexts
            if key in context.values and not (unjudged and _is_judged(context, self.jury_metric))
        }
