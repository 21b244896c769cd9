"""Writes the reports of a result into its output folder.

All texts are redacted. Each file is written completely or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.results import MODEL_ROLE, ResponseStatistics, TaskResult
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.safe_files import atomic_file, renamed_together, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.report import documents
from eval_factory.report.page.document import ShownResult, page
from eval_factory.report.page.instance_data import InstancePacker
from eval_factory.report.papers import methods_text
from eval_factory.report.reader import own_benchmark_description, result_in
from eval_factory.report.result_sentences import LostAnswers
from eval_factory.report.summary import markdown_report


def write_reports(
    result: TaskResult,
    rundir: RunDir,
    *,
    config: Mapping[str, Any],
    command: str,
    redactor: Redactor,
    responses: Mapping[str, Iterable[Mapping[str, Any]]],
    user_config: Mapping[str, Any] | None = None,
) -> TaskResult:
    """Write every report of a result, and return the result as it was written.

    The file evaluation_config.yaml is written last: if this file exists, all others do too.

    Args:
        result: the result to write.
        rundir: the output folder.
        config: `config` and `target` of the run, with all defaults.
        command: the command line that produced the result.
        redactor: removes secrets from every text before the text is written.
        responses: role -> all stored answers of this role, as rows of the cache.
        user_config: `config` and `target` with the user's values only; if None, `config` is used.
    """
    redacted_config: Any = redactor.tree(config)
    command = redactor.text(command)
    shown_config = redacted_config
    if user_config is not None:
        shown_config = redactor.tree(user_config)
    document = documents.evaluation_config(result, shown_config, command)
    documents.check_document(document, documents.EVALUATION_CONFIG_SCHEMA)
    with renamed_together():
        # Reading a record is slow: one pass over the records fills both files and the page's data.
        # When a result is made a second time, `helm` is a link into the folder of the first result.
        folder = rundir.helm.resolve().parent
        packer = InstancePacker(
            result.scores.get(result.main_metric), tuple(result.groups), folder=folder
        )
        lost = LostAnswers(result.validity.asked_again)
        with (
            atomic_file(rundir.instances, mode=PRIVATE) as instances,
            atomic_file(rundir.results_jsonl, mode=PRIVATE) as outcomes,
        ):
            for record in result.instances:
                lost.add(record)
                line, instance = redactor.line(documents.instance_line(record))
                instances.write(line + "\n")
                line, outcome = redactor.line(documents.result_line(record))
                outcomes.write(line + "\n")
                packer.add(instance, outcome)
        _write_responses(rundir, responses, redactor)
        # The page shows the rounded numbers of evaluation_config.yaml, so that both agree.
        stored = result_in(document, ())
        methods = methods_text(stored, redacted_config["config"], redacted_config["target"])
        about = redactor.text(own_benchmark_description(folder))
        shown = ShownResult(stored, command, packer.finish(), methods, lost=lost, about=about)
        write_atomic(rundir.report_html, page([shown], redactor.text), mode=PRIVATE)
        write_atomic(rundir.report_md, redactor.text(markdown_report(result)))
        _write_results(rundir, documents.results_yml(result, redacted_config, command))
        write_atomic(rundir.evaluation_config, to_yaml(document))
    return stored


def _write_responses(
    rundir: RunDir, responses: Mapping[str, Iterable[Mapping[str, Any]]], redactor: Redactor
) -> None:
    """Write the stored answers of each role into a file, one line for each answer."""
    for role, rows in responses.items():
        lines = (_response_line(row, redactor) for row in rows)
        write_atomic(rundir.responses_of(role), lines, mode=PRIVATE)


def _write_results(rundir: RunDir, results: dict[str, Any]) -> None:
    """Check the document of results.yml, and write it."""
    documents.check_document(results, documents.RESULTS_SCHEMA)
    write_atomic(rundir.results_yml, to_yaml(results))


def _response_line(row: Mapping[str, Any], redactor: Redactor) -> str:
    """Return the redacted JSON line of one stored answer, with the line break.

    The bodies of request and response are nested JSON. A body that Python cannot
    parse is a plain text: if it is nested too deeply or has a number with too many digits.
    """
    line = {name: row[name] for name in ("key", "model_id", "created", "latency_s")}
    texts = {"request": row["request"], "response": row["response"]}
    try:
        bodies = {"request": json.loads(row["request"]), "response": json.loads(row["response"])}
        return redactor.line({**line, **bodies})[0] + "\n"
    except (RecursionError, ValueError):
        return redactor.line({**line, **texts})[0] + "\n"


_DECIMALS_OF_SECONDS = 3


def write_metrics(result: TaskResult, statistics: ResponseStatistics, rundir: RunDir) -> None:
    """Write `eval_factory_metrics.json`, which has figures about the requests but no texts.

    The keys are those of NeMo Evaluator's `response_stats` and `reasoning` interceptors and of its
    runner (version 0.2). Figures that eval-factory does not measure have no key.
    """
    write_atomic(
        rundir.eval_factory_metrics,
        json.dumps(metrics_document(result, statistics), indent=2) + "\n",
    )


def metrics_document(result: TaskResult, statistics: ResponseStatistics) -> dict[str, Any]:
    """Return the document of `eval_factory_metrics.json`."""
    instances = result.validity.instances
    runs = statistics.runs
    mean_tokens = {}
    max_tokens = {}
    for name in ("prompt_tokens", "total_tokens", "completion_tokens"):
        mean, maximum = getattr(statistics, name)
        mean_tokens[f"avg_{name}"] = _rounded(mean)
        max_tokens[f"max_{name}"] = maximum
    mean_latency, max_latency = statistics.latency_s
    # The sum over all runs of the seconds from a run's first request to its last response.
    inference = round(sum(last - first for first, last in runs), _DECIMALS_OF_SECONDS)
    last_request_time = None
    run_times = {}
    for number, (first, last) in enumerate(runs):
        last_request_time = _iso_time(last)
        run_times[str(number)] = {
            "first_request_time": _iso_time(first),
            "last_request_time": last_request_time,
            "inference_time": round(last - first, _DECIMALS_OF_SECONDS),
        }
    return {
        "response_stats": {
            "description": "Requests to the evaluated model in all runs of this folder; "
            "judges are not counted",
            **mean_tokens,
            "avg_latency_ms": _rounded(mean_latency, 1000),
            **max_tokens,
            "max_latency_ms": _rounded(max_latency, 1000),
            "count": statistics.responses,
            "successful_count": statistics.successful,
            "finish_reason": dict(statistics.finish_reasons),
            "status_codes": {str(code): count for code, count in statistics.status_codes.items()},
            "inference_time": inference,
            "run_id": max(len(runs) - 1, 0),
            "last_request_time": last_request_time,
            "inference_run_times": run_times,
        },
        "reasoning": {  # The number of answers that began with thinking is not counted.
            "description": "Answers of this result; unfinished: "
            "cut off while the model was thinking",
            "total_responses": instances.requested - instances.failed,
            "reasoning_unfinished_count": instances.thinking_unfinished,
        },
        "evaluation": _evaluation(result, inference, model_was_asked=bool(runs)),
    }


def _evaluation(result: TaskResult, inference: float, *, model_was_asked: bool) -> dict[str, Any]:
    """Return the seconds, runs and tokens of the evaluation.

    `inference` is in seconds. Only the last run of helm-run is timed: if there were several runs,
    the document has no `runtime_seconds` and no `scoring_time_seconds`.
    """
    spent = result.usage.all_runs.roles.get(MODEL_ROLE)
    tokens = None
    if spent is not None:
        prompt = spent.prompt_tokens
        completion = spent.completion_tokens
        total = None
        if prompt is not None and completion is not None:
            total = prompt + completion
        tokens = {"total_tokens": total, "prompt_tokens": prompt, "completion_tokens": completion}
    runtime = round(result.usage.wall_s, _DECIMALS_OF_SECONDS)
    times = {"runtime_seconds": runtime, "inference_time_seconds": inference}
    if result.usage.runs > 1:
        times = {"inference_time_seconds": inference}
    elif model_was_asked:
        times["scoring_time_seconds"] = round(max(runtime - inference, 0.0), _DECIMALS_OF_SECONDS)
    return {**times, "total_runs": result.usage.runs, "token_usage": tokens}


def _iso_time(seconds: float) -> str:
    """Return a Unix time as ISO 8601 text in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _rounded(value: float | None, factor: int = 1) -> float | None:
    """Return the value times the factor, rounded to two decimals; None if there is no value."""
    if value is not None:
        return round(value * factor, 2)
    return None
