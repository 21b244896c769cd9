"""`scale` and `criteria` of a jury's metric in benchmark.yaml, checked: what may stand there, and what is wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eval_factory.core.errors import did_you_mean
from eval_factory.core.jury_form import CRITERIA, HELMS_FORM, MAX, MIN, SCALE, JuryForm, form_of

if TYPE_CHECKING:
    from eval_factory.tasks.custom.definition import Benchmark

MOST_STEPS = 100
LONGEST_NAME, LONGEST_TEXT = 80, 1000
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?\Z")
_RESERVED = re.compile(r'[{}$<>"\\\x00-\x1f]')
"""What would be filled in, or would end the text it stands in, in the judges' prompt."""
_NOTHING_RESERVED = "must hold none of { } $ < > \" \\ and no line break: it stands in the judges' prompt"
_SCALE_FORM = "write {min: 0, max: 10}, or a word for each rating such as {poor: 0, fair: 1, good: 2}"
_CRITERIA_FORM = "write a list such as [{name: accuracy, description: what it says is right}]"
_KEYS = ("name", "description")


def jury_keys(where: str, scale: Any, criteria: Any, problems: list[str]) -> JuryForm:
    """The form that they say; HELM's where one of them is wrong.

    Args:
        where: the file and the metric, which messages begin with.
        scale: None where it is not said; so for `criteria`.
    """
    found = [
        *([] if scale is None else _of_scale(f"{where}.{SCALE}", scale)),
        *([] if criteria is None else _of_criteria(f"{where}.{CRITERIA}", criteria)),
    ]
    problems += found
    return HELMS_FORM if found else form_of({SCALE: scale, CRITERIA: criteria})


def jury_form_of(benchmark: Benchmark | None) -> JuryForm:
    """Of a run: HELM's, but for a custom benchmark that says its own."""
    return HELMS_FORM if benchmark is None else benchmark.jury_form


def _of_scale(where: str, scale: Any) -> Iterator[str]:
    if not isinstance(scale, Mapping) or len(scale) < 2:
        yield f"{where}: must be a mapping with at least two keys; {_SCALE_FORM}"
        return
    for name, value in scale.items():
        if isinstance(value, bool) or not isinstance(value, int):
            yield f"{where}.{name}: must be a whole number; {_SCALE_FORM}"
            return
    lowest, highest = min(scale.values()), max(scale.values())
    if highest - lowest > MOST_STEPS:
        yield f"{where}: from {lowest} to {highest} are more than {MOST_STEPS} steps; use a coarser scale"
    elif scale.keys() != {MIN, MAX}:
        yield from _of_labels(where, scale)
    elif scale[MIN] >= scale[MAX]:
        yield f"{where}.{MAX}: must be above {MIN}, which is {scale[MIN]}"


def _of_labels(where: str, labels: Mapping[Any, int]) -> Iterator[str]:
    for name in labels:
        if not isinstance(name, str):
            yield f"{where}.{name}: is read as {name!r}; put the word in quotes"
        elif _NUMBER.match(name.strip()):
            yield f"{where}.{name}: must be a word, not a number; {_SCALE_FORM}"
        else:
            yield from _of_text(f"{where}.{name}", name, LONGEST_NAME)
    words = Counter(str(name).casefold() for name in labels)
    yield from (f"{where}.{word}: stands there twice but for capitals" for word, times in words.items() if times > 1)
    values = Counter(labels.values())
    yield from (f"{where}: {times} words stand for {value}" for value, times in values.items() if times > 1)


def _of_criteria(where: str, criteria: Any) -> Iterator[str]:
    if not isinstance(criteria, list) or not criteria:
        yield f"{where}: must be a list with at least one criterion; {_CRITERIA_FORM}"
        return
    names: Counter[str] = Counter()
    for number, one in enumerate(criteria):
        if not isinstance(one, Mapping):
            yield f"{where}.{number}: must be a mapping; {_CRITERIA_FORM}"
            continue
        for key in one:
            if key not in _KEYS:
                hint = did_you_mean(str(key), _KEYS) or f"; known here: {', '.join(_KEYS)}"
                yield f"{where}.{number}: unknown key {key}{hint}"
        name, told = one.get("name"), one.get("description", "")
        yield from _of_text(f"{where}.{number}.name", name, LONGEST_NAME)
        if told != "":
            yield from _of_text(f"{where}.{number}.description", told, LONGEST_TEXT)
        names[str(name)] += 1
    yield from (f"{where}: {name} is listed {times} times" for name, times in names.items() if times > 1)


def _of_text(where: str, text: Any, longest: int) -> Iterator[str]:
    if not isinstance(text, str) or text.strip() != text or not 1 <= len(text) <= longest:
        yield f"{where}: must be a text of 1 to {longest} characters, without spaces around it"
    elif _RESERVED.search(text):
        yield f"{where}: {_NOTHING_RESERVED}"
