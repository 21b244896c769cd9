"""Decisions about criteria -> the numbers of a rubric: scores by judge and tag, bounds, agreement. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from eval_factory.core.results import Score
from eval_factory.core.rubric_results import PairAgreement, RubricReport, RubricVotes
from eval_factory.scoring.krippendorff_alpha import ordinal_alpha
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.scores import helm_mean, mean_score
from eval_factory.tasks.rubric.rubric_case import Criterion, case_bounds, case_score, range_met, share_met

TAG = "tag"
"""The field of tags that name none: `axis:accuracy` is of the field axis, `urgent` of this one."""

Votes = Mapping[str, bool | None]
"""Judge -> whether it holds a criterion to be met; None where it gave no decision."""


@dataclass(frozen=True)
class JudgedCase:
    """A case with what the judges said of each of its criteria; `votes` is None where the answer did not come."""

    criteria: tuple[Criterion, ...]
    votes: tuple[Votes, ...] | None
    tags: tuple[str, ...] = ()

    def shares(self) -> list[float | None]:
        """Of each criterion what the majority says."""
        return [None] * len(self.criteria) if self.votes is None else [share_met(one.values()) for one in self.votes]

    def score(self) -> float | None:
        return case_score(self.criteria, self.shares())

    def score_by(self, judge: str) -> float | None:
        """The score by one judge alone; None where it left a criterion without a decision."""
        decided = [one.get(judge) for one in self.votes or [{}] * len(self.criteria)]
        return case_score(self.criteria, [None if met is None else float(met) for met in decided])

    def bounds(self) -> tuple[float, float] | None:
        ranges = [(0.0, 1.0)] * len(self.criteria) if self.votes is None else [
            range_met(list(one.values())) for one in self.votes
        ]  # fmt: skip
        return case_bounds(self.criteria, ranges)

    def lowest(self, tag: str | None = None) -> float:
        """The least score that it can have; over the criteria with this tag alone, where one is named."""
        criteria = [one for one in self.criteria if tag is None or tag in one.tags]
        found = case_bounds(criteria, [(0.0, 1.0)] * len(criteria))
        return 0.0 if found is None else found[0]

    def tags_of_criteria(self) -> set[str]:
        return {tag for one in self.criteria for tag in one.tags}

    def score_of_tag(self, tag: str, *, failed_as_zero: bool = False) -> float | None:
        """Over the criteria with this tag alone, as HealthBench's axes are computed.

        Args:
            failed_as_zero: 0 where the answer did not come, as in the score of the whole.
        """
        shares = [0.0] * len(self.criteria) if failed_as_zero and self.votes is None else self.shares()
        pairs = [(one, share) for one, share in zip(self.criteria, shares, strict=True) if tag in one.tags]
        return case_score([one for one, _ in pairs], [share for _, share in pairs])


Cases = Mapping[InstanceKey, JudgedCase]


def clipped(score: Score) -> Score:
    """The score of a benchmark from 0 to 1, as published; the scores of cases are not clipped."""
    stats = score.stats
    ends = [None if end is None else _in_range(end) for end in (stats.ci_low, stats.ci_high)]
    within = replace(stats, mean=_in_range(stats.mean), ci_low=ends[0], ci_high=ends[1])
    return replace(score, value=_in_range(score.value), stats=within)


def _in_range(value: float) -> float:
    return min(1.0, max(0.0, value))


def bounds_over_criteria(cases: Cases) -> tuple[float, float] | None:
    """The benchmark's score, clipped, if every criterion without a decision were judged against the answer, and if
    every one for it; None where no case has a score."""
    found = {key: bounds for key, case in cases.items() if (bounds := case.bounds()) is not None}
    if not found:
        return None
    low, high = ({key: ends[at] for key, ends in found.items()} for at in (0, 1))
    return _in_range(helm_mean(low)), _in_range(helm_mean(high))


def scores_by_tag(
    metric: MetricValues, cases: Cases, *, failed_as_zero: bool = False
) -> dict[str, dict[str, dict[str, Score]]]:
    """Field -> value -> metric -> score over the criteria with that tag: `axis:accuracy` is value accuracy of field
    axis. A case has one value in each, so intervals are over conversations."""
    by_tag: dict[str, dict[InstanceKey, float]] = defaultdict(dict)
    for key, case in cases.items():
        for tag in case.tags_of_criteria():
            score = case.score_of_tag(tag, failed_as_zero=failed_as_zero)
            if score is not None:
                by_tag[tag][key] = score
    found: dict[str, dict[str, dict[str, Score]]] = defaultdict(dict)
    for tag, values in sorted(by_tag.items()):
        field, value = field_of(tag)
        of_tag = replace(metric, lowest={key: cases[key].lowest(tag) for key in values})
        found[field][value] = {metric.label: clipped(mean_score(of_tag, values))}
    return dict(found)


def field_of(tag: str) -> tuple[str, str]:
    field, colon, value = tag.partition(":")
    return (field, value) if colon and field and value else (TAG, tag)


def report_of(cases: Cases, judges: Sequence[str]) -> RubricReport:
    """What the judges said, added up. A criterion is met where the majority says so, tied where as many say no."""
    votes = list(_votes(cases))
    shares = [share_met(one.values()) for one in votes]
    return RubricReport(
        criteria=_counted(shares),
        judges={judge: _of_judge(judge, cases, votes) for judge in judges},
        agreement=_pairs(votes, judges),
        krippendorff_alpha=_alpha(votes),
        unanimous=_unanimous(votes),
    )


def _votes(cases: Cases) -> Iterator[Votes]:
    for case in cases.values():
        yield from case.votes or ()


def _counted(shares: Sequence[float | None], score: float | None = None) -> RubricVotes:
    return RubricVotes(
        asked=len(shares),
        met=shares.count(1.0),
        not_met=shares.count(0.0),
        tied=shares.count(0.5),
        unjudged=shares.count(None),
        score=score,
    )


def _of_judge(judge: str, cases: Cases, votes: Iterable[Votes]) -> RubricVotes:
    decided = [None if (met := one.get(judge)) is None else float(met) for one in votes]
    values = {key: score for key, case in cases.items() if (score := case.score_by(judge)) is not None}
    return _counted(decided, helm_mean(values) if values else None)


def _pairs(votes: Sequence[Votes], judges: Sequence[str]) -> dict[str, PairAgreement]:
    """`one/other` -> how far two judges agree, over the criteria that both decided."""
    found = {}
    for one, other in combinations(judges, 2):
        pairs = [(votes_of[one], votes_of[other]) for votes_of in votes if None not in (votes_of[one], votes_of[other])]
        if pairs:
            same = sum(first == second for first, second in pairs)
            found[f"{one}/{other}"] = PairAgreement(len(pairs), same / len(pairs), _kappa(pairs))
    return found


def _kappa(pairs: Sequence[tuple[bool | None, bool | None]]) -> float | None:
    """Cohen's kappa (J. Cohen, Educational and Psychological Measurement 20:37-46, 1960); None where both always say
    the same one thing."""
    count = len(pairs)
    first, second = (sum(bool(pair[at]) for pair in pairs) / count for at in (0, 1))
    expected = first * second + (1 - first) * (1 - second)
    observed = sum(one == other for one, other in pairs) / count
    return None if expected == 1 else (observed - expected) / (1 - expected)


def _alpha(votes: Iterable[Votes]) -> float | None:
    """Krippendorff's alpha over criteria. Of two values the ordinal one is the nominal one."""
    return ordinal_alpha([[int(met) for met in one.values() if met is not None] for one in votes])


def _unanimous(votes: Iterable[Votes]) -> float | None:
    """Share of the criteria with two decisions or more on which all judges agree."""
    decided = [[met for met in one.values() if met is not None] for one in votes]
    several = [given for given in decided if len(given) > 1]
    return sum(len(set(given)) == 1 for given in several) / len(several) if several else None


def agreement_on(votes: Votes) -> float | None:
    """Of one criterion, the share of pairs of judges that say the same; None where fewer than two decided."""
    given = [met for met in votes.values() if met is not None]
    pairs = list(combinations(given, 2))
    return sum(one == other for one, other in pairs) / len(pairs) if pairs else None
