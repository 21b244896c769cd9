"""One endpoint as HELM asks it, over loopback."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from helm.common.request import Request, RequestResult

from eval_factory.core.budget import Budget, SpendingTracker
from eval_factory.core.helm_run_settings import (
    SETTINGS_VARIABLE,
    HelmRunSettings,
    SharedLimitsSettings,
)
from eval_factory.core.logs import FATAL, LIMIT_REACHED, WARNING
from eval_factory.endpoint import response_cache
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.endpoint_settings import EndpointLimits, EndpointSettings
from eval_factory.endpoint.shared_limits import LimitServer, SharedLimits
from eval_factory.helm_plugin import helm_results, session
from eval_factory.helm_plugin.client import Endpoint, EndpointClient, EndpointStopped
from eval_factory.scoring import journal
from facts import says
from in_the_loop import WAYS
from scripted_endpoint import ADAPTER, ScriptedEndpoint

REQUEST = Request(model="m/m", model_deployment="m/m", prompt="p", max_tokens=5, temperature=0.0)


@pytest.fixture
def server() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(lambda _prompt: "B") as endpoint:
        yield endpoint


def asking(prompt: object) -> Request:
    return dataclasses.replace(REQUEST, prompt=str(prompt))


def arguments(server: ScriptedEndpoint, **more: Any) -> dict[str, Any]:
    usual = {
        "role": "model",
        "url": server.url,
        "model_id": "m",
        "endpoint_type": "chat",
        "key_names": [],
        "request_timeout": 5,
        "max_retries": 0,
        "parallelism": 1,
        "adapter": ADAPTER,
    }
    return {**usual, **more}


def endpoint_at(server: ScriptedEndpoint, folder: Path, **settings: Any) -> Endpoint:
    return Endpoint(
        EndpointSettings.from_args(arguments(server, **settings)), session.session_for(folder)
    )


def events_in(folder: Path, name: str) -> list[dict[str, Any]]:
    events = [
        json.loads(line)
        for line in (folder / "logs" / "events.jsonl").read_text("utf-8").splitlines()
    ]
    return [event for event in events if event["event"] == name]


def outcomes(folder: Path) -> list[str]:
    return [row["outcome"] for row in journal.read_attempts(folder / "cache.db")]


def kept_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(row["request"]) for row in journal.read_answers(folder / "cache.db")]


def keep(endpoint: Endpoint, folder: Path, request: Request, choice: dict[str, Any]) -> None:
    """As an older version did, or at a time in which every field was taken."""
    asked = endpoint._requests.keyed(request)
    session.session_for(folder).cache.save(
        response_cache.Answer(
            asked.key, "model", "m", asked.body, {"choices": [choice]}, time.time(), 0.1
        ),
        response_cache.Attempt(asked.key, "model", 1, "answered", 200, None, time.time(), 0.1),
    )


def test_an_error_costs_one_instance(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_at(server, tmp_path)

    def stumbles(*_: object, **__: object) -> None:
        raise ArithmeticError("over the prompt of a patient")

    with monkeypatch.context() as patch:
        patch.setattr(helm_results, "truncate_sequence", stumbles)
        result = endpoint.make_request(REQUEST)
    flags = result.error_flags
    assert flags is not None
    assert (result.success, flags.is_retriable, flags.is_fatal) == (
        False,
        False,
        False,
    )  # HELM's loop leaves it alone
    assert len(server.requests) == 1
    (told,) = events_in(tmp_path, WARNING)
    assert "unexpected ArithmeticError in test_client.py" in told["message"]
    assert "patient" not in told["message"] + str(result.error)
    counters = session.session_for(tmp_path).counters["model"]
    assert (counters.done, counters.failed) == (1, 1)
    assert endpoint.make_request(REQUEST).cached


def test_what_waits_for_a_batch_has_not_failed(server: ScriptedEndpoint, tmp_path: Path) -> None:
    endpoint = endpoint_at(server, tmp_path, batch=True)
    assert not endpoint.make_request(REQUEST).success
    here = session.session_for(tmp_path)
    assert server.requests == []
    assert here.counters["model"].failed == 0
    with pytest.raises(session.BatchesAwaited, match="1 requests"):
        here.stop_for_batches()


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": ""}, "finish_reason": "error", "error": {"code": 502}},
        {
            "message": {"content": "B"},
            "finish_reason": "stop",
            "logprobs": {"x": float("nan")},
        },  # no file can hold it
    ],
)
def test_an_answer_kept_by_an_older_version_is_looked_at(
    server: ScriptedEndpoint, tmp_path: Path, choice: Any
) -> None:
    endpoint = endpoint_at(server, tmp_path)
    keep(endpoint, tmp_path, REQUEST, choice)
    result = endpoint.make_request(REQUEST)
    assert (result.completions[0].text, result.cached) == ("B", False)
    assert outcomes(tmp_path) == ["answered", "unusable", "answered"]
    assert endpoint.make_request(REQUEST).cached


@pytest.mark.parametrize("probed", [True, False])
def test_who_was_probed_may_refuse_a_prompt(
    server: Any, tmp_path: Path, monkeypatch: Any, *, probed: bool
) -> None:
    told = HelmRunSettings(probed=frozenset({"model" if probed else "a_judge"}))
    monkeypatch.setenv(SETTINGS_VARIABLE, told.environment()[SETTINGS_VARIABLE])
    server.status = 403
    server.body = {"error": {"message": "Input flagged by moderation"}}
    endpoint = endpoint_at(server, tmp_path)
    if probed:
        assert "Input flagged by moderation" in str(endpoint.make_request(REQUEST).error)
        assert outcomes(tmp_path) == ["failed"]
        return
    with pytest.raises(EndpointStopped, match="Input flagged by moderation"):
        endpoint.make_request(REQUEST)
    assert any(
        "Input flagged by moderation" in event["message"] for event in events_in(tmp_path, FATAL)
    )


def at_once(
    way: str, endpoint: Endpoint, requests: list[Request], count: int
) -> list[RequestResult]:
    if way == "loop":
        return map_at_once(endpoint.make_request, requests, count)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(endpoint.make_request, requests))


@pytest.mark.parametrize("way", WAYS)
def test_equal_requests_at_once_are_sent_once(
    way: str, server: ScriptedEndpoint, tmp_path: Path
) -> None:
    """Repeated rows of a benchmark are paid for once; other requests go on meanwhile."""
    released = threading.Event()

    def answer(prompt: str) -> str:
        if prompt == "last":
            released.set()
        elif prompt == REQUEST.prompt:
            assert released.wait(30)
        return prompt

    server.answer = answer
    endpoint = endpoint_at(server, tmp_path, parallelism=6)
    results = at_once(way, endpoint, [REQUEST] * 4 + [asking("other"), asking("last")], 6)
    assert [result.completions[0].text for result in results] == ["p"] * 4 + ["other", "last"]
    assert sorted(result.cached for result in results) == [False] * 3 + [True] * 3
    assert len(server.requests) == 3
    key = endpoint._requests.keyed(REQUEST).key
    attempts = journal.read_attempts(tmp_path / "cache.db")
    rows = [(row["outcome"], row["attempt"]) for row in attempts if row["key"] == key]
    assert rows == [("answered", 1), *[("cached", 0)] * 3], "sent and cached are what was asked"


def test_in_an_event_loop_no_more_requests_go_on_than_places(
    server: ScriptedEndpoint, tmp_path: Path
) -> None:
    places = 16
    counts = [0, 0]
    lock = threading.Lock()

    def answer(_prompt: str) -> str:
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        time.sleep(0.05)
        with lock:
            counts[0] -= 1
        return "B"

    server.answer = answer
    endpoint = endpoint_at(server, tmp_path, parallelism=places)
    assert all(
        result.success
        for result in at_once("loop", endpoint, list(map(asking, range(100))), 2 * places)
    )
    assert counts == [0, places]
    assert len(server.requests) == len(kept_in(tmp_path)) == 100


class OnceTooMany(ScriptedEndpoint):
    """Refuses the first two requests for "0"."""

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        status, answer = super().reply(path, headers, body)
        prompts = [kept["messages"][-1]["content"] for kept in self.requests]
        too_many = body["messages"][-1]["content"] == "0" and prompts.count("0") <= 2
        return (503, {"error": {"message": "busy"}}) if too_many else (status, answer)


def test_in_an_event_loop_others_go_on_while_one_is_tried_again(tmp_path: Path) -> None:
    with OnceTooMany(lambda prompt: prompt) as server:
        endpoint = endpoint_at(server, tmp_path, max_retries=2, parallelism=2)
        results = at_once("loop", endpoint, list(map(asking, range(20))), 2)
        assert [result.completions[0].text for result in results] == [
            str(number) for number in range(20)
        ]
        prompts = [body["messages"][-1]["content"] for body in server.requests]
        assert prompts[-1] == "0"
        assert sorted(prompts[:-1]) == sorted(["0", *map(str, range(20))])


@pytest.mark.parametrize("way", WAYS)
def test_the_model_is_unknown_however_it_is_asked(
    way: str, server: ScriptedEndpoint, tmp_path: Path
) -> None:
    """What holds for every request ends them all; no other is started."""
    server.status = 404
    endpoint = endpoint_at(server, tmp_path, parallelism=4)
    with pytest.raises(EndpointStopped, match="404"):
        at_once(way, endpoint, list(map(asking, range(50))), 4)
    assert 1 <= len(server.requests) <= 4


class Refusing(ScriptedEndpoint):
    """Refuses every prompt, when it is let."""

    released = threading.Event()

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        super().reply(path, headers, body)
        self.released.wait(30)
        return 400, {"error": {"message": "too long"}}


def test_two_equal_requests_at_once_fail_together(tmp_path: Path) -> None:
    """And a later one is asked anew."""
    with Refusing(lambda _prompt: "B") as server, ThreadPoolExecutor(4) as pool:
        endpoint = endpoint_at(server, tmp_path)
        asked = [pool.submit(endpoint.make_request, REQUEST) for _ in range(4)]
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.1)  # the others wait for it by now
        server.released.set()
        assert [one.result(30).error for one in asked] == ["HTTP 400: too long"] * 4
        before = len(server.requests)
        assert endpoint.make_request(REQUEST).error == "HTTP 400: too long"
        assert len(server.requests) == before + 1


class Picky(ScriptedEndpoint):
    """Refuses `temperature`, as reasoning models do."""

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        status, answer = super().reply(path, headers, body)
        if "temperature" in body:
            return 400, {
                "error": {"message": "Unsupported value: 'temperature' does not support 0"}
            }
        return status, answer


def test_what_was_answered_without_a_field_is_kept_as_that(tmp_path: Path) -> None:
    with Picky(lambda _prompt: "B") as server:
        endpoint = endpoint_at(server, tmp_path)
        assert endpoint.make_request(REQUEST).completions[0].text == "B"
        asked = len(server.requests)
        for again in (endpoint, endpoint_at(server, tmp_path)):  # in this run, and in the next
            assert again.make_request(REQUEST).cached
        assert len(server.requests) == asked == 2
        url = server.url
    (kept,) = kept_in(tmp_path)
    assert "temperature" not in kept
    asked_as_it_was = endpoint._requests.keyed(REQUEST)
    # nothing was answered to it
    assert not session.session_for(tmp_path).cache.holds(asked_as_it_was.key)
    assert response_cache.read_changes(tmp_path / "cache.db", url, "m") == [{"temperature": None}]
    assert response_cache.read_changes(tmp_path / "cache.db", url, "another") == []
    keys = [asked_as_it_was.key, asked_as_it_was.with_changes({"temperature": None}).key]
    assert [row["key"] for row in journal.read_answers(tmp_path / "cache.db")] == keys[1:]
    rows = [(row["key"], row["outcome"]) for row in journal.read_attempts(tmp_path / "cache.db")]
    assert rows == [
        (keys[0], "refused"),
        (keys[1], "answered"),
        (keys[1], "cached"),
        (keys[1], "cached"),
    ]


def test_an_answer_to_the_request_as_it_is_comes_first(tmp_path: Path) -> None:
    with Picky(lambda _prompt: "B") as server:
        endpoint = endpoint_at(server, tmp_path)
        keep(endpoint, tmp_path, asking("q"), {"message": {"content": "old"}})
        endpoint.make_request(REQUEST)
        found = endpoint.make_request(asking("q"))
        assert (found.completions[0].text, found.cached) == ("old", True)
        assert len(server.requests) == 2


def test_a_judgement_that_is_forgotten_is_asked_again_under_any_key(tmp_path: Path) -> None:
    with Picky(lambda _prompt: "B") as server:
        endpoint = endpoint_at(server, tmp_path)
        endpoint.make_request(REQUEST)
        endpoint.forget(REQUEST, "no judgement")
        assert not endpoint.make_request(REQUEST).cached
        assert endpoint.make_request(REQUEST).cached
    assert outcomes(tmp_path) == ["refused", "answered", "unusable", "answered", "cached"]


@pytest.mark.parametrize("before", ["m", None, "another"])
def test_the_first_may_all_fail_where_others_were_answered(
    server: Any, tmp_path: Path, before: str | None
) -> None:
    if before is not None:
        endpoint_at(server, tmp_path, model_id=before).make_request(REQUEST)
    server.status = 400
    endpoint = endpoint_at(server, tmp_path, stop_after_failures=2)
    assert not endpoint.make_request(asking("another")).success
    if before == "m":
        assert not endpoint.make_request(asking("one more")).success
        return
    with pytest.raises(EndpointStopped, match="the first 2 requests"):
        endpoint.make_request(asking("one more"))


@pytest.mark.parametrize(
    ("status", "settings", "kind"),
    [
        (401, {}, "refused"),
        (500, {"stop_after_failures": 1}, "unreachable"),
        (400, {"stop_after_failures": 1}, None),
    ],
)
def test_a_stop_says_why(
    server: ScriptedEndpoint, tmp_path: Path, status: int, settings: Any, kind: str | None
) -> None:
    """Nothing where it may be this benchmark's requests: others may be answered."""
    server.status = status
    with pytest.raises(EndpointStopped):
        endpoint_at(server, tmp_path, **settings).make_request(REQUEST)
    (told,) = events_in(tmp_path, FATAL)
    assert told.get("kind") == kind


