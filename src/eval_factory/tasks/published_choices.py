"""Reads the files of published multiple-choice benchmarks for which HELM has no scenario.

`FORMS` describes the file format of each benchmark, as the data set's card and the authors'
programs state it. Each form has a converter, which makes a question of a row. A converter returns
None for a row that is not a question of the benchmark, and raises RowFaultError for a question that
cannot be read.
"""

from __future__ import annotations

import csv
import hashlib
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.core import safe_files
from eval_factory.core.safe_files import MAX_BYTES_OF_TABLE, open_text
from eval_factory.core.table_files import MAX_CELL_LENGTH
from eval_factory.endpoint.media import MAX_FILE, UnusableMedium, picture_type
from eval_factory.tasks.choice_question import (
    LETTERS,
    ChoiceQuestion,
    DataRow,
    RowFaultError,
    cell_text,
    chosen_options,
    groups_of,
    is_blank,
    lettered,
)
from eval_factory.tasks.file_problems import ReadFile

EVERY_TIER = "all"  # the value of the parameter `tier` for all questions
ROWS_AT_ONCE = 16  # rows of a Parquet file in memory at the same time: each may hold a picture


class PublishedForm(NamedTuple):
    """The format of one benchmark's files: columns, converter, and location of the pictures."""

    columns: tuple[str, ...]  # the columns that every question needs
    convert: Callable[[DataRow], ChoiceQuestion | None]
    files: str = ""
    """A glob pattern for the files in the data set's folder; "" if the data set is one file."""
    pictures: str = ""  # the column of the pictures; "" if the questions have no pictures
    archive: str = ""  # the name of the ZIP file with the pictures, in the data set's folder
    has_header: bool = True  # False: the first line is a row, with the cells in order of `columns`

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
    options = lettered(row, "options")
    choices, right = chosen_options(options, cell_text(row, "label"), "label", "options")
    question = cell_text(row, "question")
    # HELM adds the choices to the prompt, so the repeated choices are removed. A text after the
    # mark that differs from the choices belongs to the question and stays.
    stem, mark, rest = question.rpartition("Answer Choices:")
    listed = " ".join(f"({letter}) {text}" for letter, text in options.items())
    if mark and stem.strip() and rest.split() == listed.split():
        question = stem.strip()
    groups = groups_of(row, ("medical_task", "body_system", "question_type"))
    return ChoiceQuestion(cell_text(row, "id"), question, choices, right, groups)


def careqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of CareQA (Arias-Duart et al. 2025, arXiv 2502.06666).

    A question has four choices; `cop` is the number of the right choice, from 1.
    """
    options = {number: row.get(f"op{number}") for number in "1234"}
    choices, right = chosen_options(options, str(row.get("cop")).strip(), "cop", "op1 to op4")
    name = cell_text(row, "unique_id") if not is_blank(row.get("unique_id")) else ""
    return ChoiceQuestion(
        name, cell_text(row, "question"), choices, right, groups_of(row, ("category", "year"))
    )


def afrimed_question(row: DataRow) -> ChoiceQuestion | None:
    """Convert a row of AfriMed-QA v2 (Olatunji et al. 2025, arXiv 2411.15640).

    Returns None if the row is not a multiple-choice question, or if the question has several right
    choices: the answer would not be one letter. Choices that are N/A are skipped, as in the
    authors' program.
    """
    if cell_text(row, "question_type").lower() != "mcq":
        return None
    right = {part.strip() for part in cell_text(row, "correct_answer").split(",")} - {""}
    if len(right) > 1:
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
    # `right` has one name or none. "" is not the name of a choice, so it is reported.
    choices, index = chosen_options(
        options, next(iter(right), ""), "correct_answer", "answer_options"
    )
    name = cell_text(row, "sample_id")
    question = cell_text(
        row, "question" if is_blank(row.get("question_clean")) else "question_clean"
    )
    return ChoiceQuestion(
        name, question, choices, index, groups_of(row, ("specialty", "country", "tier"))
    )


def metamedqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of MetaMedQA (Griot et al. 2025).

    A question has six choices; two of them are "None of the above" and "I don't know".
    """
    choices, right = chosen_options(
        lettered(row, "options"), cell_text(row, "answer_idx"), "answer_idx", "options"
    )
    groups = groups_of(row, ("kind", "meta_info"))
    return ChoiceQuestion("", cell_text(row, "question"), choices, right, groups)


def medexqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of MedExQA (Kim et al. 2024, arXiv 2406.06331).

    A question has four choices. Each of the five professions has a file of its own. The two columns
    with explanations are not used.
    """
    options = {letter: row.get(letter) for letter in "ABCD"}
    choices, right = chosen_options(options, cell_text(row, "answer").upper(), "answer", "A to D")
    return ChoiceQuestion(
        "", cell_text(row, "question"), choices, right, groups_of(row, ("specialty",))
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
    # Not strict, because there are fewer choices than letters.
    for letter, text in zip(LETTERS, choice_texts, strict=False):
        options[letter] = None if text == "N/A" else text
    choices, right = chosen_options(options, cell_text(row, "answer"), "answer", "options")
    name = cell_text(row, "question_id")
    return ChoiceQuestion(
        name, cell_text(row, "question"), choices, right, groups_of(row, ("src",))
    )


_OPTIONS = ("option1", "option2", "option3", "option4")


def medconceptsqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of MedConceptsQA (Ben Shoham and Rappoport 2024, arXiv 2405.07348).

    A question asks for the meaning of a medical code and has four choices. The text of the question
    repeats the choices after its first line.
    """
    options = dict(zip("ABCD", map(row.get, _OPTIONS), strict=True))
    choices, right = chosen_options(
        options, cell_text(row, "answer_id"), "answer_id", "option1 to option4"
    )
    question = cell_text(row, "question").partition("\n")[0].strip()
    name = "" if is_blank(row.get("question_id")) else str(row["question_id"])
    return ChoiceQuestion(name, question, choices, right, groups_of(row, ("vocab", "level")))


def longhealth_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of LongHealth, task 1 (Adams et al. 2024, arXiv 2401.14490).

    The row holds a question and all documents of its patient (see `_patient_rows`). `correct` is
    the text of the right choice.
    """
    options = {f"answer_{letter}": row.get(f"answer_{letter}") for letter in "abcde"}
    right_text = _plain(cell_text(row, "correct"))
    right_column = ""  # stays if no choice has this text: `chosen_options` then raises the error
    for column, text in options.items():
        if not is_blank(text) and _plain(str(text)) == right_text:
            right_column = column
            break
    choices, index = chosen_options(options, right_column, "correct", "answer_a to answer_e")
    patient = cell_text(row, "patient")
    name = "" if is_blank(row.get("No")) else f"{patient}-{row['No']}"
    texts = row.get("texts")
    if (
        not isinstance(texts, Mapping)
        or not texts
        or any(not isinstance(text, str) for text in texts.values())
    ):
        raise RowFaultError("texts", 'must be an object such as {"text_0": "..."}')
    parts = []
    for number, text in enumerate(texts.values(), start=1):
        parts.append(f"[Document {number}]\n{text.strip()}")
    paragraphs = [
        "These are the documents of one patient.",
        *parts,
        "[End of the documents]",
        cell_text(row, "question"),
    ]
    return ChoiceQuestion(
        name, "\n\n".join(paragraphs), choices, index, cluster=("patient", patient)
    )


def _plain(text: str) -> str:
    """Return the text in lower case, with single spaces and without full stops at its end.

    A choice and its repetition differ in these details.
    """
    return " ".join(text.split()).rstrip(".").casefold()


def slake_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of SLAKE (Liu et al. 2021, arXiv 2102.09542).

    A row is a question in English or Chinese, with a short answer instead of choices.
    """
    groups = groups_of(row, ("answer_type", "modality", "location", "q_lang"))
    image = "" if is_blank(row.get("img_id")) else str(row["img_id"])
    name = "" if is_blank(row.get("qid")) else str(row["qid"])
    answer = cell_text(row, "answer")
    return ChoiceQuestion(
        name, cell_text(row, "question"), (answer,), 0, groups, ("img_id", image) if image else None
    )


