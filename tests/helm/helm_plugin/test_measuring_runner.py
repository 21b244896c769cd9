"""Requests that are counted, and not sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helm.common.request import Request

from eval_factory.helm_plugin.runner import EvalRunner, MeasuringRunner, NoInstancesError, prompt_bytes


def request(prompt: str = "", **fields: Any) -> Request:
    return Request(model="m/m", model_deployment="m/m", prompt=prompt, max_tokens=5, **fields)


def test_what_a_model_has_to_read_is_measured_in_bytes() -> None:
    assert prompt_bytes(request("Fieber über 39")) == len("Fieber über 39") + 1
    messages = [{"role": "system", "content": "ab"}, {"role": "user", "content": "cde"}]
    assert prompt_bytes(request("", messages=messages)) == 5


def measuring() -> tuple[Any, list[dict[str, Any]]]:
    """And the events that it tells; HELM's constructor is not called."""
    made: Any = object.__new__(MeasuringRunner)
    told: list[dict[str, Any]] = []
    events = SimpleNamespace(emit=lambda event, **fields: told.append({"event": event, **fields}))
    made._session, made._guard = SimpleNamespace(events=events), None
    return made, told


def test_a_run_ends_where_it_would_begin_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = measuring()
    asked = [SimpleNamespace(request=one) for one in (request("abcd"), request("abcdef", num_completions=3))]
    state: Any = SimpleNamespace(request_states=asked, annotator_specs=None)

    def run_one(self: Any, _run_spec: Any) -> None:
        self._before_asking(state)
        pytest.fail("it asks")

    monkeypatch.setattr(EvalRunner, "run_one", run_one)
    made.run_one(None)
    assert told == [{"event": "measured", "requests": 2, "prompt_bytes": 10, "most_tokens": 20, "judge_requests": 0}]


def test_data_without_instances_are_no_run_of_nothing() -> None:
    made, told = measuring()
    with pytest.raises(NoInstancesError):
        made._before_asking(SimpleNamespace(request_states=[]))
    assert told == []
