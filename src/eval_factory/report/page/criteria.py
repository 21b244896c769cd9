"""Prepares the criteria of a rubric's answers for a page: rows, signs, and the points lost.

A judge decides whether an answer meets a criterion. An answer that meets a criterion with points
above 0 gets the points. A criterion with points below 0 is a penalty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_factory.core.results import InstanceRecord
from eval_factory.core.signs import DISAGREE, HARM, NOT_MET, UNDECIDED
from eval_factory.report.page.shortened_texts import shortened_text

Criterion = Mapping[str, Any]
"""A criterion of an answer: an entry of `InstanceRecord.criteria`.

The keys are `criterion` (the text), `points`, `tags`, `verdict` (a key of `_SHARES`, or `unjudged`)
and `judges`, which maps a judge's name to its vote. A vote has `criteria_met` (True or False) and
`explanation`; or `error` if the judge did not decide.
"""
_SHARES: Mapping[str, float] = {"met": 1.0, "tied": 0.5, "not met": 0.0}
"""A dict from the verdict on a criterion to the share of the criterion's points that the answer
gets. The verdict `unjudged` has no share.
"""
MAX_LOST = 25  # the maximum number of criteria, and of tags, in the list of the most points lost
MAX_TAGS = 50  # the maximum number of tags that a page has of a criterion


def points_lost(criterion: Criterion) -> float | None:
    """Return the points that an answer lost by a criterion; None if no judge decided.

    The best possible answer loses 0 points.
    """
    share = _SHARES.get(criterion["verdict"])
    if share is None:
        return None
    points = float(criterion["points"])
    if points > 0:
        return points * (1 - share)
    # Negative points are a penalty: an answer loses them if the criterion is met.
    return -points * share


def criterion_signs(record: InstanceRecord) -> Iterator[str]:
    """Yield the signs of an answer's criteria; no signs if the request failed."""
    if record.error is not None:
        return
    signs = set()
    for criterion in record.criteria:
        decisions = set(map(_decision, criterion["judges"].values()))
        if criterion["points"] > 0 and criterion["verdict"] == "not met":
            signs.add(NOT_MET)
        if criterion["points"] < 0 and criterion["verdict"] == "met":
            signs.add(HARM)
        # No judge decided an unjudged criterion. At least one judge left an undecided one open.
        if criterion["verdict"] == "unjudged" or None in decisions:
            signs.add(UNDECIDED)
        if {0, 1} <= decisions:
            signs.add(DISAGREE)
    for sign in (NOT_MET, HARM, UNDECIDED, DISAGREE):
        if sign in signs:
            yield sign


def criteria_rows(criteria: Sequence[Criterion], *, with_texts: bool) -> list[list[Any]]:
    """Return a row for each criterion of an answer, for the page's script.

    A row has the number, the text, the points, the tags, the verdict, the points lost, and a list
    for each judge: name, decision (1, 0 or None) and explanation. Without texts, the rows have no
    text of a criterion, tag or judge.

    The criteria with most points lost come first, then criteria without a decision, then criteria
    that lost no points. Equal criteria stay in the order of the file.
    """
    # pairs of the number of a criterion in the file and the criterion
    numbered = list(enumerate(criteria, start=1))
    numbered.sort(key=lambda pair: _sort_key_of(pair[1]))
    rows = []
    for number, criterion in numbered:
        text = None
        tags: list[str] = []
        if with_texts:
            text = shortened_text(criterion["criterion"])
            tags = list(map(shortened_text, criterion["tags"][:MAX_TAGS]))
        rows.append(
            [
                number,
                text,
                criterion["points"],
                tags,
                criterion["verdict"],
                points_lost(criterion),
                _judge_columns(criterion, with_texts=with_texts),
            ]
        )
    return rows


def _sort_key_of(criterion: Criterion) -> tuple[float, bool]:
    """Return the key by which `criteria_rows` sorts a criterion; the smallest key comes first."""
    lost = points_lost(criterion)
    if lost is None:
        return 0.0, False
    return -lost, True  # `True` is after `False`: 0 points lost come after no decision.


def _judge_columns(criterion: Criterion, *, with_texts: bool) -> list[list[Any]]:
    """Return the name, the decision and the explanation of each judge of a criterion."""
    columns = []
    for judge, vote in criterion["judges"].items():
        text = None
        if with_texts:
            text = vote.get("explanation", vote.get("error"))
        if text is not None:
            text = shortened_text(str(text))
        columns.append([judge, _decision(vote), text])
    return columns


def _decision(vote: Mapping[str, Any]) -> int | None:
    """Return 1 if a judge decided that the criterion is met, 0 if not, None without a decision."""
    met = vote.get("criteria_met")
    if isinstance(met, bool):
        return int(met)
    return None


@dataclass
class TotalLoss:
    """The points that all answers together lost by a criterion, or by the criteria with a tag."""

    label: str  # the text of the criterion, or the tag
    is_tag: bool
    judged: int = 0  # the number of decisions
    times: int = 0  # the number of answers that lost points
    points: float = 0.0  # the sum of the points lost
    answers: int = 0  # the number of answers with the criterion or tag


@dataclass
class LossCounter:
    """A counter that adds up the points lost by each criterion and tag, answer by answer."""

    # Criteria and tags have numbers in the order of their first occurrence, from 0.
    # dict from (True for a tag, text) to the number of the criterion or tag: its index in `_losses`
    _numbers: dict[tuple[bool, str], int] = field(default_factory=dict)
    _losses: list[TotalLoss] = field(default_factory=list)

    def add(self, criteria: Sequence[Criterion]) -> tuple[int, ...]:
        """Add the criteria of one answer.

        Return the numbers of the criteria and tags by which this answer lost points.
        """
        lost: set[int] = set()  # the numbers by which this answer lost points
        seen: set[int] = set()  # the numbers that this answer has
        for criterion in criteria:
            points = points_lost(criterion)
            for number in self._numbers_of(criterion):
                loss = self._losses[number]
                if number not in seen:
                    loss.answers += 1
                    seen.add(number)
                if points is not None:
                    loss.judged += 1
                    loss.points += points
                    if points and number not in lost:
                        loss.times += 1
                        lost.add(number)
        return tuple(sorted(lost))

    def _numbers_of(self, criterion: Criterion) -> Iterator[int]:
        """Yield the numbers of a criterion's tags, then the number of the criterion."""
        for tag in dict.fromkeys(criterion["tags"]):
            yield self._number_of(tag, is_tag=True)
        yield self._number_of(criterion["criterion"], is_tag=False)

    def _number_of(self, label: str, *, is_tag: bool) -> int:
        """Return the number of a criterion or tag; a new one gets the next number."""
        number = self._numbers.setdefault((is_tag, label), len(self._losses))
        if number == len(self._losses):  # The criterion or tag is new.
            self._losses.append(TotalLoss(shortened_text(label), is_tag))
        return number

    def costliest(self) -> dict[int, TotalLoss]:
        """Return a dict from numbers to losses: the costliest tags, then the costliest criteria.

        Criteria and tags that only one answer has, or that cost nothing, are left out.
        """
        tags = []
        criteria = []
        for number, loss in enumerate(self._losses):
            if loss.times and loss.answers > 1:
                if loss.is_tag:
                    tags.append((number, loss))
                else:
                    criteria.append((number, loss))
        for entries in (tags, criteria):
            entries.sort(key=lambda entry: (-entry[1].points, entry[1].label))
        return dict([*tags[:MAX_LOST], *criteria[:MAX_LOST]])
