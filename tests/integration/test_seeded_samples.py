"""`extra.sample_seed` through the real helm-run: which instances of a benchmark are asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval_factory.demo.example import write_example
from facts import says
from program_runs import Outcome, Run
from scripted_endpoint import ScriptedEndpoint

TOPICS = ["heart"] * 24 + ["lung"] * 12 + ["skin"] * 4
SIZE = 10


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    write_example(folder, "choice")
    (folder / "prompt.txt").write_text("{question}", encoding="utf-8")
    rows = "".join(f"Question {number}?,{topic},A\n" for number, topic in enumerate(TOPICS))
    (folder / "data.csv").write_text(f"question,topic,correct_answer\n{rows}", encoding="utf-8")
    return folder


def drawn(outcome: Outcome) -> dict[str, str]:
    """Id -> topic, of the instances that were asked."""
    assert outcome.returncode == 0, outcome.stderr
    lines = (outcome.output_dir / "instances.jsonl").read_text("utf-8").splitlines()
    return {one["id"]: one["extra.topic"] for one in map(json.loads, lines)}


def test_a_seed_draws_of_each_group(table: Path, run_program: Run, tmp_path: Path) -> None:
    asked: dict[str, set[str]] = {}

    def run(name: str, *flags: str, **extra: Any) -> Outcome:
        extra["benchmark"] = str(table / "benchmark.yaml")
        with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
            params = {"limit_samples": SIZE, "extra": extra}
            folder = tmp_path / name
            outcome = run_program("custom", endpoint.url, *flags, params=params, output_dir=folder)
            asked[name] = {
                request["messages"][-1]["content"].strip() for request in endpoint.requests
            }
        return outcome

    helms = run("helms")
    first = run("first", sample_seed=7)
    chosen = np.random.RandomState(0).choice(np.arange(len(TOPICS)), SIZE, replace=False)
    assert drawn(helms).keys() == {f"id{number}" for number in chosen}, "as ever"
    assert helms.document()["provenance"]["seeds"] == {"helm_sample": 0, "helm_examples": 0}

    assert Counter(drawn(first).values()) == {"heart": 6, "lung": 3, "skin": 1}
    assert asked["first"] == {f"Question {name[2:]}?" for name in drawn(first)}, (
        "ids are places in all of the data"
    )
    provenance = first.document()["provenance"]
    assert provenance["seeds"] == {"sample": 7, "helm_examples": 0}
    assert "draw_with_a_seed" in provenance["patches"]
    assert "draw_with_a_seed" not in helms.document()["provenance"]["patches"]


def test_it_is_refused_where_nothing_is_drawn_and_shown_by_a_dry_run(run_program: Run) -> None:
    nowhere = "http://127.0.0.1:9/v1"
    refused = run_program("sample_medical_qa", nowhere, params={"extra": {"sample_seed": 7}})
    assert refused.returncode == 2
    says(refused.stderr, "extra.sample_seed: ", "limit_samples")
    params = {"limit_samples": 8, "extra": {"sample_seed": 7}}
    looked = run_program("sample_medical_qa", nowhere, "--dry_run", params=params)
    assert (looked.returncode, "sample_seed  run config: 7" in looked.stdout) == (0, True), (
        looked.stdout
    )


def test_some_questions_by_their_ids(table: Path, run_program: Run, tmp_path: Path) -> None:
    extra = {"benchmark": str(table / "benchmark.yaml")}
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        params = {"extra": extra}
        some = run_program(
            "custom",
            endpoint.url,
            "--samples",
            "id17, id3",
            params=params,
            output_dir=tmp_path / "some",
        )
        assert drawn(some).keys() == {"id3", "id17"}
        assert len(endpoint.requests) == 2
        document = some.document()
        (scores,) = document["results"]["tasks"].values()
        assert scores["metrics"]["score"]["scores"]["exact_match"]["stats"]["count"] == 2
        says(document["validity"]["notes"], "2 instances", "extra.instances")
        none = run_program(
            "custom",
            endpoint.url,
            "--samples",
            "id3,id99",
            params=params,
            output_dir=tmp_path / "none",
        )
        assert none.returncode == 3, none.stderr
        says(none.stderr, "id99", "id0, id1, ")
        assert len(endpoint.requests) == 2, "nothing was asked"
