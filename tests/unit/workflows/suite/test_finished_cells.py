from __future__ import annotations

from typing import Any

import pytest

from eval_factory.core.rundir import RunDir
from eval_factory.plan.run_plan import RUNTIME_ONLY, Plan, make_plan
from eval_factory.workflows.resume import DataRead, ended_run, remember
from eval_factory.workflows.suite.finished_cells import (
    OF_NO_RESULT,
    READ_WHEN_COLLECTED,
    FinishedResult,
    finished,
    has_partial_result,
    is_complete_run,
    keeps_partial_result,
    reads_own_data,
)
from unit.builders import evaluation, plan


def plan_of(folder: RunDir, **flags: Any) -> Plan:
    """As of the folder's own run, but for `flags`."""
    return make_plan(evaluation({"config.output_dir": str(folder.root), **flags}))


def test_a_complete_result_of_the_same_run_is_collected(folder: RunDir) -> None:
    assert finished(plan_of(folder)) == FinishedResult(None)


@pytest.mark.parametrize(
    "path",
    [
        "config.params.parallelism", "config.params.max_retries", "config.params.extra.stop_after_failures",
        "config.params.extra.max_cost", "config.params.extra.max_requests", "config.params.extra.max_tokens_total",
        "config.params.extra.max_wall_s", "target.api_endpoint.requests_per_minute",
    ],
)  # fmt: skip
def test_what_changes_no_number_begins_no_run(path: str, folder: RunDir) -> None:
    assert finished(plan_of(folder, **{path: 3})) == FinishedResult(None)


def test_each_value_that_is_no_part_of_a_runs_identity_chooses_whether_a_result_depends_on_it() -> None:
    """A new one has to be put into this list, or among those that are read when a result is collected."""
    assert RUNTIME_ONLY >= READ_WHEN_COLLECTED
    extra = {f"config.params.extra.{name}" for name in (
        "stop_after_failures", "max_cost", "max_requests", "max_tokens_total", "max_wall_s",
        "gpt_judge_api_key", "llama_judge_api_key", "claude_judge_api_key", "shards",
    )}  # fmt: skip
    endpoint = {f"target.api_endpoint.{name}" for name in (
        "api_key", "oauth", "requests_per_minute", "tokens_per_minute"
    )}  # fmt: skip
    params = {f"config.params.{name}" for name in ("parallelism", "max_retries", "request_timeout")}
    assert {"config.output_dir"} | params | extra | endpoint == OF_NO_RESULT


@pytest.mark.parametrize(
    "flags",
    [
        {"config.params.limit_samples": 3},
        {"target.api_endpoint.model_id": "org/other"},
        {"config.params.extra.min_coverage": 0.5},
        {"config.params.extra.offline": True},
    ],
    ids=lambda flags: next(iter(flags)),
)
def test_what_may_change_a_number_does(flags: dict[str, Any], folder: RunDir) -> None:
    assert finished(plan_of(folder, **flags)) is None


def test_a_result_that_cannot_be_read_is_made_again(folder: RunDir) -> None:
    folder.evaluation_config.write_text("results: [", "utf-8")
    assert finished(plan_of(folder)) is None
    folder.evaluation_config.unlink()
    assert finished(plan_of(folder)) is None


def test_a_result_with_gaps_is_not_finished(folder: RunDir) -> None:
    made = plan_of(folder)
    assert is_complete_run(made)
    assert not is_complete_run(plan_of(folder, **{"config.params.limit_samples": 3}))
    assert not has_partial_result(folder, made.identity)
    partial = ended_run(made, [folder.root / "helm/runs/s/r"], run_id="r", wall_s=1.0, complete=False, read=DataRead())
    remember(folder, partial)
    assert finished(made) is None
    assert not is_complete_run(made)
    assert has_partial_result(folder, made.identity)
    assert not has_partial_result(folder, "another's")
    folder.evaluation_config.unlink()
    assert not has_partial_result(folder, made.identity)


@pytest.mark.parametrize(
    ("flags", "own"),
    [
        ({}, False),
        ({"config.params.extra.data_dir": "/bundle"}, True),
        ({"config.params.extra.offline": True}, True),
        (
            {
                "config.type": "ehrshot",
                "config.params.extra.subject": "guo_los",
                "config.params.extra.data_path": "/data",
            },
            True,
        ),
    ],
    ids=["downloaded", "bundle", "offline", "own"],
)
def test_data_that_may_be_others_today(flags: dict[str, Any], own: bool) -> None:
    assert reads_own_data(plan(flags)) is own


@pytest.mark.parametrize("own", [None, "mine"])
def test_gaps_in_a_result_of_data_that_may_have_changed_are_not_kept(own: str | None, folder: RunDir) -> None:
    flags = {
        "config.type": "clear",
        "config.params.extra.condition": "homelessness",
        "config.params.extra.data_path": own,
    }
    made = plan_of(folder, **(flags if own else {}))
    assert not keeps_partial_result(made)
    partial = ended_run(made, [folder.root / "helm/runs/s/r"], run_id="r", wall_s=1.0, complete=False, read=DataRead())
    remember(folder, partial)
    assert has_partial_result(folder, made.identity)
    assert keeps_partial_result(made) is (own is None)
