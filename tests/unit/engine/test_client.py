"""One endpoint as HELM asks it, over loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helm.common.request import Request

from eval_factory.engine import client, session, store
from eval_factory.engine.client import Endpoint, EndpointStopped
from eval_factory.engine.events import PROBED_VARIABLE, WARNING
from scripted_endpoint import ScriptedEndpoint

REQUEST = Request(model="m/m", model_deployment="m/m", prompt="p", max_tokens=5, temperature=0.0)
ADAPTER: dict[str, Any] = {
    "params_to_add": {}, "params_to_remove": [], "params_to_rename": {}, "custom_system_prompt": None,
    "start_reasoning_token": "<think>", "end_reasoning_token": "</think>",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(lambda _prompt: "B") as endpoint:
        yield endpoint


def endpoint_at(server: ScriptedEndpoint, folder: Path) -> Endpoint:
    return Endpoint(
        role="model", url=server.url, model_id="m", endpoint_type="chat", key_names=[], request_timeout=5,
        max_retries=0, parallelism=1, cache_db=str(folder / "cache.db"), adapter=ADAPTER,
    )  # fmt: skip


def events_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "logs" / "events.jsonl").read_text("utf-8").splitlines()]


def test_what_nobody_thought_of_costs_one_instance(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_at(server, tmp_path)

    def stumbles(*_: object, **__: object) -> None:
        raise ArithmeticError("over the prompt of a patient")

    with monkeypatch.context() as patch:
        patch.setattr(client, "truncate_sequence", stumbles)
        result = endpoint.make_request(REQUEST)
    assert not result.success
    assert result.error_flags is not None
    assert result.error_flags.is_retriable is False  # HELM's own loop leaves it alone
    assert result.error_flags.is_fatal is False
    assert len(server.requests) == 1
    (told,) = [event for event in events_in(tmp_path) if event["event"] == WARNING]
    assert "unexpected ArithmeticError in test_client.py" in told["message"]
    assert "patient" not in told["message"] + str(result.error)
    counters = session.session_for(tmp_path).counters["model"]
    assert (counters.done, counters.failed) == (1, 1)
    again = endpoint.make_request(REQUEST)
    assert again.success
    assert again.cached


def test_an_answer_that_an_older_version_kept_is_looked_at_again(server: ScriptedEndpoint, tmp_path: Path) -> None:
    endpoint = endpoint_at(server, tmp_path)
    key, body = endpoint._key_and_body(REQUEST)
    kept = session.session_for(tmp_path).store
    died = {"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": {"code": 502}}]}
    kept.save(
        store.Answer(key, "model", "m", body, died, time.time(), 0.1),
        store.Attempt(key, "model", 1, "answered", 200, None, time.time(), 0.1),
    )
    result = endpoint.make_request(REQUEST)
    assert result.completions[0].text == "B"
    assert not result.cached
    assert [row["outcome"] for row in store.read_attempts(kept.path)] == ["answered", "unusable", "answered"]
    assert endpoint.make_request(REQUEST).cached


@pytest.mark.parametrize("probed", [True, False])
def test_who_answered_the_probe_may_refuse_the_first_prompt(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, probed: bool
) -> None:
    monkeypatch.setenv(PROBED_VARIABLE, json.dumps(["model"] if probed else ["a_judge"]))
    server.status, server.body = 403, {"error": {"message": "Input flagged by moderation"}}
    endpoint = endpoint_at(server, tmp_path)
    if probed:
        assert "Input flagged by moderation" in str(endpoint.make_request(REQUEST).error)
        assert [row["outcome"] for row in store.read_attempts(tmp_path / "cache.db")] == ["failed"]
        return
    with pytest.raises(EndpointStopped, match="Input flagged by moderation"):
        endpoint.make_request(REQUEST)
    assert any("Input flagged by moderation" in event.get("message", "") for event in events_in(tmp_path))


def test_two_equal_requests_at_once_are_sent_once(server: ScriptedEndpoint, tmp_path: Path) -> None:
    """Repeated rows of a benchmark, asked by several threads, are paid for once."""
    released = threading.Event()

    def answer(_prompt: str) -> str:
        released.wait(30)
        return "B"

    server.answer = answer
    endpoint = endpoint_at(server, tmp_path)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(endpoint.make_request, REQUEST) for _ in range(4)]
        while not server.requests:
            time.sleep(0.01)
        released.set()
        results = [one.result(30) for one in asked]
    assert [result.completions[0].text for result in results] == ["B"] * 4
    assert len(server.requests) == 1
