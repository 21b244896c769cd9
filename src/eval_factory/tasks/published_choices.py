"""Reads the questions of published multiple-choice benchmarks for which HELM has no scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from eval_factory.tasks.choice_question import ChoiceQuestion, DataRow, RowFaultError
from eval_factory.tasks.file_problems import ReadFile
from eval_factory.tasks.published_forms import PUBLISHED_FORMS, PublishedForm
from eval_factory.tasks.published_pictures import opened_pictures
from eval_factory.tasks.published_rows import (
    ERRORS_OF_ROWS,
    UNLIKE_PUBLISHED,
    patient_rows,
    published_rows,
    rows_without_header,
    unique_ids,
)

EVERY_TIER = "all"  # the value of the parameter `tier` for all questions


def questions_of_tier(questions: Sequence[ChoiceQuestion], tier: str) -> list[ChoiceQuestion]:
    """Return the questions of one tier or language.

    Questions that have neither a tier nor a language are always returned.

    Args:
        questions: the questions of a file.
        tier: the tier (AfriMed-QA: experts or crowd), the language (SLAKE), or `EVERY_TIER`.
    """
    selected = []
    for question in questions:
        tier_of_question = question.groups.get("tier", question.groups.get("q_lang"))
        if tier == EVERY_TIER or tier_of_question in (tier, None):
            selected.append(question)
    return selected


def read_choice_file(path: Path, form: str, folder: Path | None = None) -> ReadFile[ChoiceQuestion]:
    """Return all questions of a file, and its mistakes, such as `row 3, column label: is empty`.

    At most one mistake of a row is reported. If the first row lacks a column, no row is read.

    Args:
        path: the published file.
        form: a name of `PUBLISHED_FORMS`.
        folder: the folder to which the files of pictures are written; None: pictures are checked
            and not written.

    Raises:
        OSError: the file cannot be read.
    """
    content: ReadFile[ChoiceQuestion] = ReadFile()
    with content.reading(
        path, empty="has no question", wrong_form=UNLIKE_PUBLISHED, form_errors=ERRORS_OF_ROWS
    ):
        _read_rows(content, path, form, folder)
    for index, unique_id in enumerate(unique_ids([question.id for question in content.rows])):
        content.rows[index] = replace(content.rows[index], id=unique_id)
    return content


def _read_rows(
    content: ReadFile[ChoiceQuestion], path: Path, form: str, folder: Path | None
) -> None:
    """Add the questions and mistakes of a file to `content`."""
    published_form = PUBLISHED_FORMS[form]
    archive = published_form.archive_of(path)
    column_of_pictures = published_form.pictures
    with opened_pictures(column_of_pictures, archive, folder) as pictures:
        is_first_row = True
        for position, row in _rows_of(path, form, published_form):
            # Columns are checked in the first row only: a converter reports a cell that is missing
            # in a later row.
            missing = [name for name in published_form.columns if name not in row]
            if missing and is_first_row:
                columns = ", ".join(map(str, row)) or "none"
                content.problems.append(
                    f"{position}: has no column {', '.join(missing)}; it has {columns}"
                )
                break
            is_first_row = False
            try:
                question = published_form.convert(row)
                file_names = () if question is None else pictures.of(row)
            except RowFaultError as fault:
                content.problems.append(f"{position}, {fault}")
                continue
            if question is None:
                content.left_out += 1
            else:
                question_id = question.id or position.replace(" ", "-")
                content.rows.append(replace(question, id=question_id, pictures=file_names))


def _rows_of(path: Path, form: str, published_form: PublishedForm) -> Iterator[tuple[str, DataRow]]:
    """Return an iterator over (position, row) of each row of a file."""
    if not published_form.has_header:
        return rows_without_header(path, published_form.columns)
    if form == "longhealth":
        return patient_rows(path)
    return published_rows(path)
