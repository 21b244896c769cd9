"""Packs the data of the instances into blocks for a page.

A page has a block with the index of all instances, blocks with the details of the instances
(`blocks.py`), and copies of pictures and sounds (`page_media.py`). The page's own script unpacks
the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from eval_factory.core.finish_reasons import facts_of_finish_reason
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.core.safe_files import json_line
from eval_factory.core.signs import ANSWER_SIGNS, DISAGREE, SIGNS
from eval_factory.report.page.blocks import compressed_block
from eval_factory.report.page.criteria import LossCounter, TotalLoss, criteria_rows, criterion_signs
from eval_factory.report.page.page_media import PageMedia, media_columns
from eval_factory.report.page.shortened_texts import common_beginning, first_words, without_middle
from eval_factory.report.reader import instance_record
from eval_factory.report.result_plots import InstanceNumbers

_CHUNK_SIZE = 250  # the number of instances in a block of details
# the maximum number of characters that the page's table of instances shows
_MAX_TABLE_PROMPT = 90
_MAX_TABLE_ANSWER = 48


@dataclass(frozen=True)
class InstanceBlocks:
    """The data of one result's instances for a page."""

    blocks: tuple[Markup, ...]
    plot_numbers: InstanceNumbers  # the values, latencies and ratings
    counts: Mapping[str, int]  # dict from the name of a sign to the number of its questions
    total: int  # the number of questions; rewordings of a question are not counted
    middle: float | None
    """The value that separates low from high values of the main score. None if an instance is
    either right or wrong.
    """
    costliest: Sequence[TotalLoss] = ()
    """The tags and criteria that cost most points, in the order in which the index lists them."""


