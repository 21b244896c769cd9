"""Decides whether a new model replaces the model that a panel watches.

A panel is a fixed sample of questions that is asked repeatedly. A change asks the watched model and
a new model. The gate's policy decides whether the new model replaces the watched model. The ledger
is the file that records all that happened to the panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.analysis.gate import GateResult, evaluate_policy
from eval_factory.analysis.gate_policy import Policy, load_policy
from eval_factory.analysis.gate_report import gate_text
from eval_factory.core.enums import Verdict
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.monitor.asking import (
    MonitorOutcome,
    Outcome,
    RunOptions,
    ask_suite,
    look_command,
    unfinished_outcome,
    write_page,
)
from eval_factory.monitor.baseline import make_baseline, refuse_different_panel
from eval_factory.monitor.ledger import (
    BASELINE,
    CHANGE,
    NEW_MODEL,
    WATCHED_MODEL,
    History,
    Ledger,
    Line,
)
from eval_factory.monitor.measurement import run_entries_of
from eval_factory.monitor.panel import PANEL_FILE, Panel


def decide_change(panel: Panel, new_target: Path, options: RunOptions) -> MonitorOutcome:
    """Ask the watched model and a new model, and let the gate's policy decide about the change.

    If the policy passes, a new baseline is made with the new model, which is watched from then on.
    Otherwise nothing changes. The ledger records the decision and its reasons.

    Args:
        panel: the panel.
        new_target: a file with `target`, in the form of a run config.
        options: the options for asking the panel.

    Raises:
        ConfigError: The panel has no plan of change or no baseline yet, or a file is wrong.
        PrerequisiteError: As for `make_baseline_or_look`.
        InterruptedRunError: As for `make_baseline_or_look`.
    """
    policy = load_policy(panel.policy)
    new_panel = panel.with_target(_target_in(new_target))
    planned_folder = panel.folder / "changes" / "0"  # to plan runs in it; it is never created
    _refuse_unknown_tasks(policy, new_panel, planned_folder)
    ledger = Ledger(panel.folder)
    with ledger.lock_panel(options.say):
        history = ledger.intact_history()
        baseline = _baseline_for(policy, panel, history)
        fixed_of_new = new_panel.fixed_settings(new_panel.identities(planned_folder))
        line = _approved_before(history, fixed_of_new)
        if line is not None:  # an earlier call stopped after the approval, before the new baseline
            lines: Sequence[str] = [f"change {line['change']} was approved at {line['at']}"]
        else:
            refuse_different_panel(panel, baseline, panel.identities(planned_folder))
            number = 1 + len(history.of_kind(CHANGE))
            change = _Change(number, panel, new_panel)
            decision = _ask_and_decide(change, policy, ledger, baseline, options)
            if decision.outcome != Verdict.PASS:
                return decision
            line = decision.line
            lines = decision.lines
        baseline_outcome = _make_baseline_of_new_model(new_panel, ledger, options)
    outcome = baseline_outcome.outcome
    if outcome == Outcome.BASELINE:  # the change is complete
        outcome = Verdict.PASS
    all_lines = [*lines, *baseline_outcome.lines]
    return replace(baseline_outcome, outcome=outcome, lines=all_lines, line=line)


@dataclass(frozen=True)
class _Change:
    """A change of the watched model, about which the gate's policy decides."""

    number: int  # changes are numbered from 1
    panel: Panel  # with the watched model
    new_panel: Panel  # the same panel with the new model

    @property
    def folder(self) -> Path:
        """The folder of the runs of both models."""
        return self.panel.folder / "changes" / f"{self.number:04}"


def _ask_and_decide(
    change: _Change, policy: Policy, ledger: Ledger, baseline: Line, options: RunOptions
) -> MonitorOutcome:
    """Ask both models, write the decision of the policy into the ledger, and return the outcome."""
    panel = change.panel
    folder = change.folder
    targets = [
        {**panel.document["target"], "name": WATCHED_MODEL},
        {**change.new_panel.document["target"], "name": NEW_MODEL},
    ]
    report = ask_suite(panel.suite(folder, targets), options)
    unfinished = unfinished_outcome([report], panel)
    if unfinished is not None:
        return unfinished
    result = evaluate_policy(policy, [folder / NEW_MODEL], [folder / WATCHED_MODEL])
    line = ledger.append(
        CHANGE,
        epoch=baseline["epoch"],
        panel=baseline["panel"],
        change=change.number,
        **_decision(change, result),
    )
    write_page(ledger, options.say)
    lines = gate_text(result).splitlines()
    if result.outcome != Verdict.PASS:
        lines.append(f"nothing is changed: the panel continues to watch {panel.model}")
    return MonitorOutcome(
        result.outcome,
        exit_code=result.exit_code,
        folder=panel.folder,
        lines=lines,
        line=line,
    )


