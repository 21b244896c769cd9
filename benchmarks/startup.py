#!/usr/bin/env python3
"""Measures how long commands take, such as `ls`, `--dry_run`, or a run that is already finished.

    python benchmarks/startup.py --repeat 9 --json startup.json

The table shows the median of each command, and its ratio to the time of HELM's import (`import
helm.benchmark.run`). The commands take turns, so that other work of the machine slows down all of
them. Each command is first run once without being measured, so that caches are filled and Python's
byte code is written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import NOT_REPORTABLE, timed
from throughput import endpoint
from tools import BIN, Job, eval_factory

IMPORT = "import helm.benchmark.run"
TARGET = ["--model_url", "demo://baseline", "--model_id", "m"]
PROGRAM = BIN / "eval-factory"


@dataclass
class Command:
    """A command, and the times of its runs."""

    name: str
    argv: list[str]
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def run(self, folder: Path) -> None:
        with timed() as took:
            ended = subprocess.run(self.argv, cwd=folder, capture_output=True, check=False)
        self.wall_s.append(took.wall_s)
        if ended.returncode not in (0, NOT_REPORTABLE):
            raise RuntimeError(f"{self.name}: {ended.stderr.decode()[-1000:]}")
        self.cpu_s.append(took.cpu_s)


def row_of(command: Command, reference: Command) -> dict[str, Any]:
    """Return the row of a command: its medians, and their ratios to those of `reference`."""
    cpu = statistics.median(command.cpu_s)
    wall = statistics.median(command.wall_s)
    return {
        "command": command.name,
        "cpu_s": round(cpu, 3),
        "wall_s": round(wall, 3),
        "cpu_of_import": round(cpu / statistics.median(reference.cpu_s), 2),
        "wall_of_import": round(wall / statistics.median(reference.wall_s), 2),
    }


def commands_without_requests() -> list[Command]:
    """Return the commands that send no request and read no result."""
    shown = {
        "`--help`": ["--help"],
        "`ls`": ["ls"],
        "`ls --json`": ["ls", "--json"],
        "`ls --tag jury`": ["ls", "--tag", "jury"],
        "`ls medec`": ["ls", "medec"],
        "`run_eval --dry_run`": [
            "run_eval",
            "--eval_type",
            "pubmed_qa",
            "--output_dir",
            "none",
            *TARGET,
            "--dry_run",
        ],
        "`run_suite --dry_run`": [
            "run_suite",
            "--preset",
            "smoke",
            "--output_dir",
            "none",
            "--dry_run",
        ],
    }
    return [Command(name, [str(PROGRAM), *arguments]) for name, arguments in shown.items()]


def measured(folder: Path, url: str, instances: int, repeat: int) -> list[dict[str, Any]]:
    """Run all commands, and return their rows.

    Args:
        folder: the working directory of the commands.
        url: the URL of the endpoint.
        instances: the number of instances of the run.
        repeat: the number of measured runs of each command.
    """
    reference = Command(f"`{IMPORT}`", [str(BIN / "python"), "-c", IMPORT])
    bare = Command("the interpreter alone", [str(BIN / "python"), "-c", ""])
    argv = [str(PROGRAM), *eval_factory(Job(folder, url, instances, 32)).argv[1:]]
    first = Command("first run, no latency", [*argv, "--fresh"])
    again = Command("finished folder", argv)
    commands = [reference, bare, *commands_without_requests(), first, again]
    for command in commands:
        command.run(folder)
        command.cpu_s.clear()
        command.wall_s.clear()
    for _ in range(repeat):
        for command in commands:
            command.run(folder)
    return [row_of(command, reference) for command in commands]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=1000, help="of the finished folder")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name, endpoint(0) as url:
        rows = measured(Path(name), url, arguments.instances, arguments.repeat)
    print(
        f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {arguments.instances} instances\n"
    )
    print(
        "| command | CPU | whole process | CPU, of HELM's import | whole process, of it |\n"
        "|---|---|---|---|---|"
    )
    for name, cpu, wall, cpu_of_import, wall_of_import in (row.values() for row in rows):
        print(
            f"| {name} | {cpu:.2f} s | {wall:.2f} s | {cpu_of_import:.2f} | {wall_of_import:.2f} |"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
