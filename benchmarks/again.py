#!/usr/bin/env python3
"""What a command costs that asks nobody: a finished folder again, `ls`, `--dry_run`; beside HELM's import.

    python benchmarks/again.py --before ../other-checkout

The commands take turns, so that what else the machine does meets all of them; the median of each is shown.
"Collected again" is the same command without SHA256SUMS. Another checkout needs a `.venv` of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from throughput import endpoint
from tools import Job, eval_factory

BIN = Path(sys.executable).parent
NOT_REPORTABLE = 1
"""The exit code of a run whose endpoint says of itself another model's name, as `endpoint.py` does."""
IMPORT = "import helm.benchmark.run"


@dataclass
class Command:
    """One command, and what its runs took."""

    name: str
    argv: list[str]
    before_each: Callable[[], None] = lambda: None
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def run(self, folder: Path) -> None:
        self.before_each()
        before, started = os.times(), time.monotonic()
        ended = subprocess.run(self.argv, cwd=folder, capture_output=True, check=False)
        self.wall_s.append(time.monotonic() - started)
        after = os.times()
        if ended.returncode not in (0, NOT_REPORTABLE):
            raise RuntimeError(f"{self.name}: {ended.stderr.decode()[-1000:]}")
        self.cpu_s.append(after.children_user + after.children_system - before.children_user - before.children_system)

    def of(self, other: Command) -> str:
        cpu, wall = statistics.median(self.cpu_s), statistics.median(self.wall_s)
        shares = cpu / statistics.median(other.cpu_s), wall / statistics.median(other.wall_s)
        return f"| {self.name} | {cpu:.2f} s | {wall:.2f} s | {shares[0]:.2f} | {shares[1]:.2f} |"


def finished(program: Path, name: str, folder: Path, url: str, count: int) -> list[Command]:
    """A run of its own, and the two ways to repeat it."""
    home = folder / f"run{name.replace(' ', '_')}"
    home.mkdir()
    argv = [str(program), *eval_factory(Job(home, url, count, 32)).argv[1:]]
    Command("the run itself", argv).run(folder)
    sums = home / "out" / "SHA256SUMS"
    return [
        Command(f"finished folder{name}", argv),
        Command(f"finished folder, collected again{name}", argv, lambda: sums.unlink(missing_ok=True)),
    ]


def idle(program: Path, name: str) -> list[Command]:
    dry = [
        "run_eval", "--eval_type", "pubmed_qa", "--output_dir", "none", "--model_url", "demo://baseline", "--model_id",
        "m", "--dry_run",
    ]  # fmt: skip
    return [Command(f"`ls`{name}", [str(program), "ls"]), Command(f"`--dry_run`{name}", [str(program), *dry])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--before", type=Path, help="another checkout, with its .venv")
    arguments = parser.parse_args()
    programs = {"": BIN / "eval-factory"}
    if arguments.before is not None:
        programs[", before"] = arguments.before.resolve() / ".venv" / "bin" / "eval-factory"
    with tempfile.TemporaryDirectory() as name, endpoint(0) as url:
        reference = Command(f"`{IMPORT}`", [sys.executable, "-c", IMPORT])
        commands = [reference]
        for suffix, program in programs.items():
            commands += [*finished(program, suffix, Path(name), url, arguments.instances), *idle(program, suffix)]
        for _ in range(arguments.repeat):
            for command in commands:
                command.run(Path(name))
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {arguments.instances} instances\n")
    print("| command | CPU | whole process | CPU, of HELM's import | whole process, of it |\n|---|---|---|---|---|")
    print("\n".join(command.of(reference) for command in commands))


if __name__ == "__main__":
    main()
