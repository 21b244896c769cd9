#!/usr/bin/env python3
"""How the cost of a run grows with the number of instances: time and memory of each part, per instance.

eval-factory on HELM's pubmed_qa with invented data, an endpoint without latency, and bare helm-run beside it for what
HELM itself holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from throughput import endpoint, get, memory_mb
from tools import TOOLS, Job

SAMPLE_S = 0.2
CONCURRENCY = 32


@dataclass(frozen=True)
class Grown:
    """One run of one size."""

    tool: str
    count: int
    asking_s: float
    after_asking_s: float
    collecting_s: float | None
    helm_mb: float
    own_mb: float | None
    cache_mb: float | None


def grow(tool: str, count: int) -> Grown:
    """One run. Raises RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as name, endpoint(0) as url:
        folder = Path(name) / "run"
        folder.mkdir()
        command = TOOLS[tool](Job(folder, url, count, CONCURRENCY))
        ours = tool == "eval-factory"
        helm_mb = own_mb = 0.0
        with (Path(name) / "log").open("wb") as log:
            process = subprocess.Popen(
                command.argv, stdout=log, stderr=log, cwd=folder, env={**os.environ, **command.env}
            )
            while process.poll() is None:
                by_process = memory_mb(process.pid)
                own_mb = max(own_mb, by_process.pop(process.pid, 0.0))
                helm_mb = max([helm_mb, *by_process.values()])
                time.sleep(SAMPLE_S)
        ended = time.time()
        if process.returncode != 0:
            raise RuntimeError((Path(name) / "log").read_text(errors="replace")[-2000:])
        stats = get(f"{url}/stats")
        after = time.monotonic() - stats["last"]
        if not ours:
            return Grown(tool, count, stats["seconds"], after, None, own_mb, None, None)
        events = [json.loads(line) for line in (folder / "out" / "logs" / "events.jsonl").open()]
        collecting = ended - next(event["time"] for event in events if event["event"] == "run_done")
        cache = sum(path.stat().st_size for path in (folder / "out").glob("cache.db*")) / 1e6
        return Grown(tool, count, stats["seconds"], after - collecting, collecting, helm_mb, own_mb, cache)


def table(rows: list[Grown]) -> str:
    lines = [
        "| instances | tool | asking | HELM after it | collecting | memory of helm-run | of eval-factory | cache.db |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:

        def each(seconds: float | None, count: int = row.count) -> str:
            return "" if seconds is None else f"{seconds / count * 1000:.2f} ms each"

        def size(megabytes: float | None) -> str:
            return "" if megabytes is None else f"{megabytes:.0f} MB"

        lines.append(
            f"| {row.count} | {row.tool} | {each(row.asking_s)} | {each(row.after_asking_s)} |"
            f" {each(row.collecting_s)} | {size(row.helm_mb)} | {size(row.own_mb)} | {size(row.cache_mb)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--tools", nargs="+", default=["eval-factory", "helm-run, its cache off"])
    arguments = parser.parse_args()
    rows = []
    for count in arguments.instances:
        for tool in arguments.tools:
            rows.append(grow(tool, count))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
