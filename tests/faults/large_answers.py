"""Asks for many large answers at once, in a process of its own: run by test_wire.py.

python tests/faults/large_answers.py loop|thread URL

Prints the most memory that it ever had, before and after, in MiB, and what came of the questions.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from eval_factory.core.bridge import map_at_once
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.openai_api import Adapter
from eval_factory.endpoint.replies import RequestFailed
from eval_factory.endpoint.retrying_client import RetryingClient
from eval_factory.endpoint.servers import servers_of

AT_ONCE = 12


def most_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))


def main(way: str, url: str) -> None:
    settings = EndpointSettings(
        role="model", url=url, model_id="m", endpoint_type="chat", key_names=(), request_timeout=120.0, max_retries=0,
        parallelism=AT_ONCE, adapter=Adapter({}, [], {}, None, "<think>", "</think>"),
    )  # fmt: skip
    redactor = Redactor(["a-key-that-is-known-0123"])
    servers = servers_of(settings, env={}, redactor=redactor, say=print, has_answered=True)
    servers.all[0].is_patient = False
    client = RetryingClient(settings, servers)

    def ask(number: int) -> str:
        try:
            body = {"model": "m", "messages": [{"role": "user", "content": str(number)}]}
            return client.ask(body, lambda *_: None).completion.choices[0].text
        except RequestFailed as failed:
            return str(failed)

    before = most_memory()
    if way == "loop":
        came = map_at_once(ask, range(1, AT_ONCE + 1), AT_ONCE)
    else:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            came = list(threads.map(ask, range(1, AT_ONCE + 1)))
    print(json.dumps({"before": before, "after": most_memory(), "came": Counter(came), "then": ask(0)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
