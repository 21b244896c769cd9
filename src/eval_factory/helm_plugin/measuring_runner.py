"""A runner that makes the requests of a run, counts them, and sends none: what they will take can be said before.

HELM's own `--dry-run` counts tokens with a tokenizer, which it would have to download.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.run_spec import RunSpec

from eval_factory.core import logs
from eval_factory.helm_plugin.judge_requests import requests_to_each
from eval_factory.helm_plugin.runner import EvalRunner, NoInstancesError


class _Measured(Exception):
    """All is known; nothing is asked."""


class MeasuringRunner(EvalRunner):
    """Ends each run where it would begin to ask."""

    def run_one(self, run_spec: RunSpec) -> None:
        with suppress(_Measured):
            super().run_one(run_spec)

    def _before_asking(self, state: ScenarioState) -> None:
        self._stop_where_data_were_refused()
        if not state.request_states:
            raise NoInstancesError("HELM's scenario found no instances in its data")
        requests = [one.request for one in state.request_states]
        self._session.events.emit(
            logs.MEASURED,
            requests=len(requests),
            prompt_bytes=sum(map(size_of, requests)),
            most_tokens=sum(request.max_tokens * request.num_completions for request in requests),
            judge_requests=requests_to_each(state),
        )
        raise _Measured


def size_of(request: Any) -> int:
    """Bytes of what a model is sent to read."""
    texts = [str(turn.get("content", "")) for turn in request.messages or []] or [request.prompt]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)
