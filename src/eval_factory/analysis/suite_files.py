"""Writes a suite's results as YAML documents, CSV, Markdown and an HTML page.

A cell is the run of one evaluation for one target (a model). The floor of a score is the best score
without a model, for example by always answering A.

If the program is killed, each file has its old or its new contents, and is never half written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from eval_factory.analysis import suite_messages as messages
from eval_factory.analysis.comparison_records import Pair, numbers_of
from eval_factory.analysis.suite_results import CellResult, ComparedBenchmark, SuiteResults
from eval_factory.analysis.win_rates import GROUPS, GroupScore, WinRate
from eval_factory.core import formats
from eval_factory.core.foreign_text import printable
from eval_factory.core.plain_yaml import OneLineMapping, to_yaml
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import Code, Lines, Link, Strong, Table, TableCell, csv_text, prose
from eval_factory.core.tables import html as in_html
from eval_factory.core.tables import markdown_lines as in_markdown
from eval_factory.report import documents
from eval_factory.report.documents import rounded_fields, with_layout_marks, without_nulls
from eval_factory.report.page.document import tables_page

SUITE_SCHEMA_VERSION = 1  # the version of the form of both YAML documents


def results_document(results: SuiteResults, root: Path) -> dict[str, Any]:
    """Return the contents of suite_results.yaml.

    Args:
        results: the results of the suite.
        root: the suite's folder, to which the cells' folders are relative.
    """
    groups = []
    for group, models in results.group_win_rates.items():
        rates = [OneLineMapping(without_nulls(_win_rate(rate))) for rate in models]
        groups.append({"group": group, "models": rates})
    missing = []
    for run in results.missing:
        named = _fields_of_record(run.cell, "target", "evaluation", "status")
        missing.append(named | _fields_of_record(run, "reason", "what_to_do"))
    document = {
        "schema_version": SUITE_SCHEMA_VERSION,
        "status": results.status,
        "targets": list(results.targets),
        "evaluations": list(results.evaluations),
        "cells": [_cell(cell, root) for cell in results.cells],
        "win_rates": {
            "models": [OneLineMapping(_win_rate(rate)) for rate in results.win_rates],
            "left_out": list(map(asdict, results.left_out)),
        },
        "metric_groups": groups,
        "comparisons": list(map(_benchmark, results.compared)),
        "missing": missing,
    }
    shown: dict[str, Any] = _printable(document)
    return shown


def _benchmark(benchmark: ComparedBenchmark) -> dict[str, Any]:
    """Return the pairs and the ranks on one benchmark, for the document."""
    ranks = []
    for rank in benchmark.ranks:
        ranks.append(
            OneLineMapping({"target": rank.model.label, "best": rank.best, "worst": rank.worst})
        )
    return {
        "evaluation": benchmark.evaluation,
        "pairs": list(map(_pair, benchmark.pairs)),
        "ranks": ranks,
    }


def _cell(cell: CellResult, root: Path) -> dict[str, Any]:
    """Return a cell for the document.

    The first nine fields and the folder are always listed, the other fields only if their values
    are known.
    """
    always_listed = _fields_of_record(
        cell,
        "target",
        "evaluation",
        "status",
        "main_metric",
        "value",
        "ci_low",
        "ci_high",
        "n",
        "reportable",
    )
    paid = _fields_of_record(cell, "cost", "unpriced", "prompt_tokens", "completion_tokens")
    paid["unpriced"] = cell.unpriced or None  # 0 is left out, like None
    scale = None
    if cell.scale is not None:
        scale = list(cell.scale)
    scores = []
    for score in cell.group_scores:
        scores.append(
            OneLineMapping(without_nulls(rounded_fields(asdict(score), exact=("value",))))
        )
    validity = _fields_of_record(cell, "requested", "failed", "coverage", "unreadable")
    # The fields that are None are left out below. Empty lists and mappings become None.
    further = {
        **_fields_of_record(
            cell, "reason", "model", "task", "upstream", "higher_is_better", "unit"
        ),
        "scale": scale,
        "validity": without_nulls(validity) or None,
        "not_reportable": list(cell.not_reportable) or None,
        "verdict": _verdict(cell),
        "floor": without_nulls({"value": cell.floor, "best": cell.floor_by}) or None,
        "paid": without_nulls(paid) or None,
        "scores": scores or None,
    }
    written: dict[str, Any] = with_layout_marks(without_nulls(further))
    return {**always_listed, "folder": folder_of(cell, root), **written}


def _verdict(cell: CellResult) -> str | None:
    """Return the name of the verdict on a cell's score, in lower case; None without a score."""
    if cell.verdict is None:
        return None
    return cell.verdict.name.lower()


