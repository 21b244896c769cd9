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
from eval_factory.core.safe_files import atomic_file, rename_together, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.report import documents
from eval_factory.report.asked_again_sentences import LostAnswers
from eval_factory.report.page.document import ShownResult, results_page
from eval_factory.report.page.instance_data import InstancePacker
from eval_factory.report.papers import methods_text
from eval_factory.report.reader import own_benchmark_description, result_of_document
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
    """Write every report, and return the result with rounded numbers and without instances.

    The file evaluation_config.yaml is written last: if it exists, all other files exist too.

    Args:
        result: the result to write.
        rundir: the output folder.
        config: `config` and `target` of the run, with all defaults.
        command: the command line that produced the result.
        redactor: removes secrets from every text before the text is written.
        responses: for each role, all its stored answers, as rows of the cache.
        user_config: `config` and `target` with the user's values only; if None, `config` is used.
    """
    redacted_config: Any = redactor.redact_tree(config)
    command = redactor.redact_text(command)
    shown_config = redacted_config
    if user_config is not None:
        shown_config = redactor.redact_tree(user_config)
    document = documents.evaluation_config_document(result, shown_config, command)
    documents.check_document(document, documents.EVALUATION_CONFIG_SCHEMA)
    # The numbers of `stored` are the rounded numbers of evaluation_config.yaml.
    stored = result_of_document(document, instances=())
    # When a result is made a second time, `helm` is a link into the folder of the first result.
    folder_of_helm = rundir.helm.resolve().parent
    packer = InstancePacker(
        main=result.scores.get(result.main_metric),
        fields=tuple(result.groups),
        folder=folder_of_helm,
    )
    lost = LostAnswers(result.validity.asked_again)
    with rename_together():  # no file has its name before all files are complete
        _write_instances(result, rundir, redactor, packer=packer, lost=lost)
        _write_responses(rundir, responses, redactor)
        shown = ShownResult(
            stored,
            command,
            packer.finish(),
            methods=methods_text(stored, redacted_config["config"], redacted_config["target"]),
            lost=lost,
            about=redactor.redact_text(own_benchmark_description(folder_of_helm)),
        )
        write_atomic(
            rundir.report_html, results_page([shown], redact=redactor.redact_text), mode=PRIVATE
        )
        write_atomic(rundir.report_md, redactor.redact_text(markdown_report(result)))
        _write_results(rundir, documents.results_yml_document(result, redacted_config, command))
        write_atomic(rundir.evaluation_config, to_yaml(document))
    return stored


