"""Reads physicians' decisions about criteria, in the form of HealthBench's meta-evaluation.

The form is that of arXiv 2505.08775, section 6 (MIT). A file has JSON lines, and each line is about
one criterion of one answer. The fields of a line are `prompt` (or `prompt_id`), `completion`,
`rubric`, `category`, `binary_labels` and `anonymized_physician_ids`. A further field has the
judge's decision. If eval-factory asks judges itself, this field is not needed, but each line must
have all texts that a judge sees.

Error messages never quote the value of a field, because the value may be patient data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.tasks.file_problems import ReadFile
from eval_factory.tasks.message_files import (
    message_problems,
    read_rows,
    short_line_problems,
    text_problems,
)
from eval_factory.tasks.rubric_case import USER_ROLE

MIN_ITEMS = 10  # no figures are computed for fewer items, such as those of a rare category
ITEM = "item_id"
LABELS = "binary_labels"
PHYSICIANS = "anonymized_physician_ids"
CATEGORY = "category"
LANGUAGE = "language"
_MUST_BE_BOOLEAN = "must be true or false, without quotes"


@dataclass(frozen=True)
class LabelledAnswer:
    """The texts that are shown to a judge: a conversation, an answer and a criterion."""

    messages: tuple[Mapping[str, str], ...]
    answer: str
    criterion: str


@dataclass(frozen=True)
class LabelledItem:
    """The decisions of a judge and of physicians about one criterion of one answer."""

    conversation: str  # the id of the conversation
    # the judge's decision: 1.0 if the criterion is met, else 0.0; or the judge's rating on a scale
    judged: float
    labels: tuple[float, ...]  # the decisions of the physicians, in the same form
    physicians: tuple[str, ...]  # the name of the physician of each of `labels`
    category: str | None = None
    length: int | None = None  # the answer's length in characters; None if the line has no answer
    language: str | None = None
    text: LabelledAnswer | None = None  # set if eval-factory asks judges itself


@dataclass(frozen=True)
class LabelledPairs:
    """The numbers of pairs (judge's decision, physician's decision) of one conversation and
    category.
    """

    conversation: Hashable
    category: str | None
    # the number of pairs with: both "met", only the judge "met", only the physician "met", neither
    counts: tuple[int, int, int, int]


@dataclass(frozen=True)
class LabelledItems:
    """The number of items of one conversation and category with the same decisions."""

    conversation: Hashable
    category: str | None
    judged: bool  # True if the judge decided "met"
    labels: int  # the number of physicians who decided about each item
    met: int  # the number of these physicians who decided "met"
    items: int  # the number of items with these three values


def read_labels(file: Path, column: str | None) -> ReadFile[LabelledItem]:
    """Return the items of all lines without mistakes, and the mistakes in the file.

    Args:
        file: the path of a file of JSON lines.
        column: the field with the judge's decision. None if eval-factory asks judges itself: items
            then hold the texts for the judges, and their `judged` has no meaning.

    Raises:
        OSError: the file cannot be read.
    """

    def problems_of(row: Mapping[str, Any]) -> Iterator[str]:
        yield from _decision_problems(row)
        if column is None:
            yield from _judge_text_problems(row)
        elif row.get(column) is None:
            hint = did_you_mean(column, [one_line(name) for name in row if name != column])
            yield f"{one_line(column)}: is missing; it is the field with the judge's decision{hint}"
        elif not isinstance(row[column], bool):
            yield f"{one_line(column)}: {_MUST_BE_BOOLEAN}"

    identities: list[_ItemIdentity] = []  # of each item in `content.rows`

    # `read_rows` calls this function once for each row that it adds to `content.rows`.
    def item_of(row: Mapping[str, Any]) -> LabelledItem:
        identities.append(_identity_of(row))
        return _item(row, column)

    content = read_rows(
        file,
        id_key=None,  # several lines may be about one item
        example_key="prompt",
        row_noun="line",
        rows_noun="labels",
        problems_of=problems_of,
        row_of=item_of,
    )
    content.problems += _contradictions(identities, content)
    rule = "lines have one; all have it or none has"
    content.all_or_none(CATEGORY, [item.category for item in content.rows], rule)
    content.all_or_none(LANGUAGE, [item.language for item in content.rows], rule)
    nobody_can_be_compared = all(len(item.labels) < 2 for item in content.rows)
    if nobody_can_be_compared and content.rows and not content.problems:
        content.problems.append(
            f"no line has the decisions of two physicians ({LABELS}): the judge's agreement is "
            "compared with the physicians' agreement"
        )
    return content


@dataclass(frozen=True)
class _ItemIdentity:
    """The item that a line is about, identified by ids and by texts."""

    ids: Hashable  # None if the line does not have enough ids to identify the item
    texts: str  # the texts of the item as JSON


def _identity_of(row: Mapping[str, Any]) -> _ItemIdentity:
    """Return the identity of the item of a line.

    The ids are the field `item_id`; or else `completion_id`, together with the criterion and the
    category.
    """
    fields = [row.get(name) for name in ("prompt", "prompt_id", "completion", "rubric", CATEGORY)]
    texts = json.dumps(fields, sort_keys=True)
    if row.get(ITEM) is not None:
        return _ItemIdentity(str(row[ITEM]).strip(), texts)
    if row.get("completion_id") is None or row.get("rubric") is None:
        return _ItemIdentity(ids=None, texts=texts)
    ids = (str(row["completion_id"]).strip(), json.dumps(row["rubric"]), row.get(CATEGORY))
    return _ItemIdentity(ids, texts)


def _contradictions(
    identities: Sequence[_ItemIdentity], content: ReadFile[LabelledItem]
) -> Iterator[str]:
    """Yield a problem for each line that contradicts an earlier line about the same item.

    Two lines contradict each other if their texts differ, or if the judge or a physician has
    different decisions in the two lines. Lines without enough ids are not compared.
    """
    # dict from (ids, physician or None for the judge) to (decision, first line with the decision)
    decisions_of_ids: dict[tuple[Hashable, str | None], tuple[float, int]] = {}
    # dict from ids to (texts, first line with the ids)
    texts_of_ids: dict[Hashable, tuple[str, int]] = {}
    for identity, item, line in zip(identities, content.rows, content.lines, strict=True):
        if identity.ids is None:
            continue
        # `setdefault` stores the texts of the first line, and returns them for later lines.
        texts, first_line = texts_of_ids.setdefault(identity.ids, (identity.texts, line))
        if texts != identity.texts:
            yield (
                f"line {line}: has the same id as line {first_line}, but other texts or another "
                "category; give each item its own id"
            )
            continue
        # (physician or None for the judge, decision)
        decisions: list[tuple[str | None, float]] = [(None, item.judged)]
        decisions += zip(item.physicians, item.labels, strict=True)
        for who, decision in decisions:
            key = (identity.ids, who)
            first_decision, line_of_first = decisions_of_ids.setdefault(key, (decision, line))
            if first_decision != decision:
                # The message does not name the physician, because values of fields are not quoted.
                name = "the judge" if who is None else "a physician"
                yield (
                    f"line {line}: {name} decides about the same item (id) in another way than "
                    f"in line {line_of_first}; remove one of the two lines"
                )
                break


def _decision_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the physicians' decisions in a line, and of the ids of the line."""
    labels = row.get(LABELS)
    physicians = row.get(PHYSICIANS)
    if row.get("prompt_id") is not None:
        yield from short_line_problems("prompt_id", row["prompt_id"])
    elif not isinstance(row.get("prompt"), (str, list)) or not row["prompt"]:
        yield "prompt: is missing; prompt (or prompt_id) identifies the lines of one conversation"
    if row.get("completion") is not None and not isinstance(row["completion"], str):
        yield "completion: must be text"
    yield from _id_problems(row)
    if not isinstance(labels, list) or not labels:
        yield f"{LABELS}: must be a list of physicians' decisions such as [true, false]"
    else:
        for number, label in enumerate(labels):
            if not isinstance(label, bool):
                yield f"{LABELS}.{number}: {_MUST_BE_BOOLEAN}"
    if not isinstance(physicians, list) or not physicians:
        yield f"{PHYSICIANS}: must be a list of names, one for each of {LABELS}"
        return
    for number, name in enumerate(physicians):
        yield from text_problems(f"{PHYSICIANS}.{number}", name)
    if isinstance(labels, list) and len(labels) != len(physicians):
        yield f"{PHYSICIANS}: has {len(physicians)} names, and {LABELS} {len(labels)} decisions"
    elif len({name for name in physicians if isinstance(name, str)}) < len(physicians):
        yield f"{PHYSICIANS}: the same physician is named twice"


