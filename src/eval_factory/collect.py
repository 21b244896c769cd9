"""HELM's output and the request journal -> one typed result with its validity.

Files that grow with the instances are gone through entry by entry; what is kept of an instance is numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eval_factory.config.quasi import QUASI_METRICS, becomes_nothing, note_on_quasi
from eval_factory.corrections import Corrections
from eval_factory.data.pins import notes_on_revisions
from eval_factory.data_notes import notes_on_data
from eval_factory.engine import store, wire
from eval_factory.engine.judgement import injection_signs
from eval_factory.errata.load import CORRECTED
from eval_factory.helm import output
from eval_factory.helm.main_metric import chosen_main_metric
from eval_factory.helm.model_files import deployment_of
from eval_factory.jury import Ratings, family_of
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
from eval_factory.scores import Context, InstanceKey, bounds_of, score_of, scores_by_group
from eval_factory.stats import percentile

JURY_SCALE = (1.0, 5.0)
"""HELM's juries score from 1 to 5."""
LONGEST_CATEGORY = 80
SUMMARIZATION = "SummarizationMetric"
TOXICITY_METRIC = ".ToxicityMetric"


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
    seen = _look_at_states(plan, run, corrections)
    contexts += corrections.contexts()
    jury_metric = run.jury.metric if run.jury else None
    helms = _helms_own(contexts, jury_metric, seen)
    contexts = [_of_the_jury(context, seen) if _is_judged(context, jury_metric) else context for context in contexts]
    notes = list(plan.evaluation.task.about.notes)
    if entry.main_split not in (None, main_split):
        notes.append(f"no instance of the main split {entry.main_split} was asked: these scores are of {main_split}")
    scores: dict[str, Score] = {}
    bounds: dict[str, tuple[float, float]] = {}
    zero = plan.evaluation.run.config.params.extra.on_failure == "zero"
    for context in contexts:
        missing, as_zero = _missing_of(context, jury_metric, seen, zero=zero)
        score = score_of(context, missing, zero=as_zero)
        if score is None:
            notes.append(f"{context.label}: absent, it cannot be computed without the failed instances")
            continue
        scores[context.label] = score
        limits = bounds_of(context, missing)
        if limits is not None:
            bounds[context.label] = limits
    main, why = chosen_main_metric(entry, [context.label for context in contexts])
    main_context = next((context for context in contexts if context.label == main), None)
    missing, as_zero = _missing_of(main_context, jury_metric, seen, zero=zero) if main_context else (seen.failed, zero)
    instances = seen.counts(missing)
    usage, adjustments = _usage(plan.rundir.cache_db, answers, run_id, wall_s)
    notes += [*_notes(plan, run, instances, seen, scores), *notes_on_revisions(plan), *notes_on_data(plan)]
    notes += [*corrections.notes(), *adjustments]
    notes += why
    reportable = main in scores and instances.coverage >= plan.evaluation.run.config.params.extra.min_coverage
    return TaskResult(
        task=plan.task_name,
        main_metric=main,
        scores={name: scores[name] for name in sorted(scores, key=lambda name: name != main)} | helms,
        groups=scores_by_group(main_context, seen.members, missing, zero=as_zero) if main_context else {},
        validity=Validity(
            instances, seen.judges, bounds, seen.ratings.report() if run.jury else None, tuple(notes)
        ),
        usage=usage,
        provenance=provenance_of(
            plan, run.scenario_name or entry.scenario, seen.prompts.hexdigest(), git_hash, data_bundle
        ),
        instances=_Records(plan, run, contexts, answers, seen, jury_metric),
        reportable=reportable,
        status="complete" if instances.scored == instances.requested else "partial",
        something_to_ask=bool(seen.failed) or any(counts.failed for counts in seen.judges.values()),
    )


def _is_judged(context: Context, jury_metric: str | None) -> bool:
    return context.name.removesuffix(CORRECTED) == jury_metric


