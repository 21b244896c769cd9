"""Draws a sample of answers for raters, writes the raters' sheets as CSV, and reads them again."""

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

_MIN_ANSWERS = 2
"""The smallest number of answers to draw from a stratum; a smaller stratum is drawn completely."""
_LETTERS = "bcdfghjkmnpqrstvwxz"
"""The letters of codes. A spreadsheet does not take such a code for a number, a date or a word."""


@dataclass(frozen=True)
class Candidate:
    """An answer that can be drawn."""

    key: AnswerKey
    value: float  # the score of the answer by the main metric
    group: str = ""  # the value of a field such as the specialty; empty without groups


@dataclass(frozen=True)
class AnswerStratum:
    """A group of answers that are drawn with equal probability."""

    name: str
    keys: tuple[AnswerKey, ...]


def strata_of(candidates: Sequence[Candidate], count: int) -> list[AnswerStratum]:
    """Return the strata of a sample of `count` answers, by score and then by group.

    Neighbouring strata are similar. Small strata are merged with a neighbour until the sample has
    at least `_MIN_ANSWERS` answers for each stratum.

    Raises:
        ConfigError: `count` is below `_MIN_ANSWERS`.
    """
    if count < _MIN_ANSWERS:
        raise ConfigError(f"--n {count}: rate at least {_MIN_ANSWERS} answers")
    strata = _all_strata(candidates)
    while len(strata) > 1:
        smallest = min(range(len(strata)), key=lambda index: len(strata[index].keys))
        if _MIN_ANSWERS * len(strata) <= count and len(strata[smallest].keys) >= _MIN_ANSWERS:
            break
        _merge(strata, smallest)
    return strata


def _all_strata(candidates: Sequence[Candidate]) -> list[AnswerStratum]:
    """Return a stratum for each combination of a range of scores and a group.

    Each of the six most frequent groups has its own strata; the other groups share theirs.
    """
    ranges = score_ranges_of(candidate.value for candidate in candidates)
    groups = Counter(candidate.group for candidate in candidates)
    most_frequent = dict(groups.most_common(6))
    keys: dict[tuple[int, str], list[AnswerKey]] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.key.as_text()):
        number = 0
        while candidate.value > ranges[number][1]:
            number += 1
        group = "others"
        if candidate.group in most_frequent:
            group = candidate.group
        keys.setdefault((number, group), []).append(candidate.key)
    strata = []
    for number, group in sorted(keys):
        low, high = ranges[number]
        name = f"{low:g}"
        if low != high:
            name += f" to {high:g}"
        if group:
            name += f", {group}"
        strata.append(AnswerStratum(name, tuple(keys[number, group])))
    return strata


def _merge(strata: list[AnswerStratum], index: int) -> None:
    """Merge a stratum with its smaller neighbour, in place.

    Args:
        strata: the strata; the list is changed.
        index: the index of the stratum.
    """
    neighbour = index - 1
    if index == 0:
        neighbour = 1
    elif index + 1 < len(strata) and len(strata[index + 1].keys) < len(strata[index - 1].keys):
        neighbour = index + 1
    first, second = sorted((index, neighbour))
    name = f"{strata[first].name}; {strata[second].name}"
    keys = strata[first].keys + strata[second].keys
    strata[first : second + 1] = [AnswerStratum(name, keys)]


def score_ranges_of(values: Iterable[float]) -> list[tuple[float, float]]:
    """Return (lowest score, highest score) of each range of scores.

    If there are at most four distinct scores, each score is a range. Otherwise each range has about
    a quarter of the answers; there may be fewer than four ranges, because equal scores stay
    together.
    """
    ordered = sorted(values)
    distinct = sorted(set(ordered))
    if len(distinct) <= 4:
        return list(zip(distinct, distinct, strict=True))
    upper_ends = set()
    for quarter in range(1, 5):
        upper_ends.add(ordered[math.ceil(len(ordered) * quarter / 4) - 1])
    ranges = []
    low = distinct[0]
    for high in sorted(upper_ends):
        ranges.append((low, high))
        # The next range begins with the next distinct score. After the last range, there is none.
        low = distinct[min(distinct.index(high) + 1, len(distinct) - 1)]
    return ranges


