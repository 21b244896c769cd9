#!/usr/bin/env python3
"""Measures the requests per second of eval-factory and of other programs.

All programs ask the same questions (HELM's pubmed_qa on invented data, with prompts as long as real
ones), each at its own process of the endpoint. The endpoint measures the request phase: from the
first request received to the last answer sent. The ideal rate is concurrency / latency.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from processes import run_watched, timed
from tools import TOOLS, Job

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Measured:
    """The figures of one run of one program."""

    tool: str
    latency_ms: float
    concurrency: int
    request_s: float  # the seconds of the request phase
    rate: float  # the requests per second in the request phase
    wall_s: float  # the seconds of the complete process
    cpu_s: float
    peak_mb: float  # the greatest memory of all processes together


@contextmanager
def endpoint_process(
    latency_ms: float, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process of `endpoint.py`, and yield the process and its URL."""
    argv = [sys.executable, str(HERE / "endpoint.py"), "--latency-ms", str(latency_ms), *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


@contextmanager
def endpoint(latency_ms: float, *options: str) -> Iterator[str]:
    """Start a process of `endpoint.py`, and yield its URL."""
    with endpoint_process(latency_ms, *options) as (_, url):
        yield url


def get(url: str) -> dict[str, float]:
    """Return the figures that an endpoint returns."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
        loaded: dict[str, float] = json.loads(answer.read())
        return loaded


def measure(
    tool: str, latency_ms: float, concurrency: int, count: int, *, memory: bool = False
) -> Measured:
    """Run a program once, in a folder of its own.

    Args:
        tool: the name of the program in `TOOLS`.
        latency_ms: the latency of the endpoint.
        concurrency: the number of requests at the same time.
        count: the number of questions.
        memory: True to measure memory all the time. This takes a part of a processor's time, so the
            times of such a run are not shown.

    Raises:
        RuntimeError: the program failed; the message has the end of its output.
    """
    with tempfile.TemporaryDirectory() as name, endpoint(latency_ms) as url:
        folder = Path(name) / "run"
        folder.mkdir()
        command = TOOLS[tool](Job(folder, url, count, concurrency))
        log = Path(name) / "log"
        with timed() as took:
            code, peak = run_watched(command.argv, folder, command.env, log, memory=memory)
        stats = get(f"{url}/stats")
        if code != 0 or stats["requests"] < count:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(
                f"{tool} ended with {code} after {stats['requests']} requests:\n{tail}"
            )
    rate = stats["requests"] / stats["seconds"]
    return Measured(
        tool, latency_ms, concurrency, stats["seconds"], rate, took.wall_s, took.cpu_s, peak
    )


def median_of(runs: list[Measured]) -> Measured:
    """Return the medians of runs, with a median of its own for each figure."""
    figures = {
        name: median(getattr(run, name) for run in runs)
        for name in ("request_s", "rate", "wall_s", "cpu_s")
    }
    return replace(runs[0], **figures)


def table(rows: list[Measured]) -> str:
    lines = [
        (
            "| latency | at once | tool | request phase | requests/s | "
            "of the ideal | whole process | CPU | peak memory |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = (
            f"{row.rate * row.latency_ms / 1000 / row.concurrency:.2f}" if row.latency_ms else ""
        )
        lines.append(
            f"| {row.latency_ms:g} ms | {row.concurrency} | {row.tool} | {row.request_s:.1f} "
            f"s | {row.rate:.0f} |"
            f" {share} | {row.wall_s:.1f} s | {row.cpu_s:.1f} s | {row.peak_mb:.0f} MB |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument(
        "--settings", nargs="+", default=["0:32", "50:32", "500:128"], help="latency_ms:concurrency"
    )
    parser.add_argument("--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument(
        "--repeat", type=int, default=1, help="medians are shown; memory is of a run before them"
    )
    parser.add_argument("--output", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    # Without cached byte code, every start of a program would compile all its source files.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows: list[Measured] = []
    for setting in arguments.settings:
        latency, concurrency = setting.split(":")
        runs: dict[str, list[Measured]] = defaultdict(list)
        measure_tool = partial(
            measure,
            latency_ms=float(latency),
            concurrency=int(concurrency),
            count=arguments.instances,
        )
        peaks = {tool: measure_tool(tool, memory=True).peak_mb for tool in arguments.tools}
        # The programs take turns, so that other work of the machine slows down all of them.
        for _ in range(arguments.repeat):
            for tool in arguments.tools:
                runs[tool].append(measure_tool(tool))
        rows += [replace(median_of(runs[tool]), peak_mb=peak) for tool, peak in peaks.items()]
        print(table(rows[-len(arguments.tools) :]), flush=True)
    if arguments.output:
        arguments.output.write_text(table(rows))


if __name__ == "__main__":
    main()
