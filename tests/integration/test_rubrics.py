"""Rubric benchmarks through the real helm-run, with judges that are asked criterion by criterion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration.rubric_endpoint import RubricEndpoint, said
from integration.support import Outcome, Run

JUDGE = {"name": "gpt", "model_id": "judge/one", "parallelism": 16}
PUBLISHED_MEAN = 0.464711707748
"""Of the 50 conversations, computed by another implementation from the same decisions, of scores with ten digits."""


def results_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()]


def text_of_logs(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in (folder / "logs").iterdir())


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.medical_data
def test_healthbench_is_scored_as_published(medical_data: Path, run_program: Run) -> None:
    data = medical_data / "healthbench" / "healthbench_50.jsonl"
    if not data.is_file():
        pytest.skip(f"needs {data}: 50 conversations of HealthBench with answers and decisions")
    cases = lines(data)
    recorded = {one["prompt_id"]: one for one in lines(data.parent / "answers_50.jsonl")}
    answers, decisions = {}, {}
    for case in cases:
        told = recorded[case["prompt_id"]]
        answers[json.dumps(case["prompt"])] = told["answer"]
        turns = [*case["prompt"], {"role": "assistant", "content": told["answer"]}]
        conversation = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
        for one, met in zip(case["rubrics"], told["criteria_met"], strict=True):
            decisions[conversation, one["criterion"]] = met

    with RubricEndpoint(
        lambda messages: answers[json.dumps([{"content": one["content"], "role": one["role"]} for one in messages])],
        lambda _model, conversation, criterion: said(decisions[conversation, criterion]),
    ) as endpoint:
        extra = {"data_path": str(data), "judges": [JUDGE]}
        outcome = run_program("healthbench", endpoint.url, params={"extra": extra, "parallelism": 16})
        assert outcome.returncode == 0, outcome.stderr
        different = {(case["prompt_id"], one["criterion"], one["points"]) for case in cases for one in case["rubrics"]}
        assert endpoint.judged == len(different), "each is asked apart, and once"
        assert len(endpoint.conversations) == len(cases)
        assert max(endpoint.asked.values()) == 1

    assert outcome.scores()["healthbench_score"] == pytest.approx(PUBLISHED_MEAN, abs=1e-10)
    scored = {line["id"]: line["metrics"]["healthbench_score"] for line in results_of(outcome)}
    assert {name: round(score, 9) for name, score in scored.items()} == {
        name: round(one["score"], 9) for name, one in recorded.items()
    }
    document = outcome.document()
    groups = document["results"]["groups"]["healthbench"]["groups"]
    assert {"accuracy", "completeness"} <= set(groups["axis"]["groups"])
    assert "theme" in groups
    assert document["provenance"]["dataset_files"]["data_path"]
    canary = cases[0]["canary"]
    assert canary in (outcome.output_dir / "instances.jsonl").read_text("utf-8")
    assert canary not in text_of_logs(outcome.output_dir)
