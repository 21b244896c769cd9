"""One evaluation asked by two processes, one of which is killed: the same result as of an unsplit run, asked once."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory import api
from eval_factory.demo.example import write_example
from eval_factory.workflows.verify import verify
from integration.jury_endpoint import KIND, MODEL, ODD, judgement
from integration.support import CANARY, TIMEOUT_S, program_environment
from scripted_endpoint import PROBE, ScriptedEndpoint

OF_TIME = ("latency_s", "cached")
BABBLE = "I think that this is quite good, a four perhaps."


class Jury(ScriptedEndpoint):
    """Whatever it does depends on the prompt alone: judges babble at some and fail at others."""

    def __init__(self) -> None:
        super().__init__(lambda prompt: f"Rest for {number_of(prompt, 9)} days.")
        self.asked: Counter[tuple[str, str]] = Counter()
        self.at_once = self.most_at_once = 0
        self.hold_from: int | None = None
        """From this request of the model's on, none is answered until `go_on`."""
        self.go_on = threading.Event()
        self.held = threading.Event()
        self._count = threading.Lock()

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        prompt, model = body["messages"][-1]["content"], body["model"]
        if prompt == PROBE:
            return super().reply(path, headers, body)
        with self._count:
            self.asked[(model, prompt)] += 1
            self.at_once += model == MODEL
            self.most_at_once = max(self.most_at_once, self.at_once)
            hold = model == MODEL and self.hold_from is not None and self.of(MODEL) == self.hold_from
        if hold:
            self.held.set()
            self.go_on.wait(TIMEOUT_S)
        try:
            return self.judged(prompt, model) or super().reply(path, headers, body)
        finally:
            with self._count:
                self.at_once -= model == MODEL

    def judged(self, prompt: str, model: str) -> tuple[int, dict[str, Any]] | None:
        if model == MODEL:
            return None
        way = number_of(prompt.partition("\n\nYour previous answer")[0], 3)
        if model == ODD and way == 0:
            return 422, {"error": {"message": "no"}}
        text = BABBLE if model == ODD and way == 1 else judgement(prompt, 5, 4, 2)
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return 200, {"model": model, "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    def of(self, model: str) -> int:
        return sum(count for (name, _), count in self.asked.items() if name == model)


def number_of(text: str, choices: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % choices


@pytest.fixture(scope="module")
def jury() -> Iterator[Jury]:
    with Jury() as server:
        yield server
        server.go_on.set()


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Runs:
    """The runs of the module: one that is not split, one that loses a shard, and the same command again."""

    def __init__(self, folder: Path, jury: Jury) -> None:
        self.folder, self.jury = folder, jury
        write_example(folder / "mine", jury=True)
        self.whole, self.split = folder / "whole", folder / "split"
        self.unsplit, self.asked_unsplit = self.run(self.whole)
        self.lost, self.asked_lost = self.run_and_kill()
        self.again, self.asked_again = self.run(self.split, shards=2)

    def config(self, output_dir: Path) -> Path:
        judges = [{"name": name, "model_id": model, "api_key": "TEST_MODEL_KEY"} for name, model in JUDGES.items()]
        extra = {"benchmark": str(self.folder / "mine" / "benchmark.yaml"), "judges": judges}
        params = {"parallelism": 2, "extra": extra}
        endpoint = {"url": self.jury.url, "model_id": MODEL, "type": "chat", "api_key": "TEST_MODEL_KEY"}
        config = {"type": "custom", "output_dir": str(output_dir), "params": params}
        file = self.folder / f"{output_dir.name}.yml"
        file.write_text(yaml.safe_dump({"config": config, "target": {"api_endpoint": endpoint}}))
        return file

    def run(self, output_dir: Path, **flags: int) -> tuple[api.Evaluated, Counter[tuple[str, str]]]:
        self.jury.asked.clear()
        given = {f"config.params.extra.{name}": value for name, value in flags.items()}
        env = program_environment(TEST_MODEL_KEY=CANARY)
        evaluated = api.evaluate(self.config(output_dir), flags=given, env=env)
        return evaluated, Counter(self.jury.asked)

    def run_and_kill(self) -> tuple[tuple[int, str], Counter[tuple[str, str]]]:
        """One shard waits for an answer; when the other is complete, it is killed."""
        self.jury.asked.clear()
        self.jury.hold_from = 5
        argv = [sys.executable, "-m", "eval_factory", "run_eval", "--run_config", str(self.config(self.split))]
        process = subprocess.Popen(
            [*argv, "--shards", "2"],
            env=program_environment(TEST_MODEL_KEY=CANARY),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        shards = [self.split / "shards" / f"{index}-of-2" for index in (1, 2)]
        wait_for(lambda: self.jury.held.is_set() and any((shard / "done.json").is_file() for shard in shards))
        (left,) = (shard for shard in shards if not (shard / "done.json").is_file())
        holder = json.loads((left / ".lock.holder.json").read_text())
        os.kill(holder["pid"], signal.SIGKILL)
        self.jury.go_on.set()
        said, _ = process.communicate(timeout=TIMEOUT_S)
        self.left, self.helm_run = left.name, holder["program"]
        return (process.returncode, said), Counter(self.jury.asked)


JUDGES = {"kind": KIND, "odd": ODD}


@pytest.fixture(scope="module")
def runs(jury: Jury, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("sharded"), jury)


def without_time(value: Any) -> Any:
    """Without what a clock measured."""
    if isinstance(value, list):
        return [without_time(one) for one in value if not is_of_time(one)]
    if isinstance(value, dict):
        return {name: without_time(one) for name, one in value.items() if not name.startswith("request_")}
    return value


def is_of_time(value: Any) -> bool:
    return isinstance(value, dict) and "runtime" in str(value.get("name"))


def helm_files(folder: Path) -> dict[str, Any]:
    (run,) = (folder / "helm" / "runs" / "eval-factory").glob("my_*")
    return {file.name: without_time(json.loads(file.read_text())) for file in run.glob("*stats.json")}


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in OF_TIME} for line in lines]


def test_a_lost_shard_is_told_with_the_next_step_and_leaves_no_process(runs: Runs) -> None:
    code, said = runs.lost
    assert code == 4, said
    assert f"1 of 2 shards did not come to their end: {runs.left} (killed by signal 9)" in said
    assert "run the same command again: only what is missing is asked" in said
    assert not (runs.split / "shards" / runs.left / "cache.db").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(runs.helm_run, 0)


def test_nothing_is_asked_twice_but_what_was_in_flight(runs: Runs) -> None:
    together = runs.asked_lost + runs.asked_again
    assert together.keys() == runs.asked_unsplit.keys()
    more = {key: count for key, count in (together - runs.asked_unsplit).items() if key[0] != ODD}
    assert list(more.values()) == [1]  # the one that was held; a judge that failed or babbled is asked again
    assert set(runs.asked_again.values()) == {1}  # but not by the process that scores


def test_the_result_is_that_of_an_unsplit_run(runs: Runs) -> None:
    assert runs.again.not_reportable == runs.unsplit.not_reportable
    assert helm_files(runs.split) == helm_files(runs.whole)
    assert helm_files(runs.split).keys() == {"stats.json", "per_instance_stats.json"}
    assert rows(runs.split) == rows(runs.whole)
    whole, split = (
        yaml.safe_load((folder / "evaluation_config.yaml").read_text()) for folder in (runs.whole, runs.split)
    )
    assert split["results"] == whole["results"]
    assert split["validity"]["judges"] == whole["validity"]["judges"]
    assert split["provenance"]["run_identity"] == whole["provenance"]["run_identity"]
    assert split["provenance"]["prompts_sha256"] == whole["provenance"]["prompts_sha256"]


def test_usage_counts_what_the_endpoint_saw(runs: Runs) -> None:
    document = yaml.safe_load((runs.split / "evaluation_config.yaml").read_text())
    with sqlite3.connect(runs.split / "cache.db") as connection:
        query = "SELECT count(DISTINCT run_id), count(*) FROM attempts WHERE outcome IN ('answered', 'failed')"
        run_ids, sent = connection.execute(query).fetchone()
    assert run_ids == 2
    assert sent == runs.asked_lost.total() + runs.asked_again.total() - 1  # which nobody heard the answer of
    usage = document["usage"]
    assert usage["all_runs"]["requests"] == sent
    assert usage["requests"] == runs.asked_again.total()


def test_such_a_folder_is_verified(runs: Runs) -> None:
    found = verify(runs.split)
    assert found.intact, [*map(str, found.findings), found.unreadable]


def test_all_shards_keep_to_the_limit(jury: Jury, runs: Runs) -> None:
    assert runs.again.result.validity.instances.scored > 0
    assert jury.most_at_once <= 2