def _of_the_jury(context: Context, seen: _Seen) -> Context:
    """With the lowest mark for each answer that says nothing: no judge is asked, and HELM gives a default."""
    marks = dict.fromkeys(seen.silent & context.values.keys(), JURY_SCALE[0])
    if all(context.values[key] == mark for key, mark in marks.items()):
        return replace(context, scale=JURY_SCALE)
    return replace(context, scale=JURY_SCALE, values=context.values | marks, helm_mean=None, merged=True)


def _helms_own(contexts: Sequence[Context], jury_metric: str | None, seen: _Seen) -> dict[str, Score]:
    """What HELM makes of its default for answers without a judgement, where there are such."""
    found = {}
    for context in contexts:
        if context.name == jury_metric and context.helm_mean is not None and seen.failed | seen.unjudged | seen.silent:
            whole = Stats(len(context.values), context.helm_mean, None, None, None, None, None)
            found[f"{context.label}.helm"] = Score(context.helm_mean, whole)
    return found


def _missing_of(
    context: Context, jury_metric: str | None, seen: _Seen, *, zero: bool
) -> tuple[set[InstanceKey], bool]:
    """(instances without a value that counts, whether they count as 0: it is no mark of a jury's)."""
    if _is_judged(context, jury_metric):
        return seen.failed | seen.unjudged, False
    return seen.failed, zero


def _key_of(state: output.RequestState) -> InstanceKey:
    perturbation = state.instance.perturbation
    return state.instance.id, state.train_trial_index, perturbation.name if perturbation else None


def has_failed(state: output.RequestState) -> bool:
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


def _text(state: output.RequestState) -> str:
    return state.result.completions[0].text if state.result and state.result.completions else ""


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
            found[label] = Context(label, stat.name.name, stat.mean, merged=False)
    keys: dict[InstanceKey, InstanceKey] = {}
    labels: dict[output.MetricName, str] = {}
    is_perturbed = False
    for entry in run.per_instance_stats():
        is_perturbed = is_perturbed or entry.perturbation is not None
        perturbation = entry.perturbation.name if entry.perturbation else None
        key = (entry.instance_id, entry.train_trial_index, perturbation)
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


