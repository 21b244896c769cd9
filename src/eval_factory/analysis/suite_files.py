"""A suite's results as Markdown and as a page of HTML, and all of its files written: each whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from eval_factory import __version__
from eval_factory.analysis import suite_words as words
from eval_factory.analysis.suite_document import csv_text, document, folder_of, rows, usage_document
from eval_factory.analysis.suite_results import CellResult, SuiteResults
from eval_factory.analysis.win_rates import EFFICIENCY
from eval_factory.core import formats
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.report import documents
from eval_factory.report.markdown_report import code, prose, table
from eval_factory.report.page.document import STYLE, page_environment, policy, tables_style


def markdown(results: SuiteResults, root: Path) -> str:
    """The table, for an issue, a wiki or a job's summary.

    Args:
        root: the suite's folder, to which the cells' folders are relative.
    """
    cost = words.total_cost(results)
    lines = ["# Results of the suite", "", " ".join(filter(None, (words.summary(results), cost)))]
    for title, section in (
        ("Scores", _scores(results)),
        ("Win rates", _win_rates(results)),
        ("Other metric groups", _groups(results)),
        ("Comparisons", _comparisons(results)),
        ("Missing", _missing(results)),
        ("Runs", _runs(results, root)),
    ):
        found = list(section)
        if found:
            lines += ["", f"## {title}", "", *found]
    return "\n".join(lines) + "\n"


def _scores(results: SuiteResults) -> Iterator[str]:
    if not results.cells:
        return
    metrics = {name: words.metrics_of(results, name) for name in results.evaluations}
    heads = ["<br>".join(map(prose, filter(None, item))) for item in metrics.items()]
    body = [
        [prose(target), *(_value(results.cell(target, name)) for name in results.evaluations)]
        for target in results.targets
    ]
    yield from table(["model", *heads], body, len(heads))
    yield ""
    yield "Each value with its 95 % interval and the instances that it is of (n)."
    doubted = [cell for cell in results.cells if cell.value is not None and not cell.reportable]
    if doubted:
        yield ""
        yield "Not reportable:"
        yield ""
    for cell in doubted:
        yield f"- {prose(cell.name)}: {prose('; '.join(cell.not_reportable))}"


def _value(cell: CellResult | None) -> str:
    if cell is None or cell.value is None:
        return words.value(cell)
    interval = words.interval(cell)
    parts = [words.value(cell), f"({interval})" if interval else "", f"n {words.number(cell.n)}"]
    return "<br>".join([*filter(None, parts), *(f"**{mark}**" for mark in words.marks(cell))])


def _win_rates(results: SuiteResults) -> Iterator[str]:
    if all(one.win_rate is None for one in results.win_rates):
        yield "No two models have values that a win rate could be made of."
    else:
        heads = ["model", "mean win rate", "rank", "comparisons", "benchmarks"]
        body = [
            [
                prose(one.model),
                words.win_rate(one),
                words.rank(one.best_rank, one.worst_rank),
                words.decided(one),
                str(one.columns),
            ]
            for one in words.by_win_rate(results.win_rates)
        ]
        yield from table(heads, body, len(heads) - 1)
        yield ""
        yield words.WIN_RATES
    if results.left_out:
        yield ""
        yield "Left out of the win rates:"
        yield ""
    for left in results.left_out:
        name = left.evaluation if left.target is None else f"{left.target}/{left.evaluation}"
        yield f"- {prose(name)}: {prose(left.reason)}"


def _groups(results: SuiteResults) -> Iterator[str]:
    rows = list(words.group_rows(results))
    if not rows:
        return
    heads = ["group", "benchmark", "score", *map(prose, results.targets)]
    yield from table(
        heads, [[row.group, prose(row.evaluation), code(row.label), *row.values] for row in rows], len(results.targets)
    )
    yield ""
    yield words.GROUPS_BESIDE
    yield ""
    rates = [[one.group, *map(words.win_rate, one.models)] for one in results.group_win_rates]
    if rates:
        yield from table(["mean win rate", *map(prose, results.targets)], rates, len(results.targets))


def _comparisons(results: SuiteResults) -> Iterator[str]:
    rows = [row for one in results.benchmarks for row in words.pair_rows(one)]
    if not rows:
        return
    heads = ["benchmark", "a", "b", "result", "n", "b - a", "95 % interval", "p"]
    body = [
        [*map(prose, (row.evaluation, row.a, row.b, row.said)), row.n, row.difference, row.interval, row.p]
        for row in rows
        if not row.reasons
    ]
    if body:
        yield from table(heads, body, 4)
        yield ""
        yield words.PAIRS
    refused = [row for row in rows if row.reasons]
    if refused:
        yield from [""] if body else []
        yield "Not compared:"
        yield ""
    for row in refused:
        yield f"- {prose(f'{row.evaluation}, {row.a} and {row.b}')}: {prose('; '.join(row.reasons))}"


def _missing(results: SuiteResults) -> Iterator[str]:
    if results.missing:
        body = [
            [prose(one.cell.target), prose(one.cell.evaluation), one.cell.status, prose(one.reason), one.what_to_do]
            for one in results.missing
        ]
        yield from table(["model", "benchmark", "status", "reason", "what to do"], body, 0)


def _runs(results: SuiteResults, root: Path) -> Iterator[str]:
    heads = [
        "model",
        "benchmark",
        "status",
        "folder",
        "n",
        "failed",
        "coverage",
        "prompt tokens",
        "answer tokens",
        "cost",
    ]
    body = [
        [
            prose(cell.target if cell.model is None else f"{cell.target} ({cell.model})"),
            prose(cell.evaluation),
            cell.status,
            code(folder_of(cell, root)),
            words.number(cell.n),
            words.number(cell.failed),
            words.share(cell.coverage),
            words.number(cell.prompt_tokens),
            words.number(cell.completion_tokens),
            words.cost(cell),
        ]
        for cell in results.cells
    ]
    if body:
        yield from table(heads, body, 6)


def suite_page(results: SuiteResults, root: Path) -> str:
    """The whole page.

    Args:
        root: the suite's folder, where the page will be: links to the runs' reports are relative to it.
    """
    style = tables_style()
    text = page_environment().get_template("suite.html.j2").render(
        results=results, words=words, policy=policy(style, ""), style=Markup(STYLE), version=__version__,  # noqa: S704
        link=lambda cell: link(cell, root), top=set(_top(results)), win_rates=_has_win_rates(results),
        groups=_groups_of_page(results), group_rates={one.group: one.models for one in results.group_win_rates},
        doubted=[cell for cell in results.cells if cell.value is not None and not cell.reportable],
    )  # fmt: skip
    return text.replace(STYLE, style)


def link(cell: CellResult, root: Path) -> str:
    """To the report of a run. It begins with `./` or `../`: whatever a folder is called, it is no address."""
    path = f"{folder_of(cell, root)}/{RunDir(cell.folder).report_html.name}"
    return quote(path if path.startswith("../") else f"./{path}", errors="surrogateescape")


def _top(results: SuiteResults) -> Iterator[tuple[str, str]]:
    """The cells of models that none is shown to be better than."""
    for benchmark in results.benchmarks:
        yield from ((one.model.label, benchmark.evaluation) for one in benchmark.ranks if one.best == 1)


def _has_win_rates(results: SuiteResults) -> bool:
    return any(one.win_rate is not None for one in results.win_rates)


def _groups_of_page(results: SuiteResults) -> dict[str, list[words.GroupRow]]:
    rows: dict[str, list[words.GroupRow]] = {}
    for row in (*words.group_rows(results), *_efficiency(results)):
        rows.setdefault(row.group, []).append(row)
    return rows


def _efficiency(results: SuiteResults) -> Iterator[words.GroupRow]:
    """HELM's seventh row: it has no place among the results, for no two runs have the same."""
    for evaluation in results.evaluations:
        cells = [results.cell(target, evaluation) for target in results.targets]
        times = [cell.took.inference_runtime_s if cell and cell.took else None for cell in cells]
        if any(time is not None for time in times):
            row = words.GroupRow(EFFICIENCY, evaluation, "inference_runtime", ())
            yield replace(row, values=tuple(formats.seconds(time, missing=words.NOTHING) for time in times))


def write_suite_results(results: SuiteResults, folder: SuiteDir, into: SuiteDir | None = None) -> None:
    """Write suite_results.{yaml,csv,md,html} and suite_usage.yaml.

    Args:
        into: where they are written, if not into the suite's own folder.

    Raises:
        OSError: the folder cannot be written.
    """
    whole = document(results, folder.root)
    documents.check(whole, documents.SUITE_RESULTS_SCHEMA)
    into = into or folder
    write_atomic(into.results_csv, csv_text(rows(results, folder.root)))
    write_atomic(into.results_md, markdown(results, folder.root))
    write_atomic(into.results_html, suite_page(results, folder.root))
    write_atomic(into.usage_yaml, documents.to_yaml(usage_document(results)))
    write_atomic(into.results_yaml, documents.to_yaml(whole))
