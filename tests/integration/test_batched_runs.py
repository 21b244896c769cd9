"""Runs whose requests go by batch, through the real helm-run.

All is as without batches, but cost and times.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from batch_endpoint import BatchEndpoint
from program_runs import CANARY, PROGRAM, TIMEOUT_S, Run, program_environment, wait_until
from rubric_endpoint import RubricEndpoint, said

QUESTIONS = 6
TIMES_AND_COST = ("latency_s", "latency_p50_s", "latency_p95_s", "wall_s", "cost")
AGAIN = {"repeats": 2, "pushback": 1, "chance_questions": 2}
PRICE = {"model_id": "test/model", "input_per_million": 1000, "output_per_million": 1000}
BY_BATCH = ("--overrides", "target.api_endpoint.batch=true")


class BatchedRubric(BatchEndpoint, RubricEndpoint):
    """The model and its judge, by batch and one by one."""


def lettered(prompt: str) -> str:
    return "A" if len(prompt) % 3 else "B"


def scored(folder: Path) -> tuple[Any, list[Any]]:
    """The scores, the counts of requests and the answers of a result."""
    document = yaml.safe_load((folder / "evaluation_config.yaml").read_text("utf-8"))
    answers = []
    for line in (folder / "results.jsonl").read_text("utf-8").splitlines():
        answers.append(but_times_and_cost(json.loads(line)))
    return (document["results"], but_times_and_cost(document["usage"])), answers


def but_times_and_cost(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in record if name not in TIMES_AND_COST}


def cost_of(folder: Path) -> float:
    document = yaml.safe_load((folder / "evaluation_config.yaml").read_text("utf-8"))
    usage = document["usage"]
    cost: float = usage.get("all_runs", usage)["cost"]["value"]
    return cost


def test_a_run_by_batch_is_what_it_is_without(tmp_path: Path, run_program: Run) -> None:
    params = {
        "limit_samples": QUESTIONS,
        "extra": {**AGAIN, "prices": [{**PRICE, "batch_discount": 0.5}]},
    }
    folders = []
    for number, overrides in enumerate(((), BY_BATCH)):
        with BatchEndpoint(lettered) as endpoint:
            outcome = run_program(
                "sample_medical_qa",
                endpoint.url,
                *overrides,
                params=params,
                output_dir=tmp_path / str(number),
            )
            assert outcome.returncode == 0, outcome.stderr
            folders.append(outcome.output_dir)
    assert endpoint.single == 0
    assert Counter(endpoint.sent_lines).most_common(1)[0][1] == 1
    assert len(endpoint.batches) == 2, "what follows on answers is a batch of its own"
    assert scored(folders[1]) == scored(folders[0])
    assert cost_of(folders[1]) == pytest.approx(cost_of(folders[0]) / 2, abs=1e-3)
    for file in folders[1].rglob("*"):
        assert file.is_dir() or CANARY.encode() not in file.read_bytes(), file


def test_a_judge_goes_by_batch_by_itself_and_what_is_left_one_by_one(
    tmp_path: Path, run_program: Run
) -> None:
    row = {"criterion_text": "good", "points": 8}
    rows = [
        {
            "id": f"p{number}",
            "conversation": {"messages": [{"role": "user", "content": f"question {number}"}]},
            "rubric_items": [row, {"criterion_text": "harm", "points": -4}],
            "use_case": "consult",
            "physician_response": "",
        }
        for number in range(4)
    ]
    file = tmp_path / "professional.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = {"name": "gpt", "model_id": "judge/one", "batch": "fallback"}
    with BatchedRubric(
        lambda messages: messages[-1]["content"],
        lambda _model, conversation, criterion: said(
            (len(conversation) % 2 == 0) == (criterion == "good")
        ),
    ) as endpoint:
        endpoint.ends = ["expired"]
        price = {"input_per_million": 1000, "output_per_million": 1000, "batch_discount": 0.5}
        prices = [{"model_id": "judge/one", **price}]
        extra = {"data_path": str(file), "judges": [judge], "prices": prices}
        outcome = run_program("healthbench_professional", endpoint.url, params={"extra": extra})
        assert outcome.returncode == 0, outcome.stderr
    (batch,) = endpoint.batches.values()
    asked = len(batch.lines)
    assert asked >= 2 * len(rows)
    assert endpoint.single == len(rows) + asked - asked // 2
    document = outcome.document()
    spent = document["usage"]["all_runs"]["roles"]["gpt"]
    usual = (spent["prompt_tokens"] + spent["completion_tokens"]) / 1000
    assert spent["cost"]["value"] == pytest.approx(0.75 * usual), "half of it went by batch"
    assert spent["cost"]["priced_requests"] == asked
    assert document["validity"]["coverage"] == 1.0
    assert document["validity"]["judges"]["gpt"]["failed"] == 0


def test_a_killed_run_takes_up_its_batch(tmp_path: Path) -> None:
    with BatchEndpoint(lettered) as endpoint:
        endpoint.polls_needed = 10**9
        argv = [
            *PROGRAM,
            "run_eval",
            "--eval_type",
            "sample_medical_qa",
            "--output_dir",
            str(tmp_path / "out"),
            "--model_url",
            endpoint.url,
            "--model_id",
            "test/model",
            "--api_key_name",
            "K",
            "--limit",
            str(QUESTIONS),
            *BY_BATCH,
        ]
        env = program_environment(K=CANARY)
        process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, text=True)
        wait_until(lambda: any(batch.polls for batch in endpoint.batches.values()), TIMEOUT_S)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
        (batch,) = endpoint.batches.values()
        seen = batch.polls
        wait_until(lambda: batch.polls > seen, TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130
        assert "--cancel_batches" in stderr
        endpoint.polls_needed = 0
        finished = subprocess.run(
            argv, env=env, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        assert finished.returncode == 0, finished.stderr
        assert len(endpoint.batches) == 1
        assert endpoint.single == 0
