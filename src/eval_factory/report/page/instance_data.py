"""Packs the data of the instances into blocks for a page.

A page has a block with the index of all instances, blocks with the details of the instances, and
copies of pictures and sounds. Each block is an element
`<script type="application/x-eval-factory...">`. Browsers do not run a script of this type; the
page's own script unpacks the data.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from eval_factory.core.finish_reasons import facts_of_finish_reason
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.core.safe_files import json_line, open_regular
from eval_factory.core.secrets import REDACTED
from eval_factory.core.signs import ANSWER_SIGNS, DISAGREE, HARM, NOT_MET, SIGNS, UNDECIDED
from eval_factory.report.reader import instance_record
from eval_factory.report.result_plots import InstanceNumbers

# dict from the media type of a picture to Pillow's name of the format
_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_SOUNDS = ("audio/wav", "audio/mpeg", "audio/flac")
_MAX_PICTURE_SIZE = 64 << 20  # in bytes
_MAX_SOUND_SIZE = 1 << 20  # in bytes
_MEDIUM_TYPE = "application/x-eval-factory-medium"
# An element that `PageMedia.add` returned, with the line break before it.
_MEDIUM_BLOCK = re.compile(
    rf'\n<script type="{_MEDIUM_TYPE}" data-sha256="\w+" data-type="[\w/]+">'
    r"[A-Za-z0-9+/=]*</script>"
)


@dataclass
class PageMedia:
    """The pictures and sounds of one page. Each file is on the page once."""

    max_side: int = 512  # the maximum width and height of a picture, in pixels
    remaining: int = 10 << 20  # the number of base64 characters that may still be added
    _added_hashes: set[str] = field(default_factory=set)  # the SHA-256 of each file on the page

    def add(self, folder: Path, media: Iterable[Mapping[str, Any]]) -> list[Markup]:
        """Return an element for each picture and sound that is not on the page yet and fits.

        Args:
            folder: the output folder of the result.
            media: the `media` of an `InstanceRecord` of this result.
        """
        added = []
        for medium in media:
            sha256 = str(medium.get("sha256") or "")
            file = str(medium.get("file") or "")
            if not sha256 or not file:  # The run could not read this file.
                continue
            if not self.remaining or sha256 in self._added_hashes:
                continue
            media_type, data = _medium_for_page(
                folder, file, str(medium.get("type")), sha256, self.max_side
            )
            text = base64.b64encode(data).decode("ascii")
            if len(text) > self.remaining:
                self.remaining = 0  # From now on no file is read.
            elif text:
                self.remaining -= len(text)
                self._added_hashes.add(sha256)
                tag = (
                    f'<script type="{_MEDIUM_TYPE}" data-sha256="{sha256}" '
                    f'data-type="{media_type}">'
                )
                # The element needs no escaping: the text is base64, the file has this hash, and
                # the type is a supported type.
                added.append(Markup(f"{tag}{text}</script>"))  # noqa: S704
        return added


def media_columns(media: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the type, SHA-256 and file of each medium, for the page's script."""
    columns = []
    for medium in media:
        columns.append([medium.get("type"), medium.get("sha256"), medium.get("file")])
    return columns


def without_media(page: str) -> str:
    """Return a page without its pictures and sounds.

    Pages are compared without media, because versions of Pillow make different bytes of the same
    picture. instances.jsonl has the hash of each original file.
    """
    return _MEDIUM_BLOCK.sub("", page)


def _medium_for_page(
    folder: Path, file: str, media_type: str, sha256: str, max_side: int
) -> tuple[str, bytes]:
    """Return the type and the content of a picture or sound in the form that the page shows.

    The content is empty if the file is missing, too large or of an unsupported type, or if its hash
    is not `sha256`.
    """
    if media_type in _PICTURES:
        max_size = _MAX_PICTURE_SIZE
    elif media_type in _SOUNDS:
        max_size = _MAX_SOUND_SIZE
    else:
        return media_type, b""
    try:
        with open_regular(folder / file, inside=folder) as opened:
            data = opened.read(max_size + 1)  # one byte more shows that the file is too large
    except (OSError, ValueError):
        return media_type, b""
    if len(data) > max_size or hashlib.sha256(data).hexdigest() != sha256:
        return media_type, b""
    if media_type in _PICTURES:
        return "image/jpeg", _reduced_picture(data, _PICTURES[media_type], max_side)
    return media_type, data


