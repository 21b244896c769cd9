"""Batches that are sent, polled and found again, at an endpoint on loopback, without helm-run."""

from __future__ import annotations

import io
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batch_endpoint import BatchEndpoint, StoredBatch
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core.budget import Budget
from eval_factory.core.errors import (
    ConfigError,
    EndpointRefusedError,
    EndpointUnreachableError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.logs import BATCHES_AWAITED
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.batch_api import BatchApi
from eval_factory.endpoint.batch_ledger import BatchLedger
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows import batch_sending, batches
from eval_factory.workflows.batches import Batches, batches_of
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.helm_run import EndedHelmRun
from eval_factory.workflows.options import BatchChoice
from facts import naming

KEY = "key-for-the-batches-5521"
REQUESTS = 8
NOTHING_SAID = BatchChoice()


class Killed(BaseException):
    """The process ends here: nothing after it is done."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sending, "SETTLING_S", 0.0)
    for module in (batches, batch_sending):
        monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
        monkeypatch.setattr(module, "MAX_PAUSE_S", 0.001)


@pytest.fixture
def endpoint() -> Iterator[BatchEndpoint]:
    with BatchEndpoint(lambda _prompt: "B") as served:
        served.polls_needed = 0
        yield served


class Night:
    """One output folder, whose run is given up and begun again as often as a test wants."""

    def __init__(
        self, endpoint: BatchEndpoint, folder: Path, batch: bool | str = True, **extra: Any
    ) -> None:
        self.screen = io.StringIO()
        target = {
            "url": endpoint.url,
            "model_id": "m",
            "api_key": "K",
            "batch": batch,
            "headers": {"Data-Class": "confidential"},
        }
        document = {
            "config": {
                "type": "sample_medical_qa",
                "output_dir": str(folder),
                "params": {"max_retries": 2, "extra": extra},
            },
            "target": {"api_endpoint": target},
        }
        evaluation = build_evaluation(RunRequest(document=document), load_framework(), {})
        self.plan = make_plan(evaluation)
        folder.mkdir(exist_ok=True)
        self.rundir = RunDir(folder)
        self.context = RunContext(
            self.rundir,
            None,  # type: ignore[arg-type] # nobody else is there
            {"K": KEY},
            Redactor([KEY]),
            logging.getLogger("night"),
            self.screen,
        )
        self.ledger = BatchLedger(self.rundir.batches)

    def batches(self, choice: BatchChoice = NOTHING_SAID) -> Batches:
        found = batches_of(self.context, self.plan, choice, Budget())
        assert found is not None
        return found

    def want(self, numbers: Any = range(REQUESTS)) -> None:
        """Note, as helm-run would, those of these requests that nothing came to."""
        for number in numbers:
            replies = self.ledger.replies(str(number))
            if not any(reply.status == 200 for reply in replies):
                body = {"model": "m", "messages": [{"role": "user", "content": f"q{number}"}]}
                self.ledger.add_waiting(
                    [
                        {
                            "key": str(number),
                            "role": "model",
                            "body": json.dumps(body),
                            "prompt_tokens": 10,
                            "output_tokens": 5,
                        }
                    ]
                )

    def go(self, choice: BatchChoice = NOTHING_SAID) -> None:
        """The same command: until every request has an answer."""
        known = self.batches(choice)
        try:
            known.begin()
            for _ in range(5):
                self.want()
                if not self.ledger.waiting():
                    return
                known.send_and_wait()
            raise AssertionError("five batches were not enough")
        finally:
            known.close()

    @property
    def answered(self) -> set[str]:
        numbers = map(str, range(REQUESTS))
        return {
            key for key in numbers if any(reply.status == 200 for reply in self.ledger.replies(key))
        }


@pytest.fixture
def night(endpoint: BatchEndpoint, tmp_path: Path) -> Night:
    return Night(endpoint, tmp_path / "out")


ALL = {str(number) for number in range(REQUESTS)}


def test_a_batch_brings_all_answers(night: Night, endpoint: BatchEndpoint) -> None:
    night.go()
    assert night.answered == ALL
    assert Counter(endpoint.sent_lines) == Counter(ALL)
    assert {headers["Data-Class"] for headers in endpoint.call_headers} == {"confidential"}
    assert {headers["Authorization"] for headers in endpoint.call_headers} == {f"Bearer {KEY}"}
    (batch,) = endpoint.batches.values()
    assert batch.metadata["eval_factory_run"] == night.plan.identity
    assert [line["url"] for line in batch.lines] == ["/v1/chat/completions"] * REQUESTS
    assert KEY not in night.screen.getvalue()
    assert KEY.encode() not in night.rundir.batches.read_bytes()


STEPS = [
    (BatchLedger, "intend", "before"),
    (BatchLedger, "intend", "after"),
    (BatchApi, "upload", "after"),
    (BatchLedger, "uploaded", "after"),
    (BatchApi, "create", "after"),
    (BatchLedger, "sent", "after"),
    (BatchApi, "status", "after"),
    (BatchApi, "lines", "before"),
    (BatchLedger, "end", "before"),
    (BatchLedger, "end", "after"),
]


@pytest.mark.parametrize(("owner", "name", "when"), STEPS)
def test_nothing_is_paid_twice_whatever_dies_when(
    owner: type,
    name: str,
    when: str,
    night: Night,
    endpoint: BatchEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = getattr(owner, name)

    def dies(*arguments: Any, **named: Any) -> Any:
        if when == "after":
            done(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(Killed):
            night.go()
    night.go()
    assert night.answered == ALL
    assert Counter(endpoint.sent_lines) == Counter(ALL)


def die_before_creating(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """The intent says that the batch is being made, and the endpoint never hears of it."""

    def dies(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(BatchApi, "create", dies)
        with pytest.raises(Killed):
            night.go()


def test_a_batch_that_nobody_can_tell_of_is_not_sent_by_itself(
    night: Night, endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_before_creating(night, monkeypatch)
    with pytest.raises(PrerequisiteError, match=naming("--batch_id", "--resend")):
        night.go()
    assert not endpoint.batches
    night.go(BatchChoice(resend=True))
    assert Counter(endpoint.sent_lines) == Counter(ALL)


def test_a_list_with_metadata_shows_that_a_batch_was_not_made(
    night: Night, endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.batches["batch_77"] = StoredBatch("batch_77", [], {"of": "somebody else"})
    die_before_creating(night, monkeypatch)
    night.go()
    assert Counter(endpoint.sent_lines) == Counter(ALL)


@pytest.mark.parametrize("lacks", ["keeps_metadata", "lists"])
def test_a_batch_is_taken_by_the_id_that_the_user_gives(
    lacks: str, night: Night, endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    setattr(endpoint, lacks, False)
    create = BatchApi.create

    def dies(*arguments: Any) -> None:
        create(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(BatchApi, "create", dies)
        with pytest.raises(Killed):
            night.go()
    with pytest.raises(PrerequisiteError):
        night.go()
    night.go(BatchChoice(batch_id="batch_1"))
    assert night.answered == ALL
    assert Counter(endpoint.sent_lines) == Counter(ALL)


@pytest.mark.parametrize("how", ["expired", "cancelled"])
def test_what_an_ended_batch_left_is_asked_in_another(
    how: str, night: Night, endpoint: BatchEndpoint
) -> None:
    endpoint.ends = [how]
    night.go()
    assert night.answered == ALL
    rest = {line["custom_id"] for line in endpoint.batches["batch_2"].lines}
    assert rest == {"4", "5", "6", "7"}


def test_a_helm_run_with_single_requests_has_an_id_that_no_other_has(
    endpoint: BatchEndpoint, tmp_path: Path
) -> None:
    """The price is kept by that id, and a single request costs more than one in a batch."""
    price = {"model_id": "m", "input_per_million": 10.0, "output_per_million": 10.0}
    prices = [{**price, "batch_discount": 0.5}]
    night = Night(endpoint, tmp_path / "out", batch="fallback", prices=prices)
    endpoint.ends = ["expired"]
    asked: list[tuple[str | None, bool, float | None]] = []
    wanted = [range(4), range(4), range(4, 8), ()]

    def run(settings: HelmRunSettings) -> EndedHelmRun:
        known = settings.prices or {}
        paid = known["model"].input_per_million if known else None
        asked.append((settings.run_id, settings.sends_singly, paid))
        night.want(wanted[len(asked) - 1])
        awaited = [{"event": BATCHES_AWAITED}] if night.ledger.waiting() else []
        return EndedHelmRun(f"run {len(asked)}", 0.0, 0, (), tuple(awaited))

    known = night.batches()
    try:
        ended = known.run_helm(run, HelmRunSettings())
    finally:
        known.close()
    assert asked == [
        (None, False, None),
        ("run 1", False, 5.0),
        (None, True, 10.0),
        (None, False, 5.0),
    ]
    assert ended.run_id == "run 4"


def test_lines_that_failed_are_asked_again(night: Night, endpoint: BatchEndpoint) -> None:
    endpoint.line_status = lambda prompt, batch: 500 if (prompt, batch) == ("q3", 1) else 200
    night.go()
    assert night.answered == ALL
    assert [len(batch.lines) for batch in endpoint.batches.values()] == [REQUESTS, 1]
    assert [reply.status for reply in night.ledger.replies("3")] == [500, 200]


def test_results_may_come_in_any_order(night: Night, endpoint: BatchEndpoint) -> None:
    endpoint.answer = lambda prompt: f"to {prompt}"
    endpoint.change_output = lambda lines: lines[::-1]
    night.go()
    for key in ALL:
        (reply,) = night.ledger.replies(key)
        assert f"to q{key}" in reply.data


def test_lines_twice_and_of_nobody_are_left_out(night: Night, endpoint: BatchEndpoint) -> None:
    def changed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        twice = {**lines[0], "response": {"status_code": 200, "body": {"choices": []}}}
        return [*lines, twice, {**lines[1], "custom_id": "of nobody"}]

    endpoint.change_output = changed
    night.go()
    assert night.answered == ALL
    (reply,) = night.ledger.replies("0")
    assert '"content": "B"' in reply.data
    assert night.screen.getvalue().count("warning") == 2


@pytest.mark.parametrize("status", [429, 498])
def test_a_busy_endpoint_is_asked_again(night: Night, endpoint: BatchEndpoint, status: int) -> None:
    calls = Counter[str]()

    def before(method: str, path: str) -> int | None:
        calls[path] += 1
        return status if path == "/v1/files" and calls[path] == 1 else None

    endpoint.before = before
    night.go()
    assert night.answered == ALL
    assert Counter(endpoint.sent_lines) == Counter(ALL)


def test_a_busy_endpoint_is_asked_again_to_make_a_batch(
    night: Night, endpoint: BatchEndpoint
) -> None:
    calls = Counter[tuple[str, str]]()

    def before(method: str, path: str) -> int | None:
        calls[method, path] += 1
        is_first = calls[method, path] == 1
        return 429 if (method, path) == ("POST", "/v1/batches") and is_first else None

    endpoint.before = before
    night.go()
    assert Counter(endpoint.sent_lines) == Counter(ALL)


def test_answers_that_were_paid_and_are_not_there_are_not_paid_again(
    night: Night, endpoint: BatchEndpoint
) -> None:
    endpoint.change_output = lambda lines: lines[:5]
    for _ in range(2):
        with pytest.raises(PrerequisiteError, match=naming("--resend")):
            night.go()
    assert len(endpoint.batches) == 1
    endpoint.change_output = lambda lines: lines
    night.go(BatchChoice(resend=True))
    assert night.answered == ALL


def test_an_id_of_another_batch_is_refused(
    night: Night, endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.lists = False
    of_another = {"eval_factory_intent": "of another run"}
    endpoint.batches["batch_77"] = StoredBatch("batch_77", [{}] * REQUESTS, of_another)
    endpoint.batches["batch_78"] = StoredBatch("batch_78", [{}], {})
    die_before_creating(night, monkeypatch)
    for named in ("batch_77", "batch_78"):
        with pytest.raises(PrerequisiteError, match=naming(named)):
            night.go(BatchChoice(batch_id=named))
    assert len(endpoint.batches) == 2


def test_open_batches_are_not_forgotten(night: Night, endpoint: BatchEndpoint) -> None:
    batches.refuse_to_forget_batches(night.rundir)
    night.want()
    known = night.batches()
    known._sender.send(known._sender.record_intent("model", night.ledger.waiting()))
    with pytest.raises(ConfigError, match=naming("--fresh", "--cancel_batches")):
        batches.refuse_to_forget_batches(night.rundir)
    one_by_one = replace(night.plan, model=replace(night.plan.model, batch=False))
    without = batches_of(night.context, one_by_one, NOTHING_SAID, Budget())
    assert without is not None
    with pytest.raises(ConfigError, match=naming("batch: true", "--cancel_batches")):
        without.begin()
    night.go()
    batches.refuse_to_forget_batches(night.rundir)
    assert batches_of(night.context, one_by_one, NOTHING_SAID, Budget()) is None
    assert len(endpoint.batches) == 1


def test_polls_outlive_a_silent_endpoint(night: Night, endpoint: BatchEndpoint) -> None:
    polls = Counter[str]()

    def before(method: str, path: str) -> int | None:
        if method == "GET" and path.startswith("/v1/batches/"):
            polls[path] += 1
            return 503 if polls[path] < 6 else None
        return None

    endpoint.before = before
    night.go()
    assert Counter(endpoint.sent_lines) == Counter(ALL)


def test_a_batch_whose_making_failed_in_doubt_is_looked_for(
    night: Night, endpoint: BatchEndpoint
) -> None:
    endpoint.before = lambda method, path: (
        502 if (method, path) == ("POST", "/v1/batches") else None
    )
    with pytest.raises(EndpointUnreachableError):
        night.go()
    endpoint.before = lambda _method, _path: None
    with pytest.raises(PrerequisiteError):
        night.go()


def test_a_batch_that_vanishes_is_sent_again_only_where_the_user_says_so(
    night: Night, endpoint: BatchEndpoint
) -> None:
    is_gone = [True]
    endpoint.before = lambda _method, path: (
        404 if path == "/v1/batches/batch_1" and is_gone else None
    )
    with pytest.raises(PrerequisiteError, match=naming("--resend")):
        night.go()
    with pytest.raises(PrerequisiteError):
        night.go()
    assert len(endpoint.batches) == 1
    night.go(BatchChoice(resend=True))
    assert night.answered == ALL
    assert len(endpoint.batches) == 2


def test_more_than_a_file_may_hold_goes_in_several(
    night: Night, endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sending, "MAX_REQUESTS", 3)
    night.go()
    assert [len(batch.lines) for batch in endpoint.batches.values()] == [3, 3, 2]
    assert Counter(endpoint.sent_lines) == Counter(ALL)


def test_a_file_holds_no_more_bytes_than_it_may(
    night: Night, endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sending, "MAX_BYTES", 400)
    night.go()
    assert night.answered == ALL
    assert all(len(batch.lines) <= 3 for batch in endpoint.batches.values())
    monkeypatch.setattr(batch_sending, "MAX_BYTES", 20)
    night.ledger.add_waiting(
        [{"key": "x", "role": "model", "body": "{}", "prompt_tokens": 1, "output_tokens": 1}]
    )
    with pytest.raises(PrerequisiteError):
        night.batches().send_and_wait()


def test_a_batch_beyond_the_queue_is_halved(night: Night, endpoint: BatchEndpoint) -> None:
    endpoint.max_lines = 3
    night.go()
    assert night.answered == ALL
    done = [len(batch.lines) for batch in endpoint.batches.values() if batch.refusal is None]
    assert sum(done) == REQUESTS
    assert max(done) <= 3


def test_a_batch_that_is_refused_ends_the_run(night: Night, endpoint: BatchEndpoint) -> None:
    made = endpoint._made

    def refused(wanted: dict[str, Any]) -> dict[str, Any]:
        shown = made(wanted)
        endpoint.batches[shown["id"]].refusal = ("invalid_model", "no such model")
        return shown

    endpoint._made = refused  # type: ignore[method-assign]
    with pytest.raises(PrerequisiteError, match=naming("invalid_model", "no such model")):
        night.go()


def test_no_batch_is_sent_beyond_what_it_may_cost(endpoint: BatchEndpoint, tmp_path: Path) -> None:
    row = {"model_id": "m", "input_per_million": 100_000, "output_per_million": 0}
    night = Night(endpoint, tmp_path / "out", max_cost=4.5, prices=[row])
    night.want()
    known = night.batches()
    known.send_and_wait()
    assert len(endpoint.sent_lines) == 4
    night = Night(endpoint, tmp_path / "less", max_cost=0.5, prices=[row])
    night.want()
    with pytest.raises(NotReportableError, match=naming("max_cost")):
        night.batches().send_and_wait()
    assert len(endpoint.sent_lines) == 4
    half = {**row, "batch_discount": 0.5}
    night = Night(endpoint, tmp_path / "half", max_cost=0.5, prices=[half])
    night.want()
    night.batches().send_and_wait()
    assert len(endpoint.sent_lines) == 5


def test_an_interrupt_leaves_batches_running(
    night: Night, endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.polls_needed = 10**9

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", interrupted)
        with pytest.raises(InterruptedRunError, match=naming("--cancel_batches")):
            night.go()
    endpoint.polls_needed = 0
    night.go()
    assert Counter(endpoint.sent_lines) == Counter(ALL)


def test_cancelled_batches_keep_what_they_answered(night: Night, endpoint: BatchEndpoint) -> None:
    endpoint.polls_needed = 10**9
    night.want()
    known = night.batches()
    waiting = night.ledger.waiting()
    known._sender.send(known._sender.record_intent("model", waiting))
    (line,) = known.cancel()
    assert "cancelled" in line
    endpoint.polls_needed = 0
    night.go()
    assert night.answered == ALL
    assert Counter(endpoint.sent_lines).most_common(1)[0][1] == 2
    assert sum(Counter(endpoint.sent_lines).values()) == REQUESTS + REQUESTS // 2


def test_an_endpoint_without_batches_is_named(night: Night, endpoint: BatchEndpoint) -> None:
    from eval_factory.plan.preflight import probe

    endpoint.has_batches = False
    context = night.context
    with pytest.raises(EndpointRefusedError, match=naming("target.api_endpoint.batch")):
        probe(night.plan.model, context.env, context.redactor, context.log.info)
    endpoint.has_batches = True
    assert probe(night.plan.model, context.env, context.redactor, context.log.info) is None
    assert endpoint.requests == []
    assert endpoint.probes == 0
