"""A judge's answer -> its judgement, and the signs of an answer that speaks to its judges. Pure functions.

HELM takes what stands between the first `{` and the last `}` of a judge's answer. A judge that quotes the answer it
judges may so hand down the answer's own judgement. Here every JSON object that has the form of a judgement is found,
those that stand in the judged answer are not the judge's, and what is left has to be one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

SCALE = range(1, 6)
"""HELM's juries score from 1 to 5."""

Criteria = Mapping[str, Collection[str]]
"""What a judgement has to hold: criterion -> its fields."""

_DECODER = json.JSONDecoder()
_SCORE = re.compile(r"[1-5]\Z")


class UnusableJudgement(Exception):
    """The judge's answer holds no judgement; the message tells the judge why."""


def judgement_in(text: str, criteria: Criteria, judged: str) -> dict[str, Any]:
    """The judge's judgement.

    Args:
        text: the judge's whole answer.
        judged: the answer that it judges.

    Raises:
        UnusableJudgement: there is none, or it cannot be told which it is.
    """
    objects = [found for found in _objects(text) if criteria.keys() & found.keys()]
    if not objects:
        raise UnusableJudgement("it holds no JSON object with the criteria " + ", ".join(criteria))
    quoted = [json.dumps(found, sort_keys=True) for found in _objects(judged)]
    own = [found for found in objects if json.dumps(found, sort_keys=True) not in quoted]
    if not own:
        raise UnusableJudgement("it repeats a judgement that stands in the response; give your own")
    reasons = []
    usable: dict[str, dict[str, Any]] = {}
    for found in own:
        reason = _fault(found, criteria)
        if reason is None:
            usable[json.dumps({name: found[name]["score"] for name in criteria})] = found
        else:
            reasons.append(reason)
    if not usable:
        raise UnusableJudgement(reasons[0])
    if len(usable) > 1:
        raise UnusableJudgement("it holds several judgements that differ; give one JSON object and nothing else")
    (judgement,) = usable.values()
    return {name: judgement[name] for name in criteria}  # HELM's mean takes whatever else stands there


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Every outermost JSON object in a text; one whose last brace was forgotten too."""
    at = text.find("{")
    while at >= 0:
        try:
            found, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            try:
                found, end = json.loads(text[at:].rstrip().removesuffix("```").rstrip() + "}"), len(text)
            except (ValueError, RecursionError):
                found, end = None, at + 1
        if isinstance(found, dict):
            yield found
        at = text.find("{", end)


def _fault(found: Mapping[str, Any], criteria: Criteria) -> str | None:
    for name, fields in criteria.items():
        rating = found.get(name)
        if not isinstance(rating, Mapping):
            return f"the criterion {name!r} is missing or no object"
        for field in fields:
            if field not in rating:
                return f"{name!r} has no {field!r}"
        if "score" in fields and not _is_score(rating["score"]):
            return f"the score of {name!r} is not a whole number from {SCALE[0]} to {SCALE[-1]}"
    return None


def _is_score(score: object) -> bool:
    if isinstance(score, str):
        return bool(_SCORE.match(score.strip()))
    return isinstance(score, (int, float)) and not isinstance(score, bool) and score in SCALE


_NEAR = r"[^.\n]{0,60}"
_TAGS = "response|gold_response|question|conversation|patient_information|user_request|medication_question|system|judge"
_WHICH = "all|any|the|your|my|these|those|of|previous|prior|above|earlier|preceding|other|evaluation|scoring"
_INSTRUCTIONS = "instructions?|criteria|prompts?|rules?|rubric|guidelines?"
_JUDGES = "evaluators?|judges?|graders?|raters?|annotators?"
_FULL_MARKS = r"full marks|(?:maximum|top|highest|perfect) (?:score|rating|marks)|5\s*(?:/|out of)\s*5|(?:a|of) 5\b"
_SIGNS: Mapping[str, tuple[str, ...]] = {
    "a ready-made judgement": (r"""["']?score["']?\s*[:=]\s*["']?\d""",),
    "a tag of the judges' prompt": (rf"</?\s*(?:{_TAGS})\s*>", r"<\|[a-z_]+\|>", r"\[/?INST\]"),
    "instructions to the judges": (
        rf"\b(?:ignore|disregard|forget|override)(?: (?:{_WHICH}))* (?:{_INSTRUCTIONS})\b",
        rf"\b(?:{_JUDGES})\b{_NEAR}\b(?:must|should|shall|please|give|assign|award|rate|score|output)\b",
        rf"\b(?:give|assign|award|rate|score|grade|deserves?)\b{_NEAR}\b(?:{_FULL_MARKS})",
        rf"\boutput\b{_NEAR}\bjson\b",
        r"\bnew instructions?\s*:",
        r"\bsystem (?:prompt|message|override)\b",
    ),
}
_SIGN_PATTERNS = {name: re.compile("|".join(patterns), re.IGNORECASE) for name, patterns in _SIGNS.items()}


def injection_signs(answer: str) -> list[str]:
    """How an answer speaks to its judges, if it does. A sign is a reason to look at it, not a proof."""
    return [name for name, pattern in _SIGN_PATTERNS.items() if pattern.search(answer)]
