"""Endpoints that refuse: the model, all requests, too many of them. The real program and helm-run."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from facts import says
from fault_endpoint import FOR_EVER, Fault, FaultEndpoint
from faults.test_matrix import BODY_CANARY, INSTANCES, run


def test_a_dead_deployment_stops_the_run_and_it_goes_on_when_that_is_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    tries = 2
    with FaultEndpoint([Fault(500, FOR_EVER)], BODY_CANARY) as endpoint:
        endpoint.faulty_probe = True
        outcome = run(folder, endpoint, max_retries=tries - 1)
        assert outcome.returncode == 3, outcome.stderr
        says(outcome.stderr, "warning: the probe", "HTTP 500")
        says(outcome.stderr, "first 20 requests")
        says(outcome.stderr, "20 x HTTP 500", "Bearer [API_KEY_REDACTED]")
        assert "--overrides config.params.extra.stop_after_failures=0" in outcome.stderr
        assert sum(endpoint.seen.values()) <= 1 + (20 + 4) * tries
        regardless = run(folder, endpoint, None, max_retries=0, **{"extra.stop_after_failures": 0})
        assert regardless.returncode == 1, regardless.stderr
        assert regardless.document()["validity"]["instances"]["failed"] == INSTANCES


class Metered(FaultEndpoint):
    """Takes so many requests in a window; LiteLLM's proxy tells the provider's own header under its prefix."""

    window_s = 2.0
    most = 15

    def __init__(self) -> None:
        super().__init__([None], BODY_CANARY)
        self._since = time.monotonic()
        self._taken = 0
        self._count = threading.Lock()
        self.refused = 0

    def fault_of(self, prompt: str) -> Fault | None:
        fault = super().fault_of(prompt)
        with self._count:
            now = time.monotonic()
            if now - self._since > self.window_s:
                self._since = now
                self._taken = 0
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
