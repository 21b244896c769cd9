"""HELM's output and the request journal -> one typed result with its validity: the list of parts,
in their order.

Files that grow with the instances are gone through entry by entry; every part sees each request.
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
from eval_factory.scoring.judge_correction import RubricCorrection
from eval_factory.scoring.jury import Jury
from eval_factory.scoring.main_metric import Grouping, MainMetric
from eval_factory.scoring.metric_scores import MetricScores, UnscorableAnswers
from eval_factory.scoring.part import Part, go_through_phases
from eval_factory.scoring.provenance import Remembered, provenance_of
from eval_factory.scoring.readability import Readability, answer_form_of
from eval_factory.scoring.reasoned_answers import (
    ReasonedValues,
    is_reasoned,
    reasoned_form,
    with_reasoned,
)
from eval_factory.scoring.reportable import reasons_against
from eval_factory.scoring.request_states import key_of
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.run_notes import NotesOnLabels, NotesOnRun, notes_on_age
from eval_factory.scoring.scores import MetricValues, metric_values_of
from eval_factory.scoring.sequential import Looks
from eval_factory.scoring.stated_models import StatedModels
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.asking_forms import is_asked_again, is_in_another_form


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
    """Collect the result of a finished helm-run.

    Args:
        plan: what was run.
        runs: the run folders that helm-run wrote; a task is one.
        run_id: the attempts of the run in the journal.
        wall_s: the run's time, in seconds.
        git_hash: the commit of this program, if it runs from a repository.
        data_bundle: what is stored of the bundle that the data came from.
        remembered: what is known of an earlier collection, whose data or logs may be gone since.
    """
    run = output.read_run(runs[0])
    usage, changes, used = journal.usage_of(plan, run_id, wall_s)
    parts = RunParts.of(plan, run, used, remembered)
    draft = Draft(plan, run, parts.split, parts.tally, list(parts.own_metrics), usage, changes)
    if remembered is not None:
        draft.earlier_notes = remembered.notes
    if parts.looks is not None:
        draft.looks = len(parts.looks.sizes)
    listed = parts.listed()
    for state in run.request_states():
        _show(state, listed)
    go_through_phases(listed, draft)
    scenario = run.scenario_name or plan.evaluation.task.helm.scenario
    prompts = parts.tally.prompts.hexdigest()
    provenance = provenance_of(plan, scenario, prompts, git_hash, data_bundle, draft.asked, run_id)
    if remembered is not None:
        provenance = remembered.completed(plan, provenance)
    return with_clinicians(_result(draft, parts.records(draft), provenance), plan.rundir)


def _show(state: output.RequestState, parts: Sequence[Part]) -> None:
    """Show a request to every part."""
    key = key_of(state)
    if is_in_another_form(key[2]):
        for part in parts:
            part.see_other_form(key, state)
    else:
        for part in parts:
            part.see(key, state)


@dataclass(frozen=True)
class RunParts:
    """The parts of a run's result; None if the task or the configuration has no such part."""

    split: str | None
    own_metrics: Sequence[MetricValues]
    """The metrics without those of questions whose choices stand in another order."""
    answers: journal.StoredAnswers
    tally: Tally
    stated: StatedModels
    readability: Readability
    right: RightAnswers
    orders: ChoiceOrderCheck | None
    again: Askings | None
    floors: FloorScores
    corrections: Corrections
    rubric: RubricTally | None
    correction: RubricCorrection | None
    jury: Jury | None
    looks: Looks | None

    @classmethod
    def of(
        cls,
        plan: Plan,
        run: output.HelmRun,
        used: Collection[str],
        remembered: Remembered | None,
    ) -> RunParts:
        """Make the parts before any request is seen. `used`: keys of the answers in the result."""
        entry = plan.evaluation.task.helm
        split = run.main_split(entry.main_split)
        orders, metrics = ChoiceOrderCheck.of(
            plan, run, with_reasoned(plan, metric_values_of(run, split))
        )
        plain = [metric for metric in metrics if not is_asked_again(metric.perturbation)]
        sources: Mapping[str, str] = {}
        if remembered is not None:
            sources = remembered.sources
        tally = Tally.of(plan, run, sources)
        stated = StatedModels(plan.endpoints, used, journal.read_servers(plan.rundir.cache_db))
        answers = journal.StoredAnswers.of(plan, stated.add)
        main, _ = chosen_main_metric(entry, [metric.label for metric in plain])  # of HELM's own
        readability, right = _readers(plan, run, main, answers)
        if orders is not None:
            orders.right = right
        rubric = RubricTally.of(plan, run)
        jury = None
        if run.jury is not None:
            jury = Jury(plan, run.jury, tally)
        return cls(
            split,
            metrics,
            answers,
            tally,
            stated,
            readability,
            right,
            orders,
            Askings.of(plan, right, answers.logprobs_of),
            FloorScores(plan, run, plain),
            Corrections.of(plan, metrics),
            rubric,
            RubricCorrection.of(plan, rubric),
            jury,
            Looks.of(plan),
        )

    def listed(self) -> list[Part]:
        """Return the parts in their order; behind each why it stands where it does.

        Notes of one weight have this order within a phase.
        """
        parts: list[Part | None] = [
            self.tally,
            # it sees each answer before the part below, which asks it
            self._compares_answers(),
            ReasonedValues(self.right, self._other_orders()),  # before anything counts values
            UnscorableAnswers(),  # marked in HELM's metrics alone, before others are made of them
            self.corrections,
            self.readability,  # its lenient metrics stand after the corrected ones
            self.orders,
            NotesOnRun(),
            self.again,  # its letters stand beside the lenient metrics
            MetricScores(),  # when metrics of repeated requests are taken out: none is a score
            ProbedJudges(self.rubric, self.jury),  # its finding is a floor
            self.floors,
            self.looks,  # a rule may be about the floor
            NotesOnLabels(),  # the other end: as high as labels allow
            Grouping(),  # groups of the mean over repeats, if that is the main score
            # after the lenient metrics: its marks of empty answers are the last change of a value
            self.jury,
            self.rubric,  # its groups by tags take no name of a field's group
            self.correction,  # by the cases that the rubric's judges decided
            MainMetric(),  # when published scores are there
            self.stated,
        ]
        return [part for part in parts if part is not None]

    def _compares_answers(self) -> RightAnswers | None:
        if self.again is None and self.orders is None and self.right.reader is None:
            return None
        return self.right

    def _other_orders(self) -> Sequence[MetricValues]:
        if self.orders is None:
            return ()
        return self.orders.by_order

    def records(self, draft: Draft) -> InstanceRecords:
        """Return the records of the instances, by the metrics of a finished draft."""
        columns = [*draft.metrics, *self._other_orders()]
        if self.again is not None:
            columns += self.again.metrics
        judges: Mapping[str, str] = {}
        if self.jury is not None:
            judges = self.jury.names
        return InstanceRecords(
            draft.run,
            columns,
            self.answers,
            self.tally,
            draft.jury_metric,
            self.readability,
            judges,
            self.rubric,
        )