def path_vqa_question(row: DataRow) -> ChoiceQuestion:
    """Convert a row of PathVQA (He et al. 2020, arXiv 2003.10286), or of VQA-RAD in the same form.

    A row is a question with a short answer instead of choices.
    """
    answer = cell_text(row, "answer")
    groups = {"answer_type": "closed" if answer.lower() in ("yes", "no") else "open"}
    return ChoiceQuestion("", cell_text(row, "question"), (answer,), 0, groups)


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
FORMS = {
    "medxpertqa": PublishedForm(_MEDXPERTQA_COLUMNS, medxpertqa_question),
    "medxpertqa_mm": PublishedForm(
        (*_MEDXPERTQA_COLUMNS, "images"),
        medxpertqa_question,
        "MM/test.jsonl",
        pictures="images",
        archive="images.zip",
    ),
    "slake": PublishedForm(
        _SLAKE_COLUMNS, slake_question, "test.json", pictures="img_name", archive="imgs.zip"
    ),
    "path_vqa": PublishedForm(
        ("image", "question", "answer"), path_vqa_question, "data/test-*.parquet", pictures="image"
    ),
    "careqa": PublishedForm(("question", "op1", "op2", "op3", "op4", "cop"), careqa_question),
    "afrimed_qa": PublishedForm(_AFRIMED_COLUMNS, afrimed_question),
    "metamedqa": PublishedForm(("question", "options", "answer_idx"), metamedqa_question),
    "medexqa": PublishedForm(
        ("question", "A", "B", "C", "D", "exp0", "exp1", "answer"),
        medexqa_question,
        "test/*_test.tsv",
        has_header=False,
    ),
    "m_arc": PublishedForm(("question_id", "question", "options", "answer"), m_arc_question),
    "medconceptsqa": PublishedForm(("question", *_OPTIONS, "answer_id"), medconceptsqa_question),
    "longhealth": PublishedForm(("patient", "texts", "question", "correct"), longhealth_question),
}


def questions_of_tier(questions: Sequence[ChoiceQuestion], tier: str) -> list[ChoiceQuestion]:
    """Return the questions of one tier or language.

    Questions that have neither a tier nor a language are always returned.

    Args:
        questions: the questions of a file.
        tier: the tier (AfriMed-QA: experts or crowd), the language (SLAKE), or `EVERY_TIER`.
    """
    selected = []
    for question in questions:
        own_tier = question.groups.get("tier", question.groups.get("q_lang", tier))
        if tier in (EVERY_TIER, own_tier):
            selected.append(question)
    return selected


def read_choice_file(path: Path, form: str, folder: Path | None = None) -> ReadFile[ChoiceQuestion]:
    """Return all questions of a file, and its mistakes, such as `row 3, column label: is empty`.

    At most one mistake of a row is reported. If the first row lacks a column, no row is read.

    Args:
        path: the published file.
        form: a name of `FORMS`.
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


def unique_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids, with a number added to each repeated id.

    HELM identifies an instance by its id, so each id must be unique.
    """
    taken = set(ids)
    counts: Counter[str] = Counter()
    unique = []
    for name in ids:
        counts[name] += 1
        if counts[name] > 1:
            while f"{name}-{counts[name]}" in taken:
                counts[name] += 1
            name = f"{name}-{counts[name]}"
            taken.add(name)
        unique.append(name)
    return unique


