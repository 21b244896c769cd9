"""HELM is imported while the endpoint is probed; nothing is asked, and nothing is lost, before it has answered."""

from __future__ import annotations

import time
from typing import Any

import pytest

from program_runs import Run, more_data
from scripted_endpoint import PROBE, ScriptedEndpoint

TASK = "sample_medical_qa"
SLOW_S = 4.0
"""HELM is imported long before, and has made its requests."""


class SlowProbe(ScriptedEndpoint):
    def __init__(self, seconds: float) -> None:
        super().__init__(lambda _prompt: "A")
        self.seconds = seconds
        self.is_refused = False
        self.probed_at = self.asked_at = 0.0

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if body["messages"][-1]["content"] != PROBE:
            self.asked_at = self.asked_at or time.monotonic()
            return super().reply(path, headers, body)
        time.sleep(self.seconds)
        self.probed_at = time.monotonic()
        return (
            (401, {"error": {"message": "no"}})
            if self.is_refused
            else super().reply(path, headers, body)
        )


def test_nothing_is_asked_before_the_probe_is_answered(run_program: Run) -> None:
    with SlowProbe(SLOW_S) as endpoint:
        outcome = run_program(TASK, endpoint.url, params={"limit_samples": 8})
    assert outcome.returncode == 0, outcome.stderr
    assert endpoint.probed_at < endpoint.asked_at
    assert outcome.document()["validity"]["instances"]["scored"] == 8


@pytest.mark.parametrize("seconds", [SLOW_S, *more_data(0.0)])
def test_where_the_probe_is_refused_nothing_is_asked_and_what_was_known_stays(
    run_program: Run, seconds: float
) -> None:
    with SlowProbe(0.0) as endpoint:
        before = run_program(TASK, endpoint.url, params={"limit_samples": 8})
        assert before.returncode == 0, before.stderr
        kept = [before.output_dir / name for name in (".run_state.json", "cache.db")]
        contents = [path.read_bytes() for path in kept]
        endpoint.seconds = seconds
        endpoint.is_refused = True
        outcome = run_program(TASK, endpoint.url, params={"limit_samples": 12})
        assert outcome.returncode == 3, outcome.stderr
        assert "Authentication error detected" in outcome.stderr
        assert len(endpoint.requests) == 8
        assert [path.read_bytes() for path in kept] == contents
        endpoint.seconds = 0.0
        endpoint.is_refused = False
        assert run_program(TASK, endpoint.url, params={"limit_samples": 12}).returncode == 0
        assert len(endpoint.requests) == 12
