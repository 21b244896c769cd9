"""One look at a panel: its baseline first, then the panel asked again, tested, and written into the ledger."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval_factory.analysis.gate import load_policy
from eval_factory.config.suite import Suite
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.formats import counted
from eval_factory.core.nouns import RunStatus, Word
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import RunDir, SuiteDir, suite_dir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import screen
from eval_factory.monitor import power
from eval_factory.monitor.course import Course, Rules
from eval_factory.monitor.history import BASELINE, BEGUN, LOOK, NOT_MADE, NOTE, History, is_older
from eval_factory.monitor.ledger import Ledger, Line
from eval_factory.monitor.measured import differences, measure, runs_below, write_values
from eval_factory.monitor.page import monitor_page
from eval_factory.monitor.panel import PANEL_FILE, TOP, Panel, digest_of
from eval_factory.monitor.status import (
    alarm_words,
    assumed_lines,
    evidence_of,
    limits_table,
    power_lines,
    watched_lines,
)
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions, SuiteReport

PAGE = "report.html"


class Outcome(Word):
    """What a call of `monitor` came to."""

    BASELINE = "baseline"
    IN_CONTROL = "in_control"
    ALARM = "alarm"
    NOT_MADE = "not_made"  # the panel could not be asked, or not whole: no evidence
    SUBMITTED = "submitted"  # to Slurm: the same command goes on


@dataclass(frozen=True)
class Looked:
    outcome: Outcome
    exit_code: int
    folder: Path
    line: Line | None = None  # what was written into the ledger
    report: SuiteReport | None = None  # of runs that are not complete
    head: str = ""


@dataclass(frozen=True)
class Asking:
    """How the panel is asked."""

    env: Mapping[str, str]
    say: Callable[[str], object]
    looking_on: Callable[[SuiteDir], AbstractContextManager[SuiteObserver]]  # shows what a suite does
    options: SuiteOptions


def look(panel: Panel, how: Asking, new_baseline: str | None = None) -> Looked:
    """Make one look, or the baseline where there is none that holds.

    Args:
        new_baseline: why another baseline is begun; None: the one that is there has to hold.

    Raises:
        ConfigError: the panel, or what its runs ask, is another than that of the baseline; or all looks are made.
        PrerequisiteError: the ledger was changed; what a look needs is missing.
        InterruptedRunError: stopped; the same command goes on.
    """
    panel.suite(panel.folder / "looks" / "0")  # a wrong file leaves no folder
    if RunDir(panel.folder).marker.is_file() or suite_dir(panel.folder).was_begun:
        raise ConfigError(f"{panel.file}: {panel.folder} is the folder of a run or a suite; choose another output_dir")
    ledger = Ledger(panel.folder)
    with ledger.looking(how.say):
        history = History(ledger.intact().lines)
        if history.baseline is None or new_baseline is not None or _asks_for_more_repeats(panel, history):
            return make_baseline(panel, ledger, history, how, new_baseline)
        return _make_look(panel, ledger, history, how)


def _asks_for_more_repeats(panel: Panel, history: History) -> bool:
    """Before the first look, the baseline may be made longer."""
    baseline = history.baseline
    if baseline is None or history.looks:
        return False
    now, then = fixed_of(panel, panel.folder / baseline["repeats"][0]["folder"]), baseline["fixed"]
    return now["repeats"] > then["repeats"] and {**now, "repeats": 0} == {**then, "repeats": 0}


def fixed_of(panel: Panel, folder: Path) -> dict[str, Any]:
    return panel.fixed(panel.planned(folder))


def ask_suite(suite: Suite, how: Asking) -> SuiteReport:
    """The panel once more, in a folder of its own: no earlier answers are used."""
    with how.looking_on(suite.folder) as observer:
        return run_suite(suite, how.options, env=how.env, screen=observer)


def unfinished_of(reports: Sequence[SuiteReport], panel: Panel) -> Looked | None:
    """What it came to where not every run is complete and reportable."""
    waiting = [one for one in reports if any(cell.status == RunStatus.WAITING for cell in one.cells)]
    worst = max(reports, key=lambda one: one.exit_code)
    if worst.exit_code:
        return Looked(Outcome.NOT_MADE, worst.exit_code, panel.folder, report=worst)
    return Looked(Outcome.SUBMITTED, 0, panel.folder, report=waiting[0]) if waiting else None


def make_baseline(panel: Panel, ledger: Ledger, history: History, how: Asking, why: str | None) -> Looked:
    if panel.section.change is not None:
        load_policy(panel.policy)  # a wrong one is said before anything is asked
    section, is_longer = panel.section, why is None and history.baseline is not None
    epoch = history.epoch + (0 if is_longer else 1)
    folders = [panel.folder / "baseline" / f"{epoch}" / f"{one}" for one in range(1, section.baseline.repeats + 1)]
    reports = []
    for number, folder in enumerate(folders, start=1):
        how.say(f"baseline, run {number} of {len(folders)}")
        reports.append(ask_suite(panel.suite(folder), how))
        if reports[-1].exit_code:
            break
        if number == 1 and reports[-1].status == RunStatus.COMPLETE:  # a wrong limit is said before the rest is paid
            Course(Rules.of(section), panel.limits, [measure(folder, panel.target_name, panel.limits)] * 2)
    if (unfinished := unfinished_of(reports, panel)) is not None:
        return unfinished
    repeats = [measure(folder, panel.target_name, panel.limits) for folder in folders]
    if other := [text for folder in folders[1:] for text in _differences(panel, folders[0], folder)]:
        raise ConfigError(
            [*other, "the runs of the baseline asked different things: remove its folder, and begin anew"]
        )
    rules = Rules.of(section)
    course = Course(rules, panel.limits, repeats)
    fixed = fixed_of(panel, folders[0])
    write_atomic(panel.folder / PANEL_FILE, to_yaml({TOP: panel.whole}))
    if history.begun is not None:
        _not_made(ledger, history, "another baseline was begun")
    line = ledger.append(
        BASELINE,
        epoch=epoch,
        panel=digest_of(fixed),
        fixed=fixed,
        why=why or ("more runs before the first look" if is_longer else "first baseline"),
        target={"name": panel.target_name, "model": panel.model},
        alpha=rules.alpha,
        harm_alpha=rules.harm_alpha,
        looks=rules.looks,
        seed=rules.seed,
        alarm_on=list(rules.alarm_on),
        policy_sha256=None if section.change is None else load_policy(panel.policy).sha256,
        repeats=[
            {
                "folder": folder.relative_to(panel.folder).as_posix(),
                "values": write_values(folder, one),
                "runs": _runs(panel, folder),
            }
            for folder, one in zip(folders, repeats, strict=True)
        ],
        **course.of_baseline(),
        power=_power(course),
    )
    return _reported(panel, ledger, how, Outcome.BASELINE, 0, line)


def _power(course: Course) -> dict[str, Any]:
    """Of each limit what the panel finds, and how many runs its baseline needs; by simulation."""
    baselines = [one.baseline for one in course.streams]
    finds = power.what_it_finds(baselines, course.rules.harm_alpha)
    needed = power.needed_repeats(baselines, course.rules.harm_alpha)
    return {
        one.limit.name: {"finds": [asdict(drop) for drop in each], "needed": need.repeats, "drop": need.found.drop}
        for one, each, need in zip(course.streams, finds, needed, strict=True)
    }


def _make_look(panel: Panel, ledger: Ledger, history: History, how: Asking) -> Looked:
    baseline = history.baseline
    assert baseline is not None  # noqa: S101 - for the types: who calls has looked
    begun = history.begun
    if begun is not None and is_older(begun, float(panel.section.max_look_hours)):
        hours = f"{panel.section.max_look_hours:g} hours"
        reason = f"it was begun at {begun['at']} and stopped, and did not go on within {hours}"
        _not_made(ledger, history, reason)
        how.say(f"look {begun['look']} counts as not made: {reason}")
        begun = None
    number = history.next_look if begun is None else int(begun["look"])
    folder = panel.folder / "looks" / f"{number:04}"
    refuse_another(panel, baseline, folder)
    if len(history.looks) >= baseline["looks"]:
        raise ConfigError(
            f"{panel.file}: all {baseline['looks']} looks of this panel are made; begin a new baseline with"
            " --new_baseline WHY"
        )
    if begun is None:
        ledger.append(BEGUN, epoch=history.epoch, panel=baseline["panel"], look=number)
    how.say(f"look {number}: {len(history.looks) + 1} of {baseline['looks']}")
    report = ask_suite(panel.suite(folder), how)
    if (unfinished := unfinished_of([report], panel)) is not None:
        return unfinished
    first = panel.folder / baseline["repeats"][0]["folder"]
    if other := _differences(panel, first, folder):
        line = ledger.append(
            NOT_MADE, epoch=history.epoch, panel=baseline["panel"], look=number, reason="; ".join(other)
        )
        _reported(panel, ledger, how, Outcome.NOT_MADE, PrerequisiteError.exit_code, line)
        raise PrerequisiteError(
            "\n".join(
                [
                    f"look {number} is no evidence: it cannot be held against the baseline",
                    *(f"  {one}" for one in other),
                ]
            )
            + "\n  put back what was changed, or begin a new baseline with --new_baseline WHY"
        )
    asked = measure(folder, panel.target_name, panel.limits)
    course = history.course(baseline, panel.folder)
    line = ledger.append(
        LOOK,
        epoch=history.epoch,
        panel=baseline["panel"],
        look=number,
        evidence=len(history.looks) + 1,
        folder=folder.relative_to(panel.folder).as_posix(),
        values=write_values(folder, asked),
        runs=_runs(panel, folder),
        **course.look(number, asked),
    )
    is_alarm = line["alarm"] is not None
    return _reported(panel, ledger, how, Outcome.ALARM if is_alarm else Outcome.IN_CONTROL, int(is_alarm), line)


def _not_made(ledger: Ledger, history: History, reason: str) -> None:
    """Of the look that is begun."""
    begun = history.begun
    assert begun is not None  # noqa: S101 - for the types: who calls has looked
    ledger.append(NOT_MADE, epoch=begun["epoch"], panel=begun["panel"], look=begun["look"], reason=reason)


def refuse_another(panel: Panel, baseline: Mapping[str, Any], folder: Path) -> None:
    """Raises ConfigError: the panel is not that of the baseline, with what differs."""
    now, then = fixed_of(panel, folder), baseline["fixed"]
    if digest_of(now) == baseline["panel"]:
        return
    other = []
    for key in then.keys() | now.keys():
        if then.get(key) == now.get(key):
            continue
        if key in ("runs", "limits"):
            of, was = now.get(key) or {}, then.get(key) or {}
            names = sorted(name for name in of.keys() | was.keys() if of.get(name) != was.get(name))
            what = "what is asked, or of whom" if key == "runs" else "the limits"
            other.append(f"{what}, of {', '.join(names)}")
        else:
            other.append(f"{key}: {now.get(key)} (baseline: {then.get(key)})")
    changed = "; ".join(sorted(other))
    raise ConfigError(
        f"{panel.file}: is another panel than that of the baseline of {baseline['at']}; changed: {changed}\n"
        "  put back what was changed; for a new version of the model there is 'eval-factory monitor change'; or begin"
        " a new baseline with --new_baseline WHY"
    )


def _differences(panel: Panel, before: Path, after: Path) -> list[str]:
    return list(differences(before, after, panel.target_name, panel.limits))


def _runs(panel: Panel, folder: Path) -> list[dict[str, str]]:
    return runs_below(folder, panel.folder, panel.target_name, list(dict.fromkeys(one.task for one in panel.limits)))


def _reported(panel: Panel, ledger: Ledger, how: Asking, outcome: Outcome, exit_code: int, line: Line) -> Looked:
    return Looked(outcome, exit_code, panel.folder, line, head=write_page(ledger, how.say))


def write_page(ledger: Ledger, say: Callable[[str], object]) -> str:
    """The page anew, of the ledger as it is now; returns the hash of its last line."""
    read = ledger.read()
    try:
        write_atomic(ledger.folder / PAGE, monitor_page(ledger.folder.name, read.lines, read.head))
    except OSError as error:  # what was found is in the ledger, and an alarm must not be lost
        again = f"eval-factory monitor report {shlex.quote(str(ledger.folder))}"
        say(f"the page cannot be written: {error.strerror or error}; later: {again}")
    return read.head


def what_it_may_find(panel: Panel) -> list[str]:
    """Before anything is asked."""
    section, tasks = panel.section, panel.section.tasks
    alpha = Rules.of(section).harm_alpha
    units = [np.arange(min(task.size, power.MOST_SIMULATED)) for task in tasks]
    drops = [min(float(task.max_drop), 1.0) for task in tasks]
    found = power.assumed(units, drops, section.baseline.repeats, section.looks, alpha)
    return list(assumed_lines({rate: [asdict(one) for one in each] for rate, each in found.items()}))


def write_note(ledger: Ledger, text: str, by: str, say: Callable[[str], object]) -> Line:
    """What was found about an alarm, or done about it."""
    history = History(ledger.intact().lines)
    if history.baseline is None:
        raise ConfigError(f"{ledger.folder}: there is no baseline yet to note something about")
    line = ledger.append(NOTE, epoch=history.epoch, panel=history.baseline["panel"], by=by, text=text)
    write_page(ledger, say)
    return line


def looked_lines(looked: Looked, file: Path) -> list[str]:
    """For the screen: what it came to, why, and the next step."""
    line, again = looked.line, f"eval-factory monitor {shlex.quote(str(file))}"
    if line is None or looked.report is not None:
        report = looked.report
        summary = [] if report is None else report.summary.splitlines()
        if looked.outcome == Outcome.SUBMITTED:
            return ["submitted to Slurm: the same command takes over what has ended", *summary]
        first = "not made: a run is not complete, or may not be reported, and that is no evidence"
        return [first, *summary, f"when that is mended: {again}"]
    read = Ledger(looked.folder).read()
    history = History(read.lines)
    kept = f"ledger: line {line['number']}, {looked.head}"
    page = f"page: {looked.folder / PAGE}"
    if looked.outcome == Outcome.BASELINE:
        return [
            f"baseline made: {counted(len(line['repeats']), 'run')}",
            *power_lines(line),
            f"next: {again}",
            page,
            kept,
        ]
    baseline = history.baseline
    assert baseline is not None  # noqa: S101 - a look has one
    first = f"look {line['look']} ({line['evidence']} of {baseline['looks']}): "
    if line["alarm"] is None:
        first += "in control"
    else:
        first += f"ALARM: {alarm_words(baseline, line['alarm'])}"
    table = screen(limits_table(baseline, [line]))
    found = [first, *table, evidence_of(baseline, line), *watched_lines(baseline, line), page, kept]
    if line["alarm"] is not None:
        note = f"eval-factory monitor note {shlex.quote(str(looked.folder))} TEXT --by NAME"
        found.append(f"what is done about it: {note}; it stays an alarm until --new_baseline")
    return found
