"""Collects the typed result of one helm-run from HELM's output and the request journal.

This module lists the parts of a result in their order, and shows each request to every part. Files
that grow with the number of instances are read entry by entry, to save memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.enums import RunStatus
from eval_factory.core.results import Provenance, Score, TaskResult, Validity
from eval_factory.helm import output
from eval_factory.helm.metric_facts import chosen_main_metric
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring import journal
from eval_factory.scoring.changed_answers import Askings
from eval_factory.scoring.choice_orders import ChoiceOrderCheck
from eval_factory.scoring.clinicians import with_clinicians
from eval_factory.scoring.comparability import ComparedRun, comparability_of
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.floors import FloorScores, ProbedJudges
from eval_factory.scoring.instance_records import InstanceRecords
from eval_factory.scoring.jury import Jury
from eval_factory.scoring.main_metric import Grouping, MainMetric
from eval_factory.scoring.metric_scores import MetricScores, UnscorableAnswers
from eval_factory.scoring.part import Part, go_through_phases
from eval_factory.scoring.provenance import RememberedFacts, provenance_of
from eval_factory.scoring.readability import Readability, answer_form_of
from eval_factory.scoring.reasoned_answers import (
    ReasonedValues,
    is_reasoned,
    reasoned_form,
    with_reasoned_metrics,
)
from eval_factory.scoring.reportable import reasons_against_reporting
from eval_factory.scoring.request_states import key_of
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.rubric_correction import RubricCorrection
from eval_factory.scoring.run_notes import NotesOnLabels, NotesOnRun, notes_on_age
from eval_factory.scoring.scores import MetricValues, metric_values_of
from eval_factory.scoring.sequential import Looks
from eval_factory.scoring.stated_models import StatedModels
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.asking_forms import is_further_asking, is_in_another_form


def collect(
    plan: Plan,
    runs: Sequence[Path],
    *,
    run_id: str,
    wall_s: float,
    git_hash: str | None,
    data_bundle: Mapping[str, Any] | None = None,
    remembered: RememberedFacts | None = None,
) -> TaskResult:
    """Collect the result of a finished helm-run.

    Args:
        plan: the plan of the run.
        runs: the folders that helm-run wrote. A task has one folder, so only the first is read.
        run_id: the id of the run's attempts in the journal.
        wall_s: the duration of the run, in seconds.
        git_hash: the commit of this program; None if it does not run from a repository.
        data_bundle: the stored description of the bundle that the data came from, if any.
        remembered: facts from an earlier collection, whose data or logs may be deleted by now; None
            for the first collection.

    Raises:
        HelmError: a file of HELM's output is missing or has another form.
        PrerequisiteError: the ratings by people cannot be read.
    """
    run = output.read_run(runs[0])
    usage, changes, used_keys = journal.usage_of(plan, run_id, wall_s)
    parts = RunParts.of(plan, run, used_keys, remembered)
    draft = Draft(
        plan,
        run,
        main_split=parts.split,
        tally=parts.tally,
        metrics=list(parts.metrics),
        usage=usage,
        changes=changes,
    )
    if remembered is not None:
        draft.earlier_notes = remembered.notes
    if parts.looks is not None:
        draft.looks = len(parts.looks.sizes)
    ordered_parts = parts.in_order()
    for state in run.request_states():
        _show(state, ordered_parts)
    go_through_phases(ordered_parts, draft)
    scenario = run.scenario_name or plan.evaluation.task.helm.scenario
    prompts = parts.tally.prompts_hash.hexdigest()
    provenance = provenance_of(
        plan,
        scenario=scenario,
        prompts_sha256=prompts,
        git_hash=git_hash,
        data_bundle=data_bundle,
        endpoints=draft.asked,
        run_id=run_id,
    )
    if remembered is not None:
        provenance = remembered.complete_record(plan, provenance)
    return with_clinicians(_result(draft, parts.records(draft), provenance), plan.rundir)


def _show(state: output.RequestState, parts: Sequence[Part]) -> None:
    """Show one request to every part."""
    key = key_of(state)
    _, _, perturbation = key
    if is_in_another_form(perturbation):
        for part in parts:
            part.see_other_form(key, state)
    else:
        for part in parts:
            part.see(key, state)


@dataclass(frozen=True)
class RunParts:
    """The parts of a run's result. A part is None if the task or the configuration does not need
    the part.
    """

    split: str | None  # the main split
    metrics: Sequence[MetricValues]
    """HELM's metrics and the metrics of reasoned answers.

    The metrics of questions whose choices are in another order are left out.
    """
    answers: journal.StoredAnswers
    tally: Tally
    stated: StatedModels  # the models that the endpoints' answers state
    readability: Readability
    right: RightAnswers
    choice_orders: ChoiceOrderCheck | None
    askings: Askings | None  # the further askings
    floors: FloorScores
    corrections: Corrections  # the corrections of HELM's metrics
    rubric: RubricTally | None
    rubric_correction: RubricCorrection | None  # the correction of the judges' rubric scores
    jury: Jury | None
    looks: Looks | None  # the interim analyses of `extra.stop_when`

    @classmethod
    def of(
        cls,
        plan: Plan,
        run: output.HelmRun,
        used_keys: Collection[str],
        remembered: RememberedFacts | None,
    ) -> RunParts:
        """Return the parts, which have not seen any request yet.

        Args:
            plan: the plan of the run.
            run: the output of helm-run.
            used_keys: the cache keys of the answers that the result uses.
            remembered: facts from an earlier collection, if any.
        """
        entry = plan.evaluation.task.helm
        split = run.main_split(entry.main_split)
        every_metric = with_reasoned_metrics(plan, metric_values_of(run, split))
        choice_orders, metrics = ChoiceOrderCheck.of(plan, run, every_metric)
        asked_once = [metric for metric in metrics if not is_further_asking(metric.perturbation)]
        sources: Mapping[str, str] = {}
        if remembered is not None:
            sources = remembered.sources
        tally = Tally.of(plan, run, sources)
        stated = StatedModels(plan.endpoints, used_keys, journal.read_servers(plan.rundir.cache_db))
        answers = journal.StoredAnswers.of(plan, stated.add)
        # At this point, the main metric is one of HELM's own metrics.
        main, _ = chosen_main_metric(entry, [metric.label for metric in asked_once])
        readability, right = _readers(plan, run, main, answers)
        if choice_orders is not None:
            choice_orders.right = right
        rubric = RubricTally.of(plan, run)
        jury = None
        if run.jury is not None:
            jury = Jury(plan, run.jury, tally)
        return cls(
            split=split,
            metrics=metrics,
            answers=answers,
            tally=tally,
            stated=stated,
            readability=readability,
            right=right,
            choice_orders=choice_orders,
            askings=Askings.of(plan, right, answers.logprobs_of),
            floors=FloorScores(plan, run, asked_once),
            corrections=Corrections.of(plan, metrics),
            rubric=rubric,
            rubric_correction=RubricCorrection.of(plan, rubric),
            jury=jury,
            looks=Looks.of(plan),
        )

    def in_order(self) -> list[Part]:
        """Return the parts in their order. The comments give the reasons for the order.

        Each phase calls the parts in this order. Notes of equal importance from one phase are shown
        in this order, too.
        """
        parts: list[Part | None] = [
            self.tally,
            # `self.choice_orders` and `self.askings` use the answers that this part has read.
            self._right_answers_if_used(),
            # This part fills in the values of reasoned answers before other parts count values.
            ReasonedValues(self.right, self._other_orders()),
            # This part changes HELM's metrics before other parts compute metrics from them.
            UnscorableAnswers(),
            self.corrections,
            # This part adds the lenient metrics, which also accept answers in another form, after
            # the corrected metrics.
            self.readability,
            self.choice_orders,
            NotesOnRun(),
            self.askings,  # The metric from `extra.ask_unread` is listed after the lenient metrics.
            # `self.askings` has removed the metrics of further askings: they are not scores.
            MetricScores(),
            # A floor is the best score without a model. The judges' marks of a text that says
            # nothing are a floor, too.
            ProbedJudges(self.rubric, self.jury),
            self.floors,
            self.looks,  # A stopping rule may refer to the floor.
            NotesOnLabels(),  # The upper limit, which label errors set, comes after the floor.
            # With repeats, their mean is the main score by now. This part computes its groups.
            Grouping(),
            # The jury comes after the lenient metrics, because its marks of empty answers are the
            # last change of a value.
            self.jury,
            # The groups by tags must not take the name of a group by a field of the instances.
            self.rubric,
            self.rubric_correction,  # It uses the cases that the rubric's judges decided.
            MainMetric(),  # The parts above have published their scores by then.
            self.stated,
        ]
        return [part for part in parts if part is not None]

    def _right_answers_if_used(self) -> RightAnswers | None:
        """Return the part that reads answers, or None if no other part uses the answers."""
        if self.askings is None and self.choice_orders is None and self.right.reasoned_form is None:
            return None
        return self.right

    def _other_orders(self) -> Sequence[MetricValues]:
        """Return HELM's metrics of the questions whose choices are in another order."""
        if self.choice_orders is None:
            return ()
        return self.choice_orders.by_order

    def records(self, draft: Draft) -> InstanceRecords:
        """Return the records of the instances. `draft` is the finished draft with all metrics."""
        metrics = [*draft.metrics, *self._other_orders()]
        if self.askings is not None:
            metrics += self.askings.metrics
        judges: Mapping[str, str] = {}
        if self.jury is not None:
            judges = self.jury.names
        return InstanceRecords(
            draft.run,
            metrics=metrics,
            answers=self.answers,
            tally=self.tally,
            jury_metric=draft.jury_metric,
            readability=self.readability,
            judges=judges,
            rubric=self.rubric,
        )


