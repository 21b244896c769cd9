"""One evaluation asked by two processes, one of which is killed: the same files as of an unsplit run, asked once."""

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
from integration.executors.test_server_process import is_alive
from integration.jury_endpoint import KIND, MODEL, ODD, judgement
from integration.support import CANARY, TIMEOUT_S, program_environment
from same_files import differences, may_not_differ
from scripted_endpoint import PROBE, ScriptedEndpoint

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
    """The runs of the module: one that is not split, and one that loses a shard."""

    def __init__(self, folder: Path, jury: Jury) -> None:
        self.folder, self.jury = folder, jury
        write_example(folder / "mine", jury=True)
        self.whole, self.split = folder / "whole", folder / "split"
        self.unsplit, self.asked_unsplit = self.run(self.whole)
        self.lost, self.asked_lost = self.run_and_kill()

    def config(self, output_dir: Path) -> Path:
        judges = [{"name": name, "model_id": model, "api_key": "TEST_MODEL_KEY"} for name, model in JUDGES.items()]
        extra = {"benchmark": str(self.folder / "mine" / "benchmark.yaml"), "judges": judges}
        params = {"parallelism": 2, "extra": extra}
        endpoint = {"url": self.jury.url, "model_id": MODEL, "type": "chat", "api_key": "TEST_MODEL_KEY"}
        config = {"type": "custom", "output_dir": str(output_dir), "params": params}
        file = self.folder / f"{output_dir.name}.yml"
        file.write_text(yaml.safe_dump({"config": config, "target": {"api_endpoint": endpoint}}))
        return file

    def run(self, output_dir: Path) -> tuple[api.Evaluated, Counter[tuple[str, str]]]:
        self.jury.asked.clear()
        env = program_environment(TEST_MODEL_KEY=CANARY)
        return api.evaluate(self.config(output_dir), env=env), Counter(self.jury.asked)

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
        self.left, self.helm_run = left.name, holder["program"]
        os.kill(holder["pid"], signal.SIGKILL)
        wait_for(lambda: not is_alive(self.helm_run))  # which may hear an answer until then
        self.jury.go_on.set()
        said, _ = process.communicate(timeout=TIMEOUT_S)
        return (process.returncode, said), Counter(self.jury.asked)


JUDGES = {"kind": KIND, "odd": ODD}


@pytest.fixture(scope="module")
def runs(jury: Jury, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("sharded"), jury)


def test_a_lost_shard_alone_is_begun_again_and_leaves_no_process(runs: Runs) -> None:
    code, said = runs.lost
    assert code == (0 if runs.unsplit.not_reportable is None else 1), said
    assert said.count("it is begun again") == 1
    assert f"shard {runs.left} was lost (killed by signal 9); it is begun again and asks what is missing" in said
    assert not (runs.split / "shards" / runs.left / "cache.db").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(runs.helm_run, 0)


def test_nothing_is_asked_twice_but_what_was_in_flight(runs: Runs) -> None:
    assert runs.asked_lost.keys() == runs.asked_unsplit.keys()
    assert list((runs.asked_lost - runs.asked_unsplit).values()) == [1]  # the one that was held
    assert not runs.asked_unsplit - runs.asked_lost


def test_the_files_are_those_of_an_unsplit_run(runs: Runs) -> None:
    """All but what a clock measures; the judges, the floors and what was asked among it."""
    shards = "config.params.extra.shards"
    files = ("evaluation_config.yaml", "results.yml", "run_config.yml")
    assert may_not_differ(differences(runs.whole, runs.split)) == {f"{file}: {shards}" for file in files}
    document = yaml.safe_load((runs.split / "evaluation_config.yaml").read_text())
    assert document["validity"]["floors"]


def test_usage_counts_what_the_endpoint_saw(runs: Runs) -> None:
    document = yaml.safe_load((runs.split / "evaluation_config.yaml").read_text())
    with sqlite3.connect(runs.split / "cache.db") as connection:
        query = "SELECT count(DISTINCT run_id), count(*) FROM attempts WHERE outcome IN ('answered', 'failed')"
        run_ids, sent = connection.execute(query).fetchone()
    assert run_ids == 1
    assert sent == runs.asked_lost.total() - 1  # which nobody heard the answer of
    assert document["usage"]["requests"] == sent


def test_such_a_folder_is_verified(runs: Runs) -> None:
    found = verify(runs.split)
    assert found.intact, [*map(str, found.findings), found.unreadable]


def test_all_shards_keep_to_the_limit(jury: Jury, runs: Runs) -> None:
    assert runs.unsplit.result.validity.instances.scored > 0
    assert jury.most_at_once <= 2
