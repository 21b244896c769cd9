#!/usr/bin/env python3
"""Requests a second of eval-factory and of bare helm-run, side by side in one run, on invented prompts of real length.

Both run HELM's pubmed_qa on the same invented data against the same endpoint process. The request phase is measured by
the endpoint (first request received to last answer sent); the ideal is concurrency / latency.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
WORDS_OF_AN_ABSTRACT = 230
RUN_LIMIT_S = 900
MODEL = "endpoint/bench"


@dataclass(frozen=True)
class Measured:
    """One run of one tool."""

    tool: str
    latency_ms: float
    concurrency: int
    request_s: float
    rate: float
    most_at_once: int
    wall_s: float
    cpu_s: float
    peak_mib: float

    @property
    def of_ideal(self) -> float | None:
        ideal = self.concurrency / (self.latency_ms / 1000) if self.latency_ms else None
        return self.rate / ideal if ideal else None


def invented_data(count: int) -> dict[str, object]:
    """`test_set.json` of pubmed_qa: abstracts of invented words, about 1,700 characters each."""
    source = random.Random(0)  # noqa: S311 - invented text, not a secret
    letters = "abcdefghilmnoprstuv"
    words = ["".join(source.choices(letters, k=source.randint(3, 11))) for _ in range(3000)]
    return {
        str(number): {
            "QUESTION": " ".join(source.choices(words, k=14)) + "?",
            "CONTEXTS": [" ".join(source.choices(words, k=WORDS_OF_AN_ABSTRACT))],
            "LABELS": ["BACKGROUND"],
            "MESHES": [],
            "final_decision": source.choice(["yes", "no", "maybe"]),
            "LONG_ANSWER": "x",
        }
        for number in range(count)
    }


@contextmanager
def endpoint(latency_ms: float) -> Iterator[str]:
    argv = [sys.executable, str(HERE / "endpoint.py"), "--latency-ms", str(latency_ms)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def get(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
        loaded: dict[str, float] = json.loads(answer.read())
        return loaded


def ours(folder: Path, url: str, count: int, concurrency: int) -> list[str]:
    overrides = f"config.params.parallelism={concurrency},config.params.limit_samples={count}"
    return [
        str(BIN / "eval-factory"), "run_eval", "--eval_type", "pubmed_qa", "--output_dir", str(folder),
        "--model_url", f"{url}/v1", "--model_id", "bench", "--overrides", overrides,
    ]  # fmt: skip


def bare_helm(folder: Path, url: str, count: int, concurrency: int) -> list[str]:
    local = folder / "prod_env"
    local.mkdir(parents=True)
    client = {
        "class_name": "helm.clients.openai_client.OpenAIClient",
        "args": {"base_url": f"{url}/v1", "api_key": "none", "openai_model_name": "bench"},
    }
    deployment = {"name": MODEL, "model_name": MODEL, "client_spec": client}
    metadata = {
        "name": MODEL, "display_name": "m", "description": "m", "creator_organization_name": "o",
        "access": "open", "release_date": None, "tags": ["TEXT_MODEL_TAG", "FULL_FUNCTIONALITY_TEXT_MODEL_TAG"],
    }  # fmt: skip
    (local / "model_deployments.yaml").write_text(yaml.safe_dump({"model_deployments": [deployment]}))
    (local / "model_metadata.yaml").write_text(yaml.safe_dump({"models": [metadata]}))
    return [
        str(BIN / "helm-run"), "--run-entries", f"pubmed_qa:model={MODEL}", "--suite", "bench",
        "--max-eval-instances", str(count), "--num-threads", str(concurrency), "--output-path", str(folder / "helm"),
        "--local-path", str(local), "--disable-cache",
    ]  # fmt: skip


TOOLS = {"eval-factory": ours, "bare helm-run, no cache": bare_helm}


def measure(tool: str, latency_ms: float, concurrency: int, count: int, data: str) -> Measured:
    """One whole run in a folder of its own. Raises RuntimeError with the tool's last words where it fails."""
    with tempfile.TemporaryDirectory() as name, endpoint(latency_ms) as url:
        folder = Path(name) / "out"
        file = folder / "helm" / "scenarios" / "pubmed_qa" / "data" / "test_set.json"
        file.parent.mkdir(parents=True)
        file.write_text(data)
        argv = TOOLS[tool](folder, url, count, concurrency)
        log = Path(name) / "log"
        started = time.monotonic()
        with log.open("wb") as output, subprocess.Popen(argv, stdout=output, stderr=output, cwd=name) as process:
            peak = 0.0
            while process.poll() is None:
                peak = max(peak, tree_memory_mib(process.pid))
                if time.monotonic() - started > RUN_LIMIT_S:
                    process.kill()
                time.sleep(0.05)
        wall = time.monotonic() - started
        stats = get(f"{url}/stats")
        if process.returncode != 0 or stats["requests"] < count:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{tool} ended with {process.returncode} after {stats['requests']} requests:\n{tail}")
    cpu = os.times()
    return Measured(
        tool, latency_ms, concurrency, stats["seconds"], stats["requests"] / stats["seconds"],
        int(stats["most_at_once"]), wall, cpu.children_user + cpu.children_system, peak,
    )  # fmt: skip


def tree_memory_mib(pid: int) -> float:
    """Resident memory of a process and its children (Linux; 0 elsewhere)."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(path.parent.name) == pid or int(fields[1]) == pid:
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return total


def table(rows: list[Measured]) -> str:
    lines = [
        "| latency | at once | tool | request phase | requests/s | of the ideal | whole process | CPU | peak memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = "" if row.of_ideal is None else f"{row.of_ideal:.2f}"
        lines.append(
            f"| {row.latency_ms:g} ms | {row.concurrency} | {row.tool} | {row.request_s:.1f} s | {row.rate:.0f} |"
            f" {share} | {row.wall_s:.1f} s | {row.cpu_s:.1f} s | {row.peak_mib:.0f} MiB |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--settings", nargs="+", default=["0:32", "50:32", "500:128"], help="latency_ms:concurrency")
    parser.add_argument("--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--output", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    data = json.dumps(invented_data(arguments.instances))
    rows: list[Measured] = []
    for setting in arguments.settings:
        latency, concurrency = setting.split(":")
        for tool in arguments.tools:
            before = os.times()
            row = measure(tool, float(latency), int(concurrency), arguments.instances, data)
            cpu = row.cpu_s - before.children_user - before.children_system
            rows.append(Measured(**{**vars(row), "cpu_s": cpu}))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))
    if arguments.output:
        arguments.output.write_text(table(rows))


if __name__ == "__main__":
    main()
