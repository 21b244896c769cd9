#!/usr/bin/env python3
"""Compares a disturbed suite with the same suite without disturbances.

The suite has three models and five benchmarks. In both suites, one cell (a benchmark of a model)
always fails. In the disturbed suite, one endpoint dies and comes back, and the program and all its
descendants are killed twice (SIGKILL). The same command must then end with the table of the
undisturbed suite. The counts of the endpoints must show that their limits were respected, and that
only requests that were on their way at a kill were sent twice.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from processes import kill_everything

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from fault_endpoint import FOR_EVER, PROBE, Fault, FaultEndpoint
from program_runs import program_environment, varied_answer

MODELS = ("steady", "picky", "flaky")
BENCHMARKS = tuple(f"benchmark{number}" for number in range(1, 6))
REFUSED = "benchmark3"
"""The benchmark that the picky model's endpoint answers with 400 only."""
AT_ONCE = 4  # the limit of each endpoint: requests at the same time
POLL_S = 0.02
WAIT_S = 600.0
ENV = program_environment(OPENAI_API_KEY="sk-0123456789abcdef0123")
COMMAND = (sys.executable, "-m", "eval_factory", "run_suite", "--run_config")
TABLES = ("suite_results.yaml", "suite_results.csv", "suite_results.md")


class Endpoint(FaultEndpoint):
    """An endpoint that answers after 0.1 s, and refuses prompts that contain a text (`refused`)."""

    def __init__(self, refused: str | None) -> None:
        super().__init__([], "")
        self.good = varied_answer
        self.delay_s = 0.1
        self._refused = refused

    def fault_of(self, prompt: str) -> Fault | None:
        super().fault_of(prompt)
        refused = self._refused is not None and self._refused in prompt
        return Fault(400, FOR_EVER) if refused and prompt != PROBE else None

    @property
    def asked(self) -> int:
        """The number of requests; `seen` counts the requests of each prompt."""
        return sum(self.seen.values())

    @property
    def most_at_once(self) -> int:
        """The greatest number of requests at the same time."""
        return max((inside for _, inside in self.arrivals), default=0)

    def die(self) -> None:
        self.dead = True
        self.__exit__()


How = Callable[[Path, Mapping[str, Endpoint]], int]
"""A way to run a suite: a function that runs the suite of a file, perhaps with disturbances, and
returns the exit code. It also gets the endpoints by the name of their model.
"""


@dataclass(frozen=True)
class Ended:
    """The outcome of a suite. The counts are by the name of the model."""

    tables: dict[str, str]
    """The texts of the tables by file name, without the folder's name and the endpoints' ports."""
    code: int  # the exit code
    asked: dict[str, int]  # the number of requests
    different: dict[str, int]  # the number of different prompts
    most_at_once: dict[str, int]  # the greatest number of requests at the same time
    wall_s: float


