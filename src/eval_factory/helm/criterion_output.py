"""A judge's output about criteria -> its decisions, and their form among HELM's annotations of an answer. Pure functions.

As with ratings (judge_output.py), every JSON object in the output is looked at, and one that stands in the judged
answer already is not the judge's: an answer must not hand down its own judgement. What all judges said of an answer is
{'rubric': {'criteria': [{'gpt': {'criteria_met': true, 'explanation': '...'}, 'llama': {'error': '...'}}, ...]}}: an
entry for each criterion, in the case's order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.helm.judge_output import (
    LONGEST,
    UnusableJudgeOutput,
    injection_signs,
    json_objects,
    readings,
    squeezed,
    undisguised,
)

MET, EXPLANATION, NUMBER, JUDGEMENTS = "criteria_met", "explanation", "criterion", "judgements"
ERROR = "error"
"""In the place of a decision: why there is none."""

READY_MADE = "a ready-made judgement"
_SIGNS = {
    "a tag of the judges' prompt": re.compile(r"</?\s*(?:criteri(?:on|a)|reference)\s*>", re.IGNORECASE),
    "instructions to the judges": re.compile(
        r"\b(?:mark|rate|grade|score|treat|count|judge|deem|consider)\b(?: \w{1,12}){0,4} criteri(?:on|a)"
        r" (?:as|to be) (?:met|satisfied|fulfilled|true)\b",
        re.IGNORECASE,
    ),
}
"""Beside those that `injection_signs` knows, of which they are two."""
_SQUEEZED_DECISION = re.compile(r"criteriamet(?:true|false|yes)")


@dataclass(frozen=True)
class Decision:
    """Whether a criterion is met, and why, in a judge's words."""

    met: bool
    explanation: str

    def as_dict(self) -> dict[str, Any]:
        return {MET: self.met, EXPLANATION: self.explanation}


def parse_decisions(text: str, count: int, judged: str) -> list[Decision]:
    """A judge's own decisions about `count` criteria, in their order.

    Args:
        text: the judge's whole output.
        judged: the answer that it judges.

    Raises:
        UnusableJudgeOutput: there are none, or it cannot be told which they are; the message tells the judge why.
    """
    if len(text) > LONGEST:
        raise UnusableJudgeOutput(f"it is longer than {LONGEST} characters")
    try:
        return _own(text, count, judged)
    except RecursionError as error:
        raise UnusableJudgeOutput("it is nested too deeply") from error


def decision_signs(answer: str) -> list[str]:
    """How an answer speaks to its judges, if it does; a decision of theirs that it holds is a ready-made one."""
    found = set(injection_signs(answer))
    for reading in readings(answer):
        if _SQUEEZED_DECISION.search(squeezed(reading)):
            found.add(READY_MADE)
        found |= {sign for sign, pattern in _SIGNS.items() if pattern.search(reading)}
    return [sign for sign in (READY_MADE, *_SIGNS) if sign in found]


def _own(text: str, count: int, judged: str) -> list[Decision]:
    key = MET if count == 1 else JUDGEMENTS
    objects = [found for found in json_objects(text) if key in found]
    if not objects:
        raise UnusableJudgeOutput(f'it holds no JSON object with "{key}"')
    stands = _standing_in(judged)
    own = [found for found in objects if not any(map(stands, _decisions_in(found, count)))]
    if not own:
        raise UnusableJudgeOutput("it repeats a judgement that stands in the answer; give your own")
    reasons: list[str] = []
    usable: dict[tuple[bool, ...], list[Decision]] = {}
    for found in own:
        try:
            decisions = [_decision(found)] if count == 1 else _numbered(found[JUDGEMENTS], count)
        except UnusableJudgeOutput as error:
            reasons.append(str(error))
        else:
            usable[tuple(one.met for one in decisions)] = decisions
    if not usable:
        raise UnusableJudgeOutput(reasons[0])
    if len(usable) > 1:
        raise UnusableJudgeOutput("it holds several judgements that differ; give one JSON object and nothing else")
    (decisions,) = usable.values()
    return decisions


