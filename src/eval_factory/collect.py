"""HELM's output and the request journal -> one typed result with its validity."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.engine import store, wire
from eval_factory.helm import output
from eval_factory.plan import Plan
from eval_factory.provenance import provenance_of
from eval_factory.results import (
    InstanceRecord,
    Instances,
    JudgeCounts,
    Score,
    Stats,
    TaskResult,
    Usage,
    Validity,
)
from eval_factory.stats import describe, percentile

JURY_SCALE = (1.0, 5.0)
"""HELM's juries score from 1 to 5."""
MOST_GROUPS = 60
LONGEST_CATEGORY = 80

InstanceKey = tuple[str, int, str | None]
"""(instance id, trial, perturbation)."""


@dataclass
class _Context:
    """The values of one metric in one split and perturbation."""

    label: str
    name: str
    helm_mean: float | None
    merged: bool
    """Whether HELM kept several sub-splits of this apart; then it has no mean of the whole."""
    values: dict[InstanceKey, float] = field(default_factory=dict)


def collect(plan: Plan, runs: Sequence[Path], *, run_id: str, wall_s: float, git_hash: str | None) -> TaskResult:
    """The result of a finished helm-run.

    Args:
        runs: the run folders that this run wrote; a task is one.
        run_id: whose attempts in the journal are this run's.
        wall_s: seconds that helm-run took.
    """
    run = output.read_run(runs[0])
    attempts = store.read_attempts(plan.rundir.cache_db)
    answers = {row["key"]: row for row in store.read_answers(plan.rundir.cache_db)}
    values = _values_of_instances(run)
    records = tuple(_record(plan, state, answers, values) for state in run.request_states)
    failed = {_key_of(state) for state in run.request_states if _failed(state)}
    unjudged, judges = _jury_counts(run, failed)
    notes = list(plan.evaluation.task.about.notes)
    contexts = _contexts(run)
    scores: dict[str, Score] = {}
    bounds: dict[str, tuple[float, float]] = {}
    zero = plan.evaluation.run.config.params.extra.on_failure == "zero"
    jury_metric = run.jury.metric if run.jury else None
    for context in contexts:
        missing = failed | unjudged if context.name == jury_metric else failed
        score = _score(context, missing, zero=zero and context.name != jury_metric)
        if score is None:
            notes.append(f"{context.label}: absent, it cannot be computed without the failed instances")
            continue
        scores[context.label] = score
        limits = _bounds(context, missing, JURY_SCALE if context.name == jury_metric else None)
        if limits is not None:
            bounds[context.label] = limits
    instances = _counts(run, failed, unjudged)
    notes += _notes(plan, instances)
    notes += sorted({row["error"] for row in attempts if row["outcome"] == "answered" and row["error"]})
    main = plan.evaluation.task.helm.main_metric
    reportable = main in scores and instances.coverage >= plan.evaluation.run.config.params.extra.min_coverage
    return TaskResult(
        task=plan.task_name,
        main_metric=main,
        scores={name: scores[name] for name in sorted(scores, key=lambda name: name != main)},
        groups=_groups(run, contexts, main, failed | unjudged),
        validity=Validity(instances, judges, bounds, tuple(notes)),
        usage=_usage(attempts, answers, run_id, wall_s),
        provenance=provenance_of(plan, run, git_hash),
        instances=records,
        reportable=reportable,
        status="complete" if instances.scored == instances.requested else "partial",
    )


def _key_of(state: output.RequestState) -> InstanceKey:
    perturbation = state.instance.perturbation
    return state.instance.id, state.train_trial_index, perturbation.name if perturbation else None


def _failed(state: output.RequestState) -> bool:
    result = state.result
    return result is None or (not result.success and result.error != wire.FILTERED_MESSAGE)


def _filtered(state: output.RequestState) -> bool:
    result = state.result
    return result is not None and not result.success and result.error == wire.FILTERED_MESSAGE


def _finish_reason(state: output.RequestState) -> str | None:
    if _filtered(state):
        return wire.FILTERED
    completions = state.result.completions if state.result else []
    reason = completions[0].finish_reason if completions else None
    return reason.get("reason") if reason else None


def _values_of_instances(run: output.HelmRun) -> dict[InstanceKey, dict[str, float]]:
    values: dict[InstanceKey, dict[str, float]] = defaultdict(dict)
    for entry in run.per_instance_stats:
        key = (entry.instance_id, entry.train_trial_index, entry.perturbation.name if entry.perturbation else None)
        for stat in entry.stats:
            if stat.mean is not None and output.is_score(stat.name.name):
                values[key][stat.name.name] = stat.mean
    return values


