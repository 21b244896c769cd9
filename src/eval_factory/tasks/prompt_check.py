"""What a custom benchmark's prompts hold in their braces, and `scale` and `criteria` of its jury's metric: checked."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.tasks import jury_form
from eval_factory.tasks.custom_table import CORRECT
from eval_factory.tasks.file_problems import Findings, read_text
from eval_factory.tasks.jury_form import CRITERIA, CRITERIA_PLACE, MAX, MIN, SCALE, SCALE_PLACE, JuryForm

MAX_STEPS = 100
_MAX_NAME_LENGTH, MAX_TEXT_LENGTH = 80, 1000
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?\Z")
_RESERVED = re.compile(r'[{}$<>"\\\x00-\x1f]')
"""What would be filled in, or would end the text it stands in, in the judges' prompt."""
_SCALE_FORM = "write {min: 0, max: 10}, or a word for each rating such as {poor: 0, fair: 1, good: 2}"
_CRITERIA_FORM = "write a list such as [{name: accuracy, description: what it says is right}]"


def jury_keys(where: str, scale: Any, criteria: Any, problems: list[str]) -> JuryForm:
    """The form that `scale` and `criteria` say, each None where it is not given; HELM's where one of them is wrong.
    `where`: the file and the metric, which messages begin with."""
    found = [] if scale is None else list(_of_scale(f"{where}.{SCALE}", scale))
    found += [] if criteria is None else _of_criteria(f"{where}.{CRITERIA}", criteria)
    problems += found
    return jury_form.HELMS_FORM if found else jury_form.jury_form_of({SCALE: scale, CRITERIA: criteria})


def _of_scale(where: str, scale: Any) -> Iterator[str]:
    if not isinstance(scale, Mapping) or len(scale) < 2:
        yield f"{where}: must be a mapping with at least two keys; {_SCALE_FORM}"
        return
    for name, value in scale.items():
        if isinstance(value, bool) or not isinstance(value, int):
            yield f"{where}.{name}: must be a whole number; {_SCALE_FORM}"
            return
    lowest, highest = min(scale.values()), max(scale.values())
    if highest - lowest > MAX_STEPS:
        yield f"{where}: from {lowest} to {highest} are more than {MAX_STEPS} steps; use a coarser scale"
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
            yield from _of_text(f"{where}.{name}", name, _MAX_NAME_LENGTH)
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
            if key not in ("name", "description"):
                hint = did_you_mean(str(key), ("name", "description")) or "; known here: name, description"
                yield f"{where}.{number}: unknown key {key}{hint}"
        name, text = one.get("name"), one.get("description", "")
        yield from _of_text(f"{where}.{number}.name", name, _MAX_NAME_LENGTH)
        if text != "":
            yield from _of_text(f"{where}.{number}.description", text, MAX_TEXT_LENGTH)
        names[str(name)] += 1
    yield from (f"{where}: {name} is listed {times} times" for name, times in names.items() if times > 1)


def _of_text(where: str, text: Any, longest: int) -> Iterator[str]:
    if not isinstance(text, str) or text.strip() != text or not 1 <= len(text) <= longest:
        yield f"{where}: must be a text of 1 to {longest} characters, without spaces around it"
    elif _RESERVED.search(text):
        yield where + ": must hold none of { } $ < > \" \\ and no line break: it stands in the judges' prompt"


JUDGE_PLACES = ("QUESTION", "RESPONSE", "GOLD_RESPONSE")
"""What HELM fills into a judge's prompt."""

_CRITERIA = re.compile(r"<rubric_criteria>\s*(\{.*?\})\s*</rubric_criteria>", re.DOTALL)  # HELM's


