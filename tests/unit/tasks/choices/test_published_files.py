"""Published files, and each converter on invented rows of its form."""

from __future__ import annotations

import json
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from eval_factory.data.sources import load_sources
from eval_factory.tasks import published_forms
from eval_factory.tasks.choice_question import RowFaultError
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.published_choices import EVERY_TIER, questions_of_tier, read_choice_file
from eval_factory.tasks.published_forms import (
    PUBLISHED_FORMS,
    afrimed_question,
    medxpertqa_question,
)
from eval_factory.tasks.published_rows import unique_ids
from facts import each_says, says
from published_rows import (
    afrimed_row,
    careqa_row,
    longhealth_patients,
    m_arc_row,
    medconceptsqa_row,
    medexqa_row,
    medxpertqa_row,
    metamedqa_row,
    slake_rows,
    write_csv,
    write_json,
    write_json_lines,
    write_parquet,
    write_tsv,
)


def test_each_form_is_published_somewhere() -> None:
    files = list(chain.from_iterable(task.files for task in load_sources().tasks.values()))
    assert {file.form for file in files} - {None} == set(PUBLISHED_FORMS)


def test_the_layout_of_a_users_own_file_is_the_published_form() -> None:
    found = {}
    for task in load_framework().evaluations:
        rule = task.helm.parameters.get("data_path")
        for entry in rule.layout if rule else ():
            if entry.format in PUBLISHED_FORMS:
                found[entry.format] = entry.columns
    assert set(found) == set(PUBLISHED_FORMS)
    # an object, no table
    told = {name: columns for name, columns in found.items() if name != "longhealth"}
    assert told == {name: PUBLISHED_FORMS[name].columns for name in told}


def test_json_lines_a_list_and_parquet_are_read_alike(tmp_path: Path) -> None:
    rows = [careqa_row(number) for number in range(3)]
    lines = read_choice_file(write_json_lines(tmp_path / "a.json", rows), "careqa")
    listed = read_choice_file(write_json(tmp_path / "b.json", rows), "careqa")
    marked = tmp_path / "c.json"
    marked.write_text("\ufeff\n" + json.dumps(rows), "utf-8")
    assert lines.rows == listed.rows == read_choice_file(marked, "careqa").rows
    assert ([one.right for one in lines.rows], lines.problems) == ([0, 1, 2], [])
    found = read_choice_file(
        write_parquet(tmp_path / "a.parquet", [metamedqa_row(n) for n in (4, 5)]), "metamedqa"
    )
    assert [(one.id, one.right) for one in found.rows] == [("row-1", 4), ("row-2", 5)]


def test_csv_and_whose_questions_they_are(tmp_path: Path) -> None:
    rows = [
        afrimed_row(2),
        afrimed_row(3, tier="crowdsourced"),
        afrimed_row(4, question_type="saq"),
        afrimed_row(6, correct_answer="option1,option3"),
    ]
    found = read_choice_file(write_csv(tmp_path / "a.csv", rows), "afrimed_qa")
    assert (found.problems, found.left_out) == ([], 2)
    assert [one.id for one in found.rows] == ["s2", "s3"]
    assert [one.id for one in questions_of_tier(found.rows, "expert")] == ["s2"]
    assert [one.id for one in questions_of_tier(found.rows, "crowdsourced")] == ["s3"]
    assert questions_of_tier(found.rows, EVERY_TIER) == found.rows


def test_patients_and_their_questions(tmp_path: Path) -> None:
    found = read_choice_file(
        write_json(tmp_path / "a.json", longhealth_patients(2, 3)), "longhealth"
    )
    assert [one.id for one in found.rows] == [
        f"patient_0{p}-{n}" for p, n in product((1, 2), range(3))
    ]
    assert {one.cluster for one in found.rows} == {
        ("patient", "patient_01"),
        ("patient", "patient_02"),
    }
    assert not found.problems


def test_names_that_come_again_get_a_number(tmp_path: Path) -> None:
    rows = [medxpertqa_row(1), medxpertqa_row(1), medxpertqa_row(2), medxpertqa_row(1)]
    found = read_choice_file(write_json_lines(tmp_path / "a.jsonl", rows), "medxpertqa")
    assert [one.id for one in found.rows] == ["Text-1", "Text-1-2", "Text-2", "Text-1-3"]


