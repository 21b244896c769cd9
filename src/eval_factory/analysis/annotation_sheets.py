"""Draws a sample of answers for raters, writes the raters' sheets as CSV, and reads them again.

The answers are divided into strata, groups of similar answers, and answers of each stratum are
drawn. A sheet is a table of the drawn answers for one rater. On a sheet, each answer has a code of
five letters in place of its id.
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
from typing import NamedTuple

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
_MAX_GROUPS = 6
"""The largest number of groups with their own strata: the most frequent groups."""
_MAX_RANGES = 4
"""The largest number of ranges of scores."""
_LETTERS = "bcdfghjkmnpqrstvwxz"
"""The letters of codes. Without vowels, no code is a word that a spreadsheet converts or corrects.
"""
_ID_LENGTH = 8  # in letters
_CODE_LENGTH = 5  # in letters


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
    answers: tuple[AnswerKey, ...]


def strata_of(candidates: Sequence[Candidate], count: int) -> list[AnswerStratum]:
    """Return the strata of a sample of `count` answers, by score and then by group.

    Neighbouring strata are similar. The smallest stratum is merged with a neighbour until each
    stratum has `_MIN_ANSWERS` answers, and the sample has `_MIN_ANSWERS` for each stratum.

    Raises:
        ConfigError: `count` is below `_MIN_ANSWERS`.
    """
    if count < _MIN_ANSWERS:
        raise ConfigError(f"--n {count}: rate at least {_MIN_ANSWERS} answers")
    strata = _all_strata(candidates)
    while len(strata) > 1:
        sizes = [len(stratum.answers) for stratum in strata]
        sample_is_large_enough = count >= len(strata) * _MIN_ANSWERS
        each_is_large_enough = min(sizes) >= _MIN_ANSWERS
        if sample_is_large_enough and each_is_large_enough:
            break
        _merge(strata, sizes.index(min(sizes)))
    return strata


def _all_strata(candidates: Sequence[Candidate]) -> list[AnswerStratum]:
    """Return a stratum for each combination of a range of scores and a group.

    The groups that are not among the `_MAX_GROUPS` most frequent groups count as one group.
    """
    ranges = score_ranges_of(candidate.value for candidate in candidates)
    groups = Counter(candidate.group for candidate in candidates)
    most_frequent = dict(groups.most_common(_MAX_GROUPS))
    answers: dict[tuple[int, str], list[AnswerKey]] = {}  # by (index of the range, group)
    # The candidates are sorted, so that their order does not change the sample.
    for candidate in sorted(candidates, key=lambda candidate: candidate.key.as_text()):
        index = _range_index(candidate.value, ranges)
        group = "others"
        if candidate.group in most_frequent:
            group = candidate.group
        answers.setdefault((index, group), []).append(candidate.key)
    strata = []
    for index, group in sorted(answers):
        low, high = ranges[index]
        name = f"{low:g}"
        if low != high:
            name += f" to {high:g}"
        if group:
            name += f", {group}"
        strata.append(AnswerStratum(name, tuple(answers[index, group])))
    return strata


def _range_index(score: float, ranges: Sequence[tuple[float, float]]) -> int:
    """Return the index of the range with this score; the ranges are sorted, the lowest first."""
    for index, (_, highest) in enumerate(ranges):
        if score <= highest:
            return index
    raise ValueError(f"no range has the score {score}")


def _merge(strata: list[AnswerStratum], index: int) -> None:
    """Merge a stratum with its smaller neighbour, in place.

    Args:
        strata: the strata; the list is changed.
        index: the index of the stratum.
    """
    neighbour = index - 1
    if index == 0:
        neighbour = 1  # the first stratum has only the neighbour after it
    elif index + 1 < len(strata):
        size_before = len(strata[index - 1].answers)
        size_after = len(strata[index + 1].answers)
        if size_after < size_before:
            neighbour = index + 1
    first, second = sorted((index, neighbour))
    name = f"{strata[first].name}; {strata[second].name}"
    answers = strata[first].answers + strata[second].answers
    strata[first : second + 1] = [AnswerStratum(name, answers)]


def score_ranges_of(values: Iterable[float]) -> list[tuple[float, float]]:
    """Return (lowest score, highest score) of each range of scores.

    If there are at most four distinct scores, each score is a range. Otherwise each range has about
    a quarter of the answers. Equal scores stay together, so there may be fewer than four ranges.
    """
    ordered = sorted(values)
    distinct = sorted(set(ordered))
    if len(distinct) <= _MAX_RANGES:
        return [(score, score) for score in distinct]
    highest_scores = set()  # the highest score of each range
    for number in range(1, _MAX_RANGES + 1):
        # the number of answers in the first `number` ranges
        answers = math.ceil(len(ordered) * number / _MAX_RANGES)
        highest_scores.add(ordered[answers - 1])
    ranges = []
    remaining = distinct
    for highest in sorted(highest_scores):
        ranges.append((remaining[0], highest))
        remaining = [score for score in remaining if score > highest]
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
    # Add or remove one answer at a time, until the sum is `count` or no count can change.
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
    exact_counts: Sequence[float],
    sizes: Sequence[int],
    limits: Sequence[int],
    step: int,
) -> int:
    """Return the index of the stratum whose count changes next.

    If counts grow, this is the stratum that is furthest below its exact count. If counts fall, this
    is the stratum that is furthest above its exact count. Strata at their limits are left out. Of
    equally distant strata, the largest is chosen.

    Args:
        counts: the number of answers to draw from each stratum.
        exact_counts: the same numbers before rounding.
        sizes: the number of answers in each stratum.
        limits: the number at which the count of a stratum may not change any more.
        step: 1 if a count grows, -1 if a count falls.
    """
    changeable = [index for index, limit in enumerate(limits) if counts[index] != limit]

    def distance_and_size(index: int) -> tuple[float, int]:
        return step * (exact_counts[index] - counts[index]), sizes[index]

    return max(changeable, key=distance_and_size)


@dataclass(frozen=True)
class DrawSettings:
    """The settings that decide which answers are drawn."""

    count: int  # the number of answers to draw
    seed: int
    raters: tuple[str, ...]  # the names of the raters
    identity: str  # the identity of the run (`Provenance.run_identity`)


class DrawnKey(NamedTuple):
    """An answer that was drawn."""

    key: AnswerKey
    stratum_number: int  # the number of the answer's stratum, from 0
    probability: float  # the probability that the answer was drawn


def draw_answers(
    strata: Sequence[AnswerStratum], rated: Collection[AnswerKey], draw: DrawSettings
) -> list[DrawnKey]:
    """Draw answers for the raters.

    Args:
        strata: the strata to draw from.
        rated: the answers that are already rated. They are not drawn again.
        draw: the settings of the draw. Equal settings give equal samples.

    Returns:
        The drawn answers, in the order of the draw.

    Raises:
        ConfigError: every answer is rated.
    """
    generator = random.Random(f"{draw.identity} {draw.seed}")  # noqa: S311 - no secret is made
    unrated = []  # the answers of each stratum that are not rated
    for stratum in strata:
        unrated.append([key for key in stratum.answers if key not in rated])
    if not any(unrated):
        raise ConfigError("every answer of this result is rated: there is nothing to draw")
    counts = counts_to_draw([len(keys) for keys in unrated], draw.count)
    answers = []
    for number, (keys, count) in enumerate(zip(unrated, counts, strict=True)):
        for key in generator.sample(keys, count):
            answers.append(DrawnKey(key, number, count / len(keys)))
    return answers


def sample_of_draw(
    rated_question: RatedQuestion,
    strata: Sequence[AnswerStratum],
    drawn: Sequence[tuple[ShownAnswer, int, float]],
    draw: DrawSettings,
) -> Sample:
    """Return the sample of a draw, with a code for each answer.

    Args:
        rated_question: the question for the raters, and how answers to it are scored. With a
            rubric, each answer has a question per criterion.
        strata: the strata of the sample.
        drawn: (texts, number of the stratum, probability of being drawn) of each drawn answer.
        draw: the settings of the draw.
    """
    sheet = _sheet_id(
        rated_question, drawn, draw
    )  # the id of the sample, in the sheet of each rater
    stratum_of: dict[str, int] = {}
    for number, stratum in enumerate(strata):
        for key in stratum.answers:
            stratum_of[key.as_text()] = number
    answers = []
    codes = _codes(sheet, len(drawn))
    for code, (shown, stratum_number, probability) in zip(codes, drawn, strict=True):
        answers.append(
            SampledAnswer(
                code,
                shown.key,
                shown_sha256=shown.sha256,
                stratum=stratum_number,
                probability=probability,
                questions=shown.questions,
            )
        )
    return Sample(
        id=sheet,
        kind=rated_question.kind,
        raters=draw.raters,
        choices=rated_question.choices,
        metric=rated_question.metric,
        scale=rated_question.score.scale,
        strata=tuple(stratum.name for stratum in strata),
        stratum_of=stratum_of,
        answers=tuple(answers),
    )


def _sheet_id(
    rated_question: RatedQuestion,
    drawn: Sequence[tuple[ShownAnswer, int, float]],
    draw: DrawSettings,
) -> str:
    """Return an id that is computed from the draw and the drawn answers."""
    lines = [draw.identity, rated_question.kind, str(draw.seed)]
    for shown, _, _ in drawn:
        lines.append(f"{shown.key.as_text()} {shown.sha256}")
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    number = int(hashlib.sha256(text).hexdigest(), 16)
    # The letters are the last digits of this number, in a system with a letter for each digit.
    letters = ""
    for _ in range(_ID_LENGTH):
        number, remainder = divmod(number, len(_LETTERS))
        letters += _LETTERS[remainder]
    return letters


def _codes(sheet: str, count: int) -> list[str]:
    """Return distinct codes for answers, always the same codes for a sheet."""
    generator = random.Random(f"codes of {sheet}")  # noqa: S311 - no secret is made
    codes: dict[str, None] = {}  # a set that keeps its order
    while len(codes) < count:
        letters = generator.choices(_LETTERS, k=_CODE_LENGTH)
        codes["".join(letters)] = None
    return list(codes)


def rater_order(codes: Sequence[str], sheet: str, rater: str) -> list[str]:
    """Return the codes in a random order, always the same order for a sheet and a rater.

    A tired rater rates the last answers with less care. The order differs between raters, so that
    no answer is among the last answers of every rater.
    """
    shuffled = sorted(codes)
    random.Random(f"{sheet} {rater}").shuffle(shuffled)  # noqa: S311 - no secret is made
    return shuffled


# the names of the columns of a sheet
SHEET = "sheet"
RATER = "rater"
ITEM = "item"  # the code of an answer
_NUMBER = "number"  # the number of a question to the rater, from 1 for each answer
ASKED = "asked"  # the question to the rater
_RATING = "rating"
COMMENT = "comment"
COLUMNS = (
    SHEET,
    RATER,
    ITEM,
    _NUMBER,
    "question",  # the prompt of the model
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
# a line break with the white space around it, also several line breaks: " \n", "\r\n\r\n"
_BREAKS = re.compile(r"\s*(?:\r\n|[\r\n\v\f\u0085\u2028\u2029])\s*")
_BREAK_SIGN = "\u23ce"  # the symbol of the return key


def sheet_cell(text: str) -> str:
    """Return a text as one line that a spreadsheet does not execute as a formula.

    A sign replaces each line break. A long text is cut, with a note at its end.
    """
    one_line_text = _BREAKS.sub(f" {_BREAK_SIGN} ", text).replace("\t", " ")
    safe = no_formula(printable(one_line_text))
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
        shown: the texts that the rater sees, by code.
        with_reference: True if the sheet shows the reference answers.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    questions = {answer.code: answer.questions for answer in sample.answers}
    choices = " / ".join(choice.label for choice in sample.choices)
    for code in order:
        texts = _text_cells(shown[code], with_reference=with_reference)
        for number, question in enumerate(questions[code], start=1):
            asked = sheet_cell(question.name)  # for a rubric, the text of the criterion
            # The rating and the comment are empty: the rater fills them in.
            writer.writerow([sample.id, rater, code, str(number), *texts, asked, choices, "", ""])
            texts = ["", "", ""]  # for the further questions about the same answer
    return BOM + file.getvalue()


def _text_cells(shown: ShownAnswer, *, with_reference: bool) -> list[str]:
    """Return the cells with the prompt, the answer and the references."""
    prompt = prompt_text(shown.turns)
    for medium in shown.media:
        file = medium.get("file")
        if file:
            prompt += f"\n[file {file}]"
    references = ""
    if with_reference:
        references = "\n\n".join(shown.references)
    return [sheet_cell(prompt), sheet_cell(shown.answer), sheet_cell(references)]


def prompt_text(turns: Sequence[tuple[str, str]]) -> str:
    """Return the text of a prompt. Each of several turns begins with the role of its speaker.

    A turn is (role, text).
    """
    if len(turns) == 1:
        _, only_text = turns[0]
        return only_text
    return "\n\n".join(f"{role}: {text}" for role, text in turns)


_REQUIRED = (SHEET, RATER, ITEM, _NUMBER, _RATING)  # the columns that a returned sheet must have
_MAX_FILE_SIZE = 64 * 1024 * 1024  # in bytes
_MAX_NAME = 80  # the maximum length of a rater's name, and of a quoted text, in characters
_MAX_COMMENT = 2_000  # in characters; the end of a longer comment is cut off
_MAX_DIGITS = 18  # No answer has so many questions, and Python refuses to convert very many digits.
_SPELLINGS_OF_YES_AND_NO = {
    "met": "yes",
    "not met": "no",
    "y": "yes",
    "n": "no",
    "true": "yes",
    "false": "no",
    "1": "yes",
    "0": "no",
}
"""Other spellings of yes and no, such as the values to which a spreadsheet may convert them."""


@dataclass
class ReturnedRatings:
    """The ratings in several returned tables, and the faults of these tables."""

    ratings: list[Rating] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # a message for each fault
    empty: int = 0  # the number of rows without a rating


@dataclass(frozen=True)
class _Row:
    """A row of a returned sheet."""

    file: str
    row_number: int  # the number of the last line of the row in its file
    cells: Mapping[str, str]  # by the name of the column

    def fault(self, column: str, text: str) -> str:
        """Return the message about a fault in a column of this row."""
        return f"{self.file}: row {self.row_number}, column {column}: {text}"


def read_returns(
    files: Sequence[Path], samples: Mapping[str, Sample], folder: Path
) -> ReturnedRatings:
    """Return the ratings in the tables that raters returned, and the faults of these tables.

    If a rater rated a question twice, both ratings must be equal.

    Args:
        files: the returned tables.
        samples: the samples that were exported from the result, by id.
        folder: the folder of the result, for messages.
    """
    returned = ReturnedRatings()
    # (sheet, rater, code, number of the question) -> the first rating, and its row
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
                if key not in first_ratings:
                    first_ratings[key] = (rating, row)
                    continue
                first_rating, first_row = first_ratings[key]
                if first_rating.value != rating.value:
                    fault = (
                        f"rater {rating.rater} gave {rating.code} another rating "
                        f"in row {first_row.row_number} of {first_row.file}"
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
    question_counts = {answer.code: len(answer.questions) for answer in sample.answers}
    if code not in question_counts:
        fault = f"{_quoted(row.cells[ITEM])} is not an item of sheet {sheet}"
        return [*faults, row.fault(ITEM, fault)]
    count = question_counts[code]
    number = _question_number(row.cells[_NUMBER], count)
    if number is None:
        fault = f"{_quoted(row.cells[_NUMBER])} is not a question about {code}"
        faults.append(row.fault(_NUMBER, f"{fault}: its questions have the numbers 1 to {count}"))
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
    # The value is None if the row has no rating. The number is not None: that would be a fault.
    if value is None or number is None:
        return None
    comment = row.cells.get(COMMENT, "")[:_MAX_COMMENT]
    return Rating(sheet, code, number, rater, value=value, comment=comment)


def _question_number(cell: str, count: int) -> int | None:
    """Return the number of a question, from 1; None if the answer has no question of this number.

    The cell may be empty if the answer has one question. A spreadsheet may have changed 1 to 1.0.

    Args:
        cell: the text of the cell.
        count: the number of questions about the answer.
    """
    if not cell and count == 1:
        return 1
    digits = cell.removesuffix(".0")
    is_number = digits.isascii() and digits.isdigit()
    if not is_number or len(digits) > _MAX_DIGITS:
        return None
    number = int(digits)
    if 1 <= number <= count:
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
        label = _SPELLINGS_OF_YES_AND_NO.get(word.removesuffix(".0"))  # 1 may have become 1.0
        if label is None:
            return None
        return by_label.get(label)
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
    # `file` may name a sheet of a workbook, such as `data.xlsx#Sheet2`.
    if file_of_table(file).stat().st_size > _MAX_FILE_SIZE:
        raise ValueError(f"is larger than {_MAX_FILE_SIZE // 1024**2} MiB")
    header: list[str] = []
    for row_number, cells in table_rows(file):
        if not header:
            header = [name.strip().lower() for name in cells]
            _check_header(header, row_number)
            continue
        cells_without_column = cells[len(header) :]
        if "".join(cells_without_column).strip():
            raise ValueError(
                f"row {row_number}: has {len(cells)} cells, and there are {len(header)} columns: "
                "put quotes around a cell that has a comma in it"
            )
        by_column = dict.fromkeys(header, "")  # a row may lack its last cells
        for name, cell in zip(header, cells, strict=False):
            by_column[name] = cell.strip()
        yield _Row(str(file), row_number, by_column)
    if not header:
        raise ValueError(f"row 1: there is no column {', '.join(_REQUIRED)}")


def _check_header(header: Sequence[str], row_number: int) -> None:
    """Raise ValueError if two columns have the same name, or if a required column is missing."""
    repeated = [name for name in header if name and header.count(name) > 1]
    if repeated:
        columns = []  # the numbers of the columns with the first repeated name, from 1
        for number, name in enumerate(header, start=1):
            if name == repeated[0]:
                columns.append(str(number))
        raise ValueError(
            f"row {row_number}: columns {' and '.join(columns)} have the same name, "
            f"{_quoted(repeated[0])}: leave one of them out"
        )
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise ValueError(f"row {row_number}: there is no column {', '.join(missing)}")


def _quoted(text: str) -> str:
    """Return a text in quotes on one line, cut to `_MAX_NAME` characters, for a message."""
    return f"'{one_line(text, _MAX_NAME)}'"
