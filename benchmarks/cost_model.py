#!/usr/bin/env python3
"""What a large evaluation takes, from what was measured on one machine: the tables of docs/scale.md.

    python benchmarks/cost_model.py [--simulate]

Up to 10^5 requests the figures were measured (`benchmarks/README.md`), beyond that they are calculated. With --simulate
each endpoint is also played through by `benchmarks/cluster_simulation.py`, with failures, 429s and lost nodes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Measured:
    """Of one process tree, on one machine; the figures stand in benchmarks/README.md."""

    request_s: float = 0.0003
    """Of the processor, for a request: a process asks no faster than one in this time (benchmarks/throughput.py)."""
    start_s: float = 0.8
    """From the command to the first request (benchmarks/throughput.py)."""
    task_s: float = 0.1
    """A task of Slurm, over its own time: 1,200 tasks on six places."""
    after_s: float = 0.0008
    """An instance, from the last answer to the end: HELM's metrics and files, collecting (benchmarks/throughput.py)."""
    base_mb: float = 193.0
    instance_kb: float = 5.9
    """Memory of the tree: of itself, and of each instance of 500 characters (benchmarks/memory.py)."""
    disk_kb: float = 8.0
    """An instance on disk: the journal of requests and the files of the result."""


@dataclass(frozen=True)
class Work:
    """Requests, who answers them, and who asks."""

    name: str
    requests: int
    latency_s: float
    at_once: int
    """Requests at once that the endpoint bears, parted among the processes."""
    processes: int = 1
    nodes: int = 1
    per_minute: float | None = None
    """Requests a minute that the endpoint allows; more of them get a 429."""
    failure_share: float = 0.0
    """Of all requests, those that fail and are sent again."""
    backoff_s: float = 1.0
    """From a failure to the next try, on average."""
    lost_every_h: float | None = None
    """A node is lost once in so many hours; its processes begin again elsewhere."""
    restart_s: float = 30.0
    """From the loss of a node to the first request of what takes its place."""
    cells: int = 1
    """Evaluations that the requests are of; each is scored for itself, as many at once as there are processes."""


@dataclass(frozen=True)
class Cost:
    """What the work takes."""

    limited_by: str
    rate: float
    """Answers a second."""
    hours: float
    asked_twice: float
    """Requests that were on their way when a node was lost."""
    memory_mb: float
    """Of the largest process."""
    disk_gb: float


def cost(work: Work, measured: Measured) -> Cost:
    """The expected cost. `failure_share` has to be below 1."""
    tries = 1 / (1 - work.failure_share)
    slot_s = tries * work.latency_s + (tries - 1) * work.backoff_s
    rates = {
        "requests at once": work.at_once / slot_s,
        "processor of the processes": work.processes / (measured.request_s * tries),
        "requests a minute": math.inf if work.per_minute is None else work.per_minute / 60 / tries,
    }
    limited_by = min(rates, key=rates.__getitem__)
    rate = rates[limited_by]
    asking_s = work.requests / rate
    lost = 0.0 if work.lost_every_h is None else work.nodes * asking_s / 3600 / work.lost_every_h
    asking_s += lost * work.restart_s / work.nodes
    scoring_s = measured.after_s * work.requests / min(work.processes, work.cells)
    whole_s = measured.start_s + measured.task_s + asking_s + scoring_s
    largest = work.requests / work.cells
    memory_mb = measured.base_mb + largest * measured.instance_kb / 1000
    disk_gb = work.requests * measured.disk_kb / 1e6
    return Cost(limited_by, rate, whole_s / 3600, lost * work.at_once / work.nodes, memory_mb, disk_gb)


def processes_for(work: Work, measured: Measured) -> int:
    """The fewest processes that leave the endpoint as the limit."""
    alone = cost(replace(work, processes=10**6), measured)
    tries = 1 / (1 - work.failure_share)
    return max(1, math.ceil(alone.rate * measured.request_s * tries))


SERVICES = (
    Work("hosted, 500 ms, 64 at once", 0, 0.5, 64, failure_share=0.01),
    Work("hosted, 10,000 requests a minute", 0, 0.5, 512, per_minute=10_000, failure_share=0.01),
    Work("eight served models, 2 s, 2,048 at once", 0, 2.0, 2048, nodes=8, failure_share=0.01, lost_every_h=500),
)
SIZES = (10**5, 10**6, 10**7)
CELL = 10**4


def works(measured: Measured) -> Iterator[Work]:
    """Every row: of 10^4 instances a cell, with as many processes as the endpoint needs."""
    for service in SERVICES:
        for size in SIZES:
            work = replace(service, requests=size, cells=size // CELL)
            yield replace(work, processes=max(work.nodes, processes_for(work, measured)))


COLUMNS = (
    "endpoint",
    "requests",
    "processes",
    "limited by",
    "answers/s",
    "hours",
    "asked twice",
    "memory of all",
    "disk",
)


def row(work: Work, measured: Measured) -> tuple[str, ...]:
    found = cost(work, measured)
    memory = found.memory_mb * work.processes / 1000
    return (
        work.name, f"{work.requests:,}", str(work.processes), found.limited_by, f"{found.rate:,.0f}",
        f"{found.hours:.2f}" if found.hours < 10 else f"{found.hours:.0f}", f"{found.asked_twice:.0f}",
        f"{memory:.1f} GB", f"{found.disk_gb:,.1f} GB",
    )  # fmt: skip


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true")
    arguments = parser.parse_args()
    measured = Measured()
    print(table([row(work, measured) for work in works(measured)]))
    if arguments.simulate:
        from cluster_simulation import compare

        print()
        print(compare(measured))


if __name__ == "__main__":
    main()
