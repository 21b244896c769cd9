"""HELM's output and the request journal -> one typed result with its validity.

Files that grow with the instances are gone through entry by entry (`tally.py` has the pass over requests and answers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.core.results import Instances, Score, TaskResult, Validity
from eval_factory.data.pins import notes_on_revisions
from eval_factory.endpoint import response_cache
from eval_factory.helm import output, plugin_output
from eval_factory.helm.main_metric import chosen_main_metric
from eval_factory.helm.rubric_annotations import ANNOTATION
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.choice_order_check import ChoiceOrderCheck
from eval_factory.scoring.clinicians import with_clinicians
from eval_factory.scoring.clusters import notes_on_clusters
from eval_factory.scoring.comparability import RunFacts, comparability_of
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.floors import FloorScores, notes_on_floors
from eval_factory.scoring.groups import Groups, scores_by_group
from eval_factory.scoring.jury import (
    ALL_JUDGES,
    bounds_over_judgements,
    judgements_of,
    judges_that_failed,
    notes_on_agreement,
    score_of_all_judges,
)
from eval_factory.scoring.jury_scores import helms_own, is_judged, missing_of, of_the_jury
from eval_factory.scoring.notes import Importance, Notes
from eval_factory.scoring.provenance import Remembered, clock_of, provenance_of
from eval_factory.scoring.readability import Readability
from eval_factory.scoring.records import InstanceRecords, KeptAnswers
from eval_factory.scoring.reportable import is_reportable, unreadable
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.run_notes import notes_of, notes_on_data, notes_on_labels
from eval_factory.scoring.scores import InstanceKey, MetricValues, bounds_of, metric_values_of, score_of
from eval_factory.scoring.stated_models import StatedModels, endpoints_of_other_models, notes_on_models
from eval_factory.scoring.tally import Tally, judge_names, tally_requests
from eval_factory.scoring.usage import usage_of, with_costs
from eval_factory.tasks.errata import CORRECTED


def collect(
    plan: Plan,
    runs: Sequence[Path],
    *,
    run_id: str,
    wall_s: float,
    git_hash: str | None,
    data_bundle: Mapping[str, Any] | None = None,
    remembered: Remembered | None = None,
) -> TaskResult:
    """The result of a finished helm-run.

    Args:
        runs: the run folders that this run wrote; a task is one.
        run_id: whose attempts in the journal are this run's.
        wall_s: seconds that helm-run took.
        data_bundle: the record of the data bundle that was read.
        remembered: where the run was collected before, and its data or logs may be gone since.
    """
    run = output.read_run(runs[0])
    entry, extra = plan.evaluation.task.helm, plan.evaluation.run.config.params.extra
    main_split = run.main_split(entry.main_split)
    orders, metrics = ChoiceOrderCheck.of(plan, run, metric_values_of(run, main_split))
    corrections = Corrections.of(plan, metrics)
    cache_db = plan.rundir.cache_db
    servers = response_cache.read_servers(cache_db)
    stated = StatedModels(plan.endpoints, response_cache.used_keys(cache_db, run_id), servers)
    answers = KeptAnswers.of(plan, stated.add)
    readability = Readability.of(plan, run, metrics, answers.raw_to)
    trivial = FloorScores.of(plan, run, metrics, readability.form, clock_of(remembered))
    sources = {} if remembered is None else remembered.sources
    rubric = RubricTally.of(plan, run)

    def tell(key: InstanceKey, state: output.RequestState) -> None:
        trivial.add(key, state)
        orders.add(key, state)
        if rubric is not None:
            rubric.add(key, state)

    tally = tally_requests(plan, run, corrections, readability, tell, sources)
    if rubric is not None:
        rubric.tell(tally, metrics)
    _keep_places(metrics, tally, main_split)
    metrics += [*corrections.metrics(), *readability.metrics(metrics)]
    jury_metric = run.jury.metric if run.jury else None
    helms = helms_own(metrics, jury_metric, tally)
    metrics = [of_the_jury(metric, tally) if is_judged(metric, jury_metric) else metric for metric in metrics]
    _tell_sources(metrics, tally)
    notes = Notes()
    notes.add(Importance.BACKGROUND, *plan.evaluation.task.about.notes)
    if entry.main_split not in (None, main_split):
        other = f"no instance of the main split {entry.main_split} was asked: these scores are of {main_split}"
        notes.add(Importance.DOUBTFUL, other)
    failed_as_zero = extra.on_failure == "zero"
    scored = _scored(metrics, jury_metric, tally, failed_as_zero=failed_as_zero)
    notes.add(Importance.INCOMPLETE, *scored.notes)
    if rubric is not None:
        rubric.complete(scored.scores, scored.bounds)
        notes.extend(rubric.notes(scored.scores))
    main, why = chosen_main_metric(entry, [metric.label for metric in metrics])
    main_values = next((metric for metric in metrics if metric.label == main), None)
    corrected = next((metric for metric in metrics if metric.label == f"{main}{CORRECTED}"), None)
    missing, as_zero = (
        missing_of(main_values, jury_metric, tally, failed_as_zero=failed_as_zero)
        if main_values
        else (tally.failed | tally.undecided, failed_as_zero)
    )
    orders.complete(scored.scores, scored.bounds, main_values, (missing, as_zero))
    instances = readability.counted(tally.counts(missing))
    main_is_judged = main_values is not None and is_judged(main_values, jury_metric)
    judgements = judgements_of(tally.ratings, tally.judges, tally.requested) if main_is_judged else None
    if rubric is not None:
        judgements = rubric.judgements()
    told_by_jury = main_is_judged or any(is_judged(one, jury_metric) and one.label in scored.scores for one in metrics)
    annotation = run.jury.annotation if run.jury else ANNOTATION
    prompts = plugin_output.judge_prompts(plan.rundir.helm, annotation) if run.jury or rubric else None
    asked = stated.endpoints({judge.role: prompts for judge in plan.judges})
    not_reportable = (
        *unreadable(instances, extra.max_unreadable),
        *(judges_that_failed(tally.judges, extra.max_judge_failures) if told_by_jury else ()),
        *(rubric.not_reportable(extra.max_judge_failures) if rubric is not None else ()),
        *endpoints_of_other_models(asked, extra.max_model_mismatch),
    )
    jury_report = tally.ratings.report() if run.jury else None
    grouped = (
        scores_by_group(main_values, tally.members, missing, failed_as_zero=as_zero, beside=corrected)
        if main_values
        else Groups()
    )
    if rubric is not None:
        grouped = rubric.with_tags(grouped, main_values, failed_as_zero=failed_as_zero)
    usage, adjustments = usage_of(plan.rundir.cache_db, run_id, wall_s)
    told = () if remembered is None else remembered.notes
    notes.extend([*notes_of(plan, run, instances, tally, scored.scores), *notes_on_data(plan, told)])
    notes.extend(readability.notes(plan, instances, scored.scores))
    notes.add(Importance.DOUBTFUL, *notes_on_revisions(plan), *adjustments)
    notes.extend(notes_on_models(asked, tally.judges))
    floors = trivial.floors(
        {one.label: len(one.values) for one in metrics if is_judged(one, jury_metric)}, tally.ratings.form.lowest
    )
    notes.extend([*notes_on_floors(main, scored.scores, floors), *trivial.notes()])
    notes.extend(notes_on_labels(main, scored.scores, plan.evaluation.task.about))
    if jury_report is not None:
        notes.extend(notes_on_agreement(jury_report, tally.ratings))
    main_score = scored.scores.get(main)
    notes.extend(notes_on_clusters(entry.cluster, tally.clusters, main_score))
    notes.extend(grouped.notes())
    notes.add(Importance.BACKGROUND, *corrections.notes())
    notes.add(Importance.DOUBTFUL if main in scored.scores else Importance.NO_RESULT, *why)
    scenario = run.scenario_name or entry.scenario
    provenance = provenance_of(plan, scenario, tally.prompts.hexdigest(), git_hash, data_bundle, asked, run_id)
    if remembered is not None:
        provenance = remembered.completed(plan, provenance)
    made = TaskResult(
        task=plan.task_name,
        main_metric=main,
        scores={name: scored.scores[name] for name in sorted(scored.scores, key=lambda name: name != main)}
        | scored.of_all_judges
        | helms,
        groups=grouped.scores,
        validity=Validity(
            instances,
            tally.judges,
            scored.bounds,
            jury_report,
            notes.texts(),
            tally.causes.listed(),
            main_split,
            {split: len(ids) for split, ids in sorted(tally.splits.items())},
            judgements,
            not_reportable,
            floors,
            None if rubric is None else rubric.report(),
            orders.report(main_values, missing),
        ),
        usage=with_costs(usage, plan, run_id),
        provenance=provenance,
        instances=InstanceRecords(
            run,
            [*metrics, *orders.by_order],
            answers,
            tally,
            jury_metric,
            readability,
            judge_names(plan, run.jury),
            rubric,
        ),
        reportable=is_reportable(main, scored.scores, instances, extra.min_coverage, not_reportable),
        status="complete" if _is_complete(instances, tally) else "partial",
        something_to_ask=tally.something_to_ask,
        comparability=comparability_of(
            RunFacts(plan, run.run_spec.adapter_spec, instances, sum(map(len, tally.splits.values())), provenance)
        ),
    )
    return with_clinicians(made, plan.rundir)


def _is_complete(instances: Instances, tally: Tally) -> bool:
    """Every instance has a score, and every judge rated what it was asked about."""
    return instances.scored == instances.requested and not any(judge.failed for judge in tally.judges.values())


@dataclass
class _Scored:
    scores: dict[str, Score] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    of_all_judges: dict[str, Score] = field(default_factory=dict)
    """A jury's, over the instances that all its judges rated, where some judgement is missing."""
    notes: list[str] = field(default_factory=list)
    """Which scores are absent, and why."""