def _reduced_picture(data: bytes, pillow_format: str, max_side: int) -> bytes:
    """Return a picture as a JPEG; empty bytes if the file is broken or has too many pixels.

    The picture is at most `max_side` pixels wide and high. Transparent parts become white.
    """
    from PIL import Image, ImageOps  # imported here, because few results have pictures

    out = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(data), formats=[pillow_format])
        with opened:
            # A large JPEG is read at a lower resolution, which is faster. Twice the final size is
            # enough for a sharp picture.
            opened.draft(None, (2 * max_side, 2 * max_side))
            picture = ImageOps.exif_transpose(opened)
            # A picture with 16 bits: `convert` would turn all values above 255 into white. Divided
            # by 257 and rounded (+ 0.5), the values from 0 to 65,535 become 0 to 255.
            if picture.mode.startswith("I"):
                picture = (
                    picture.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
                )
            picture = picture.convert("RGBA")
            picture.thumbnail((max_side, max_side))
            shown = Image.new("RGB", picture.size, "white")
            shown.paste(picture, mask=picture)
            shown.save(out, "JPEG", quality=90, subsampling=0)
    except Exception:  # Pillow raises exceptions of many classes for broken files.
        return b""
    return out.getvalue()


Criterion = Mapping[str, Any]
"""A criterion of an answer: an entry of `InstanceRecord.criteria`.

The keys are `criterion` (the text), `points`, `tags`, `verdict` (a key of `_SHARES`, or `unjudged`)
and `judges`, which maps a judge's name to its vote. A vote has `criteria_met` (True or False) and
`explanation`; or `error` if the judge did not decide.
"""
_SHARES: Mapping[str, float] = {"met": 1.0, "tied": 0.5, "not met": 0.0}
"""A dict from the verdict on a criterion to the share of the criterion's points that the answer
gets. The verdict `unjudged` has no share.
"""
MAX_SHORT_TEXT = 2_000
"""The maximum number of characters that a page has of a judge's explanation, a criterion or a tag.
results.jsonl has the complete text.
"""
MAX_SHOWN_TEXT = 500_000
"""The maximum number of characters that a page has of a prompt, an answer or a model's reasoning:
about 100,000 words. Browsers cannot show many longer texts. results.jsonl and instances.jsonl have
the complete texts.
"""
MAX_LOST = 25  # the maximum number of criteria, and of tags, in the list of the most points lost
MAX_TAGS = 50  # the maximum number of tags that a page has of a criterion


def points_lost(criterion: Criterion) -> float | None:
    """Return the points that an answer lost by a criterion; None if no judge decided.

    The best possible answer loses 0 points.
    """
    share = _SHARES.get(criterion["verdict"])
    if share is None:
        return None
    points = float(criterion["points"])
    if points > 0:
        return points * (1 - share)
    # Negative points are a penalty: an answer loses them if the criterion is met.
    return -points * share


def criterion_signs(record: InstanceRecord) -> Iterator[str]:
    """Yield the signs of an answer's criteria; no signs if the request failed."""
    if record.error is not None:
        return
    signs = set()
    for criterion in record.criteria:
        decisions = set(map(_decision, criterion["judges"].values()))
        if criterion["points"] > 0 and criterion["verdict"] == "not met":
            signs.add(NOT_MET)
        if criterion["points"] < 0 and criterion["verdict"] == "met":
            signs.add(HARM)
        if criterion["verdict"] == "unjudged" or None in decisions:
            signs.add(UNDECIDED)
        if {0, 1} <= decisions:
            signs.add(DISAGREE)
    for sign in (NOT_MET, HARM, UNDECIDED, DISAGREE):
        if sign in signs:
            yield sign


def criteria_rows(criteria: Sequence[Criterion], *, with_texts: bool) -> list[list[Any]]:
    """Return a row for each criterion of an answer, for the page's script.

    A row has the number, the text, the points, the tags, the verdict, the points lost, and a list
    for each judge: name, decision (1, 0 or None) and explanation. Without texts, the rows have no
    text of a criterion, tag or judge.

    The criteria with most points lost come first, then criteria without a decision, then criteria
    that lost no points. Equal criteria stay in the order of the file.
    """
    # pairs of the number of a criterion in the file and the criterion
    numbered = list(enumerate(criteria, start=1))
    numbered.sort(key=lambda pair: _sort_key_of(pair[1]))
    rows = []
    for number, criterion in numbered:
        text = None
        tags: list[str] = []
        if with_texts:
            text = shortened_text(criterion["criterion"])
            tags = list(map(shortened_text, criterion["tags"][:MAX_TAGS]))
        rows.append(
            [
                number,
                text,
                criterion["points"],
                tags,
                criterion["verdict"],
                points_lost(criterion),
                _judge_columns(criterion, with_texts=with_texts),
            ]
        )
    return rows


