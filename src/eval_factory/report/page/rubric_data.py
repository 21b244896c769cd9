"""The criteria of instances -> what a page shows of them: the costly ones first, and where most points are lost."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_factory.core.results import InstanceRecord

SHARES: Mapping[str, float] = {"met": 1.0, "tied": 0.5, "not met": 0.0}
"""Verdict -> the share of its points that a criterion counts; an unjudged one has none."""
LONGEST_WORDS = 2_000
"""Characters of a judge's words, of a criterion and of a tag that a page holds; results.jsonl has the rest."""
MOST_LOST = 25
"""Criteria and tags, each, in the list of those that cost most points."""
MOST_TAGS = 50
"""Tags of a criterion that a page holds."""
NOT_MET, HARM, UNDECIDED = "criterion_not_met", "harm_met", "criterion_undecided"
SIGNS = (NOT_MET, HARM, UNDECIDED)
"""By which instances are chosen: one with positive points is not met, one with negative points is met, a judge gave no
decision about one."""
_TAG, _OF_CRITERIA = "tag", "criterion_"
"""The field of tags that name none, and what the name of a group of criteria may begin with (docs/rubrics.md)."""


def points_lost(criterion: Mapping[str, Any]) -> float | None:
    """Against the best answer that there can be; None where no judge decided."""
    share = SHARES.get(criterion["verdict"])
    if share is None:
        return None
    points = float(criterion["points"])
    return points * (1 - share) if points > 0 else -points * share


def criterion_signs(record: InstanceRecord) -> Iterator[str]:
    """Nothing of an answer that did not come: it was not judged."""
    if record.error is not None:
        return
    if any(one["points"] > 0 and one["verdict"] == "not met" for one in record.criteria):
        yield NOT_MET
    if any(one["points"] < 0 and one["verdict"] == "met" for one in record.criteria):
        yield HARM
    if any(one["verdict"] == "unjudged" or None in _decisions(one) for one in record.criteria):
        yield UNDECIDED


def judges_differ(record: InstanceRecord) -> bool:
    """Whether one says met of a criterion of which another says not met."""
    return record.error is None and any({0, 1} <= set(_decisions(one)) for one in record.criteria)


def criteria_rows(
    criteria: Sequence[Mapping[str, Any]], *, with_texts: bool, tags: Collection[str] = ()
) -> list[list[Any]]:
    """Number, words, points, tags, verdict, points lost, and of each judge name, decision (1, 0, null) and words; what
    cost most comes first, then what nobody decided.

    Args:
        with_texts: without, no words of a criterion or a judge are among it.
        tags: those that may be shown without texts.
    """
    rows = [
        [
            number,
            shortened(one["criterion"]) if with_texts else None,
            one["points"],
            [shortened(tag) for tag in one["tags"][:MOST_TAGS] if with_texts or tag in tags],
            one["verdict"],
            points_lost(one),
            [[judge, _decision(said), _words(said) if with_texts else None] for judge, said in one["judges"].items()],
        ]
        for number, one in enumerate(criteria, 1)
    ]
    return sorted(rows, key=_cost, reverse=True)  # those that cost the same stay in the order of the file


def _cost(row: Sequence[Any]) -> tuple[float, bool]:
    lost = row[5]
    return (lost or 0.0, lost is None)


def _decisions(criterion: Mapping[str, Any]) -> list[int | None]:
    return [_decision(said) for said in criterion["judges"].values()]


def _decision(said: Mapping[str, Any]) -> int | None:
    met = said.get("criteria_met")
    return int(met) if isinstance(met, bool) else None


def _words(said: Mapping[str, Any]) -> str | None:
    found = said.get("explanation", said.get("error"))
    return None if found is None else shortened(str(found))


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]} … ({len(text):,} characters: results.jsonl)"


def tags_of_groups(groups: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Tags that make a group which a result names anyway."""
    pairs = [(name.removeprefix(_OF_CRITERIA), value) for name, values in groups.items() for value in values]
    return frozenset(f"{name}:{value}" for name, value in pairs) | {value for name, value in pairs if name == _TAG}


@dataclass(frozen=True)
class Lost:
    """A tag, or a criterion that several answers were judged by, and what it cost."""

    label: str
    is_tag: bool
    judged: int
    """How often it was decided."""
    times: int
    """In how many answers it cost points."""
    points: float
    """That it cost in all."""


@dataclass
class _Counted:
    label: str | None
    """None of a criterion that was met once only, so far: its words are not kept."""
    is_tag: bool
    seen: int = 0
    judged: int = 0
    times: int = 0
    points: float = 0.0


@dataclass
class LostPoints:
    """Adds up what criteria and tags cost, answer by answer."""

    with_texts: bool = True
    tags: Collection[str] = ()
    """That may be shown without texts."""
    _places: dict[tuple[bool, bytes], int] = field(default_factory=dict)
    _counted: list[_Counted] = field(default_factory=list)

    def add(self, criteria: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """The numbers of what cost this answer points."""
        lost: set[int] = set()
        answered: set[int] = set()
        for one in criteria:
            points = points_lost(one)
            for place in self._places_of(one):
                found = self._counted[place]
                found.seen += place not in answered
                answered.add(place)
                if points is not None:
                    found.judged += 1
                    found.points += points
                    if points and place not in lost:
                        found.times += 1
                        lost.add(place)
        return tuple(sorted(lost))

    def most(self) -> dict[int, Lost]:
        """Number -> what cost most, tags first; of criteria those that several answers have."""
        found = {
            place: Lost(one.label, one.is_tag, one.judged, one.times, one.points)
            for place, one in enumerate(self._counted)
            if one.times and one.seen > 1 and one.label is not None
        }
        ordered = sorted(found, key=lambda place: (-found[place].points, found[place].label))
        tags, texts = (
            [place for place in ordered if found[place].is_tag is kind][:MOST_LOST] for kind in (True, False)
        )
        return {place: found[place] for place in (*tags, *texts)}

    def _places_of(self, criterion: Mapping[str, Any]) -> Iterator[int]:
        for tag in dict.fromkeys(criterion["tags"]):
            if self.with_texts or tag in self.tags:
                yield self._place(tag, is_tag=True)
        if self.with_texts:
            yield self._place(criterion["criterion"], is_tag=False)

    def _place(self, text: str, *, is_tag: bool) -> int:
        """Its words are kept from the second time on: most criteria are of one case."""
        key = (is_tag, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16])
        place = self._places.setdefault(key, len(self._counted))
        if place == len(self._counted):
            self._counted.append(_Counted(None, is_tag))
        elif self._counted[place].label is None:
            self._counted[place].label = shortened(text)
        return place
