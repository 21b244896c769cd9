"""Published multiple-choice benchmarks through the real helm-run: ten choices, and questions that share documents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from eval_factory.data.importing import import_folder
from eval_factory.data.sources import load_sources
from facts import says
from program_runs import Run
from published_rows import longhealth_patients, medxpertqa_row, write_json, write_json_lines
from scripted_endpoint import ScriptedEndpoint


def test_ten_choices_and_fewer(run_program: Run, tmp_path: Path) -> None:
    """Questions 0 to 19 have ten choices, two more have four; a third of the answers are wrapped in words."""
    rows = [medxpertqa_row(number) for number in range(20)] + [
        medxpertqa_row(number, choices=4) for number in (20, 23)
    ]
    right = {row["id"].removeprefix("Text-"): row["label"] for row in rows}
    file = write_json_lines(tmp_path / "own" / "test.jsonl", rows)

    def answer(prompt: str) -> str:
        number = re.findall(r"case (\d+)\?", prompt)[-1]
        assert "Answer Choices" not in prompt
        assert f"\n{right[number]}. Choice {right[number]}{number}\n" in prompt
        return f"The answer is ({right[number]})." if int(number) % 3 == 0 else right[number]

    with ScriptedEndpoint(answer) as endpoint:
        extra = {"data_path": str(file), "max_unreadable": 1.0}
        outcome = run_program(
            "medxpertqa_text", endpoint.url, "--no_preflight", params={"extra": extra}
        )
    assert outcome.returncode == 0, outcome.stderr
    scores = outcome.scores()
    document = outcome.document()
    in_words = sum(number % 3 == 0 for number in [*range(20), 20, 23])
    assert scores["exact_match"] == pytest.approx(1 - in_words / 22)
    assert scores["exact_match.lenient"] == 1.0
    groups = document["results"]["groups"]["medxpertqa_text"]["groups"]
    assert set(groups["question_type"]["groups"]) == {"Reasoning", "Understanding"}
    lines = [
        json.loads(line)
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    ]
    assert {line["id"] for line in lines} == {row["id"] for row in rows}
    assert document["provenance"]["dataset_files"]["data_path"]
    assert "always J" in json.dumps(document["validity"])


def test_questions_to_the_documents_of_one_patient(run_program: Run, tmp_path: Path) -> None:
    """Imported as a bundle, and run without a network."""
    patients = longhealth_patients(patients=3, questions=4)
    write_json(
        tmp_path / "folder" / "scenarios" / "longhealth" / "data" / "benchmark_v5.json", patients
    )
    said: list[str] = []
    import_folder(tmp_path / "folder", tmp_path / "bundle", load_sources(), said.append)
    says(said, "longhealth: 12 questions", "benchmark_v5.json")

    def answer(prompt: str) -> str:
        patient, number = re.findall(r"case (\d)(\d)\?", prompt)[-1]
        assert f"Second letter of patient {patient}." in prompt
        return "ABCDE"[int(number) % 5] if patient == "1" else "A"

    flags = ("--no_preflight", "--offline", "--data_dir", str(tmp_path / "bundle"))
    with ScriptedEndpoint(answer) as endpoint:
        outcome = run_program("longhealth", endpoint.url, *flags)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["exact_match"] == pytest.approx((4 + 1 + 1) / 12)
    notes = outcome.document()["validity"]["notes"]
    says(notes, "12 instances", "3 sources (patient)")


@pytest.mark.parametrize("task", ["longhealth", "healthbench"])
def test_a_file_that_cannot_be_downloaded_is_named_with_its_place(
    task: str, run_program: Run
) -> None:
    outcome = run_program(task, "demo://baseline", env={"https_proxy": "http://127.0.0.1:9"})
    assert outcome.returncode == 3, outcome.stderr
    assert "could not be downloaded" in outcome.stderr
    assert f"put it yourself at {outcome.output_dir}/helm/scenarios/{task}/" in outcome.stderr
