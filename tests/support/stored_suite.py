"""The folders of a suite with results that are made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.analysis.suite_results import FinishedCell
from eval_factory.core.enums import RunStatus
from eval_factory.core.results import Score, Stats, TaskResult
from stored_results import PROVENANCE, instance, result, written

Values = Mapping[str, Mapping[str, str]]
"""Evaluation -> target -> an instance a character: 1, 0, or x for one that failed."""


def cell(root: Path, target: str, evaluation: str, values: str, **changes: Any) -> FinishedCell:
    """A finished run; `changes` are of its result."""
    folder = root / target / evaluation
    written(folder, made(target, evaluation, values, **changes))
    return FinishedCell(target, evaluation, RunStatus.COMPLETE, folder, attempts=1)


def made(target: str, evaluation: str, values: str, **changes: Any) -> TaskResult:
    """Its main score is the share of 1, with what is known of its direction and scale."""
    records = [
        instance(f"q{number}", None if one == "x" else float(one))
        for number, one in enumerate(values)
    ]
    found = result(records, task=evaluation, provenance=replace(PROVENANCE, target=f"org/{target}"))
    return replace(found, **{"scores": {"exact_match": share(values)}, **changes})


def share(values: str, **changes: Any) -> Score:
    known = [int(one) for one in values if one != "x"]
    mean = sum(known) / len(known)
    stats = Stats(
        len(known),
        mean,
        stddev=0.5,
        stderr=0.1,
        ci_low=max(0.0, mean - 0.1),
        ci_high=min(1.0, mean + 0.1),
        ci_method="wilson",
    )
    score = Score(
        mean,
        stats,
        "exact_match",
        "test",
        None,
        higher_is_better=True,
        scale=(0.0, 1.0),
        unit="share",
    )
    return replace(score, **changes)


def cells(root: Path, values: Values) -> list[FinishedCell]:
    cells = []
    for evaluation, by_target in values.items():
        for target, answers in by_target.items():
            cells.append(cell(root, target, evaluation, answers))
    return cells