@pytest.mark.parametrize(
    ("ids", "own"),
    [
        (["x", "y", "x", "x"], ["x", "y", "x-2", "x-3"]),
        (["x", "x", "x-2"], ["x", "x-3", "x-2"]),
        (["x-2", "x", "x", "x-2"], ["x-2", "x", "x-3", "x-2-2"]),
    ],
)
def test_no_two_instances_have_one_id(ids: list[str], own: list[str]) -> None:
    assert unique_ids(ids) == own


def test_each_mistake_is_told_with_its_row_and_column(tmp_path: Path) -> None:
    rows = [
        medxpertqa_row(1),
        {**medxpertqa_row(2), "label": "K"},
        {**medxpertqa_row(3), "question": ""},
    ]
    found = read_choice_file(write_json_lines(tmp_path / "a.jsonl", rows), "medxpertqa")
    each_says(
        found.problems,
        ["line 2", "column label", "A, B, C, D"],
        ["line 3", "column question", "is empty"],
    )
    patients = longhealth_patients()
    patients["patient_02"]["questions"][1]["correct"] = "secret"
    (problem,) = read_choice_file(write_json(tmp_path / "b.json", patients), "longhealth").problems
    says(problem, "patient_02 question 2", "column correct", "answer_a")
    assert "secret" not in problem


OTHER = "is not of the published form"