def _readers(
    plan: Plan, run: output.HelmRun, main: str, answers: journal.StoredAnswers
) -> tuple[Readability, RightAnswers]:
    """Return what reads answers: in the form of the benchmark, or in that of reasoned answers."""
    form = answer_form_of(plan.evaluation.task.helm, run, main)
    reader = None
    if is_reasoned(plan):
        reader = reasoned_form(form)
    pattern = run.run_spec.adapter_spec.output_mapping_pattern
    return Readability(reader or form, answers.to), RightAnswers(form, pattern, reader)


def _result(draft: Draft, records: InstanceRecords, provenance: Provenance) -> TaskResult:
    tally = draft.tally
    instances = draft.instances
    # the last: of most public benchmarks it is true
    draft.notes.extend(notes_on_age(draft.plan, provenance))
    different_instances = sum(map(len, tally.splits.values()))
    adapter = draft.run.run_spec.adapter_spec
    facts = ComparedRun(draft.plan, adapter, instances, different_instances, provenance)
    min_coverage = draft.plan.evaluation.extra.min_coverage
    reasons = reasons_against(draft)
    return TaskResult(
        task=draft.plan.task_name,
        main_metric=draft.main,
        scores=_main_first(draft.scores, draft.main) | draft.further_scores,
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
            reasons,
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
        reportable=draft.main in draft.scores
        and instances.coverage >= min_coverage
        and not reasons,
        status=_status_of(draft),
        something_to_ask=tally.something_to_ask,
        comparability=comparability_of(facts),
    )


def _main_first(scores: Mapping[str, Score], main: str) -> dict[str, Score]:
    ordered = {}
    if main in scores:
        ordered[main] = scores[main]
    return ordered | dict(scores)


def _status_of(draft: Draft) -> RunStatus:
    all_judged = not any(counts.failed for counts in draft.tally.judges.values())
    if draft.instances.scored == draft.instances.requested and all_judged:
        return RunStatus.COMPLETE
    return RunStatus.PARTIAL
