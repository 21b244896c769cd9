"""The rubric of a finished run: what its judges said of each case, and what follows for the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eval_factory.core.results import JudgeCounts, Judgements, Score
from eval_factory.core.rubric_results import RubricReport
from eval_factory.helm import output
from eval_factory.helm.model_files import deployment_of
from eval_factory.helm.rubric_annotations import decisions_of, error_of, said_of
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.groups import SMALLEST_GROUP, Groups
from eval_factory.scoring.jury_agreement import family_of
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.request_states import has_failed
from eval_factory.scoring.rubric_scores import (
    JudgedCase,
    agreement_on,
    bounds_over_criteria,
    clipped,
    field_of,
    report_of,
    scores_by_tag,
)
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.rubric.rubric_case import RUBRICS, TAGS, UNCLIPPED, Criterion, share_met

VERDICTS = {1.0: "met", 0.0: "not met", 0.5: "tied", None: "unjudged"}
"""What the majority of the judges says of a criterion."""


@dataclass
class RubricTally:
    """The cases of one run, added up while its requests are gone through."""

    metric: str
    judges: tuple[str, ...]
    families: Mapping[str, bool | None]
    """Judge -> whether it and the model are of one family."""
    cases: dict[InstanceKey, JudgedCase] = field(default_factory=dict)
    errors: dict[str, list[str | None]] = field(default_factory=dict)
    """Judge -> why it gave no decision, a reason a criterion."""

    @classmethod
    def of(cls, plan: Plan, run: output.HelmRun) -> RubricTally | None:
        """None where the run has no rubric."""
        rubric = run.rubric
        if rubric is None:
            return None
        own = family_of(plan.model.model_id)
        of_deployment = {deployment_of(one): family_of(one.model_id) for one in plan.judges}
        families = {name: of_deployment.get(deployment) for name, deployment in rubric.judges.items()}
        same = {name: None if None in (own, one) else own == one for name, one in families.items()}
        return cls(rubric.metric, tuple(rubric.judges), same)

    def add(self, key: InstanceKey, state: output.RequestState) -> None:
        criteria = criteria_of(state)
        tags = tuple((state.instance.extra_data or {}).get(TAGS, ()))
        if has_failed(state):
            self.cases[key] = JudgedCase(criteria, None, tags)
            return
        votes = decisions_of(state.annotations, self.judges, len(criteria))
        self.cases[key] = JudgedCase(criteria, tuple(votes), tags)
        said = said_of(state.annotations, len(criteria))
        for judge in self.judges:
            missing = [error_of(one, judge) for one, vote in zip(said, votes, strict=True) if vote[judge] is None]
            self.errors.setdefault(judge, []).extend(missing)

    def tell(self, tally: Tally, metrics: Iterable[MetricValues]) -> None:
        """Which cases have no score, why judges failed, the fields by which cases are grouped, and the least score that
        each case can have."""
        for metric in metrics:
            if metric.name == self.metric:
                metric.lowest = {key: case.lowest() for key, case in self.cases.items()}
        tally.judges = self._counts()
        for judge, reasons in self.errors.items():
            for reason in reasons:
                tally.causes.add(judge, reason)
        for key, case in self.cases.items():
            if case.votes is not None and case.score() is None:
                tally.unjudged.add(key)
                tally.undecided.add(key)
            for tag in case.tags:
                name, value = field_of(tag)
                tally.members[name][value].append(key)

    def _counts(self) -> dict[str, JudgeCounts]:
        asked = sum(len(case.votes) for case in self.cases.values() if case.votes is not None)
        failed = {judge: len(self.errors.get(judge, ())) for judge in self.judges}
        return {
            judge: JudgeCounts(asked, asked - count, count, self.families[judge]) for judge, count in failed.items()
        }

    def judgements(self) -> Judgements:
        """A decision of each judge about each criterion is due, those about answers that did not come among them."""
        due = len(self.judges) * sum(len(case.criteria) for case in self.cases.values())
        given = sum(met is not None for case in self.cases.values() for one in case.votes or () for met in one.values())
        return Judgements(due, given)

    def report(self) -> RubricReport:
        return report_of(self.cases, self.judges)

    def complete(self, scores: dict[str, Score], bounds: dict[str, tuple[float, float]]) -> None:
        """The published score in the place of HELM's mean, which stands beside it; bounds over open criteria."""
        whole = scores.get(self.metric)
        if whole is not None:
            scores[self.metric] = clipped(whole)
            scores[self.metric + UNCLIPPED] = replace(whole, metric=self.metric + UNCLIPPED, scale=None)
        found = bounds_over_criteria(self.cases)
        if found is not None:
            bounds[self.metric] = found

    def with_tags(self, groups: Groups, metric: MetricValues | None, *, failed_as_zero: bool = False) -> Groups:
        """The groups of cases, clipped as published, and those of criteria, of which few cases make no group either."""
        hidden = dict(groups.hidden)
        scores = {
            name: {value: {label: clipped(score) for label, score in of.items()} for value, of in by_value.items()}
            for name, by_value in groups.scores.items()
        }
        of_criteria = {} if metric is None else scores_by_tag(metric, self.cases, failed_as_zero=failed_as_zero)
        of_cases = scores.keys() | hidden.keys()
        for tag, by_value in of_criteria.items():  # a field of cases and of criteria: the cases' is the plainer one
            name = f"criterion_{tag}" if tag in of_cases else tag
            sizes = {value: max(score.stats.count for score in of.values()) for value, of in by_value.items()}
            if small := [size for size in sizes.values() if size < SMALLEST_GROUP]:
                hidden[name] = small
            if shown := {value: of for value, of in by_value.items() if sizes[value] >= SMALLEST_GROUP}:
                scores[name] = shown
        return Groups(scores, hidden)

    def not_reportable(self, most: float) -> tuple[str, ...]:
        """
        Args:
            most: the greatest share of criteria, from 0 to 1, that a judge may leave undecided
                (`extra.max_judge_failures`).
        """
        return tuple(
            f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} criteria, and"
            f" max_judge_failures is {most:g}: the same command asks it again (validity.failures say why it failed);"
            " extra.judges may name another judge; extra.max_judge_failures accepts more"
            for judge, counts in self._counts().items()
            if counts.asked and counts.failed / counts.asked > most
        )

    def notes(self, scores: Mapping[str, Score]) -> Iterator[Note]:
        found = self.report().criteria
        if found.unjudged:
            without = sum(case.votes is not None and case.score() is None for case in self.cases.values())
            yield Note(
                Importance.INCOMPLETE,
                f"{found.unjudged} of {found.asked} criteria are unjudged: their {without} cases have no score, and"
                " bounds count these criteria both ways; the same command asks their judges again",
            )
        if found.tied:
            yield Note(
                Importance.DOUBTFUL,
                f"of {found.tied} of {found.asked} criteria as many judges say met as not met: they count half their"
                " points; an odd number of judges has no ties",
            )
        raw = scores.get(self.metric + UNCLIPPED)
        if raw is not None and raw.value < 0:
            yield Note(
                Importance.DOUBTFUL,
                f"the cases' mean is {raw.value:.4f} ({self.metric}{UNCLIPPED}); it is clipped to 0, as published",
            )

    def criteria_in(self, state: output.RequestState) -> tuple[dict[str, Any], ...]:
        """Each criterion of a case with what the judges said of it, for results.jsonl."""
        criteria = criteria_of(state)
        votes = decisions_of(state.annotations, self.judges, len(criteria))
        said = said_of(state.annotations, len(criteria))
        found = []
        for one, vote, words in zip(criteria, votes, said, strict=True):
            agreement = agreement_on(vote)
            told = {**one.as_dict(), "verdict": VERDICTS[share_met(vote.values())], "judges": words}
            found.append(told if agreement is None else {**told, "agreement": agreement})
        return tuple(found)

    def fields_of(self, key: InstanceKey) -> dict[str, str]:
        """Field -> its value in a case, by its tags; several values in one text."""
        found: dict[str, list[str]] = {}
        for tag in self.cases[key].tags:
            name, value = field_of(tag)
            found.setdefault(name, []).append(value)
        return {name: ", ".join(values) for name, values in found.items()}

    def scores_by_judge(self, key: InstanceKey) -> dict[str, float]:
        """Judge -> the score of a case by it alone; without those that left a criterion undecided."""
        by_judge = {judge: self.cases[key].score_by(judge) for judge in self.judges}
        return {judge: score for judge, score in by_judge.items() if score is not None}


def criteria_of(state: output.RequestState) -> tuple[Criterion, ...]:
    return tuple(Criterion.from_dict(one) for one in (state.instance.extra_data or {}).get(RUBRICS, ()))