def write_benchmark(folder: Path, name: str, instances: int) -> Path:
    """Write a custom benchmark, and return its file. No other benchmark has the same questions."""
    folder.mkdir(parents=True)
    (folder / "prompt.txt").write_text("{question}\nA. {a}\nB. {b}\nAnswer:", encoding="utf-8")
    with (folder / "data.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "a", "b", "correct_answer"])
        rows = (
            [f"{name}: question {row}", f"one {row}", "two", "AB"[row % 2]]
            for row in range(instances)
        )
        writer.writerows(rows)
    document = {
        "name": name,
        "description": "Made up",
        "prompt_file": "prompt.txt",
        "dataset_file": "data.csv",
        "max_tokens": 5,
        "metrics": [{"name": "exact_match"}],
    }
    (folder / "benchmark.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return folder / "benchmark.yaml"


def write_suite(
    folder: Path, urls: dict[str, str], names: Sequence[str], instances: int, **keys: Any
) -> Path:
    """Write a suite, and return its file.

    Args:
        folder: the folder for the files.
        urls: the URL of each model's endpoint.
        names: the names of the benchmarks.
        instances: the number of instances of each benchmark.
        keys: further keys of the suite.
    """
    benchmarks = {name: write_benchmark(folder / name, name, instances) for name in names}
    document = {
        "output_dir": str(folder / "out"),
        **keys,
        "evaluations": [
            {"type": "custom", "name": name, "params": {"extra": {"benchmark": str(path)}}}
            for name, path in benchmarks.items()
        ],
        "targets": [
            {"name": name, "api_endpoint": {"url": url, "model_id": name, "type": "chat"}}
            for name, url in urls.items()
        ],
    }
    file = folder / "suite.yml"
    file.write_text(yaml.safe_dump({"suite": document}), encoding="utf-8")
    return file


def start(file: Path) -> subprocess.Popen[bytes]:
    log = (file.parent / "screen.log").open("ab")
    with log:
        return subprocess.Popen([*COMMAND, str(file)], env=ENV, stdout=log, stderr=log)


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait until a condition is true.

    Raises:
        RuntimeError: the process has ended before, or `WAIT_S` are over.
    """
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise RuntimeError("it ended, or took too long, before what was waited for")
        time.sleep(POLL_S)


def run(
    folder: Path,
    endpoints: Mapping[str, Endpoint],
    names: Sequence[str],
    instances: int,
    how: How,
    **keys: Any,
) -> Ended:
    """Run a suite in the way of `how`, and return its outcome.

    Args:
        folder: a new folder for the suite.
        endpoints: the endpoints by the name of their model. They are started here.
        names: the names of the benchmarks.
        instances: the number of instances of each benchmark.
        how: the way.
        keys: further keys of the suite.
    """
    folder.mkdir()
    with ExitStack() as stack:
        for endpoint in endpoints.values():
            stack.enter_context(endpoint)
        urls = {name: endpoint.url for name, endpoint in endpoints.items()}
        file = write_suite(folder, urls, names, instances, **keys)
        started = time.monotonic()
        code = how(file, endpoints)
        wall = time.monotonic() - started
    tables = {
        name: (folder / "out" / name).read_text("utf-8").replace(str(folder), "") for name in TABLES
    }
    for model, url in urls.items():
        tables = {name: text.replace(url, f"http://{model}") for name, text in tables.items()}
    return Ended(
        tables=tables,
        code=code,
        asked={name: endpoint.asked for name, endpoint in endpoints.items()},
        different={name: len(endpoint.seen) for name, endpoint in endpoints.items()},
        most_at_once={name: endpoint.most_at_once for name, endpoint in endpoints.items()},
        wall_s=wall,
    )


def alone(file: Path, _endpoints: Mapping[str, Endpoint]) -> int:
    """Run a suite without disturbances (a `How`)."""
    return start(file).wait(WAIT_S)


def disturbance(instances: int, outage_s: float) -> How:
    """Return the way that disturbs a suite.

    Args:
        instances: the number of instances of each benchmark.
        outage_s: the seconds after the last kill until the dead endpoint comes back.
    """
    all_requests = len(BENCHMARKS) * len(MODELS) * instances

    def disturb(file: Path, endpoints: Mapping[str, Endpoint]) -> int:
        def asked() -> int:
            return sum(endpoint.asked for endpoint in endpoints.values())

        process = start(file)
        wait_until(lambda: asked() > all_requests // 5, process)
        kill_everything(process)
        process = start(file)
        wait_until(lambda: asked() > all_requests // 3, process)
        endpoints["flaky"].die()
        wait_until(lambda: asked() > all_requests // 2, process)
        kill_everything(process)
        process = start(file)
        back = threading.Timer(outage_s, endpoints["flaky"].come_back)
        back.start()
        return process.wait(WAIT_S)

    return disturb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=20, help="of each benchmark")
    parser.add_argument(
        "--outage-s",
        type=float,
        default=20.0,
        help="how long the endpoint is gone after the last kill",
    )
    arguments = parser.parse_args()
    ways = {"alone": alone, "disturbed": disturbance(arguments.instances, arguments.outage_s)}
    outcomes = {}
    with tempfile.TemporaryDirectory() as name:
        for way, how in ways.items():
            endpoints = {model: Endpoint(REFUSED if model == "picky" else None) for model in MODELS}
            params = {"parallelism": AT_ONCE, "max_retries": 1}
            outcomes[way] = run(
                Path(name) / way,
                endpoints,
                BENCHMARKS,
                arguments.instances,
                how,
                params=params,
                max_processes=3,
                max_outage_s=WAIT_S,
            )
        events = (Path(name) / "disturbed" / "out" / ".suite" / "events.jsonl").read_text("utf-8")
    quiet = outcomes["alone"]
    disturbed = outcomes["disturbed"]
    table = quiet.tables["suite_results.csv"]
    disturbed_table = disturbed.tables["suite_results.csv"]
    print(table)
    for way, outcome in outcomes.items():
        print(
            f"{way}: exit code {outcome.code}, {outcome.wall_s:.0f} "
            f"s, asked {outcome.asked}, at once {outcome.most_at_once}"
        )
    kills = 2
    problems = []
    if table != disturbed_table:
        problems.append("the tables differ:\n" + disturbed_table)
    if quiet.code != disturbed.code:
        problems.append("the exit codes differ")
    if '"endpoint_paused"' not in events or '"endpoint_back"' not in events:
        problems.append("no endpoint was waited for")
    for model in ("steady", "flaky"):
        twice = disturbed.asked[model] - disturbed.different[model]
        print(
            f"{model}: {twice} requests were asked twice; at most {kills * AT_ONCE} "
            "were on their way at the kills"
        )
        if twice > kills * AT_ONCE or disturbed.different[model] != quiet.different[model]:
            problems.append(
                f"{model}: {disturbed.asked[model]} requests of {disturbed.different[model]} "
                "prompts"
            )
        if disturbed.most_at_once[model] > AT_ONCE:
            problems.append(f"{model}: {disturbed.most_at_once[model]} requests at once")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
