"""`eval_factory_metrics.json`: response and run-time figures by the names that NVIDIA's EvalFactory gives them.

The names are those of NeMo Evaluator's `response_stats` and `reasoning` interceptors and of its runner (version 0.2).
What is not measured here has no key: tool calls, how long thinking was, memory, and the time of several runs together.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from eval_factory.core.results import MODEL_ROLE, Figures, Instances, RequestSpan, ResponseStatistics, Spent, TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.safe_files import write_atomic

TOKENS, MILLISECONDS, SECONDS = 2, 2, 3
"""Decimal places."""


def write_metrics(result: TaskResult, statistics: ResponseStatistics, rundir: RunDir) -> None:
    """Numbers only: no text of a prompt or an answer is in it."""
    document = metrics_document(result, statistics)
    write_atomic(rundir.eval_factory_metrics, json.dumps(document, indent=2) + "\n")


def metrics_document(result: TaskResult, statistics: ResponseStatistics) -> dict[str, Any]:
    return {
        "response_stats": _response_stats(statistics),
        "reasoning": _reasoning(result.validity.instances),
        "evaluation": _evaluation(result, statistics.runs),
    }


def _response_stats(statistics: ResponseStatistics) -> dict[str, Any]:
    runs = statistics.runs
    tokens = {
        "prompt_tokens": statistics.prompt_tokens,
        "total_tokens": statistics.total_tokens,
        "completion_tokens": statistics.completion_tokens,
    }
    latency = statistics.latency_s
    return {
        "description": "Requests to the evaluated model in all runs of this folder; judges are not counted",
        **{f"avg_{name}": _mean_tokens(figures) for name, figures in tokens.items()},
        "avg_latency_ms": _milliseconds(latency.mean),
        **{f"max_{name}": figures.maximum for name, figures in tokens.items()},
        "max_latency_ms": _milliseconds(latency.maximum),
        "count": statistics.responses,
        "successful_count": statistics.successful,
        "finish_reason": dict(statistics.finish_reasons),
        "status_codes": {str(code): count for code, count in statistics.status_codes.items()},
        "inference_time": _inference_time(runs),
        "run_id": max(len(runs) - 1, 0),
        "last_request_time": _moment(runs[-1].last_response) if runs else None,
        "inference_run_times": {
            str(number): {
                "first_request_time": _moment(span.first_request),
                "last_request_time": _moment(span.last_response),
                "inference_time": round(span.seconds, SECONDS),
            }
            for number, span in enumerate(runs)
        },
    }


def _reasoning(instances: Instances) -> dict[str, Any]:
    """Of the instances of the result. How many answers began with thinking at all is not counted, so it has no key."""
    return {
        "description": "Answers of this result; unfinished: cut off while the model was thinking",
        "total_responses": instances.requested - instances.failed,
        "reasoning_unfinished_count": instances.thinking_unfinished,
    }


def _evaluation(result: TaskResult, runs: tuple[RequestSpan, ...]) -> dict[str, Any]:
    """The time of a helm-run is known of the last one alone, so that of several there is no sum."""
    spent = result.usage.all_runs.roles.get(MODEL_ROLE)
    inference, runtime = _inference_time(runs), round(result.usage.wall_s, SECONDS)
    times = {"runtime_seconds": runtime, "inference_time_seconds": inference}
    if result.usage.runs > 1:
        times = {"inference_time_seconds": inference}
    elif runs:
        times["scoring_time_seconds"] = round(max(runtime - inference, 0.0), SECONDS)
    return {**times, "total_runs": result.usage.runs, "token_usage": None if spent is None else _tokens(spent)}


def _tokens(spent: Spent) -> dict[str, int | None]:
    prompt, completion = spent.prompt_tokens, spent.completion_tokens
    total = None if prompt is None or completion is None else prompt + completion
    return {"total_tokens": total, "prompt_tokens": prompt, "completion_tokens": completion}


def _inference_time(runs: tuple[RequestSpan, ...]) -> float:
    """Seconds from the first request of each run to its last response, added up."""
    return round(sum(span.seconds for span in runs), SECONDS)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _mean_tokens(figures: Figures) -> float | None:
    return None if figures.mean is None else round(figures.mean, TOKENS)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, MILLISECONDS)
