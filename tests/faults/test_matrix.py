"""The fault matrix: the real program and helm-run against an endpoint that misbehaves.

Every row of a table is one fault of one instance; a run has all rows of its table at once, so that they also meet.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from facts import says
from fault_endpoint import FOR_EVER, Fault, FaultEndpoint
from loopback import Handler, Loopback
from program_runs import CANARY, Outcome, more_data
from programs import holding, outcome_of, ran, run_eval

TASK = "sample_medical_qa"
BODY_CANARY = "nvapi-canary-in-an-error-body-0123"
PROXY_CANARY = "proxy-canary-password"
INSTANCES = 40
TIMEOUT_S = 180


def command(folder: Path, url: str, **params: Any) -> list[str]:
    overrides = ",".join(f"config.params.{name}={value}" for name, value in params.items())
    return run_eval(
        folder,
        url,
        "--api_key_name",
        "TEST_MODEL_KEY",
        *(["--overrides", overrides] if overrides else []),
    )


def environment() -> dict[str, str]:
    proxy = f"http://user:{PROXY_CANARY}@127.0.0.1:9"
    return {"TEST_MODEL_KEY": CANARY, "HTTP_PROXY": proxy, "NO_PROXY": "127.0.0.1"}


def run(
    folder: Path, endpoint: FaultEndpoint, env: Mapping[str, str] | None = None, **params: Any
) -> Outcome:
    outcome = outcome_of(
        ran(command(folder, endpoint.url, **params), env={**environment(), **(env or {})}), folder
    )
    assert "Traceback" not in outcome.stderr
    secrets = (CANARY, BODY_CANARY, PROXY_CANARY)
    assert not any(secret in outcome.stdout + outcome.stderr for secret in secrets)
    assert holding(folder, *secrets) == []
    return outcome


def lines(outcome: Outcome) -> list[tuple[str, dict[str, Any]]]:
    """(prompt, line of results.jsonl) of every instance."""
    instances = (outcome.output_dir / "instances.jsonl").read_text("utf-8").splitlines()
    results = [
        json.loads(line)
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    ]
    prompts = [json.loads(line)["prompt"] for line in instances]
    return list(zip(prompts, results, strict=True))


PASSING_FAULTS = [
    *(Fault(status, tries=2) for status in (408, 409, 425, 429, 500, 502, 503, 504, 520, 524, 529)),
    Fault(429, headers={"Retry-After": "1"}),
    Fault(503, headers={"Retry-After": "DATE"}),
    Fault(429, headers={"Retry-After": "soon"}),
    *(
        Fault(kind, tries=2)
        for kind in ("closes", "wrong length", "error in 200", "provider error", "aborted")
    ),
    *(Fault(kind) for kind in ("not json", "html", "no choices", "null message", "no message")),
    *(Fault(kind) for kind in ("deep", "broken gzip")),
    Fault("no http"),
    Fault("hangs"),
    Fault("byte by byte"),
    Fault("header byte by byte"),
]


def test_what_another_try_resolves_costs_nothing(tmp_path: Path) -> None:
    with FaultEndpoint([*PASSING_FAULTS, None], BODY_CANARY) as endpoint:
        outcome = run(tmp_path / "out", endpoint, request_timeout=4, parallelism=16)
        assert outcome.returncode == 0, outcome.stderr
        for prompt, line in lines(outcome):
            fault = endpoint.fault_for(prompt)
            assert line["completion"] == "B", fault
            assert endpoint.seen[prompt] == 1 + (fault.tries if fault else 0), fault
        document = outcome.document()
        assert document["validity"]["instances"]["scored"] == INSTANCES
        assert document["usage"]["requests"] == sum(endpoint.seen.values())
        assert document["usage"]["retries"] == sum(endpoint.seen.values()) - INSTANCES


READ = [
    Fault(kind, FOR_EVER) for kind in ("length and chunks", "line feeds", "not finite", "a stream")
]
MALFORMED = [Fault(kind, FOR_EVER) for kind in ("two lengths", "broken gzip", "no http")]


def test_what_no_retry_mends_is_not_paid_again_and_again(tmp_path: Path) -> None:
    """And what other clients read is read at once."""
    with FaultEndpoint([*READ, None, *MALFORMED, None, None], BODY_CANARY) as endpoint:
        outcome = run(tmp_path / "out", endpoint, parallelism=8)
        assert outcome.returncode == 1, outcome.stderr
        for prompt, line in lines(outcome):
            fault = endpoint.fault_for(prompt)
            malformed = fault in MALFORMED
            assert line["completion"] == (None if malformed else "B"), fault
            assert endpoint.seen[prompt] == 1 + malformed, fault
            assert ("2 times at most" in str(line["error"])) is malformed


@pytest.mark.parametrize("kind", ["twice", "twice with another id"])
def test_an_answer_that_comes_twice_answers_one_question(kind: str, tmp_path: Path) -> None:
    with FaultEndpoint([Fault(kind, FOR_EVER)], BODY_CANARY) as endpoint:
        endpoint.good = lambda prompt: str(zlib.crc32(prompt.encode()))
        endpoint.delay_s = 0.01
        outcome = run(tmp_path / "out", endpoint, parallelism=2, max_retries=0)
        for prompt, line in lines(outcome):
            assert line["completion"] == endpoint.good(prompt), outcome.stderr
        assert sum(endpoint.seen.values()) >= INSTANCES
        assert max(endpoint.seen.values()) <= 2


def test_answers_that_were_shifted_unseen_are_asked_for_once_more(tmp_path: Path) -> None:
    """One answer comes twice with a fresh id; then each is the answer to the question before."""
    faults: list[Fault | None] = [None] * 5
    with FaultEndpoint([*faults, Fault("twice with another id"), *faults], BODY_CANARY) as endpoint:
        endpoint.good = lambda prompt: str(zlib.crc32(prompt.encode()))
        endpoint.delay_s = 0.05
        outcome = run(tmp_path / "out", endpoint, parallelism=2, max_retries=0)
        for prompt, line in lines(outcome):
            assert line["completion"] == endpoint.good(prompt), outcome.stderr
        assert "more answers than" in outcome.stderr
        assert max(endpoint.seen.values()) == 2
        assert sum(endpoint.seen.values()) > INSTANCES


REFUSED = [Fault(status, FOR_EVER) for status in (202, 400, 403, 404, 413, 422, 501)]
LOST = ("closes", "not json", "no choices", "provider error", "null message")
GIVEN_UP = [Fault(kind, FOR_EVER) for kind in (500, *LOST)]


def test_what_no_try_resolves_costs_one_instance(tmp_path: Path) -> None:
    """What is refused is asked once; what is lost, again."""
    faults = [*REFUSED, None, *GIVEN_UP, None]
    with FaultEndpoint(faults, BODY_CANARY) as endpoint:
        outcome = run(tmp_path / "out", endpoint, max_retries=1, parallelism=8)
        assert outcome.returncode == 1, outcome.stderr
        for prompt, line in lines(outcome):
            fault = endpoint.fault_for(prompt)
            assert (line["completion"] is None) is bool(line["error"]) is (fault is not None)
            assert "unexpected" not in str(line["error"])
            assert endpoint.seen[prompt] == (2 if fault in GIVEN_UP else 1)
        counts = outcome.document()["validity"]["instances"]
        failed = sum(endpoint.fault_for(prompt) is not None for prompt, _ in lines(outcome))
        assert (counts["failed"], counts["scored"]) == (failed, INSTANCES - failed)


KINDS = [
    "null",
    "reasoning only",
    "thinks",
    "cut thinking",
    "cut off",
    "filtered",
    "two megabytes",
    "half a surrogate pair",
    "odd usage",
    None,
]


def test_every_kind_of_answer_is_counted_under_its_name(tmp_path: Path) -> None:
    faults = [Fault(kind, FOR_EVER) if kind else None for kind in KINDS]
    with FaultEndpoint(faults, BODY_CANARY) as endpoint:
        outcome = run(tmp_path / "out", endpoint, parallelism=8)
        assert outcome.returncode == 1, outcome.stderr
        says(outcome.stderr, "cannot read")
        each = INSTANCES // len(KINDS)
        counts = outcome.document()["validity"]["instances"]
        assert counts == {
            "requested": INSTANCES,
            "scored": INSTANCES,
            "failed": 0,
            "empty": 3 * each,
            "truncated": 2 * each,
            "filtered": each,
            "unjudged": 0,
            "unparsed": each,
            "refused": 0,
            "thinking_stripped": 2 * each,
            "thinking_unfinished": each,
            "prompt_truncated": 0,
            "identical": 0,
            "unreadable": 4 * each,
        }
        scored = {
            "null": "",
            "reasoning only": "",
            "thinks": "B",
            "cut thinking": "",
            "cut off": "B",
            "filtered": "",
            "two megabytes": "B",
            "half a surrogate pair": "B \N{REPLACEMENT CHARACTER}",
            "odd usage": "B",
        }
        for prompt, line in lines(outcome):
            fault = endpoint.fault_for(prompt)
            assert line["completion"].strip() == (scored[str(fault.kind)] if fault else "B"), fault
        raw = (outcome.output_dir / "responses" / "model.jsonl").read_text("utf-8")
        assert "<think>A? No, not A.</think>" in raw


def test_an_endpoint_that_restarts_costs_nothing(tmp_path: Path) -> None:
    with FaultEndpoint([None], BODY_CANARY) as endpoint:
        endpoint.delay_s = 0.05
        died = endpoint.die_after(12)

        def restart() -> None:
            died.join()
            time.sleep(2)
            endpoint.come_back()

        restarted = threading.Thread(target=restart)
        restarted.start()
        outcome = run(tmp_path / "out", endpoint, max_retries=3)
        restarted.join()
    assert outcome.returncode == 0, outcome.stderr
    document = outcome.document()
    assert document["validity"]["instances"]["scored"] == INSTANCES
    assert document["usage"]["retries"] > 0


IMPATIENT = """
import importlib.util