def _make_baseline_of_new_model(
    new_panel: Panel, ledger: Ledger, options: RunOptions
) -> MonitorOutcome:
    """Make the baseline of an approved new model. `new_panel` is the panel with the new model."""
    why = f"the model was changed to {new_panel.model}, by the plan of change"
    advice = (
        f"make looks with 'eval-factory monitor {new_panel.folder / PANEL_FILE}', "
        "or copy its `target` into your panel"
    )
    next_step = f"the new model is watched from now on: {advice}"
    return make_baseline(new_panel, ledger, options, why, next_step=next_step)


def _refuse_unknown_tasks(policy: Policy, panel: Panel, folder: Path) -> None:
    """Check that the panel has all tasks of the policy. Raises ConfigError if one is missing."""
    planned = {run.plan.task_name for run in panel.planned_runs(folder)}
    unknown = {benchmark.task for benchmark in policy.benchmarks} - planned
    if unknown:
        names = ", ".join(sorted(planned))
        raise ConfigError(
            f"{policy.path}: names {', '.join(sorted(unknown))}, but the panel has {names}"
        )


def _baseline_for(policy: Policy, panel: Panel, history: History) -> Line:
    """Return the current baseline.

    Raises:
        ConfigError: There is no baseline yet, or it was made with another policy.
    """
    baseline = history.baseline
    if baseline is None:
        command = look_command(panel)
        raise ConfigError(f"{panel.file}: has no baseline yet: make it with '{command}'")
    if policy.sha256 != baseline["policy_sha256"]:
        raise ConfigError(
            f"{policy.path}: is not the policy of the baseline of {baseline['at']}; the rules of a "
            "change are fixed with the baseline: restore that policy, "
            "or start a new baseline with --new_baseline WHY"
        )
    return baseline


def _decision(change: _Change, result: GateResult) -> dict[str, Any]:
    """Return the ledger's entries for a decided change.

    `old` and `new` describe the watched and the new model, `outcome` is the decision of the gate,
    `checks` has the messages of its checks, and `runs` the runs of both models.
    """
    panel = change.panel
    new_panel = change.new_panel
    folder = change.folder
    checks: list[str] = []
    for benchmark in result.benchmarks:
        checks += [f"{benchmark.task}: {check.message}" for check in benchmark.checks]
    runs: list[dict[str, Any]] = []
    for name in (WATCHED_MODEL, NEW_MODEL):
        runs += run_entries_of(folder / name, panel.folder, panel.limits)
    return {
        "folder": folder.relative_to(panel.folder).as_posix(),
        "old": {"name": panel.target_name, "model": panel.model},
        "new": {
            "name": new_panel.target_name,
            "model": new_panel.model,
            "fixed": new_panel.fixed_settings(new_panel.identities(folder)),
        },
        "outcome": result.outcome,
        "policy_sha256": result.policy_sha256,
        "checks": checks,
        "runs": runs,
    }


def _target_in(file: Path) -> dict[str, Any]:
    """Return the section `target` of a file.

    Raises:
        ConfigError: The file has no `target`, or it has other keys.
    """
    document = load_mapping(file, needs="`target:` with `api_endpoint`, as a run config has it")
    target = document.get("target")
    if not isinstance(target, dict) or set(document) != {"target"}:
        raise ConfigError(f"{file}: must contain `target:` with `api_endpoint`, and nothing else")
    return target


def _approved_before(history: History, fixed: Mapping[str, Any]) -> Line | None:
    """Return the line of an approved change to this model whose baseline was not completed.

    `fixed` are the fixed settings of the panel with this model. Return None if there is no such
    change.
    """
    for line in reversed(history.lines):
        if line["kind"] == BASELINE:
            return None
        if line["kind"] == CHANGE:
            if line["outcome"] == Verdict.PASS and line["new"]["fixed"] == fixed:
                return line
            return None
    return None