def columns_of_prompt(path: Path, prompt_file: Path, found: Findings) -> list[str] | None:
    """The names in the braces of the prompt, in their order; None where the prompt cannot be read."""
    try:
        text = read_text(prompt_file, "prompt_file", path)
    except ConfigError as error:
        found.problems += error.problems
        return None
    if not text.strip():
        found.problems.append(f"{prompt_file}: is empty")
        return None
    columns: list[str] = []
    try:
        for _, name, form, conversion in string.Formatter().parse(text):
            if name is None:
                continue
            if name and not (form or conversion or re.search(r"[.\[\]{}]", name) or name.isdigit()):
                columns.append(name)
                continue
            shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            found.problems.append(
                f"{prompt_file}: line {_line_of(text, '{' + shown)}: {{{shown}}} is not the name of a column;"
                " write {name} for the column name, and {{ and }} for braces that stay as they are"
            )
    except ValueError:
        # where a brace stands that opens or closes nothing
        without_pairs = re.sub(r"\{\{|\}\}|\{[^{}]*\}", lambda pair: re.sub(r"[^\n]", " ", pair[0]), text)
        line = re.split(r"[{}]", without_pairs, maxsplit=1)[0].count("\n") + 1
        found.problems.append(
            f"{prompt_file}: line {line}: has an unmatched brace; write {{{{ and }}}} for braces that stay as they are"
        )
        return None
    return list(dict.fromkeys(columns))


def _line_of(text: str, part: str) -> int:
    return text.count("\n", 0, max(text.find(part), 0)) + 1


def check_judge_prompt(path: Path, file: Path, header: Sequence[str] | None, found: Findings, form: JuryForm) -> None:
    try:
        text = read_text(file, "the judges' prompt_file", path)
    except ConfigError as error:
        found.problems += error.problems
        return
    names = [name for name in JUDGE_PLACES if f"{{{name}}}" in text]
    for match in string.Template.pattern.finditer(text):
        name = match["named"] or match["braced"]
        if name in JUDGE_PLACES:
            names.append(name)
        elif match["escaped"] is None:
            line = text.count("\n", 0, match.start()) + 1
            found.problems.append(f"{file}: line {line}: write $$ for a dollar sign")
    if "RESPONSE" not in names:
        found.problems.append(f"{file}: must hold {{RESPONSE}}, the answer to judge")
    if "GOLD_RESPONSE" in names and header is not None and CORRECT not in header:
        found.problems.append(f"{file}: holds {{GOLD_RESPONSE}}, but the data have no column {CORRECT}")
    problems = [*_not_filled(text, header or (), form), *_form_problems(text, form)]
    found.problems += [f"{file}: {problem}" for problem in problems]


def _not_filled(text: str, header: Sequence[str], form: JuryForm) -> Iterator[str]:
    places = (*JUDGE_PLACES, *form.places)
    for name in re.findall(r"\{([^{}\n]+)\}", text):
        meant = name.upper() in JUDGE_PLACES or re.fullmatch("[A-Z_]+", name) or name in header
        if meant and name not in places:
            why = f"by HELM; a judge's prompt has {', '.join(places)}"
            if name in (SCALE_PLACE, CRITERIA_PLACE):
                add = "add that key to benchmark.yaml, or write the text here"
                why = f"where the jury's metric has no {name.lower()}; {add}"
            yield f"line {_line_of(text, f'{{{name}}}')}: {{{name}}} is not filled in {why}"


def _form_problems(text: str, form: JuryForm) -> Iterator[str]:
    """HELM takes the criteria from the prompt; those of benchmark.yaml are the same."""
    place = f"{{{CRITERIA_PLACE}}}"
    if form.criteria and place in text and _CRITERIA.search(text):
        yield f"line {_line_of(text, place)}: {place} brings <rubric_criteria> with it; delete one of the two"
        return
    block = '<rubric_criteria>{"accuracy": ["score", "explanation"]}</rubric_criteria>'
    filled = form.filled(text)
    match = _CRITERIA.search(filled)
    if match is None:
        yield f"names no criteria; it needs a block such as {block}"
        return
    line = filled.count("\n", 0, match.start(1)) + 1
    try:
        criteria = json.loads(match[1])
    except ValueError as error:
        yield f"line {line}: the text in <rubric_criteria> is not a JSON object ({error}); write {block}"
        return
    if not criteria:
        yield f"line {line}: <rubric_criteria> names no criterion; write {block}"
    wrong = [
        f"line {line}: the criterion {name!r} must have a list of fields, 'score' among them; write {block}"
        for name, fields in criteria.items()
        if not (isinstance(fields, list) and all(isinstance(item, str) for item in fields) and "score" in fields)
    ]
    yield from wrong
    if criteria and not wrong and form.criteria and criteria.keys() != form.criteria.keys():
        yield (
            f"line {_line_of(text, '<rubric_criteria>')}: <rubric_criteria> names {', '.join(criteria)}, and criteria"
            f" of the jury's metric are {', '.join(form.criteria)}; name the same, or write {place} in its place"
        )