def counts_to_draw(sizes: Sequence[int], count: int) -> list[int]:
    """Return the number of answers to draw from each stratum.

    The numbers are in proportion to the sizes of the strata, rounded by the method of largest
    remainders. From each stratum, at least `_MIN_ANSWERS` answers are drawn, or all if it has
    fewer.

    Args:
        sizes: the number of answers in each stratum.
        count: the number of answers in the sample.
    """
    total = sum(sizes)
    if count >= total:
        return list(sizes)
    exact_counts = [count * size / total for size in sizes]
    lowest_counts = [min(size, _MIN_ANSWERS) for size in sizes]
    counts = []
    for size, exact_count in zip(sizes, exact_counts, strict=True):
        counts.append(min(size, max(_MIN_ANSWERS, math.floor(exact_count))))
    # Add or remove one answer at a time, until the sum is right or no count can change.
    while sum(counts) != count:
        step = 1
        limits: Sequence[int] = sizes
        if sum(counts) > count:
            step = -1
            limits = lowest_counts
        if counts == list(limits):
            break
        counts[_next_to_change(counts, exact_counts, sizes, limits, step)] += step
    return counts


def _next_to_change(
    counts: Sequence[int],
    exact: Sequence[float],
    sizes: Sequence[int],
    limits: Sequence[int],
    step: int,
) -> int:
    """Return the index of the stratum whose count changes next.

    This is the stratum that is furthest from its exact count and not at its limit. Of equally
    distant strata, the largest is chosen.

    Args:
        counts: the number of answers to draw from each stratum.
        exact: the same numbers before rounding.
        sizes: the number of answers in each stratum.
        limits: the number at which the count of a stratum may not change any more.
        step: 1 if a count grows, -1 if a count falls.
    """
    changeable = [index for index, limit in enumerate(limits) if counts[index] != limit]
    return max(changeable, key=lambda index: (step * (exact[index] - counts[index]), sizes[index]))


@dataclass(frozen=True)
class Draw:
    """The settings that decide which answers are drawn."""

    count: int  # the number of answers to draw
    seed: int
    raters: tuple[str, ...]  # the names of the raters
    identity: str  # the identity of the run (`Provenance.run_identity`)


def draw_answers(
    strata: Sequence[AnswerStratum], rated: Collection[AnswerKey], draw: Draw
) -> list[tuple[AnswerKey, int, float]]:
    """Draw answers for the raters.

    Args:
        strata: the strata to draw from.
        rated: the answers that are already rated. They are not drawn again.
        draw: the settings of the draw. Equal settings give equal samples.

    Returns:
        Each drawn answer with the number of its stratum (from 0) and its probability of being
        drawn, in the order of the draw.

    Raises:
        ConfigError: every answer is rated.
    """
    generator = random.Random(f"{draw.identity} {draw.seed}")  # noqa: S311 - need not be secret
    unrated = []
    for answer_stratum in strata:
        unrated.append([key for key in answer_stratum.keys if key not in rated])
    if not any(unrated):
        raise ConfigError("every answer of this result is rated: there is nothing to draw")
    counts = counts_to_draw(list(map(len, unrated)), draw.count)
    answers = []
    for number, (keys, count) in enumerate(zip(unrated, counts, strict=True)):
        for key in generator.sample(keys, count):
            answers.append((key, number, count / len(keys)))
    return answers


