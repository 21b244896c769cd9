"""Endpoints that refuse: the model, all requests, too many of them, a field. The real program and helm-run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.fault_endpoint import FOR_EVER, Fault, FaultEndpoint
from faults.test_matrix import BODY_CANARY, INSTANCES, TASK, run
from integration.conftest import run_program  # noqa: F401 - a fixture
from integration.support import Outcome
from scripted_endpoint import ScriptedEndpoint


def test_an_unknown_model_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    with FaultEndpoint([Fault(400, FOR_EVER)], BODY_CANARY) as endpoint:
        endpoint.faulty_probe = True
        outcome = run(tmp_path / "out", endpoint)
        assert outcome.returncode == 3, outcome.stderr
        assert "refuses a first short request: HTTP 400\n  it says: no: Bearer [API_KEY_REDACTED]" in outcome.stderr
        assert list(endpoint.seen.values()) == [2]  # the probe, and once more with more tokens
    assert not (tmp_path / "out" / "helm" / "runs").exists()


def test_a_dead_deployment_stops_the_run_and_it_goes_on_when_that_is_wanted(tmp_path: Path) -> None:
    folder, tries = tmp_path / "out", 2
    with FaultEndpoint([Fault(500, FOR_EVER)], BODY_CANARY) as endpoint:
        endpoint.faulty_probe = True
        outcome = run(folder, endpoint, max_retries=tries - 1)
        assert outcome.returncode == 3, outcome.stderr
        assert "warning: the probe was not answered: HTTP 500: no: " in outcome.stderr
        assert "the first 20 requests to" in outcome.stderr
        assert "  20 x HTTP 500: no: Bearer [API_KEY_REDACTED]" in outcome.stderr
        assert "--overrides config.params.extra.stop_after_failures=0" in outcome.stderr
        assert sum(endpoint.seen.values()) <= 1 + (20 + 4) * tries
        regardless = run(folder, endpoint, max_retries=0, **{"extra.stop_after_failures": 0})
        assert regardless.returncode == 1, regardless.stderr
        assert regardless.document()["validity"]["instances"]["failed"] == INSTANCES


class Metered(FaultEndpoint):
    """Takes so many requests in a window; LiteLLM's proxy tells the provider's own header under its prefix."""

    window_s, most = 2.0, 15

    def __init__(self) -> None:
        super().__init__([None], BODY_CANARY)
        self._since, self._taken = time.monotonic(), 0
        self._count = threading.Lock()
        self.refused = 0

    def fault_of(self, prompt: str) -> Fault | None:
        fault = super().fault_of(prompt)
        with self._count:
            now = time.monotonic()
            if now - self._since > self.window_s:
                self._since, self._taken = now, 0
            self._taken += 1
            if self._taken <= self.most:
                return fault
            self.refused += 1
            return Fault(429, FOR_EVER, {"llm_provider-retry-after": "1"})


def test_a_limit_on_requests_in_a_time_loses_no_instance(tmp_path: Path) -> None:
    endpoint = Metered()
    with endpoint:
        outcome = run(tmp_path / "out", endpoint, max_retries=0, parallelism=8)
        assert outcome.returncode == 0, outcome.stderr
        assert endpoint.refused > 0
        document = outcome.document()
    assert document["validity"]["instances"]["scored"] == INSTANCES
    assert document["usage"]["retries"] == endpoint.refused


REFUSAL = {"error": {"message": "Unsupported value: 'temperature' is no topic for this model"}}


class Touchy(ScriptedEndpoint):
    """Refuses a request by its body."""

    def __init__(self, refuses: Callable[[str, dict[str, Any]], bool]) -> None:
        super().__init__(lambda _prompt: "B")
        self._refuses = refuses

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        answered = super().reply(path, headers, body)
        return (400, REFUSAL) if self._refuses(body["messages"][-1]["content"], body) else answered


def results(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()]


def test_an_error_of_one_prompt_changes_no_other_request(run_program: Any) -> None:  # noqa: F811
    refused: set[str] = set()

    def first_one(prompt: str, _body: dict[str, Any]) -> bool:
        if not refused and prompt != "ping":
            refused.add(prompt)
        return prompt in refused

    with Touchy(first_one) as endpoint:
        outcome = run_program(TASK, endpoint.url, params={"extra": {"min_coverage": 0.5}})
        assert outcome.returncode == 0, outcome.stderr
        sent = [body for body in endpoint.requests if body["messages"][-1]["content"] not in refused]
    assert len(sent) == INSTANCES - 1
    assert all("temperature" in body for body in sent)
    assert outcome.document()["validity"]["instances"]["failed"] == 1
    assert not any("temperature" in note for note in outcome.document()["validity"]["notes"])


def test_answers_without_a_refused_field_are_found_again(run_program: Any) -> None:  # noqa: F811
    with Touchy(lambda _prompt, body: "temperature" in body) as endpoint:
        outcome = run_program(TASK, endpoint.url, params={"limit_samples": 8})
        assert outcome.returncode == 0, outcome.stderr
        paid = len(endpoint.requests)
        assert 9 <= paid <= 16
        before = results(outcome)
        assert all(line["prompt_tokens"] for line in before)
        (outcome.output_dir / ".run_state.json").unlink()
        again = run_program(TASK, endpoint.url, params={"limit_samples": 8})
        assert again.returncode == 0, again.stderr
        assert len(endpoint.requests) == paid
    told = "the endpoint refuses temperature: it was left out, the model's own default was used"
    for document in (outcome.document(), again.document()):
        assert told in document["validity"]["notes"]
    after = results(again)
    assert all(line["cached"] for line in after)
    assert [line["prompt_tokens"] for line in after] == [line["prompt_tokens"] for line in before]
