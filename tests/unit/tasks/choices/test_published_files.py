from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.data.sources import load_sources
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.published_choices import EVERY_TIER, FORMS, PUBLISHED, read_choice_file
from published_rows import (
    afrimed_row,
    careqa_row,
    longhealth_patients,
    medxpertqa_row,
    metamedqa_row,
    write_csv,
    write_json,
    write_json_lines,
    write_parquet,
)


def test_a_run_downloads_what_data_pull_pulls() -> None:
    sources = load_sources()
    files = [file for task in sources.tasks.values() for file in task.files if file.form]
    pulled = {(file.form, file.path, sources.url(file.url)) for file in files}
    assert pulled == {(name.partition(":")[0], path, f"{where}{path}") for name, (path, where) in PUBLISHED.items()}
    assert {file.form for file in files} == set(FORMS)


def test_the_layout_of_a_users_own_file_is_the_published_form() -> None:
    found = {}
    for task in load_framework().evaluations:
        rule = task.helm.parameters.get("data_path")
        for entry in rule.layout if rule else ():
            if entry.format in FORMS:
                found[entry.format] = entry.columns
    assert set(found) == set(FORMS)
    told = {name: columns for name, columns in found.items() if name != "longhealth"}  # an object, no table
    assert told == {name: FORMS[name].columns for name in told}


def test_json_lines_and_a_list_are_read_alike(tmp_path: Path) -> None:
    rows = [careqa_row(number) for number in range(3)]
    lines = read_choice_file(write_json_lines(tmp_path / "a.json", rows), "careqa")
    listed = read_choice_file(write_json(tmp_path / "b.json", rows), "careqa")
    marked = tmp_path / "c.json"
    marked.write_text("\ufeff\n" + json.dumps(rows), "utf-8")
    assert lines.questions == listed.questions == read_choice_file(marked, "careqa").questions
    assert [one.letter for one in lines.questions] == ["A", "B", "C"]
    assert not lines.problems


def test_parquet(tmp_path: Path) -> None:
    found = read_choice_file(write_parquet(tmp_path / "a.parquet", [metamedqa_row(n) for n in (4, 5)]), "metamedqa")
    assert [(one.id, one.letter) for one in found.questions] == [("row-1", "E"), ("row-2", "F")]


def test_csv_and_whose_questions_they_are(tmp_path: Path) -> None:
    rows = [
        afrimed_row(2), afrimed_row(3, tier="crowdsourced"), afrimed_row(4, question_type="saq"),
        afrimed_row(6, correct_answer="option1,option3"),
    ]  # fmt: skip
    found = read_choice_file(write_csv(tmp_path / "a.csv", rows), "afrimed_qa")
    assert (found.problems, found.left_out) == ([], 2)
    assert [one.id for one in found.questions] == ["s2", "s3"]
    assert [one.id for one in found.of_tier("expert")] == ["s2"]
    assert [one.id for one in found.of_tier("crowdsourced")] == ["s3"]
    assert found.of_tier(EVERY_TIER) == found.questions


def test_patients_and_their_questions(tmp_path: Path) -> None:
    found = read_choice_file(write_json(tmp_path / "a.json", longhealth_patients(2, 3)), "longhealth")
    assert [one.id for one in found.questions] == [f"patient_0{p}-{n}" for p in (1, 2) for n in range(3)]
    assert {one.cluster for one in found.questions} == {("patient", "patient_01"), ("patient", "patient_02")}
    assert not found.problems


def test_names_that_come_again_get_a_number(tmp_path: Path) -> None:
    rows = [medxpertqa_row(1), medxpertqa_row(1), medxpertqa_row(2), medxpertqa_row(1)]
    found = read_choice_file(write_json_lines(tmp_path / "a.jsonl", rows), "medxpertqa")
    assert [one.id for one in found.questions] == ["Text-1", "Text-1-2", "Text-2", "Text-1-3"]


def test_each_mistake_is_told_with_its_row_and_column(tmp_path: Path) -> None:
    rows = [medxpertqa_row(1), {**medxpertqa_row(2), "label": "K"}, {**medxpertqa_row(3), "question": ""}]
    found = read_choice_file(write_json_lines(tmp_path / "a.jsonl", rows), "medxpertqa")
    assert found.problems == [
        "line 2, column label: must be one of A, B, C, D, E, F, G, H, I, J",
        "line 3, column question: is empty",
    ]
    patients = longhealth_patients()
    patients["patient_02"]["questions"][1]["correct"] = "secret"
    (problem,) = read_choice_file(write_json(tmp_path / "b.json", patients), "longhealth").problems
    assert problem.startswith("patient_02 question 2, column correct: must be one of answer_a")
    assert "secret" not in problem


OTHER = "is not of the published form"


@pytest.mark.parametrize(
    ("form", "content", "problem"),
    [
        ("medxpertqa", '{"id": "1", "question": "q"}\n{', "line 1: has no column options, label; it has id, question"),
        ("medxpertqa", "{}", "line 1: has no column id, question, options, label; it has none"),
        ("medxpertqa", "[3]", f"{OTHER}: row 1 must be a JSON object"),
        ("medxpertqa", "{", f"{OTHER}: line 1 is not JSON"),
        ("medxpertqa", "[{", f"{OTHER}: it is not JSON"),
        ("medxpertqa", "", "has no question"),
        ("medxpertqa", "[" * 100_000, OTHER),
        ("metamedqa", "no", f"{OTHER}: "),
        ("longhealth", "[]", f"{OTHER}: it must be a JSON object"),
        ("longhealth", '{"patient_01": {"texts": {}}}', f"{OTHER}: patient_01: questions must be a list"),
        ("longhealth", '{"patient_01": {"texts": {}, "questions": [1]}}', f"{OTHER}: patient_01 question 1 must be a JSON object"),
        ("afrimed_qa", b"sample_id\n\xe9\n", "line 2: is not UTF-8"),
    ],
)  # fmt: skip
def test_files_of_another_form(form: str, content: str | bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content if isinstance(content, bytes) else content.encode())
    (found,) = read_choice_file(tmp_path / "a", form).problems
    assert found.startswith(problem)
