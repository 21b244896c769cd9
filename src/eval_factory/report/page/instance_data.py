"""Instances -> the blocks of a page: an index with what the table shows and filters by, and chunks with the texts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from eval_factory.core.results import InstanceRecord, Score
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import REDACTED
from eval_factory.report.page.data_blocks import BlockWriter
from eval_factory.report.page.rubric_data import (
    SIGNS,
    Lost,
    LostPoints,
    criteria_rows,
    criterion_signs,
    judges_differ,
)
from eval_factory.report.plots.result_plots import InstanceNumbers
from eval_factory.report.reader import instance_record

CHUNK = 250
"""Instances that are unpacked together when one of them is opened."""
CUT_OFF, FILTERED = "length", "content_filter"
"""Why an answer ended, as endpoints say it."""
FAR_APART = 2.0
"""Marks between judges that are told as a disagreement."""
PREVIEW, ANSWER_PREVIEW = 90, 48
"""Characters of a prompt and an answer in the table."""
QUESTION = "Question:"
"""What stands before the question in most of HELM's prompts."""

FLAGS = (
    "wrong", "right", "failed", "empty", "cut_off", "disagree", "unparsed", "refused", "thinking_stripped",
    "thinking_unfinished", "filtered", "unjudged", "prompt_truncated", "injection",
    *SIGNS,
)  # fmt: skip
"""What an instance can be filtered by, each a bit of the index in this order."""
_SIGNS = ("unparsed", "refused", "thinking_stripped", "thinking_unfinished", "prompt_truncated")

Key = tuple[str, int, str | None, str]


@dataclass(frozen=True)
class InstanceBlocks:
    """All that a page holds of the instances of one result."""

    blocks: tuple[Markup, ...]
    numbers: InstanceNumbers
    counts: Mapping[str, int]
    """Flag -> instances."""
    total: int
    middle: float | None
    """What is below it (above it, where lower is better) is told as low; None where values are right or wrong."""
    prompts: Mapping[Key, bytes]
    """A short hash of each prompt with its references, so that another result on the page need not repeat them; of a
    result that is alone on its page none."""
    lost: Sequence[Lost] = ()
    """Tags and criteria that cost most points, in the order in which the index numbers them."""


@dataclass
class _Row:
    key: Key
    value: float | None
    flags: set[str]
    groups: tuple[str | None, ...]
    latency_s: float | None
    tokens: int | None
    preview: str
    answer: str
    lost: tuple[int, ...]


