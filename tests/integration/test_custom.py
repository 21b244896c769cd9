"""A user's own benchmark through the real helm-run."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.demo.example import write_example
from facts import says
from jury_endpoint import judgement
from program_runs import Outcome, Run
from program_runs import program as program
from scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def example(tmp_path: Path) -> Path:
    write_example(tmp_path / "mine", "choice")
    return tmp_path / "mine"


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "data.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines_of(outcome: Outcome, name: str = "results.jsonl") -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (outcome.output_dir / name).read_text("utf-8").splitlines()
    ]


def benchmark(folder: Path) -> dict[str, Any]:
    return {"extra": {"benchmark": str(folder / "benchmark.yaml")}}


def filled(folder: Path, data: str, prompt: str = "{question}") -> None:
    (folder / "prompt.txt").write_text(prompt, encoding="utf-8")
    (folder / "data.csv").write_text(data, encoding="utf-8")


def test_the_example_runs_at_once_and_is_not_run_again(tmp_path: Path) -> None:
    example = tmp_path / "mine"
    assert program("new-benchmark", "mine", cwd=tmp_path).returncode == 0
    refused = program("new_benchmark", "mine", cwd=tmp_path)
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
    finished = program("run_eval", "--run_config", "mine/run_config.yml", cwd=example.parent)
    assert finished.returncode == 0, finished.stderr
    outcome = Outcome(
        0, finished.stdout, finished.stderr, example.parent / "results" / "my_medical_questions"
    )
    document = outcome.document()
    # Its rule: the letter of the longest option.
    longest = [
        max("ABCD", key=lambda letter: len(row[f"option_{letter.lower()}"]))
        for row in rows_of(example)
    ]
    right = sum(
        letter == row["correct_answer"]
        for letter, row in zip(longest, rows_of(example), strict=True)
    )
    assert right == 3
    assert outcome.scores()["exact_match"] == right / 8
    assert list(document["results"]["tasks"]) == ["custom.my_medical_questions"]
    assert document["main_metric"] == "exact_match"
    files = document["provenance"]["dataset_files"]
    assert set(files) == {"benchmark.yaml", "prompt.txt", "data.csv"}
    assert files["data.csv"] == hashlib.sha256((example / "data.csv").read_bytes()).hexdigest()
    assert (outcome.output_dir / "report.html").is_file()

    again = program("run_eval", "--run_config", "mine/run_config.yml", cwd=example.parent)
    assert "complete already" in again.stderr
    data = (example / "data.csv").read_text("utf-8")
    (example / "data.csv").write_text(data.replace(",B,", ",A,", 1), encoding="utf-8")
    changed = program("run_eval", "--run_config", "mine/run_config.yml", cwd=example.parent)
    assert changed.returncode == 2, "row 2's incorrect answers hold A, too"
    says(changed.stderr, "row 2 (line 3)", "column incorrect_answers", "correct_answer")
    (example / "data.csv").write_text(data.replace("scurvy", "manifest scurvy"), encoding="utf-8")
    changed = program("run_eval", "--run_config", "mine/run_config.yml", cwd=example.parent)
    assert changed.returncode == 0, changed.stderr
    says(changed.stdout, "1 sent", "7 from the cache")
    assert outcome.document()["provenance"]["dataset_files"]["data.csv"] != files["data.csv"]


def test_cells_are_texts(example: Path, run_program: Run) -> None:
    """pandas would make 7.0, nothing, 1.1 and True of these, and HELM would fail at the first of them."""
    cells = ["007", "None", "1.10", "TRUE", "NA", "ü"]
    rows = "".join(f"{cell},{'' if number else 3},{cell}\n" for number, cell in enumerate(cells))
    filled(example, "question,note,correct_answer\n" + rows, "Repeat: {question} ({note})\n")
    with ScriptedEndpoint(
        lambda prompt: prompt.split(" ")[1] if " " in prompt else "pong"
    ) as endpoint:
        outcome = run_program("custom", endpoint.url, params=benchmark(example))
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["exact_match"] == 1.0
    prompts = [line["prompt"].strip() for line in lines_of(outcome, "instances.jsonl")]
    assert prompts == ["Repeat: 007 (3)", *(f"Repeat: {cell} ()" for cell in cells[1:])]


def test_the_run_asks_what_the_check_read(example: Path, run_program: Run) -> None:
    """Line ends of all three kinds, quotes, blank lines; pandas makes a row of the empty line that a lone CR ends."""
    (example / "prompt.txt").write_text("{question}|{note}|", encoding="utf-8")
    data = 'id,question,note,correct_answer\r../x,"a ""b"", c", d ,B\r\n\r\nid0,"one\r\ntwo\rthree\nfour",e"f,B\n\r \t7,NA,,B'
    (example / "data.csv").write_bytes(data.encode("utf-8-sig"))
    with ScriptedEndpoint(lambda _prompt: "B") as endpoint:
        outcome = run_program("custom", endpoint.url, params=benchmark(example))
    assert outcome.returncode == 0, outcome.stderr
    asked = {
        line["id"]: line["prompt"].rstrip("\n") for line in lines_of(outcome, "instances.jsonl")
    }
    assert asked == {"../x": 'a "b", c| d |', "id0": 'one\r\ntwo\rthree\nfour|e"f|', " \t7": "NA||"}
    assert {line["id"] for line in lines_of(outcome)} == set(asked)


def test_a_dry_run_notes_what_the_run_notes(example: Path, run_program: Run) -> None:
    filled(example, "question,correct_answer\nx,A\nx,B\n")
    with ScriptedEndpoint(lambda _prompt: "C") as endpoint:
        looked = run_program("custom", endpoint.url, "--dry_run", params=benchmark(example))
        outcome = run_program("custom", endpoint.url, params=benchmark(example))
    assert (looked.returncode, outcome.returncode) == (0, 0), looked.stderr + outcome.stderr
    notes = outcome.document()["validity"]["notes"]
    same, quasi, repeated = (
        note for note in notes if "data.csv" in note or "repeat the question" in note
    )
    says(same, "1 of 2 rows", "data.csv", "row 2 as 1")
    says(quasi, "1 of 2 rows", "data.csv (first: row", "quasi metrics")
    says(repeated, "1 of 2 instances", "repeat the question", "another gold answer")
    assert outcome.scores()["quasi_prefix_exact_match"] == 0.5, "that is why"
    assert f"\n# notes\n#   {same}\n#   {quasi}\n\n# keys\n" in looked.stdout


def test_the_jury_example_runs_at_once_and_judges_without_right_answers(
    tmp_path: Path, run_program: Run
) -> None:
    example = tmp_path / "mine"
    assert program("new_benchmark", "--jury", "mine", cwd=tmp_path).returncode == 0
    finished = program("run_eval", "--run_config", "mine/run_config.yml", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "custom.my_patient_questions: jury_score = 3.0000" in finished.stdout
    says(finished.stdout, "gpt 3.00", "llama 3.00", "claude 3.00")

    prompt = (example / "judge_prompt.txt").read_text("utf-8").replace("{GOLD_RESPONSE}", "none")
    (example / "judge_prompt.txt").write_text(prompt, encoding="utf-8")
    questions = "".join(f"Is drug {number} safe?\n" for number in range(3))
    (example / "data.csv").write_text("question\n" + questions, encoding="utf-8")
    with ScriptedEndpoint(
        lambda prompt: judgement(prompt, 4) if "Output Format:" in prompt else "Yes."
    ) as endpoint:
        outcome = run_program("custom", endpoint.url, params=benchmark(example))
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["jury_score"] == 4.0
    assert set(outcome.document()["validity"]["judges"]) == {"gpt", "llama", "claude"}