def _scored(metrics: Sequence[MetricValues], jury_metric: str | None, tally: Tally, *, failed_as_zero: bool) -> _Scored:
    found = _Scored()
    for metric in metrics:
        missing, as_zero = missing_of(metric, jury_metric, tally, failed_as_zero=failed_as_zero)
        score = score_of(metric, missing, failed_as_zero=as_zero)
        if score is None:
            unheard = not tally.failed and is_judged(metric, jury_metric)
            cause = "no judge scored any answer" if unheard else "it cannot be computed without the failed instances"
            found.notes.append(f"{metric.label}: absent, {cause}")
            continue
        found.scores[metric.label] = score
        judged = is_judged(metric, jury_metric)
        limits = bounds_over_judgements(metric, tally.ratings, tally.judges) if judged else bounds_of(metric, missing)
        whole = score_of_all_judges(metric, tally.ratings, tally.judges) if judged else None
        if whole is not None:
            found.of_all_judges[metric.label + ALL_JUDGES] = whole
        if limits is not None:
            found.bounds[metric.label] = limits
    return found


def _tell_sources(metrics: Sequence[MetricValues], tally: Tally) -> None:
    for metric in metrics:
        metric.clusters = tally.clusters or None


def _keep_places(metrics: Sequence[MetricValues], tally: Tally, main_split: str | None) -> None:
    """A metric that raises on an empty answer too gives no value at all; its place is kept for 0 and the bounds."""
    for key, split in tally.split_of_unscorable.items():
        for metric in metrics:
            label = output.score_label(output.MetricName(name=metric.name, split=split), main_split)
            if metric.values and metric.label == label and key[2] is None and key not in metric.values:
                metric.values[key], metric.helm_mean, metric.merged = 0.0, None, True
