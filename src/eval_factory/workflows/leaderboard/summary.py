"""`leaderboard.json`: every run of every model in an output folder, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.redaction import Redactor
from eval_factory.core.rundir import RunDir
from eval_factory.helm import output
from eval_factory.helm.bookkeeping import is_score
from eval_factory.helm.main_metric import chosen_main_metric
from eval_factory.tasks.framework import HelmEntry
from eval_factory.tasks.run_specs import RunSpec, load_index

SCHEMA_VERSION = 1
State = Literal["in the tables", "kept out", "failed", "left out"]
"""Kept out: too many requests without an answer. Left out: it asks a model for more than text."""


@dataclass(frozen=True)
class RunResult:
    """One run, or the entry that did not become one. Without `scores` where nobody can stand behind them."""

    run: str
    model_id: str
    state: State
    reason: str | None = None
    requested: int | None = None
    failed: int | None = None
    unjudged: int | None = None
    main_metric: str | None = None
    score: float | None = None
    """HELM's mean of the main metric over the main split."""


def main_score_of(folder: Path) -> tuple[str, float | None]:
    """The main metric of a finished run and its value. Raises HelmError where the folder cannot be read."""
    run = output.read_run(folder)
    name = run.run_spec.name.replace(",", ":").partition(":")[0]
    spec = load_index().run_specs.get(name) or RunSpec(module="")
    split = run.main_split(spec.main_split)
    values = {
        output.score_label(stat.name, split): stat.mean
        for stat in run.stats
        if stat.mean is not None and is_score(stat.name.name)
    }
    entry = HelmEntry(run_spec=name, scenario=name, main_metric=None, any_run_spec=True, main_metrics=spec.main_metrics)
    metric, _ = chosen_main_metric(entry, list(values))
    return metric, values.get(metric)


def write_results(
    rundir: RunDir, leaderboard: str, models: Collection[str], results: Iterable[RunResult], redactor: Redactor
) -> None:
    """Write the file anew; what it says of other leaderboards and other models stays."""
    try:
        known: dict[str, Any] = json.loads(rundir.leaderboard.read_text(encoding="utf-8"))["leaderboards"]
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    others = [record for record in known.get(leaderboard, ()) if record["model_id"] not in models]
    known[leaderboard] = [*others, *(redactor.tree(asdict(result)) for result in results)]
    document = {"schema_version": SCHEMA_VERSION, "leaderboards": known}
    write_atomic(rundir.leaderboard, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