def _readers(
    plan: Plan, run: output.HelmRun, main: str, answers: journal.StoredAnswers
) -> tuple[Readability, RightAnswers]:
    """Return the two parts that read answers.

    The parts expect the form that the benchmark asks for, or, if the prompts ask for reasoning, the
    form of reasoned answers. `main` is the label of HELM's main metric.
    """
    form = answer_form_of(plan.evaluation.task.helm, run, main)
    reasoned = None
    if is_reasoned(plan):
        reasoned = reasoned_form(form)
    pattern = run.run_spec.adapter_spec.output_mapping_pattern
    readability = Readability(reasoned or form, answers.answer_to)
    return readability, RightAnswers(form, pattern, reasoned_form=reasoned)


def _result(draft: Draft, records: InstanceRecords, provenance: Provenance) -> TaskResult:
    """Return the result of a finished draft."""
    tally = draft.tally
    instances = draft.instances
    # This note comes last because it applies to most public benchmarks.
    draft.notes.extend(notes_on_age(draft.plan, provenance))
    facts = ComparedRun(
        draft.plan,
        draft.run.run_spec.adapter_spec,
        instances,
        asked=sum(map(len, tally.splits.values())),
        provenance=provenance,
    )
    reasons = reasons_against_reporting(draft)
    min_coverage = draft.plan.evaluation.extra.min_coverage
    is_covered = draft.main in draft.scores and instances.coverage >= min_coverage
    return TaskResult(
        task=draft.plan.task_name,
        main_metric=draft.main,
        scores=_main_first(draft.scores, draft.main) | draft.further_scores,
        groups=draft.groups.scores,
        validity=Validity(
            instances=instances,
            judges=tally.judges,
            bounds=draft.bounds,
            jury=draft.jury,
            notes=draft.notes.texts(),
            failures=tally.causes.listed(),
            main_split=draft.main_split,
            splits={split: len(ids) for split, ids in sorted(tally.splits.items())},
            judgements=draft.judgements,
            not_reportable=reasons,
            floors=draft.floors,
            rubric=draft.rubric,
            choice_orders=draft.choice_orders,
            judge_probe=draft.judge_probe,
            asked_again=draft.asked_again,
            stopped_early=draft.stopped_early,
            urgent_notes=draft.notes.urgent,
        ),
        usage=draft.usage,
        provenance=provenance,
        instances=records,
        reportable=is_covered and not reasons,
        status=_status_of(draft),
        something_to_ask=tally.something_to_ask,
        comparability=comparability_of(facts),
    )


def _main_first(scores: Mapping[str, Score], main: str) -> dict[str, Score]:
    """Return the scores, with the score of the main metric first."""
    ordered = {}
    if main in scores:
        ordered[main] = scores[main]
    return ordered | dict(scores)  # A key that is already in `ordered` keeps its position.


def _status_of(draft: Draft) -> RunStatus:
    """Return COMPLETE if every instance has a score and no judgement failed, else PARTIAL."""
    all_judged = not any(counts.failed for counts in draft.tally.judges.values())
    if draft.instances.scored == draft.instances.requested and all_judged:
        return RunStatus.COMPLETE
    return RunStatus.PARTIAL
