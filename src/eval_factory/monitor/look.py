"""One look at a panel: make its baseline first, then ask the panel again, test the answers, and
write a line into the ledger. A change: the gate's policy decides if a new version of the model may
replace the one that is watched.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eval_factory.analysis.gate import GateResult, evaluate_policy
from eval_factory.analysis.gate_policy import Policy, load_policy
from eval_factory.analysis.gate_report import gate_text
from eval_factory.config.suite import Suite
from eval_factory.core.enums import RunStatus, Verdict, Word
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_mapping, to_yaml
from eval_factory.core.rundir import RunDir, SuiteDir, suite_dir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import screen
from eval_factory.monitor import detector
from eval_factory.monitor.course import (
    Course,
    PanelMeasurement,
    Rules,
    course_of,
    differences,
    measure,
    power_of,
    run_folders_of,
    runs_of,
    write_values,
)
from eval_factory.monitor.ledger import (
    BASELINE,
    BASELINE_AGAIN,
    BEGUN,
    CHANGE,
    LOOK,
    NOT_MADE,
    NOTE,
    READER,
    History,
    Ledger,
    Line,
    is_older,
    line_reader,
)
from eval_factory.monitor.made_elsewhere import (
    copy_results,
    identities_of,
    refuse_unequal,
    refuse_unfit,
    result_folders,
)
from eval_factory.monitor.panel import IMPORTED, PANEL_FILE, TOP, Limit, Panel, digest_of
from eval_factory.monitor.report import (
    alarm_words,
    assumed_lines,
    drops_rarely_found,
    limits_out_of_reach,
    limits_table,
    look_lines,
    monitor_page,
    power_lines,
)
from eval_factory.reading import VERSION
from eval_factory.workflows.read_again import read_by_one_rule
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions, SuiteReport

PAGE = "report.html"
# the two models of a change
APPROVED = "approved"
CANDIDATE = "candidate"


class Outcome(Word):
    """The outcome of a look."""

    BASELINE = "baseline"
    IN_CONTROL = "in_control"
    ALARM = "alarm"
    NOT_MADE = "not_made"  # the panel could not be asked, or not whole: no evidence
    SUBMITTED = "submitted"  # to Slurm: the same command goes on


@dataclass(frozen=True)
class MonitorOutcome:
    """The outcome of a call of `monitor`."""

    outcome: str  # one of `Outcome`; the gate's for a change that was decided
    exit_code: int
    folder: Path
    lines: Sequence[str]  # for the screen: the outcome, the reason, and the next step
    line: Line | None = None  # the line that was written into the ledger
    head: str = ""  # the hash of the ledger's last line


@dataclass(frozen=True)
class RunOptions:
    """The options of asking a panel."""

    env: Mapping[str, str]
    say: Callable[[str], object]
    # shows what a suite does
    progress_view: Callable[[SuiteDir], AbstractContextManager[SuiteObserver]]
    options: SuiteOptions
    # folders of imported results: one for each asking that was made elsewhere
    made: Sequence[Path] = ()


def look(panel: Panel, options: RunOptions, new_baseline: str | None = None) -> MonitorOutcome:
    """Make one look; or the baseline, if there is none or `new_baseline` says why to start again.

    Raises:
        ConfigError: the panel, or what its runs ask, is another than that of the baseline; or all
            looks are made.
        PrerequisiteError: the ledger was changed; what a look needs is missing.
        InterruptedRunError: stopped; the same command goes on.
    """
    if panel.takes_results:
        sizes = [task.size for task in panel.section.tasks]
        refuse_unfit(options.made, panel.names, sizes, panel.model)
    elif options.made:
        raise ConfigError(f"{panel.file}: --from needs tasks of the type {IMPORTED}")
    else:
        panel.suite(panel.folder / "looks" / "0")  # a wrong file leaves no folder
    if RunDir(panel.folder).marker.is_file() or suite_dir(panel.folder).was_started:
        raise ConfigError(
            f"{panel.file}: {panel.folder} is the folder of a run or a suite; "
            "choose another output_dir"
        )
    ledger = Ledger(panel.folder)
    with ledger.looking(options.say):
        history = ledger.intact()
        if (
            history.baseline is None
            or new_baseline is not None
            or _asks_for_more_repeats(panel, history)
        ):
            return _make_baseline(
                panel, ledger, history, options, new_baseline, next_step=f"next: {_again(panel)}"
            )
        return _make_look(panel, ledger, history, history.baseline, options)


def _asks_for_more_repeats(panel: Panel, history: History) -> bool:
    """Compare the panel's repeats with the baseline's, which may grow before the first look."""
    baseline = history.baseline
    if baseline is None or history.looks:
        return False
    now = panel.fixed(panel.identities(panel.folder / baseline["repeats"][0]["folder"]))
    then = baseline["fixed"]
    return now["repeats"] > then["repeats"] and {**now, "repeats": 0} == {**then, "repeats": 0}


def _ask(panel: Panel, folder: Path, options: RunOptions, number: int) -> SuiteReport | None:
    """Ask the panel again; or take the result of that number, which was made elsewhere."""
    if panel.takes_results:
        copy_results(options.made[number], panel.names, folder / panel.target_name)
        return None
    return _ask_suite(panel.suite(folder), options)


def _ask_suite(suite: Suite, options: RunOptions) -> SuiteReport:
    """Ask the panel again, in a folder of its own: no earlier answers are used."""
    with options.progress_view(suite.folder) as observer:
        return run_suite(suite, options.options, env=options.env, screen=observer)


def _unfinished(reports: Sequence[SuiteReport], panel: Panel) -> MonitorOutcome | None:
    """The outcome if some run is not complete or not reportable."""
    if not reports:
        return None
    worst = max(reports, key=lambda report: report.exit_code)
    if worst.exit_code:
        first = "not made: a run is not complete or may not be reported, so that it is not evidence"
        next_step = "correct that, then give the same command again"
        lines = [first, *worst.summary.splitlines(), next_step]
        return MonitorOutcome(Outcome.NOT_MADE, worst.exit_code, panel.folder, lines)
    for report in reports:
        if any(cell.status == RunStatus.WAITING for cell in report.cells):
            first = "submitted to Slurm: the same command takes over what has ended"
            lines = [first, *report.summary.splitlines()]
            return MonitorOutcome(Outcome.SUBMITTED, 0, panel.folder, lines)
    return None


def _make_baseline(
    panel: Panel,
    ledger: Ledger,
    history: History,
    options: RunOptions,
    why: str | None,
    *,
    next_step: str,
) -> MonitorOutcome:
    section = panel.section
    if section.change is not None:
        load_policy(panel.policy)  # a wrong one is reported before anything is asked
    limits = panel.limits
    epoch = history.epoch
    is_longer = why is None and history.baseline is not None
    if is_longer:
        why = "more runs before the first look"
    else:
        epoch += 1
    rules = Rules.of(vars(section))
    folders = []
    for number in range(1, section.baseline.repeats + 1):
        folders.append(panel.folder / "baseline" / f"{epoch}" / f"{number}")
    of_target = [folder / panel.target_name for folder in folders]
    if panel.takes_results:
        refuse_unequal(options.made, panel.names, section.baseline.repeats)
    reports = _ask_repeats(panel, folders, rules, options)
    if (unfinished := _unfinished(reports, panel)) is not None:
        return unfinished
    measurements = [measure(folder, limits) for folder in of_target]
    _refuse_different_runs(of_target, limits)
    course = Course(rules, limits, measurements)
    fixed = panel.fixed(panel.identities(folders[0]))
    write_atomic(panel.folder / PANEL_FILE, to_yaml({TOP: panel.whole}))
    if history.begun is not None:
        _not_made(ledger, history.begun, "another baseline was started")
    policy_sha256 = None
    if section.change is not None:
        policy_sha256 = load_policy(panel.policy).sha256
    line = ledger.append(
        BASELINE,
        epoch=epoch,
        panel=digest_of(fixed),
        fixed=fixed,
        why=why or "first baseline",
        target={"name": panel.target_name, "model": panel.model},
        harm_alpha=rules.harm_alpha,
        policy_sha256=policy_sha256,
        repeats=_repeats(panel, folders, measurements),
        **{**asdict(rules), **course.of_baseline()},
        **{READER: VERSION},
        power=power_of(course),
    )
    first = f"baseline made: {counted(len(measurements), 'run')}"
    lines = [first, *power_lines(line), *limits_out_of_reach(line), next_step]
    return _reported(ledger, options, Outcome.BASELINE, line, lines)


def _ask_repeats(
    panel: Panel, folders: Sequence[Path], rules: Rules, options: RunOptions
) -> list[SuiteReport]:
    """Ask the panel once for each folder; stop at the first suite that fails."""
    reports = []
    for number, folder in enumerate(folders, start=1):
        options.say(f"baseline, run {number} of {len(folders)}")
        report = _ask(panel, folder, options, number - 1)
        if report is not None:
            reports.append(report)
            if report.exit_code:
                break
        if number == 1 and (report is None or report.status == RunStatus.COMPLETE):
            # a wrong limit raises here, before the rest is paid
            measurement = measure(folder / panel.target_name, panel.limits)
            Course(rules, panel.limits, [measurement] * 2)
    return reports


def _repeats(
    panel: Panel, folders: Sequence[Path], measurements: Sequence[PanelMeasurement]
) -> list[dict[str, Any]]:
    """Write each run's values into its folder, and return the ledger's entries for the runs."""
    entries = []
    for folder, measurement in zip(folders, measurements, strict=True):
        entries.append(
            {
                "folder": folder.relative_to(panel.folder).as_posix(),
                "values": write_values(folder, measurement),
                "runs": runs_of(folder / panel.target_name, panel.folder, panel.limits),
            }
        )
    return entries


def _refuse_different_runs(folders: Sequence[Path], limits: Sequence[Limit]) -> None:
    """Check that the runs of a baseline asked the same. Raises ConfigError: they did not."""
    problems: list[str] = []
    for folder in folders[1:]:
        problems += differences(folders[0], folder, limits)
    if problems:
        hint = (
            "the runs of the baseline asked different questions, or in different ways: remove the "
            "baseline's folder, and start again"
        )
        raise ConfigError([*problems, hint])


_UNTIL_NEW_BASELINE = "the alarm stays until a new baseline is made (--new_baseline WHY)"


def _make_look(
    panel: Panel, ledger: Ledger, history: History, baseline: Line, options: RunOptions
) -> MonitorOutcome:
    begun = history.begun
    if begun is not None and is_older(begun, float(panel.section.max_look_hours)):
        hours = f"{panel.section.max_look_hours:g} hours"
        reason = f"it was started at {begun['at']} and stopped, and did not go on within {hours}"
        _not_made(ledger, begun, reason)
        options.say(f"look {begun['look']} counts as not made: {reason}")
        begun = None
    number = history.next_look if begun is None else int(begun["look"])
    folder = panel.folder / "looks" / f"{number:04}"
    of_target = folder / panel.target_name
    limits = panel.limits
    looks = history.looks
    _refuse_another(panel, baseline, _identities(panel, folder, [baseline, *looks], options))
    if len(looks) >= baseline["looks"]:
        raise ConfigError(
            f"{panel.file}: all {baseline['looks']} looks of this panel are made; "
            "start a new baseline with"
            " --new_baseline WHY"
        )
    of_epoch = {"epoch": history.epoch, "panel": baseline["panel"], "look": number}
    if begun is None:
        begun = ledger.append(BEGUN, **of_epoch)
    options.say(f"look {number}: {len(looks) + 1} of {baseline['looks']}")
    report = _ask(panel, folder, options, 0)
    if report is not None and (unfinished := _unfinished([report], panel)) is not None:
        return unfinished
    course, reasons = _so_far(panel, baseline, looks, of_target)
    if course is None:
        _not_made(ledger, begun, "; ".join(reasons))
        write_page(ledger, options.say)
        no_evidence = f"look {number} is not evidence: it cannot be compared with the baseline"
        next_step = "put back what was changed, or start a new baseline with --new_baseline WHY"
        raise PrerequisiteError("\n  ".join([no_evidence, *reasons, next_step]))
    measurement = measure(of_target, limits)
    line = ledger.append(
        LOOK,
        **of_epoch,
        evidence=len(looks) + 1,
        folder=folder.relative_to(panel.folder).as_posix(),
        values=write_values(folder, measurement),
        runs=runs_of(of_target, panel.folder, limits),
        **course.look(number, measurement),
        **_baseline_again(baseline, course),
        **{READER: VERSION},
    )
    first = f"look {number} ({line['evidence']} of {baseline['looks']}): "
    lines = [
        *screen(limits_table(baseline, [line])),
        *look_lines(baseline, line),
    ]
    if line["alarm"] is None:
        lines += drops_rarely_found(baseline)
        return _reported(ledger, options, Outcome.IN_CONTROL, line, [f"{first}in control", *lines])
    note = f"eval-factory monitor note {shlex.quote(str(panel.folder))} TEXT --by NAME"
    done = f"write down what you do about it: {note}; {_UNTIL_NEW_BASELINE}"
    alarm = f"{first}ALARM: {alarm_words(baseline, line['alarm'])}"
    return _reported(ledger, options, Outcome.ALARM, line, [alarm, *lines, done])


def _baseline_again(baseline: Line, course: Course) -> dict[str, Any]:
    """The baseline's scores by the look's rule, if another rule read the baseline."""
    if line_reader(baseline) == VERSION:
        return {}
    return {BASELINE_AGAIN: course.of_baseline()["limits"]}


def _identities(
    panel: Panel, folder: Path, before: Sequence[Line], options: RunOptions
) -> dict[str, str]:
    """The identities of a look's runs; of a result that was made elsewhere, if it is a new one."""
    if not panel.takes_results:
        return panel.identities(folder)
    refuse_unequal(options.made, panel.names, 1, run_folders_of(panel.folder, before))
    return identities_of(result_folders(options.made[0], panel.names))


