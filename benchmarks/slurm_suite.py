#!/usr/bin/env python3
"""Three models x three benchmarks on this machine, and on a real Slurm of three nodes of which one loses its power.

Needs what scripts/slurm/cluster.py needs. The two tables have to be equal as YAML, CSV and Markdown, but for the
folder's name; the endpoints' counts say that nothing was asked twice but what was on its way when the node died.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from suite_faults import COMMAND, ENV, Endpoint, wait_until, write_suite

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from integration.support import varied_answer

CLUSTER = Path(__file__).resolve().parents[1] / "scripts" / "slurm" / "cluster.py"
MODELS = ("one", "two", "three")
BENCHMARKS = ("benchmark1", "benchmark2", "benchmark3")
TABLES = ("suite_results.yaml", "suite_results.csv", "suite_results.md")
AT_ONCE = 2
"""Requests of one model."""


@dataclass(frozen=True)
class Ended:
    """What the suite came to."""

    tables: dict[str, str]
    code: int
    asked: int
    different: int
    wall_s: float
    attempts: int
    """Of all cells, on Slurm."""


def answers_of(model: str) -> Callable[[str], str]:
    """No two models answer alike, so that a cell in another one's place is seen."""
    return lambda prompt: varied_answer(f"{model}: {prompt}")


def cluster(root: Path, *arguments: str) -> None:
    env = {**os.environ, "EVAL_FACTORY_SLURM": str(root)}
    subprocess.run([sys.executable, str(CLUSTER), *arguments], env=env, stdout=subprocess.DEVNULL, check=True)


def on_slurm(file: Path, root: Path, known: dict[str, Endpoint], lost_after: int) -> int:
    """The node of the task that Slurm names first is lost when so many requests were made."""
    env = {**ENV, "SLURM_CONF": str(root / "slurm.conf")}
    log = (file.parent / "screen.log").open("ab")
    with log:
        process = subprocess.Popen(
            [*COMMAND, str(file), "--executor", "slurm", "--wait"], env=env, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: sum(endpoint.asked for endpoint in known.values()) >= lost_after, process)
        argv = ["squeue", "--noheader", "--states=RUNNING", "--format=%N"]
        nodes = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, check=True)
        lost = nodes.stdout.split()[0]
        print(f"{lost} loses its power after {lost_after} requests")
        cluster(root, "node-kill", lost)
        return process.wait(600)
    finally:
        process.kill()


def run(folder: Path, instances: int, slurm: Path | None) -> Ended:
    folder.mkdir()
    with ExitStack() as stack:
        known = {name: stack.enter_context(Endpoint(None)) for name in MODELS}
        for name, endpoint in known.items():
            endpoint.good = answers_of(name)
        urls = {name: endpoint.url for name, endpoint in known.items()}
        file = write_suite(folder, urls, BENCHMARKS, instances, params={"parallelism": AT_ONCE})
        started = time.monotonic()
        if slurm is None:
            with (folder / "screen.log").open("ab") as log:
                code = subprocess.run([*COMMAND, str(file)], env=ENV, stdout=log, stderr=log, check=False).returncode
        else:
            code = on_slurm(file, slurm, known, instances * len(MODELS) * len(BENCHMARKS) // 3)
        wall = time.monotonic() - started
        tables = {name: (folder / "out" / name).read_text("utf-8") for name in TABLES}
        for name, text in tables.items():
            tables[name] = text.replace(str(folder), "")
            for model, endpoint in known.items():
                tables[name] = tables[name].replace(endpoint.url, f"http://{model}")
        return Ended(
            tables,
            code,
            sum(endpoint.asked for endpoint in known.values()),
            sum(len(endpoint.seen) for endpoint in known.values()),
            wall,
            len(list(folder.glob("out/.suite/slurm/cells/*/*/*/attempts/*"))),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=20, help="of each benchmark")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        here = run(Path(name) / "here", arguments.instances, None)
        root = Path(name) / "slurm"
        cluster(root, "up", "3")
        try:
            there = run(Path(name) / "there", arguments.instances, root)
        finally:
            cluster(root, "down")
    print(here.tables["suite_results.md"])
    for what, ended in (("here", here), ("on Slurm, a node lost", there)):
        print(
            f"{what}: exit code {ended.code}, {ended.wall_s:.0f} s, {ended.asked} requests,"
            f" {ended.asked - ended.different} of them twice, {ended.attempts} attempts on Slurm"
        )
    problems = [f"{name} differs:\n{there.tables[name]}" for name in TABLES if here.tables[name] != there.tables[name]]
    if (here.code, there.code) != (0, 0):
        problems.append("a suite did not end well")
    if there.asked - there.different > AT_ONCE * len(MODELS):
        problems.append("more was asked twice than was on its way")
    if there.different != here.different:
        problems.append("not the same prompts were asked")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
