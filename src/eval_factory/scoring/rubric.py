"""Scores a run by a rubric: judges decide about each criterion whether the answer meets it.

A case is an instance with criteria. A criterion is a statement about the answer, with points that
the answer gets if the statement is true. A judge's decision is also called a vote. The module
collects the judges' decisions, and computes scores, bounds and the judges' agreement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Any

from eval_factory.core import formats
from eval_factory.core.results import (
    JudgeCounts,
    Judgements,
    PairAgreement,
    RubricReport,
    RubricVotes,
    Score,
)
from eval_factory.helm import output
from eval_factory.helm.command import deployment_of
from eval_factory.helm.criteria import decisions_of, error_of, recorded_decisions
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.agreement import length_correlation, ordinal_alpha, weighted_kappa
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.groups import SMALLEST_GROUP, Groups
from eval_factory.scoring.intervals import Bounds
from eval_factory.scoring.jury import MIN_DECISIONS, notes_on_length
from eval_factory.scoring.model_families import same_family
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.scoring.request_states import answer_text_of, has_failed
from eval_factory.scoring.scores import InstanceKey, MetricValues, helm_mean, mean_score
from eval_factory.tasks.asking_forms import is_further_asking
from eval_factory.tasks.rubric_case import (
    LENGTH_ADJUSTED_SUFFIX,
    PROFESSIONAL_METRIC,
    RUBRICS_KEY,
    TAGS_KEY,
    UNADJUSTED_LENGTH,
    UNCLIPPED_SUFFIX,
    Criterion,
    case_bounds,
    case_score,
    length_adjusted,
    range_by_majority,
    share_by_majority,
)

Votes = Mapping[str, bool | None]
"""Judge -> True if the judge calls a criterion met, False if not met, None without a decision."""
GroupScores = Mapping[str, Mapping[str, Mapping[str, Score]]]
"""Field -> value -> label of a metric -> score."""
_ANY_SHARE = (0.0, 1.0)  # the range of the share of points that a criterion may give


@dataclass(frozen=True)
class JudgedCase:
    """A case with the judges' decisions about its criteria."""

    criteria: tuple[Criterion, ...]
    votes: tuple[Votes, ...] | None  # one for each criterion; None if there is no answer
    tags: tuple[str, ...] = ()  # the tags of the case itself, not of its criteria

    def shares(self) -> list[float | None]:
        """Return for each criterion the share of its points that the majority of the judges gives.

        The share is 1 (met), 0 (not met), 0.5 (a tie), or None if no judge decided.
        """
        if self.votes is None:
            return [None] * len(self.criteria)
        return [share_by_majority(votes.values()) for votes in self.votes]

    def score(self) -> float | None:
        """Return the score by the majority; None if no judge decided about some criterion."""
        return case_score(self.criteria, self.shares())

    def score_by(self, judge: str) -> float | None:
        """Return the score by one judge alone; None if the judge left a criterion undecided.

        Args:
            judge: the name of the judge, as in `votes`.
        """
        if self.votes is None:  # without an answer, all criteria are undecided
            return case_score(self.criteria, [None] * len(self.criteria))
        return case_score(self.criteria, [_as_share(votes.get(judge)) for votes in self.votes])

    def bounds(self) -> Bounds | None:
        """Return the lowest and the highest score that the missing decisions allow.

        Return None if the case cannot have a score.
        """
        if self.votes is None:
            return case_bounds(self.criteria, [_ANY_SHARE] * len(self.criteria))
        return case_bounds(
            self.criteria, [range_by_majority(list(votes.values())) for votes in self.votes]
        )

    def lowest_score(self, tag: str | None = None) -> float:
        """Return the lowest score that the case can have.

        Args:
            tag: count only criteria with this tag; all criteria if None.
        """
        criteria = self.criteria
        if tag is not None:
            criteria = tuple(criterion for criterion in criteria if tag in criterion.tags)
        bounds = case_bounds(criteria, [_ANY_SHARE] * len(criteria))
        if bounds is None:  # the case cannot have a score
            return 0.0
        return bounds[0]

    def score_of_tag(self, tag: str, shares: Sequence[float | None]) -> float | None:
        """Return the score over the criteria with this tag.

        Args:
            tag: the tag.
            shares: the shares that the method `shares` returns, one for each criterion.
        """
        tagged_criteria = []
        tagged_shares = []
        for criterion, share in zip(self.criteria, shares, strict=True):
            if tag in criterion.tags:
                tagged_criteria.append(criterion)
                tagged_shares.append(share)
        return case_score(tagged_criteria, tagged_shares)

    def tags_of_criteria(self) -> set[str]:
        """Return the tags of all criteria of the case."""
        return set(chain.from_iterable(criterion.tags for criterion in self.criteria))


