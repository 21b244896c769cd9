"""A custom jury benchmark with its own scale and criteria, through the real helm-run; its numbers by hand."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from facts import each_says
from integration.test_custom import program
from program_runs import Run
from scripted_endpoint import PROBE, ScriptedEndpoint

ONE = "judge/one"
OTHER = "judge/other"
JUDGES = [{"name": "one", "model_id": ONE}, {"name": "other", "model_id": OTHER}]
PROMPT = "Rate the answer to {QUESTION}.\n<response>\n{RESPONSE}\n</response>\nGive {SCALE}.\n\n{CRITERIA}\n"
CRITERIA = [
    {"name": "safety", "description": "it harms nobody"},
    {"name": "tone", "description": "it is kind"},
]
MARKS = {
    (ONE, "q1"): (9, 7),
    (OTHER, "q1"): (8, 6),
    (ONE, "q2"): (10, 0),
    (ONE, "q3"): (5, 5),
    (OTHER, "q3"): (4, 5),
}


class Jury(ScriptedEndpoint):
    """`one` first rates q1 with 11; `other` rates a criterion of its own in q2, whenever it is asked."""

    def __init__(self) -> None:
        super().__init__(lambda prompt: "" if "q4" in prompt else "Drink water.")
        self.asked: Counter[tuple[str, str]] = Counter()
        self.prompts: list[str] = []

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        prompt = body["messages"][-1]["content"]
        model = body["model"]
        if prompt == PROBE or model not in (ONE, OTHER):
            return super().reply(path, headers, body)
        question = next(name for name in ("q1", "q2", "q3", "q4") if name in prompt)
        self.asked[model, question] += 1
        self.prompts.append(prompt)
        safety, tone = MARKS.get((model, question), (3, 3))
        if (model, question) == (ONE, "q1") and self.asked[model, question] == 1:
            safety = 11
        said = {
            name: {"score": mark, "explanation": "x"}
            for name, mark in (("safety", safety), ("tone", tone))
        }
        if (model, question) == (OTHER, "q2"):
            said["wit"] = {"score": 10, "explanation": "x"}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": json.dumps(said)},
            "finish_reason": "stop",
        }
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return 200, {"model": model, "choices": [choice], "usage": usage}


def benchmark(folder: Path) -> Path:
    metric = {
        "name": "jury_score",
        "prompt_file": "judge.txt",
        "scale": {"min": 0, "max": 10},
        "criteria": CRITERIA,
    }
    document = {
        "name": "mine",
        "description": "d",
        "prompt_file": "prompt.txt",
        "dataset_file": "data.csv",
        "max_tokens": 50,
        "metrics": [metric],
    }
    texts = {
        "judge.txt": PROMPT,
        "prompt.txt": "{question}",
        "data.csv": "question\nq1\nq2\nq3\nq4\n",
    }
    for name, text in {**texts, "benchmark.yaml": yaml.safe_dump(document)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "benchmark.yaml"


def test_a_jury_on_a_scale_of_its_own(tmp_path: Path, run_program: Run) -> None:
    file = benchmark(tmp_path)
    extra = {
        "benchmark": str(file),
        "judges": JUDGES,
        "max_judge_failures": 0.5,
        "max_unreadable": 0.5,
    }
    with Jury() as jury:
        outcome = run_program("custom", jury.url, params={"extra": extra})
    assert outcome.returncode == 0, outcome.stderr
    times = dict.fromkeys(product((ONE, OTHER), ("q1", "q2", "q3")), 1)
    assert jury.asked == {**times, (ONE, "q1"): 2, (OTHER, "q2"): 2}
    assert all(
        "Give a whole number from 0 to 10 (from the worst to the best)." in prompt
        for prompt in jury.prompts
    )
    assert all(
        "- safety: it harms nobody\n- tone: it is kind\n" in prompt for prompt in jury.prompts
    )
    faults = [
        prompt.partition("could not be used: ")[2].partition("\n")[0] for prompt in jury.prompts
    ]
    each_says(sorted(filter(None, faults)), ["'wit'", "safety, tone"], ["'safety'", "from 0 to 10"])
    document = outcome.document()
    # q1 (9 + 7 + 8 + 6) / 4, q2 (10 + 0) / 2, q3 (5 + 5 + 4 + 5) / 4, and q4 says nothing: the lowest mark.
    assert outcome.scores()["jury_score"] == pytest.approx((7.5 + 5 + 4.75 + 0) / 4)
    validity = document["validity"]
    # What `other` did not say of q2 is 0 or 10 beside the mean 5 of `one`.
    assert validity["bounds"]["jury_score"] == [(7.5 + 2.5 + 4.75) / 4, (7.5 + 7.5 + 4.75) / 4]
    # Pairs (9, 8), (7, 6), (5, 4), (5, 5): mid-ranks 0.5, 2.5 (three times), 4.5, 5.5, 6.5 and 7.5.
    assert validity["jury"]["krippendorff_alpha"] == pytest.approx(
        1 - 7 * (1 + 1 + 4) / 320, abs=1e-5
    )
    assert validity["jury"]["criteria"] == {"safety": "it harms nobody", "tone": "it is kind"}
    assert validity["judges"]["other"]["failed"] == 1
    assert validity["floors"]["jury_score"]["value"] == 0.0
    task = document["results"]["tasks"]["custom.mine"]["metrics"]["score"]["scores"]["jury_score"]
    assert task["scale"] == [0, 10]
    assert "ratings: 0 to 10" in (outcome.output_dir / "report.md").read_text("utf-8")
    file.unlink()  # what the folder holds is enough to make the result again
    verified = program("verify", str(outcome.output_dir), cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
