"""The fault matrix of a judge: the other judge and the model go on, no matter what this one does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from facts import says
from fault_endpoint import FOR_EVER, Fault, FaultEndpoint
from faults.test_matrix import BODY_CANARY, PASSING_FAULTS
from integration.test_juries import medication_questions
from jury_endpoint import judgement
from program_runs import CANARY, Outcome, more_data
from programs import eval_factory, holding, outcome_of
from scripted_endpoint import PROBE, ScriptedEndpoint

JUDGE_CANARY = "sk-canary-of-a-judge-0123456789"
TIMEOUT_S = 180


def rated(prompt: str) -> str:
    return "pong" if prompt == PROBE else judgement(prompt, 4)


def run(folder: Path, judge: FaultEndpoint, count: int, *arguments: str, **params: Any) -> Outcome:
    judge.good = rated
    if not folder.exists():
        medication_questions(folder / "helm", count)
    with ScriptedEndpoint(
        lambda prompt: rated(prompt) if "Output Format:" in prompt else "With water."
    ) as endpoint:
        judges = [
            {"name": "bad", "model_id": "judge/bad", "url": judge.url, "api_key": "BAD_KEY"},
            {"name": "good", "model_id": "judge/good"},
        ]
        params = {"limit_samples": count, "parallelism": 8, "extra": {"judges": judges}, **params}
        target = {"url": endpoint.url, "model_id": "test/model", "api_key": "TEST_MODEL_KEY"}
        config = {"type": "medication_qa", "output_dir": str(folder), "params": params}
        file = folder.parent / "config.yml"
        file.write_text(yaml.safe_dump({"config": config, "target": {"api_endpoint": target}}))
        arguments = ("run_eval", "--run_config", str(file), *arguments)
        outcome = outcome_of(
            eval_factory(*arguments, TEST_MODEL_KEY=CANARY, BAD_KEY=JUDGE_CANARY), folder
        )
    assert "Traceback" not in outcome.stderr
    secrets = (CANARY, JUDGE_CANARY, BODY_CANARY)
    assert not any(secret in outcome.stdout + outcome.stderr for secret in secrets)
    assert holding(folder, *secrets) == []
    return outcome


def judges_of(outcome: Outcome) -> list[set[str]]:
    """Who scored each instance."""
    lines = (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    return [set(json.loads(line)["judges"]) for line in lines]


def test_what_another_try_resolves(tmp_path: Path) -> None:
    with FaultEndpoint([*PASSING_FAULTS, None], BODY_CANARY) as judge:
        count = len(PASSING_FAULTS) + 1
        outcome = run(tmp_path / "out", judge, count, request_timeout=4)
        assert outcome.returncode == 0, outcome.stderr
        assert judges_of(outcome) == [{"bad", "good"}] * count
        assert sum(judge.seen.values()) == count + sum(fault.tries for fault in PASSING_FAULTS)


LOST = [
    Fault(kind, FOR_EVER)
    for kind in (400, 413, 422, 500, "closes", "not json", "no choices", "null", "filtered")
]


def test_what_no_try_resolves_costs_that_judges_rating_only(tmp_path: Path) -> None:
    with FaultEndpoint([*LOST, None], BODY_CANARY) as judge:
        count = len(LOST) + 1
        outcome = run(tmp_path / "out", judge, count, max_retries=1)
        assert outcome.returncode == 1, outcome.stderr
        says(outcome.stderr, "judge bad", f"{len(LOST)} of {count} answers")
        validity = outcome.document()["validity"]
        assert validity["judges"]["bad"] == {
            "asked": count,
            "scored": 1,
            "failed": len(LOST),
            "same_family": None,
        }
        assert validity["judges"]["good"]["scored"] == count
        assert validity["instances"]["unjudged"] == 0
        assert outcome.scores()["medication_qa_accuracy"] == 4.0
        assert {failure["role"] for failure in validity["failures"]} == {"bad"}
        assert sum(failure["count"] for failure in validity["failures"]) == len(LOST)
        causes = {re.split("[:;]", failure["cause"])[0] for failure in validity["failures"]}
        assert causes >= {"HTTP 400", "HTTP 413", "HTTP 422", "HTTP 500", "the answer is not JSON"}
        says(outcome.stdout, "judge bad", "1 x HTTP 413")
        roles = outcome.document()["usage"]["this_run"]["roles"]
        assert list(roles) == ["model", "bad", "good"]
        assert (roles["model"]["requests"], roles["good"]["requests"]) == (count, count)
    with FaultEndpoint([None], BODY_CANARY) as healthy:
        again = run(tmp_path / "out", healthy, count, max_retries=1)
        assert again.returncode == 0, again.stderr
        assert judges_of(again) == [{"bad", "good"}] * count
        assert again.document()["validity"]["failures"] == []
        spent = again.document()["usage"]
        assert spent["this_run"]["roles"]["model"]["requests"] == count  # at another address
        assert spent["all_runs"]["runs"] == 2
        assert spent["all_runs"]["roles"]["model"]["requests"] == 2 * count
        assert spent["all_runs"]["roles"]["bad"]["requests"] == sum(judge.seen.values()) + sum(
            healthy.seen.values()
        )


@pytest.mark.parametrize("status", [401, *more_data(403, 404)])
def test_a_judge_that_stops_answering_ends_itself_only(status: int, tmp_path: Path) -> None:
    with FaultEndpoint([Fault(status, FOR_EVER)], BODY_CANARY) as judge:
        outcome = run(tmp_path / "out", judge, 4)
        assert outcome.returncode == 1, outcome.stderr
        says(outcome.stderr, "NOT REPORTABLE: judge bad", "4 of 4 answers")
        assert judges_of(outcome) == [{"good"}] * 4
        assert sum(judge.seen.values()) <= 4
        says(outcome.document()["validity"]["notes"], "judge bad gave no")
        (failure,) = outcome.document()["validity"]["failures"]
        assert (failure["role"], failure["count"]) == ("bad", 4)
        assert str(status) in failure["cause"]