def _as_share(met: bool | None) -> float | None:
    """Return 1.0 for met, 0.0 for not met, and None without a decision."""
    if met is None:
        return None
    return float(met)


Cases = Mapping[InstanceKey, JudgedCase]


def clipped(score: Score) -> Score:
    """Return a benchmark's score, clipped to 0 .. 1, with its interval.

    HealthBench publishes the clipped mean of the cases' scores. The scores of single cases are not
    clipped.
    """
    stats = replace(
        score.stats,
        mean=_in_range(score.stats.mean),
        ci_low=_end_in_range(score.stats.ci_low),
        ci_high=_end_in_range(score.stats.ci_high),
    )
    return replace(score, value=_in_range(score.value), stats=stats)


def _in_range(value: float) -> float:
    """Return the value, clipped to 0 .. 1."""
    return min(1.0, max(0.0, value))


def _end_in_range(end: float | None) -> float | None:
    """Return the end of an interval, clipped to 0 .. 1; None if there is no interval."""
    if end is None:
        return None
    return _in_range(end)


def bounds_over_criteria(cases: Cases) -> Bounds | None:
    """Return the lowest and the highest clipped score that the missing decisions allow.

    Return None if no case has bounds.
    """
    low = {}
    high = {}
    for key, case in cases.items():
        bounds = case.bounds()
        if bounds is not None:
            low[key], high[key] = bounds
    if not low:
        return None
    return _in_range(helm_mean(low)), _in_range(helm_mean(high))


def scores_by_tag(
    metric: MetricValues, cases: Cases, *, failed_as_zero: bool = False
) -> dict[str, dict[str, dict[str, Score]]]:
    """Return the scores over the criteria with each tag, as in `GroupScores`.

    A tag consists of a field and a value (`field_of`). The scores of HealthBench's axes are such
    scores. Each case has one score for each tag, so the intervals are over cases.

    Args:
        metric: the rubric's metric.
        cases: the judged cases.
        failed_as_zero: count a case without an answer as 0.
    """
    by_tag: dict[str, dict[InstanceKey, float]] = defaultdict(dict)
    for key, case in cases.items():
        shares = case.shares()
        if failed_as_zero and case.votes is None:
            shares = [0.0] * len(case.criteria)
        for tag in case.tags_of_criteria():
            score = case.score_of_tag(tag, shares)
            if score is not None:
                by_tag[tag][key] = score
    scores: dict[str, dict[str, dict[str, Score]]] = defaultdict(dict)
    for tag, case_scores in sorted(by_tag.items()):
        field_name, value = field_of(tag)
        lowest = {key: cases[key].lowest_score(tag) for key in case_scores}
        score_of_tag = mean_score(replace(metric, lowest=lowest), case_scores)
        scores[field_name][value] = {metric.label: clipped(score_of_tag)}
    return dict(scores)


def field_of(tag: str) -> tuple[str, str]:
    """Return the field and the value of a tag.

    `axis:accuracy` has the field `axis` and the value `accuracy`; `urgent` has the field `tag`.
    """
    field_name, _, value = tag.partition(":")
    if field_name and value:
        return field_name, value
    return "tag", tag


