"""Writes every report of a result into the output folder, redacted, each file whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from eval_factory.engine.store import read_answers, read_roles
from eval_factory.report import documents
from eval_factory.results import TaskResult
from eval_factory.rundir import PRIVATE, RunDir, write_atomic
from eval_factory.secrets import Redactor


def write_reports(
    result: TaskResult, rundir: RunDir, *, config: Mapping[str, Any], command: str, redactor: Redactor
) -> None:
    """evaluation_config.yaml is written last: where it is there, the rest is."""
    safe: Any = redactor.tree(config)
    command = redactor.text(command)
    _write_lines(rundir, result, redactor)
    _write_responses(rundir, redactor)
    write_atomic(rundir.report_html, redactor.text(html(result, command)))
    results = documents.results_yml(result, safe, command)
    documents.check(results, documents.RESULTS_SCHEMA)
    write_atomic(rundir.results_yml, documents.to_yaml(results))
    document = documents.evaluation_config(result, safe, command)
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    write_atomic(rundir.evaluation_config, documents.to_yaml(document))


def html(result: TaskResult, command: str) -> str:
    """A page without scripts or outside resources; every value is escaped."""
    environment = Environment(
        loader=PackageLoader("eval_factory.report", "."), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("report.html.j2").render(
        result=result,
        instances=asdict(result.validity.instances),
        usage=asdict(result.usage),
        command=command,
    )


def _write_lines(rundir: RunDir, result: TaskResult, redactor: Redactor) -> None:
    instances = (redactor.tree(documents.instance_line(record)) for record in result.instances)
    lines = (redactor.tree(documents.result_line(record)) for record in result.instances)
    write_atomic(rundir.instances, documents.json_lines(instances), mode=PRIVATE)
    write_atomic(rundir.results_jsonl, documents.json_lines(lines), mode=PRIVATE)


def _write_responses(rundir: RunDir, redactor: Redactor) -> None:
    for role in read_roles(rundir.cache_db):
        lines = (redactor.tree(_response_line(row)) for row in read_answers(rundir.cache_db, role))
        write_atomic(rundir.responses_of(role), documents.json_lines(lines), mode=PRIVATE)


def _response_line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": row["key"],
        "model_id": row["model_id"],
        "created": row["created"],
        "latency_s": row["latency_s"],
        "request": json.loads(row["request"]),
        "response": json.loads(row["response"]),
    }
