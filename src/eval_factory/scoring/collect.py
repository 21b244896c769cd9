"""HELM's output and the request journal -> one typed result with its validity: the list of parts,
in their order.

Files that grow with the instances are gone through entry by entry; every part sees each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from eval_factory.core.nouns import RunStatus
from eval_factory.core.results import InstanceRecord, Provenance, TaskResult, Validity
from eval_factory.data.run_data import notes_on_revisions
from eval_factory.helm import output
from eval_factory.helm.criteria import ANNOTATION, decision_signs
from eval_factory.helm.judge_output import injection_signs
from eval_factory.helm.metric_facts import chosen_main_metric
from eval_factory.helm.output import categories_of
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring import journal
from eval_factory.scoring.changed_answers import Askings, ChoiceOrderCheck
from eval_factory.scoring.clinicians import with_clinicians
from eval_factory.scoring.comparability import ComparedRun, comparability_of
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.floors import FloorScores, judge_probe
from eval_factory.scoring.groups import scores_by_group
from eval_factory.scoring.judge_correction import RubricCorrection
from eval_factory.scoring.jury import (
    ALL_JUDGES,
    Jury,
    bounds_over_judgements,
    missing_judgements,
    score_of_all_judges,
)
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.provenance import Remembered, provenance_of
from eval_factory.scoring.readability import Readability, answer_form_of
from eval_factory.scoring.reasoned_answers import (
    fill_in,
    is_reasoned,
    main_label,
    reasoned_form,
    with_reasoned,
)
from eval_factory.scoring.request_states import (
    finish_reason_of,
    has_failed,
    key_of,
    media_of,
    prompt_of,
    text_of,
)
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.run_notes import (
    demo_reasons,
    notes_of,
    notes_on_age,
    notes_on_data,
    notes_on_labels,
)
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    bounds_of,
    is_judged,
    metric_values_of,
    score_of,
)
from eval_factory.scoring.sequential import Looks
from eval_factory.scoring.stated_models import (
    StatedModels,
    endpoints_of_other_models,
    notes_on_models,
)
from eval_factory.scoring.tally import Tally, notes_on_clusters
from eval_factory.tasks.asking_forms import is_asked_again, is_in_another_form
from eval_factory.tasks.errata import CORRECTED

Step = Callable[[Draft], None]


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
    """The result of a finished helm-run, from the run folders that it wrote (a task is one) and its
    own attempts.

    `remembered`: where the run was collected before, and its data or logs may be gone since.
    """
    run = output.read_run(runs[0])
    entry = plan.evaluation.task.helm
    split = run.main_split(entry.main_split)
    orders, metrics = ChoiceOrderCheck.of(
        plan, run, with_reasoned(plan, metric_values_of(run, split))
    )
    plain = [one for one in metrics if not is_asked_again(one.perturbation)]
    tally = Tally.of(plan, run, {} if remembered is None else remembered.sources)
    usage, changes, used = journal.usage_of(plan, run_id, wall_s)
    stated = StatedModels(plan.endpoints, used, journal.read_servers(plan.rundir.cache_db))
    answers = journal.StoredAnswers.of(plan, stated.add)
    main, _ = chosen_main_metric(entry, [metric.label for metric in plain])  # of HELM's own
    readability, right = _readers(plan, run, main, answers)
    again = Askings.of(plan, right, answers.logprobs_of)
    floors = FloorScores(plan, run, plain)
    corrections = Corrections.of(plan, metrics)
    rubric = RubricTally.of(plan, run)
    correction = RubricCorrection.of(plan, rubric)
    jury = Jury(plan, run.jury, tally) if run.jury else None
    looks = Looks.of(plan)
    parts = Parts(
        tally,
        rubric,
        correction,
        corrections,
        readability,
        jury,
        *(orders, again, right),
        floors,
        looks,
        stated,
    )
    draft = Draft(plan, run, split, tally, list(metrics), usage, changes)
    draft.earlier_notes = () if remembered is None else remembered.notes
    draft.looks = 1 if looks is None else len(looks.sizes)
    parts.see(run)
    for step in parts.steps():
        step(draft)
    records = parts.records(draft, answers)
    scenario = run.scenario_name or entry.scenario
    prompts = tally.prompts.hexdigest()
    provenance = provenance_of(plan, scenario, prompts, git_hash, data_bundle, draft.asked, run_id)
    if remembered is not None:
        provenance = remembered.completed(plan, provenance)
    return with_clinicians(_result(draft, records, provenance), plan.rundir)


def _readers(
    plan: Plan, run: output.HelmRun, main: str, answers: journal.StoredAnswers
) -> tuple[Readability, RightAnswers]:
    """What reads answers: in the form that the benchmark asks for, or in that of reasoned ones."""
    form = answer_form_of(plan.evaluation.task.helm, run, main)
    reader = reasoned_form(form) if is_reasoned(plan) else None
    pattern = run.run_spec.adapter_spec.output_mapping_pattern
    return Readability(reader or form, answers.to), RightAnswers(form, pattern, reader)


@dataclass(frozen=True)
class Parts:
    """The parts of a result; None where the task or the configuration has no such part."""

    tally: Tally
    rubric: RubricTally | None
    correction: RubricCorrection | None
    corrections: Corrections
    readability: Readability
    jury: Jury | None
    orders: ChoiceOrderCheck | None
    again: Askings | None
    right: RightAnswers  # sees each request before the two that compare answers
    floors: FloorScores
    looks: Looks | None
    stated: StatedModels

    def see(self, run: output.HelmRun) -> None:
        """Show every request to the parts; one in another form only to those that count it."""
        parts = (
            self.tally,
            self.rubric,
            self.corrections,
            self.readability,
            self.jury,
            self.orders,
            self.again,
            self.floors,
            self.looks,
        )
        add_to_all = [part.add for part in parts if part is not None]
        add_again: list[Callable[..., object]] = [self.tally.count_failure]
        if self.orders is not None:
            self.orders.right = self.right
        if self.again or self.orders or self.right.reader:
            add_to_all.insert(0, self.right.add)
        if self.again is not None:
            add_again += [self.right.add, self.again.add]
        for state in run.request_states():
            key = key_of(state)
            for add in add_again if is_in_another_form(key[2]) else add_to_all:
                add(key, state)

    def steps(self) -> Iterator[Step]:
        """The steps that complete the draft after all requests, each with why it stands where it
        does. Notes of one weight keep this order.
        """
        yield from self._steps_before_scores()
        yield _score  # all metrics and values are there
        yield from self._steps_on_scores()
        yield from self._steps_of_reports()

    def _steps_before_scores(self) -> Iterator[Step]:
        if self.right.reader:
            yield self._fill_in_reasoned  # before anything looks at values
        if self.again:
            yield self.again.count_replies  # before anything is counted together
        if self.jury:
            yield self.jury.count  # notes, reasons and causes name who failed to judge
        if self.rubric:
            # cases that nobody decided are no values; tags make groups
            yield self.rubric.complete
        if self.correction:
            yield self.correction.complete  # by the cases that the judges decided
        yield _keep_slots  # in HELM's metrics alone, and before others are made of them
        # before the jury's marks: corrected values of a jury's metric get them too
        yield self.corrections.complete
        yield self.readability.complete  # its lenient metrics stand after the corrected ones
        if self.again:
            yield self.again.add_letters  # beside the lenient ones
        if self.jury:
            yield self.jury.complete  # marks of empty answers: the last change of a value
        if self.again:
            # all metrics of the repeated requests are there, and none is a score
            yield self.again.take

    def _fill_in_reasoned(self, draft: Draft) -> None:
        others = self.orders.by_order if self.orders else ()
        fill_in([*draft.metrics, *others], self.right)

    def _steps_on_scores(self) -> Iterator[Step]:
        if self.rubric:
            yield self.rubric.publish  # the published score takes the place of HELM's mean
        if self.correction:
            # its interval in the place of that of the cases' values
            yield self.correction.publish
        yield _choose_main  # all that follows asks which values the main metric lacks
        if self.orders:
            # its score over all orders: none that could be the main one
            yield self.orders.complete
        if self.again:
            yield self.again.complete

    def _steps_of_reports(self) -> Iterator[Step]:
        yield _note_failures  # what failed comes before what is odd
        yield _refuse_demo  # the first reason against reporting
        if self.again:
            yield self.again.report_reading
        yield self.readability.report  # the second: a setting may help
        if self.jury:
            yield self.jury.judgements  # the third: the same command may
        if self.rubric:
            yield self.rubric.report  # no run has both, jury and rubric
        if self.correction:
            yield self.correction.report  # a part of the rubric's report
        yield partial(_report_models, self.stated)  # the last reason against reporting
        yield partial(judge_probe, self.rubric, self.jury)  # its finding is a floor
        yield self.floors.complete  # finished scores are held against them
        if self.looks:
            yield self.looks.complete  # a rule may be about the floor
        yield _note_labels  # the other end: as high as labels allow
        if self.jury:
            yield self.jury.report  # how far a score by judges can be trusted
        if self.again:
            # judges, floors and labels were held against the questions as they are
            yield self.again.lead
        yield _group  # how large the sample is, and groups of the main metric's values
        if self.rubric:
            yield self.rubric.group  # groups by tags: they take no name of a field's group
        yield _note_groups  # all groups are there
        yield partial(_note_corrections, self.corrections)  # the longest notes
        yield _note_main  # where there is no main score, other reasons come first

    def records(self, draft: Draft, answers: journal.StoredAnswers) -> InstanceRecords:
        columns = list(draft.metrics)
        if self.orders:
            columns += self.orders.by_order
        if self.again:
            columns += self.again.metrics
        return InstanceRecords(
            draft.run,
            columns,
            answers,
            self.tally,
            draft.jury_metric,
            self.readability,
            self.jury.names if self.jury else {},
            self.rubric,
        )


def _note_failures(draft: Draft) -> None:
    draft.notes.extend(notes_of(draft))
    draft.notes.extend(notes_on_data(draft.plan, draft.earlier_notes))


def _note_labels(draft: Draft) -> None:
    about = draft.plan.evaluation.task.about
    draft.notes.extend(notes_on_labels(draft.main, draft.scores, about))


def _note_groups(draft: Draft) -> None:
    draft.notes.extend(draft.groups.notes())


def _note_corrections(corrections: Corrections, draft: Draft) -> None:
    draft.notes.add(Importance.BACKGROUND, *corrections.notes())


def _note_main(draft: Draft) -> None:
    importance = Importance.DOUBTFUL if draft.main in draft.scores else Importance.NO_RESULT
    draft.notes.add(importance, *draft.why)


def _keep_slots(draft: Draft) -> None:
    """A metric that raises on an empty answer too gives no value at all; its slot stays, for 0
    and the bounds.
    """
    for key, (_, split) in draft.tally.unscorable.items():
        for metric in draft.metrics:
            label = output.score_label(
                output.MetricName(name=metric.name, split=split), draft.main_split
            )
            if (
                metric.values
                and metric.label == label
                and key[2] is None
                and key not in metric.values
            ):
                metric.values[key] = 0.0
                metric.helm_mean = None


def _score(draft: Draft) -> None:
    """What is true before anything was asked, and the scores of all metrics with their bounds."""
    task = draft.plan.evaluation.task
    tally = draft.tally
    jury_metric = draft.jury_metric
    draft.notes.add(Importance.BACKGROUND, *task.about.notes)
    if task.helm.main_split not in (None, draft.main_split):
        other = (
            f"no instance of the main split {task.helm.main_split} was asked: these scores are of"
        )
        draft.notes.add(Importance.DOUBTFUL, f"{other} {draft.main_split}")
    of_all_judges = {}
    for metric in draft.metrics:
        metric.clusters = tally.clusters or None
        metric.looks = draft.looks
        judged = is_judged(metric, jury_metric)
        missing, as_zero = missing_judgements(
            metric, jury_metric, tally, failed_as_zero=draft.failed_as_zero
        )
        score = score_of(metric, missing, failed_as_zero=as_zero)
        if score is None:
            unjudged = judged and not tally.failed
            cause = (
                "no judge scored any answer"
                if unjudged
                else "it cannot be computed without the failed instances"
            )
            draft.notes.add(Importance.INCOMPLETE, f"{metric.label}: absent, {cause}")
            continue
        draft.scores[metric.label] = score
        limits = (
            bounds_over_judgements(metric, tally.ratings, tally.judges)
            if judged
            else bounds_of(metric, missing)
        )
        if limits is not None:
            draft.bounds[metric.label] = limits
        if (
            judged
            and (by_all := score_of_all_judges(metric, tally.ratings, tally.judges)) is not None
        ):
            of_all_judges[metric.label + ALL_JUDGES] = by_all
    draft.beside = of_all_judges | draft.beside


def _choose_main(draft: Draft) -> None:
    labels = [metric.label for metric in draft.metrics]
    draft.main, draft.why = chosen_main_metric(draft.plan.evaluation.task.helm, labels)
    draft.main = main_label(draft)
    draft.main_values = _values(draft, draft.main)
    tally = draft.tally
    as_zero = draft.failed_as_zero
    draft.missing = tally.failed | tally.undecided
    draft.as_zero = as_zero
    if draft.main_values is not None:
        found = missing_judgements(
            draft.main_values, draft.jury_metric, tally, failed_as_zero=as_zero
        )
        draft.missing, draft.as_zero = found
    draft.instances = tally.counts(draft.missing)


def _values(draft: Draft, label: str) -> MetricValues | None:
    return next((metric for metric in draft.metrics if metric.label == label), None)


def _refuse_demo(draft: Draft) -> None:
    draft.not_reportable += demo_reasons(draft.plan)


def _report_models(stated: StatedModels, draft: Draft) -> None:
    run = draft.run
    plan = draft.plan
    draft.notes.add(Importance.DOUBTFUL, *notes_on_revisions(plan), *draft.changes)
    annotation = run.jury.annotation if run.jury else ANNOTATION
    prompts = output.read_run_record(plan.rundir.helm).judge_prompts.get(annotation)
    draft.asked = stated.endpoints({judge.role: prompts for judge in plan.judges})
    draft.notes.extend(notes_on_models(draft.asked, draft.tally.judges))
    most = plan.evaluation.run.config.params.extra.max_model_mismatch
    draft.not_reportable += endpoints_of_other_models(draft.asked, most)


def _group(draft: Draft) -> None:
    rule = draft.plan.evaluation.task.helm.cluster
    draft.notes.extend(notes_on_clusters(rule, draft.tally.clusters, draft.scores.get(draft.main)))
    if draft.main_values is None:
        return
    corrected = _values(draft, f"{draft.main}{CORRECTED}")
    draft.groups = scores_by_group(
        draft.main_values,
        draft.tally.members,
        draft.missing,
        failed_as_zero=draft.as_zero,
        beside=corrected,
    )


def _result(draft: Draft, records: InstanceRecords, provenance: Provenance) -> TaskResult:
    tally = draft.tally
    instances = draft.instances
    scores = draft.scores
    # the last: of most public benchmarks it is true
    draft.notes.extend(notes_on_age(draft.plan, provenance))
    asked = sum(map(len, tally.splits.values()))
    facts = ComparedRun(draft.plan, draft.run.run_spec.adapter_spec, instances, asked, provenance)
    enough = instances.coverage >= draft.plan.evaluation.run.config.params.extra.min_coverage
    complete = instances.scored == instances.requested and not any(
        one.failed for one in tally.judges.values()
    )
    return TaskResult(
        task=draft.plan.task_name,
        main_metric=draft.main,
        scores={name: scores[name] for name in sorted(scores, key=lambda name: name != draft.main)}
        | draft.beside,
        groups=draft.groups.scores,
        validity=Validity(
            instances,
            tally.judges,
            draft.bounds,
            draft.jury,
            draft.notes.texts(),
            tally.causes.listed(),
            draft.main_split,
            {split: len(ids) for split, ids in sorted(tally.splits.items())},
            draft.judgements,
            tuple(draft.not_reportable),
            draft.floors,
            draft.rubric,
            draft.choice_orders,
            draft.judge_probe,
            draft.asked_again,
            draft.stopped_early,
            draft.notes.urgent,
        ),
        usage=draft.usage,
        provenance=provenance,
        instances=records,
        reportable=draft.main in scores and enough and not draft.not_reportable,
        status=RunStatus.COMPLETE if complete else RunStatus.PARTIAL,
        something_to_ask=tally.something_to_ask,
        comparability=comparability_of(facts),
    )


@dataclass(frozen=True)
class InstanceRecords:
    """Every instance with all that is known about its answer, read again each time."""

    run: output.HelmRun
    metrics: Sequence[MetricValues]
    answers: journal.StoredAnswers
    tally: Tally
    jury_metric: str | None
    readability: Readability
    # judge -> its name in HELM's annotations
    judges: Mapping[str, str] = field(default_factory=dict)
    rubric: RubricTally | None = None

    def __iter__(self) -> Iterator[InstanceRecord]:
        return map(self._record, self.run.request_states())

    def _record(self, state: output.RequestState) -> InstanceRecord:
        key = key_of(state)
        result = state.result
        failed = has_failed(state)
        answer = self.answers.to(state)
        rubric = self.rubric
        tokens = answer.tokens if answer else (None, None)
        metrics = {}
        judges = {}
        judgements = {}
        if not failed:
            metrics = self._metrics_of(key)
            judges = (
                self.tally.ratings.means_of(key) if rubric is None else rubric.scores_by_judge(key)
            )
            judgements = self._judgements_in(state)
        completion = None
        if not failed and result and result.completions:
            completion = result.completions[0].text
        signs = self.readability.signs_of(key)
        if key in self.tally.empty:
            signs = ("empty", *signs)
        fields = {} if rubric is None else rubric.fields_of(key)
        return InstanceRecord(
            id=state.instance.id,
            split=state.instance.split or "",
            sub_split=state.instance.sub_split,
            trial=state.train_trial_index,
            perturbation=key[2],
            prompt=prompt_of(state),
            references=tuple(
                {"text": r.output.text, "tags": r.tags} for r in state.instance.references
            ),
            categories={**fields, **categories_of(state.instance)},
            completion=completion,
            metrics=metrics,
            finish_reason=finish_reason_of(state),
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            latency_s=answer.latency_s if answer else None,
            cached=bool(result and result.cached),
            error=result.error if result and not result.success else None,
            judges=judges,
            unjudged=key in self.tally.unjudged,
            injection=self._injection_in(text_of(state)),
            signs=signs,
            cluster=self.tally.clusters.get(state.instance.id),
            turns=self.answers.turns_of(state),
            media=media_of(state, self.run.folder.parents[2]),
            reasoning=self.answers.thought_of(answer),
            judgements=judgements,
            criteria=() if rubric is None else rubric.criteria_in(state),
        )

    def _metrics_of(self, key: InstanceKey) -> dict[str, float]:
        """The values of an instance; a judged metric has none where no judge scored it."""
        values = {}
        for metric in self.metrics:
            unjudged = key in self.tally.unjudged and is_judged(metric, self.jury_metric)
            if key in metric.values and not unjudged:
                values[metric.name] = metric.values[key]
        return values

    def _judgements_in(self, state: output.RequestState) -> dict[str, Any]:
        judgements = {}
        if self.run.jury is not None:
            for judge, name in self.judges.items():
                judgement = output.judgement_of(state.annotations, self.run.jury, name)
                if judgement:
                    judgements[judge] = judgement
        return judgements

    def _injection_in(self, answer: str) -> tuple[str, ...]:
        """The signs that an answer speaks to its judges."""
        if self.rubric is not None:
            return tuple(decision_signs(answer))
        if self.run.jury:
            return tuple(injection_signs(answer))
        return ()
