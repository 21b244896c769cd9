"""Reads and scores script concordance questions in the published form of SCT-Bench.

A question states a case, a hypothesis and a new finding. The model rates how the finding changes
the probability of the hypothesis: from -2 (much less likely) to +2 (much more likely). Experts
answered the same question. The credit of a rating is computed as in B. Charlin et al., Teaching and
Learning in Medicine 12:189-195, 2000:

    credit = (experts who chose this rating) / (experts who chose the most frequent rating)
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.safe_files import open_text
from eval_factory.core.table_files import MAX_CELL_LENGTH
from eval_factory.tasks.choice_question import RowFaultError
from eval_factory.tasks.file_problems import ReadFile

CONCORDANCE_FORM = "concordance"  # the format's name in `framework.yml`: a CSV file with a header
RATINGS = (-2, -1, 0, 1, 2)
TEXT_COLUMNS = ("sct_stem", "question", "additional_info")
"""The columns with the case, the hypothesis and the finding, in this order."""
COLUMNS = ("question_id", *TEXT_COLUMNS, *map(str, RATINGS))
"""The required columns. The column of a rating has the number of experts who chose this rating."""
EXPERT_COUNTS_KEY = "expert_distribution"
"""The key of an instance's extra data: the number of experts who chose each of `RATINGS`."""
CONCORDANCE_METRICS = ("concordance_score", "concordance_membership")
"""The names of the metrics in results. The first is the mean credit, the second is the share of
answers whose rating at least one expert chose.
"""

# `?` after `{0,5}` and `{0,10}`: otherwise `\W` would also match the minus sign of the number.
# "Rating: -1", "the rating is +2"
_RATING = re.compile(r"rating\W{0,5}?(?:is\b\W{0,5}?)?([+-]?\d+(?:[.,]\d+)?)", re.IGNORECASE)
# "-1", "(+2)" at the start of an answer
_OPENING_RATING = re.compile(r"\W{0,10}?([+-]?\d+(?:[.,]\d+)?)")
# replaces minus signs, en dashes, and the small and the wide hyphen by "-"
_MINUS_SIGNS = str.maketrans(dict.fromkeys("\u2212\u2013\ufe63\uff0d", "-"))


def rating_in(text: str) -> int | None:
    """Return the rating that an answer states; None if the answer states no rating.

    The rating is the first number after the word "rating", or else the number at the start of the
    answer. A number that is not one of `RATINGS` is not a rating.
    """
    plain = text.translate(_MINUS_SIGNS)
    for markdown_sign in "*_`":
        plain = plain.replace(markdown_sign, "")
    match = _RATING.search(plain) or _OPENING_RATING.match(plain)
    if match is None:
        return None
    try:
        rating = int(match[1])
    except ValueError:  # a number that is not whole, such as 1.5
        return None
    if rating not in RATINGS:
        return None
    return rating


def credit_of_answer(expert_counts: Sequence[float], answer: str) -> float:
    """Return the credit of an answer, from 0 to 1; 0 if the answer states no rating.

    Args:
        expert_counts: the number of experts who chose each of `RATINGS`.
        answer: the text of the model's answer.
    """
    rating = rating_in(answer)
    if rating is None or max(expert_counts) <= 0:
        return 0.0
    return expert_counts[RATINGS.index(rating)] / max(expert_counts)


_BAD_ID = "is empty, or the same as in an earlier row"


@dataclass(frozen=True)
class ConcordanceCase:
    """One question of the file, with the experts' ratings."""

    id: str
    stem: str  # the description of the patient
    hypothesis: str
    finding: str  # the new information, which the model rates
    expert_counts: tuple[float, ...]  # the number of experts who chose each of `RATINGS`

    @property
    def best(self) -> str:
        """The most frequent rating of the experts, in the form that the prompt asks for (`+1`).

        If several ratings are equally frequent, the lowest of these ratings.
        """
        rating = RATINGS[self.expert_counts.index(max(self.expert_counts))]
        if rating == 0:
            return "0"  # the format below would write +0
        return f"{rating:+d}"


def read_concordance_file(path: Path) -> ReadFile[ConcordanceCase]:
    """Return all cases of a file, and the first mistake of each row with the row's number.

    Rows with an empty text are skipped. If a column is missing, no row is read. Raises OSError if
    the file cannot be read.
    """
    content: ReadFile[ConcordanceCase] = ReadFile()
    ids: set[str] = set()
    csv.field_size_limit(MAX_CELL_LENGTH)
    with (
        content.reading(
            path, empty="has no case", wrong_form="is not a CSV file", form_errors=(csv.Error,)
        ),
        open_text(path, encoding="utf-8-sig", newline="") as file,
    ):
        rows = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            content.problems.append(f"has no column {', '.join(missing)}")
            return content
        for number, row in enumerate(rows, start=1):
            # `DictReader` returns None for the cells that a short row lacks.
            cells = {column: row[column] or "" for column in COLUMNS}
            if not all(cells[column].strip() for column in TEXT_COLUMNS):
                continue
            try:
                case = _case(cells)
                if case.id in ids:
                    raise RowFaultError("question_id", _BAD_ID)
            except ValueError as fault:
                content.problems.append(f"row {number}: {fault}")
            else:
                ids.add(case.id)
                content.rows.append(case)
    return content


def _case(cells: Mapping[str, str]) -> ConcordanceCase:
    """Return the case in the cells of a row. Raises ValueError if the row has a mistake."""
    expert_counts = tuple(_expert_count(cells, str(rating)) for rating in RATINGS)
    if not any(expert_counts):
        raise ValueError("no expert chose a rating")
    case_id = cells["question_id"].strip()
    if not case_id:
        raise RowFaultError("question_id", _BAD_ID)
    stem, hypothesis, finding = (cells[column] for column in TEXT_COLUMNS)
    return ConcordanceCase(case_id, stem, hypothesis, finding, expert_counts)


def _expert_count(cells: Mapping[str, str], column: str) -> float:
    """Return the number of experts in a cell. Raises RowFaultError for another content."""
    try:
        count = float(cells[column])
    except ValueError:
        count = math.nan
    if not math.isfinite(count) or count < 0:
        raise RowFaultError(column, "must be the number of experts who chose this rating")
    return count