def _fields_of_record(record: object, *names: str) -> dict[str, Any]:
    """Return these fields of a record as a dict. All numbers but `value` are rounded."""
    return rounded_fields({name: getattr(record, name) for name in names}, exact=("value",))


def folder_of(cell: CellResult, root: Path) -> str:
    """Return a cell's folder relative to the suite's folder.

    The run may be in the folder of another suite, so the relative path may begin with `..`.
    """
    return Path(os.path.relpath(cell.folder, root)).as_posix()


def _win_rate(rate: WinRate) -> dict[str, Any]:
    """Return a win rate for the document. The win rate itself is not rounded, as in HELM."""
    fields = asdict(rate)
    return rounded_fields({"target": fields.pop("model"), **fields}, exact=("win_rate",))


def _pair(pair: Pair) -> dict[str, Any]:
    """Return the comparison of a pair, or the reasons against it, for the document."""
    labels = {"a": pair.a.label, "b": pair.b.label}
    comparison = pair.comparison
    if comparison is None:
        return {**labels, "reasons": list(map(asdict, pair.reasons))}
    return {
        **labels,
        "metric": comparison.metric,
        **rounded_fields(numbers_of(comparison)),
        "significant": comparison.significant,
        "method": comparison.paired.method,
    }


def usage_document(results: SuiteResults) -> dict[str, Any]:
    """Return the contents of suite_usage.yaml: figures that differ between equal runs."""
    cells = []
    for cell in results.cells:
        if cell.usage is not None:
            named = {"target": cell.target, "evaluation": cell.evaluation}
            cells.append(OneLineMapping({**named, **rounded_fields(asdict(cell.usage))}))
    shown: dict[str, Any] = _printable({"schema_version": SUITE_SCHEMA_VERSION, "cells": cells})
    return shown


def _printable(value: Any) -> Any:
    """Return a copy of a value in which all texts have only printable characters.

    Mappings and lists keep their types, because `OneLineMapping` is a type of mapping.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        items = {name: _printable(item) for name, item in value.items()}
        return type(value)(items)  # type: ignore[call-arg]
    if isinstance(value, list):
        return type(value)(map(_printable, value))
    return value


# the first columns of the CSV file, in its order; each is a field of `CellResult`
_CELL_FIELDS = (
    "target",
    "evaluation",
    "status",
    "main_metric",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "reportable",
    "folder",
    "reason",
    "model",
    "task",
    "upstream",
    "higher_is_better",
    "unit",
    "requested",
    "failed",
    "coverage",
    "cost",
    "unpriced",
    "prompt_tokens",
    "completion_tokens",
    "not_reportable",
    "floor",
    "floor_by",
    "unreadable",
    "verdict",
)


def result_rows(results: SuiteResults, root: Path) -> list[dict[str, Any]]:
    """Return a row for each cell, for a table or a data frame.

    All rows have the same fields, and numbers are not rounded. Each score of HELM's other metric
    groups has a field with the name of the group (such as `calibration`), if a run computed such a
    score.

    Args:
        results: the results of the suite.
        root: the folder to which the cells' folders are relative.
    """
    rows = []
    group_of_field = {}  # name of a score's field -> the metric group of the score
    for cell in results.cells:
        fields = {name: getattr(cell, name) for name in _CELL_FIELDS}
        fields["folder"] = folder_of(cell, root)
        fields["not_reportable"] = "; ".join(cell.not_reportable) or None
        fields["verdict"] = _verdict(cell)
        rows.append(fields)
        for score in cell.group_scores:
            group_of_field[_field_of(score)] = score.group
    groups_in_order = list(GROUPS)  # HELM's order

    def position(field: str) -> int:
        return groups_in_order.index(group_of_field[field])

    # Every row gets a field for each score, even if only other runs have the score.
    for score_field in sorted(group_of_field, key=position):
        for fields, cell in zip(rows, results.cells, strict=True):
            fields[score_field] = _group_value(cell, score_field)
    return rows


def _group_value(cell: CellResult, name: str) -> float | None:
    """Return the value of the score whose field has this name; None without such a score."""
    for score in cell.group_scores:
        if _field_of(score) == name:
            return score.value
    return None


def _field_of(score: GroupScore) -> str:
    """Return the name of a score's field: the group, and the label if the group has several."""
    has_several_scores = len(GROUPS[score.group]) > 1
    if not has_several_scores:
        return score.group
    return f"{score.group}: {score.label}"