def _write_instances(
    result: TaskResult,
    rundir: RunDir,
    redactor: Redactor,
    *,
    packer: InstancePacker,
    lost: LostAnswers,
) -> None:
    """Write instances.jsonl and results.jsonl, and add each instance to `packer` and `lost`.

    Reading an instance is slow, so one pass over the instances does all this.
    """
    with (
        atomic_file(rundir.instances, mode=PRIVATE) as instances,
        atomic_file(rundir.results_jsonl, mode=PRIVATE) as outcomes,
    ):
        for record in result.instances:
            lost.add(record)
            instance_line, instance = redactor.redact_as_line(documents.instance_fields(record))
            instances.write(instance_line + "\n")
            outcome_line, outcome = redactor.redact_as_line(documents.result_fields(record))
            outcomes.write(outcome_line + "\n")
            packer.add(instance, outcome)


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

    The bodies of request and response become a part of the line's JSON. If Python cannot parse one
    of the two bodies, both are strings. Python fails if a body is not JSON, is nested too deeply,
    or has a number with too many digits.
    """
    fields = {name: row[name] for name in ("key", "model_id", "created", "latency_s")}
    texts = {"request": row["request"], "response": row["response"]}
    try:
        bodies = {"request": json.loads(row["request"]), "response": json.loads(row["response"])}
        line, _ = redactor.redact_as_line({**fields, **bodies})
    except (RecursionError, ValueError):
        line, _ = redactor.redact_as_line({**fields, **texts})
    return line + "\n"


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


def _run_times(asking_runs: Iterable[tuple[float, float]]) -> dict[str, dict[str, Any]]:
    """Return the times of each run with NeMo's keys, by the number of the run, counted from 0.

    `asking_runs` has the times of each run's first request and last response, in seconds since the
    epoch. NeMo's key `last_request_time` has the time of the last response.
    """
    run_times = {}
    for number, (first_request, last_response) in enumerate(asking_runs):
        run_times[str(number)] = {
            "first_request_time": _iso_time(first_request),
            "last_request_time": _iso_time(last_response),
            "inference_time": round(last_response - first_request, _DECIMALS_OF_SECONDS),
        }
    return run_times


def metrics_document(result: TaskResult, statistics: ResponseStatistics) -> dict[str, Any]:
    """Return the document of `eval_factory_metrics.json`."""
    instances = result.validity.instances
    asking_runs = statistics.runs  # the runs of helm-run that sent requests
    mean_tokens = {}
    max_tokens = {}
    for name in ("prompt_tokens", "total_tokens", "completion_tokens"):
        # Each of these fields, and `latency_s`, is a pair (mean, maximum).
        mean, maximum = getattr(statistics, name)
        mean_tokens[f"avg_{name}"] = _rounded(mean)
        max_tokens[f"max_{name}"] = maximum
    mean_latency, max_latency = statistics.latency_s
    # the sum of these runs' times from the first request to the last response
    inference_seconds = round(
        sum(last_response - first_request for first_request, last_response in asking_runs),
        _DECIMALS_OF_SECONDS,
    )
    last_request_time = None
    if asking_runs:
        _, last_response = asking_runs[-1]
        last_request_time = _iso_time(last_response)  # see `_run_times` for NeMo's key
    return {
        "response_stats": {
            "description": "Requests to the evaluated model in all runs of this folder; "
            "judges are not counted",
            **mean_tokens,
            "avg_latency_ms": _rounded(mean_latency, factor=1000),
            **max_tokens,
            "max_latency_ms": _rounded(max_latency, factor=1000),
            "count": statistics.responses,
            "successful_count": statistics.successful,
            "finish_reason": dict(statistics.finish_reasons),
            "status_codes": {str(code): count for code, count in statistics.status_codes.items()},
            "inference_time": inference_seconds,
            # the number of the last run in `inference_run_times`; 0 if there is no run
            "run_id": max(len(asking_runs) - 1, 0),
            "last_request_time": last_request_time,
            "inference_run_times": _run_times(asking_runs),
        },
        # NeMo's key for the number of answers with thinking is left out: they are not counted.
        "reasoning": {
            "description": "Answers of this result; unfinished: "
            "cut off while the model was thinking",
            "total_responses": instances.requested - instances.failed,
            "reasoning_unfinished_count": instances.thinking_unfinished,
        },
        "evaluation": _evaluation(result, inference_seconds, model_was_asked=bool(asking_runs)),
    }


def _evaluation(
    result: TaskResult, inference_seconds: float, *, model_was_asked: bool
) -> dict[str, Any]:
    """Return the seconds, runs and tokens of the evaluation.

    Only the last run of helm-run is timed. If helm-run ran several times, `runtime_seconds` and
    `scoring_time_seconds` are left out. The time of scoring is the run time without the time of
    inference. It is also left out if no request was sent to the model.
    """
    spent = result.usage.all_runs.roles.get(MODEL_ROLE)  # by all runs of helm-run
    tokens = None
    if spent is not None:
        prompt = spent.prompt_tokens
        completion = spent.completion_tokens
        total = None
        if prompt is not None and completion is not None:
            total = prompt + completion
        tokens = {"total_tokens": total, "prompt_tokens": prompt, "completion_tokens": completion}
    helm_runs = result.usage.runs
    runtime = round(result.usage.wall_s, _DECIMALS_OF_SECONDS)
    times = {"inference_time_seconds": inference_seconds}
    if helm_runs <= 1:
        times = {"runtime_seconds": runtime, **times}
        if model_was_asked:
            # Clocks and rounding may make the difference slightly negative.
            scoring_seconds = max(runtime - inference_seconds, 0.0)
            times["scoring_time_seconds"] = round(scoring_seconds, _DECIMALS_OF_SECONDS)
    return {**times, "total_runs": helm_runs, "token_usage": tokens}


def _iso_time(seconds: float) -> str:
    """Return a Unix time as ISO 8601 text in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _rounded(value: float | None, *, factor: int = 1) -> float | None:
    """Return the value times the factor, rounded to two decimals; None if there is no value."""
    if value is not None:
        return round(value * factor, 2)
    return None