if importlib.util.find_spec("eval_factory"):
    from eval_factory.endpoint import failure_counts

    failure_counts.OUTAGE_S = 1.0
"""


def test_an_endpoint_that_dies_stops_the_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "impatient").mkdir()
    (tmp_path / "impatient" / "sitecustomize.py").write_text(IMPATIENT)
    env = {"PYTHONPATH": str(tmp_path / "impatient")}
    with FaultEndpoint([None], BODY_CANARY) as endpoint:
        endpoint.delay_s = 0.05
        died = endpoint.die_after(12)
        outcome = run(tmp_path / "out", endpoint, env, max_retries=1)
        died.join()
        assert outcome.returncode == 3, outcome.stderr
        says(outcome.stderr, "no longer answers", "no connection")
        says(outcome.stderr, "same command goes on")
        answered = sum(endpoint.seen.values())
        assert 12 <= answered < INSTANCES
        endpoint.come_back()
        again = run(tmp_path / "out", endpoint, max_retries=1)
        assert again.returncode == 0, again.stderr
        # What was under way when it died may be asked again.
        assert sum(endpoint.seen.values()) <= INSTANCES + 4
        assert again.document()["validity"]["instances"]["scored"] == INSTANCES


class Wary(Handler):
    """A proxy that wants a login."""

    def reply(self) -> None:
        self.body()
        self.answer(407)


@pytest.mark.parametrize(("scheme", "variable"), [("http", "HTTP_PROXY"), ("https", "https_proxy")])
@pytest.mark.parametrize("arguments", [("--no_preflight",), *more_data(())])
def test_a_proxy_that_wants_a_login(
    scheme: str, variable: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    with Loopback(Wary) as proxy:
        address = proxy.origin.replace("//", f"//user:{PROXY_CANARY}@")
        argv = [*command(tmp_path / "out", f"{scheme}://endpoint.invalid/v1"), *arguments]
        finished = ran(argv, env={"TEST_MODEL_KEY": CANARY, variable: address})
    assert finished.returncode == 3, finished.stderr
    assert "407" in finished.stderr
    assert f"check the variable {variable}" in finished.stderr
    assert PROXY_CANARY not in finished.stdout + finished.stderr


def test_under_lasting_429_fewer_go_on_at_once_and_then_more_again(tmp_path: Path) -> None:
    with FaultEndpoint([None], BODY_CANARY) as endpoint:
        endpoint.room = 2
        endpoint.wide_after = 10
        endpoint.delay_s = 0.2
        outcome = run(tmp_path / "out", endpoint, parallelism=16, max_retries=10)
        assert outcome.returncode == 0, outcome.stderr
        assert outcome.document()["validity"]["instances"]["scored"] == INSTANCES
        arrivals = endpoint.arrivals
    at_first = max(inside for _, inside in arrivals[:16])
    while_narrow = [inside for answered, inside in arrivals if 5 <= answered < 10]
    afterwards = [inside for answered, inside in arrivals if answered >= 20]
    # About 16, then 2, then 5. A busy machine lets a few through late: so what is usual of each time is compared.
    assert median(while_narrow) <= at_first / 2
    assert median(while_narrow) < median(afterwards) <= 0.6 * at_first


BACKWARDS = """
import time

