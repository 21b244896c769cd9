"""A benchmark's published file, row by row: JSON lines, a JSON list, CSV or Parquet; and where it is published."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eval_factory.tasks.choices.choice_question import ChoiceQuestion, Row, RowFaultError
from eval_factory.tasks.choices.published_forms import EVERY_TIER, FORMS, PublishedForm
from eval_factory.tasks.custom.csv_table import LONGEST_CELL
from eval_factory.tasks.file_problems import not_utf8

_HUB = "https://huggingface.co/datasets"
_RAW = "https://raw.githubusercontent.com"
_MEDXPERTQA = f"{_HUB}/TsinghuaC3I/MedXpertQA/resolve/f4e6fe7e5a9e13d6c97d7aa2b91cdd8b80c9cc61/"
_CAREQA = f"{_HUB}/HPAI-BSC/CareQA/resolve/65aab87cd014f3fb34f0adba34821c1429802849/"
_AFRIMED_QA = f"{_RAW}/intron-innovation/AfriMed-QA/9bb0ffc03ef41a0568c3f47223a23997922afb52/"
_METAMEDQA = f"{_HUB}/maximegmd/MetaMedQA/resolve/29a264deec301d57823fdb2558b085f01e6b71f5/"
_LONGHEALTH = f"{_RAW}/kbressem/LongHealth/main/"

PUBLISHED = {
    "medxpertqa": ("Text/test.jsonl", _MEDXPERTQA),
    "careqa:en": ("CareQA_en.json", _CAREQA),
    "careqa:es": ("CareQA_es.json", _CAREQA),
    "afrimed_qa": ("data/afri_med_qa_15k_v2.5_phase_2_15275.csv", _AFRIMED_QA),
    "metamedqa": ("data/test-00000-of-00001.parquet", _METAMEDQA),
    "longhealth": ("data/benchmark_v5.json", _LONGHEALTH),
}
"""Form (and which of its files) -> the path under the scenario's folder, and what its address begins with. The same
stands in `data/sources.yml` for `data pull`; a test compares them."""


@dataclass
class ChoiceFile:
    """The questions of a file, what is wrong with it, and how many rows are none of the benchmark's questions."""

    questions: list[ChoiceQuestion] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: int = 0

    def of_tier(self, tier: str) -> list[ChoiceQuestion]:
        """Those that experts or the crowd wrote, where the form says it."""
        return [one for one in self.questions if tier in (EVERY_TIER, one.groups.get("tier", tier))]


def read_choice_file(path: Path, form: str) -> ChoiceFile:
    """All questions, and every mistake with its place: `row 3, column label: is empty`.

    Raises:
        OSError: it cannot be read.
    """
    found, known = ChoiceFile(), FORMS[form]
    try:
        for where, row in _rows(path, known):
            missing = [name for name in known.columns if name not in row]
            if missing and not found.questions and not found.problems and not found.left_out:
                there = ", ".join(map(str, row)) or "none"
                found.problems.append(f"{where}: has no column {', '.join(missing)}; it has {there}")
                break
            _add_row(found, known, where, row)
    except UnicodeDecodeError:
        found.problems += [problem.removeprefix(f"{path}: ") for problem in not_utf8(path).problems]
    except (ValueError, RecursionError, csv.Error) as error:
        found.problems.append(f"is not of the published form: {error}")
    if not found.questions and not found.problems:
        found.problems.append("has no question")
    found.questions = _named_apart(found.questions)
    return found


def _add_row(found: ChoiceFile, form: PublishedForm, where: str, row: Row) -> None:
    try:
        question = form.convert(row)
    except RowFaultError as fault:
        found.problems.append(f"{where}, {fault}")
        return
    if question is None:
        found.left_out += 1
    else:
        found.questions.append(question if question.id else replace(question, id=where.replace(" ", "-")))


def _named_apart(questions: list[ChoiceQuestion]) -> list[ChoiceQuestion]:
    """HELM knows an instance by its id: what comes again under the same gets a number."""
    times: dict[str, int] = {}
    found = []
    for one in questions:
        times[one.id] = times.get(one.id, 0) + 1
        found.append(one if times[one.id] == 1 else replace(one, id=f"{one.id}-{times[one.id]}"))
    return found


def _rows(path: Path, form: PublishedForm) -> Iterator[tuple[str, Row]]:
    """Where a row stands, as a user would look for it, and the row."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _parquet_rows(path)
    if kind == ".csv":
        return _csv_rows(path)
    if form.name == "longhealth":
        return _patient_rows(_json(path.read_text(encoding="utf-8-sig"), "it"))
    return _json_rows(path)


def _parquet_rows(path: Path) -> Iterator[tuple[str, Row]]:
    import pyarrow.parquet

    number = 0
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
        for row in batch.to_pylist():
            number += 1
            yield f"row {number}", row


def _csv_rows(path: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(LONGEST_CELL)
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=1):
            yield f"row {number}", {name: cell for name, cell in row.items() if name is not None}


def _json_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """A list of objects, or an object a line."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        for number, row in enumerate(_json(text, "it"), start=1):
            yield f"row {number}", _object(row, f"row {number}")
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", _object(_json(line, f"line {number}"), f"line {number}")


def _patient_rows(patients: Any) -> Iterator[tuple[str, Row]]:
    """LongHealth's file is an object: patient -> documents and questions."""
    for name, patient in _object(patients, "it").items():
        if not isinstance(patient, Mapping):
            continue  # the canary string
        questions = patient.get("questions")
        if not isinstance(questions, list):
            raise ValueError(f"{name}: questions must be a list")
        for number, question in enumerate(questions, start=1):
            where = f"{name} question {number}"
            yield where, {"patient": name, "texts": patient.get("texts"), **_object(question, where)}


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a JSON object")
    return value


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON ({error.msg}, line {error.lineno})") from None
