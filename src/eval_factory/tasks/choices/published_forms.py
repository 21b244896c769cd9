"""The published form of each benchmark, and its converter: a row -> a question. Pure functions.

A converter gives None for a row that is no question of the benchmark, and raises RowFaultError for one that is and
cannot be read. The forms are those of the data sets' cards on the Hub, and of the authors' programs that read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eval_factory.tasks.choices.choice_question import (
    ChoiceQuestion,
    Row,
    RowFaultError,
    chosen,
    groups_of,
    is_blank,
    lettered,
    text_of,
)

MULTIPLE_CHOICE = "mcq"
NOT_APPLICABLE = "N/A"
EVERY_TIER = "all"
_REPEATED_CHOICES = "Answer Choices:"


@dataclass(frozen=True)
class PublishedForm:
    """What a file of a benchmark looks like."""

    name: str
    columns: tuple[str, ...]
    """Without which no question can be read."""
    convert: Callable[[Row], ChoiceQuestion | None]


def medxpertqa(row: Row) -> ChoiceQuestion:
    """MedXpertQA Text (Zuo et al. 2025, arXiv 2501.18362): ten choices, which the question repeats at its end."""
    options = lettered(row, "options")
    choices, right = chosen(options, text_of(row, "label"), "label", "options")
    question = _without_choices(text_of(row, "question"), options)
    groups = groups_of(row, ("medical_task", "body_system", "question_type"))
    return ChoiceQuestion(text_of(row, "id"), question, tuple(choices), right, groups)


def _without_choices(question: str, options: Mapping[str, Any]) -> str:
    """HELM writes the choices itself. What stands behind the mark and is not these choices is the question's own."""
    stem, mark, rest = question.rpartition(_REPEATED_CHOICES)
    listed = " ".join(f"({letter}) {text}" for letter, text in options.items())
    return stem.strip() if mark and stem.strip() and rest.split() == listed.split() else question


def careqa(row: Row) -> ChoiceQuestion:
    """CareQA (Arias-Duart et al. 2025, arXiv 2502.06666): four choices; `cop` is the right one, from 1."""
    columns = ("op1", "op2", "op3", "op4")
    options = {str(number): row.get(name) for number, name in enumerate(columns, start=1)}
    choices, right = chosen(options, str(row.get("cop")).strip(), "cop", "op1 to op4")
    name = text_of(row, "unique_id") if not is_blank(row.get("unique_id")) else ""
    return ChoiceQuestion(name, text_of(row, "question"), tuple(choices), right, groups_of(row, ("category", "year")))


def afrimed_qa(row: Row) -> ChoiceQuestion | None:
    """AfriMed-QA v2 (Olatunji et al. 2025, arXiv 2411.15640): of several kinds of question the multiple-choice ones.

    As in the authors' program, a choice that is N/A is none. One with several right choices has no one letter as its
    answer, and is none of the questions.
    """
    if text_of(row, "question_type").lower() != MULTIPLE_CHOICE:
        return None
    right = {part.strip() for part in text_of(row, "correct_answer").split(",")} - {""}
    if len(right) > 1:
        return None
    options = {name: None if _is_not_applicable(text) else text for name, text in _named_options(row).items()}
    choices, index = chosen(options, next(iter(right), ""), "correct_answer", "answer_options")
    question = row.get("question_clean")
    return ChoiceQuestion(
        text_of(row, "sample_id"),
        text_of(row, "question" if is_blank(question) else "question_clean"),
        tuple(choices),
        index,
        groups_of(row, ("specialty", "country", "tier")),
    )


def _named_options(row: Row) -> dict[str, Any]:
    """`{"option1": "...", ...}`, written as JSON in one cell; a table of typed columns may hold the object itself."""
    value = row.get("answer_options")
    if not isinstance(value, Mapping):
        try:
            value = json.loads(text_of(row, "answer_options"))
        except (json.JSONDecodeError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        raise RowFaultError("answer_options", 'must be a JSON object such as {"option1": "...", "option2": "..."}')
    return dict(value)


def _is_not_applicable(text: Any) -> bool:
    return isinstance(text, str) and text.strip().upper() == NOT_APPLICABLE


def metamedqa(row: Row) -> ChoiceQuestion:
    """MetaMedQA (Griot et al. 2025): six choices, "None of the above" and "I don't know" among them."""
    choices, right = chosen(lettered(row, "options"), text_of(row, "answer_idx"), "answer_idx", "options")
    return ChoiceQuestion(
        "", text_of(row, "question"), tuple(choices), right, groups_of(row, ("kind", "meta_info"))
    )  # fmt: skip


def longhealth(row: Row) -> ChoiceQuestion:
    """LongHealth (Adams et al. 2024, arXiv 2401.14490), task 1: a question to all documents of one patient.

    The row is a question with its patient's documents (`published_files.py`); `correct` is the right choice's text.
    """
    columns = ("answer_a", "answer_b", "answer_c", "answer_d", "answer_e")
    options = {name: row.get(name) for name in columns}
    right = _plain(text_of(row, "correct"))
    equal = next((name for name, text in options.items() if not is_blank(text) and _plain(str(text)) == right), "")
    choices, index = chosen(options, equal, "correct", "answer_a to answer_e")
    patient = text_of(row, "patient")
    number = "" if is_blank(row.get("No")) else f"-{row['No']}"
    return ChoiceQuestion(
        f"{patient}{number}" if number else "",
        f"{_documents(row)}\n\n{text_of(row, 'question')}",
        tuple(choices),
        index,
        cluster=("patient", patient),
    )


def _plain(text: str) -> str:
    """Without what differs between a choice and its repetition: case, spaces, the last full stop."""
    return " ".join(text.split()).rstrip(".").casefold()


def _documents(row: Row) -> str:
    texts = row.get("texts")
    if not isinstance(texts, Mapping) or not texts or any(not isinstance(text, str) for text in texts.values()):
        raise RowFaultError("texts", 'must be an object such as {"text_0": "..."}')
    parts = [f"[Document {number}]\n{text.strip()}" for number, text in enumerate(texts.values(), start=1)]
    return "\n\n".join(["These are the documents of one patient.", *parts, "[End of the documents]"])


FORMS = {
    form.name: form
    for form in (
        PublishedForm("medxpertqa", ("id", "question", "options", "label"), medxpertqa),
        PublishedForm("careqa", ("question", "op1", "op2", "op3", "op4", "cop"), careqa),
        PublishedForm(
            "afrimed_qa",
            ("sample_id", "question_type", "question", "answer_options", "correct_answer", "tier"),
            afrimed_qa,
        ),
        PublishedForm("metamedqa", ("question", "options", "answer_idx"), metamedqa),
        PublishedForm("longhealth", ("patient", "texts", "question", "correct"), longhealth),
    )
}
