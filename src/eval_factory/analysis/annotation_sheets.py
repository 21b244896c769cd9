"""Sheets of raters as CSV: what `annotate export` writes for a spreadsheet, and what raters give back.

What others wrote must not run in a spreadsheet. A cell that begins as a formula does, also behind a semicolon (which
parts cells where the locale has a decimal comma), gets an apostrophe before it; line breaks are shown as a sign
(https://owasp.org/www-community/attacks/CSV_Injection).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval_factory.core.annotations import Rating, RatingChoice, Sample, SampledAnswer, ShownAnswer
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.safe_files import open_regular

SHEET, RATER, ITEM, NUMBER, ASKED, RATING, COMMENT = (
    "sheet", "rater", "item", "number", "asked", "rating", "comment",
)  # fmt: skip
COLUMNS = (SHEET, RATER, ITEM, NUMBER, "question", "answer", "reference", ASKED, "choices", RATING, COMMENT)
BOM = "\ufeff"
"""Excel reads UTF-8 with it, and the system's encoding without."""
LONGEST_CELL = 30_000
"""Characters: Excel takes 32,767."""
CUT = " [cut: the HTML form has all of it]"
LINE_BREAK = " \u23ce "

_BREAKS = re.compile(r"\s*(?:\r\n|[\r\n\v\f\u0085\u2028\u2029])\s*")
_FORMULA = re.compile(r"(^|;)([\s\"']*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20|%])")


def sheet_cell(text: str) -> str:
    """A text that a spreadsheet shows and does not run, on one line."""
    line = printable(_BREAKS.sub(LINE_BREAK, text).replace("\t", " "))
    safe = _FORMULA.sub(r"\1'\2", line)
    return safe if len(safe) <= LONGEST_CELL else safe[:LONGEST_CELL] + CUT


