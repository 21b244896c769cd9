#!/usr/bin/env python3
"""Measures a run with many pictures that is killed twice: its memory, and its repeated requests.

    nice python benchmarks/pictures.py --pictures 10000

The pictures are different PNGs of noise, about 100 kB each. They are stored as the library of the
Hugging Face Hub stores a data set, and HELM's scenario mme reads them offline. The endpoint is a
process of its own, which counts different requests. After a third of the requests, and after two
thirds, the program and all its descendants are killed (SIGKILL), and the same command continues the
run.

The script fails if more requests are sent twice than were on their way when the program was killed.
It also fails if the processes together use more than --most MB of memory of their own. Pages of
files do not count, but are shown: the library `datasets` maps its files into memory, and the system
reclaims such pages when it needs memory. Linux only, because it reads the PSS.
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import datasets
from memory import SAMPLE_S, phase_of
from PIL import Image
from processes import NOT_REPORTABLE, held_mb, kill_everything, tree_of
from throughput import endpoint, get

from integration.test_pictures import ENTRY, prepare
from program_runs import program_environment

SIDE = 182  # The side of a picture in pixels. Noise cannot be compressed: 3 bytes for each pixel.
ROWS = 500  # the number of rows in a file of the data set


def row(number: int) -> dict[str, object]:
    """Return a row of the data set, with a picture that depends on the number."""
    out = io.BytesIO()
    source = random.Random(number)  # noqa: S311 - a picture, not a secret
    Image.frombytes("RGB", (SIDE, SIDE), source.randbytes(SIDE * SIDE * 3)).save(
        out, "PNG", compress_level=1
    )
    return {
        "image": out.getvalue(),
        "question_id": f"color/{number:06d}.png",
        "category": "color",
        "answer": "Yes" if number % 2 else "No",
        "question": "Is it noise? Please answer yes or no.",
    }


def run(
    argv: list[str], folder: Path, env: dict[str, str], url: str, kill_at: int | None
) -> dict[str, tuple[float, float]]:
    """Run a command to its end, or kill it after a number of different requests.

    Args:
        argv: the command.
        folder: the working directory.
        env: the environment variables.
        url: the URL of the endpoint.
        kill_at: the number of different requests after which the command is killed; None: it is not
            killed.

    Returns:
        The greatest memory of all processes together in each phase of the run, in MB: all memory,
        and the memory without pages of files.
    """
    highest: dict[str, tuple[float, float]] = {}
    last_sample = 0.0  # the time of the last measurement
    log = folder / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, cwd=folder, env=env)
    while process.poll() is None:
        if kill_at is not None and get(f"{url}/stats")["different"] >= kill_at:
            kill_everything(process)
            return highest
        if time.monotonic() - last_sample > SAMPLE_S:
            last_sample = time.monotonic()
            phase = phase_of(folder / "out" / "logs" / "events.jsonl")
            tree = tree_of(process.pid)
            resident = held_mb(tree)
            own = held_mb(tree, "Pss_Anon")
            before = highest.get(phase, (0.0, 0.0))
            highest[phase] = (max(before[0], resident), max(before[1], own))
        time.sleep(0.02)
    if kill_at is not None or process.returncode not in (0, NOT_REPORTABLE):
        raise RuntimeError(log.read_text(errors="replace")[-2000:])
    return highest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--most", type=float, default=1000.0, help="MB")
    arguments = parser.parse_args()
    count = arguments.pictures
    problems = []
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as name, endpoint(100, "--different") as url:
        folder = Path(name)
        files = -(-count // ROWS)  # rounded up
        splits = {}
        for file_number in range(files):
            name_of_file = f"test-{file_number:05d}-of-{files:05d}"
            numbers = range(count)[file_number * ROWS :][:ROWS]
            splits[name_of_file] = [row(number) for number in numbers]
        env = {**program_environment(), **prepare(folder / "hf", "lmms-lab/MME", splits)}
        argv = [
            sys.executable,
            "-m",
            "eval_factory",
            "run_eval",
            "--eval_type",
            ENTRY,
            "--model_url",
            f"{url}/v1",
            "--model_id",
            "bench",
            "--output_dir",
            str(folder / "out"),
            "--overrides",
            f"config.params.parallelism={arguments.concurrency}",
        ]
        print(
            "| until | its own memory, at most | with pages of files | by phase, "
            "MB | requests | asked twice |"
        )
        print("|---|---|---|---|---|---|")
        for kills, kill_at in enumerate((count // 3, 2 * count // 3, None)):
            highest = run(argv, folder, env, url, kill_at)
            stats = get(f"{url}/stats")
            twice = stats["requests"] - stats["different"]
            max_resident = max(resident for resident, _own in highest.values())
            max_own = max(own for _resident, own in highest.values())
            phases = ", ".join(
                f"{phase} {own:.0f} ({resident:.0f})" for phase, (resident, own) in highest.items()
            )
            until = "its end" if kill_at is None else f"{kill_at:,} are asked"
            cells = (
                until,
                f"{max_own:.0f} MB",
                f"{max_resident:.0f} MB",
                phases,
                f"{stats['requests']:,.0f}",
                f"{twice:.0f}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
            if max_own > arguments.most:
                problems.append(f"{max_own:.0f} MB")
            # At each of the earlier kills, `concurrency` requests may have been on their way.
            if twice > kills * arguments.concurrency:
                problems.append(f"{twice:.0f} asked twice")
        if stats["different"] != count:
            problems.append(f"{stats['different']:.0f} different requests")
    print(f"\nload {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    sys.exit("; ".join(problems) or 0)


if __name__ == "__main__":
    main()