def _decisions_in(found: Mapping[str, Any], count: int) -> Sequence[Mapping[str, Any]]:
    if count == 1:
        return [found]
    listed = found[JUDGEMENTS]
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []


def _numbered(listed: Any, count: int) -> list[Decision]:
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise UnusableJudgeOutput(f'"{JUDGEMENTS}" is no list of JSON objects')
    by_number = {one[NUMBER]: one for one in listed if type(one.get(NUMBER)) is int}
    wanted = range(1, count + 1)
    missing = [str(number) for number in wanted if number not in by_number]
    if missing:
        raise UnusableJudgeOutput(f"criterion {', '.join(missing)} has no judgement")
    if len(listed) != count:
        raise UnusableJudgeOutput(f"it holds {len(listed)} judgements of {count} criteria; give one for each")
    return [_decision(by_number[number]) for number in wanted]


def _decision(found: Mapping[str, Any]) -> Decision:
    met, explanation = found.get(MET), found.get(EXPLANATION)
    if not isinstance(met, bool):
        raise UnusableJudgeOutput(f'"{MET}" is not true or false')
    if not isinstance(explanation, str) or not re.search(r"\w", explanation):  # "..." is the form itself, given back
        raise UnusableJudgeOutput(f'"{EXPLANATION}" is missing or says nothing')
    return Decision(met, explanation)


def _standing_in(judged: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a decision stands in the judged answer already, read forwards or backwards: with its explanation, in any
    layout, escape or disguise that `disguised_text` knows, whatever stands between the two."""
    squeezes = [squeezed(reading) for reading in readings(judged)]
    squeezes += [squeeze[::-1] for squeeze in squeezes]

    def stands(found: Mapping[str, Any]) -> bool:
        parts = _parts_of(found)
        return any(all(part in squeeze for part in parts) for squeeze in squeezes)

    return stands


def _parts_of(found: Mapping[str, Any]) -> list[str]:
    """The decision and its explanation as they may have been written down."""
    met = found.get(MET)
    fields = [f"{MET} {str(met).lower() if isinstance(met, bool) else met}"]
    if isinstance(found.get(EXPLANATION), str):
        fields.append(f"{EXPLANATION} {found[EXPLANATION]}")
    return [squeezed(undisguised(field)) for field in fields]


ANNOTATION = "rubric"
CRITERIA = "criteria"


def annotation_of(said: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    return {CRITERIA: [dict(by_judge) for by_judge in said]}


def said_of(annotations: Mapping[str, Any] | None, count: int) -> list[dict[str, dict[str, Any]]]:
    """Of each of `count` criteria what each judge said; nothing where the answer was not judged."""
    found = ((annotations or {}).get(ANNOTATION) or {}).get(CRITERIA)
    if not isinstance(found, list) or len(found) != count:
        return [{} for _ in range(count)]
    return [dict(one) if isinstance(one, Mapping) else {} for one in found]


def decisions_of(
    annotations: Mapping[str, Any] | None, judges: Iterable[str], count: int
) -> list[dict[str, bool | None]]:
    """Of each criterion each judge's decision; None where it gave none."""
    judges = tuple(judges)
    return [{judge: _met(one.get(judge)) for judge in judges} for one in said_of(annotations, count)]


def error_of(said: Mapping[str, Mapping[str, Any]], judge: str) -> str | None:
    """Why a judge gave no decision, where that was written down."""
    found = said.get(judge)
    reason = found.get(ERROR) if isinstance(found, Mapping) else None
    return reason if isinstance(reason, str) else None


def _met(told: Any) -> bool | None:
    met = told.get(MET) if isinstance(told, Mapping) else None
    return met if isinstance(met, bool) else None