def _so_far(
    panel: Panel, baseline: Line, looks: Sequence[Line], of_target: Path
) -> tuple[Course | None, list[str]]:
    """The test after the baseline and the looks so far, read by the rule that read the new look;
    or None, and the reasons why the look may not be compared with them.
    """
    before = panel.folder / baseline["repeats"][0]["folder"] / panel.target_name
    with read_by_one_rule(run_folders_of(panel.folder, [baseline, *looks]), VERSION) as load:
        reasons = list(differences(before, of_target, panel.limits, load))
        if reasons:
            return None, reasons
        return course_of(baseline, panel.folder, looks, load), []


def _not_made(ledger: Ledger, begun: Line, reason: str) -> None:
    """Write into the ledger that a look which was started was not made."""
    ledger.append(
        NOT_MADE, epoch=begun["epoch"], panel=begun["panel"], look=begun["look"], reason=reason
    )


def _refuse_another(panel: Panel, baseline: Line, identities: Mapping[str, str]) -> None:
    """Check that the panel is that of the baseline. Raises ConfigError: it is not, with what
    differs.
    """
    now = panel.fixed(identities)
    then = baseline["fixed"]
    if digest_of(now) == baseline["panel"]:
        return
    changes = []
    for key in then.keys() | now.keys():
        before = then.get(key)
        after = now.get(key)
        if before == after:
            continue
        if key == "runs":
            changes.append(f"the questions or the model, in {_changed_names(before, after)}")
        elif key == "limits":
            changes.append(f"the limits, in {_changed_names(before, after)}")
        else:
            changes.append(f"{key}: {after} (baseline: {before})")
    changed = "; ".join(sorted(changes))
    raise ConfigError(
        f"{panel.file}: is not the panel of the baseline of {baseline['at']} any more; changed: "
        f"{changed}\n"
        "  put back what was changed; to watch a new version of the model use "
        "'eval-factory monitor change'; or start a new baseline with --new_baseline WHY"
    )


