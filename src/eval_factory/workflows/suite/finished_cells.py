"""Which cells are finished already, told from their folders without a process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.plan.run_plan import RUNTIME_ONLY, Plan, leaves_of
from eval_factory.report.reader import load_result
from eval_factory.scoring.reportable import why_not_reportable
from eval_factory.workflows.resume import DataRead, finished_run, read_state

READ_WHEN_COLLECTED = frozenset(
    {
        "config.params.extra.data_dir",
        "config.params.extra.offline",
        "config.params.extra.allow_code_execution",
        "config.params.extra.on_failure",
        "config.params.extra.min_coverage",
        "config.params.extra.max_judge_failures",
        "config.params.extra.max_model_mismatch",
        "config.params.extra.max_unreadable",
        "config.params.extra.prices",
    }
)
"""What changes nothing that is asked, and what stands in a result."""
OF_NO_RESULT = (RUNTIME_ONLY - READ_WHEN_COLLECTED) | {"config.params.extra.shards"}  # of earlier versions
"""What changes how a run goes, and no number in its result."""


@dataclass(frozen=True)
class Finished:
    """A complete result that is what this cell would give."""

    not_reportable: str | None


def finished(plan: Plan) -> Finished | None:
    """None where a run has to begin, or to look: at data that may have changed, or with other settings of a result."""
    if reads_own_data(plan) or finished_run(plan, read_state(plan.rundir), DataRead()) is None:
        return None
    try:
        stored = load_result(plan.rundir.root)
    except PrerequisiteError:
        return None
    if _settings({"config": stored.config, "target": stored.target}) != _settings(plan.evaluation.as_dict()):
        return None
    minimum = plan.evaluation.run.config.params.extra.min_coverage
    return Finished(why_not_reportable(stored.result, minimum))


def reads_own_data(plan: Plan) -> bool:
    """Whether the same configuration may read other data today."""
    extra = plan.evaluation.run.config.params.extra
    return bool(extra.data_path or extra.benchmark or extra.data_dir or extra.offline)


def is_complete_run(plan: Plan) -> bool:
    """Whether a complete run of this configuration stands there: with the same data its process asks nothing."""
    state = read_state(plan.rundir)
    return state is not None and state.complete and state.identity == plan.identity


def has_partial_result(rundir: RunDir, identity: str) -> bool:
    """Whether a result of this very run stands there, with gaps."""
    state = read_state(rundir)
    same = state is not None and not state.complete and state.identity == identity
    return same and rundir.evaluation_config.is_file()


def keeps_partial_result(plan: Plan) -> bool:
    """Whether such a result is this cell's though nothing more is asked: data of the user's own may have changed."""
    own = plan.evaluation.run.config.params.extra.data_path
    return own is None and has_partial_result(plan.rundir, plan.identity)


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Path -> value, of all that a result depends on; a key that nobody gave is one that has no value."""
    leaves = leaves_of({name: config[name] for name in ("config", "target")})
    said = {path: value for path, value in leaves if path not in OF_NO_RESULT and value is not None}
    return {path: json.dumps(value, sort_keys=True, default=str) for path, value in said.items()}