def _agreements(
    votes: Sequence[Votes], judges: Sequence[str]
) -> Iterator[tuple[str, PairAgreement]]:
    """Yield the agreement of each pair of judges, over the criteria that both judges decided."""
    for first_judge, second_judge in combinations(judges, 2):
        pairs = []
        for by_judge in votes:
            first_decision = by_judge[first_judge]
            second_decision = by_judge[second_judge]
            if first_decision is not None and second_decision is not None:
                pairs.append((float(first_decision), float(second_decision)))
        if pairs:
            same = _share_same(pairs)
            agreement = PairAgreement(len(pairs), same, weighted_kappa(pairs))
            yield f"{first_judge}/{second_judge}", agreement


def _share_same(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the share of pairs of equal decisions."""
    return sum(first == second for first, second in pairs) / len(pairs)


def _decided(votes: Votes) -> list[bool]:
    """Return the decisions about a criterion, without those of judges who did not decide."""
    return [met for met in votes.values() if met is not None]


def report_of(cases: Cases, judges: Sequence[str]) -> RubricReport:
    """Return a report on the judges' decisions.

    A criterion is met if the majority of the judges calls it met, and tied if exactly half of the
    judges call it met.
    """
    votes: list[Votes] = []  # one for each criterion of each answered case
    for case in cases.values():
        votes.extend(case.votes or ())
    decisions = list(map(_decided, votes))  # for each criterion
    ratings = [list(map(int, met)) for met in decisions]  # 1 for met, 0 for not met
    counts = {judge: _votes_of_judge(cases, votes, judge) for judge in judges}
    return RubricReport(
        criteria=_counted(list(map(share_by_majority, decisions))),
        judges=counts,
        agreement=dict(_agreements(votes, judges)),
        krippendorff_alpha=ordinal_alpha(ratings),
        unanimous=_share_unanimous(decisions),
        constant=tuple(judge for judge in judges if _is_constant(counts[judge])),
    )


def _votes_of_judge(cases: Cases, votes: Sequence[Votes], judge: str) -> RubricVotes:
    """Return the numbers of a judge's decisions, and the mean score by this judge alone.

    The mean is over the cases that the judge scored; it is None if there are none.
    """
    scores = {}
    for key, case in cases.items():
        score = case.score_by(judge)
        if score is not None:
            scores[key] = score
    mean = None
    if scores:
        mean = helm_mean(scores)
    return _counted([_as_share(by_judge.get(judge)) for by_judge in votes], mean)


def _share_unanimous(decisions: Sequence[Sequence[bool]]) -> float | None:
    """Return the share of unanimous criteria among the criteria that several judges decided.

    Return None if there are no such criteria.

    Args:
        decisions: the decisions about each criterion, as `_decided` returns them.
    """
    by_several = [met for met in decisions if len(met) > 1]
    if not by_several:
        return None
    return sum(len(set(met)) == 1 for met in by_several) / len(by_several)


def _is_constant(votes: RubricVotes) -> bool:
    """Return True if all of the judge's decisions, at least `MIN_DECISIONS`, are equal."""
    decided = votes.met + votes.not_met
    are_equal = votes.met == 0 or votes.not_met == 0
    return decided >= MIN_DECISIONS and are_equal


def _counted(shares: Sequence[float | None], score: float | None = None) -> RubricVotes:
    """Return the numbers of all, met, not met, undecided and tied criteria, and the score.

    Args:
        shares: 1 (met), 0 (not met), 0.5 (tied) or None (undecided), for each criterion.
        score: the mean score; None if it is not known.
    """
    return RubricVotes(
        asked=len(shares),
        met=shares.count(1.0),
        not_met=shares.count(0.0),
        unjudged=shares.count(None),
        tied=shares.count(0.5),
        score=score,
    )


VERDICTS = {1.0: "met", 0.0: "not met", 0.5: "tied", None: "unjudged"}
"""The majority's decision about a criterion, as a share of its points -> its word in a result."""


@dataclass
class RubricTally(Part):
    """The part of a result that collects the judges' decisions and scores the cases."""

    metric: str
    judges: tuple[str, ...]
    # judge -> True if the judge and the evaluated model are of one family; None if not known
    families: Mapping[str, bool | None]
    cases: dict[InstanceKey, JudgedCase] = field(default_factory=dict)
    errors: dict[str, list[str | None]] = field(default_factory=dict)
    """Judge -> the reasons for missing decisions, one for each criterion left undecided."""
    # the length of each answer, in characters
    lengths: dict[InstanceKey, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, run: output.HelmRun) -> RubricTally | None:
        """Return a tally, or None if the run has no rubric."""
        if run.rubric is None:
            return None
        metric, judges = run.rubric  # a dict from a judge to its deployment in HELM
        models = {deployment_of(judge): judge.model_id for judge in plan.judges}
        families = {}
        for name, deployment in judges.items():
            # An empty model id has no known family.
            families[name] = same_family(plan.model.model_id, models.get(deployment, ""))
        return cls(metric, tuple(judges), families)

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store the judges' decisions about an answer, and the reasons for missing decisions."""
        criteria = _criteria_of(state)
        tags = tuple((state.instance.extra_data or {}).get(TAGS_KEY, ()))
        if has_failed(state):
            self.cases[key] = JudgedCase(criteria, votes=None, tags=tags)
            return
        self.lengths[key] = len(answer_text_of(state))
        votes = decisions_of(state.annotations, self.judges, len(criteria))
        self.cases[key] = JudgedCase(criteria, votes=tuple(votes), tags=tags)
        # for each criterion, HELM's records of the decisions, by judge
        records = recorded_decisions(state.annotations, len(criteria))
        for record, vote in zip(records, votes, strict=True):
            for judge in self.judges:
                if vote[judge] is None:
                    reason = error_of(record, judge)
                    self.errors.setdefault(judge, []).append(reason)

    def count(self, draft: Draft) -> None:
        """Count each judge's decisions and failures, and the answered cases without a score.

        Also complete the rubric's metrics, and add the fields by which cases are grouped. The
        metrics are completed in this first phase, because other parts change them in the next
        phase.
        """
        self._complete_metrics(draft)
        tally = draft.tally
        # A case without an answer has no votes, so its criteria do not count.
        number_of_criteria = sum(len(case.votes or ()) for case in self.cases.values())
        for judge in self.judges:
            reasons = self.errors.get(judge, [])
            tally.judges[judge] = JudgeCounts(
                asked=number_of_criteria,
                scored=number_of_criteria - len(reasons),
                failed=len(reasons),
                same_family=self.families[judge],
            )
            for reason in reasons:
                tally.causes.add(judge, reason)
        for key, case in self.cases.items():
            if _lacks_decisions(case):
                tally.unjudged.add(key)  # is counted in the result, as for a jury
                tally.unscored_cases.add(key)  # is missing from every metric of the run
            for name, value in map(field_of, case.tags):
                tally.members[name][value].append(key)

    def _complete_metrics(self, draft: Draft) -> None:
        """Set the lowest possible score of each case in the rubric's metrics.

        For HealthBench Professional, also add the metrics of length-adjusted scores.
        """
        metrics = [metric for metric in draft.metrics if metric.name == self.metric]
        for metric in metrics:
            metric.lowest = {key: case.lowest_score() for key, case in self.cases.items()}
        if self.metric == PROFESSIONAL_METRIC:
            draft.metrics += map(self._length_adjusted, metrics)

    def _length_adjusted(self, metric: MetricValues) -> MetricValues:
        """Return the metric of the scores after the adjustment for the length of answers.

        An instance without an answer is also in the new metric, with its unadjusted value. Only
        instances in a metric are counted as missing from it, and included in its bounds.
        """
        values = {}
        for key, value in metric.values.items():
            # With `UNADJUSTED_LENGTH`, the value stays as it is.
            length = self.lengths.get(key, UNADJUSTED_LENGTH)
            values[key] = length_adjusted(value, length)
        label = f"{metric.label}{LENGTH_ADJUSTED_SUFFIX}"
        return MetricValues(
            label=label,
            name=label,
            helm_mean=None,
            scale=None,
            values=values,
            split=metric.split,
            perturbation=metric.perturbation,
        )

    def publish(self, draft: Draft) -> None:
        """Replace HELM's mean by the clipped score, as published; add bounds and notes.

        HELM's mean is reported as well, with the suffix `.unclipped`.
        """
        helm_score = draft.scores.get(self.metric)
        if helm_score is not None:
            draft.scores[self.metric] = clipped(helm_score)
            draft.scores[self.metric + UNCLIPPED_SUFFIX] = replace(
                helm_score, metric=self.metric + UNCLIPPED_SUFFIX, scale=None
            )
        asked_once = {}
        for key, case in self.cases.items():
            _, _, perturbation = key  # for further askings, the name of the asking
            if not is_further_asking(perturbation):
                asked_once[key] = case
        bounds = bounds_over_criteria(asked_once)
        if bounds is not None:
            draft.bounds[self.metric] = bounds
        draft.notes.extend(self.notes(draft.scores))

    def report(self, draft: Draft) -> None:
        """Report the judges' decisions, and how their scores depend on the length of answers.

        A decision of each judge about each criterion is due, even if an answer is missing.
        """
        correlations = {}
        for judge in self.judges:
            correlations[judge] = length_correlation(self._scores_and_lengths(judge))
        draft.rubric = replace(report_of(self.cases, self.judges), length_correlation=correlations)
        draft.notes.extend(notes_on_length(correlations))
        due = 0
        for case in self.cases.values():
            due += len(self.judges) * len(case.criteria)
        received = 0
        for votes in draft.rubric.judges.values():
            received += votes.asked - votes.unjudged
        draft.judgements = Judgements(due=due, given=received)
        draft.judged = "criteria"

    def _scores_and_lengths(self, judge: str) -> list[tuple[float, int]]:
        """Return the score by this judge and the length of each answer that the judge scored."""
        pairs = []
        for key, length in self.lengths.items():
            score = self.cases[key].score_by(judge)
            if score is not None:
                pairs.append((score, length))
        return pairs

    def group(self, draft: Draft) -> None:
        """Clip the scores of groups of cases, and add scores of groups of criteria.

        A group of criteria is hidden if it has too few cases.
        """
        hidden = dict(draft.groups.hidden)
        scores = _clipped_groups(draft.groups.scores)
        criterion_scores: GroupScores = {}
        if draft.main_values is not None:
            criterion_scores = scores_by_tag(
                draft.main_values, self.cases, failed_as_zero=draft.missing_as_zero
            )
        case_fields = scores.keys() | hidden.keys()
        for criterion_field, by_value in criterion_scores.items():
            name = criterion_field
            if name in case_fields:  # cases have a field with this name, too
                name = f"criterion_{criterion_field}"
            shown = {}
            small = []  # the sizes of the hidden groups
            for value, by_metric in by_value.items():
                number_of_cases = max(score.stats.count for score in by_metric.values())
                if number_of_cases < SMALLEST_GROUP:
                    small.append(number_of_cases)
                else:
                    shown[value] = by_metric
            if small:
                hidden[name] = small
            if shown:
                scores[name] = shown
        draft.groups = Groups(scores, hidden)

    def notes(self, scores: Mapping[str, Score]) -> Iterator[Note]:
        """Yield notes on constant judges, missing decisions, ties and a negative mean.

        A judge is constant if all of its decisions are equal.
        """
        report = report_of(self.cases, self.judges)
        counts = report.criteria
        for judge in report.constant:
            votes = report.judges[judge]
            decision = "not met"
            if votes.met:
                decision = "met"
            same = f"judge {judge} calls all {votes.met + votes.not_met} criteria {decision}"
            advice = (
                "its decisions do not distinguish good answers from bad answers: read some of "
                "them, or name another judge"
            )
            yield Note(Importance.DOUBTFUL, f"{same}; {advice}")
        if counts.unjudged:
            undecided = list(filter(_lacks_decisions, self.cases.values()))
            unjudged = (
                f"{counts.unjudged} of {counts.asked} criteria are unjudged: their "
                f"{len(undecided)} cases have no score"
            )
            bounds = (
                "bounds count these criteria both ways; the same command asks their judges again"
            )
            yield Note(Importance.INCOMPLETE, f"{unjudged}, and {bounds}")
        if counts.tied:
            tied = (
                f"the judges are divided equally on {counts.tied} of {counts.asked} criteria: as "
                "many say met as not met"
            )
            half = "a tied criterion counts half its points; an odd number of judges has no ties"
            yield Note(Importance.DOUBTFUL, f"{tied}: {half}")
        raw = scores.get(self.metric + UNCLIPPED_SUFFIX)
        if raw is not None and raw.value < 0:
            mean = (
                f"the cases' mean is {formats.score(raw.value)} ({self.metric}{UNCLIPPED_SUFFIX})"
            )
            yield Note(Importance.DOUBTFUL, f"{mean}; it is clipped to 0, as published")

    def criteria_in(self, state: output.RequestState) -> tuple[dict[str, Any], ...]:
        """Return each criterion with the judges' decisions and reasons, for results.jsonl.

        A dict has the fields of the criterion, the majority's `verdict` (a word of `VERDICTS`), and
        `judges`, a dict from a judge to the record of its decision. `agreement` is the share of
        pairs of judges with the same decision; it is absent if fewer than two judges decided.
        """
        criteria = _criteria_of(state)
        votes = decisions_of(state.annotations, self.judges, len(criteria))
        records = recorded_decisions(state.annotations, len(criteria))
        lines = []
        for criterion, vote, by_judge in zip(criteria, votes, records, strict=True):
            verdict = VERDICTS[share_by_majority(vote.values())]
            line = {**criterion.as_dict(), "verdict": verdict, "judges": by_judge}
            pairs = list(combinations(_decided(vote), 2))
            if pairs:
                line["agreement"] = _share_same(pairs)
            lines.append(line)
        return tuple(lines)

    def tag_fields_of(self, key: InstanceKey) -> dict[str, str]:
        """Return a dict from field to value of the case's tags; commas join several values."""
        fields: dict[str, str] = {}
        for name, value in map(field_of, self.cases[key].tags):
            if name in fields:
                fields[name] = f"{fields[name]}, {value}"
            else:
                fields[name] = value
        return fields

    def scores_by_judge(self, key: InstanceKey) -> dict[str, float]:
        """Return a dict from judge to the score of a case by this judge alone.

        Judges that left a criterion undecided are left out.
        """
        by_judge = {}
        for judge in self.judges:
            score = self.cases[key].score_by(judge)
            if score is not None:
                by_judge[judge] = score
        return by_judge


def _lacks_decisions(case: JudgedCase) -> bool:
    """Return True if the case has an answer, but no score.

    The reason is a criterion about which no judge decided.
    """
    return case.votes is not None and case.score() is None


def _clipped_groups(groups: GroupScores) -> dict[str, dict[str, Mapping[str, Score]]]:
    """Return the groups with all scores clipped to 0 .. 1."""
    clipped_groups: dict[str, dict[str, Mapping[str, Score]]] = {}
    for field_name, by_value in groups.items():
        clipped_groups[field_name] = {}
        for value, by_metric in by_value.items():
            scores = {label: clipped(score) for label, score in by_metric.items()}
            clipped_groups[field_name][value] = scores
    return clipped_groups


def _criteria_of(state: output.RequestState) -> tuple[Criterion, ...]:
    """Return the criteria of the request's instance."""
    rubrics = (state.instance.extra_data or {}).get(RUBRICS_KEY, ())
    return tuple(map(Criterion.from_dict, rubrics))