@dataclass
class _Seen:
    """What the requests and their answers say, added up."""

    judges: dict[str, JudgeCounts] = field(default_factory=dict)
    requested: set[InstanceKey] = field(default_factory=set)
    failed: set[InstanceKey] = field(default_factory=set)
    filtered: set[InstanceKey] = field(default_factory=set)
    empty: set[InstanceKey] = field(default_factory=set)
    truncated: set[InstanceKey] = field(default_factory=set)
    unjudged: set[InstanceKey] = field(default_factory=set)
    members: dict[str, dict[str, list[InstanceKey]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Field of the instances -> its value -> instances."""
    ratings: Ratings = field(default_factory=Ratings)
    injected: int = 0
    nothing_right: int = 0
    """Instances with a right answer that HELM's quasi metrics take for nothing."""
    prompts: Any = field(default_factory=hashlib.sha256)

    @property
    def cut_off_empty(self) -> int:
        return len(self.truncated & self.empty)

    @property
    def silent(self) -> set[InstanceKey]:
        """Answered, with nothing in it."""
        return self.empty | self.filtered

    def counts(self, missing: set[InstanceKey]) -> Instances:
        """`missing`: those that the main metric's score does without."""
        return Instances(
            requested=len(self.requested),
            scored=len(self.requested - missing),
            failed=len(self.failed),
            empty=len(self.empty),
            truncated=len(self.truncated),
            filtered=len(self.filtered),
            unjudged=len(self.unjudged),
        )


def _look_at_states(plan: Plan, run: output.HelmRun, corrections: Corrections) -> _Seen:
    seen = _Seen()
    jury = run.jury
    roles = {deployment_of(judge): judge.role for judge in plan.judges}
    judges = {roles.get(deployment, name): name for name, deployment in jury.judges.items()} if jury else {}
    asked, scored = dict.fromkeys(judges, 0), dict.fromkeys(judges, 0)
    quasi = any(stat.name.name in QUASI_METRICS for stat in run.stats)
    for state in run.request_states():
        key = _key_of(state)
        seen.requested.add(key)
        seen.prompts.update(json.dumps([state.instance.id, state.request.get("prompt")]).encode())
        fields = {name: value for name, value in _categories(state.instance).items() if isinstance(value, str)}
        if state.instance.sub_split:
            fields["sub_split"] = state.instance.sub_split
        for name, value in fields.items():
            seen.members[name][value].append(key)
        corrections.add(key, state, None if has_failed(state) else _text(state))
        seen.nothing_right += quasi and any(
            becomes_nothing(reference.output.text)
            for reference in state.instance.references
            if output.CORRECT_TAG in reference.tags
        )
        if has_failed(state):
            seen.failed.add(key)
            continue
        empty = not _text(state).strip()
        if _filtered(state):
            seen.filtered.add(key)
        elif empty:
            seen.empty.add(key)
        if _finish_reason(state) == wire.CUT_OFF:
            seen.truncated.add(key)
        if jury is not None:
            seen.injected += bool(injection_signs(_text(state)))
            heard = False
            for judge, name in judges.items():
                ratings = output.ratings_of(state.annotations, jury, name)
                asked[judge] += not empty
                scored[judge] += bool(ratings)
                heard = heard or bool(ratings)
                seen.ratings.add(judge, key, ratings)
            if empty:
                seen.ratings.rate_lowest(key)
            elif not heard:  # HELM gives such an instance its default
                seen.unjudged.add(key)
    own = family_of(plan.model.model_id)
    families = {judge.role: family_of(judge.model_id) for judge in plan.judges}
    seen.judges = {
        judge: JudgeCounts(
            asked[judge],
            scored[judge],
            asked[judge] - scored[judge],
            None if own is None or families.get(judge) is None else families[judge] == own,
        )
        for judge in judges
    }
    return seen


@dataclass(frozen=True)
class _Answer:
    """What the cache knows of an answer, without its text."""

    tokens: tuple[int | None, int | None]
    latency_s: float


def _answers(cache_db: Path) -> dict[str, _Answer]:
    return {
        row["key"]: _Answer(wire.usage_of(json.loads(row["response"])), row["latency_s"])
        for row in store.read_answers(cache_db)
    }


@dataclass(frozen=True)
class _Records:
    """Every instance with all that is known about its answer, read anew each time it is gone through."""

    plan: Plan
    run: output.HelmRun
    contexts: Sequence[Context]
    answers: Mapping[str, _Answer]
    seen: _Seen
    jury_metric: str | None

    def __iter__(self) -> Iterator[InstanceRecord]:
        return map(self._record, self.run.request_states())

    def _record(self, state: output.RequestState) -> InstanceRecord:
        key = _key_of(state)
        model = self.plan.model
        body = wire.request_body(
            state.request, model_id=model.model_id, endpoint_type=model.type, top_p=model.top_p,
            adapter=wire.Adapter(**model.adapter),
        )  # fmt: skip
        answer = self.answers.get(wire.request_key(model.url, body, state.request.get("random")))
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
            categories=_categories(state.instance),
            completion=None if failed or not result or not result.completions else result.completions[0].text,
            metrics={} if failed else self._metrics(key),
            finish_reason=_finish_reason(state),
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            latency_s=answer.latency_s if answer else None,
            cached=bool(result and result.cached),
            error=result.error if result and not result.success else None,
            judges={} if failed else self.seen.ratings.means_of(key),
            unjudged=key in self.seen.unjudged,
            injection=tuple(injection_signs(_text(state))) if self.run.jury else (),
        )

    def _metrics(self, key: InstanceKey) -> dict[str, float]:
        unjudged = key in self.seen.unjudged
        return {
            context.name: context.values[key]
            for context in self.contexts
            if key in context.values and not (unjudged and _is_judged(context, self.jury_metric))
        }


def _categories(instance: output.Instance) -> dict[str, Any]:
    """Short texts and numbers that a scenario keeps beside an instance."""
    return {
        name: value
        for name, value in (instance.extra_data or {}).items()
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= LONGEST_CATEGORY)
    }