@dataclass
class InstancePacker:
    """A collector that packs the instances of one result, one after the other, for a page."""

    main: Score | None  # the main score of the result
    fields: Sequence[str] = ()  # the fields by which instances are grouped
    run: int = 0  # the number of the result on the page
    with_texts: bool = True  # False if the page must not have prompts and answers
    folder: Path | None = None  # the output folder, which has the pictures and sounds
    media: PageMedia = field(default_factory=PageMedia)  # shared by all results on the page
    # dict from the id of a question to the id of this question in the first result of the page
    pairs: Mapping[str, str] = field(default_factory=dict)
    _media_blocks: list[Markup] = field(default_factory=list)
    _plot_numbers: InstanceNumbers = field(default_factory=InstanceNumbers)
    # the rows of the index; `flags` of a row are the names of the instance's signs
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _waiting: list[InstanceRecord] = field(default_factory=list)  # not packed yet
    _shared_beginning: str | None = None  # the beginning of all prompts in the first block
    _blocks: list[Markup] = field(default_factory=list)
    _loss_counter: LossCounter = field(default_factory=LossCounter)

    def add(self, instance: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """Add an instance by its lines of instances.jsonl and results.jsonl, both redacted."""
        self._waiting.append(instance_record(instance, outcome))
        if len(self._waiting) == _CHUNK_SIZE:
            self._pack()

    def finish(self) -> InstanceBlocks:
        """Pack the last instances and the index, and return all blocks."""
        if self._waiting:
            self._pack()
        middle = self._middle()
        for row in self._rows:
            if row["value"] is not None:
                if self._is_bad(row["value"], middle):
                    row["flags"].append("wrong")
                else:
                    row["flags"].append("right")
        questions = self._questions()
        counts = dict.fromkeys(SIGNS, 0)
        for row in questions:
            for sign in set(row["flags"]):
                counts[sign] += 1
        costliest = self._loss_counter.costliest()
        blocks = (
            compressed_block(self.run, "index", self._index(middle, costliest)),
            *self._blocks,
            *self._media_blocks,
        )
        return InstanceBlocks(
            blocks,
            self._plot_numbers,
            counts,
            total=len(questions),
            middle=middle,
            costliest=tuple(costliest.values()),
        )

    def _middle(self) -> float | None:
        """Return the middle of the main score's scale; without a scale, the mean of the values.

        Returns None if each value is 0 or 1: an instance is then right or wrong.
        """
        values = self._plot_numbers.values
        if all(value in (0, 1) for value in values):
            return None
        if self.main is None or self.main.scale is None:
            return sum(values) / len(values)
        return sum(self.main.scale) / 2

    def _is_bad(self, value: float, middle: float | None) -> bool:
        """Return True if a value is wrong, or on the worse side of the middle."""
        lower_is_better = self.main is not None and self.main.higher_is_better is False
        if middle is None:
            if lower_is_better:
                return value == 1
            return value == 0
        if lower_is_better:
            return value > middle
        return value < middle

    def _questions(self) -> list[dict[str, Any]]:
        """Return the rows of the table, one for each question.

        The rows of a reworded question are left out if the index has the original question.
        """
        originals = set()
        for row in self._rows:
            if row["perturbation"] is None:
                originals.add((row["id"], row["trial"], row["split"]))
        questions = []
        for row in self._rows:
            key = (row["id"], row["trial"], row["split"])
            if row["perturbation"] is None or key not in originals:
                questions.append(row)
        return questions

    def _pack(self) -> None:
        """Pack the waiting instances into a block, and empty the list."""
        records = self._waiting
        self._waiting = []
        if self._shared_beginning is None:
            # The shared beginning, instructions and examples, is not shown in the page's table.
            self._shared_beginning = common_beginning(list(map(_prompt_text, records)))
        for record in records:
            self._rows.append(self._row(record, self._shared_beginning))
            self._plot_numbers.add(record, self.main)
            if self.with_texts and self.folder is not None:
                self._media_blocks += self.media.add(self.folder, record.media)
        lines = (json_line(self._detail(record)) for record in records)
        self._blocks.append(compressed_block(self.run, str(len(self._blocks)), lines))

    def _row(self, record: InstanceRecord, beginning: str) -> dict[str, Any]:
        """Return the row of the index for an instance, with the keys that page.js reads.

        The prompt is shown without `beginning`, with which all prompts begin.
        """
        pair = {}
        if record.id in self.pairs:
            pair["pair"] = self.pairs[record.id]
        value = None
        if self.main is not None and record.error is None:
            value = record.metrics.get(self.main.metric)
        groups = []
        for name in self.fields:
            category = record.categories.get(name)
            if category is not None:
                category = str(category)
            groups.append(category)
        prompt = ""
        answer = ""
        lost: tuple[int, ...] = ()
        if self.with_texts:
            # In many prompts of HELM, each example and then the question begin with "Question:".
            question = _prompt_text(record).removeprefix(beginning).rpartition("Question:")[2]
            prompt = first_words(question, _MAX_TABLE_PROMPT)
            if record.completion is not None:
                answer = first_words(record.completion, _MAX_TABLE_ANSWER)
            if record.error is None:
                lost = self._loss_counter.add(record.criteria)
        return {
            "id": record.id,
            **pair,
            "trial": record.trial,
            "perturbation": record.perturbation,
            "split": record.split,
            "value": value,
            "flags": list(dict.fromkeys(page_signs_of(record))),  # each sign once
            "groups": groups,
            "latency": record.latency_s,
            "tokens": record.completion_tokens,
            "prompt": prompt,
            "answer": answer,
            "lost": lost,  # numbers of criteria and tags; `_index` replaces them by positions
        }

    def _detail(self, record: InstanceRecord) -> dict[str, Any]:
        """Return the details of an instance, which the page shows when the instance is opened.

        The keys are those that page.js reads. Empty fields are left out.
        """
        detail: dict[str, Any] = {
            "metrics": dict(record.metrics),
            "finish_reason": record.finish_reason,
            "cached": record.cached,
            "prompt_tokens": record.prompt_tokens,
            "cluster": record.cluster,
            "sub_split": record.sub_split,
            "marks": dict(record.judges),  # each judge's mean rating
            "injection": list(record.injection),
            "criteria": criteria_rows(record.criteria, with_texts=self.with_texts),
        }
        if self.with_texts:
            detail |= _detail_texts(record)
        shown = {}
        for name, value in detail.items():
            is_empty = value is None or value is False or value in ([], {})
            if not is_empty:
                shown[name] = value
        return shown

    def _index(self, middle: float | None, costliest: Mapping[int, TotalLoss]) -> Iterator[str]:
        """Yield the index as lines of JSON: facts about all instances, then each row.

        A row's `lost` has the positions of the instance's criteria and tags in `costliest`.
        """
        general_facts: dict[str, Any] = {
            "chunk": _CHUNK_SIZE,
            "flags": list(SIGNS),  # the names of all signs
            "groups": self.fields,
            "middle": middle,
            "texts": self.with_texts,
        }
        if costliest:
            general_facts["lost"] = [[loss.label, loss.is_tag] for loss in costliest.values()]
        yield json_line(general_facts)
        positions = {number: position for position, number in enumerate(costliest)}
        for row in self._rows:
            lost = [positions[number] for number in row["lost"] if number in positions]
            yield json_line({**row, "lost": lost})


def _detail_texts(record: InstanceRecord) -> dict[str, Any]:
    """Return the details of an instance that are texts, and its media."""
    prompt = None
    if not record.turns:
        prompt = without_middle(record.prompt)
    references = []
    for reference in record.references:
        references.append([reference.get("text", ""), "correct" in reference.get("tags", ())])
    return {
        "prompt": prompt,
        "turns": list(record.turns),
        "references": references,
        "media": media_columns(record.media),
        "answer": without_middle(record.completion),
        "reasoning": without_middle(record.reasoning),
        "error": record.error,
        "judges": dict(record.judgements),  # rating and explanation by criterion
        "categories": dict(record.categories),
    }


_DISAGREEMENT = 2  # judges disagree if their ratings are so many points apart


def page_signs_of(record: InstanceRecord) -> Iterator[str]:
    """Yield the signs of an instance, except `right` and `wrong`; a sign may occur twice.

    The signs `right` and `wrong` depend on the values of all instances.
    """
    finish_sign = facts_of_finish_reason(record.finish_reason).sign
    if record.error is not None:
        if finish_sign == "filtered":
            yield finish_sign
        else:
            yield "failed"
    elif record.completion is not None and not record.completion.strip():
        yield "empty"
    if finish_sign == "cut_off":
        yield finish_sign
    ratings = record.judges.values()
    if ratings and max(ratings) - min(ratings) >= _DISAGREEMENT:
        yield DISAGREE
    if record.unjudged:
        yield "unjudged"
    if record.injection:
        yield "injection"
    yield from criterion_signs(record)
    for sign in ANSWER_SIGNS:
        if sign in record.signs:
            yield sign


def _prompt_text(record: InstanceRecord) -> str:
    """Return the text of a prompt without its system prompt, which all prompts share."""
    texts = []
    for turn in record.turns:
        if turn.get("role") != "system" and isinstance(turn.get("content"), str):
            texts.append(turn["content"])
    return "\n".join(texts) or record.prompt