def _record(
    plan: Plan,
    state: output.RequestState,
    answers: Mapping[str, Mapping[str, Any]],
    values: Mapping[InstanceKey, Mapping[str, float]],
) -> InstanceRecord:
    key = _key_of(state)
    body = wire.request_body(
        state.request, model_id=plan.model.model_id, endpoint_type=plan.model.type, top_p=plan.model.top_p,
        adapter=wire.Adapter(**plan.model.adapter),
    )  # fmt: skip
    answer = answers.get(wire.request_key(plan.model.url, body, state.request.get("random")))
    tokens = wire.usage_of(json.loads(answer["response"])) if answer else (None, None)
    failed = _failed(state)
    result = state.result
    return InstanceRecord(
        id=state.instance.id,
        split=state.instance.split or "",
        sub_split=state.instance.sub_split,
        trial=state.train_trial_index,
        perturbation=key[2],
        prompt=state.request.get("prompt", ""),
        references=tuple({"text": r.output.text, "tags": r.tags} for r in state.instance.references),
        categories=_categories(state.instance),
        completion=None if failed or not result or not result.completions else result.completions[0].text,
        metrics={} if failed else dict(values.get(key, {})),
        finish_reason=_finish_reason(state),
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        latency_s=answer["latency_s"] if answer else None,
        cached=bool(result and result.cached),
        error=result.error if result and not result.success else None,
    )


def _categories(instance: output.Instance) -> dict[str, Any]:
    """Short texts and numbers that a scenario keeps beside an instance."""
    return {
        name: value
        for name, value in (instance.extra_data or {}).items()
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= LONGEST_CATEGORY)
    }


def _contexts(run: output.HelmRun) -> list[_Context]:
    main_split = run.main_split
    found: dict[str, _Context] = {}
    for stat in run.stats:
        if stat.mean is None or not output.is_score(stat.name.name):
            continue
        if stat.name.perturbation is not None and not run.is_perturbed:
            continue
        label = output.score_label(stat.name, main_split)
        if label in found:
            found[label].merged, found[label].helm_mean = True, None
        else:
            found[label] = _Context(label, stat.name.name, stat.mean, merged=False)
    for entry in run.per_instance_stats:
        for stat in entry.stats:
            context = found.get(output.score_label(stat.name, main_split))
            if context is not None and stat.mean is not None:
                perturbation = entry.perturbation.name if entry.perturbation else None
                context.values[(entry.instance_id, entry.train_trial_index, perturbation)] = stat.mean
    return list(found.values())


def helm_mean(values: Mapping[InstanceKey, float]) -> float:
    """The mean as HELM computes it, to the last digit: per trial a running sum divided by its count, then the same
    over trials."""
    trials: dict[int, list[float]] = defaultdict(list)
    for (_, trial, _), value in values.items():
        trials[trial].append(value)
    means = [_running_mean(trial) for _, trial in sorted(trials.items())]
    return _running_mean(means)


def _running_mean(values: Sequence[float]) -> float:
    total: float = 0
    for value in values:  # not sum() or fsum(): the order of rounding is HELM's
        total += value
    return total / len(values)


def _score(context: _Context, missing: set[InstanceKey], *, zero: bool) -> Score | None:
    """None where the metric is no mean of instances' values and some instance is missing, or none is left."""
    touched = missing & context.values.keys()
    is_mean = bool(context.values) and (context.merged or helm_mean(context.values) == context.helm_mean)
    if not touched:
        value = context.helm_mean if context.helm_mean is not None else helm_mean(context.values)
        if not is_mean:
            return Score(value, Stats(len(context.values), value, None, None, None, None, None))
        return Score(value, describe(_by_instance(context.values), value))
    if not is_mean:
        return None
    if zero:
        kept = {key: 0.0 if key in touched else value for key, value in context.values.items()}
    else:
        kept = {key: value for key, value in context.values.items() if key not in touched}
    if not kept:
        return None
    value = helm_mean(kept)
    return Score(value, describe(_by_instance(kept), value))


def _by_instance(values: Mapping[InstanceKey, float]) -> list[float]:
    """One value per instance: the mean over its trials."""
    grouped: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for (instance, _, perturbation), value in values.items():
        grouped[(instance, perturbation)].append(value)
    return [_running_mean(group) for group in grouped.values()]


def _bounds(
    context: _Context, missing: set[InstanceKey], scale: tuple[float, float] | None
) -> tuple[float, float] | None:
    """The value if every missing instance were wrong, and if every one were right.

    Only for values of a known scale: 0 to 1 where all lie in it, or the jury's.
    """
    if not context.values:
        return None
    low, high = scale or (0.0, 1.0)
    known = [value for key, value in context.values.items() if key not in missing]
    if any(not low <= value <= high for value in known):
        return None
    worst = {key: low if key in missing else value for key, value in context.values.items()}
    best = {key: high if key in missing else value for key, value in context.values.items()}
    if not missing & context.values.keys() and context.helm_mean is not None:
        return context.helm_mean, context.helm_mean
    return helm_mean(worst), helm_mean(best)


