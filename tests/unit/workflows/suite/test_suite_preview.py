"""Tests of what run_suite --dry_run shows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.errors import ConfigError
from eval_factory.helm.command import command_line
from eval_factory.workflows.options import DryRun
from eval_factory.workflows.suite.planned_cells import checked_cells
from eval_factory.workflows.suite.suite_preview import (
    CellRequestCount,
    counts_in_words,
    known_sum,
    preview_suite,
    request_count_of,
)
from facts import each_says, naming, says
from slurm_cells import ENV, cells_of
from suites import ENDPOINT, suite, target

PRICES = [
    {"model_id": f"org/{name}", "input_per_million": 1, "output_per_million": 1}
    for name in ("small", "big")
]


def preview(env: dict[str, str] | None = None, **changes: Any) -> DryRun:
    return preview_suite(suite(env=env, **changes), env=env or {})


def sections(text: str) -> dict[str, list[str]]:
    """First word of a heading -> the lines under it, without their marks."""
    parts = [part.splitlines() for part in text.removeprefix("# ").split("\n\n# ")]
    return {
        head.split()[0].rstrip(";,"): [line.removeprefix("#   ") for line in lines]
        for head, *lines in parts
    }


def test_a_suite_in_short() -> None:
    found = sections(
        preview(max_processes=1, max_attempts=3, max_cost=1500.5, max_wall_s=60, prices=PRICES).text
    )
    each_says(
        found["suite"],
        ["folder: /results/suite"],
        ["4 cells", "2 evaluations, 2 targets"],
        ["1 cell at once", "3 attempts"],
        ["max_cost 1,500.5", "max_wall_s 60"],
    )
    says(sections(preview().text)["suite"][-1], "budget", "no limit")
    with pytest.raises(ConfigError, match=naming("max_cost", "no price", "org/small")):
        preview(max_cost=5)


def test_every_cell_has_its_parameters_and_both_commands() -> None:
    given = suite(
        params={"limit_samples": 3}, evaluations=[{"type": "medec", "params": {"top_p": 0.5}}]
    )
    lines = sections(preview_suite(given, env={}).text)["cells"]
    plan = checked_cells(given, {})[0].plan
    assert plan is not None
    assert lines[0] == ""
    each_says(
        lines[1:5],
        ["small/medec", "3 requests"],
        ["limit_samples: 3 (suite)"],
        ["top_p: 0.5 (evaluation medec)"],
        ["eval-factory run_eval --run_config /results/suite/.suite/cells/small/medec.yml"],
    )
    assert lines[5] == f"  {shlex.join(command_line(plan))}"
    says(lines[7], "big/medec", "3 requests")


def test_the_limits_of_each_endpoint_and_judge_once() -> None:
    """Of different numbers for one limit the smallest."""
    limits = {"requests_per_minute": 600, "tokens_per_minute": 9000}
    targets = [
        target("a", params={"parallelism": 64}),
        {"name": "b", "api_endpoint": {**ENDPOINT, **limits}, "params": {"parallelism": 8}},
        {
            "name": "c",
            "limit_group": "own",
            "api_endpoint": {**ENDPOINT, "requests_per_minute": 60},
        },
    ]
    judges = [
        {
            "name": "gpt",
            "model_id": "x",
            "url": "https://j.example/v1/chat/completions",
            "parallelism": 2,
        }
    ]
    found = sections(
        preview(targets=targets, judges=judges, evaluations=["aci_bench", "medec"]).text
    )
    each_says(
        found["limits"],
        ["host.example/v1: 8 requests", "600 requests a minute", "9,000 tokens a minute", "(a, b)"],
        ["judge x", "https://j.example/v1: 2 requests", "(gpt)"],
        ["own: 4 requests", "60 requests a minute", "(c)"],
    )


def test_the_total_of_requests_and_whose_are_unknown(tmp_path: Path) -> None:
    data = tmp_path / "x.csv"
    data.write_text("prompt,context,label\na,b,A\n")
    own = {"type": "shc_bmt_med", "params": {"extra": {"data_path": str(data)}}}
    found = sections(
        preview(evaluations=["pubmed_qa", "aci_bench", own], targets=[target("a")]).text
    )
    each_says(found["total"], ["1,120 requests", "360 to judges"], ["a/shc_bmt_med", "not known"])
    assert len(sections(preview().text)["total"]) == 1


def test_what_is_missing_is_said_of_the_cell_and_of_the_suite() -> None:
    keyed = [target("a"), {"name": "b", "api_endpoint": {**ENDPOINT, "api_key": "B_KEY"}}]
    found = preview(targets=keyed, evaluations=["medec"])
    (stop,) = found.would_stop
    says(stop, "b/medec", "api_key of the target")
    says(stop, "no API key", "B_KEY is not set", "export B_KEY=...")
    lines = sections(found.text)["cells"]
    each_says(lines[-2:], ["would stop", "B_KEY is not set"], ["export B_KEY=...", "api_key"])
    assert sum("would stop" in line for line in lines) == 1


def test_what_is_noted_of_tasks_is_said_once() -> None:
    notes = sections(preview(evaluations=["medec", "aci_bench"]).text)["notes"]
    assert len(notes) == 1
    says(notes[0], "every cell of aci_bench", "17 of 120")
    assert "notes" not in sections(preview().text)


def test_no_secret_is_shown() -> None:
    env = {"MY_KEY": "canary-0123456789-canary", "HF_TOKEN": "canary-of-the-hub-1234"}
    endpoint = {
        **ENDPOINT,
        "api_key": "MY_KEY",
        "url": "https://h/v1?key=${MY_KEY}&hub=${HF_TOKEN}",
    }
    assert "canary" not in preview(env, targets=[{"name": "a", "api_endpoint": endpoint}]).text


def test_a_dry_run_shows_the_batch_scripts_and_writes_nothing(tmp_path: Path) -> None:
    suite, _ = cells_of(tmp_path / "out", slurm={"time": "30", "account": "lab"})
    text = preview_suite(suite, env=ENV).text
    says(text, "jobs of Slurm", "2 attempts")
    assert (
        f"\n# {tmp_path}/out/.suite/slurm/waves/w1.sh: a/sample_medical_qa\n#!/bin/bash\n" in text
    )
    assert (
        f"\n# {tmp_path}/out/.suite/slurm/waves/w2.sh: b/sample_medical_qa\n#!/bin/bash\n" in text
    )
    assert text.count("#SBATCH --account=lab\n#SBATCH --time=30\n") == 2
    assert "#SBATCH --job-name=ef-ID-w2\n" in text
    assert list(tmp_path.iterdir()) == []
    local = preview_suite(cells_of(tmp_path, executor="local")[0], env=ENV).text
    assert "sbatch" not in local.lower()
    says(local, "2 attempts of each")
    with pytest.raises(
        ConfigError, match=r"suite\.max_requests: jobs on several machines cannot share"
    ):
        preview_suite(cells_of(tmp_path, max_requests=5)[0], env=ENV)


DATA = {"config.params.extra.data_path": "/x"}
JUDGE = {"config.params.extra.judges": [{"name": "gpt", "model_id": "j"}]}


MMLU = {"config.type": "helm:mmlu:subject=anatomy", "config.params.limit_samples": 4}
"""Its prompts hold examples; those of aci_bench do not, and HELM asks it once whatever is said."""


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ({}, CellRequestCount(1000, 0)),
        ({"config.params.limit_samples": 7}, CellRequestCount(7, 0)),
        ({"config.params.limit_samples": 1000}, CellRequestCount(1000, 0)),
        ({"config.params.limit_samples": 1001}, CellRequestCount(1000, 0)),
        ({"config.params.extra.stop_when.half_width": 0.1}, CellRequestCount(1000, 0)),
        ({"config.type": "aci_bench"}, CellRequestCount(120, 360)),
        (
            {"config.type": "aci_bench", "config.params.extra.num_train_trials": 2},
            CellRequestCount(120, 360),
        ),
        ({**MMLU, "config.params.extra.num_train_trials": 2}, CellRequestCount(8, 0)),
        ({**MMLU, "config.params.extra.shuffle_choices": 3}, CellRequestCount(12, 0)),
        (
            {"config.type": "head_qa", "config.params.extra.category": "nursery"},
            CellRequestCount(2675, 0),
        ),
        ({"config.type": "shc_bmt_med", **DATA}, CellRequestCount(None, 0)),
        (
            {"config.type": "shc_bmt_med", **DATA, "config.params.limit_samples": 9},
            CellRequestCount(9, 0),
        ),
        (
            {"config.type": "helm:harm_bench", "config.params.limit_samples": 5},
            CellRequestCount(5, 5),
        ),
        (
            {"config.type": "healthbench", **JUDGE, "config.params.limit_samples": 4},
            CellRequestCount(4, 4, by_criterion=True),
        ),
    ],
    ids=str,
)
def test_an_instance_is_a_request_and_one_to_each_judge(
    flags: dict[str, Any], count: CellRequestCount
) -> None:
    assert request_count_of(plan(flags)) == count


def test_the_sum_is_of_those_that_are_known() -> None:
    counts = [CellRequestCount(5, 10), CellRequestCount(None, 0), CellRequestCount(3, 0)]
    assert known_sum(counts) == CellRequestCount(8, 10)
    assert known_sum(counts[:1]) == CellRequestCount(5, 10)
    assert known_sum([*counts[:1], CellRequestCount(1, 1, by_criterion=True)]) == CellRequestCount(
        6, 11, by_criterion=True
    )
    assert known_sum([]) == CellRequestCount(0, 0)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (CellRequestCount(1, 0), "at most 1 request to the model"),
        (CellRequestCount(1200, 3600), "at most 1,200 requests to the model, 3,600 to judges"),
        (
            CellRequestCount(3, 9, by_criterion=True),
            "at most 3 requests to the model, 9 or more to judges",
        ),
        (CellRequestCount(0, 0), "at most 0 requests to the model"),
        (CellRequestCount(None, 0), "an unknown number of requests"),
    ],
    ids=str,
)
def test_in_words(count: CellRequestCount, said: str) -> None:
    assert counts_in_words(count) == said
