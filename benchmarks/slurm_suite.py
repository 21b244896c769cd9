#!/usr/bin/env python3
"""Compares a suite on this machine with the same suite on a real Slurm that loses a node.

The suite has three models and three benchmarks. The Slurm has three nodes, and one of them loses
its power during the suite. Needs what scripts/slurm/cluster.py needs. The tables of both suites
must be equal as YAML, CSV and Markdown, except for the folder's name. The counts of the endpoints
must show that only requests that were on their way when the node died were sent twice.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from suite_faults import COMMAND, ENV, TABLES, Ended, Endpoint, How, alone, wait_until
from suite_faults import run as run_suite

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from program_runs import varied_answer

CLUSTER = Path(__file__).resolve().parents[1] / "scripts" / "slurm" / "cluster.py"
MODELS = ("one", "two", "three")
BENCHMARKS = ("benchmark1", "benchmark2", "benchmark3")
AT_ONCE = 2  # the number of requests to a model at the same time


def answers_of(model: str) -> Callable[[str], str]:
    """Return a function with the answers of a model.

    The answers of two models differ, so that a cell in the place of another cell is noticed.
    """
    return lambda prompt: varied_answer(f"{model}: {prompt}")


def cluster(root: Path, *arguments: str) -> None:
    """Run scripts/slurm/cluster.py with these arguments, for the cluster in the folder `root`."""
    env = {**os.environ, "EVAL_FACTORY_SLURM": str(root)}
    subprocess.run(
        [sys.executable, str(CLUSTER), *arguments], env=env, stdout=subprocess.DEVNULL, check=True
    )


def on_slurm(file: Path, endpoints: Mapping[str, Endpoint], root: Path, lost_after: int) -> int:
    """Run a suite on Slurm, kill a node that runs a task, and return the exit code.

    Args:
        file: the file of the suite.
        endpoints: the endpoints by the name of their model.
        root: the folder of the Slurm cluster.
        lost_after: the number of requests after which the node is killed.
    """
    env = {**ENV, "SLURM_CONF": str(root / "slurm.conf")}
    log = (file.parent / "screen.log").open("ab")
    with log:
        process = subprocess.Popen(
            [*COMMAND, str(file), "--executor", "slurm", "--wait"], env=env, stdout=log, stderr=log
        )
    try:
        wait_until(
            lambda: sum(endpoint.asked for endpoint in endpoints.values()) >= lost_after, process
        )
        argv = ["squeue", "--noheader", "--states=RUNNING", "--format=%N"]
        nodes = subprocess.run(
            argv, env={**os.environ, **env}, capture_output=True, text=True, check=True
        )
        lost = nodes.stdout.split()[0]
        print(f"{lost} loses its power after {lost_after} requests")
        cluster(root, "node-kill", lost)
        return process.wait(600)
    finally:
        process.kill()


def run(folder: Path, instances: int, how: How) -> Ended:
    """Run the suite in a new folder, in the way of `how`."""
    endpoints = {name: Endpoint(None) for name in MODELS}
    for name, endpoint in endpoints.items():
        endpoint.good = answers_of(name)
    return run_suite(folder, endpoints, BENCHMARKS, instances, how, params={"parallelism": AT_ONCE})


def asked_twice(ended: Ended) -> int:
    """Return the number of requests that were sent again."""
    return sum(ended.asked.values()) - sum(ended.different.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=20, help="of each benchmark")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        here = run(Path(name) / "here", arguments.instances, alone)
        root = Path(name) / "slurm"
        cluster(root, "up", "3")
        try:
            lost_after = arguments.instances * len(MODELS) * len(BENCHMARKS) // 3
            there = run(
                Path(name) / "there",
                arguments.instances,
                partial(on_slurm, root=root, lost_after=lost_after),
            )
        finally:
            cluster(root, "down")
        attempts = len(list(Path(name).glob("there/out/.suite/slurm/cells/*/*/*/attempts/*")))
    print(here.tables["suite_results.md"])
    for label, ended in (("here", here), ("on Slurm, a node lost", there)):
        asked = sum(ended.asked.values())
        twice = asked_twice(ended)
        print(
            f"{label}: exit code {ended.code}, {ended.wall_s:.0f} s, {asked} requests, {twice} "
            "of them twice"
        )
    print(f"{attempts} attempts on Slurm")
    problems = [
        f"{name} differs:\n{there.tables[name]}"
        for name in TABLES
        if here.tables[name] != there.tables[name]
    ]
    if (here.code, there.code) != (0, 0):
        problems.append("a suite did not end well")
    if asked_twice(there) > AT_ONCE * len(MODELS):
        problems.append("more was asked twice than was on its way")
    if there.different != here.different:
        problems.append("not the same prompts were asked")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
