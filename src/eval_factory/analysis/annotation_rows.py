"""A sheet as CSV: what `annotate export` writes for a spreadsheet. Pure.

What others wrote must not run in a spreadsheet. A cell that begins as a formula does, also behind a semicolon (which
parts cells where the locale has a decimal comma), gets an apostrophe before it; line breaks are shown as a sign
(https://owasp.org/www-community/attacks/CSV_Injection).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence

from eval_factory.core.annotations import Sample, SampledAnswer
from eval_factory.core.foreign_text import printable
from eval_factory.core.rated_answers import Shown

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


def cell(text: str) -> str:
    """A text that a spreadsheet shows and does not run, on one line."""
    line = printable(_BREAKS.sub(LINE_BREAK, text).replace("\t", " "))
    safe = _FORMULA.sub(r"\1'\2", line)
    return safe if len(safe) <= LONGEST_CELL else safe[:LONGEST_CELL] + CUT


def csv_sheet(
    sample: Sample, rater: str, order: Sequence[str], shown: Mapping[str, Shown], *, with_reference: bool
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


def _rows(sample: Sample, rater: str, one: SampledAnswer, told: Shown, *, with_reference: bool) -> Iterator[list[str]]:
    choices = " / ".join(choice.label for choice in sample.choices)
    reference = "\n\n".join(told.references) if with_reference else ""
    texts = [question_text(told.turns), told.answer, reference]
    for number, asked in enumerate(one.questions, start=1):
        cells = [cell(text) for text in texts] if number == 1 else ["", "", ""]
        yield [sample.id, rater, one.code, str(number), *cells, cell(asked.name), choices, "", ""]


def question_text(turns: Sequence[tuple[str, str]]) -> str:
    """One turn as it is; several with who speaks."""
    return turns[0][1] if len(turns) == 1 else "\n\n".join(f"{role}: {text}" for role, text in turns)
