"""Annotation: the sample of answers that is drawn for raters, and their sheets as CSV, there and
back.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval_factory.core.annotations import (
    AnswerKey,
    RatedQuestion,
    Rating,
    RatingChoice,
    Sample,
    SampledAnswer,
    ShownAnswer,
)
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.table_files import file_of_table, table_rows
from eval_factory.core.tables import no_formula

_LEAST = 2  # answers of each stratum, if it has so many
# of codes: no spreadsheet takes them for a number, a date or a word
_LETTERS = "bcdfghjkmnpqrstvwxz"


@dataclass(frozen=True)
class Candidate:
    """An answer that can be drawn."""

    key: AnswerKey
    value: float  # its score by the main metric
    group: str = ""


@dataclass(frozen=True)
class AnswerLayer:
    """A stratum: answers that have the same chance."""

    name: str
    keys: tuple[AnswerKey, ...]


def layers_of(candidates: Sequence[Candidate], count: int) -> list[AnswerLayer]:
    """By score, then by group, in an order in which neighbours are alike; as many as a sample of
    `count` can hold. Raises ConfigError: a sample of fewer than two says nothing.
    """
    if count < _LEAST:
        raise ConfigError(f"--n {count}: rate at least {_LEAST} answers")
    parts = parts_of([one.value for one in candidates])
    usual = {group for group, _ in Counter(one.group for one in candidates).most_common(6)}
    found: dict[tuple[int, str], list[AnswerKey]] = {}
    names = {}
    for one in sorted(candidates, key=lambda one: one.key.as_text()):
        part = next(number for number, (_, high) in enumerate(parts) if one.value <= high)
        group = one.group if one.group in usual else "others"
        found.setdefault((part, group), []).append(one.key)
        low, high = parts[part]
        names[part, group] = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    layers = [
        AnswerLayer(names[part, group] + (f", {group}" if group else ""), tuple(keys))
        for (part, group), keys in sorted(found.items())
    ]
    while len(layers) > 1 and (
        _LEAST * len(layers) > count or min(len(one.keys) for one in layers) < _LEAST
    ):
        # the smallest is merged with the smaller one of its neighbours
        smallest = min(range(len(layers)), key=lambda at: len(layers[at].keys))
        beside = [at for at in (smallest - 1, smallest + 1) if 0 <= at < len(layers)]
        first, second = sorted((smallest, min(beside, key=lambda at: len(layers[at].keys))))
        name = f"{layers[first].name}; {layers[second].name}"
        keys = layers[first].keys + layers[second].keys
        layers[first : second + 1] = [AnswerLayer(name, keys)]
    return layers


def parts_of(values: Iterable[float]) -> list[tuple[float, float]]:
    """(least, greatest) of each part of the scores: each value where there are few, else
    quarters of the answers.
    """
    ordered = sorted(values)
    different = sorted(set(ordered))
    if len(different) <= 4:
        return [(value, value) for value in different]
    ends = sorted({ordered[math.ceil(len(ordered) * quarter / 4) - 1] for quarter in range(1, 5)})
    starts = [
        different[0],
        *(next(value for value in different if value > end) for end in ends[:-1]),
    ]
    return list(zip(starts, ends, strict=True))


def shares_of(sizes: Sequence[int], count: int) -> list[int]:
    """How many of each stratum: in proportion, the largest remainders first; at least two, if it
    has so many.
    """
    total = sum(sizes)
    if count >= total:
        return list(sizes)
    exact = [count * size / total for size in sizes]
    found = [
        min(size, max(_LEAST, math.floor(share))) for size, share in zip(sizes, exact, strict=True)
    ]
    while sum(found) != count:
        step = 1 if sum(found) < count else -1
        ends = sizes if step > 0 else [min(size, _LEAST) for size in sizes]
        movable = [at for at, end in enumerate(ends) if found[at] != end]
        if not movable:
            break
        found[max(movable, key=lambda at: (step * (exact[at] - found[at]), sizes[at]))] += step
    return found


@dataclass(frozen=True)
class Draw:
    """What decides which answers are drawn."""

    count: int
    seed: int
    raters: tuple[str, ...]
    identity: str  # of the run


def drawn(
    layers: Sequence[AnswerLayer], rated: Collection[AnswerKey], draw: Draw
) -> list[tuple[AnswerKey, int, float]]:
    """(answer, number of its stratum, probability), in the order in which they were drawn. What
    people have rated is not drawn again. Raises ConfigError: every answer is rated.
    """
    chance = random.Random(f"{draw.identity} {draw.seed}")  # noqa: S311 - the same seed draws the same sample
    left = [[key for key in layer.keys if key not in rated] for layer in layers]
    if not any(left):
        raise ConfigError("every answer of this result is rated: there is nothing to draw")
    found = []
    for number, (keys, share) in enumerate(
        zip(left, shares_of(list(map(len, left)), draw.count), strict=True)
    ):
        found += [(key, number, share / len(keys)) for key in chance.sample(keys, share)]
    return found


def drawn_sample(
    asked: RatedQuestion,
    layers: Sequence[AnswerLayer],
    chosen: Sequence[tuple[ShownAnswer, int, float]],
    draw: Draw,
) -> Sample:
    """`chosen`: (what raters see, number of its stratum, probability) of each answer that was
    drawn.
    """
    answers = [f"{one.key.as_text()} {one.sha256}" for one, _, _ in chosen]
    drawn_from = "\n".join([draw.identity, asked.kind, str(draw.seed), *answers])
    digest = int(hashlib.sha256(drawn_from.encode("utf-8", "surrogatepass")).hexdigest(), 16)
    sheet = "".join(
        _LETTERS[digest // len(_LETTERS) ** place % len(_LETTERS)] for place in range(8)
    )
    chance = random.Random(f"codes of {sheet}")  # noqa: S311 - a code only must say nothing of what it stands for
    codes: dict[str, None] = {}
    while len(codes) < len(chosen):
        codes["".join(chance.choices(_LETTERS, k=5))] = None
    stratum_of: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for key in layer.keys:
            stratum_of[key.as_text()] = number
    return Sample(
        id=sheet,
        kind=asked.kind,
        raters=draw.raters,
        choices=asked.choices,
        metric=asked.metric,
        scale=asked.score.scale,
        strata=tuple(one.name for one in layers),
        stratum_of=stratum_of,
        answers=tuple(
            SampledAnswer(code, one.key, one.sha256, stratum, probability, one.questions)
            for code, (one, stratum, probability) in zip(codes, chosen, strict=True)
        ),
    )


def rater_order(codes: Sequence[str], sheet: str, rater: str) -> list[str]:
    """An order of each rater's own: who tires, tires at other answers than the others."""
    shuffled = sorted(codes)
    random.Random(f"{sheet} {rater}").shuffle(shuffled)  # noqa: S311
    return shuffled


