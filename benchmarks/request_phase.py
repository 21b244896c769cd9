#!/usr/bin/env python3
"""Measures the CPU time of a request in HELM's executor and eval-factory's client.

With --before, another checkout is measured too, in turns with this one. The endpoint is a process
of its own (`endpoint.py`). CPU time can be compared even if other programs use the machine. But
requests per second can only be compared between two checkouts that take turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from throughput import endpoint
from tools import invented_data

HERE = Path(__file__).resolve().parent
PLAIN: dict[str, Any] = {
    "params_to_add": {},
    "params_to_remove": [],
    "params_to_rename": {},
    "custom_system_prompt": None,
}
MARKS = {"start_reasoning_token": "<think>", "end_reasoning_token": "</think>"}


def ask(url: str, count: int, concurrency: int) -> str:
    """Send requests, and return a line with two figures.

    They are the CPU time of a request in milliseconds, and the requests per second.

    Args:
        url: the URL of the endpoint.
        count: the number of requests.
        concurrency: the number of requests at the same time.
    """
    from helm.benchmark import executor
    from helm.common.request import Request

    from eval_factory.core.rundir import RunDir
    from eval_factory.core.this_process import collect_garbage_rarely
    from eval_factory.helm_plugin.client import EndpointClient

    collect_garbage_rarely()
    patches = "eval_factory.helm_plugin.patches."
    # Earlier checkouts, without this patch, send requests from HELM's threads.
    if find_spec(f"{patches}lighter") or find_spec(f"{patches}speed"):
        import_module("eval_factory.helm_plugin.patches.patch_registry").patch_named(
            "asked_in_one_thread"
        ).apply()
    prompts = [f"{row['CONTEXTS']} {row['QUESTION']}" for row in invented_data(count).values()]
    requests = [
        Request(model_deployment="m/m", model="m/m", prompt=prompt, max_tokens=1)
        for prompt in prompts
    ]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "logs").mkdir()
        client = EndpointClient(
            cache_db=str(RunDir(Path(folder)).cache_db),
            role="model",
            url=f"{url}/v1",
            model_id="bench",
            endpoint_type="chat",
            key_names=[],
            parallelism=concurrency,
            max_retries=5,
            request_timeout=60,
            adapter={**PLAIN, **MARKS},
        )
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.perf_counter()
        results = executor.parallel_map(client.make_request, requests, parallelism=concurrency)
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_SELF)
    assert all(result.success for result in results)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{1000 * cpu / count} {count / wall}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--concurrency", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:  # This process was started by the code below.
        print(ask(options.ask, options.requests, options.concurrency))
        return
    checkouts = {"now": HERE.parent}
    if options.before:
        checkouts["before"] = options.before.resolve()
    figures: dict[str, list[list[float]]] = {version: [] for version in checkouts}
    for _ in range(options.repeat):
        for version, checkout in checkouts.items():
            with endpoint(options.latency_ms) as url:
                argv = [sys.executable, __file__, "--ask", url]
                argv += ["--requests", str(options.requests)]
                argv += ["--concurrency", str(options.concurrency)]
                env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
                finished = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
            figures[version].append([float(number) for number in finished.stdout.split()])
    print("| version | CPU of a request | requests/s |\n|---|---|---|")
    for version, rows in figures.items():
        cpu, rate = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {version} | {cpu:.2f} ms | {rate:.0f} |")


if __name__ == "__main__":
    main()