def _changed_names(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    before = before or {}
    after = after or {}
    names = before.keys() | after.keys()
    return ", ".join(sorted(name for name in names if before.get(name) != after.get(name)))


def _reported(
    ledger: Ledger, options: RunOptions, outcome: Outcome, line: Line, lines: Sequence[str]
) -> MonitorOutcome:
    head = write_page(ledger, options.say)
    shown = [*lines, f"page: {ledger.folder / PAGE}", f"ledger: line {line['number']}, {head}"]
    return MonitorOutcome(outcome, int(outcome == Outcome.ALARM), ledger.folder, shown, line, head)


def _again(panel: Panel) -> str:
    """Return the command of the next asking."""
    file = shlex.quote(str(panel.file))
    if panel.takes_results:
        return f"eval-factory monitor look {file} --from DIR"
    return f"eval-factory monitor {file}"


def write_page(ledger: Ledger, say: Callable[[str], object]) -> str:
    """Write the page of the ledger as it is now; return the hash of the ledger's last line."""
    history = ledger.read()
    try:
        write_atomic(ledger.folder / PAGE, monitor_page(ledger.folder.name, history))
    except OSError as error:  # the findings are in the ledger, and an alarm must not be lost
        next_step = f"eval-factory monitor report {shlex.quote(str(ledger.folder))}"
        say(f"the page cannot be written: {error.strerror or error}; write it later: {next_step}")
    return history.head


def what_it_may_find(panel: Panel) -> list[str]:
    """The lines about the drops that the panel may find, before anything is asked."""
    section = panel.section
    alpha = Rules.of(vars(section)).harm_alpha
    units = []
    max_drops = []
    for task in section.tasks:
        units.append(np.arange(min(task.size, detector.MAX_SIMULATED)))
        max_drops.append(min(float(task.max_drop), 1.0))
    by_rate = detector.assumed_findings(
        units, max_drops, section.baseline.repeats, section.looks, alpha
    )
    by_flip_rate = {}
    for rate, drops in by_rate.items():
        by_flip_rate[rate] = [asdict(drop) for drop in drops]
    return list(assumed_lines(by_flip_rate))


def write_note(ledger: Ledger, text: str, by: str, say: Callable[[str], object]) -> Line:
    """Write into the ledger what was found about an alarm, or done about it."""
    history = ledger.intact()
    if history.baseline is None:
        raise ConfigError(f"{ledger.folder}: has no baseline yet, and a note needs one")
    line = ledger.append(
        NOTE, epoch=history.epoch, panel=history.baseline["panel"], by=by, text=text
    )
    write_page(ledger, say)
    return line


def change(panel: Panel, new_target: Path, options: RunOptions) -> MonitorOutcome:
    """Ask both models the panel side by side, and let the policy decide.

    If the policy is kept, a new baseline is made with the new model, which is watched from then
    on; if not, everything stays. The ledger says what was decided and why. `new_target` is a file
    with `target`, as a run config has it.

    Raises:
        ConfigError: the panel has no plan of change, or no baseline yet; a file is wrong. Else as
            `look`.
    """
    policy = load_policy(panel.policy)
    new = panel.with_target(_target_in(new_target))
    nowhere = panel.folder / "changes" / "0"
    _refuse_unknown_tasks(policy, new, nowhere)
    ledger = Ledger(panel.folder)
    with ledger.looking(options.say):
        history = ledger.intact()
        baseline = _baseline_for(policy, panel, history)
        line = _approved_before(history, new.fixed(new.identities(nowhere)))
        if line is not None:
            lines = [f"change {line['change']} was approved at {line['at']}"]
        else:
            _refuse_another(panel, baseline, panel.identities(nowhere))
            number = 1 + len(history.of_kind(CHANGE))
            folder = panel.folder / "changes" / f"{number:04}"
            targets = [
                {**panel.document["target"], "name": APPROVED},
                {**new.document["target"], "name": CANDIDATE},
            ]
            report = _ask_suite(panel.suite(folder, targets), options)
            if (unfinished := _unfinished([report], panel)) is not None:
                return unfinished
            result = evaluate_policy(policy, [folder / CANDIDATE], [folder / APPROVED])
            line = ledger.append(
                CHANGE,
                epoch=history.epoch,
                panel=baseline["panel"],
                change=number,
                **_decision(panel, new, folder, result),
            )
            lines = gate_text(result).splitlines()
            write_page(ledger, options.say)
            if result.outcome != Verdict.PASS:
                stays = f"nothing is changed: the panel goes on with {panel.model}"
                return MonitorOutcome(
                    result.outcome, result.exit_code, panel.folder, [*lines, stays], line
                )
        why = f"the model was changed to {new.model}, by the plan of change"
        look_with = (
            f"make looks with 'eval-factory monitor {panel.folder / PANEL_FILE}', "
            "or write its target into your panel"
        )
        next_step = f"the new model is watched from now on: {look_with}"
        made = _make_baseline(new, ledger, ledger.intact(), options, why, next_step=next_step)
    outcome = Verdict.PASS if made.outcome == Outcome.BASELINE else made.outcome
    return replace(made, outcome=outcome, lines=[*lines, *made.lines], line=line)


def _refuse_unknown_tasks(policy: Policy, panel: Panel, folder: Path) -> None:
    """Check that the panel has the policy's tasks. Raises ConfigError: one of them is missing."""
    planned = {run.plan.task_name for run in panel.planned(folder)}
    unknown = {benchmark.task for benchmark in policy.benchmarks} - planned
    if unknown:
        names = ", ".join(sorted(planned))
        raise ConfigError(
            f"{policy.path}: names {', '.join(sorted(unknown))}, and the panel has {names}"
        )


def _baseline_for(policy: Policy, panel: Panel, history: History) -> Line:
    """Return the baseline that was made with a policy. Raises ConfigError: there is no baseline
    yet, or it was made with another policy.
    """
    baseline = history.baseline
    if baseline is None:
        raise ConfigError(f"{panel.file}: has no baseline yet: make it with '{_again(panel)}'")
    if policy.sha256 != baseline["policy_sha256"]:
        raise ConfigError(
            f"{policy.path}: is not the policy of the baseline of {baseline['at']}; the rules of a "
            "change are fixed with the baseline: put that policy back, "
            "or start a new baseline with --new_baseline WHY"
        )
    return baseline


def _decision(panel: Panel, new: Panel, folder: Path, result: GateResult) -> dict[str, Any]:
    checks: list[str] = []
    for benchmark in result.benchmarks:
        checks += [f"{benchmark.task}: {check.message}" for check in benchmark.checks]
    runs: list[dict[str, Any]] = []
    for name in (APPROVED, CANDIDATE):
        runs += runs_of(folder / name, panel.folder, panel.limits)
    return {
        "folder": folder.relative_to(panel.folder).as_posix(),
        "old": {"name": panel.target_name, "model": panel.model},
        "new": {
            "name": new.target_name,
            "model": new.model,
            "fixed": new.fixed(new.identities(folder)),
        },
        "outcome": result.outcome,
        "policy_sha256": result.policy_sha256,
        "checks": checks,
        "runs": runs,
    }


def _target_in(file: Path) -> dict[str, Any]:
    document = load_mapping(file, "`target:` with `api_endpoint`, as a run config has it")
    target = document.get("target")
    if not isinstance(target, dict) or set(document) != {"target"}:
        raise ConfigError(f"{file}: has to hold `target:` with `api_endpoint`, and nothing else")
    return target


def _approved_before(history: History, fixed: Mapping[str, Any]) -> Line | None:
    """The change to this very model that was approved, and whose baseline was not completed."""
    for line in reversed(history.lines):
        if line["kind"] == BASELINE:
            return None
        if line["kind"] == CHANGE:
            is_approved = line["outcome"] == Verdict.PASS and line["new"]["fixed"] == fixed
            return line if is_approved else None
    return None