def _read_rows(
    content: ReadFile[ChoiceQuestion], path: Path, form: str, folder: Path | None
) -> None:
    """Add the questions and mistakes of a file to `content`."""
    published_form = FORMS[form]
    if not published_form.has_header:
        rows = _rows_without_header(path, published_form.columns)
    elif form == "longhealth":
        rows = _patient_rows(_json(_text_of(path), "it"))
    else:
        rows = published_rows(path)
    archive = published_form.archive_of(path)
    with opened_pictures(published_form.pictures, archive, folder) as pictures:
        for label, row in rows:
            # Columns are checked in the first row only: a converter reports a cell that is missing
            # in a later row.
            missing = [name for name in published_form.columns if name not in row]
            is_first_row = not content.rows and not content.problems and not content.left_out
            if missing and is_first_row:
                columns = ", ".join(map(str, row)) or "none"
                content.problems.append(
                    f"{label}: has no column {', '.join(missing)}; it has {columns}"
                )
                break
            try:
                question = published_form.convert(row)
                file_names = () if question is None else pictures.of(row)
            except RowFaultError as fault:
                content.problems.append(f"{label}, {fault}")
                continue
            if question is None:
                content.left_out += 1
            else:
                name = question.id or label.replace(" ", "-")
                content.rows.append(replace(question, id=name, pictures=file_names))


ERRORS_OF_ROWS = (ValueError, RecursionError, csv.Error)
"""The exceptions that mean that a file does not have the published form."""
UNLIKE_PUBLISHED = "is not of the published form"


def published_rows(path: Path) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each row of a Parquet, CSV or JSON file; a position is `row 3`.

    A file with another extension is read as a JSON list or as JSON lines. Raises ValueError if the
    file is not JSON.
    """
    kind = path.suffix.lower()
    if kind == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20)
        # Read each row group separately: one iteration over all groups would end up with the
        # complete file in memory.
        number = 0
        for group in range(table.num_row_groups):
            for batch in table.iter_batches(ROWS_AT_ONCE, [group]):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    elif kind == ".csv":
        csv.field_size_limit(MAX_CELL_LENGTH)
        with open_text(path, encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), start=1):
                # The key None has the cells beyond the named columns: they are left out.
                yield (
                    f"row {number}",
                    {name: cell for name, cell in row.items() if name is not None},
                )
    else:
        text = _text_of(path)
        if text.lstrip().startswith("["):
            for number, row in enumerate(_json(text, "it"), start=1):
                yield f"row {number}", _object(row, f"row {number}")
            return
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield f"line {number}", _object(_json(line, f"line {number}"), f"line {number}")


def _text_of(path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte-order mark."""
    return safe_files.read_text(path, encoding="utf-8-sig", max_size=MAX_BYTES_OF_TABLE)


