"""A suite's results as one page of HTML, in the style of a run's report: no script, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from eval_factory import __version__
from eval_factory.analysis import suite_words as words
from eval_factory.analysis.metric_groups import EFFICIENCY
from eval_factory.analysis.suite_document import folder_of
from eval_factory.analysis.suite_records import CellResult, SuiteResults
from eval_factory.core.rundir import RunDir
from eval_factory.report.page.document import STYLE, page_environment, policy, tables_style


def suite_page(results: SuiteResults, root: Path) -> str:
    """The whole page.

    Args:
        root: the suite's folder, where the page will be: links to the runs' reports are relative to it.
    """
    style = tables_style()
    text = page_environment().get_template("suite.html.j2").render(
        results=results, words=words, policy=policy(style, ""), style=Markup(STYLE), version=__version__,  # noqa: S704
        link=lambda cell: link(cell, root), top=set(_top(results)), win_rates=_has_win_rates(results),
        groups=_groups(results), group_rates={one.group: one.models for one in results.group_win_rates},
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


def _groups(results: SuiteResults) -> dict[str, list[words.GroupRow]]:
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
            yield replace(row, values=tuple(words.NOTHING if time is None else f"{time:.3g} s" for time in times))
