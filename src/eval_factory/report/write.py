"""Writes every report of a result into the output folder, redacted, each file whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.safe_files import atomic_file, renamed_together, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.report import documents
from eval_factory.report.markdown_report import markdown_report
from eval_factory.report.page.document import Shown, page
from eval_factory.report.page.instance_data import InstancePacker
from eval_factory.report.papers import methods_text
from eval_factory.report.reader import result_of


def write_reports(
    result: TaskResult,
    rundir: RunDir,
    *,
    config: Mapping[str, Any],
    command: str,
    redactor: Redactor,
    responses: Mapping[str, Iterable[Mapping[str, Any]]],
    given: Mapping[str, Any] | None = None,
) -> TaskResult:
    """The result as it was written; evaluation_config.yaml is written last: where it is there, the rest is.

    Args:
        config: `config` and `target` as run.
        responses: role -> every kept answer, as the cache has it.
        given: `config` and `target` as far as the user set them; all of them where that is not known.
    """
    safe: Any = redactor.tree(config)
    command = redactor.text(command)
    document = documents.evaluation_config(result, safe if given is None else redactor.tree(given), command)
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    with renamed_together():
        packed = _write_lines(rundir, result, redactor)
        with ThreadPoolExecutor(1) as beside:  # zlib needs no Python while it compresses
            finished = beside.submit(packed.finish)
            _write_responses(rundir, responses, redactor)
        instances = finished.result()
        stored = result_of(document, ())  # the page says what the folder says, digit by digit
        methods = methods_text(stored, safe["config"], safe["target"])
        write_atomic(
            rundir.report_html, page([Shown(stored, command, instances, methods)], redactor.text), mode=PRIVATE
        )
        write_atomic(rundir.report_md, redactor.text(markdown_report(result)))
        results = documents.results_yml(result, safe, command)
        documents.check(results, documents.RESULTS_SCHEMA)
        write_atomic(rundir.results_yml, documents.to_yaml(results))
        write_atomic(rundir.evaluation_config, documents.to_yaml(document))
    return stored


def _write_lines(rundir: RunDir, result: TaskResult, redactor: Redactor) -> InstancePacker:
    """Both files and the page's data in one pass: a record is read from HELM's output, and its request hashed, once."""
    packed = InstancePacker(result.scores.get(result.main_metric), tuple(result.groups))
    with (
        atomic_file(rundir.instances, mode=PRIVATE) as instances,
        atomic_file(rundir.results_jsonl, mode=PRIVATE) as lines,
    ):
        for record in result.instances:
            text, instance = redactor.line(documents.instance_line(record))
            instances.write(text + "\n")
            text, outcome = redactor.line(documents.result_line(record))
            lines.write(text + "\n")
            packed.add(instance, outcome)
    return packed


def _write_responses(rundir: RunDir, responses: Mapping[str, Iterable[Mapping[str, Any]]], redactor: Redactor) -> None:
    for role, rows in responses.items():
        lines = (_response_line(row, redactor) for row in rows)
        write_atomic(rundir.responses_of(role), lines, mode=PRIVATE)


def _response_line(row: Mapping[str, Any], redactor: Redactor) -> str:
    """With the bodies as texts where they are too deep, or hold numbers too long, for Python to take them apart."""
    line = {name: row[name] for name in ("key", "model_id", "created", "latency_s")}
    try:
        bodies = {name: json.loads(row[name]) for name in ("request", "response")}
        return redactor.line({**line, **bodies})[0] + "\n"
    except (RecursionError, ValueError):
        return redactor.line({**line, "request": row["request"], "response": row["response"]})[0] + "\n"
