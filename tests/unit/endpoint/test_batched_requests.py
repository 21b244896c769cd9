"""A request goes through the replies of its batches as one that is tried again would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.batch_api import BatchApi, BatchApiError, BatchStatus, reply_in
from eval_factory.endpoint.batch_ledger import BatchLedger, has_open_batches
from eval_factory.endpoint.batched_requests import BatchedRole, WaitsForBatch
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.http_wire import TransportError
from eval_factory.endpoint.servers import Servers
from eval_factory.endpoint.sign_in import SignIn
from scripted_endpoint import ADAPTER

SECRET = "not-for-any-file-3310"
SETTINGS = EndpointSettings(
    role="model",
    url="https://here.example/v1",
    model_id="m",
    endpoint_type=openai_api.CHAT,
    key_names=(),
    request_timeout=1.0,
    max_retries=2,
    parallelism=1,
    adapter=openai_api.Adapter(**{**ADAPTER, "params_to_add": {"user": "${WHO}"}}),
    batch=True,
)
BODY = {"model": "m", "messages": [{"role": "user", "content": "x" * 40}], "max_tokens": 7}
SENT = {**BODY, "user": SECRET}


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = BatchLedger(path)
        self.waits: list[dict[str, Any]] = []

    def role(self, *, sends_singly: bool = False) -> BatchedRole:
        def wait(key: str, line: Any) -> None:
            self.waits.append({"key": key, "role": "model", **line})

        return BatchedRole(SETTINGS, self.ledger, wait, sends_singly=sends_singly)

    def batch(self, *replies: tuple[int, str] | None) -> None:
        """Send what waits, and end its batch; None: without an answer."""
        for reply in replies:
            with pytest.raises(WaitsForBatch):
                self.asked()
            self.ledger.add_waiting(self.waits)
            lines = self.ledger.waiting()
            batch = self.ledger.intend("model", lines, "0")
            found = {} if reply is None else {lines[0].key: reply}
            self.ledger.end(batch.intent, found, "it expired")

    def asked(self) -> list[int | str]:
        """The statuses that a request meets until there is an answer."""
        request = self.role().request(None)
        met: list[int | str] = []
        while True:
            try:
                reply = request.reply(SENT)
            except TransportError as error:
                met.append(str(error))
                continue
            assert reply is not None
            met.append(reply.status)
            if reply.status == 200:
                return met


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "batches.db")
    yield made
    made.ledger.close()


def test_replies_are_met_in_their_order(folder: Folder) -> None:
    folder.batch((500, "{}"), None, (200, "{}"))
    assert folder.asked() == [500, "it expired", 200]
    assert folder.asked() == [500, "it expired", 200], "each pass of helm-run meets them all"


def test_a_line_holds_no_secret(folder: Folder) -> None:
    with pytest.raises(WaitsForBatch):
        folder.role().request(None).reply(SENT)
    (line,) = folder.waits
    assert json.loads(line["body"])["user"] == "${WHO}"
    assert line["prompt_tokens"] == 10
    assert line["output_tokens"] == 7
    folder.ledger.add_waiting(folder.waits)
    folder.ledger.add_waiting(folder.waits)
    assert len(folder.ledger.waiting()) == 1
    assert SECRET.encode() not in folder.path.read_bytes()
    assert folder.path.stat().st_mode & 0o777 == 0o600


def test_draws_of_one_question_are_requests_of_their_own(folder: Folder) -> None:
    for draw in (None, "1", "2"):
        with pytest.raises(WaitsForBatch):
            folder.role().request(draw).reply(SENT)
    assert len({line["key"] for line in folder.waits}) == 3


def test_a_reply_is_consumed_once_and_forgotten_by_the_next_invocation(folder: Folder) -> None:
    folder.batch((400, "{}"))
    for is_new in (True, False):
        request = folder.role().request(None)
        request.reply(SENT)
        assert request.is_replayed
        assert request.waited_s is not None
        assert request.consume() is is_new
    folder.ledger.begin_invocation()
    with pytest.raises(WaitsForBatch):
        folder.role().request(None).reply(SENT)


def test_a_reply_that_nobody_read_outlives_the_invocation(folder: Folder) -> None:
    folder.batch((200, "{}"))
    folder.ledger.begin_invocation()
    assert folder.asked() == [200]


def test_only_what_a_batch_left_is_asked_by_itself(folder: Folder) -> None:
    with pytest.raises(WaitsForBatch):
        folder.role(sends_singly=True).request(None).reply(SENT)
    folder.waits.clear()
    folder.batch(None)
    request = folder.role(sends_singly=True).request(None)
    with pytest.raises(TransportError):
        request.reply(SENT)
    assert request.reply(SENT) is None
    assert not request.is_replayed


def test_open_batches_are_known_without_a_run(folder: Folder, tmp_path: Path) -> None:
    assert not has_open_batches(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(WaitsForBatch):
        folder.asked()
    folder.ledger.add_waiting(folder.waits)
    batch = folder.ledger.intend("model", folder.ledger.waiting(), "0")
    assert not has_open_batches(folder.path), "nothing was sent"
    folder.ledger.uploaded(batch.intent, "file")
    assert has_open_batches(folder.path)
    folder.ledger.sent(batch.intent, "id")
    folder.ledger.end(batch.intent, {}, "over")
    assert not has_open_batches(folder.path)


LINES: list[tuple[dict[str, Any], Any]] = [
    ({"custom_id": "a", "response": {"status_code": 200, "body": {}}}, ("a", 200, "{}")),
    (
        {"custom_id": "a", "response": None, "error": {"code": "batch_expired"}},
        ("a", 500, '{"error": {"code": "batch_expired"}}'),
    ),
    ({"custom_id": "a", "error": {"code": 429}}, ("a", 429, '{"error": {"code": 429}}')),
    ({"custom_id": 5, "response": {"status_code": 200, "body": {}}}, None),
    ({"custom_id": "a", "response": {"status_code": "200", "body": {}}, "error": None}, None),
    ({"response": {"status_code": 200, "body": {}}}, None),
]


@pytest.mark.parametrize(("line", "reply"), LINES)
def test_lines_of_result_files(line: dict[str, Any], reply: Any) -> None:
    assert reply_in(line) == reply


@pytest.mark.parametrize("document", [None, [], {}, {"id": 5}, "batch"])
def test_what_is_no_batch_is_refused(document: Any) -> None:
    with pytest.raises(BatchApiError):
        BatchStatus.read(document)


def test_a_batch_may_say_little() -> None:
    status = BatchStatus.read({"id": "b", "status": "completed", "expires_at": "soon"})
    assert status.is_over
    assert (status.total, status.completed, status.failed) == (0, 0, 0)
    assert status.expires_at is None
    assert not status.has_metadata


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"<html>", "not JSON"), (b"[" * 100_000, "nested too deeply")],
)
def test_an_answer_of_the_batch_api_that_cannot_be_parsed_is_an_error_of_the_batch_api(
    body: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = requests.Response()
    answer.status_code = 200
    answer._content = body
    monkeypatch.setattr(requests, "request", lambda *_, **__: answer)
    redactor = Redactor([])
    servers = Servers([], SignIn(None), redactor)
    with pytest.raises(BatchApiError, match=f"^https://here.example/v1/batches/b: .*{reason}"):
        BatchApi(servers, "https://here.example/v1", redactor).status("b")
