#!/usr/bin/env python3
"""Measures runs of a model that is served at several URLs.

The runs use one endpoint, three endpoints, and three endpoints of which one is killed.

Each endpoint is a process of its own. Like a GPU, it works on a limited number of requests at the
same time, and lets the others wait. The three kinds of runs take turns, and medians are printed.
The endpoint is killed (SIGKILL) after a third of the requests.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml
from throughput import endpoint_process, get

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from program_runs import program_environment
from several_servers import write_questions

ENV = program_environment(OPENAI_API_KEY="sk-0123456789abcdef0123")
POLL_S = 0.02
Endpoint = tuple[subprocess.Popen[str], str]  # the endpoint's process and URL
ONE = "one URL"
THREE = "three URLs"
KILLED = "three URLs, one killed"
ANSWERING = {ONE: 1, THREE: 3, KILLED: 2}
"""The number of endpoints by which the ideal time is computed. If one of three is killed after a
third of the requests, two do the rest.
"""


@dataclass(frozen=True)
class Ran:
    """The figures of one run."""

    phase_s: float  # the seconds from the first request to the last answer at the endpoints
    wall_s: float  # the seconds of the complete process
    requests: int  # the number of requests that the endpoints received


def run(
    folder: Path,
    benchmark: Path,
    endpoints: Sequence[Endpoint],
    at_once: int,
    *,
    kill_after: int | None,
) -> Ran:
    """Run a benchmark on endpoints, and return the figures.

    Args:
        folder: a new folder for the run.
        benchmark: the file of the benchmark.
        endpoints: the endpoints.
        at_once: the maximum number of requests at the same time.
        kill_after: the number of requests after which the first endpoint is killed; None: it is not
            killed.
    """
    urls = [f"{url}/v1" for _, url in endpoints]
    params = {"parallelism": at_once, "extra": {"benchmark": str(benchmark)}}
    config = {"type": "custom", "output_dir": str(folder / "out"), "params": params}
    target = {"api_endpoint": {"url": urls, "model_id": "m", "type": "chat"}}
    folder.mkdir()
    file = folder / "run.yml"
    file.write_text(yaml.safe_dump({"config": config, "target": target}), encoding="utf-8")
    stats_of_killed: list[dict[str, float]] = []
    killer = threading.Thread(target=kill_one, args=(endpoints, kill_after, stats_of_killed))
    if kill_after is not None:
        killer.start()
    started = time.monotonic()
    finished = subprocess.run(
        [sys.executable, "-m", "eval_factory", "run_eval", "--run_config", str(file)],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.monotonic() - started
    if finished.returncode:
        sys.exit(finished.stdout + finished.stderr)
    if kill_after is not None:
        killer.join()
        endpoints = endpoints[1:]
    stats = [*stats_of_killed, *(get(f"{url}/stats") for _, url in endpoints)]
    first = min(of_endpoint["first"] for of_endpoint in stats)
    last = max(of_endpoint["last"] for of_endpoint in stats)
    requests = sum(of_endpoint["requests"] for of_endpoint in stats)
    return Ran(last - first, wall, int(requests))


def kill_one(endpoints: Sequence[Endpoint], after: int, seen: list[dict[str, float]]) -> None:
    """Kill the first endpoint after this number of requests to all; append its stats to `seen`."""
    while sum(get(f"{url}/stats")["requests"] for _, url in endpoints) < after:
        time.sleep(POLL_S)
    process, url = endpoints[0]
    seen.append(get(f"{url}/stats"))
    process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--latency-ms", type=float, default=500.0)
    parser.add_argument(
        "--at-once", type=int, default=32, help="requests that each endpoint answers at once"
    )
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    count = arguments.instances
    at_once = arguments.at_once
    latency = arguments.latency_ms / 1000
    runs_by_label: dict[str, list[Ran]] = {ONE: [], THREE: [], KILLED: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        benchmark = write_questions(folder / "benchmark", count)
        for turn in range(arguments.repeat):
            for label, runs in runs_by_label.items():
                servers = 1 if label == ONE else 3
                with ExitStack() as stack:
                    endpoints = [
                        stack.enter_context(
                            endpoint_process(arguments.latency_ms, "--at-once", str(at_once))
                        )
                        for _ in range(servers)
                    ]
                    kill_after = count // 3 if label == KILLED else None
                    run_folder = folder / f"{turn}-{len(runs)}-{servers}-{label == KILLED}"
                    runs.append(
                        run(
                            run_folder,
                            benchmark,
                            endpoints,
                            servers * at_once,
                            kill_after=kill_after,
                        )
                    )
    print(
        "| run | requests | request phase | of the ideal | whole process |\n|---|---|---|---|---|"
    )
    for label, runs in runs_by_label.items():
        phase = statistics.median(ran.phase_s for ran in runs)
        wall = statistics.median(ran.wall_s for ran in runs)
        ideal = count / (ANSWERING[label] * at_once / latency)
        requests = max(ran.requests for ran in runs)
        print(f"| {label} | {requests:,} | {phase:.1f} s | {phase / ideal:.2f} | {wall:.1f} s |")


if __name__ == "__main__":
    main()
