"""Physicians' decisions about criteria and a judge's beside them, as HealthBench's meta-evaluation is published.

A line is an answer and a criterion (arXiv 2505.08775, section 6; MIT): `prompt` (or `prompt_id`), `completion`,
`rubric`, `category`, `binary_labels`, `anonymized_physician_ids`, and a field with the judge's decision, unless judges
are asked. Texts are kept for judges who are asked, and no message quotes one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.tasks.file_problems import ReadFile
from eval_factory.tasks.message_files import message_problems, name_problems, read_rows, text_problems
from eval_factory.tasks.rubric_case import USER

FEWEST_ITEMS = 10  # of a category or another part, for a figure
LABELS, PHYSICIANS, CATEGORY, LANGUAGE = "binary_labels", "anonymized_physician_ids", "category", "language"
_NO_BOOLEAN = "must be true or false, without quotes"


@dataclass(frozen=True)
class LabelledAnswer:
    """What a judge is asked about."""

    messages: tuple[Mapping[str, str], ...]
    answer: str
    criterion: str


@dataclass(frozen=True)
class LabelledItem:
    """One criterion of one answer."""

    conversation: str
    judged: float  # whether the judge says that the criterion is met; of a scale its mark
    labels: tuple[float, ...]  # of each physician
    physicians: tuple[str, ...]
    category: str | None = None
    length: int | None = None  # of the answer, in characters; None where the file does not hold it
    language: str | None = None
    text: LabelledAnswer | None = None  # where judges are to be asked


@dataclass(frozen=True)
class LabelledPairs:
    """The pairs (judge, physician) of one conversation in one category."""

    conversation: Hashable
    category: str | None
    counts: tuple[int, int, int, int]  # both say met, only the judge, only the physician, none


def read_labels(file: Path, column: str | None) -> ReadFile[LabelledItem]:
    """Every item and every mistake.

    Args:
        column: with the judge's decision; None where judges are to be asked: items then hold texts, and `judged` says
            nothing.

    Raises:
        OSError: it cannot be read.
    """

    def problems_of(row: Mapping[str, Any]) -> Iterator[str]:
        yield from _problems(row)
        if column is None:
            yield from _text_problems(row)
        elif row.get(column) is None:
            hint = did_you_mean(column, [one_line(name) for name in row if name != column])
            yield f"{one_line(column)}: is missing; it is the field with the judge's decision{hint}"
        elif not isinstance(row[column], bool):
            yield f"{one_line(column)}: {_NO_BOOLEAN}"

    found = read_rows(file, "", "prompt", ("labels", "line"), problems_of, lambda row: _item(row, column))
    others = "lines have one; all have it or none has"
    found.all_or_none(CATEGORY, [one.category for one in found.rows], others)
    found.all_or_none(LANGUAGE, [one.language for one in found.rows], others)
    if found.rows and not found.problems and all(len(item.labels) < 2 for item in found.rows):
        found.problems.append(
            f"no line has the decisions of two physicians ({LABELS}): their agreement is what a judge is held against"
        )
    return found


def _problems(row: Mapping[str, Any]) -> Iterator[str]:
    labels, physicians = row.get(LABELS), row.get(PHYSICIANS)
    if row.get("prompt_id") is not None:
        yield from name_problems("prompt_id", row["prompt_id"])
    elif not isinstance(row.get("prompt"), (str, list)) or not row["prompt"]:
        yield "prompt: is missing; it (or prompt_id) says which lines are of one conversation"
    if row.get("completion") is not None and not isinstance(row["completion"], str):
        yield "completion: must be text"
    for name in (CATEGORY, LANGUAGE):
        if row.get(name) is not None:
            yield from name_problems(name, row[name])
    if not isinstance(labels, list) or not labels:
        yield f"{LABELS}: must be a list of physicians' decisions such as [true, false]"
    else:
        odd = (number for number, label in enumerate(labels) if not isinstance(label, bool))
        yield from (f"{LABELS}.{number}: {_NO_BOOLEAN}" for number in odd)
    if not isinstance(physicians, list) or not physicians:
        yield f"{PHYSICIANS}: must be a list of names, one for each of {LABELS}"
        return
    for number, name in enumerate(physicians):
        yield from text_problems(f"{PHYSICIANS}.{number}", name)
    if isinstance(labels, list) and len(labels) != len(physicians):
        yield f"{PHYSICIANS}: has {len(physicians)} names, and {LABELS} {len(labels)} decisions"
    elif len({name for name in physicians if isinstance(name, str)}) < len(physicians):
        yield f"{PHYSICIANS}: the same physician is named twice"


def _text_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """What a judge cannot be asked without."""
    if isinstance(row.get("prompt"), list):
        yield from message_problems("prompt", row["prompt"], own=False)
    elif not isinstance(row.get("prompt"), str):
        yield "prompt: is missing; the judge is shown the conversation"
    if row.get("completion") is None:
        yield "completion: is missing; it is the answer that the judge is asked about"
    yield from text_problems("rubric", row.get("rubric"))


def _item(row: Mapping[str, Any], column: str | None) -> LabelledItem:
    name, answer = row.get("prompt_id"), row.get("completion")
    if name is None:
        name = hashlib.sha256(json.dumps(row["prompt"], sort_keys=True).encode()).hexdigest()
    text = None
    if column is None:
        prompt = row["prompt"]
        turns = [{"role": USER, "content": prompt}] if isinstance(prompt, str) else prompt
        messages = tuple({"role": turn["role"], "content": turn["content"]} for turn in turns)
        text = LabelledAnswer(messages, row["completion"], row["rubric"])
    return LabelledItem(
        name, column is not None and row[column], tuple(row[LABELS]), tuple(row[PHYSICIANS]), row.get(CATEGORY),
        None if answer is None else len(answer), row.get(LANGUAGE), text,
    )  # fmt: skip