@pytest.mark.parametrize(
    ("form", "content", "problem"),
    [
        (
            "medxpertqa",
            '{"id": "1", "question": "q"}\n{',
            "line 1: has no column options, label; it has id, question",
        ),
        ("medxpertqa", "{}", "line 1: has no column id, question, options, label; it has none"),
        ("medxpertqa", "[3]", f"{OTHER}: row 1 must be a JSON object"),
        ("medxpertqa", "{", f"{OTHER}: line 1 is not JSON"),
        ("medxpertqa", "[{", f"{OTHER}: it is not JSON"),
        ("medxpertqa", "", "has no question"),
        ("medxpertqa", "[" * 100_000, OTHER),
        ("metamedqa", "no", f"{OTHER}: "),
        ("longhealth", "[]", f"{OTHER}: it must be a JSON object"),
        (
            "longhealth",
            '{"patient_01": {"texts": {}}}',
            f"{OTHER}: patient_01: questions must be a list",
        ),
        (
            "longhealth",
            '{"patient_01": {"texts": {}, "questions": [1]}}',
            f"{OTHER}: patient_01 question 1 must be a JSON object",
        ),
        ("afrimed_qa", b"sample_id\n\xe9\n", "line 2: is not UTF-8"),
    ],
)
def test_files_of_another_form(
    form: str, content: str | bytes, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(content if isinstance(content, bytes) else content.encode())
    (found,) = read_choice_file(tmp_path / "a", form).problems
    assert found.startswith(problem)


def test_medxpertqa() -> None:
    found = medxpertqa_question(medxpertqa_row(9))
    assert (found.id, found.question, found.right) == ("Text-9", "What is right in case 9?", 9)
    assert found.choices == tuple(f"Choice {letter}9" for letter in "ABCDEFGHIJ")
    assert found.groups == {
        "medical_task": "Diagnosis",
        "body_system": "Nervous",
        "question_type": "Reasoning",
    }
    assert found.cluster is None
    question = "Which?\n\nAnswer Choices:\n(A) a  x\n(B) b "  # known however they are spaced
    row = {"id": "1", "question": question, "options": {"A": "a x", "B": "b"}, "label": "A"}
    assert medxpertqa_question(row).question == "Which?"


@pytest.mark.parametrize(
    "question",
    [
        "Which? Answer Choices: (A) other (B) ones",
        "Which of the Answer Choices: none repeated",
        "Answer Choices: (A) a (B) b",
        "Which? Answer Choices: (A) a (B) b (C) c",
    ],
)
def test_what_is_not_the_choices_stays_in_the_question(question: str) -> None:
    row = {**medxpertqa_row(0), "question": question, "options": {"A": "a", "B": "b"}, "label": "B"}
    assert medxpertqa_question(row).question == question


def test_careqa() -> None:
    found = published_forms.careqa_question(careqa_row(2))
    assert (found.id, found.question, found.right) == ("id-2", "What is right in case 2?", 2)
    assert found.choices == tuple(f"Choice {number} of 2" for number in (1, 2, 3, 4))
    assert found.groups == {"category": "Nursing", "year": "2024"}
    assert (
        published_forms.careqa_question({**careqa_row(2), "unique_id": None, "cop": "4"}).right == 3
    )
    assert published_forms.careqa_question({**careqa_row(2), "unique_id": None}).id == ""


def test_afrimed_qa() -> None:
    whole = afrimed_question(afrimed_row(4))
    two = afrimed_question(afrimed_row(3))
    assert whole is not None
    assert two is not None
    assert (whole.id, whole.question, whole.right, len(whole.choices)) == (
        "s4",
        "What is right in case 4?",
        4,
        5,
    )
    assert (two.choices, two.right) == (("Choice 1 of 3", "Choice 2 of 3"), 1)
    assert whole.groups == {"specialty": "Pediatrics", "country": "NG", "tier": "expert"}
    uncleaned = afrimed_question(afrimed_row(4, question_clean=""))
    assert uncleaned is not None
    assert uncleaned.question == "What is right in case  4?"


@pytest.mark.parametrize(
    "changed",
    [
        {"question_type": "saq", "correct_answer": ""},
        {"question_type": "consumer_queries", "answer_options": ""},
        {"correct_answer": "option1,option2"},
    ],
)
def test_rows_that_are_no_questions_with_one_right_choice(changed: dict[str, str]) -> None:
    assert afrimed_question(afrimed_row(4, **changed)) is None
    assert (
        afrimed_question(afrimed_row(4, correct_answer="option1, option1", question_type=" MCQ "))
        is not None
    )


def test_metamedqa() -> None:
    found = published_forms.metamedqa_question(metamedqa_row(5))
    assert (found.id, found.right) == ("", 5)
    assert found.choices[4:] == ("None of the above", "I don't know or cannot answer")
    assert found.groups == {"kind": "original", "meta_info": "step1"}


def test_medexqa(tmp_path: Path) -> None:
    """Quoted cells hold tabs and quotation marks."""
    quoted = medexqa_row(2)
    quoted[1] = 'a "b"\tc'
    rows = [quoted, [*medexqa_row(3)[:7], " d "]]
    file = write_tsv(tmp_path / "test/speech_pathologist_test.tsv", rows)
    found = read_choice_file(file, "medexqa")
    assert found.problems == []
    assert [(one.id, one.right, len(one.choices)) for one in found.rows] == [
        ("row-1", 2, 4),
        ("row-2", 3, 4),
    ]
    assert found.rows[0].choices[0] == 'a "b"\tc'
    assert found.rows[0].question == "What is right in case 2?"
    assert found.rows[0].groups == {"specialty": "speech_pathologist"}
    assert "Because" not in str(found.rows)
    (problem,) = read_choice_file(write_tsv(file, [rows[0], rows[1][:7]]), "medexqa").problems
    says(problem, "row 2", "7 columns", "8")


def test_m_arc() -> None:
    five = published_forms.m_arc_question(m_arc_row(3))
    six = published_forms.m_arc_question(m_arc_row(4))
    assert (five.id, five.right, len(five.choices)) == ("ID003", 3, 5)
    assert (six.right, len(six.choices)) == (4, 6), "the seventh is N/A"
    assert five.groups == {"src": "neuro_icu"}
    row = m_arc_row(3)
    assert published_forms.m_arc_question({**row, "options": json.loads(row["options"])}) == five


def test_medconceptsqa() -> None:
    found = published_forms.medconceptsqa_question(medconceptsqa_row(5))
    assert found.question == "What is the description of the medical code X5.0 in ATC?"
    assert (found.id, found.right) == ("5", 1)
    assert found.choices == tuple(f"Choice {letter} 5" for letter in "ABCD")
    assert found.groups == {"vocab": "ATC", "level": "hard"}


def row_of_longhealth(**changed: Any) -> dict[str, Any]:
    patient = longhealth_patients()["patient_02"]
    return {
        "patient": "patient_02",
        "texts": patient["texts"],
        **patient["questions"][1],
        **changed,
    }


def test_longhealth() -> None:
    found = published_forms.longhealth_question(row_of_longhealth())
    assert (found.id, found.right, len(found.choices)) == ("patient_02-1", 1, 5)
    assert found.cluster == ("patient", "patient_02")
    assert found.extra_data() == {"patient": "patient_02"}
    lines = found.question.splitlines()
    assert lines[0] == "These are the documents of one patient."
    assert lines.index("First letter of patient 2.") < lines.index("Second letter of patient 2.")
    assert lines[lines.index("[Document 2]") + 1] == "Second letter of patient 2."
    assert lines[-1] == "What is right in case 21?"
    assert published_forms.longhealth_question(row_of_longhealth(No=None)).id == ""
    for written in (
        "CHOICE a 2.1",
        "Choice  a 2.1.",
        "Choice a 2.1",
    ):  # the right choice is known by its text
        assert published_forms.longhealth_question(row_of_longhealth(correct=written)).right == 0


ROWS: dict[str, dict[str, Any]] = {
    "medxpertqa": medxpertqa_row(1),
    "careqa": careqa_row(1),
    "afrimed_qa": dict(afrimed_row(4)),
    "metamedqa": metamedqa_row(1),
    "longhealth": row_of_longhealth(),
    "medexqa": dict(zip(PUBLISHED_FORMS["medexqa"].columns, medexqa_row(1), strict=True)),
    "m_arc": dict(m_arc_row(1)),
    "medconceptsqa": medconceptsqa_row(1),
    "medxpertqa_mm": {**medxpertqa_row(1), "images": ["a.png"]},
    "slake": slake_rows(1, "red")[0],
    "path_vqa": {"image": {"bytes": b""}, "question": "q", "answer": "a"},
}


@pytest.mark.parametrize(
    ("form", "changed", "message"),
    [
        *(
            ("careqa", {"cop": right}, "cop: must be one of 1, 2, 3, 4$")
            for right in (0, 5, None, True, "x")
        ),
        ("afrimed_qa", {"answer_options": "{"}, "answer_options: must be a JSON object"),
        ("afrimed_qa", {"answer_options": "[1]"}, "answer_options: must be a JSON object"),
        ("afrimed_qa", {"answer_options": ""}, "answer_options: is empty"),
        (
            "afrimed_qa",
            {"correct_answer": "option9"},
            "correct_answer: must be one of option1, option2, option3, option4, option5",
        ),
        ("afrimed_qa", {"correct_answer": ""}, "correct_answer: is empty"),
        ("afrimed_qa", {"correct_answer": ","}, "correct_answer: must be one of"),
        (
            "afrimed_qa",
            {"answer_options": json.dumps({"option1": "n/a ", "option2": "x"})},
            "answer_options: must hold 2 to 26",
        ),
        ("afrimed_qa", {"sample_id": ""}, "sample_id: is empty"),
        (
            "longhealth",
            {"correct": "Something else"},
            "correct: must be one of answer_a, answer_b, answer_c, answer_d, answer_e",
        ),
        ("medexqa", {"answer": "E"}, "answer: must be one of A, B, C, D$"),
        ("medexqa", {"C": " ", "answer": "C"}, "answer: must be one of A, B, D$"),
        ("m_arc", {"options": "a, b"}, "options: must be a JSON list"),
        ("m_arc", {"options": '{"A": "b"}'}, "options: must be a JSON list"),
        ("m_arc", {"options": '["a", "N/A"]'}, "options: must hold 2 to 26"),
        ("m_arc", {"options": '["a", 1]'}, "options: each choice must be text"),
        ("m_arc", {"options": json.dumps(["a"] * 27)}, "options: must be a JSON list"),
        ("m_arc", {"answer": "F"}, "answer: must be one of A, B, C, D, E$"),
        ("medconceptsqa", {"answer_id": "E"}, "answer_id: must be one of A, B, C, D$"),
        (
            "medconceptsqa",
            {"option2": None, "answer_id": "B"},
            "answer_id: must be one of A, C, D$",
        ),
        ("longhealth", {"correct": None}, "correct: is empty"),
        ("longhealth", {"question": ""}, "question: is empty"),
        ("longhealth", {"answer_b": None}, "correct: must be one of answer_a, answer_c"),
        *(
            ("longhealth", {"texts": texts}, "texts: must be an object")
            for texts in ({}, ["x"], {"text_0": 1})
        ),
    ],
)
def test_questions_that_cannot_be_read(form: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RowFaultError, match=f"^column {message}"):
        PUBLISHED_FORMS[form].convert({**ROWS[form], **changed})


def test_every_form_names_the_columns_without_which_it_cannot_be_read() -> None:
    assert set(ROWS) == set(PUBLISHED_FORMS)
    for name, row in ROWS.items():
        form = PUBLISHED_FORMS[name]
        needed = {
            column: row[column]
            for column in row
            if column in form.columns or column[:7] == "answer_"
        }
        assert form.convert(needed)
