"""Describes the files of published multiple-choice benchmarks for which HELM has no scenario.

`PUBLISHED_FORMS` describes the file format of each benchmark, as the data set's card and the
authors' programs state it. Each form has a converter, which makes a question of a row. A converter
returns None for a row that is not a question of the benchmark, and raises RowFaultError for a
question that cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from eval_factory.tasks.choice_question import (
    LETTERS,
    ChoiceQuestion,
    DataRow,
    RowFaultError,
    cell_text,
    groups_in_columns,
    is_blank,
    lettered_options,
    options_and_right_index,
)


class PublishedForm(NamedTuple):
    """The format of one benchmark's files: columns, converter, and location of the pictures."""

    columns: tuple[str, ...]  # the columns that every question needs
    convert: Callable[[DataRow], ChoiceQuestion | None]
    files: str = ""
    """A glob pattern for the files in the data set's folder; "" if the data set is one file."""
    pictures: str = ""  # the column of the pictures; "" if the questions have no pictures
    archive: str = ""  # the name of the ZIP file with the pictures, in the data set's folder
    has_header: bool = True  # False: the cells of the first line are those of a question

    def archive_of(self, file: Path) -> Path | None:
        """Return the ZIP file with the pictures of a file's questions; None if there is none."""
        if not self.archive:
            return None
        # Each slash in `files` is a folder between the data set's folder and the file.
        folder_of_data_set = file.parents[self.files.count("/")]
        return folder_of_data_set / self.archive


def medxpertqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of MedXpertQA (Zuo et al. 2025, arXiv 2501.18362).

    The text of the question repeats the choices at its end.
    """
    options = lettered_options(row, "options")
    choices, right = options_and_right_index(
        options, cell_text(row, "label"), answer_column="label", choices_column="options"
    )
    question = cell_text(row, "question")
    # HELM adds the choices to the prompt, so the repeated choices are removed. Any other text after
    # the mark belongs to the question and stays.
    stem, mark, text_after_mark = question.rpartition("Answer Choices:")
    repeated_choices = " ".join(f"({letter}) {text}" for letter, text in options.items())
    if mark and stem.strip() and text_after_mark.split() == repeated_choices.split():
        question = stem.strip()
    return ChoiceQuestion(
        id=cell_text(row, "id"),
        question=question,
        choices=choices,
        right=right,
        groups=groups_in_columns(row, ("medical_task", "body_system", "question_type")),
    )


def careqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of CareQA (Arias-Duart et al. 2025, arXiv 2502.06666).

    A question has four choices; `cop` is the number of the right choice, from 1.
    """
    options = {number: row.get(f"op{number}") for number in "1234"}
    choices, right = options_and_right_index(
        options, str(row.get("cop")).strip(), answer_column="cop", choices_column="op1 to op4"
    )
    return ChoiceQuestion(
        id="" if is_blank(row.get("unique_id")) else cell_text(row, "unique_id"),
        question=cell_text(row, "question"),
        choices=choices,
        right=right,
        groups=groups_in_columns(row, ("category", "year")),
    )


def afrimed_question(row: DataRow) -> ChoiceQuestion | None:
    """Convert a row of AfriMed-QA v2 (Olatunji et al. 2025, arXiv 2411.15640).

    Returns None if the row is not a multiple-choice question, or if the question has several right
    choices: the answer would not be one letter. Choices that are N/A are skipped, as in the
    authors' program.
    """
    if cell_text(row, "question_type").lower() != "mcq":
        return None
    right_names = {name.strip() for name in cell_text(row, "correct_answer").split(",")}
    right_names.discard("")  # a comma may end the list
    if len(right_names) > 1:
        return None
    # A CSV file has the choices as JSON in one cell; a Parquet file may have them as an object.
    choice_texts = row.get("answer_options")
    if not isinstance(choice_texts, Mapping):
        try:
            choice_texts = json.loads(cell_text(row, "answer_options"))
        except (json.JSONDecodeError, RecursionError):
            choice_texts = None
    if not isinstance(choice_texts, Mapping):
        raise RowFaultError(
            "answer_options", 'must be a JSON object such as {"option1": "...", "option2": "..."}'
        )
    options = {}
    for name, text in choice_texts.items():
        options[name] = None if str(text).strip().upper() == "N/A" else text
    # `options_and_right_index` reports "", because no choice has this name.
    right_name = right_names.pop() if right_names else ""
    choices, right = options_and_right_index(
        options, right_name, answer_column="correct_answer", choices_column="answer_options"
    )
    question_column = "question" if is_blank(row.get("question_clean")) else "question_clean"
    return ChoiceQuestion(
        id=cell_text(row, "sample_id"),
        question=cell_text(row, question_column),
        choices=choices,
        right=right,
        groups=groups_in_columns(row, ("specialty", "country", "tier")),
    )


def metamedqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of MetaMedQA (Griot et al. 2025).

    A question has six choices; two of them are "None of the above" and "I don't know".
    """
    choices, right = options_and_right_index(
        lettered_options(row, "options"),
        cell_text(row, "answer_idx"),
        answer_column="answer_idx",
        choices_column="options",
    )
    return ChoiceQuestion(
        id="",
        question=cell_text(row, "question"),
        choices=choices,
        right=right,
        groups=groups_in_columns(row, ("kind", "meta_info")),
    )


def medexqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of MedExQA (Kim et al. 2024, arXiv 2406.06331).

    A question has four choices. The data set has a file for each of five professions. The column
    `specialty` has the profession (see `published_rows.rows_without_header`). The two columns with
    explanations are not used.
    """
    options = {letter: row.get(letter) for letter in "ABCD"}
    choices, right = options_and_right_index(
        options, cell_text(row, "answer").upper(), answer_column="answer", choices_column="A to D"
    )
    return ChoiceQuestion(
        id="",
        question=cell_text(row, "question"),
        choices=choices,
        right=right,
        groups=groups_in_columns(row, ("specialty",)),
    )


def m_arc_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of M-ARC (Kim et al. 2025, arXiv 2502.04381).

    A question has five to seven choices, as a JSON list in one cell. Choices that are N/A are
    skipped, as in the authors' program.
    """
    choice_texts = row.get("options")
    if not isinstance(choice_texts, list):
        try:
            choice_texts = json.loads(cell_text(row, "options"))
        except (json.JSONDecodeError, RecursionError):
            choice_texts = None
    if not isinstance(choice_texts, list) or len(choice_texts) > len(LETTERS):
        raise RowFaultError("options", 'must be a JSON list such as ["...", "..."]')
    options = {}
    # Not strict: there may be fewer choices than letters.
    for letter, text in zip(LETTERS, choice_texts, strict=False):
        options[letter] = None if text == "N/A" else text
    choices, right = options_and_right_index(
        options, cell_text(row, "answer"), answer_column="answer", choices_column="options"
    )
    return ChoiceQuestion(
        id=cell_text(row, "question_id"),
        question=cell_text(row, "question"),
        choices=choices,
        right=right,
        groups=groups_in_columns(row, ("src",)),
    )


_OPTIONS = ("option1", "option2", "option3", "option4")


def medconceptsqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of MedConceptsQA (Ben Shoham and Rappoport 2024, arXiv 2405.07348).

    A question asks for the meaning of a medical code and has four choices. The text of the question
    repeats the choices after its first line.
    """
    options = {}
    for letter, column in zip("ABCD", _OPTIONS, strict=True):
        options[letter] = row.get(column)
    choices, right = options_and_right_index(
        options,
        cell_text(row, "answer_id"),
        answer_column="answer_id",
        choices_column="option1 to option4",
    )
    first_line = cell_text(row, "question").partition("\n")[0]
    return ChoiceQuestion(
        id=_text_or_empty(row, "question_id"),
        question=first_line.strip(),
        choices=choices,
        right=right,
        groups=groups_in_columns(row, ("vocab", "level")),
    )


def _text_or_empty(row: DataRow, column: str) -> str:
    """Return a cell's value as text, for example of a number; "" if the cell is blank."""
    if is_blank(row.get(column)):
        return ""
    return str(row[column])


