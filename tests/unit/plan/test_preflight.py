"""The probe against endpoints on loopback that answer it as gateways do."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from builders import plan
from eval_factory.core.errors import (
    EndpointRefusedError,
    EndpointUnreachableError,
    PrerequisiteError,
)
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.limits import LocalAdmission, Ticket
from eval_factory.endpoint.retrying_client import RetryingClient
from eval_factory.endpoint.servers import Servers
from eval_factory.plan import preflight
from eval_factory.plan.preflight import FEW_TOKENS, MORE_TOKENS, probe
from facts import says
from scripted_endpoint import ScriptedEndpoint
from seeing_endpoint import content_of

Answer = tuple[int, dict[str, Any]]


class Gateway(ScriptedEndpoint):
    """Answers a probe by its body."""

    probe_answer: Callable[[dict[str, Any]], Answer | None] = staticmethod(lambda _body: None)

    def __init__(self) -> None:
        super().__init__(lambda _prompt: "pong")
        self.granted: list[int] = []

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        self.granted.append(body["max_tokens"])
        return self.probe_answer(body) or super().reply(path, headers, body)

    def answers(self, status: int, message: str) -> None:
        self.probe_answer = lambda _body: (status, {"error": {"message": message}})


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as endpoint:
        yield endpoint


def probed(gateway: Gateway, **flags: Any) -> str | None:
    endpoint = plan({"target.api_endpoint.url": gateway.url, **flags}).model
    return probe(endpoint, {"OPENAI_API_KEY": "the-key-0123456789"}, Redactor(), lambda _line: None)


def test_a_refusal_stops_the_run_with_what_the_endpoint_says(gateway: Gateway) -> None:
    for status, message in (
        (400, "Invalid model name passed in model=org/model"),
        (400, "No connected db."),
        (413, "too large"),
        (422, "model is pinned to another"),
        (451, "not here"),
    ):
        gateway.answers(status, message)
        gateway.granted.clear()
        with pytest.raises(EndpointRefusedError) as raised:
            probed(gateway)
        refused = f"{gateway.url}/chat/completions refuses a first short request: HTTP {status}"
        assert all(
            told in str(raised.value)
            for told in (refused, f"\n  it says: {message}\n", "--no_preflight")
        )
        assert gateway.granted == [FEW_TOKENS, MORE_TOKENS][: 2 if status in (400, 422) else 1]


@pytest.mark.parametrize("own", [5, 400])
def test_the_probe_grants_what_the_benchmark_grants(gateway: Gateway, own: int) -> None:
    assert probed(gateway, **{"config.params.extra.num_output_tokens": own}) is None
    assert gateway.granted == [own]


def test_too_few_tokens_of_the_benchmark_stop_the_run_at_the_start(gateway: Gateway) -> None:
    said = "Invalid 'max_output_tokens': Expected a value >= 16, but got 5 instead."
    gateway.answers(400, said)
    with pytest.raises(EndpointRefusedError, match=r"extra\.num_output_tokens"):
        probed(gateway, **{"config.params.extra.num_output_tokens": 5})
    assert gateway.granted == [5]


def test_a_refused_parameter_names_what_leaves_it_out(gateway: Gateway) -> None:
    gateway.answers(400, "store is not supported by this model")
    with pytest.raises(EndpointRefusedError, match="params_to_remove"):
        probed(gateway)


def test_a_model_that_thinks_is_asked_with_more_tokens(gateway: Gateway) -> None:
    too_few = (
        400,
        {"error": {"message": "Could not finish the message because max_tokens was reached"}},
    )
    gateway.probe_answer = lambda body: too_few if body["max_tokens"] == FEW_TOKENS else None
    assert probed(gateway) is None
    assert gateway.granted == [FEW_TOKENS, MORE_TOKENS]


def test_what_may_pass_is_a_warning(gateway: Gateway) -> None:
    for status in (408, 409, 425, 429, 500, 503, 501):
        gateway.answers(status, "out of order")
        told = probed(gateway, **{"config.params.extra.stop_after_failures": 0})
        begins = probed(gateway)
        assert told is not None
        assert begins is not None
        says(told, "was not answered", f"HTTP {status}", "out of order")
        assert begins.startswith(told)
        says(begins, "first 20 requests")
        assert "first 20 requests" not in told
    assert gateway.granted == [FEW_TOKENS] * 14


def test_who_is_not_there_and_who_refuses_are_told_apart(gateway: Gateway) -> None:
    gateway.answers(401, "no such key")
    with pytest.raises(EndpointRefusedError, match="Authentication error"):
        probed(gateway)
    nobody = plan({"target.api_endpoint.url": "http://127.0.0.1:9/v1"}).model
    with pytest.raises(EndpointUnreachableError, match="cannot reach"):
        probe(nobody, {}, Redactor(), lambda _line: None)


def test_of_several_servers_each_that_is_wrong_is_named(gateway: Gateway) -> None:
    nobody = "http://127.0.0.1:9/v1"
    both = {"target.api_endpoint.url": [nobody, gateway.url]}
    warning = probed(gateway, **both)
    assert warning is not None
    assert f"cannot reach {nobody}/chat/completions" in warning
    gateway.answers(404, "no such model")
    with pytest.raises(
        EndpointRefusedError, match=f"{gateway.url}/chat/completions answers 404"
    ) as refused:
        probed(gateway, **both)
    assert f"cannot reach {nobody}" in str(refused.value)
    assert "take this URL out" not in str(refused.value), "none answers"


def test_a_judge_is_named(gateway: Gateway) -> None:
    gateway.answers(400, "Invalid model name")
    judge = plan({"target.api_endpoint.url": gateway.url, "config.type": "aci_bench"}).judges[0]
    with pytest.raises(PrerequisiteError, match=r"^judge gpt: http") as raised:
        probe(judge, {}, Redactor(), lambda _line: None)
    says(str(raised.value), "judge's model_id", "extra.judges")
    gateway.answers(500, "out of order")
    says(str(probe(judge, {}, Redactor(), lambda _line: None)), "judge gpt", "was not answered")


def test_the_probe_is_short_asked_once_and_outside_the_rate_limits(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[EndpointSettings] = []

    def client(settings: EndpointSettings, servers: Servers) -> RetryingClient:
        asked.append(settings)
        assert servers.all[0].transport.timeout_s == settings.request_timeout
        return RetryingClient(settings, servers)

    monkeypatch.setattr(preflight, "RetryingClient", client)
    limits = {
        "target.api_endpoint.requests_per_minute": 3,
        "target.api_endpoint.tokens_per_minute": 4,
    }
    assert probed(gateway, **limits) is None
    assert probed(gateway, **{"config.params.request_timeout": 2}) is None
    assert [
        (
            one.request_timeout,
            one.requests_per_minute,
            one.tokens_per_minute,
            one.max_retries,
            one.parallelism,
        )
        for one in asked
    ] == [(preflight._TIMEOUT_S, None, None, 0, 1), (2, None, None, 0, 1)]


def test_where_others_ask_too_the_probe_is_let_through_with_them(gateway: Gateway) -> None:
    class Counting(LocalAdmission):
        asked = 0

        @contextmanager
        def slot(self, body: Mapping[str, Any] | None = None) -> Iterator[Ticket]:
            assert body is not None
            assert body["max_tokens"] == FEW_TOKENS
            self.asked += 1
            with super().slot(body) as ticket:
                yield ticket

    endpoint = plan({"target.api_endpoint.url": gateway.url}).model
    admission = Counting(endpoint.limit)
    assert probe(endpoint, {}, Redactor(), lambda _line: None, admission) is None
    assert admission.asked == len(gateway.granted) == 1


def test_the_probe_is_sent_the_secrets_of_the_requests(gateway: Gateway) -> None:
    endpoint = plan({"target.api_endpoint.url": gateway.url}).model
    adapter = replace(endpoint.adapter, params_to_add={"account": "${CANARY}"})
    env = {"CANARY": "the-canary-0123456789"}
    sent = []
    gateway.probe_answer = lambda body: sent.append(body["account"])
    assert probe(replace(endpoint, adapter=adapter), env, Redactor(), lambda _line: None) is None
    assert sent == ["the-canary-0123456789"]


def shows_pictures(body: dict[str, Any]) -> bool:
    return isinstance(body["messages"][0]["content"], list)


@pytest.mark.parametrize(
    ("status", "said"),
    [(400, "no vision"), (404, "no such"), (500, "image input is not supported")],
)
def test_of_a_model_that_takes_no_pictures(gateway: Gateway, status: int, said: str) -> None:
    """Servers say it by different statuses; that it takes text shows that it is the picture."""
    refused = (status, {"error": {"message": said}})
    gateway.probe_answer = lambda body: refused if shows_pictures(body) else None
    with pytest.raises(EndpointRefusedError) as raised:
        probed(gateway, **{"config.type": "vqa_rad"})
    assert said in str(raised.value)
    assert str(raised.value).endswith(preflight.NEEDS_PICTURES)
    assert probed(gateway) is None, "other benchmarks show none"


def test_what_refuses_text_too_has_not_refused_the_picture(gateway: Gateway) -> None:
    gateway.answers(400, "Invalid model name")
    with pytest.raises(EndpointRefusedError) as raised:
        probed(gateway, **{"config.type": "vqa_rad"})
    assert preflight.NEEDS_PICTURES not in str(raised.value)


def test_a_picture_is_one_that_models_can_take() -> None:
    """Several refuse what is smaller than their patches, of 28 pixels."""
    data = content_of({"type": "image_url", "image_url": {"url": preflight.GREY_PICTURE}})
    with Image.open(io.BytesIO(data)) as picture:
        picture.load()
        assert (picture.format, picture.size) == ("PNG", (32, 32))
