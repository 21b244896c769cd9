"""A suite's results as Markdown: models x benchmarks, win rates, comparisons, what is missing. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eval_factory.analysis import suite_words as words
from eval_factory.analysis.suite_document import folder_of
from eval_factory.analysis.suite_records import CellResult, SuiteResults
from eval_factory.report.markdown_text import code, prose, table


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
        heads,
        [[row.group, prose(row.evaluation), code(row.label), *row.values] for row in rows],
        len(results.targets),
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
