"""A suite's results as documents, CSV, Markdown and a page, and its files written: each complete
or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from eval_factory.analysis import suite_words as words
from eval_factory.analysis.comparison import Pair, numbers_of
from eval_factory.analysis.suite_results import CellResult, SuiteResults
from eval_factory.analysis.win_rates import GROUPS, GroupScore, WinRate
from eval_factory.core import formats
from eval_factory.core.foreign_text import printable
from eval_factory.core.plain_yaml import OneLine, to_yaml
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import Code, Lines, Link, Strong, Table, TableCell, csv_text, prose
from eval_factory.core.tables import html as in_html
from eval_factory.core.tables import markdown as in_markdown
from eval_factory.report import documents
from eval_factory.report.documents import formatted, rounded_fields, without_nulls
from eval_factory.report.page.document import tables_page

SUITE_SCHEMA_VERSION = 1


def results_document(results: SuiteResults, root: Path) -> dict[str, Any]:
    """What suite_results.yaml holds. `root`: the suite's folder, to which the cells' folders are
    relative.
    """
    document = {
        "schema_version": SUITE_SCHEMA_VERSION,
        "status": results.status,
        "targets": list(results.targets),
        "evaluations": list(results.evaluations),
        "cells": [_cell(cell, root) for cell in results.cells],
        "win_rates": {
            "models": [OneLine(_win_rate(one)) for one in results.win_rates],
            "left_out": [asdict(one) for one in results.left_out],
        },
        "metric_groups": [
            {"group": group, "models": [OneLine(without_nulls(_win_rate(each))) for each in models]}
            for group, models in results.group_win_rates.items()
        ],
        "comparisons": [
            {
                "evaluation": one.evaluation,
                "pairs": [_pair(pair) for pair in one.pairs],
                "ranks": [
                    OneLine({"target": of.model.label, "best": of.best, "worst": of.worst})
                    for of in one.ranks
                ],
            }
            for one in results.benchmarks
            if one.pairs
        ],
        "missing": [
            _named(one.cell, "target", "evaluation", "status") | _named(one, "reason", "what_to_do")
            for one in results.missing
        ],
    }
    shown: dict[str, Any] = _printable(document)
    return shown


def _cell(cell: CellResult, root: Path) -> dict[str, Any]:
    """The first fields are always there; of the others those that say something."""
    first = _named(
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
    paid = _named(cell, "cost", "unpriced", "prompt_tokens", "completion_tokens")
    paid["unpriced"] = cell.unpriced or None
    more = {
        **_named(cell, "reason", "model", "task", "upstream", "higher_is_better", "unit"),
        "scale": None if cell.scale is None else list(cell.scale),
        "validity": without_nulls(_named(cell, "requested", "failed", "coverage", "unreadable"))
        or None,
        "not_reportable": list(cell.not_reportable) or None,
        "verdict": None if cell.verdict is None else cell.verdict.name.lower(),
        "floor": without_nulls({"value": cell.floor, "best": cell.floor_by}) or None,
        "paid": without_nulls(paid) or None,
        "scores": [
            OneLine(without_nulls(rounded_fields(asdict(one), "value")))
            for one in cell.group_scores
        ]
        or None,
    }
    written: dict[str, Any] = formatted(without_nulls(more))
    return {**first, "folder": folder_of(cell, root), **written}


def _named(record: object, *names: str) -> dict[str, Any]:
    """Fields of a record, all but its value rounded."""
    return rounded_fields({name: getattr(record, name) for name in names}, "value")


def folder_of(cell: CellResult, root: Path) -> str:
    """Relative to the suite's folder, also where the run is in another suite's."""
    return Path(os.path.relpath(cell.folder, root)).as_posix()


def _win_rate(one: WinRate) -> dict[str, Any]:
    """The win rate to the last digit, as HELM has it."""
    fields = asdict(one)
    return rounded_fields({"target": fields.pop("model"), **fields}, "win_rate")


def _pair(pair: Pair) -> dict[str, Any]:
    sides = {"a": pair.a.label, "b": pair.b.label}
    one = pair.comparison
    if one is None:
        return {**sides, "reasons": [asdict(reason) for reason in pair.reasons]}
    numbers = rounded_fields(numbers_of(one))
    return {
        **sides,
        "metric": one.metric,
        **numbers,
        "significant": one.significant,
        "method": one.paired.method,
    }


def usage_document(results: SuiteResults) -> dict[str, Any]:
    """What suite_usage.yaml holds: figures that are others each time the suite is run."""
    cells = [
        OneLine(
            {
                "target": cell.target,
                "evaluation": cell.evaluation,
                **rounded_fields(asdict(cell.took)),
            }
        )
        for cell in results.cells
        if cell.took is not None
    ]
    shown: dict[str, Any] = _printable({"schema_version": SUITE_SCHEMA_VERSION, "cells": cells})
    return shown


def _printable(value: Any) -> Any:
    """With every text as it can be written and shown; a mapping stays of its kind."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return type(value)({name: _printable(item) for name, item in value.items()})  # type: ignore[call-arg]
    if isinstance(value, list):
        return type(value)(_printable(item) for item in value)
    return value


