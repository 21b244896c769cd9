"""Answers that HELM reads nothing from: counted, read leniently beside HELM's value, and never reported as a score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from facts import says
from integration.test_shuffled_runs import knows
from program_runs import Outcome, Run, more_data
from scripted_endpoint import ScriptedEndpoint

SAMPLE = "sample_medical_qa"
FORMS = ("{}.", "({})", "**{}**", "The answer is {}")
INSTANCES = 8
PlaceData = Callable[[Path, str], None]


def params(**extra: Any) -> dict[str, Any]:
    return {"limit_samples": INSTANCES, "max_new_tokens": 16, "extra": extra}


def check_right_in_other_forms(outcome: Outcome) -> None:
    validity = outcome.document()["validity"]
    scores = outcome.scores()
    assert (scores["exact_match"], scores["exact_match.lenient"]) == (0.0, 1.0)
    assert validity["instances"]["unparsed"] == validity["instances"]["unreadable"] == INSTANCES
    (gap,) = [note for note in validity["notes"] if note.startswith("exact_match.lenient")]
    says(gap, "1.0000", "HELM's own value 0.0000", "gap of +1.0000", "in other words")
    assert (outcome.returncode, validity["reportable"]) == (1, False)
    says(outcome.stderr, "8 of 8", "benchmark asks for")
    assert "custom_system_prompt" in outcome.stderr
    lines = [
        json.loads(line)
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["signs"] for line in lines] == [["unparsed"]] * INSTANCES


def test_right_answers_in_other_forms(run_program: Run, endpoint: ScriptedEndpoint) -> None:
    endpoint.answer = lambda prompt: FORMS[len(prompt) % len(FORMS)].format(knows(prompt))
    check_right_in_other_forms(run_program(SAMPLE, endpoint.url, params=params()))


def said(text: str | None, **more: str) -> dict[str, str | None]:
    return {"role": "assistant", "content": text, **more}


@pytest.mark.parametrize(
    "case",
    [
        (said("<think>The heart has four chambers and so on and on"), 4),
        *more_data(
            (said("<thi"), 4),
            (said("[THINK]The heart"), 4),
            (said("<|channel|>analysis<|message|>The"), 4),
        ),
        *more_data((said(None, reasoning_content="Let"), 0), (said(""), 0)),
    ],
)
def test_all_cut_off_while_thinking(
    case: tuple[dict[str, Any], int], run_program: Run, endpoint: ScriptedEndpoint
) -> None:
    message, unfinished = case
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    endpoint.body = {"choices": [choice], "usage": {"prompt_tokens": 60, "completion_tokens": 5}}
    outcome = run_program(SAMPLE, endpoint.url, params={"limit_samples": 4})
    counts, notes = (outcome.document()["validity"][name] for name in ("instances", "notes"))
    assert "num_output_tokens" in outcome.stderr
    (note,) = [note for note in notes if "num_output_tokens" in note]
    assert note.startswith("4 of 4: ")
    says(note, "5 output tokens")
    if not unfinished:
        return
    assert (counts["thinking_unfinished"], counts["thinking_stripped"], counts["unparsed"]) == (
        4,
        4,
        0,
    )
    assert outcome.returncode == 1
    says(outcome.stderr, "4 of 4 answers", "cut off", "was thinking")
    says(notes, "taken out of", "4 of 4 answers")


@pytest.mark.medical_data
def test_prompts_that_helm_cut_are_counted(
    run_program: Run,
    endpoint: ScriptedEndpoint,
    tmp_path: Path,
    place_data: PlaceData,
    medical_data: Path,
    data_environment: dict[str, str],
) -> None:
    place_data(tmp_path / "out" / "helm", "pubmed_qa")
    env = {**data_environment, "TIKTOKEN_CACHE_DIR": str(medical_data / "tiktoken")}
    endpoint.answer = lambda _prompt: "A"
    extra = {"max_length": 300}
    outcome = run_program(
        "pubmed_qa", endpoint.url, params={"limit_samples": 6, "extra": extra}, env=env
    )
    assert outcome.returncode == 0, outcome.stderr
    states = json.loads(
        next((outcome.output_dir / "helm").glob("runs/*/*/scenario_state.json")).read_text("utf-8")
    )
    cut = sum(state["prompt_truncated"] for state in states["request_states"])
    assert cut >= 1
    assert outcome.document()["validity"]["instances"]["prompt_truncated"] == cut
    notes = outcome.document()["validity"]["notes"]
    says(notes, f"{cut} of 6 prompts", "max_length (300 tokens)")