SHEET = "sheet"
RATER = "rater"
ITEM = "item"
_NUMBER = "number"
ASKED = "asked"
_RATING = "rating"
COMMENT = "comment"
COLUMNS = (
    SHEET,
    RATER,
    ITEM,
    _NUMBER,
    "question",
    "answer",
    "reference",
    ASKED,
    "choices",
    _RATING,
    COMMENT,
)
BOM = "\ufeff"  # Excel reads UTF-8 with it, and the system's encoding without
_MAX_CELL = 30_000  # characters: Excel takes 32,767
_CUT = " [cut: the HTML form has all of it]"
_BREAKS = re.compile(r"\s*(?:\r\n|[\r\n\v\f\u0085\u2028\u2029])\s*")


def sheet_cell(text: str) -> str:
    """A text that a spreadsheet shows and does not run, on one line."""
    safe = no_formula(printable(_BREAKS.sub(" \u23ce ", text).replace("\t", " ")))
    return safe if len(safe) <= _MAX_CELL else safe[:_MAX_CELL] + _CUT


def csv_sheet(
    sample: Sample,
    rater: str,
    order: Sequence[str],
    shown: Mapping[str, ShownAnswer],
    *,
    with_reference: bool,
) -> str:
    """A line for each question about each answer, in the order of the answers' codes; the texts of
    an answer stand in its first line alone. `shown`: code -> what the rater sees.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    answers = {one.code: one for one in sample.answers}
    choices = " / ".join(choice.label for choice in sample.choices)
    for code in order:
        reference = "\n\n".join(shown[code].references) if with_reference else ""
        files = "".join(
            f"\n[file {one.get('file')}]" for one in shown[code].media if one.get("file")
        )
        texts = [question_text(shown[code].turns) + files, shown[code].answer, reference]
        for number, asked in enumerate(answers[code].questions, start=1):
            cells = [sheet_cell(text) for text in texts] if number == 1 else ["", "", ""]
            writer.writerow(
                [
                    sample.id,
                    rater,
                    code,
                    str(number),
                    *cells,
                    sheet_cell(asked.name),
                    choices,
                    "",
                    "",
                ]
            )
    return BOM + file.getvalue()


def question_text(turns: Sequence[tuple[str, str]]) -> str:
    """One turn as it is; several with who speaks."""
    return (
        turns[0][1] if len(turns) == 1 else "\n\n".join(f"{role}: {text}" for role, text in turns)
    )


_NEEDED = (SHEET, RATER, ITEM, _NUMBER, _RATING)
_LARGEST = 64 * 1024 * 1024
_MAX_NAME = 80
WORDS = {
    "met": "yes",
    "not met": "no",
    "y": "yes",
    "n": "no",
    "true": "yes",
    "false": "no",
    "1": "yes",
    "0": "no",
}
"""Other ways to say yes and no: a spreadsheet may make a number or a truth value of them."""


@dataclass
class Returned:
    """What several files give, and what is wrong with them."""

    ratings: list[Rating] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    empty: int = 0  # rows without a rating


@dataclass(frozen=True)
class _Row:
    file: str
    line: int
    cells: Mapping[str, str]

    def fault(self, column: str, text: str) -> str:
        return f"{self.file}: row {self.line}, column {column}: {text}"


def read_returns(files: Sequence[Path], samples: Mapping[str, Sample], folder: Path) -> Returned:
    """`samples`: id -> the sheets that were exported from the result. `folder`: of the result,
    for messages.
    """
    found = Returned()
    first: dict[tuple[str, str, str, int], tuple[Rating, _Row]] = {}
    for file in files:
        try:
            rows = list(_rows_of(file))
        except (OSError, ValueError, csv.Error) as error:
            found.faults.append(
                f"{file}: {error.strerror if isinstance(error, OSError) else error}"
            )
            continue
        for row in rows:
            rating = _rating(row, samples, folder)
            if rating is None:
                found.empty += 1
            elif isinstance(rating, list):
                found.faults += rating
            else:
                key = (rating.sheet, rating.rater, rating.code, rating.number)
                before, where = first.setdefault(key, (rating, row))
                if before.value != rating.value:
                    other = (
                        f"rater {rating.rater} rates {rating.code} otherwise in row {where.line} "
                        f"of {where.file}"
                    )
                    found.faults.append(row.fault(_RATING, other))
    found.ratings = [rating for rating, _ in first.values()]
    return found


def _rating(row: _Row, samples: Mapping[str, Sample], folder: Path) -> Rating | list[str] | None:
    """The rating of a row, or what is wrong with it; None where it has none."""
    sheet = row.cells[SHEET]
    rater = row.cells[RATER]
    code = row.cells[ITEM].lower()
    sample = samples.get(sheet)
    if sample is None:
        known = ", ".join(samples) or "none"
        return [
            row.fault(
                SHEET,
                f"{_quoted(sheet)} is no sheet that was exported from {folder} (known: {known})",
            )
        ]
    faults = []
    if not rater or len(rater) > _MAX_NAME:
        faults.append(row.fault(RATER, f"write who rated, in 1 to {_MAX_NAME} characters"))
    answer = next((one for one in sample.answers if one.code == code), None)
    if answer is None:
        return [*faults, row.fault(ITEM, f"{_quoted(row.cells[ITEM])} is no item of sheet {sheet}")]
    # an answer with one question needs no number; a spreadsheet may have made 1.0 of 1
    digits = (row.cells[_NUMBER] or ("1" if len(answer.questions) == 1 else "")).removesuffix(".0")
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < _MAX_NAME else 0
    if not 1 <= number <= len(answer.questions):
        known = f"they are 1 to {len(answer.questions)}"
        faults.append(
            row.fault(
                _NUMBER, f"{_quoted(row.cells[_NUMBER])} is no question about {code}: {known}"
            )
        )
    rating = row.cells[_RATING]
    value = choice_of(rating, sample.choices) if rating else None
    if rating and value is None:
        labels = ", ".join(choice.label for choice in sample.choices)
        faults.append(row.fault(_RATING, f"{_quoted(rating)} is not on the scale: {labels}"))
    if faults:
        return faults
    if value is None:
        return None
    return Rating(sheet, code, number, rater, value, row.cells.get(COMMENT, "")[:2_000])


def choice_of(text: str, choices: Iterable[RatingChoice]) -> float | None:
    """The rating that a cell names, by its label or its number; a decimal comma is one."""
    word = text.strip().lower()
    by_label = {choice.label: choice.value for choice in choices}
    if word in by_label:
        return by_label[word]
    if "yes" in by_label:
        return by_label.get(WORDS.get(word.removesuffix(".0"), ""))
    try:
        value = float(word.replace(",", "."))
    except ValueError:
        return None
    return next((one for one in by_label.values() if one == value), None)


def _rows_of(file: Path) -> Iterator[_Row]:
    """Rows with anything in them. Raises ValueError: a column that is needed is not there, or the
    file is no table.
    """
    if file_of_table(file).stat().st_size > _LARGEST:
        raise ValueError(f"is larger than {_LARGEST // 1024**2} MiB")
    header: list[str] = []
    for line, cells in table_rows(file):
        if not header:
            header = [name.strip().lower() for name in cells]
            twice = [name for name in header if name and header.count(name) > 1]
            if twice:
                columns = [str(at) for at, name in enumerate(header, 1) if name == twice[0]]
                raise ValueError(
                    f"row {line}: columns {' and '.join(columns)} have one name, "
                    f"{_quoted(twice[0])}: leave one of them out"
                )
            missing = [name for name in _NEEDED if name not in header]
            if missing:
                raise ValueError(f"row {line}: there is no column {', '.join(missing)}")
            continue
        filled = [*cells, *[""] * (len(header) - len(cells))]
        named = {name: cell.strip() for name, cell in zip(header, filled, strict=False)}
        yield _Row(str(file), line, named)
    if not header:
        raise ValueError(f"row 1: there is no column {', '.join(_NEEDED)}")


def _quoted(text: str) -> str:
    return f"'{one_line(text, _MAX_NAME)}'"