@dataclass
class InstancePacker:
    """Takes the two lines of each instance, redacted as they are written, and packs them as they come."""

    main: Score | None
    fields: Sequence[str] = ()
    """Of the instances, by which they are grouped."""
    run: int = 0
    with_texts: bool = True
    known_prompts: Mapping[Key, bytes] = field(default_factory=dict)
    """Of another result on the page."""
    tags: Collection[str] = ()
    """Of criteria, those that are shown without texts."""
    beside_others: bool = False
    """Whether other results are on the page, which need not repeat its prompts."""
    _numbers: InstanceNumbers = field(default_factory=InstanceNumbers)
    _rows: list[_Row] = field(default_factory=list)
    _waiting: list[InstanceRecord] = field(default_factory=list)
    _prompts: dict[Key, bytes] = field(default_factory=dict)
    _beginning: str | None = None
    _writer: BlockWriter = field(init=False)
    _lost: LostPoints = field(init=False)

    def __post_init__(self) -> None:
        self._writer = BlockWriter(self.run)
        self._lost = LostPoints(self.with_texts, self.tags)

    def add(self, instance: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """One instance, as a line of instances.jsonl and one of results.jsonl."""
        record = instance_record(instance, outcome)
        self._waiting.append(record)
        if len(self._waiting) == CHUNK:
            self._pack()

    def finish(self) -> InstanceBlocks:
        if self._waiting:
            self._pack()
        values = self._numbers.values
        judged = all(value in (0, 1) for value in values)
        middle = None if judged else self._middle(values)
        for row in self._rows:
            if row.value is not None:
                row.flags.add("wrong" if self._is_low(row.value, middle) else "right")
        counts = {flag: sum(flag in row.flags for row in self._rows) for flag in FLAGS}
        most = self._lost.most()
        blocks = self._writer.finish(self._index(middle, most))
        lost = tuple(most.values())
        return InstanceBlocks(blocks, self._numbers, counts, len(self._rows), middle, self._prompts, lost)

    def _pack(self) -> None:
        """What all prompts of the first chunk begin with (the examples) is not what a table should show of each."""
        records, self._waiting = self._waiting, []
        if self._beginning is None:
            self._beginning = common_beginning([_text_of_prompt(record) for record in records])
        lines = []
        for record in records:
            self._rows.append(self._row(record))
            self._count(record)
            lines.append(json_line(self._detail(record)))
        self._writer.add(lines)

    def _row(self, record: InstanceRecord) -> _Row:
        prompt = _text_of_prompt(record).removeprefix(self._beginning or "")
        return _Row(
            key=(record.id, record.trial, record.perturbation, record.split),
            value=None if self.main is None or record.error is not None else record.metrics.get(self.main.metric),
            flags=set(flags_of(record)),
            groups=tuple(None if (one := record.categories.get(name)) is None else str(one) for name in self.fields),
            latency_s=record.latency_s,
            tokens=record.completion_tokens,
            preview=first_words(prompt.rpartition(QUESTION)[2], PREVIEW) if self.with_texts else "",
            answer=first_words(record.completion or "", ANSWER_PREVIEW) if self.with_texts else "",
            lost=() if record.error is not None else self._lost.add(record.criteria),
        )

    def _count(self, record: InstanceRecord) -> None:
        main, numbers = self.main, self._numbers
        value = self._rows[-1].value
        if main and value is not None and (record.split, record.perturbation) == (main.split or "", main.perturbation):
            numbers.values.append(value)
        if record.latency_s is not None:
            numbers.latencies.append(record.latency_s)
        for judge, rating in record.judges.items():
            numbers.ratings.setdefault(judge, []).append(rating)

    def _detail(self, record: InstanceRecord) -> dict[str, Any]:
        """What is shown of an opened instance; what is empty is left out."""
        found = {
            "metrics": dict(record.metrics), "finish_reason": record.finish_reason, "cached": record.cached,
            "prompt_tokens": record.prompt_tokens, "cluster": record.cluster, "sub_split": record.sub_split,
            "marks": dict(record.judges), "injection": list(record.injection),
            "criteria": criteria_rows(record.criteria, with_texts=self.with_texts, tags=self.tags),
        }  # fmt: skip
        if self.with_texts:
            found |= self._texts(record)
        return {
            name: value for name, value in found.items() if not (value is None or value is False or value in ([], {}))
        }

    def _texts(self, record: InstanceRecord) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "prompt": None if record.turns else record.prompt, "turns": list(record.turns),
            "references": [[one.get("text", ""), "correct" in one.get("tags", ())] for one in record.references],
        }  # fmt: skip
        if self.beside_others:
            key = (record.id, record.trial, record.perturbation, record.split)
            self._prompts[key] = digest = _digest(asked)
            if self.known_prompts.get(key) == digest:
                asked = {"same_prompt": True}
        return {
            **asked, "answer": record.completion, "reasoning": record.reasoning, "error": record.error,
            "judges": dict(record.judgements), "categories": dict(record.categories),
        }  # fmt: skip

    def _is_low(self, value: float, middle: float | None) -> bool:
        lower_is_better = self.main is not None and self.main.higher_is_better is False
        if middle is None:
            return value == (1 if lower_is_better else 0)
        return value > middle if lower_is_better else value < middle

    def _middle(self, values: Sequence[float]) -> float:
        """Of the scale, where there is one; else the mean of the instances."""
        if self.main is not None and self.main.scale is not None:
            return sum(self.main.scale) / 2
        return sum(values) / len(values)

    def _index(self, middle: float | None, most: Mapping[int, Lost]) -> Iterator[str]:
        """A line that says what the others hold, then a line an instance, which ends with what cost it points."""
        names: list[dict[str, int]] = [{} for _ in self.fields]
        numbered = [
            [None if one is None else known.setdefault(one, len(known)) for one, known in zip(row.groups, names)]  # noqa: B905
            for row in self._rows
        ]
        groups = [[name, list(known)] for name, known in zip(self.fields, names, strict=True)]
        lost = {"lost": [[one.label, one.is_tag] for one in most.values()]} if most else {}
        yield json_line({
            "chunk": CHUNK, "flags": FLAGS, "groups": groups, "middle": middle, "texts": self.with_texts,
            "metric": None if self.main is None else self.main.metric, **lost,
        })  # fmt: skip
        numbers = {place: number for number, place in enumerate(most)}
        for row, members in zip(self._rows, numbered, strict=True):
            bits = sum(1 << place for place, flag in enumerate(FLAGS) if flag in row.flags)
            cost = [[numbers[place] for place in row.lost if place in numbers]] if numbers else []
            shown = [row.latency_s, row.tokens, row.preview, row.answer]
            yield json_line([*row.key, row.value, bits, members, *shown, *cost])


def flags_of(record: InstanceRecord) -> Iterator[str]:
    """All but whether it is right, which depends on the others."""
    if record.error is not None:
        yield "filtered" if record.finish_reason == FILTERED else "failed"
    elif record.completion is not None and not record.completion.strip():
        yield "empty"
    if record.finish_reason == CUT_OFF:
        yield "cut_off"
    marks = record.judges.values()
    if (marks and max(marks) - min(marks) >= FAR_APART) or judges_differ(record):
        yield "disagree"
    if record.unjudged:
        yield "unjudged"
    if record.injection:
        yield "injection"
    yield from criterion_signs(record)
    yield from (sign for sign in _SIGNS if sign in record.signs)


def common_beginning(texts: Sequence[str]) -> str:
    """What all of them begin with, up to the end of a line; nothing of a single one."""
    if len(texts) < 2:
        return ""
    shared = os.path.commonprefix(list(texts))  # noqa: RUF071 - of texts, letter by letter
    return shared[: shared.rfind("\n") + 1]


def _text_of_prompt(record: InstanceRecord) -> str:
    """Without the system prompt, which all have."""
    if not record.turns:
        return record.prompt
    said = [turn.get("content") for turn in record.turns if turn.get("role") != "system"]
    return "\n".join(one for one in said if isinstance(one, str)) or record.prompt


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def first_words(text: str, length: int) -> str:
    """On one line. It ends where something was redacted: `verify` makes the page again and knows no key."""
    before, redacted, _ = text[: 8 * length].partition(REDACTED)
    shown = " ".join(before.split())
    if len(shown) > length:
        return shown[: length - 1].rstrip() + "…"
    return f"{shown} {REDACTED}".lstrip() if redacted else shown


def _digest(asked: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json_line(asked).encode("utf-8", "surrogatepass")).digest()[:16]
