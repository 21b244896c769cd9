"""Several criteria in one request, to a judge that leaves one out, doubles one, gives no JSON, is cut off."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.workflows.verify import verify
from integration.test_rubrics import lines
from program_runs import Run
from rubric_endpoint import MODEL, RubricEndpoint

FAULTS = ["fine", "misses", "doubles", "no JSON", "cut off", "misses once"]
"""What the judge does with the case of that number: 5 criteria, asked by three."""
REASONS = {
    "misses": "unusable judgement: criterion 2 has no judgement",
    "doubles": "unusable judgement: it holds 4 judgements of 3 criteria; give one for each",
    "no JSON": 'unusable judgement: it holds no JSON object with "judgements"',
    "cut off": 'unusable judgement: it holds no JSON object with "judgements"',
}
_CRITERIA = re.compile(r"<criteria>\n(.*?)\n</criteria>", re.DOTALL)


class GroupEndpoint(RubricEndpoint):
    """Every criterion is met; the first three of a case are answered as its number says while `broken`."""

    def __init__(self) -> None:
        super().__init__(lambda _messages: "An answer.", lambda *_: "")
        self.broken = True

    def _judged(self, model: str, prompt: str) -> str:
        told = _CRITERIA.search(prompt)
        assert told is not None
        numbers = list(range(1, len(told[1].splitlines()) + 1))
        given = [
            {"criterion": number, "explanation": f"Yes, {number}.", "criteria_met": True}
            for number in numbers
        ]
        case = int(prompt.partition("case ")[2][0])
        again = "could not be used" in prompt
        fault = FAULTS[case] if self.broken and len(numbers) == 3 else "fine"
        if fault == "misses" or (fault == "misses once" and not again):
            del given[1]
        if fault == "doubles":
            given.append(given[1])
        text = json.dumps({"judgements": given})
        return {"no JSON": "All of them, I think.", "cut off": text[:-30]}.get(fault, text)


def test_what_is_unusable_is_asked_once_more_and_then_by_the_next_run_alone(
    tmp_path: Path, run_program: Run
) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    cases = [
        {
            "id": f"c{case}",
            "messages": [{"role": "user", "content": f"Fever, case {case}?"}],
            "cluster": "one note",
            "rubrics": [{"criterion": f"Says {number}", "points": 2} for number in range(5)],
        }
        for case in range(len(FAULTS))
    ]
    (own / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    shape = {"kind": "rubric", "name": "mine", "description": "d", "dataset_file": "cases.jsonl"}
    (own / "benchmark.yaml").write_text(yaml.safe_dump(shape), "utf-8")
    extra: dict[str, Any] = {
        "benchmark": str(own / "benchmark.yaml"),
        "criteria_per_request": 3,
        "max_judge_failures": 1.0,
        "judges": [{"name": "gpt", "model_id": "judge/one", "parallelism": 4}],
    }
    with GroupEndpoint() as endpoint:
        first = run_program("custom", endpoint.url, params={"extra": extra})
        assert "judging: 12 requests" in first.stderr, "two about each of six answers"
        assert endpoint.judged == 12 + len(REASONS) + 1, (
            "what is unusable once more, with the fault named"
        )
        by_id = {line["id"]: line for line in lines(first.output_dir / "results.jsonl")}
        for case, fault in enumerate(FAULTS):
            said = [one["judges"]["gpt"] for one in by_id[f"c{case}"]["criteria"]]
            verdicts = [one["verdict"] for one in by_id[f"c{case}"]["criteria"]]
            if fault in REASONS:
                assert [one.get("error") for one in said[:3]] == [REASONS[fault]] * 3
                assert verdicts == ["unjudged"] * 3 + ["met"] * 2, (
                    "these alone, and never 'not met'"
                )
            else:
                assert verdicts == ["met"] * 5
        assert first.document()["validity"]["bounds"]["rubric_score"] == pytest.approx(
            [1 - 12 / 30, 1.0], abs=1e-4
        )
        assert all("criterion 2 has no" in p for p in again_prompts(endpoint, "case 1"))

        before = endpoint.judged
        endpoint.broken = False
        second = run_program("custom", endpoint.url, params={"extra": extra})
        assert second.returncode == 0, second.stderr
        assert endpoint.judged - before == len(REASONS), "what is missing, and nothing else"
        assert second.scores()["rubric_score"] == 1.0
    assert verify(second.output_dir).findings == ()
    shutil.rmtree(own)
    assert verify(second.output_dir).findings == (), "the folder knows its rubric and its clusters"


def again_prompts(endpoint: RubricEndpoint, case: str) -> list[str]:
    found = [
        text
        for (model, text) in endpoint.asked
        if model != MODEL and case in text and "could not be" in text
    ]
    assert found
    return found
