#!/usr/bin/env python3
"""One evaluation in shards, one of which is killed on its way, beside the same evaluation in one process.

The endpoint counts what it is asked: nothing may be asked twice but what was on its way at the kill, and results and
validity have to be those of the unsplit run, to the last digit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from suite_faults import wait_until, write_benchmark

from integration.support import program_environment
from same_files import differences, may_not_differ
from scripted_endpoint import PROBE, ScriptedEndpoint

AT_ONCE = 32
WAIT_S = 3600.0
MISSING_FLOORS = "floors are missing for"
ENV = program_environment(OPENAI_API_KEY="sk-0123456789abcdef0123")


class Endpoint(ScriptedEndpoint):
    """Its answer depends on the prompt alone, and takes a while."""

    def __init__(self, latency_s: float) -> None:
        super().__init__(self._answered)
        self._latency_s = latency_s
        self._count = threading.Lock()
        self.asked: Counter[str] = Counter()
        self.now = self.most = 0

    def forget(self) -> None:
        self.asked, self.now, self.most = Counter(), 0, 0

    def _answered(self, prompt: str) -> str:
        if prompt == PROBE:
            return "A"
        with self._count:
            self.asked[prompt] += 1
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self._latency_s)
        with self._count:
            self.now -= 1
        return "AB"[int(hashlib.sha256(prompt.encode()).hexdigest(), 16) % 2]


@dataclass(frozen=True)
class Ran:
    """What a run came to."""

    folder: Path
    code: int
    said: str
    asked: Counter[str]
    most_at_once: int
    wall_s: float
    cpu_s: float


def write_config(folder: Path, output: Path, benchmark: Path, url: str, shards: int) -> Path:
    extra: dict[str, Any] = {"benchmark": str(benchmark), **({"shards": shards} if shards > 1 else {})}
    config = {"type": "custom", "output_dir": str(output), "params": {"parallelism": AT_ONCE, "extra": extra}}
    target = {"api_endpoint": {"url": url, "model_id": "m", "type": "chat"}}
    file = folder / f"{output.name}.yml"
    file.write_text(yaml.safe_dump({"config": config, "target": target}), encoding="utf-8")
    return file


def kill_a_shard(output: Path, shards: int) -> None:
    """The process of one that is at work; its helm-run ends with it."""
    holder = json.loads((output / "shards" / f"{shards}-of-{shards}" / ".lock.holder.json").read_text("utf-8"))
    os.kill(holder["pid"], signal.SIGKILL)


def run(folder: Path, benchmark: Path, endpoint: Endpoint, shards: int, instances: int, *, kill: bool) -> Ran:
    output = folder / (f"shards{shards}" + ("-killed" if kill else ""))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    endpoint.forget()
    file = write_config(folder, output, benchmark, endpoint.url, shards)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "eval_factory", "run_eval", "--run_config", str(file)],
        env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if kill:
        wait_until(lambda: endpoint.asked.total() > instances // 3)
        kill_a_shard(output, shards)
    said, _ = process.communicate(timeout=WAIT_S)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(output, process.returncode, said, endpoint.asked, endpoint.most, wall, cpu)


def validity_of(ran: Ran, *, floors: bool) -> dict[str, Any]:
    """`floors`: whether those of both runs were computed whole, which takes a tenth of a run's time at most."""
    document = yaml.safe_load((ran.folder / "evaluation_config.yaml").read_text("utf-8"))["validity"]
    return {name: value for name, value in document.items() if floors or name not in ("floors", "notes")}


def has_floors(ran: Ran) -> bool:
    return MISSING_FLOORS not in (ran.folder / "evaluation_config.yaml").read_text("utf-8")


def problems_of(whole: Ran, split: Ran, allowed_twice: int) -> list[str]:
    """What is not as it has to be; empty where all is.

    Args:
        allowed_twice: requests that were on their way when a shard was killed; the endpoint was still at work on them.
    """
    if whole.code or split.code:
        return [f"exit codes {whole.code}, {split.code}\n{whole.said}\n{split.said}"]
    twice = (split.asked - whole.asked).total()
    scores = [
        [yaml.safe_load((ran.folder / "evaluation_config.yaml").read_text("utf-8"))[part] for ran in (whole, split)]
        for part in ("results", "main_metric", "status")
    ]
    floors = has_floors(whole) and has_floors(split)
    scores.append([validity_of(ran, floors=floors) for ran in (whole, split)])
    return [
        *(["other prompts were asked"] if split.asked.keys() != whole.asked.keys() else []),
        *([f"{twice} requests were asked twice"] if twice > allowed_twice else []),
        *([f"{split.most_at_once} requests at once"] if split.most_at_once > AT_ONCE + allowed_twice else []),
        *(["results or validity differ"] if any(one != other for one, other in scores) else []),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--shards", type=int, default=5)
    parser.add_argument("--latency-ms", type=float, default=400.0)
    arguments = parser.parse_args()
    latency, instances, shards = arguments.latency_ms / 1000, arguments.instances, arguments.shards
    with tempfile.TemporaryDirectory() as name, Endpoint(latency) as endpoint:
        folder = Path(name)
        benchmark = write_benchmark(folder / "benchmark", "made_up", instances)
        whole = run(folder, benchmark, endpoint, 1, instances, kill=False)
        runs = {"one process": whole}
        for kill in (False, True):
            label = f"{shards} shards" + (", one killed" if kill else "")
            runs[label] = run(folder, benchmark, endpoint, shards, instances, kill=kill)
        found = {label: may_not_differ(differences(whole.folder, ran.folder)) for label, ran in runs.items()}
        problems = [
            f"{label}: {one}"
            for label, ran in runs.items()
            for one in problems_of(whole, ran, -(-AT_ONCE // shards) if "killed" in label else 0)
        ]
    print("| run | requests | asked twice | most at once | wall | CPU |\n|---|---|---|---|---|---|")
    for label, ran in runs.items():
        twice = (ran.asked - whole.asked).total()
        figures = f"{ran.asked.total():,} | {twice} | {ran.most_at_once} | {ran.wall_s:.1f} s | {ran.cpu_s:.1f} s"
        print(f"| {label} | {figures} |")
    for label, fields in found.items():
        print(f"{label}: beside times, differs in {', '.join(sorted(fields)) or 'nothing'}")
    if "begun again" not in runs[f"{shards} shards, one killed"].said:
        problems.append("the killed shard was not begun again")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