NO_WIN_RATES = "There is no win rate: no benchmark has reportable scores of two models."


def suite_markdown(results: SuiteResults, root: Path) -> str:
    """Return the results as Markdown, for an issue, a wiki or the summary of a CI job.

    Args:
        results: the results of the suite.
        root: the suite's folder, to which the cells' folders are relative.
    """
    summary = messages.completeness_sentence(results)
    if cost := messages.total_cost_sentence(results):
        summary = f"{summary} {cost}"
    lines = ["# Results of the suite", "", summary]
    for title, section in (
        ("Scores", _scores(results)),
        ("Do the answers hold?", _lines_of(messages.asked_again_table(results))),
        ("Win rates", _win_rates(results)),
        ("Other metric groups", _groups(results)),
        ("Comparisons", _comparisons(results)),
        ("Missing", _lines_of(messages.missing_table(results))),
        ("Runs", _lines_of(_runs(results, root))),
    ):
        section_lines = list(section)
        if section_lines:
            lines += ["", f"## {title}", "", *section_lines]
    return "\n".join(lines) + "\n"


def _lines_of(table: Table) -> list[str]:
    """Return the Markdown lines of a table; no lines if the table has no rows."""
    if not table.rows:
        return []
    return in_markdown(table)


def _win_rates(results: SuiteResults) -> Iterator[str]:
    """Yield the lines of the section on win rates."""
    if results.has_win_rates:
        yield from in_markdown(messages.win_rate_table(results.win_rates))
        yield from ("", messages.WIN_RATES_NOTE)
    else:
        yield NO_WIN_RATES
    left_out = [(value.name, value.reason) for value in results.left_out]
    yield from _listed("Left out of the win rates:", left_out)


def _comparisons(results: SuiteResults) -> list[str]:
    """Return the lines of the section on comparisons."""
    refused = []
    for benchmark in results.benchmarks:
        for models, reasons in messages.refused_pairs(benchmark):
            refused.append((f"{benchmark.evaluation}, {models}", "; ".join(reasons)))
    refusals = list(_listed("Not compared:", refused))
    compared = messages.pair_table(results.benchmarks)
    if not compared.rows:
        return refusals[1:]  # without the blank line that separates them from a table
    return [*in_markdown(compared), "", messages.PAIRS_NOTE, *refusals]


def _scores(results: SuiteResults) -> Iterator[str]:
    """Yield the lines of the section on scores."""
    if not results.cells:
        return
    names = results.evaluations
    headers = [Lines([name, messages.metrics_of(results, name)]) for name in names]
    rows: list[list[TableCell]] = []
    for target in results.targets:
        rows.append([target, *(_score_cell(results.cell(target, name)) for name in names)])
    floors = [messages.floor_texts(results, name) for name in names]
    if any(floors):
        rows.append([messages.FLOOR_LABEL, *map(Lines, floors)])
    # all columns but the first hold numbers
    yield from in_markdown(Table(["model", *headers], rows, number_columns=len(headers)))
    yield from ("", "Each value with its 95 % interval and its number of instances (n).")
    not_reportable = [
        (cell.name, "; ".join(cell.not_reportable)) for cell in _not_reportable(results)
    ]
    yield from _listed("Not reportable:", not_reportable)


