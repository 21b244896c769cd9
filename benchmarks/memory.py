#!/usr/bin/env python3
"""Measures the memory of runs with different numbers of instances.

    python benchmarks/memory.py --instances 1000 10000 --before ../other-checkout

The table shows the memory of all processes together in each phase of a run, for each instance, and
the greatest memory of helm-run and of eval-factory. The run asks a custom benchmark of invented
multiple-choice questions (about 500 characters each), at an endpoint on loopback without latency.
With --before, another checkout is measured too, with the packages of this environment. Linux only:
it reads the PSS and VmHWM (`processes.py`).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from processes import NOT_REPORTABLE, held_mb, megabytes, timed, tree_of
from throughput import endpoint
from tools import BIN, invented_words

SAMPLE_S = 0.2  # the time between two measurements
STARTING = "starting"  # the phase before the first event
COLLECTING = "collecting"  # the phase after helm-run's last event
PROMPT = (
    "{question}\nA. {option_a}\nB. {option_b}\nC. {option_c}\nD. {option_d}\n"
    "Answer with one letter.\n"
)
BENCHMARK = """name: made_up_choices
description: Multiple choice of invented words
prompt_file: prompt.txt
dataset_file: data.csv
max_tokens: 1
metrics:
  - name: exact_match
"""


@dataclass
class Grown:
    """The figures of a run. Memory is in MB."""

    name: str  # the version of eval-factory: `this` or `before`
    count: int  # the number of instances
    cpu_s: float = 0.0
    wall_s: float = 0.0
    of_tree: dict[str, float] = field(default_factory=dict)
    """The greatest memory of all processes together in each phase (PSS)."""
    highest: dict[int, float] = field(default_factory=dict)
    """The greatest memory of each process (VmHWM), by its id. The first process is eval-factory."""

    def line(self) -> str:
        """Return the row of the table."""
        peak = max(self.of_tree.values())
        own, *of_children = self.highest.values() or [0.0]
        helm = max(of_children, default=0.0)
        phases = ", ".join(f"{phase} {size:.0f}" for phase, size in self.of_tree.items())
        return (
            f"| {self.count:,} | {self.name} | {peak:.0f} MB | {peak * 1000 / self.count:.1f} "
            f"kB | {helm:.0f} MB |"
            f" {own:.0f} MB | {phases} | {self.cpu_s:.0f} s | {self.wall_s:.0f} s |"
        )


HEAD = (
    "| instances | version | tree, at most | an instance | helm-run | eval-factory | tree "
    "by phase, MB | CPU | wall |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def made_up(folder: Path, count: int) -> Path:
    """Write a custom benchmark of questions with four options, and return its file.

    Args:
        folder: the folder for the files.
        count: the number of questions.
    """
    source, words = invented_words()
    options = ["option_a", "option_b", "option_c", "option_d"]
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(
            file, ["id", "question", *options, "correct_answer", "incorrect_answers"]
        )
        table.writeheader()
        for number in range(count):
            right = source.choice("ABCD")
            row = {"id": f"q{number}", "question": " ".join(source.choices(words, k=44)) + "?"}
            row |= {option: " ".join(source.choices(words, k=4)) for option in options}
            wrong = [letter for letter in "ABCD" if letter != right]
            table.writerow({**row, "correct_answer": right, "incorrect_answers": json.dumps(wrong)})
    (folder / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    (folder / "benchmark.yaml").write_text(BENCHMARK, encoding="utf-8")
    return folder / "benchmark.yaml"


def argv_of(folder: Path, url: str, count: int, concurrency: int) -> list[str]:
    """Write the benchmark, and return the command of the run."""
    overrides = {
        "config.params.parallelism": concurrency,
        "config.params.limit_samples": count,
        "config.params.extra.benchmark": made_up(folder, count),
    }
    return [
        str(BIN / "eval-factory"),
        "run_eval",
        "--eval_type",
        "custom",
        "--output_dir",
        str(folder / "out"),
        "--model_url",
        f"{url}/v1",
        "--model_id",
        "bench",
        "--overrides",
        ",".join(f"{key}={value}" for key, value in overrides.items()),
    ]


def phase_of(events: Path) -> str:
    """Return the phase of a run, from the last event in its file of events."""
    try:
        lines = events.read_text().splitlines()
    except OSError:
        return STARTING
    for line in reversed(lines):
        if '"run_done"' in line:
            return COLLECTING
        if '"phase"' in line:
            phase: str = json.loads(line).get("phase", STARTING)
            return phase
    return STARTING


def grow(name: str, source: Path | None, count: int, concurrency: int) -> Grown:
    """Make a run, and return its figures.

    Args:
        name: the name of the version.
        source: another checkout whose code is run; None: this checkout.
        count: the number of instances.
        concurrency: the number of requests at the same time.

    Raises:
        RuntimeError: the run failed.
    """
    grown = Grown(name, count)
    with tempfile.TemporaryDirectory() as home, endpoint(0) as url:
        folder = Path(home)
        log = Path(home) / "log"
        argv = argv_of(folder, url, count, concurrency)
        env = dict(os.environ)
        if source is not None:
            env["PYTHONPATH"] = str(source / "src")
        with log.open("wb") as output, timed() as took:
            process = subprocess.Popen(argv, stdout=output, stderr=output, cwd=folder, env=env)
            while process.poll() is None:
                sample(grown, process.pid, phase_of(folder / "out" / "logs" / "events.jsonl"))
                time.sleep(SAMPLE_S)
        if process.returncode not in (0, NOT_REPORTABLE):
            raise RuntimeError(log.read_text(errors="replace")[-2000:])
    grown.wall_s = took.wall_s
    grown.cpu_s = took.cpu_s
    return grown


def sample(grown: Grown, pid: int, phase: str) -> None:
    """Measure the memory of a process and its descendants now."""
    tree = tree_of(pid)
    grown.of_tree[phase] = max(grown.of_tree.get(phase, 0.0), held_mb(tree))
    for process in tree:
        highest = megabytes(Path(f"/proc/{process}/status"), "VmHWM")
        grown.highest[process] = max(grown.highest.get(process, 0.0), highest)


def versions(before: Path | None) -> Iterable[tuple[str, Path | None]]:
    """Yield the name and the checkout of each version; None for this checkout."""
    if before is not None:
        yield "before", before.resolve()
    yield "this", None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--only-before", action="store_true")
    arguments = parser.parse_args()
    print(HEAD, flush=True)
    for count in arguments.instances:
        for name, source in versions(arguments.before):
            if source is not None or not arguments.only_before:
                print(grow(name, source, count, arguments.concurrency).line(), flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
