"""The embedded endpoint as the judge of a rubric: a stated rule in the place of a model's judgement."""

from __future__ import annotations

import json
import re

RULE = (
    "Where the prompt asks whether criteria are met, one is met if half of its words of five letters or more, or more"
    " of them, stand in the last turn of the conversation."
)

_CONVERSATION = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)
_ONE = re.compile(r"<criterion>\n\[\S+\] (.*?)\n</criterion>", re.DOTALL)
_SEVERAL = re.compile(r"<criteria>\n(.*?)\n</criteria>", re.DOTALL)
_NUMBERED = re.compile(r"^\d+\. \[\S+\] ", re.MULTILINE)
_LAST_TURN = "\n\nassistant: "
_WORD = re.compile(r"\w{5,}")


def embedded_judgement(prompt: str) -> str | None:
    """What `RULE` says of the criteria in a judge's prompt; None for any other prompt."""
    conversation = _CONVERSATION.search(prompt)
    if conversation is None:
        return None
    turn = conversation[1].rpartition(_LAST_TURN)[2]
    rest = prompt[conversation.end() :]
    one, several = _ONE.search(rest), _SEVERAL.search(rest)
    if one is not None:
        return json.dumps(_decision(one[1], turn))
    if several is None:
        return None
    criteria = _NUMBERED.split(several[1])[1:]
    judgements = [{"criterion": number, **_decision(text, turn)} for number, text in enumerate(criteria, start=1)]
    return json.dumps({"judgements": judgements})


def _decision(criterion: str, turn: str) -> dict[str, str | bool]:
    words = {word.lower() for word in _WORD.findall(criterion)}
    there = words & {word.lower() for word in _WORD.findall(turn)}
    told = f"{len(there)} of its {len(words)} longer words stand in the answer"
    return {"explanation": told, "criteria_met": bool(words) and 2 * len(there) >= len(words)}
