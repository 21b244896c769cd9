"""A new version of the model: may it take the place of the one that is watched? Decided by the gate's rules.

Both are asked the panel side by side. Where the policy is kept, a new baseline is made of the new one, which is watched
from then on; where it is not, everything stays as it is. Either way the ledger says what was decided and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.analysis.gate import evaluate_policy, load_policy
from eval_factory.analysis.gate_report import gate_text
from eval_factory.core.errors import ConfigError
from eval_factory.core.nouns import Verdict
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.monitor.history import BASELINE, CHANGE, History
from eval_factory.monitor.ledger import Ledger, Line
from eval_factory.monitor.look import (
    Asking,
    Looked,
    Outcome,
    ask_suite,
    fixed_of,
    looked_lines,
    make_baseline,
    refuse_another,
    unfinished_of,
    write_page,
)
from eval_factory.monitor.measured import runs_below
from eval_factory.monitor.panel import PANEL_FILE, Panel

APPROVED, CANDIDATE = "approved", "candidate"


@dataclass(frozen=True)
class Changed:
    """What was decided."""

    outcome: str  # of the gate; or as `Looked.outcome`, where runs are not complete
    exit_code: int
    text: str
    line: Line | None = None  # of the ledger: the decision


def change(panel: Panel, new_target: Path, how: Asking) -> Changed:
    """
    Args:
        new_target: a file with `target`, as a run config has it.

    Raises:
        ConfigError: the panel has no plan of change, or no baseline yet; a file is wrong.
        EvalFactoryError: as a look.
    """
    policy = load_policy(panel.policy)
    new = panel.with_target(_target_in(new_target))
    both = [{**panel.document["target"], "name": APPROVED}, {**new.document["target"], "name": CANDIDATE}]
    planned = new.planned(panel.folder / "changes" / "0")
    if unknown := {one.task for one in policy.benchmarks} - {one.plan.task_name for one in planned}:
        names = ", ".join(sorted({one.plan.task_name for one in planned}))
        raise ConfigError(f"{policy.path}: names {', '.join(sorted(unknown))}, and the panel has {names}")
    ledger = Ledger(panel.folder)
    with ledger.looking(how.say):
        history = History(ledger.intact().lines)
        if history.baseline is None:
            raise ConfigError(f"{panel.file}: has no baseline yet: make it with 'eval-factory monitor {panel.file}'")
        if policy.sha256 != history.baseline["policy_sha256"]:
            raise ConfigError(
                f"{policy.path}: is another policy than at the baseline of {history.baseline['at']}; the rules of a"
                " change are fixed before it: put it back, or begin a new baseline with --new_baseline WHY"
            )
        line = _approved_before(history, fixed_of(new, panel.folder / "changes" / "0"))
        text = "" if line is None else f"change {line['change']} was approved at {line['at']}\n"
        if line is None:
            refuse_another(panel, history.baseline, panel.folder / "changes" / "0")
            number = 1 + max((int(one["change"]) for one in history.lines if one["kind"] == CHANGE), default=0)
            folder = panel.folder / "changes" / f"{number:04}"
            report = ask_suite(panel.suite(folder, both), how)
            if (unfinished := unfinished_of([report], panel)) is not None:
                return _of_looked(unfinished, new_target, text, None)
            result = evaluate_policy(policy, [folder / CANDIDATE], [folder / APPROVED])
            tasks = list(dict.fromkeys(one.task for one in panel.limits))
            line = ledger.append(
                CHANGE,
                epoch=history.epoch,
                panel=history.baseline["panel"],
                change=number,
                folder=folder.relative_to(panel.folder).as_posix(),
                old={"name": panel.target_name, "model": panel.model},
                new={"name": new.target_name, "model": new.model, "fixed": fixed_of(new, folder)},
                outcome=result.outcome,
                policy_sha256=result.policy_sha256,
                checks=[f"{one.task}: {check.message}" for one in result.benchmarks for check in one.checks],
                runs=[one for name in (APPROVED, CANDIDATE) for one in runs_below(folder, panel.folder, name, tasks)],
            )
            text = gate_text(result)
            write_page(ledger, how.say)
            if result.outcome != Verdict.PASS:
                return Changed(result.outcome, result.exit_code, f"{text}nothing is changed: {panel.model} stays", line)
        why = f"the model was changed to {new.model}, by the plan of change"
        looked = make_baseline(new, ledger, History(ledger.intact().lines), how, why)
        return _of_looked(looked, new_target, text, line)


def _of_looked(looked: Looked, file: Path, text: str, line: Line | None) -> Changed:
    if looked.outcome != Outcome.BASELINE:
        return Changed(looked.outcome, looked.exit_code, text + "\n".join(looked_lines(looked, file)), line)
    panel = looked.folder / PANEL_FILE
    next_step = (
        f"the new model is watched from now on: look with 'eval-factory monitor {panel}',"
        " or write its target into your panel"
    )
    return Changed(Verdict.PASS, 0, "\n".join([text.rstrip(), *looked_lines(looked, panel), next_step]), line)


def _target_in(file: Path) -> dict[str, Any]:
    document = load_mapping(file, "`target:` with `api_endpoint`, as a run config has it")
    target = document.get("target")
    if not isinstance(target, dict) or set(document) != {"target"}:
        raise ConfigError(f"{file}: needs `target:` with `api_endpoint`, and nothing beside it")
    return target


def _approved_before(history: History, fixed: dict[str, Any]) -> Line | None:
    """The change to this very model that was approved, and whose baseline was not completed."""
    last = next((line for line in reversed(history.lines) if line["kind"] in (CHANGE, BASELINE)), None)
    if last is None or last["kind"] != CHANGE or last["outcome"] != Verdict.PASS:
        return None
    return dict(last) if last["new"]["fixed"] == fixed else None
