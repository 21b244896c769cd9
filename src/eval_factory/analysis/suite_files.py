"""A suite's results as Markdown and as a page of HTML, and all of its files written: each whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from eval_factory import __version__
from eval_factory.analysis import suite_words as words
from eval_factory.analysis.suite_document import folder_of, result_rows, results_document, usage_document
from eval_factory.analysis.suite_results import CellResult, ComparedBenchmark, SuiteResults
from eval_factory.analysis.win_rates import EFFICIENCY
from eval_factory.core import formats
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import Code, Lines, Link, Strong, Table, TableCell, csv_text, prose
from eval_factory.core.tables import html as in_html
from eval_factory.core.tables import markdown as in_markdown
from eval_factory.report import documents
from eval_factory.report.page.document import STYLE, page_environment, policy, tables_style

NO_WIN_RATES = "No two models have values that a win rate could be made of."


def suite_markdown(results: SuiteResults, root: Path) -> str:
    """The table, for an issue, a wiki or a job's summary.

    Args:
        root: the suite's folder, to which the cells' folders are relative.
    """
    cost = words.total_cost(results)
    lines = ["# Results of the suite", "", " ".join(filter(None, (words.completeness(results), cost)))]
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
    heads = [Lines([name, words.metrics_of(results, name)]) for name in results.evaluations]
    rows = [
        [target, *(_value(results.cell(target, name)) for name in results.evaluations)] for target in results.targets
    ]
    yield from in_markdown(Table(["model", *heads], rows, len(heads)))
    yield ""
    yield "Each value with its 95 % interval and the instances that it is of (n)."
    yield from _listed("Not reportable:", ((cell.name, "; ".join(cell.not_reportable)) for cell in _doubted(results)))


def _value(cell: CellResult | None) -> TableCell:
    if cell is None or cell.value is None:
        return words.value(cell)
    interval = words.interval(cell)
    count = f"n {formats.count(cell.n, missing=words.NOTHING)}"
    return Lines([words.value(cell), f"({interval})" if interval else "", count, *map(Strong, words.marks(cell))])


def _doubted(results: SuiteResults) -> list[CellResult]:
    return [cell for cell in results.cells if cell.value is not None and not cell.reportable]


def _listed(title: str, told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of names, each with a reason; nothing without one."""
    items = [f"- {prose(name)}: {prose(reason)}" for name, reason in told]
    if items:
        yield from ("", title, "", *items)


def _win_rates(results: SuiteResults) -> Iterator[str]:
    if words.has_win_rates(results):
        yield from (*in_markdown(words.win_rate_table(results.win_rates)), "", words.WIN_RATES)
    else:
        yield NO_WIN_RATES
    yield from _listed("Left out of the win rates:", ((left.name, left.reason) for left in results.left_out))


def _groups(results: SuiteResults) -> Iterator[str]:
    tables = words.group_tables(results)
    if not tables:
        return
    count = len(results.targets)
    rows = [[group, *row] for group, table in tables.items() for row in table.rows]
    yield from in_markdown(Table(["group", "benchmark", "score", *results.targets], rows, count))
    yield from ("", words.GROUPS_BESIDE, "")
    rates = [[group, *found] for group, found in words.group_win_rates(results).items()]
    if rates:
        yield from in_markdown(Table(["mean win rate", *results.targets], rates, count))


def _comparisons(results: SuiteResults) -> Iterator[str]:
    rows = [row for one in results.benchmarks for row in words.pair_rows(one)]
    compared = words.pair_table(rows)
    lines = [*in_markdown(compared), "", words.PAIRS] if compared.rows else []
    refused = ((f"{row.evaluation}, {row.a} and {row.b}", "; ".join(row.reasons)) for row in rows if row.reasons)
    told = [*lines, *_listed("Not compared:", refused)]
    yield from told if lines else told[1:]


def _missing(results: SuiteResults) -> Iterator[str]:
    if results.missing:
        yield from in_markdown(words.missing_table(results))