def _id_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a line's category, language and ids."""
    for name in (CATEGORY, LANGUAGE):
        if row.get(name) is not None:
            yield from short_line_problems(name, row[name])
    for name in (ITEM, "completion_id"):
        if not (row.get(name) is None or type(row[name]) is int or isinstance(row[name], str)):
            yield f"{name}: must be text, or a whole number"


def _judge_text_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each missing text that is shown to judges."""
    if isinstance(row.get("prompt"), list):
        yield from message_problems("prompt", row["prompt"], is_strict=False)
    elif not isinstance(row.get("prompt"), str):
        yield "prompt: is missing; the judge is shown the conversation"
    if row.get("completion") is None:
        yield "completion: is missing; the judge is shown the answer"
    yield from text_problems("rubric", row.get("rubric"))


def _item(row: Mapping[str, Any], column: str | None) -> LabelledItem:
    """Return the item of a line without problems; `column` as in `read_labels`."""
    conversation = row.get("prompt_id")
    if conversation is None:
        prompt = json.dumps(row["prompt"], sort_keys=True)
        conversation = hashlib.sha256(prompt.encode()).hexdigest()
    answer = row.get("completion")
    return LabelledItem(
        conversation=conversation,
        judged=False if column is None else row[column],
        labels=tuple(row[LABELS]),
        physicians=tuple(row[PHYSICIANS]),
        category=row.get(CATEGORY),
        length=None if answer is None else len(answer),
        language=row.get(LANGUAGE),
        text=_texts_for_judges(row) if column is None else None,
    )


def _texts_for_judges(row: Mapping[str, Any]) -> LabelledAnswer:
    """Return the texts of a line without problems; a `prompt` that is a text is one message."""
    turns = row["prompt"]
    if isinstance(turns, str):
        turns = [{"role": USER_ROLE, "content": turns}]
    messages = tuple({"role": turn["role"], "content": turn["content"]} for turn in turns)
    return LabelledAnswer(messages, row["completion"], row["rubric"])