def _score_cell(cell: CellResult | None) -> Lines:
    """Return the score of a cell with its interval, its number of instances and its marks."""
    lines: list[str | Strong] = [messages.score_text(cell)]
    if cell is not None and cell.value is not None:
        interval = messages.interval_text(cell)
        if interval:
            interval = f"({interval})"
        count = formats.count(cell.n, missing=messages.NO_VALUE)
        lines += [interval, f"n {count}"]
        for mark in messages.marks(cell):
            lines.append(Strong(mark.text))
    return Lines(lines)


def _not_reportable(results: SuiteResults) -> list[CellResult]:
    """Return the cells whose value is not reportable."""
    return [cell for cell in results.cells if cell.value is not None and not cell.reportable]


def _listed(title: str, reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of a list of names with reasons; nothing if the list is empty."""
    items = [f"- {prose(name)}: {prose(reason)}" for name, reason in reasons]
    if items:
        yield from ("", title, "", *items)


def _groups(results: SuiteResults) -> Iterator[str]:
    """Yield the lines of the section on HELM's other metric groups."""
    tables = messages.group_tables(results)
    if not tables:
        return
    count = len(results.targets)
    rows: list[list[TableCell]] = []
    for group, table in tables.items():
        for row in table.rows:
            rows.append([group, *row])
    header = ["group", "benchmark", "score", *results.targets]
    yield from in_markdown(Table(header, rows, number_columns=count))
    yield from ("", messages.GROUPS_NOTE, "")
    rates: list[list[TableCell]] = []
    for group, by_target in messages.group_win_rates(results).items():
        rates.append([group, *by_target])
    if rates:
        yield from in_markdown(
            Table(["mean win rate", *results.targets], rates, number_columns=count)
        )


_PAID = ("prompt tokens", "answer tokens", "cost")
"""The headers of the columns from `suite_messages.token_and_cost_texts`."""


def _runs(results: SuiteResults, root: Path) -> Table:
    """Return the table of runs for the Markdown, without figures that differ between equal runs."""
    header = ["model", "benchmark", "status", "folder", "n", "failed", "coverage", *_PAID]
    rows: list[list[TableCell]] = []
    for cell in results.cells:
        model = cell.target
        if cell.model is not None:
            model = f"{cell.target} ({cell.model})"
        rows.append(
            [
                model,
                cell.evaluation,
                cell.status,
                Code(folder_of(cell, root)),
                formats.count(cell.n, missing=messages.NO_VALUE),
                formats.count(cell.failed, missing=messages.NO_VALUE),
                formats.percent(cell.coverage, missing=messages.NO_VALUE),
                *messages.token_and_cost_texts(cell),
            ]
        )
    return Table(header, rows, number_columns=6)


def _runs_of_page(results: SuiteResults, root: Path) -> Table:
    """Return the table of runs for the page, also with their times and requests."""
    header = [
        "model",
        "benchmark",
        "status",
        "scored",
        "failed",
        *_PAID,
        "requests",
        "tried again",
        "median s",
        "run s",
    ]
    rows: list[list[TableCell]] = []
    for cell in results.cells:
        model = cell.target
        if cell.model not in (None, cell.target):
            model = f"{cell.target} ({cell.model})"
        name: TableCell = cell.evaluation
        usage = ["", "", "", ""]
        if cell.usage is not None:
            name = Link(cell.evaluation, link(cell, root))
            usage = [
                formats.count(cell.usage.requests),
                formats.count(cell.usage.retries),
                formats.decimals(cell.usage.latency_p50_s, digits=2),
                formats.decimals(cell.usage.wall_s, digits=1),
            ]
        failed = formats.count(cell.failed, missing=messages.NO_VALUE)
        scored = formats.percent(cell.coverage, missing=messages.NO_VALUE)
        rows.append(
            [model, name, cell.status, scored, failed, *messages.token_and_cost_texts(cell), *usage]
        )
    return Table(header, rows, number_columns=9)


def suite_page(results: SuiteResults, root: Path) -> str:
    """Return the HTML page of a suite.

    Args:
        results: the results of the suite.
        root: the folder for the page, to which the links to the runs' reports are relative.
    """
    tables = {
        "missing": messages.missing_table(results),
        "win_rates": messages.win_rate_table(results.win_rates),
        "runs": _runs_of_page(results, root),
        "asked_again": messages.asked_again_table(results),
    }
    top_ranked = set()  # (model, benchmark) for each model whose best possible rank is 1
    for benchmark in results.benchmarks:
        for rank in benchmark.ranks:
            if rank.best == 1:
                top_ranked.add((rank.model.label, benchmark.evaluation))
    # The keyword arguments are the variables of the template.
    return tables_page(
        "suite.html.j2",
        results=results,
        messages=messages,
        link=lambda cell: link(cell, root),
        top=top_ranked,
        win_rates=results.has_win_rates,
        no_win_rates=NO_WIN_RATES,
        tables={name: _in_html(table) for name, table in tables.items()},
        groups=_groups_of_page(results),
        comparisons=list(map(_comparison_of_page, results.compared)),
        doubted=_not_reportable(results),
        verdict=messages.verdict_of_suite(results),
        floors={name: messages.floor_texts(results, name) for name in results.evaluations},
        holds=bool(tables["asked_again"].rows),
    )


def _groups_of_page(results: SuiteResults) -> dict[str, tuple[int, Markup]]:
    """Return (number of scores, HTML table of scores and win rates) of each metric group."""
    groups = {}
    rates = messages.group_win_rates(results)
    for group, table in messages.group_tables(results, with_efficiency=True).items():
        rows = list(table.rows)
        if group in rates:
            rows.append(["mean win rate", "", *rates[group]])
        groups[group] = (len(table.rows), _in_html(replace(table, rows=rows)))
    return groups


def _comparison_of_page(benchmark: ComparedBenchmark) -> dict[str, Any]:
    """Return the variables of the page's template for the comparisons on a benchmark.

    `compared` is the number of compared pairs, and `shown` the number of pairs with a significant
    difference.
    """
    table = messages.pair_table([benchmark], without_column="benchmark")
    return {
        "benchmark": benchmark,
        "table": _in_html(table),
        "compared": len(table.rows),
        "shown": sum(comparison.significant for comparison in benchmark.comparisons),
        "refused": messages.refused_pairs(benchmark),
    }


def link(cell: CellResult, root: Path) -> str:
    """Return the link to the report of a run.

    The link begins with `./` or `../`, so that a folder's name cannot look like a URL.
    """
    path = f"{folder_of(cell, root)}/{RunDir(cell.folder).report_html.name}"
    if not path.startswith("../"):
        path = f"./{path}"
    return quote(path, errors="surrogateescape")


def _in_html(table: Table) -> Markup:
    return Markup(in_html(table))  # noqa: S704 - every cell is escaped


def write_suite_results(
    results: SuiteResults, folder: SuiteDir, into: SuiteDir | None = None
) -> None:
    """Write suite_results.{yaml,csv,md,html} and suite_usage.yaml.

    Args:
        results: the results of the suite.
        folder: the suite's folder.
        into: the folder for the files; by default the suite's folder.

    Raises:
        OSError: a file cannot be written.
    """
    document = results_document(results, folder.root)
    # Nothing is written if the document does not have the form of its schema.
    documents.check_document(document, documents.SUITE_RESULTS_SCHEMA)
    into = into or folder
    write_atomic(into.results_csv, csv_text(result_rows(results, folder.root)))
    write_atomic(into.results_md, suite_markdown(results, folder.root))
    write_atomic(into.results_html, suite_page(results, folder.root))
    write_atomic(into.usage_yaml, to_yaml(usage_document(results)))
    write_atomic(into.results_yaml, to_yaml(document))
