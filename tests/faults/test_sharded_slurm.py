"""One evaluation asked by two tasks on a real Slurm, one of whose nodes is lost: the files of a run that is not split."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.support import varied_answer
from scripted_endpoint import PROBE, ScriptedEndpoint
from slurm_trial import PATIENCE_S, end_of, run_suite, suite_that_runs, until
from virtual_slurm import virtual_slurm

INSTANCES = 8
PARTS = 2
NAME = "big"
OF_TIME = ("latency_s", "cached")


@dataclass
class Sharded:
    """What was seen."""

    folder: Path
    whole: Path
    said: str
    first: list[str]
    """The tasks that were submitted at first."""
    asked: Counter[str]
    needed: Counter[str]


def suite_file(folder: Path, url: str, **extra: int) -> Path:
    target = {"name": NAME, "api_endpoint": {"url": url, "model_id": NAME, "type": "chat"}}
    params = {"limit_samples": INSTANCES, "parallelism": 4, "extra": extra}
    section = {
        "output_dir": str(folder / "out"), "slurm": {"tasks_at_once": PARTS}, "evaluations": ["sample_medical_qa"],
        "targets": [target], "params": params,
    }  # fmt: skip
    path = folder / "suite.yml"
    path.write_text(yaml.safe_dump({"suite": section}), "utf-8")
    return path


def asked_of(endpoint: ScriptedEndpoint) -> Counter[str]:
    prompts = [request["messages"][-1]["content"] for request in endpoint.requests]
    return Counter(prompt for prompt in prompts if prompt != PROBE)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sharded]:
    """Each part waits for its answers when the node of one of them is lost."""
    folder, go_on = tmp_path_factory.mktemp("sharded"), threading.Event()
    (folder / "here").mkdir()

    def answer(prompt: str) -> str:
        if prompt != PROBE:
            go_on.wait(PATIENCE_S)
        return varied_answer(prompt)

    with virtual_slurm(folder / "slurm") as cluster, ScriptedEndpoint(answer) as endpoint:
        try:
            file = suite_file(folder, endpoint.url, shards=PARTS)
            with suite_that_runs(file, cluster, "--wait") as submitter:
                until(lambda: len(asked_of(endpoint)) == 2 * PARTS)  # `parallelism` of both
                running = cluster.tasks()
                cluster.do("node-kill", running[0][2])
                go_on.set()
                last = end_of(submitter)
            assert last.returncode == 0, last.stdout + last.stderr
            asked = asked_of(endpoint)
            endpoint.requests.clear()
            here = run_suite(suite_file(folder / "here", endpoint.url), None)
            assert here.returncode == 0, here.stderr
            first = [f"{state} {name.rpartition('_')[2]}" for name, state, _ in running]
            whole = folder / "here" / "out" / NAME / "sample_medical_qa"
            cell = folder / "out" / NAME / "sample_medical_qa"
            yield Sharded(cell, whole, last.stderr, first, asked, asked_of(endpoint))
        finally:
            go_on.set()


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in OF_TIME} for line in lines]


def test_each_part_is_a_task(sharded: Sharded) -> None:
    assert sorted(sharded.first) == ["RUNNING 0", "RUNNING 1"]
    assert "submitted 1 cell in 2 tasks to Slurm" in sharded.said
    assert sharded.said.count("submitted") == 1, "Slurm itself begins the lost part again"
    store = sharded.folder.parents[1] / ".suite" / "slurm" / "cells" / NAME / "sample_medical_qa"
    begun = {path.name.partition(".")[2]: len(list(path.glob("attempts/*"))) for path in store.iterdir()}
    assert (begun.pop(""), sorted(begun), sorted(begun.values())) == (1, ["1-of-2", "2-of-2"], [1, 2])
    assert len(list(store.glob("*/done.json"))) == 3


def test_nothing_is_asked_twice_but_what_was_in_flight(sharded: Sharded) -> None:
    assert sharded.asked.keys() == sharded.needed.keys()
    assert len(sharded.asked) == INSTANCES
    assert (sharded.asked - sharded.needed).total() <= 2


def test_the_result_is_that_of_a_run_that_is_not_split(sharded: Sharded) -> None:
    assert rows(sharded.folder) == rows(sharded.whole)
    assert len(rows(sharded.folder)) == INSTANCES
    (ours,), (whole,) = (
        list((folder / "helm" / "runs" / "eval-factory").glob("*/per_instance_stats.json"))
        for folder in (sharded.folder, sharded.whole)
    )
    numbers = [
        [stat for one in json.loads(file.read_text()) for stat in one["stats"] if "runtime" not in stat["name"]["name"]]
        for file in (ours, whole)
    ]
    assert numbers[0] == numbers[1]
    documents = [
        yaml.safe_load((folder / "evaluation_config.yaml").read_text()) for folder in (sharded.folder, sharded.whole)
    ]
    for part in ("results", "main_metric", "status"):
        assert documents[0][part] == documents[1][part]
    assert documents[0]["validity"]["instances"] == documents[1]["validity"]["instances"]
    assert documents[0]["usage"]["requests"] == documents[1]["usage"]["requests"] == INSTANCES
