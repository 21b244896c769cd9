"""The choices of each question in several orders, through the real helm-run."""

from __future__ import annotations

import csv
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from eval_factory.demo.example import PACKAGED_TABLES
from facts import says
from program_runs import Run
from scripted_endpoint import ScriptedEndpoint

QUESTIONS = 10
ORDERS = 3
MOVED = {"limit_samples": QUESTIONS, "extra": {"shuffle_choices": ORDERS}}


def right_texts() -> dict[str, str]:
    with (resources.files("eval_factory.demo") / PACKAGED_TABLES["sample_medical_qa"]).open(
        encoding="utf-8"
    ) as file:
        return {
            row["question"]: row[f"option_{row['correct_answer'].lower()}"]
            for row in csv.DictReader(file)
        }


def knows(prompt: str) -> str:
    """The letter that the right text has in this prompt."""
    question = re.findall(r"^Question: (.*)$", prompt, re.MULTILINE)[-1]
    (letter,) = re.findall(
        rf"^([A-D])\. {re.escape(right_texts()[question])}$", prompt, re.MULTILINE
    )
    return str(letter)


def test_a_model_that_knows_does_not_mind_the_order(run_program: Run) -> None:
    with ScriptedEndpoint(knows) as endpoint:
        outcome = run_program("sample_medical_qa", endpoint.url, params=MOVED)
        asked = [request["messages"][-1]["content"] for request in endpoint.requests]
    assert outcome.returncode == 0, outcome.stderr
    assert len(asked) == len(set(asked)) == QUESTIONS * ORDERS
    found: dict[str, Any] = outcome.document()["validity"]["choice_orders"]
    assert (found["orders"], found["questions"], found["kept"]) == (ORDERS, QUESTIONS, {})
    assert (found["changed"]["value"], found["right_in_all"]["value"]) == (0.0, 1.0)
    assert found["by_order"] == {"1": 1.0, "2": 1.0, "3": 1.0}
    assert sum(found["letters"].values()) == QUESTIONS * ORDERS
    assert outcome.scores()["exact_match.all_orders"] == 1.0
    lines = [
        json.loads(line)
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["perturbation"] for line in lines[:ORDERS]] == [
        None,
        "choice_order_2",
        "choice_order_3",
    ]
    assert all(line["metrics"]["exact_match"] == 1.0 for line in lines)


def test_one_that_always_says_a_changes_with_it_and_the_first_score_is_helms(
    run_program: Run, tmp_path: Path
) -> None:
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        few = {"limit_samples": QUESTIONS}
        folder = tmp_path / "plain"
        plain = run_program("sample_medical_qa", endpoint.url, params=few, output_dir=folder)
        outcome = run_program("sample_medical_qa", endpoint.url, params=MOVED)
    assert outcome.returncode == plain.returncode == 0, outcome.stderr
    scores = outcome.scores()
    found = outcome.document()["validity"]["choice_orders"]
    over_all = scores.pop("exact_match.all_orders")
    assert scores == plain.scores()
    assert over_all == pytest.approx(sum(found["by_order"].values()) / ORDERS)
    assert found["letters"] == {"A": QUESTIONS * ORDERS}
    # not 1: of three orders, all may have the same choice first
    assert found["changed"]["value"] > 0.8
    says(outcome.stdout, "order of the choices", "3 orders, 10 questions", "changes with it")
    assert "choice_orders" not in plain.document()["validity"]