def test_a_judge_that_stops_names_itself_and_its_key(
    server: ScriptedEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPT_JUDGE_API_KEY", "judge-key-0123456789")
    judge = endpoint_at(server, tmp_path, role="gpt", key_names=["GPT_JUDGE_API_KEY"])
    assert judge.make_request(REQUEST).success
    server.status = 401
    with pytest.raises(EndpointStopped):
        judge.make_request(asking("q"))
    (told,) = [event["message"] for event in events_in(tmp_path, WARNING)]
    says(told, "judge gpt: Authentication error", f"{server.url}/chat/completions answers 401")
    assert "GPT_JUDGE_API_KEY" in told
    assert "config.params.extra.judges" in told
    assert "target." not in told
    assert f"warning: {told}" in capfd.readouterr().err


def test_helm_makes_a_client_of_the_arguments_in_the_file(
    server: ScriptedEndpoint, tmp_path: Path
) -> None:
    """Those that every version wrote; the clients of one role share one endpoint."""
    args = arguments(server, cache_db=str(tmp_path / "cache.db"))
    first = EndpointClient(**args)
    second = EndpointClient(**args)
    assert first.make_request(REQUEST).success
    assert second.make_request(REQUEST).cached
    assert first._endpoint is second._endpoint is session.session_for(tmp_path).clients["model"]
    assert EndpointClient(**{**args, "role": "gpt"})._endpoint is not first._endpoint


def test_a_secret_is_sent_not_kept(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", secret := "the-canary-0123456789")
    endpoint = endpoint_at(
        server, tmp_path, adapter={**ADAPTER, "params_to_add": {"account": "${CANARY}"}}
    )
    assert endpoint.make_request(REQUEST).success
    assert [body["account"] for body in server.requests] == [secret]
    (kept,) = kept_in(tmp_path)
    assert kept["account"] == "${CANARY}"
    assert secret not in session.session_for(tmp_path).redactor.redact_text(
        f"an endpoint repeats {secret}"
    )


def test_a_run_within_shared_limits(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LimitServer({"g": EndpointLimits(1)}) as limits:
        shared = SharedLimitsSettings(limits.address, {"model": "g"})
        monkeypatch.setenv(
            SETTINGS_VARIABLE, HelmRunSettings(limits=shared).environment()[SETTINGS_VARIABLE]
        )
        endpoint = endpoint_at(server, tmp_path, parallelism=9)
        judge = endpoint_at(server, tmp_path, role="judge")
        with SharedLimits(shared) as other, ThreadPoolExecutor(1) as pool:
            admission = other.admission("model")
            assert admission is not None
            with admission.slot():
                asked = pool.submit(endpoint.make_request, REQUEST)
                assert judge.make_request(REQUEST).success  # it shares nothing
                assert len(server.requests) == 1
                assert not asked.done()
            assert asked.result(30).success
    with pytest.raises(EndpointStopped, match="command of that process"):
        endpoint.make_request(asking("another"))
    assert len(server.requests) == 2


def test_a_run_is_told_that_the_time_of_all_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(session.Session, "ask_no_more", lambda _session, limit: told.put(limit))
    with LimitServer({}, SpendingTracker(Budget(max_wall_s=0.0))) as limits:
        shared = SharedLimitsSettings(limits.address, {})
        monkeypatch.setenv(
            SETTINGS_VARIABLE, HelmRunSettings(limits=shared).environment()[SETTINGS_VARIABLE]
        )
        session.session_for(tmp_path)
        assert told.get(timeout=30) == "max_wall_s"


def limited(folder: Path, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> session.Session:
    monkeypatch.setenv(
        SETTINGS_VARIABLE, HelmRunSettings(budget=Budget(**limits)).environment()[SETTINGS_VARIABLE]
    )
    return session.session_for(folder)


def at(limit: str, folder: Path) -> list[dict[str, Any]]:
    return [event for event in events_in(folder, LIMIT_REACHED) if event["limit"] == limit]


def test_at_a_limit_nothing_is_sent(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = limited(tmp_path, monkeypatch, max_requests=2)
    endpoint = endpoint_at(server, tmp_path)
    judge = endpoint_at(server, tmp_path, role="gpt")
    here.clients.update(model=endpoint, gpt=judge)
    assert endpoint.make_request(REQUEST).success
    here.report_limit()
    assert judge.make_request(asking("judge it")).success  # from one tracker
    for asked in (endpoint, judge):
        with pytest.raises(EndpointStopped, match="max_requests"):
            asked.make_request(asking("other"))
    assert here.limit_reached == "max_requests"
    assert endpoint.make_request(REQUEST).cached
    assert len(server.requests) == 2
    assert at("max_requests", tmp_path) == []  # a run may end well without what was refused
    here.report_limit()
    (told,) = at("max_requests", tmp_path)
    assert (told["countable"], told["answered"]) == (True, {"model": 2, "gpt": 1})


def test_no_more_when_time_is_over(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = limited(tmp_path, monkeypatch, max_wall_s=1000.0)
    endpoint = here.clients["model"] = endpoint_at(server, tmp_path)
    assert endpoint.make_request(REQUEST).success
    here.ask_no_more("max_wall_s")  # as the clock does
    assert endpoint.make_request(REQUEST).cached
    assert here.limit_reached is None
    with pytest.raises(EndpointStopped, match="max_wall_s"):
        endpoint.make_request(asking("other"))
    assert here.limit_reached == "max_wall_s"


def test_an_answer_of_unknown_cost(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.body = {"choices": [{"message": {"content": "B"}, "finish_reason": "stop"}]}
    here = limited(tmp_path, monkeypatch, max_cost=1000.0)
    endpoint = here.clients["model"] = endpoint_at(server, tmp_path)
    assert endpoint.make_request(REQUEST).success
    with pytest.raises(EndpointStopped, match="max_cost"):
        endpoint.make_request(asking("other"))
    here.report_limit()
    assert at("max_cost", tmp_path)[0]["countable"] is False


def test_a_model_that_is_not_asked(
    server: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed is as it was; what is not stored is counted, and leaves no trace by which it would have failed."""
    then = tmp_path / "then"
    copy = tmp_path / "copy"
    secret = {**ADAPTER, "params_to_add": {"account": "${CANARY}"}}
    then.mkdir()
    monkeypatch.setenv("CANARY", "sk-canary-0123456789abcdef")
    endpoint = endpoint_at(server, then, adapter=secret)
    assert endpoint.make_request(REQUEST).success
    server.status = 422
    failed = endpoint.make_request(asking("bad"))
    shutil.copytree(then, copy)
    server.status = None
    monkeypatch.setenv(
        SETTINGS_VARIABLE, HelmRunSettings(asks_model=False).environment()[SETTINGS_VARIABLE]
    )
    monkeypatch.delenv("CANARY")
    here = session.session_for(copy)
    endpoint = endpoint_at(server, copy, adapter=secret)
    before = outcomes(then)
    assert endpoint.make_request(REQUEST).cached
    assert endpoint.make_request(asking("bad")).error == failed.error
    assert here.not_stored == set()
    assert not any(endpoint.make_request(asking("other")).success for _ in range(2))
    assert (len(here.not_stored), outcomes(copy)) == (1, [*before, "cached"])
    assert endpoint_at(server, copy, role="gpt").make_request(asking("judge it")).success
    assert len(server.requests) == 3