def _sort_key_of(criterion: Criterion) -> tuple[float, bool]:
    """Return the key by which `criteria_rows` sorts a criterion; the smallest key comes first."""
    lost = points_lost(criterion)
    if lost is None:
        return 0.0, False
    return -lost, True  # `True` is after `False`: 0 points lost come after no decision.


def _judge_columns(criterion: Criterion, *, with_texts: bool) -> list[list[Any]]:
    """Return the name, the decision and the explanation of each judge of a criterion."""
    columns = []
    for judge, vote in criterion["judges"].items():
        text = None
        if with_texts:
            text = vote.get("explanation", vote.get("error"))
        if text is not None:
            text = shortened_text(str(text))
        columns.append([judge, _decision(vote), text])
    return columns


def _decision(vote: Mapping[str, Any]) -> int | None:
    """Return 1 if a judge decided that the criterion is met, 0 if not, None without a decision."""
    met = vote.get("criteria_met")
    if isinstance(met, bool):
        return int(met)
    return None


def shortened_text(text: str) -> str:
    """Return a text that is cut after `MAX_SHORT_TEXT` characters, with a note on its length."""
    if len(text) <= MAX_SHORT_TEXT:
        return text
    return f"{text[:MAX_SHORT_TEXT]} … ({len(text):,} characters: results.jsonl)"


def without_middle(text: str | None) -> str | None:
    """Return a text. If the text is too long for a page, a note replaces its middle."""
    if text is None or len(text) <= MAX_SHOWN_TEXT:
        return text
    half = MAX_SHOWN_TEXT // 2
    left_out = len(text) - 2 * half
    return (
        f"{text[:half]}\n\n[... {left_out:,} characters are left out of this page ...]\n\n"
        f"{text[-half:]}"
    )


@dataclass
class TotalLoss:
    """The points that all answers together lost by a criterion, or by the criteria with a tag."""

    label: str  # the text of the criterion, or the tag
    is_tag: bool
    judged: int = 0  # the number of decisions
    times: int = 0  # the number of answers that lost points
    points: float = 0.0  # the sum of the points lost
    answers: int = 0  # the number of answers with the criterion or tag


@dataclass
class LossCounter:
    """A counter that adds up the points lost by each criterion and tag, answer by answer."""

    # Criteria and tags have numbers in the order of their first occurrence, from 0.
    # dict from (True for a tag, text) to the number of the criterion or tag: its index in `_losses`
    _numbers: dict[tuple[bool, str], int] = field(default_factory=dict)
    _losses: list[TotalLoss] = field(default_factory=list)

    def add(self, criteria: Sequence[Criterion]) -> tuple[int, ...]:
        """Add the criteria of one answer.

        Return the numbers of the criteria and tags by which this answer lost points.
        """
        lost: set[int] = set()  # the numbers by which this answer lost points
        seen: set[int] = set()  # the numbers that this answer has
        for criterion in criteria:
            points = points_lost(criterion)
            for number in self._numbers_of(criterion):
                loss = self._losses[number]
                if number not in seen:
                    loss.answers += 1
                    seen.add(number)
                if points is not None:
                    loss.judged += 1
                    loss.points += points
                    if points and number not in lost:
                        loss.times += 1
                        lost.add(number)
        return tuple(sorted(lost))

    def _numbers_of(self, criterion: Criterion) -> Iterator[int]:
        """Yield the numbers of a criterion's tags, then the number of the criterion."""
        for tag in dict.fromkeys(criterion["tags"]):
            yield self._number_of(tag, is_tag=True)
        yield self._number_of(criterion["criterion"], is_tag=False)

    def _number_of(self, label: str, *, is_tag: bool) -> int:
        """Return the number of a criterion or tag; a new one gets the next number."""
        number = self._numbers.setdefault((is_tag, label), len(self._losses))
        if number == len(self._losses):  # The criterion or tag is new.
            self._losses.append(TotalLoss(shortened_text(label), is_tag))
        return number

    def costliest(self) -> dict[int, TotalLoss]:
        """Return a dict from numbers to losses: the costliest tags, then the costliest criteria.

        Criteria and tags that only one answer has, or that cost nothing, are left out.
        """
        tags = []
        criteria = []
        for number, loss in enumerate(self._losses):
            if loss.times and loss.answers > 1:
                if loss.is_tag:
                    tags.append((number, loss))
                else:
                    criteria.append((number, loss))
        for entries in (tags, criteria):
            entries.sort(key=lambda entry: (-entry[1].points, entry[1].label))
        return dict([*tags[:MAX_LOST], *criteria[:MAX_LOST]])


