#!/usr/bin/env python3
"""Requests a second of eval-factory and of other harnesses, side by side, on invented prompts of
real length.

All ask the same questions (HELM's pubmed_qa on invented data) at an endpoint process of the same
kind. The request phase is measured by
the endpoint (first request received to last answer sent); the ideal is concurrency / latency.
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
from pathlib import Path
from statistics import median

from processes import run_watched, timed
from tools import TOOLS, Job

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Measured:
    """One run of one tool."""

    tool: str
    latency_ms: float
    concurrency: int
    request_s: float
    rate: float
    wall_s: float
    cpu_s: float
    peak_mb: float


@contextmanager
def endpoint_process(
    latency_ms: float, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `endpoint.py`, and its URL."""
    argv = [sys.executable, str(HERE / "endpoint.py"), "--latency-ms", str(latency_ms), *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


@contextmanager
def endpoint(latency_ms: float, *options: str) -> Iterator[str]:
    with endpoint_process(latency_ms, *options) as (_, url):
        yield url


def get(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
        loaded: dict[str, float] = json.loads(answer.read())
        return loaded


def measure(
    tool: str, latency_ms: float, concurrency: int, count: int, *, memory: bool = False
) -> Measured:
    """One whole run in a folder of its own. Raises RuntimeError with the tool's last words where it
    fails.

    `memory`: look at it all the time. That takes part of a processor, so such a run's times are not
    shown.
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
    """Each figure's own median."""
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
    # else every start compiles every source, of each tool
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows: list[Measured] = []
    for setting in arguments.settings:
        latency, concurrency = setting.split(":")
        runs: dict[str, list[Measured]] = defaultdict(list)
        each = [
            (tool, float(latency), int(concurrency), arguments.instances)
            for tool in arguments.tools
        ]
        peaks = {one[0]: measure(*one, memory=True).peak_mb for one in each}
        # the tools take turns: what else the machine does meets all of them
        for _ in range(arguments.repeat):
            for one in each:
                runs[one[0]].append(measure(*one))
        rows += [replace(median_of(runs[tool]), peak_mb=peak) for tool, peak in peaks.items()]
        print(table(rows[-len(arguments.tools) :]), flush=True)
    if arguments.output:
        arguments.output.write_text(table(rows))


if __name__ == "__main__":
    main()
