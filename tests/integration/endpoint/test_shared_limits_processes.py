"""One limit for several processes, as the endpoint itself counts."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.endpoint.endpoint_settings import EndpointLimits
from eval_factory.endpoint.shared_limits import LimitServer
from program_runs import TIMEOUT_S, program_environment, varied_answer, wait_until
from scripted_endpoint import ADAPTER, ScriptedEndpoint

ASKS = """
import json, sys, threading
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.retrying_client import RetryingClient
from eval_factory.endpoint.servers import make_servers
from eval_factory.endpoint.shared_limits import SharedLimits

shared, args, prompts = json.loads(sys.argv[1])
settings = EndpointSettings.from_args(args)
limits = SharedLimits(SharedLimitsSettings(**shared))
servers = make_servers(
    settings, env={}, redactor=Redactor(), say=print, shared_admission=limits.admission
)
client = RetryingClient(settings, servers)

def ask(prompt):
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 5}
    print(client.ask(body, lambda *_: None).completion.choices[0].text, flush=True)

threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""

EVALUATES = """
import json, os, sys
from eval_factory.config.evaluation import RunRequest
from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.workflows.evaluate import evaluate
from eval_factory.workflows.options import Options

shared, document = json.loads(sys.argv[1])
options = Options(limits=SharedLimitsSettings(**shared))
evaluate(RunRequest(document=document), options, env=os.environ, screen=sys.stderr)
"""


class CountingEndpoint(ScriptedEndpoint):
    """Knows how many it answers at once, probes among them; an answer takes a while, or until it is told."""

    def __init__(self) -> None:
        super().__init__(self._slowly)
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go = threading.Event()
        self._counting = threading.Lock()

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        kind = body["messages"][-1]["content"].split()[0]
        kind = kind if kind == "held" else "all"
        with self._counting:
            self.inside[kind] += 1
            self.most[kind] = max(self.most[kind], self.inside[kind])
        try:
            return super().reply(path, headers, body)
        finally:
            with self._counting:
                self.inside[kind] -= 1

    def _slowly(self, prompt: str) -> str:
        if prompt.startswith("held"):
            self.go.wait(60)
        else:
            time.sleep(0.03)
        return varied_answer(prompt)


@pytest.fixture
def counting() -> Iterator[CountingEndpoint]:
    with CountingEndpoint() as endpoint:
        try:
            yield endpoint
        finally:
            endpoint.go.set()


@contextmanager
def process(script: str, argument: Any) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", script, json.dumps(argument)]
    env = program_environment(TEST_MODEL_KEY="a-key-of-some-length")
    with subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def test_a_killed_process_gives_its_places_back_and_the_others_keep_the_limit(
    counting: CountingEndpoint,
) -> None:
    args = {
        "role": "model",
        "url": counting.url,
        "model_id": "m",
        "endpoint_type": "chat",
        "key_names": [],
        "request_timeout": 60,
        "max_retries": 0,
        "parallelism": 16,
        "adapter": ADAPTER,
    }
    with LimitServer({"g": EndpointLimits(3)}) as server, ExitStack() as stack:
        shared = vars(SharedLimitsSettings(server.address, {"model": "g"}))
        killed = stack.enter_context(
            process(ASKS, [shared, args, [f"held {number}" for number in range(6)]])
        )
        wait_until(lambda: counting.inside["held"] == 3)
        others = [
            stack.enter_context(
                process(ASKS, [shared, args, [f"{name} {number}" for number in range(16)]])
            )
            for name in ("one", "two")
        ]
        time.sleep(1)  # they wait, all their threads
        assert counting.most == {"held": 3}
        killed.kill()
        told = [other.communicate(timeout=60) for other in others]
        assert [other.returncode for other in others] == [0, 0], told
        assert [len(output.split()) for output, _ in told] == [16, 16]
        # the endpoint still works for the killed one: it gave nothing back
        assert counting.inside["held"] == 3
    assert counting.most == {"held": 3, "all": 3}
    assert len(counting.requests) == 3 + 32


def test_two_runs_ask_one_endpoint_within_its_limit(
    counting: CountingEndpoint, tmp_path: Path
) -> None:
    instances = 10
    at_once = 2
    with LimitServer({"g": EndpointLimits(at_once)}) as server, ExitStack() as stack:
        shared = vars(SharedLimitsSettings(server.address, {"model": "g"}))
        params = {"limit_samples": instances, "parallelism": 8}
        target = {"url": counting.url, "model_id": "m", "type": "chat", "api_key": "TEST_MODEL_KEY"}
        documents = [
            {
                "config": {
                    "type": "sample_medical_qa",
                    "output_dir": str(tmp_path / name),
                    "params": params,
                },
                "target": {"api_endpoint": target},
            }
            for name in ("one", "two")
        ]
        runs = [
            stack.enter_context(process(EVALUATES, [shared, document])) for document in documents
        ]
        told = [run.communicate(timeout=TIMEOUT_S) for run in runs]
        assert [run.returncode for run in runs] == [0, 0], told
    assert counting.probes == 2
    assert len(counting.requests) == 2 * instances
    assert counting.most == {"all": at_once}
    results = [
        yaml.safe_load((tmp_path / name / "evaluation_config.yaml").read_text("utf-8"))
        for name in ("one", "two")
    ]
    assert results[0]["results"] == results[1]["results"]
    assert results[0]["validity"]["instances"]["scored"] == instances
    written = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and server.address.encode() in path.read_bytes()
    ]
    assert written == []  # it ended with them