def _notes(
    plan: Plan, run: output.HelmRun, instances: Instances, seen: _Seen, labels: Collection[str]
) -> list[str]:
    notes = []
    cut_off_empty = seen.cut_off_empty
    if plan.model.url.startswith("demo:"):
        notes.append("the target was the embedded demo baseline, not a model: these scores measure nothing")
    found, known = len({key[0] for key in seen.requested}), plan.evaluation.task.about.instances
    whole = plan.evaluation.run.config.params.limit_samples is None
    rules = plan.evaluation.task.helm.parameters
    whole &= not any(name in rules and rules[name].chooses_a_part for name in plan.scenario_arguments)
    if known is not None and found != known and whole:
        notes.append(f"the data hold {found} instances, {known} when this task was described: another version of them?")
    if cut_off_empty:
        too_few = wire.TOO_FEW_TOKENS.format(granted=run.run_spec.adapter_spec.max_tokens)
        notes.append(f"{cut_off_empty} of {instances.requested}: {too_few}")
    if instances.failed:
        handling = plan.evaluation.run.config.params.extra.on_failure
        how = "count as 0" if handling == "zero" else "are left out of the scores; bounds show the range"
        notes.append(f"{instances.failed} instances failed and {how}; the same command asks them again")
    if instances.unjudged:
        notes.append(
            f"{instances.unjudged} instances have no judgement and are left out of the jury's score"
            " (HELM's own value, named .helm, gives them its default)"
        )
    for judge, counts in seen.judges.items():
        if counts.failed:
            notes.append(
                f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} answers;"
                " the same command asks it again"
            )
        if counts.same_family:
            notes.append(f"judge {judge} is of the evaluated model's family")
    if run.has_metric(SUMMARIZATION) and not any(label.startswith(("BERTScore", "summac")) for label in labels):
        notes.append("BERTScore and SummaC are absent: they need torch, a GPU and their weights")
    if any(spec.class_name.endswith(TOXICITY_METRIC) for spec in run.run_spec.metric_specs) and not any(
        "toxic" in stat.name.name for stat in run.stats
    ):
        notes.append("HELM's toxicity metrics are left out: they need the Perspective API")
    if seen.nothing_right and plan.evaluation.benchmark is None:  # a custom benchmark's check has said so, with the row
        notes.append(note_on_quasi(f"{seen.nothing_right} of {instances.requested} instances"))
    if seen.injected:
        notes.append(
            f"{seen.injected} answers speak to their judges (see `injection` in results.jsonl):"
            " what stands in them was not taken for a judgement; look at their scores"
        )
    return notes


def _usage(
    cache_db: Path, answers: Mapping[str, _Answer], run_id: str, wall_s: float
) -> tuple[Usage, list[str]]:
    """Counts of this run's attempts; tokens of every answer that it used, whenever that was paid for.

    With it: how requests had to be changed for the endpoint to take them, in the run that paid for them.
    """
    requests = cached = retries = 0
    used: dict[str, _Answer] = {}
    adjusted: dict[str, set[str]] = defaultdict(set)
    for attempt in store.read_attempts(cache_db):
        if attempt["outcome"] == "answered" and attempt["error"]:
            adjusted[attempt["key"]].update(attempt["error"].split("; "))
        if attempt["run_id"] != run_id:
            continue
        cached += attempt["outcome"] == "cached"
        requests += attempt["outcome"] in ("answered", "retried", "failed")
        retries += attempt["outcome"] == "retried"
        if attempt["outcome"] in ("answered", "cached"):
            tokens = (attempt["prompt_tokens"], attempt["completion_tokens"])
            set_aside = _Answer(tokens, attempt["latency_s"])  # a judge's unusable answer; it was paid for
            used[attempt["key"]] = answers.get(attempt["key"], set_aside)
    counted = list(used.values())
    latencies = [answer.latency_s for answer in counted]
    usage = Usage(
        requests=requests,
        cached=cached,
        retries=retries,
        prompt_tokens=_sum_known(answer.tokens[0] for answer in counted),
        completion_tokens=_sum_known(answer.tokens[1] for answer in counted),
        latency_p50_s=percentile(latencies, 0.50),
        latency_p95_s=percentile(latencies, 0.95),
        wall_s=wall_s,
    )
    return usage, sorted({how for key in used for how in adjusted[key]})


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
