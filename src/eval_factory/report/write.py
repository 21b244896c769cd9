"""Writes every report of a result into the output folder, redacted, each file whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from eval_factory.core.foreign_text import printable
from eval_factory.core.jsonl import json_line
from eval_factory.core.redaction import Redactor
from eval_factory.core.results import Spent, TaskResult, Usage
from eval_factory.core.rundir import PRIVATE, RunDir, atomic_file, write_atomic
from eval_factory.report import documents
from eval_factory.report.markdown_report import markdown_report
from eval_factory.tasks.errata import CORRECTED


def write_reports(
    result: TaskResult,
    rundir: RunDir,
    *,
    config: Mapping[str, Any],
    command: str,
    redactor: Redactor,
    responses: Mapping[str, Iterable[Mapping[str, Any]]],
    given: Mapping[str, Any] | None = None,
) -> None:
    """evaluation_config.yaml is written last: where it is there, the rest is.

    Args:
        config: `config` and `target` as run.
        responses: role -> every kept answer, as the cache has it.
        given: `config` and `target` as far as the user set them; all of them where that is not known.
    """
    safe: Any = redactor.tree(config)
    command = redactor.text(command)
    _write_lines(rundir, result, redactor)
    _write_responses(rundir, responses, redactor)
    write_atomic(rundir.report_html, redactor.text(html(result, command)))
    results = documents.results_yml(result, safe, command)
    documents.check(results, documents.RESULTS_SCHEMA)
    write_atomic(rundir.results_yml, documents.to_yaml(results))
    document = documents.evaluation_config(result, safe if given is None else redactor.tree(given), command)
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    write_atomic(rundir.report_md, redactor.text(markdown_report(result)))
    write_atomic(rundir.evaluation_config, documents.to_yaml(document))


def html(result: TaskResult, command: str) -> str:
    """A page without scripts or outside resources; every value is printable and escaped."""
    environment = Environment(
        loader=PackageLoader("eval_factory.report", "."), autoescape=True, undefined=StrictUndefined,
        finalize=lambda value: printable(value) if isinstance(value, str) else value,
    )  # fmt: skip
    return environment.get_template("report.html.j2").render(
        result=result,
        instances=asdict(result.validity.instances),
        spent_names=[field.name for field in fields(Spent)],
        usage_rows=list(_usage_rows(result.usage)),
        command=command,
        corrected=f"{result.main_metric}{CORRECTED}",
        clustered=any(score.stats.clusters is not None for score in result.scores.values()),
    )


def _usage_rows(usage: Usage) -> Iterator[tuple[str, dict[str, Any]]]:
    for label, spent in (("this run", usage.this_run), ("all runs", usage.all_runs)):
        yield label, asdict(spent.total)
        if len(spent.roles) > 1:
            yield from ((f"{label}, {role}", asdict(one)) for role, one in spent.roles.items())


def _write_lines(rundir: RunDir, result: TaskResult, redactor: Redactor) -> None:
    """Both files in one pass: a record is read from HELM's output, and its request hashed, once."""
    with (
        atomic_file(rundir.instances, mode=PRIVATE) as instances,
        atomic_file(rundir.results_jsonl, mode=PRIVATE) as lines,
    ):
        for record in result.instances:
            instances.write(json_line(redactor.tree(documents.instance_line(record))) + "\n")
            lines.write(json_line(redactor.tree(documents.result_line(record))) + "\n")


def _write_responses(rundir: RunDir, responses: Mapping[str, Iterable[Mapping[str, Any]]], redactor: Redactor) -> None:
    for role, rows in responses.items():
        lines = (_response_line(row, redactor) for row in rows)
        write_atomic(rundir.responses_of(role), lines, mode=PRIVATE)


def _response_line(row: Mapping[str, Any], redactor: Redactor) -> str:
    """With the bodies as texts where they are too deep, or hold numbers too long, for Python to take them apart."""
    line = {name: row[name] for name in ("key", "model_id", "created", "latency_s")}
    try:
        bodies = {name: json.loads(row[name]) for name in ("request", "response")}
        return json_line(redactor.tree({**line, **bodies})) + "\n"
    except (RecursionError, ValueError):
        return json_line(redactor.tree({**line, "request": row["request"], "response": row["response"]})) + "\n"
