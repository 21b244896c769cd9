#!/usr/bin/env python3
"""Measures many benchmarks of one model: by `run_suite`, and by loops of `run_eval` and `helm-run`.

Each benchmark is HELM's pubmed_qa on invented data. The endpoint answers after a fixed latency. The
lower bound of the time is that of the requests alone: their number x latency / concurrency.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from processes import NOT_REPORTABLE, run_watched, timed
from throughput import endpoint, get
from tools import BIN, Command, Job, eval_factory, helm_run, pubmed_qa_data

# A suite may take at most the bound x ALLOWED_FACTOR + ALLOWED_S.
ALLOWED_FACTOR = 1.3
ALLOWED_S = 10.0


@dataclass(frozen=True)
class Work:
    """The benchmarks that are run."""

    folder: Path
    url: str  # the URL of the endpoint, without `/v1`
    benchmarks: int  # the number of benchmarks
    instances: int  # the number of instances of each benchmark
    concurrency: int
    processes: int | None  # the number of processes of the suite; None: the suite's default

    def job(self, number: int) -> Job:
        """Return the job of one benchmark, for a program that runs a single benchmark."""
        folder = self.folder / f"job{number}"
        folder.mkdir()
        return Job(folder, self.url, self.instances, self.concurrency)


@dataclass(frozen=True)
class Measured:
    """The figures of one way to run all benchmarks."""

    how: str  # the name of the way
    wall_s: float
    bound_s: float  # the lower bound of the time
    most_at_once: int  # the greatest number of requests at the same time
    requests: int
    cpu_s: float
    peak_mb: float  # the greatest memory of all processes together


def suite_command(work: Work) -> list[Command]:
    """Return the command of a suite with all benchmarks."""
    names = [f"benchmark{number}" for number in range(work.benchmarks)]
    out = work.folder / "suite"
    for name in names:
        pubmed_qa_data(out / "model" / name / "helm", work.instances)
    document: dict[str, object] = {
        "output_dir": str(out),
        "params": {"limit_samples": work.instances, "parallelism": work.concurrency},
        "evaluations": [{"type": "pubmed_qa", "name": name} for name in names],
        "targets": [
            {
                "name": "model",
                "api_endpoint": {"url": f"{work.url}/v1", "model_id": "bench", "type": "chat"},
            }
        ],
    }
    if work.processes is not None:
        document["max_processes"] = work.processes
    file = work.folder / "suite.yml"
    file.write_text(yaml.safe_dump({"suite": document}))
    return [Command([str(BIN / "eval-factory"), "run_suite", "--run_config", str(file)])]


def loop_of(command: Callable[[Job], Command]) -> Callable[[Work], list[Command]]:
    """Return a function that returns a command for each benchmark."""
    return lambda work: [command(work.job(number)) for number in range(work.benchmarks)]


WAYS: dict[str, Callable[[Work], list[Command]]] = {
    "run_suite": suite_command,
    "a loop of run_eval": loop_of(eval_factory),
    "a loop of helm-run": loop_of(helm_run),
}


def measure(how: str, arguments: argparse.Namespace) -> Measured:
    """Run all benchmarks once in one way, in a folder of its own.

    Raises:
        RuntimeError: a program failed, or the number of requests is wrong.
    """
    with tempfile.TemporaryDirectory() as name, endpoint(arguments.latency_ms) as url:
        folder = Path(name)
        work = Work(
            folder,
            url,
            arguments.benchmarks,
            arguments.instances,
            arguments.concurrency,
            arguments.processes,
        )
        commands = WAYS[how](work)
        with timed() as took:
            peak = max(run(command, folder) for command in commands)
        stats = get(f"{url}/stats")
    asked = arguments.benchmarks * arguments.instances
    if stats["requests"] != asked:
        raise RuntimeError(f"{how}: {stats['requests']} requests reached the endpoint, not {asked}")
    bound = asked * arguments.latency_ms / 1000 / arguments.concurrency
    return Measured(how, took.wall_s, bound, int(stats["most_at_once"]), asked, took.cpu_s, peak)


def run(command: Command, folder: Path) -> float:
    """Run a command to its end, and return the greatest memory of its processes, in MB."""
    log = folder / "log"
    code, peak = run_watched(command.argv, folder, command.env, log)
    if code not in (0, NOT_REPORTABLE):
        raise RuntimeError(
            f"{command.argv} ended with {code}:\n{log.read_text(errors='replace')[-2000:]}"
        )
    return peak


def table(rows: Sequence[Measured]) -> str:
    lines = [
        "| way | whole | requests alone | allowed | most at once | CPU | peak memory |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.how} | {row.wall_s:.1f} s | {row.bound_s:.1f} "
        f"s | {ALLOWED_FACTOR * row.bound_s + ALLOWED_S:.1f} s |"
        f" {row.most_at_once} | {row.cpu_s:.1f} s | {row.peak_mb:.0f} MB |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmarks", type=int, default=13)
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--latency-ms", type=float, default=500.0)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--processes", type=int, help="max_processes of the suite")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    rows = [measure(how, arguments) for how in arguments.ways]
    print(table(rows), end="")
    if arguments.json:
        arguments.json.write_text(json.dumps([vars(row) for row in rows], indent=2))


if __name__ == "__main__":
    main()