_ROW = (
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
    """A row a cell, for a table or a data frame: every row has the same fields, with numbers as
    they are.

    Scores of HELM's other metric groups have a field each, called by the group (`calibration`), in
    those suites where a run computed one. `root`: the folder that the cells' folders are relative
    to.
    """
    found = []
    for cell in results.cells:
        fields = {name: getattr(cell, name) for name in _ROW}
        fields["folder"] = folder_of(cell, root)
        fields["not_reportable"] = "; ".join(cell.not_reportable) or None
        fields["verdict"] = None if cell.verdict is None else cell.verdict.name.lower()
        found.append(fields)
    scores = chain.from_iterable(cell.group_scores for cell in results.cells)
    names = {_field_of(score): score.group for score in scores}
    for name in sorted(names, key=lambda name: list(GROUPS).index(names[name])):
        for fields, cell in zip(found, results.cells, strict=True):
            fields[name] = next(
                (one.value for one in cell.group_scores if _field_of(one) == name), None
            )
    return found


def _field_of(score: GroupScore) -> str:
    return score.group if len(GROUPS[score.group]) <= 1 else f"{score.group}: {score.label}"


NO_WIN_RATES = "There is no win rate: no benchmark has reportable scores of two models."


def suite_markdown(results: SuiteResults, root: Path) -> str:
    """For an issue, a wiki or a job's summary. `root`: the suite's folder, to which the cells'
    folders are relative.
    """
    cost = words.total_cost(results)
    lines = [
        "# Results of the suite",
        "",
        " ".join(filter(None, (words.completeness(results), cost))),
    ]
    rates = [NO_WIN_RATES]
    if results.has_win_rates:
        rates = [*in_markdown(words.win_rate_table(results.win_rates)), "", words.WIN_RATES]
    rates += _listed(
        "Left out of the win rates:", ((left.name, left.reason) for left in results.left_out)
    )
    compared = words.pair_table(results.benchmarks)
    pairs = [*in_markdown(compared), "", words.PAIRS] if compared.rows else []
    refused = []
    for benchmark in results.benchmarks:
        for models, reasons in words.refused_pairs(benchmark):
            refused.append((f"{benchmark.evaluation}, {models}", "; ".join(reasons)))
    refusals = list(_listed("Not compared:", refused))
    again = words.asked_again_table(results)
    for title, section in (
        ("Scores", list(_scores(results)) if results.cells else []),
        ("Do the answers hold?", in_markdown(again) if again.rows else []),
        ("Win rates", rates),
        ("Other metric groups", list(_groups(results))),
        ("Comparisons", pairs + refusals if pairs else refusals[1:]),
        ("Missing", in_markdown(words.missing_table(results)) if results.missing else []),
        ("Runs", in_markdown(_runs(results, root)) if results.cells else []),
    ):
        if section:
            lines += ["", f"## {title}", "", *section]
    return "\n".join(lines) + "\n"


def _scores(results: SuiteResults) -> Iterator[str]:
    heads = [Lines([name, words.metrics_of(results, name)]) for name in results.evaluations]
    rows: list[list[TableCell]] = []
    for target in results.targets:
        rows.append([target])
        for name in results.evaluations:
            cell = results.cell(target, name)
            shown: list[str | Strong] = [words.value(cell)]
            if cell is not None and cell.value is not None:
                interval = words.interval(cell)
                count = formats.count(cell.n, missing=words.NOTHING)
                shown += [
                    f"({interval})" if interval else "",
                    f"n {count}",
                    *(Strong(mark.text) for mark in words.marks(cell)),
                ]
            rows[-1].append(Lines(shown))
    floors = [words.floors(results, name) for name in results.evaluations]
    if any(floors):
        rows.append([words.FLOOR, *(Lines(found) for found in floors)])
    yield from in_markdown(Table(["model", *heads], rows, len(heads)))
    yield from ("", "Each value with its 95 % interval and the instances that it is of (n).")
    yield from _listed(
        "Not reportable:",
        ((cell.name, "; ".join(cell.not_reportable)) for cell in _doubted(results)),
    )


def _doubted(results: SuiteResults) -> list[CellResult]:
    return [cell for cell in results.cells if cell.value is not None and not cell.reportable]


def _listed(title: str, reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of names, each with a reason; nothing without one."""
    items = [f"- {prose(name)}: {prose(reason)}" for name, reason in reasons]
    if items:
        yield from ("", title, "", *items)


def _groups(results: SuiteResults) -> Iterator[str]:
    tables = words.group_tables(results)
    if not tables:
        return
    count = len(results.targets)
    rows: list[list[TableCell]] = []
    for group, table in tables.items():
        rows += [[group, *row] for row in table.rows]
    yield from in_markdown(Table(["group", "benchmark", "score", *results.targets], rows, count))
    yield from ("", words.GROUPS_BESIDE, "")
    rates = [[group, *found] for group, found in words.group_win_rates(results).items()]
    if rates:
        yield from in_markdown(Table(["mean win rate", *results.targets], rates, count))


def _runs(results: SuiteResults, root: Path) -> Table:
    head = ["model", "benchmark", "status", "folder", "n", "failed", "coverage", *_PAID]
    rows = [
        [
            cell.target if cell.model is None else f"{cell.target} ({cell.model})",
            cell.evaluation,
            cell.status,
            Code(folder_of(cell, root)),
            *(formats.count(count, missing=words.NOTHING) for count in (cell.n, cell.failed)),
            formats.percent(cell.coverage, missing=words.NOTHING),
            *words.paid(cell),
        ]
        for cell in results.cells
    ]
    return Table(head, rows, 6)


_PAID = ("prompt tokens", "answer tokens", "cost")  # heads of `suite_words.paid`


def _runs_of_page(results: SuiteResults, root: Path) -> Table:
    """With times and requests, which are others each time."""
    head = [
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
        model = (
            cell.target if cell.model in (None, cell.target) else f"{cell.target} ({cell.model})"
        )
        took = ["", "", "", ""]
        if cell.took is not None:
            took = [
                *map(formats.count, (cell.took.requests, cell.took.retries)),
                formats.decimals(cell.took.latency_p50_s, 2),
                formats.decimals(cell.took.wall_s, 1),
            ]
        name: TableCell = (
            cell.evaluation if cell.took is None else Link(cell.evaluation, link(cell, root))
        )
        failed = formats.count(cell.failed, missing=words.NOTHING)
        scored = formats.percent(cell.coverage, missing=words.NOTHING)
        rows.append([model, name, cell.status, scored, failed, *words.paid(cell), *took])
    return Table(head, rows, 9)


def suite_page(results: SuiteResults, root: Path) -> str:
    """The page. `root`: the suite's folder, where the page will be: links to the runs' reports
    are relative to it.
    """
    tables = {
        "missing": words.missing_table(results),
        "win_rates": words.win_rate_table(results.win_rates),
        "runs": _runs_of_page(results, root),
        "asked_again": words.asked_again_table(results),
    }
    groups = {}
    rates = words.group_win_rates(results)
    for group, table in words.group_tables(results, efficiency=True).items():
        # how many scores, and the table of them with the win rates below
        below = [["mean win rate", "", *rates[group]]] if group in rates else []
        groups[group] = (len(table.rows), _in_html(replace(table, rows=[*table.rows, *below])))
    comparisons = []
    for benchmark in results.benchmarks:
        if benchmark.pairs:
            table = words.pair_table([benchmark], "benchmark")
            shown = sum(one.significant for one in benchmark.comparisons)
            comparisons.append(
                {
                    "benchmark": benchmark,
                    "table": _in_html(table),
                    "compared": len(table.rows),
                    "shown": shown,
                    "refused": words.refused_pairs(benchmark),
                }
            )
    # the cells of models that none is shown to be better than
    top = set()
    for benchmark in results.benchmarks:
        for rank in benchmark.ranks:
            if rank.best == 1:
                top.add((rank.model.label, benchmark.evaluation))
    return tables_page(
        "suite.html.j2",
        results=results,
        words=words,
        link=lambda cell: link(cell, root),
        top=top,
        win_rates=results.has_win_rates,
        no_win_rates=NO_WIN_RATES,
        tables={name: _in_html(table) for name, table in tables.items()},
        groups=groups,
        comparisons=comparisons,
        doubted=_doubted(results),
        verdict=words.verdict_of_suite(results),
        floors={name: words.floors(results, name) for name in results.evaluations},
        holds=bool(tables["asked_again"].rows),
    )


def link(cell: CellResult, root: Path) -> str:
    """To the report of a run. It begins with `./` or `../`: whatever a folder is called, it is
    no address.
    """
    path = f"{folder_of(cell, root)}/{RunDir(cell.folder).report_html.name}"
    return quote(path if path.startswith("../") else f"./{path}", errors="surrogateescape")


def _in_html(table: Table) -> Markup:
    return Markup(in_html(table))  # noqa: S704 - every cell is escaped


def write_suite_results(
    results: SuiteResults, folder: SuiteDir, into: SuiteDir | None = None
) -> None:
    """Write suite_results.{yaml,csv,md,html} and suite_usage.yaml, where `into` is not given into
    the suite's own folder. Raises OSError.
    """
    document = results_document(results, folder.root)
    documents.check_document(document, documents.SUITE_RESULTS_SCHEMA)
    into = into or folder
    write_atomic(into.results_csv, csv_text(result_rows(results, folder.root)))
    write_atomic(into.results_md, suite_markdown(results, folder.root))
    write_atomic(into.results_html, suite_page(results, folder.root))
    write_atomic(into.usage_yaml, to_yaml(usage_document(results)))
    write_atomic(into.results_yaml, to_yaml(document))