def _runs(results: SuiteResults, root: Path) -> Iterator[str]:
    head = [
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
    if rows:
        yield from in_markdown(Table(head, rows, 6))


def _runs_of_page(results: SuiteResults, root: Path) -> Table:
    """With times and requests, which are others each time."""
    head = ["model", "benchmark", "status", "scored", "failed", "prompt tokens", "answer tokens", "cost", "requests",
            "tried again", "median s", "run s"]  # fmt: skip
    rows: list[list[TableCell]] = []
    for cell in results.cells:
        model = cell.target if cell.model in (None, cell.target) else f"{cell.target} ({cell.model})"
        took = ["", "", "", ""]
        if cell.took is not None:
            took = [*map(formats.count, (cell.took.requests, cell.took.retries)),
                    formats.decimals(cell.took.latency_p50_s, 2), formats.decimals(cell.took.wall_s, 1)]  # fmt: skip
        name: TableCell = cell.evaluation if cell.took is None else Link(cell.evaluation, link(cell, root))
        failed = formats.count(cell.failed, missing=words.NOTHING)
        scored = formats.percent(cell.coverage, missing=words.NOTHING)
        rows.append([model, name, cell.status, scored, failed, *words.paid(cell), *took])
    return Table(head, rows, 9)


def suite_page(results: SuiteResults, root: Path) -> str:
    """The whole page.

    Args:
        root: the suite's folder, where the page will be: links to the runs' reports are relative to it.
    """
    style = tables_style()
    tables = {
        "missing": words.missing_table(results),
        "win_rates": words.win_rate_table(results.win_rates),
        "runs": _runs_of_page(results, root),
    }
    text = page_environment().get_template("suite.html.j2").render(
        results=results, words=words, policy=policy(style, ""), style=Markup(STYLE), version=__version__,  # noqa: S704
        link=lambda cell: link(cell, root), top=set(_top(results)), win_rates=words.has_win_rates(results),
        no_win_rates=NO_WIN_RATES, tables={name: _in_html(table) for name, table in tables.items()},
        groups=_groups_of_page(results), comparisons=list(_comparisons_of_page(results)), doubted=_doubted(results),
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


def _groups_of_page(results: SuiteResults) -> dict[str, tuple[int, Markup]]:
    """Group -> how many scores, and the table of them with the win rates below."""
    tables, rates = words.group_tables(results), words.group_win_rates(results)
    if (efficiency := words.efficiency_table(results)) is not None:
        tables[EFFICIENCY] = efficiency
    found = {}
    for group, table in tables.items():
        below = [["mean win rate", "", *rates[group]]] if group in rates else []
        found[group] = (len(table.rows), _in_html(replace(table, rows=[*table.rows, *below])))
    return found


@dataclass(frozen=True)
class _PairsOfPage:
    benchmark: ComparedBenchmark
    table: Markup
    compared: int
    shown: int
    """Differences."""
    refused: Sequence[words.PairRow]


def _comparisons_of_page(results: SuiteResults) -> Iterator[_PairsOfPage]:
    for benchmark in results.benchmarks:
        rows = list(words.pair_rows(benchmark))
        refused = [row for row in rows if row.reasons]
        shown = sum(one.comparison is not None and one.comparison.significant for one in benchmark.pairs)
        if rows:
            table = words.pair_table(rows)
            table = replace(table, head=table.head[1:], rows=[row[1:] for row in table.rows])  # the benchmark is above
            yield _PairsOfPage(benchmark, _in_html(table), len(rows) - len(refused), shown, refused)


def _in_html(table: Table) -> Markup:
    return Markup(in_html(table))  # noqa: S704 - every cell is escaped


def write_suite_results(results: SuiteResults, folder: SuiteDir, into: SuiteDir | None = None) -> None:
    """Write suite_results.{yaml,csv,md,html} and suite_usage.yaml.

    Args:
        into: where they are written, if not into the suite's own folder.

    Raises:
        OSError: the folder cannot be written.
    """
    whole = results_document(results, folder.root)
    documents.check_document(whole, documents.SUITE_RESULTS_SCHEMA)
    into = into or folder
    write_atomic(into.results_csv, csv_text(result_rows(results, folder.root)))
    write_atomic(into.results_md, suite_markdown(results, folder.root))
    write_atomic(into.results_html, suite_page(results, folder.root))
    write_atomic(into.usage_yaml, documents.to_yaml(usage_document(results)))
    write_atomic(into.results_yaml, documents.to_yaml(whole))