def csv_sheet(
    sample: Sample, rater: str, order: Sequence[str], shown: Mapping[str, ShownAnswer], *, with_reference: bool
) -> str:
    """A line for each question about each answer; the texts of an answer stand in its first line alone.

    Args:
        order: codes of the answers.
        shown: code -> what the rater sees.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    answers = {one.code: one for one in sample.answers}
    for code in order:
        writer.writerows(_rows(sample, rater, answers[code], shown[code], with_reference=with_reference))
    return BOM + file.getvalue()


def _rows(
    sample: Sample, rater: str, one: SampledAnswer, told: ShownAnswer, *, with_reference: bool
) -> Iterator[list[str]]:
    choices = " / ".join(choice.label for choice in sample.choices)
    reference = "\n\n".join(told.references) if with_reference else ""
    texts = [question_text(told.turns), told.answer, reference]
    for number, asked in enumerate(one.questions, start=1):
        cells = [sheet_cell(text) for text in texts] if number == 1 else ["", "", ""]
        yield [sample.id, rater, one.code, str(number), *cells, sheet_cell(asked.name), choices, "", ""]


def question_text(turns: Sequence[tuple[str, str]]) -> str:
    """One turn as it is; several with who speaks."""
    return turns[0][1] if len(turns) == 1 else "\n\n".join(f"{role}: {text}" for role, text in turns)


NEEDED = (SHEET, RATER, ITEM, NUMBER, RATING)
DELIMITERS = (",", ";", "\t")
LARGEST = 64 * 1024 * 1024
LONGEST_COMMENT = 2_000
LONGEST_NAME = 80
WORDS = {"met": "yes", "not met": "no", "y": "yes", "n": "no", "true": "yes", "false": "no", "1": "yes", "0": "no"}
"""Other ways to say yes and no: a spreadsheet may make a number or a truth value of them."""


@dataclass
class Returned:
    """What several files give, and what is wrong with them."""

    ratings: list[Rating] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    empty: int = 0
    """Rows without a rating."""


@dataclass(frozen=True)
class _Row:
    file: str
    line: int
    cells: Mapping[str, str]

    def fault(self, column: str, said: str) -> str:
        return f"{self.file}: row {self.line}, column {column}: {said}"


def read_returns(files: Sequence[Path], samples: Mapping[str, Sample], folder: Path) -> Returned:
    """`samples`: id -> the sheets that were exported from the result. `folder`: of the result, for messages."""
    found = Returned()
    places: dict[tuple[str, str, str, int], tuple[Rating, _Row]] = {}
    for file in files:
        try:
            rows = list(_rows_of(file))
        except (OSError, ValueError, csv.Error) as error:
            found.faults.append(f"{file}: {error.strerror if isinstance(error, OSError) else error}")
            continue
        for row in rows:
            _take(row, samples, folder, found, places)
    found.ratings = [rating for rating, _ in places.values()]
    return found


def _take(
    row: _Row, samples: Mapping[str, Sample], folder: Path, found: Returned,
    places: dict[tuple[str, str, str, int], tuple[Rating, _Row]],
) -> None:  # fmt: skip
    told = _rating(row, samples, folder)
    if told is None:
        found.empty += 1
    elif isinstance(told, list):
        found.faults += told
    else:
        place = (told.sheet, told.rater, told.code, told.number)
        before = places.get(place)
        if before is not None and before[0].value != told.value:
            said = f"rater {told.rater} rates {told.code} otherwise in row {before[1].line} of {before[1].file}"
            found.faults.append(row.fault(RATING, said))
        places.setdefault(place, (told, row))


def _rating(row: _Row, samples: Mapping[str, Sample], folder: Path) -> Rating | list[str] | None:
    """The rating of a row, or what is wrong with it; None where it has none."""
    sheet, rater, code = row.cells[SHEET], row.cells[RATER], row.cells[ITEM].lower()
    sample = samples.get(sheet)
    if sample is None:
        known = ", ".join(samples) or "none"
        said = f"{_quoted(sheet)} is no sheet that was exported from {folder} (known: {known})"
        return [row.fault(SHEET, said)]
    faults = []
    if not rater or len(rater) > LONGEST_NAME:
        faults.append(row.fault(RATER, f"write who rated, in 1 to {LONGEST_NAME} characters"))
    answer = next((one for one in sample.answers if one.code == code), None)
    if answer is None:
        return [*faults, row.fault(ITEM, f"{_quoted(row.cells[ITEM])} is no item of sheet {sheet}")]
    number = _number(row.cells[NUMBER], answer)
    if number is None:
        said = f"{_quoted(row.cells[NUMBER])} is no question about {code}: they are 1 to {len(answer.questions)}"
        faults.append(row.fault(NUMBER, said))
    given = row.cells[RATING]
    value = choice_of(given, sample.choices) if given else None
    if given and value is None:
        labels = ", ".join(choice.label for choice in sample.choices)
        faults.append(row.fault(RATING, f"{_quoted(given)} is not on the scale: {labels}"))
    if faults:
        return faults
    if value is None or number is None:
        return None
    return Rating(sheet, code, number, rater, value, row.cells.get(COMMENT, "")[:LONGEST_COMMENT])


def _number(text: str, answer: SampledAnswer) -> int | None:
    """Of the question; an answer with one question needs none."""
    if not text:
        return 1 if len(answer.questions) == 1 else None
    whole = text.removesuffix(".0")
    found = int(whole) if whole.isascii() and whole.isdigit() and len(whole) < LONGEST_NAME else 0
    return found if 1 <= found <= len(answer.questions) else None


def choice_of(text: str, choices: Iterable[RatingChoice]) -> float | None:
    """The rating that a cell names, by its label or its number; a decimal comma is one."""
    said = text.strip().lower()
    by_label = {choice.label: choice.value for choice in choices}
    if said in by_label:
        return by_label[said]
    if "yes" in by_label:
        return by_label.get(WORDS.get(said.removesuffix(".0"), ""))
    try:
        value = float(said.replace(",", "."))
    except ValueError:
        return None
    return next((one for one in by_label.values() if one == value), None)


def _rows_of(file: Path) -> Iterator[_Row]:
    """Rows with anything in them; the header is row 1.

    Raises:
        ValueError: it is no table with the columns that are needed.
    """
    with open_regular(file) as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"is larger than {LARGEST // 1024**2} MiB")
    text = decoded_sheet(content)
    lines = text.splitlines()
    if lines and lines[0].lower().startswith("sep="):  # Excel's, for others to know the delimiter
        text = text.split("\n", 1)[1] if "\n" in text else ""
        first = 3
    else:
        first = 2
    header_line = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=header_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = [name.strip().lower() for name in next(reader, [])]
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise ValueError(f"row {first - 1}: there is no column {', '.join(missing)}")
    for number, cells in enumerate(reader, start=first):
        if any(one.strip() for one in cells):
            filled = [*cells, *[""] * (len(header) - len(cells))]
            yield _Row(str(file), number, {name: one.strip() for name, one in zip(header, filled, strict=False)})


def decoded_sheet(content: bytes) -> str:
    """UTF-8, with a mark or without; UTF-16 with one; else what Windows' programs write in the West.

    Raises:
        ValueError: it is binary.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    if b"\0" in content:
        raise ValueError("is no text: save the sheet as CSV, or have the form give it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _quoted(text: str) -> str:
    return f"'{one_line(text, LONGEST_NAME)}'"