def sample_of_draw(
    question: RatedQuestion,
    strata: Sequence[AnswerStratum],
    chosen: Sequence[tuple[ShownAnswer, int, float]],
    draw: Draw,
) -> Sample:
    """Return the sample of a draw, with a code for each answer.

    Args:
        question: the question for the raters.
        strata: the strata of the sample.
        chosen: (texts, number of the stratum, probability of being drawn) of each drawn answer.
        draw: the settings of the draw.
    """
    sheet = _sheet_id(question, chosen, draw)
    stratum_of: dict[str, int] = {}
    for number, answer_stratum in enumerate(strata):
        for key in answer_stratum.keys:
            stratum_of[key.as_text()] = number
    answers = []
    codes = _codes(sheet, len(chosen))
    for code, (shown, stratum, probability) in zip(codes, chosen, strict=True):
        answers.append(
            SampledAnswer(code, shown.key, shown.sha256, stratum, probability, shown.questions)
        )
    return Sample(
        id=sheet,
        kind=question.kind,
        raters=draw.raters,
        choices=question.choices,
        metric=question.metric,
        scale=question.score.scale,
        strata=tuple(answer_stratum.name for answer_stratum in strata),
        stratum_of=stratum_of,
        answers=tuple(answers),
    )


def _sheet_id(
    question: RatedQuestion, chosen: Sequence[tuple[ShownAnswer, int, float]], draw: Draw
) -> str:
    """Return an id of eight letters, computed from the draw and the drawn answers."""
    lines = [draw.identity, question.kind, str(draw.seed)]
    for shown, _, _ in chosen:
        lines.append(f"{shown.key.as_text()} {shown.sha256}")
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    digest = int(hashlib.sha256(text).hexdigest(), 16)
    letters = ""  # the last eight digits of the hash, if the letters are the digits of a number
    for place in range(8):
        letters += _LETTERS[digest // len(_LETTERS) ** place % len(_LETTERS)]
    return letters


def _codes(sheet: str, count: int) -> list[str]:
    """Return distinct codes of five letters, always the same for a sheet."""
    # The codes need not be secret: they only must not depend on the answers' contents.
    generator = random.Random(f"codes of {sheet}")  # noqa: S311 - see the line above
    codes: dict[str, None] = {}  # a set that keeps its order
    while len(codes) < count:
        codes["".join(generator.choices(_LETTERS, k=5))] = None
    return list(codes)


def rater_order(codes: Sequence[str], sheet: str, rater: str) -> list[str]:
    """Return the codes in a random order of this rater, always the same for a sheet.

    A tired rater rates the last answers with less care. With an order for each rater, the last
    answers are others for each rater.
    """
    shuffled = sorted(codes)
    random.Random(f"{sheet} {rater}").shuffle(shuffled)  # noqa: S311 - need not be secret
    return shuffled


# the names of the columns of a sheet
SHEET = "sheet"
RATER = "rater"
ITEM = "item"  # the code of an answer
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
BOM = "\ufeff"  # With a byte order mark, Excel reads the file as UTF-8.
_MAX_CELL = 30_000  # the maximum length of a cell, in characters; Excel allows 32,767
_CUT = " [cut: the HTML form has the complete text]"
_BREAKS = re.compile(r"\s*(?:\r\n|[\r\n\v\f\u0085\u2028\u2029])\s*")


def sheet_cell(text: str) -> str:
    """Return a text as one line that a spreadsheet does not execute as a formula.

    A sign replaces each line break. A long text is cut, with a note at its end.
    """
    safe = no_formula(printable(_BREAKS.sub(" \u23ce ", text).replace("\t", " ")))
    if len(safe) <= _MAX_CELL:
        return safe
    return safe[:_MAX_CELL] + _CUT


def csv_sheet(
    sample: Sample,
    rater: str,
    order: Sequence[str],
    shown: Mapping[str, ShownAnswer],
    *,
    with_reference: bool,
) -> str:
    """Return a rater's sheet, with a row for each question about each answer.

    Only the first row of an answer has the texts of the prompt, the answer and the reference.

    Args:
        sample: the sample to rate.
        rater: the name of the rater.
        order: the codes of the answers, in the order of the sheet.
        shown: code -> the texts that the rater sees.
        with_reference: True if the sheet shows the reference answers.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    questions = {answer.code: answer.questions for answer in sample.answers}
    choices = " / ".join(choice.label for choice in sample.choices)
    for code in order:
        cells = _text_cells(shown[code], with_reference=with_reference)
        for number, question in enumerate(questions[code], start=1):
            name = sheet_cell(question.name)
            # The rating and the comment are empty: the rater fills them in.
            writer.writerow([sample.id, rater, code, str(number), *cells, name, choices, "", ""])
            cells = ["", "", ""]  # for the further questions about the same answer
    return BOM + file.getvalue()


def _text_cells(shown: ShownAnswer, *, with_reference: bool) -> list[str]:
    """Return the cells with the prompt, the answer and the references."""
    question = question_text(shown.turns)
    for medium in shown.media:
        if medium.get("file"):
            question += f"\n[file {medium.get('file')}]"
    references = ""
    if with_reference:
        references = "\n\n".join(shown.references)
    return [sheet_cell(question), sheet_cell(shown.answer), sheet_cell(references)]


def question_text(turns: Sequence[tuple[str, str]]) -> str:
    """Return the turns of a conversation as one text, with speakers if there are several turns."""
    if len(turns) == 1:
        return turns[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in turns)


_REQUIRED = (SHEET, RATER, ITEM, _NUMBER, _RATING)  # the columns that a returned sheet must have
_MAX_FILE_SIZE = 64 * 1024 * 1024  # in bytes
_MAX_NAME = 80  # the maximum length of a rater's name, in characters
YES_AND_NO = {
    "met": "yes",
    "not met": "no",
    "y": "yes",
    "n": "no",
    "true": "yes",
    "false": "no",
    "1": "yes",
    "0": "no",
}
"""Other ways to write yes and no, such as the values to which a spreadsheet may convert them."""


@dataclass
class Returned:
    """The ratings in several files, and the faults of these files."""

    ratings: list[Rating] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # a message for each fault
    empty: int = 0  # the number of rows without a rating


@dataclass(frozen=True)
class _Row:
    """A row of a returned sheet."""

    file: str
    line: int
    cells: Mapping[str, str]  # name of the column -> cell

    def fault(self, column: str, text: str) -> str:
        """Return the message about a fault in a column of this row."""
        return f"{self.file}: row {self.line}, column {column}: {text}"


def read_returns(files: Sequence[Path], samples: Mapping[str, Sample], folder: Path) -> Returned:
    """Return the ratings in the tables that raters returned, and the faults of these tables.

    If a rater rated a question twice, both ratings must be equal.

    Args:
        files: the returned tables.
        samples: id -> each sample that was exported from the result.
        folder: the folder of the result, for messages.
    """
    returned = Returned()
    first_ratings: dict[tuple[str, str, str, int], tuple[Rating, _Row]] = {}
    for file in files:
        try:
            rows = list(_rows_of(file))
        except OSError as error:
            returned.faults.append(f"{file}: {error.strerror}")
            continue
        except (ValueError, csv.Error) as error:
            returned.faults.append(f"{file}: {error}")
            continue
        for row in rows:
            rating = _rating(row, samples, folder)
            if rating is None:
                returned.empty += 1
            elif isinstance(rating, list):
                returned.faults += rating
            else:
                key = (rating.sheet, rating.rater, rating.code, rating.number)
                first, first_row = first_ratings.setdefault(key, (rating, row))
                if first.value != rating.value:
                    fault = (
                        f"rater {rating.rater} gave {rating.code} another rating "
                        f"in row {first_row.line} of {first_row.file}"
                    )
                    returned.faults.append(row.fault(_RATING, fault))
    returned.ratings = [rating for rating, _ in first_ratings.values()]
    return returned


def _rating(row: _Row, samples: Mapping[str, Sample], folder: Path) -> Rating | list[str] | None:
    """Return the rating of a row, or the faults of the row; None if the row has no rating."""
    sheet = row.cells[SHEET]
    sample = samples.get(sheet)
    if sample is None:
        sheets = ", ".join(samples) or "none"
        fault = f"{_quoted(sheet)} is not a sheet that was exported from {folder} (known: {sheets})"
        return [row.fault(SHEET, fault)]
    faults = []
    rater = row.cells[RATER]
    if not rater or len(rater) > _MAX_NAME:
        faults.append(row.fault(RATER, f"write who rated, in 1 to {_MAX_NAME} characters"))
    code = row.cells[ITEM].lower()
    questions = {answer.code: len(answer.questions) for answer in sample.answers}
    if code not in questions:
        fault = f"{_quoted(row.cells[ITEM])} is not an item of sheet {sheet}"
        return [*faults, row.fault(ITEM, fault)]
    number = _question_number(row.cells[_NUMBER], questions[code])
    if number is None:
        fault = f"{_quoted(row.cells[_NUMBER])} is not a question about {code}"
        faults.append(
            row.fault(_NUMBER, f"{fault}: its questions have the numbers 1 to {questions[code]}")
        )
    rating_text = row.cells[_RATING]
    value = None
    if rating_text:
        value = choice_of(rating_text, sample.choices)
        if value is None:
            labels = ", ".join(choice.label for choice in sample.choices)
            fault = f"{_quoted(rating_text)} is not on the scale: {labels}"
            faults.append(row.fault(_RATING, fault))
    if faults:
        return faults
    if value is None or number is None:  # without a number, the faults were returned above
        return None
    return Rating(sheet, code, number, rater, value, row.cells.get(COMMENT, "")[:2_000])


def _question_number(cell: str, questions: int) -> int | None:
    """Return the number of a question, from 1; None if the answer has no question of this number.

    The cell may be empty if the answer has one question. A spreadsheet may have changed 1 to 1.0.

    Args:
        cell: the text of the cell.
        questions: the number of questions about the answer.
    """
    if not cell and questions == 1:
        return 1
    digits = cell.removesuffix(".0")
    # No answer has a question of such a long number, and Python refuses to convert very long ones.
    if not (digits.isascii() and digits.isdigit()) or len(digits) >= _MAX_NAME:
        return None
    number = int(digits)
    if 1 <= number <= questions:
        return number
    return None


def choice_of(text: str, choices: Iterable[RatingChoice]) -> float | None:
    """Return the rating that a cell names by its label or its number; None if there is no match.

    The number may have a decimal comma.
    """
    word = text.strip().lower()
    by_label = {choice.label: choice.value for choice in choices}
    if word in by_label:
        return by_label[word]
    if "yes" in by_label:
        # The choices are yes and no. A spreadsheet may have changed 1 to 1.0. An unknown word
        # becomes "", which is no label.
        return by_label.get(YES_AND_NO.get(word.removesuffix(".0"), ""))
    try:
        value = float(word.replace(",", "."))
    except ValueError:
        return None
    if value in by_label.values():
        return value
    return None


def _rows_of(file: Path) -> Iterator[_Row]:
    """Yield the rows of a returned table.

    Raises:
        ValueError: a required column is missing, or the file is not a readable table.
    """
    if file_of_table(file).stat().st_size > _MAX_FILE_SIZE:
        raise ValueError(f"is larger than {_MAX_FILE_SIZE // 1024**2} MiB")
    header: list[str] = []
    for line, cells in table_rows(file):
        if header:
            if "".join(cells[len(header) :]).strip():
                raise ValueError(
                    f"row {line}: has {len(cells)} cells, and there are {len(header)} columns: "
                    "put quotes around a cell that has a comma in it"
                )
            filled = [*cells, *[""] * (len(header) - len(cells))]  # a row may lack its last cells
            named = {name: cell.strip() for name, cell in zip(header, filled, strict=False)}
            yield _Row(str(file), line, named)
        else:
            header = [name.strip().lower() for name in cells]
            _check_header(header, line)
    if not header:
        raise ValueError(f"row 1: there is no column {', '.join(_REQUIRED)}")


def _check_header(header: Sequence[str], line: int) -> None:
    """Raise ValueError if two columns have the same name, or if a required column is missing."""
    repeated = [name for name in header if name and header.count(name) > 1]
    if repeated:
        columns = [str(number) for number, name in enumerate(header, 1) if name == repeated[0]]
        raise ValueError(
            f"row {line}: columns {' and '.join(columns)} have the same name, "
            f"{_quoted(repeated[0])}: leave one of them out"
        )
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise ValueError(f"row {line}: there is no column {', '.join(missing)}")


def _quoted(text: str) -> str:
    return f"'{one_line(text, _MAX_NAME)}'"
