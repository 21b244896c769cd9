"""A result and the figures of its responses -> EvalFactory's names for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.results import Figures, RequestSpan, ResponseStatistics, Spent, SpentByRole, TaskResult, Usage
from eval_factory.core.rundir import RunDir
from eval_factory.report.write import metrics_document, write_metrics

NONE = Figures(None, None)
STATISTICS = ResponseStatistics(
    responses=7, successful=4, prompt_tokens=Figures(10.126, 20), completion_tokens=Figures(2.5, 4),
    total_tokens=Figures(12.626, 24), latency_s=Figures(0.1234567, 1.5), status_codes={200: 4, 429: 3},
    finish_reasons={"stop": 3, "length": 1}, runs=(RequestSpan(0.0, 2.5), RequestSpan(100.0, 104.0)),
)  # fmt: skip
NOTHING = replace(
    STATISTICS, responses=0, successful=0, prompt_tokens=NONE, completion_tokens=NONE, total_tokens=NONE,
    latency_s=NONE, status_codes={}, finish_reasons={}, runs=(),
)  # fmt: skip


def used(
    result: TaskResult, runs: int, model: tuple[int | None, int | None] = (40, 8), wall_s: float = 9.0
) -> TaskResult:
    spent = Spent(9, 0, 0, *model, 1.0, 1.0)
    judge = replace(spent, prompt_tokens=1000)
    by_role = SpentByRole(judge, {"gpt": judge, "model": spent})
    return replace(result, usage=Usage(by_role, by_role, runs, wall_s))


def test_response_stats_have_the_names_of_nemo_evaluator(result: TaskResult) -> None:
    stats = metrics_document(result, STATISTICS)["response_stats"]
    assert isinstance(stats.pop("description"), str)
    assert stats == {
        "avg_prompt_tokens": 10.13, "avg_total_tokens": 12.63, "avg_completion_tokens": 2.5, "avg_latency_ms": 123.46,
        "max_prompt_tokens": 20, "max_total_tokens": 24, "max_completion_tokens": 4, "max_latency_ms": 1500.0,
        "count": 7, "successful_count": 4, "finish_reason": {"stop": 3, "length": 1},
        "status_codes": {"200": 4, "429": 3}, "inference_time": 6.5, "run_id": 1,
        "last_request_time": "1970-01-01T00:01:44.000+00:00",
        "inference_run_times": {
            "0": {"first_request_time": "1970-01-01T00:00:00.000+00:00",
                  "last_request_time": "1970-01-01T00:00:02.500+00:00", "inference_time": 2.5},
            "1": {"first_request_time": "1970-01-01T00:01:40.000+00:00",
                  "last_request_time": "1970-01-01T00:01:44.000+00:00", "inference_time": 4.0},
        },
    }  # fmt: skip


def test_what_is_not_known_is_null(result: TaskResult) -> None:
    stats = metrics_document(result, NOTHING)["response_stats"]
    assert {name for name, value in stats.items() if value is None} == {
        "avg_prompt_tokens", "avg_total_tokens", "avg_completion_tokens", "avg_latency_ms", "max_prompt_tokens",
        "max_total_tokens", "max_completion_tokens", "max_latency_ms", "last_request_time",
    }  # fmt: skip
    assert (stats["run_id"], stats["inference_time"], stats["inference_run_times"]) == (0, 0, {})


def test_the_time_of_one_run_has_its_parts(result: TaskResult) -> None:
    one = replace(STATISTICS, runs=STATISTICS.runs[:1])
    assert metrics_document(used(result, 1), one)["evaluation"] == {
        "runtime_seconds": 9.0, "inference_time_seconds": 2.5, "scoring_time_seconds": 6.5, "total_runs": 1,
        "token_usage": {"total_tokens": 48, "prompt_tokens": 40, "completion_tokens": 8},
    }  # fmt: skip
    clocks_differ = metrics_document(used(result, 1, wall_s=1.0), one)["evaluation"]
    assert clocks_differ["scoring_time_seconds"] == 0.0


def test_of_several_runs_the_time_of_all_is_not_known(result: TaskResult) -> None:
    found = metrics_document(used(result, 2), STATISTICS)["evaluation"]
    assert set(found) == {"inference_time_seconds", "total_runs", "token_usage"}
    assert (found["inference_time_seconds"], found["total_runs"]) == (6.5, 2)


def test_a_run_that_asked_nothing_has_no_scoring_time(result: TaskResult) -> None:
    found = metrics_document(used(result, 1), NOTHING)["evaluation"]
    assert "scoring_time_seconds" not in found
    assert found["runtime_seconds"] == 9.0


@pytest.mark.parametrize(("counts", "total"), [((None, 8), None), ((40, None), None), ((0, 0), 0)])
def test_tokens_are_added_where_both_are_known(
    counts: tuple[int | None, int | None], total: int | None, result: TaskResult
) -> None:
    usage = metrics_document(used(result, 1, counts), STATISTICS)["evaluation"]["token_usage"]
    assert usage == {"total_tokens": total, "prompt_tokens": counts[0], "completion_tokens": counts[1]}


def test_nobody_asked_the_model(result: TaskResult) -> None:
    by_role = SpentByRole(Spent(0, 0, 0, 0, 0, None, None), {})
    found = metrics_document(replace(result, usage=Usage(by_role, by_role, 1, 1.0)), NOTHING)
    assert found["evaluation"]["token_usage"] is None


def test_thinking_that_was_cut_off(result: TaskResult) -> None:
    instances = replace(result.validity.instances, requested=10, failed=3, thinking_unfinished=2, thinking_stripped=5)
    found = metrics_document(replace(result, validity=replace(result.validity, instances=instances)), NOTHING)
    reasoning: dict[str, Any] = found["reasoning"]
    assert (reasoning["total_responses"], reasoning["reasoning_unfinished_count"]) == (7, 2)
    assert set(reasoning) == {"description", "total_responses", "reasoning_unfinished_count"}


def test_the_file_is_among_the_results(result: TaskResult, tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    write_metrics(result, STATISTICS, rundir)
    assert rundir.eval_factory_metrics in rundir.results
    written = json.loads((tmp_path / "eval_factory_metrics.json").read_text("utf-8"))
    assert written == metrics_document(result, STATISTICS)
