"""A suite's results as plain documents: suite_results.yaml, suite_usage.yaml, rows of a table, CSV. Pure functions.

suite_results.yaml holds nothing that depends on when and how long a run ran, so that a suite which was disturbed leaves
the file that an undisturbed one leaves; such figures are in suite_usage.yaml.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval_factory.analysis.comparison import Pair, numbers_of
from eval_factory.analysis.suite_results import CellResult, ComparedBenchmark, Missing, SuiteResults
from eval_factory.analysis.win_rates import GROUPS, GroupScore, WinRate
from eval_factory.core.foreign_text import printable
from eval_factory.report.documents import OneLine, laid_out, rounded_fields, without_nulls

SUITE_SCHEMA_VERSION = 1


def results_document(results: SuiteResults, root: Path) -> dict[str, Any]:
    """What suite_results.yaml holds. `root`: the suite's folder, to which the cells' folders are relative."""
    written = {
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
            {"group": one.group, "models": [OneLine(without_nulls(_win_rate(each))) for each in one.models]}
            for one in results.group_win_rates
        ],
        "comparisons": [_benchmark(one) for one in results.benchmarks if one.pairs],
        "missing": [_missing(one) for one in results.missing],
    }
    shown: dict[str, Any] = _printable(written)
    return shown


def _cell(cell: CellResult, root: Path) -> dict[str, Any]:
    """The first fields are always there; of the others those that say something."""
    first = {
        "target": cell.target,
        "evaluation": cell.evaluation,
        "status": cell.status,
        "main_metric": cell.main_metric,
        "value": cell.value,
        **rounded_fields({"ci_low": cell.ci_low, "ci_high": cell.ci_high}),
        "n": cell.n,
        "reportable": cell.reportable,
        "folder": folder_of(cell, root),
    }
    validity = {"requested": cell.requested, "failed": cell.failed, "coverage": cell.coverage}
    paid = {
        "cost": cell.cost,
        "unpriced": cell.unpriced or None,
        "prompt_tokens": cell.prompt_tokens,
        "completion_tokens": cell.completion_tokens,
    }
    more = {
        "reason": cell.reason,
        "model": cell.model,
        "task": cell.task,
        "higher_is_better": cell.higher_is_better,
        "unit": cell.unit,
        "scale": None if cell.scale is None else list(cell.scale),
        "validity": without_nulls(rounded_fields(validity)) or None,
        "not_reportable": list(cell.not_reportable) or None,
        "paid": without_nulls(rounded_fields(paid)) or None,
        "scores": [OneLine(_group_score(one)) for one in cell.group_scores] or None,
    }
    told: dict[str, Any] = laid_out(without_nulls(more))
    return {**first, **told}


def folder_of(cell: CellResult, root: Path) -> str:
    """Relative to the suite's folder, also where the run is in another suite's."""
    return Path(os.path.relpath(cell.folder, root)).as_posix()


def _group_score(score: GroupScore) -> dict[str, Any]:
    return without_nulls(rounded_fields(asdict(score), "value"))


def _win_rate(one: WinRate) -> dict[str, Any]:
    """The win rate to the last digit, as HELM has it."""
    fields = {"target": one.model, **asdict(one)}
    del fields["model"]
    return rounded_fields(fields, "win_rate")


def _benchmark(one: ComparedBenchmark) -> dict[str, Any]:
    ranks = [OneLine({"target": each.model.label, "best": each.best, "worst": each.worst}) for each in one.ranks]
    return {"evaluation": one.evaluation, "pairs": [_pair(pair) for pair in one.pairs], "ranks": ranks}


def _pair(pair: Pair) -> dict[str, Any]:
    sides = {"a": pair.a.label, "b": pair.b.label}
    one = pair.comparison
    if one is None:
        return {**sides, "reasons": [{"name": each.name, "message": each.message} for each in pair.reasons]}
    told = {
        "metric": one.metric,
        **rounded_fields(numbers_of(one)),
        "significant": one.significant,
        "method": one.paired.method,
    }
    return {**sides, **told}


def _missing(one: Missing) -> dict[str, Any]:
    about = {"target": one.cell.target, "evaluation": one.cell.evaluation, "status": one.cell.status}
    return {**about, "reason": one.reason, "what_to_do": one.what_to_do}


def usage_document(results: SuiteResults) -> dict[str, Any]:
    """What suite_usage.yaml holds: figures that are others each time the suite is run."""
    cells = [
        OneLine({"target": cell.target, "evaluation": cell.evaluation, **rounded_fields(asdict(cell.took))})
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
    "target", "evaluation", "status", "main_metric", "value", "ci_low", "ci_high", "n", "reportable", "folder",
    "reason", "model", "task", "higher_is_better", "unit", "requested", "failed", "coverage", "cost", "unpriced",
    "prompt_tokens", "completion_tokens", "not_reportable",
)  # fmt: skip


def result_rows(results: SuiteResults, root: Path | None = None) -> list[dict[str, Any]]:
    """A row a cell, for a table or a data frame: every row has the same fields, with numbers as they are.

    Scores of HELM's other metric groups have a field each, called by the group (`calibration`), in those suites where a
    run computed one.

    Args:
        root: the folder that the cells' folders are told relative to; as they are if not given.
    """
    found = []
    for cell in results.cells:
        fields = {name: getattr(cell, name) for name in _ROW}
        fields["folder"] = cell.folder.as_posix() if root is None else folder_of(cell, root)
        fields["not_reportable"] = "; ".join(cell.not_reportable) or None
        found.append(fields)
    for name in _group_fields(results):
        for fields, cell in zip(found, results.cells, strict=True):
            fields[name] = next((one.value for one in cell.group_scores if _field_of(one) == name), None)
    return found


def _group_fields(results: SuiteResults) -> list[str]:
    names = {_field_of(one): one.group for cell in results.cells for one in cell.group_scores}
    return [name for group in GROUPS for name, of in names.items() if of == group]


def _field_of(score: GroupScore) -> str:
    return score.group if len(GROUPS[score.group]) == 1 else f"{score.group}: {score.label}"