# The maximum size of an unpacked block, in bytes. A block of a few kilobytes could otherwise unpack
# to gigabytes of zeros.
_MAX_UNPACKED = 256 << 20
_GZIP_LEVEL = 6  # 1 is the fastest, 9 compresses most
BLOCK_TYPE = "application/x-eval-factory"
# An element that `compressed_block` returned: its first tag, its base64 text, and its last tag.
_BLOCK = re.compile(
    rf'(<script type="{BLOCK_TYPE}" data-run="\d+" data-part="\w+">)([A-Za-z0-9+/=]*)(</script>)'
)


def compressed_block(run: int, part: str, lines: Iterable[str]) -> Markup:
    """Return lines of JSON as an element of the page, compressed with gzip (RFC 1952).

    The content is base64, which has no `<`. No text in the data can therefore end the element.

    Args:
        run: The number of the result on the page, from 0.
        part: The name of the block.
        lines: The lines of JSON.
    """
    text = "\n".join(lines)
    # Without a time, the same lines always give the same bytes.
    compressed = gzip.compress(text.encode(), _GZIP_LEVEL, mtime=0)
    packed = base64.b64encode(compressed).decode("ascii")
    return Markup(  # noqa: S704
        f'<script type="{BLOCK_TYPE}" data-run="{int(run)}" data-part="{part}">{packed}</script>'
    )


def readable_page(page: str) -> str:
    """Return a page without media and with unpacked data, each instance on a line.

    Pages are compared in this form, because versions of zlib compress the same text to different
    bytes. Blocks that cannot be unpacked are left unchanged.
    """
    return _BLOCK.sub(_unpacked_block, without_media(page))


def _unpacked_block(match: re.Match[str]) -> str:
    """Return a matched block in unpacked form, or unchanged if the block cannot be unpacked."""
    unpacker = zlib.decompressobj(wbits=31)  # 31: the data have the header of gzip
    try:
        packed = base64.b64decode(match[2], validate=True)
        text = unpacker.decompress(packed, _MAX_UNPACKED).decode()
    except (ValueError, zlib.error):
        return match[0]
    if not unpacker.eof or unpacker.unused_data:  # The block is cut off or too large.
        return match[0]
    return f"{match[1]}\n{text}\n{match[3]}"


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


def common_beginning(texts: Sequence[str]) -> str:
    """Return the complete lines with which all texts begin; empty if there is only one text."""
    if len(texts) < 2:
        return ""
    shared = os.path.commonprefix(list(texts))  # noqa: RUF071 - compares characters, not paths
    return shared[: shared.rfind("\n") + 1]


def _prompt_text(record: InstanceRecord) -> str:
    """Return the text of a prompt without its system prompt, which all prompts share."""
    texts = []
    for turn in record.turns:
        if turn.get("role") != "system" and isinstance(turn.get("content"), str):
            texts.append(turn["content"])
    return "\n".join(texts) or record.prompt


def first_words(text: str, length: int) -> str:
    """Return the beginning of a text on one line, with at most `length` characters.

    The result ends at the first redaction mark. `verify` makes the page again without knowing the
    secrets, so its text may have the secret instead of the mark. A cut after the mark would then
    depend on the length of the secret.
    """
    # Only a part of a long text is read. Blanks are removed, so the part is longer than `length`.
    before, redacted, _ = text[: 8 * length].partition(REDACTED)
    shown = " ".join(before.split())
    if len(shown) > length:
        return shown[: length - 1].rstrip() + "…"
    if redacted:
        return f"{shown} {REDACTED}".lstrip()
    return shown