def _rows_without_header(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each row of a table with tabs between the columns.

    The file name states the profession, which becomes the column `specialty`.
    """
    csv.field_size_limit(MAX_CELL_LENGTH)
    specialty = path.stem.removesuffix("_test")
    with open_text(path, encoding="utf-8-sig", newline="") as file:
        for number, cells in enumerate(csv.reader(file, delimiter="\t"), start=1):
            if len(cells) != len(columns):
                count = f"has {len(cells)} columns, not the {len(columns)} of the published form"
                raise ValueError(f"row {number} {count}: {', '.join(columns)}")
            yield (
                f"row {number}",
                {**dict(zip(columns, cells, strict=True)), "specialty": specialty},
            )


def _patient_rows(patients: Any) -> Iterator[tuple[str, DataRow]]:
    """Yield (position, row) for each question of LongHealth's file.

    The file is a JSON object: the name of a patient -> the patient's documents and questions.
    """
    for name, patient in _object(patients, "it").items():
        if not isinstance(patient, Mapping):
            continue  # the canary string, which marks the file as test data
        questions = patient.get("questions")
        if not isinstance(questions, list):
            raise ValueError(f"{name}: questions must be a list")
        for number, question in enumerate(questions, start=1):
            label = f"{name} question {number}"
            yield (
                label,
                {"patient": name, "texts": patient.get("texts"), **_object(question, label)},
            )


def _object(value: Any, label: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises ValueError if the value is not an object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{label} must be a JSON object")
    return value


def _json(text: str, label: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, with `label`, if it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{label} is not JSON ({error.msg}, line {error.lineno})") from None


class Pictures:
    """The pictures of one published file.

    Each picture is checked once, and written once if there is a folder for the files.
    """

    def __init__(self, column: str, archive: zipfile.ZipFile | None, folder: Path | None) -> None:
        """
        Args:
            column: the column of the pictures. A cell is a picture's name in the archive, a list of
                names, or an object with the picture's `bytes`. "" if questions have no pictures.
            archive: the ZIP file with the pictures; None if the table holds the pictures.
            folder: the folder to which pictures are written; None: nothing is written.
        """
        self._column = column
        self._archive = archive
        self._folder = folder
        listed = [member for member in archive.infolist() if not member.is_dir()] if archive else []
        # All pictures may be in one top folder of any name, which the cells do not state. Names
        # without the top folder are added first, so that complete names overwrite them.
        self._members = {}
        for member in listed:
            if "/" in member.filename:
                self._members[member.filename.partition("/")[2]] = member
        for member in listed:
            self._members[member.filename] = member
        self._files: dict[str, str] = {}
        """A picture's name in the archive, or the picture's SHA-256 -> the name of its file."""

    def of(self, row: DataRow) -> tuple[str, ...]:
        """Return the file names of a row's pictures. Raises RowFaultError: a picture is missing or
        cannot be sent to a model.
        """
        if not self._column:
            return ()
        cell = row.get(self._column)
        pictures = tuple(map(self._file_of, cell if isinstance(cell, list) else [cell]))
        if not pictures:
            raise self._fault("names no picture")
        return pictures

    def _fault(self, reason: str) -> RowFaultError:
        return RowFaultError(self._column, reason)

    def _file_of(self, cell: Any) -> str:
        """Return the file name of the picture in a cell. Raises RowFaultError as `of`."""
        if isinstance(cell, str) and self._archive is not None:
            if cell not in self._files:
                self._files[cell] = self._stored_name(self._member(cell))
            return self._files[cell]
        data = cell.get("bytes") if isinstance(cell, Mapping) else None
        if not isinstance(data, bytes):
            raise self._fault("holds no picture")
        return self._stored_name(data)

    def _member(self, name: str) -> bytes:
        """Return the content of a file in the archive. Raises RowFaultError if it is not usable."""
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise self._fault("leaves the folder of the pictures")
        archive = self._archive
        info = self._members.get(name)
        if archive is None or info is None:
            raise self._fault("names a picture that is not in the archive")
        if info.file_size > MAX_FILE:
            raise self._fault(f"names a file of more than {MAX_FILE >> 20} MiB")
        try:
            return archive.read(info)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            OSError,
        ) as error:
            raise self._fault(
                f"names a picture that cannot be read from the archive: {type(error).__name__}"
            ) from None

    def _stored_name(self, data: bytes) -> str:
        """Return the file name of a picture, after the check of a picture that is new.

        A new picture is also written, if there is a folder for the files.
        """
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._files:
            try:
                kind = picture_type(data, "the picture")
            except UnusableMedium as fault:
                raise self._fault(str(fault)) from None
            self._files[digest] = f"{digest}.{kind.partition('/')[2]}"
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / self._files[digest]).write_bytes(data)
        return self._files[digest]


@contextmanager
def opened_pictures(column: str, archive: Path | None, folder: Path | None) -> Iterator[Pictures]:
    """Open the pictures of a published file.

    Args:
        column: the column of the pictures; "" if questions have no pictures.
        archive: the ZIP file with the pictures; None if the rows hold the pictures or have none.
        folder: the folder to which pictures are written; None: nothing is written.

    Raises:
        ValueError: the ZIP file cannot be opened.
    """
    if archive is None:
        yield Pictures(column, None, folder)
        return
    try:
        opened = zipfile.ZipFile(archive)
    except FileNotFoundError:
        raise ValueError(f"there is no {archive.name}, which holds its pictures") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{archive.name}, which holds its pictures, is not a usable zip file: {error}"
        ) from None
    with opened:
        yield Pictures(column, opened, folder)
