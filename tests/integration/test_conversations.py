"""A custom benchmark of conversations, right answers and a jury, through the real helm-run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from eval_factory.workflows.verify import verify
from jury_endpoint import CANARIES, JUDGES, KIND, MODEL, JuryEndpoint
from program_runs import Run

JUDGE_PROMPT = """Rate {RESPONSE} to {QUESTION}; right is {GOLD_RESPONSE}.
<rubric_criteria>
{"accuracy": ["score", "explanation"]}
</rubric_criteria>
Output Format:
{"accuracy": {"score": 1, "explanation": "..."}}
"""
ROWS: list[dict[str, Any]] = [
    {
        "id": f"q{number}",
        "messages": [
            {"role": "system", "content": "Answer with a letter."},
            {"role": "user", "content": f"Fever, case {number}?"},
            {"role": "assistant", "content": "Since when?"},
            {"role": "user", "content": f"For {number} days. A or B?"},
        ],
        "correct_answer": "AB"[number % 2],
        "cluster": f"note {number // 2}",
    }
    for number in range(4)
]


class Turns(JuryEndpoint):
    """Keeps the messages that the model was sent."""

    def __init__(self) -> None:
        super().__init__("B")
        self.odd_ways = ["good"]
        self.sent: list[list[dict[str, str]]] = []

    def answered(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if body["model"] == MODEL and len(body["messages"]) > 1:
            self.sent.append(body["messages"])
        return super().answered(path, headers, body)


def test_turns_stay_turns(tmp_path: Path, run_program: Run) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    (own / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    (own / "judge.txt").write_text(JUDGE_PROMPT, "utf-8")
    metrics = [{"name": "exact_match"}, {"name": "jury_score", "prompt_file": "judge.txt"}]
    shape = {
        "name": "turns",
        "description": "d",
        "dataset_file": "rows.jsonl",
        "max_tokens": 5,
        "metrics": metrics,
    }
    (own / "benchmark.yaml").write_text(yaml.safe_dump(shape), "utf-8")
    params = {"extra": {"benchmark": str(own / "benchmark.yaml"), "judges": JUDGES}}
    with Turns() as endpoint:
        outcome = run_program("custom", endpoint.url, params=params, env=CANARIES)
        assert outcome.returncode == 0, outcome.stderr
        assert sorted(endpoint.sent, key=json.dumps) == [row["messages"] for row in ROWS]
        asked = [prompt for model, prompt in endpoint.asked if model == KIND]
        assert sum("assistant: Since when?\n\nuser: For 3 days." in prompt for prompt in asked) == 1
    assert "judging: 12 requests" in outcome.stderr, "of three judges about four answers"
    scores = outcome.scores()
    assert scores["exact_match"] == 0.5
    assert 1 < scores["jury_score"] < 5
    stats = outcome.document()["results"]["tasks"]["custom.turns"]["metrics"]["score"]["scores"][
        "exact_match"
    ]["stats"]
    assert stats["clusters"] == 2
    instances = [
        json.loads(line)
        for line in (outcome.output_dir / "instances.jsonl").read_text("utf-8").splitlines()
    ]
    assert [one["turns"] for one in instances] == [row["messages"] for row in ROWS]
    assert verify(outcome.output_dir).findings == ()
    shutil.rmtree(own)
    assert verify(outcome.output_dir).findings == (), "the folder knows that its rows share sources"