real, start = time.time, time.time()
time.time = lambda: real() - (7200 if real() - start > 1.0 else 0)
"""


def test_a_clock_that_goes_backwards(tmp_path: Path) -> None:
    """Two hours back, a second into each process: what a time server may do to a virtual machine."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(BACKWARDS)
    with FaultEndpoint([Fault(500, tries=1), None], BODY_CANARY) as endpoint:
        straight = run(tmp_path / "straight", endpoint)
        endpoint.seen.clear()
        endpoint.delay_s = 0.05
        for _ in range(2):
            outcome = run(tmp_path / "out", endpoint, {"PYTHONPATH": str(tmp_path / "clock")})
            assert outcome.returncode == 0, outcome.stderr
        assert sum(endpoint.seen.values()) == INSTANCES + INSTANCES // 2
    assert "complete already" in outcome.stderr
    assert outcome.scores() == straight.scores()
    assert outcome.document()["usage"]["wall_s"] > 0
    assert all(line["latency_s"] >= 0 for _, line in lines(outcome))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Any:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs (root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_said_and_what_was_answered_is_kept(tiny_disk: Path) -> None:
    with FaultEndpoint([Fault("two megabytes", FOR_EVER), None], BODY_CANARY) as endpoint:
        outcome = run(tiny_disk / "out", endpoint, parallelism=1)
    assert outcome.returncode == 3, outcome.stderr
    assert "full" in outcome.stderr or "No space" in outcome.stderr
