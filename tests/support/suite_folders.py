"""Folders of suites whose results are made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.analysis.suite_files import write_suite_results
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.core.enums import RunStatus
from eval_factory.core.results import Score, Stats
from eval_factory.core.rundir import SuiteDir
from stored_results import instance, result, written

SAME = "0" * 10 + "1" * 10
BETTER = "1" * 20
"""Ten more of twenty questions are answered rightly."""


def suite_folder(
    root: Path, values: Mapping[str, str], missing: Mapping[str, str] | None = None
) -> Path:
    """A suite's folder as `run_suite` leaves it.

    Args:
        values: `target/evaluation` -> right (1) or wrong (0), by instance.
        missing: `target/evaluation` -> why there is no result.
    """
    cells = [
        FinishedCell(*_names(name), RunStatus.COMPLETE, scored(root / name, each))
        for name, each in values.items()
    ]
    cells += [
        FinishedCell(*_names(name), RunStatus.FAILED, root / name, why)
        for name, why in (missing or {}).items()
    ]
    folder = SuiteDir(root)
    folder.config.write_text("suite: {}\n")
    write_suite_results(suite_results(cells), folder)
    return root


def scored(folder: Path, values: str, **changes: Any) -> Path:
    """An output folder whose score is the share of right answers, with an interval of 0.4."""
    share = values.count("1") / len(values)
    stats = Stats(
        len(values),
        share,
        stddev=None,
        stderr=None,
        ci_low=max(0.0, share - 0.2),
        ci_high=min(1.0, share + 0.2),
        ci_method="wilson",
    )
    score = Score(
        share, stats, "exact_match", "test", unit="share", scale=(0.0, 1.0), higher_is_better=True
    )
    records = [instance(f"q{number}", float(one)) for number, one in enumerate(values)]
    return written(folder, replace(result(records), scores={"exact_match": score}, **changes))


def _names(name: str) -> tuple[str, str]:
    target, _, evaluation = name.partition("/")
    return target, evaluation
