#!/usr/bin/env python3
"""A run with many pictures that is killed twice: how much memory it takes, and what is asked twice.

    nice python benchmarks/pictures.py --pictures 10000

Different PNGs of noise, about 100 kB each, as the Hub's library keeps a data set and HELM's mme reads it offline. The
endpoint, a process of its own, counts different bodies. At a third and at two thirds of them everything is killed
(SIGKILL, the whole tree), and the same command goes on. It fails where more was asked twice than was on its way, or
where the processes together hold more than --most of their own. Pages of files are shown and do not count: the library
`datasets` maps its files, and the system takes such pages back when it needs them. Linux only: PSS.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import datasets
from memory import NOT_REPORTABLE, SAMPLE_S, megabytes, phase_of, tree_of
from PIL import Image
from suite_faults import kill_everything
from throughput import endpoint, get

from integration.support import program_environment
from integration.test_pictures import ENTRY, prepare

SIDE = 182
"""Pixels: three bytes each, and noise does not get smaller."""
OF_A_FILE = 500
"""Rows."""


def noise(number: int) -> bytes:
    out = io.BytesIO()
    source = random.Random(number)  # noqa: S311 - a picture, not a secret
    Image.frombytes("RGB", (SIDE, SIDE), source.randbytes(SIDE * SIDE * 3)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def rows(first: int, last: int) -> Iterator[dict[str, object]]:
    for number in range(first, last):
        answer, name = "Yes" if number % 2 else "No", f"color/{number:06d}.png"
        question = "Is it noise? Please answer yes or no."
        yield {
            "image": noise(number), "question_id": name, "category": "color", "answer": answer, "question": question,
        }  # fmt: skip


def data_set(home: Path, count: int) -> dict[str, str]:
    """In a process of its own, which holds the pictures all at once. The variables of a run that reads it."""
    files = -(-count // OF_A_FILE)
    splits = {
        f"test-{number:05d}-of-{files:05d}": list(rows(number * OF_A_FILE, min(count, (number + 1) * OF_A_FILE)))
        for number in range(files)
    }
    return prepare(home, "lmms-lab/MME", splits)


class Memory:
    """The highest sums over the process tree, what processes share counted once. MB."""

    def __init__(self) -> None:
        self.most: dict[str, tuple[float, float]] = {}
        """Phase -> (all that is resident, what is no page of a file)."""

    def look(self, pid: int, phase: str) -> None:
        maps = [Path(f"/proc/{one}/smaps_rollup") for one in tree_of(pid)]
        now = [sum(megabytes(file, name) for file in maps) for name in ("Pss", "Pss_Anon")]
        before = self.most.get(phase, (0.0, 0.0))
        self.most[phase] = (max(before[0], now[0]), max(before[1], now[1]))


def run(argv: list[str], folder: Path, env: dict[str, str], url: str, kill_at: int | None) -> tuple[Memory, float]:
    """To its end, or until so many different requests were asked. Its memory, and seconds."""
    memory, started, log = Memory(), time.monotonic(), folder / "log"
    with log.open("ab") as told:
        process = subprocess.Popen(argv, stdout=told, stderr=told, cwd=folder, env=env)
    looked = 0.0
    while process.poll() is None:
        if kill_at is not None and get(f"{url}/stats")["different"] >= kill_at:
            kill_everything(process)
            return memory, time.monotonic() - started
        if time.monotonic() - looked > SAMPLE_S:
            looked = time.monotonic()
            memory.look(process.pid, phase_of(folder / "out" / "logs" / "events.jsonl"))
        time.sleep(0.02)
    if kill_at is not None or process.returncode not in (0, NOT_REPORTABLE):
        raise RuntimeError(log.read_text(errors="replace")[-2000:])
    return memory, time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--most", type=float, default=1000.0, help="MB")
    arguments = parser.parse_args()
    count, problems = arguments.pictures, []
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as name, endpoint(100, "--different") as url:
        folder = Path(name)
        env = {**program_environment(), **data_set(folder / "hf", count)}
        size = sum(file.stat().st_size for file in (folder / "hf" / "datasets").rglob("*.arrow"))
        print(f"{count:,} pictures, {size / 1e6:.0f} MB\n")
        argv = [
            sys.executable, "-m", "eval_factory", "run_eval", "--eval_type", ENTRY, "--model_url", f"{url}/v1",
            "--model_id", "bench", "--output_dir", str(folder / "out"),
            "--overrides", f"config.params.parallelism={arguments.concurrency}",
        ]  # fmt: skip
        print("| until | memory, at most | without pages of files | by phase, MB | requests | asked twice | wall |")
        print("|---|---|---|---|---|---|---|")
        for kills, kill_at in enumerate((count // 3, 2 * count // 3, None)):
            memory, wall = run(argv, folder, env, url, kill_at)
            asked = get(f"{url}/stats")
            requests, twice = asked["requests"], asked["requests"] - asked["different"]
            resident, own = (max(one[at] for one in memory.most.values()) for at in (0, 1))
            phases = ", ".join(f"{phase} {one[0]:.0f}/{one[1]:.0f}" for phase, one in memory.most.items())
            until = "its end" if kill_at is None else f"{kill_at:,} were asked"
            cells = (
                until,
                f"{resident:.0f} MB",
                f"{own:.0f} MB",
                phases,
                f"{requests:,.0f}",
                f"{twice:.0f}",
                f"{wall:.0f} s",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
            problems += [f"{own:.0f} MB"] if own > arguments.most else []
            problems += [f"{twice:.0f} asked twice"] if twice > kills * arguments.concurrency else []
        problems += [f"{asked['different']:.0f} different requests"] if asked["different"] != count else []
    print(f"\nload {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    sys.exit("; ".join(problems) or 0)


if __name__ == "__main__":
    main()