def _jury_counts(
    run: output.HelmRun, failed: set[InstanceKey]
) -> tuple[set[InstanceKey], dict[str, JudgeCounts]]:
    """Instances that no judge scored (HELM gives them full marks), and each judge's counts."""
    jury = run.jury
    if jury is None:
        return set(), {}
    unjudged: set[InstanceKey] = set()
    asked: dict[str, int] = dict.fromkeys(jury.judges, 0)
    scored: dict[str, int] = dict.fromkeys(jury.judges, 0)
    for state in run.request_states:
        key = _key_of(state)
        if key in failed:
            continue
        empty = not state.result or not state.result.completions or not state.result.completions[0].text.strip()
        heard = [judge for judge in jury.judges if output.judgement_of(state.annotations, jury, judge)]
        for judge in jury.judges:
            asked[judge] += not empty
            scored[judge] += judge in heard
        if not heard:
            unjudged.add(key)
    counts = {judge: JudgeCounts(asked[judge], scored[judge], asked[judge] - scored[judge]) for judge in jury.judges}
    return unjudged, counts


def _counts(run: output.HelmRun, failed: set[InstanceKey], unjudged: set[InstanceKey]) -> Instances:
    states = {_key_of(state): state for state in run.request_states}
    answered = {key: state for key, state in states.items() if key not in failed}
    filtered = {key for key, state in answered.items() if _filtered(state)}
    return Instances(
        requested=len(states),
        scored=len(answered.keys() - unjudged),
        failed=len(failed),
        empty=sum(1 for key, s in answered.items() if key not in filtered and not _text(s).strip()),
        truncated=sum(1 for s in answered.values() if _finish_reason(s) == wire.CUT_OFF),
        filtered=len(filtered),
        unjudged=len(unjudged),
    )


def _text(state: output.RequestState) -> str:
    return state.result.completions[0].text if state.result and state.result.completions else ""


def _notes(plan: Plan, instances: Instances) -> list[str]:
    notes = []
    if plan.model.url.startswith("demo:"):
        notes.append("the target was the embedded demo baseline, not a model: these scores measure nothing")
    if instances.failed:
        handling = plan.evaluation.run.config.params.extra.on_failure
        how = "count as 0" if handling == "zero" else "are left out of the scores; bounds show the range"
        notes.append(f"{instances.failed} instances failed and {how}; the same command asks them again")
    if instances.unjudged:
        notes.append(
            f"{instances.unjudged} instances have no judgement and are left out of the jury's score"
            " (HELM's own value in helm/ gives them full marks)"
        )
    return notes


def _groups(
    run: output.HelmRun, contexts: Iterable[_Context], main: str, missing: set[InstanceKey]
) -> dict[str, dict[str, dict[str, Score]]]:
    """The main metric by each field of the instances that sorts them into a few groups."""
    context = next((context for context in contexts if context.label == main), None)
    if context is None:
        return {}
    members: dict[str, dict[str, dict[InstanceKey, float]]] = defaultdict(lambda: defaultdict(dict))
    for state in run.request_states:
        key = _key_of(state)
        if key in missing or key not in context.values:
            continue
        fields = {n: v for n, v in _categories(state.instance).items() if isinstance(v, str)}
        if state.instance.sub_split:
            fields["sub_split"] = state.instance.sub_split
        for name, value in fields.items():
            members[name][value][key] = context.values[key]
    return {
        name: {
            value: {main: Score(helm_mean(kept), describe(_by_instance(kept), helm_mean(kept)))}
            for value, kept in sorted(by_value.items())
        }
        for name, by_value in sorted(members.items())
        if 2 <= len(by_value) <= min(MOST_GROUPS, len(context.values) // 2)
    }


def _usage(
    attempts: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Mapping[str, Any]],
    run_id: str,
    wall_s: float,
) -> Usage:
    """Counts of this run's attempts; tokens of every answer that the result rests on, whenever it was paid."""
    mine = [attempt for attempt in attempts if attempt["run_id"] == run_id]
    used = {attempt["key"] for attempt in mine if attempt["outcome"] in ("answered", "cached")}
    tokens = [wire.usage_of(json.loads(answers[key]["response"])) for key in used if key in answers]
    latencies = [answers[key]["latency_s"] for key in used if key in answers]
    return Usage(
        requests=sum(1 for attempt in mine if attempt["outcome"] != "cached"),
        cached=sum(1 for attempt in mine if attempt["outcome"] == "cached"),
        retries=sum(1 for attempt in mine if attempt["outcome"] == "retried"),
        prompt_tokens=_sum_known(pair[0] for pair in tokens),
        completion_tokens=_sum_known(pair[1] for pair in tokens),
        latency_p50_s=percentile(latencies, 0.50),
        latency_p95_s=percentile(latencies, 0.95),
        wall_s=wall_s,
    )


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