def longhealth_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of LongHealth, task 1 (Adams et al. 2024, arXiv 2401.14490).

    The row has a question and all documents of its patient (see `published_rows.patient_rows`).
    `correct` is the text of the right choice.
    """
    options = {f"answer_{letter}": row.get(f"answer_{letter}") for letter in "abcde"}
    right_text = _plain(cell_text(row, "correct"))
    right_column = ""  # if no choice has the text, `options_and_right_index` reports ""
    for column, text in options.items():
        if not is_blank(text) and _plain(str(text)) == right_text:
            right_column = column
            break
    choices, right = options_and_right_index(
        options, right_column, answer_column="correct", choices_column="answer_a to answer_e"
    )
    patient = cell_text(row, "patient")
    question_id = "" if is_blank(row.get("No")) else f"{patient}-{row['No']}"
    documents = []
    for number, text in enumerate(_texts_of_patient(row), start=1):
        documents.append(f"[Document {number}]\n{text.strip()}")
    paragraphs = [
        "These are the documents of one patient.",
        *documents,
        "[End of the documents]",
        cell_text(row, "question"),
    ]
    return ChoiceQuestion(
        id=question_id,
        question="\n\n".join(paragraphs),
        choices=choices,
        right=right,
        cluster=("patient", patient),
    )


def _texts_of_patient(row: DataRow) -> list[str]:
    """Return the documents in the cell `texts`. Raises RowFaultError if the cell has no texts."""
    texts = row.get("texts")
    if isinstance(texts, Mapping) and texts:
        documents = list(texts.values())
        if all(isinstance(document, str) for document in documents):
            return documents
    raise RowFaultError("texts", 'must be an object such as {"text_0": "..."}')


def _plain(text: str) -> str:
    """Return the text in lower case, with single spaces and without full stops at its end.

    The text in `correct` and the text of the right choice may differ in these details.
    """
    return " ".join(text.split()).rstrip(".").casefold()


def slake_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of SLAKE (Liu et al. 2021, arXiv 2102.09542).

    A row is a question in English or Chinese, with a short answer instead of choices.
    """
    answer = cell_text(row, "answer")
    image = _text_or_empty(row, "img_id")
    return ChoiceQuestion(
        id=_text_or_empty(row, "qid"),
        question=cell_text(row, "question"),
        choices=(answer,),
        right=0,
        groups=groups_in_columns(row, ("answer_type", "modality", "location", "q_lang")),
        cluster=("img_id", image) if image else None,
    )


def path_vqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of PathVQA (He et al. 2020, arXiv 2003.10286), or of VQA-RAD in the same form.

    A row is a question with a short answer instead of choices.
    """
    answer = cell_text(row, "answer")
    groups = {"answer_type": "closed" if answer.lower() in ("yes", "no") else "open"}
    return ChoiceQuestion(
        id="",
        question=cell_text(row, "question"),
        choices=(answer,),
        right=0,
        groups=groups,
    )


_MEDXPERTQA_COLUMNS = ("id", "question", "options", "label")
_SLAKE_COLUMNS = ("img_id", "img_name", "question", "answer", "q_lang", "answer_type")
_AFRIMED_COLUMNS = (
    "sample_id",
    "question_type",
    "question",
    "answer_options",
    "correct_answer",
    "tier",
)
PUBLISHED_FORMS = {
    "medxpertqa": PublishedForm(_MEDXPERTQA_COLUMNS, medxpertqa_question),
    "medxpertqa_mm": PublishedForm(
        (*_MEDXPERTQA_COLUMNS, "images"),
        medxpertqa_question,
        files="MM/test.jsonl",
        pictures="images",
        archive="images.zip",
    ),
    "slake": PublishedForm(
        _SLAKE_COLUMNS, slake_question, files="test.json", pictures="img_name", archive="imgs.zip"
    ),
    "path_vqa": PublishedForm(
        ("image", "question", "answer"),
        path_vqa_question,
        files="data/test-*.parquet",
        pictures="image",
    ),
    "careqa": PublishedForm(("question", "op1", "op2", "op3", "op4", "cop"), careqa_question),
    "afrimed_qa": PublishedForm(_AFRIMED_COLUMNS, afrimed_question),
    "metamedqa": PublishedForm(("question", "options", "answer_idx"), metamedqa_question),
    "medexqa": PublishedForm(
        ("question", "A", "B", "C", "D", "exp0", "exp1", "answer"),
        medexqa_question,
        files="test/*_test.tsv",
        has_header=False,
    ),
    "m_arc": PublishedForm(("question_id", "question", "options", "answer"), m_arc_question),
    "medconceptsqa": PublishedForm(("question", *_OPTIONS, "answer_id"), medconceptsqa_question),
    "longhealth": PublishedForm(("patient", "texts", "question", "correct"), longhealth_question),
}
