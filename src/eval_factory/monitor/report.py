"""Shows a panel's ledger as lines on the screen, and in evidence packs.

`panel_page.py` shows the ledger as an HTML page.

A limit of a panel is the greatest permitted drop of a score. Each limit has an e-value at each
look. A large e-value is evidence that the score has dropped by more than permitted. An alarm on a
drop is raised when the mean e-value of the limits reaches 1 / `course.Rules.harm_alpha`.

A `Line` is a line of the ledger as a dict, or an entry in a line. The methods `baseline_entries`
and `add_look` of `course.PanelTests` describe the keys of a baseline and of a look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eval_factory.analysis.gate_policy import load_policy
from eval_factory.analysis.paper import pack_of_panel
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.tables import Table, screen_lines
from eval_factory.monitor.course import HARM
from eval_factory.monitor.detector import alarm_level
from eval_factory.monitor.ledger import (
    CHANGE,
    LOOK,
    NOT_MADE,
    NOTE,
    History,
    Ledger,
    Line,
    baseline_as_read_again,
)
from eval_factory.monitor.measurement import ANSWER_SHARES, STATED_MODELS
from eval_factory.monitor.panel import MONITOR_SECTION, PANEL_FILE
from eval_factory.monitor.simulation import SIMULATED_REPEATS
from eval_factory.report.evidence_packs import pack_markdown, pack_texts
from eval_factory.report.page.document import pack_page
from eval_factory.report.paper_templates import rendered_lines

SHOWN_NOTES = 5  # the number of notes on the screen
_E_VALUE_DIGITS = 3  # the significant digits of an e-value


def status_lines(name: str, history: History) -> list[str]:
    """Return the lines about a panel for the screen.

    The lines are about the state, the baseline, the limits with the last look, a look that has not
    ended, changes and notes.
    """
    baseline = history.baseline
    looks = history.looks
    if baseline is None:
        return [f"{name}: no baseline yet"]
    # The last look and the baseline are shown as one version of `reading` reads their answers.
    baseline = baseline_as_read_again(baseline, looks)
    runs = counted(len(baseline["repeats"]), "run")
    model = baseline["target"]["model"]
    lines = [
        f"{name}: {state_of(history)}",
        f"baseline of {baseline['at']}: {runs} of {model} ({baseline['why']})",
    ]
    lines += screen_lines(limits_table(baseline, looks))
    lines += limits_out_of_reach(baseline)
    lines += drops_rarely_found(baseline)
    if looks:
        lines += look_lines(baseline, looks[-1])
    begun = history.begun
    if begun is not None:
        lines.append(f"look {begun['look']} was started at {begun['at']} and has not ended")
    for change in history.of_kind(CHANGE):
        model = change["new"]["model"]
        lines.append(f"change {change['change']}, {change['at']}: {model}: {change['outcome']}")
    for note in history.of_kind(NOTE)[-SHOWN_NOTES:]:
        lines.append(f"note of {note['by']}, {note['at']}: {note['text']}")
    lines.append(f"last line of the ledger: {len(history.lines)}, {history.head}")
    return lines


def state_of(history: History) -> str:
    """Return the state of a panel with a baseline in a few words."""
    baseline = history.baseline
    looks = history.looks
    if baseline is None or not looks:
        return "baseline made, no look yet"
    looks_made = (
        f"{len(looks)} of {counted(baseline['looks'], 'look')} made, the last at {looks[-1]['at']}"
    )
    if history.alarm is None:
        return f"in control; {looks_made}"
    return f"ALARM: {alarm_words(baseline, history.alarm)}; {looks_made}"


def alarm_words(baseline: Line, alarm: Line) -> str:
    """Return an alarm as a text.

    Example: `pubmed_qa is 8.1 points worse, since about look 20 (alarm of look 23)`.

    Args:
        baseline: the line of the baseline.
        alarm: the value of `alarm` in the line of a look.
    """
    ending = f" (alarm of look {alarm['look']})"
    if alarm["since"] is not None:
        ending = f", {since_words(alarm)}{ending}"
    if alarm["what"] != HARM:  # a change in any direction
        return f"{alarm['what']}: {', '.join(alarm['names'])} changed{ending}"
    scales = {limit["name"]: limit["scale"] for limit in baseline["limits"]}
    drops = []
    for name in alarm["names"]:
        drops.append(f"{name} is {drop_words(scales[name], alarm['drops'][name])} worse")
    return ", ".join(drops) + ending


def since_words(alarm: Line) -> str:
    """Return when a change began, as a text: `since a look from 17 to 26, most likely 20`.

    `alarm` is an alarm, or another entry with the fields of `course.DATES`.
    """
    since = alarm["since"]
    # Lines of earlier versions have no range.
    first, last = alarm.get("since_range") or (since, since)
    if first == last:
        return f"since about look {since}"
    return f"since a look from {first} to {last}, most likely {since}"


def drop_words(scale: Sequence[float], drop: float | None) -> str:
    """Return a drop as a text: in points for a scale from 0 to 1, else in the metric's unit."""
    if drop is None:
        return "an unknown amount"
    if list(scale) == [0, 1]:
        return f"{formats.points(drop)} points"
    return formats.significant(drop, digits=3)


def limits_table(baseline: Line, looks: Sequence[Line]) -> Table:
    """Return a table with a row for each limit: baseline, max_drop, and the last look's results."""
    entries_of_last_look = {}  # the name of a limit -> its entry in the last look
    if looks:
        entries_of_last_look = {limit["name"]: limit for limit in looks[-1]["limits"]}
    rows = []
    for limit in baseline["limits"]:
        cells = [
            limit["name"],
            str(limit["instances"]),
            formats.percent(limit["flip_rate"]),
            formats.short(limit["baseline"]),
            formats.short(limit["max_drop"]),
        ]
        entry = entries_of_last_look.get(limit["name"])
        if entry:
            cells.append(formats.short(entry["value"], missing="-"))
            cells.append(e_value_text(entry["e"]))
        else:
            cells += ["-", "-"]
        rows.append(cells)
    head = ("limit", "n", "flips", "baseline", "max_drop", "last look", "e-value")
    return Table(head, rows, number_columns=len(head) - 1)


def evidence_sentence(baseline: Line, look: Line) -> str:
    """Return a sentence with the mean e-value of a look, and with the level of an alarm."""
    level = 1 / baseline["harm_alpha"]
    return (
        f"evidence of a drop beyond a limit: {e_value_text(look['e'])} "
        f"of the {level:g} that raise an alarm"
    )


def differing_words(look: Line) -> str | None:
    """Return a sentence with the number of answers that differ from the baseline's first run.

    Return None if the line of the look does not have this number.
    """
    differ = look.get("differ")
    if not differ or not differ["of"]:
        return None
    return (
        f"answers whose text differs from the baseline's first run: {differ['answers']} "
        f"of {differ['of']}"
    )


def look_lines(baseline: Line, look: Line) -> Iterator[str]:
    """Yield lines about a look: the evidence, the differing answers, the watched figures."""
    yield evidence_sentence(baseline, look)
    differing = differing_words(look)
    if differing is not None:
        yield differing
    yield from _figure_lines(baseline, look)
    yield from model_and_score_change_lines(baseline, look)


def _figure_lines(baseline: Line, look: Line) -> Iterator[str]:
    """Yield lines about the watched figures of a look that are numbers."""
    figures_before = baseline["watched"]
    figures = look["watched"]
    shares = []
    for name in ANSWER_SHARES:
        share = formats.percent(figures[name])
        shares.append(f"{name} {share} (baseline {formats.percent(figures_before[name])})")
    yield f"of the answers: {', '.join(shares)}"
    length = formats.decimals(figures["length"], digits=1)
    length_before = formats.decimals(figures_before["length"], digits=1)
    latency = formats.seconds(figures["latency"], missing="-")
    latency_before = formats.seconds(figures_before["latency"], missing="-")
    yield (
        f"mean length {length} words (baseline {length_before}); median latency {latency} "
        f"(baseline {latency_before})"
    )


def model_and_score_change_lines(baseline: Line, look: Line) -> Iterator[str]:
    """Yield lines about other models that the answers name, and about changed scores."""
    models = look["watched"][STATED_MODELS]
    models_before = baseline["watched"][STATED_MODELS]
    if models != models_before:
        yield (
            f"THE ANSWERS NAME ANOTHER MODEL: {', '.join(models) or 'none'} "
            f"(baseline {', '.join(models_before) or 'none'})"
        )
    for name, change in _changes(baseline, look).items():
        yield f"something changed in {name}, {since_words(change)} (for the better or the worse)"


def _changes(baseline: Line, look: Line) -> dict[str, Line]:
    """Return the entry of each limit whose score changed in any direction by the evidence."""
    # A change of a score is not always an alarm, so its level is that of the complete `alpha`. An
    # alarm gets only a part of `alpha` if `alarm_on` has names.
    level = alarm_level(baseline["alpha"], tests=len(look["changed"]))
    return {name: entry for name, entry in look["changed"].items() if entry["e"] >= level}


def power_lines(baseline: Line) -> Iterator[str]:
    """Yield lines about the drops that a panel can find, and the runs that its baseline needs.

    They are in `power` of the line of the baseline, as `course.power_of` returns them.
    """
    flip_rates = {limit["name"]: limit["flip_rate"] for limit in baseline["limits"]}
    repeats = len(baseline["repeats"])
    needed = 0  # the number of runs that the baseline needs; 0 if no number is enough
    never_enough = []  # the limits for which no number of runs is enough
    for name, power in baseline["power"].items():
        flip_rate = formats.percent(flip_rates[name])
        findings = _findings_text(power["finds"])
        yield f"{name}: {flip_rate} of its answers flip between two runs; found: {findings}"
        if power["needed"] is None:
            never_enough.append(f"{name} ({formats.points(power['drop'])} points)")
        else:
            needed = max(needed, power["needed"])
    left_out = []
    for limit in baseline["limits"]:
        if limit["left_out"]:
            left_out.append(f"{limit['left_out']} of {limit['name']}")
    if left_out:
        yield (
            f"instances left out, because they have no value in a run of the baseline: "
            f"{', '.join(left_out)}"
        )
    if never_enough:
        yield (
            f"even with a baseline of {max(SIMULATED_REPEATS)} runs, fewer than 95 % of such "
            f"panels find these drops: {', '.join(never_enough)}; set a larger `size`"
        )
    if needed > repeats:
        yield (
            f"the baseline needs {counted(needed, 'run')} "
            f"to find 10 points in 95 % of panels, but it has {repeats}: "
            f"set baseline.repeats to {needed} before the first look; "
            "the existing runs are used again"
        )
    elif needed:
        yield f"the {counted(repeats, 'run')} of the baseline are enough"


def _findings_text(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return a text about simulated drops, each with the share of panels that find the drop.

    An example is `5 points in 41 %, 10 points in 98 % (after 5 looks)`. A finding has the keys of
    `simulation.DropFinding`.
    """
    texts = []
    for finding in findings:
        share = formats.percent(finding["share"], digits=0)
        text = f"{formats.points(finding['drop'])} points in {share}"
        if finding["weeks"] is not None:
            text += f" (after {counted(finding['weeks'], 'look')})"
        texts.append(text)
    return ", ".join(texts)


def assumed_findings_lines(
    by_flip_rate: Mapping[float, Sequence[Mapping[str, Any]]],
) -> Iterator[str]:
    """Yield lines about the drops that a panel can be expected to find, before it is asked.

    The keys of `by_flip_rate` are assumed shares of answers that differ between two runs.
    """
    yield (
        "\n# how often the panel finds a drop by its last look, if the drop comes after two "
        "fifths of the looks; 80 % right answers assumed"
    )
    for flip_rate, findings in by_flip_rate.items():
        yield (
            f"#   if {formats.percent(flip_rate, digits=0)} of the answers flip between two runs: "
            f"{_findings_text(findings)}"
        )


def limits_out_of_reach(baseline: Line) -> list[str]:
    """Return a line for each limit that no score can break.

    If the baseline is near the worst end of the scale, a drop of `max_drop` would end outside the
    scale. The limit then raises no alarm, however bad the model becomes.
    """
    lines = []
    for limit in baseline["limits"]:
        low, high = limit["scale"]
        if limit["higher_is_better"]:
            worst_drop = limit["baseline"] - low
        else:
            worst_drop = high - limit["baseline"]
        if limit["max_drop"] >= worst_drop:
            lines.append(
                f"{limit['name']} cannot raise an alarm: its baseline lies "
                f"{formats.short(worst_drop)} from the worst score, and its max_drop is "
                f"{formats.short(limit['max_drop'])}; set a smaller max_drop"
            )
    return lines


MIN_SHARE_FOUND = 0.8
"""If fewer panels find a drop, the absence of an alarm does not show that there is no drop."""


def drops_rarely_found(baseline: Line) -> list[str]:
    """Return a line for each limit whose relevant drop is found by few simulated panels.

    The relevant drop is the drop for which the number of needed runs was computed. If no finding is
    about this drop, the line is about the next greater drop.
    """
    lines = []
    for name, power in baseline["power"].items():
        least_drop = power["drop"] - 1e-9  # a tolerance for rounding
        findings = [finding for finding in power["finds"] if finding["drop"] >= least_drop]
        if not findings:
            continue
        smallest = min(findings, key=lambda finding: float(finding["drop"]))
        if smallest["share"] < MIN_SHARE_FOUND:
            share = formats.percent(smallest["share"], digits=0)
            lines.append(
                f"only {share} of such panels find a drop of "
                f"{formats.points(smallest['drop'])} points in {name} by their last look: the "
                "absence of an alarm shows little; set a larger size, or more runs of the "
                "baseline, in a new panel"
            )
    return lines


def e_value_text(e: float) -> str:
    """Return an e-value with three significant digits."""
    return formats.significant(e, digits=_E_VALUE_DIGITS)


class PanelPackWriter:
    """Writes the sentences of an evidence pack from a panel's ledger and its plan of change."""

    def __init__(self, history: History, plan: Mapping[str, Any]) -> None:
        """Collect the values that the sentences use.

        Args:
            history: the panel's ledger.
            plan: the plan of change. The key `change` describes the planned changes. The keys
                `policy` and `locked_at` describe the gate's policy; they are absent if the policy
                of the baseline cannot be read.
        """
        baseline = history.baseline or {}
        looks = history.looks
        epoch = history.epoch  # the number of the current baseline
        self._last_look_or_baseline = looks[-1] if looks else baseline
        self._history = history
        alarms = list(self._alarms())
        has_alarm = any(alarm["epoch"] == epoch for alarm in alarms)
        changed = _last_changes(baseline, looks)
        stated = None  # if they differ: the models that the last look and the baseline state
        if looks:
            models = (self._last_look_or_baseline.get("watched") or {}).get("stated")
            models_before = (baseline.get("watched") or {}).get("stated")
            if models != models_before:
                stated = (models, models_before)
        needs_attention = has_alarm or changed or stated
        self._values = {
            **plan,
            "lines": history.lines,
            "head": history.head,
            "last": self._last_look_or_baseline,
            "baseline": baseline,
            "epoch": epoch,
            "looks": looks,
            "all_looks": history.of_kind(LOOK),
            "notes": history.of_kind(NOTE),
            "not_made": [line for line in history.of_kind(NOT_MADE) if line["epoch"] == epoch],
            "changes": history.of_kind(CHANGE),
            "begun": history.begun,
            "alarms": alarms,
            "changed": changed,
            "stated": stated,
            "is_quiet": looks and not needs_attention,
            "say": self._say,
            "say_alarm": _say_alarm,
        }

    def render_sentences(self, template: str) -> list[str]:
        """Return the sentences of a template, filled in with the values."""
        return rendered_lines(template, self._values)

    def _say(self, name: str) -> str:
        """Return the sentences with this name in the texts of packs, for use in a template."""
        return "\n".join(self.render_sentences(pack_texts()["panel"][name]))

    @property
    def runs(self) -> list[str]:
        """The run folders of the last look; without a look, of the baseline's last repeat.

        The paths are relative to the panel's folder.
        """
        asking = self._last_look_or_baseline
        repeats = self._last_look_or_baseline.get("repeats")  # only a baseline has repeats
        if repeats:
            asking = repeats[-1]
        return [run["folder"] for run in asking.get("runs", ())]

    def _alarms(self) -> Iterator[Line]:
        """Yield each alarm as the last look with this alarm states it.

        The key `epoch` has the number of the baseline. The key `notes` has the notes that were
        written since the first look with this alarm, until the next baseline.
        """
        # (number of the baseline, kind of the alarm) -> the looks with this alarm
        looks_by_alarm: dict[tuple[int, str], list[Line]] = {}
        for look in self._history.of_kind(LOOK):
            if look["alarm"]:
                key = (look["epoch"], look["alarm"]["what"])
                looks_by_alarm.setdefault(key, []).append(look)
        for (epoch, _), looks in looks_by_alarm.items():
            notes = []
            for note in self._history.of_kind(NOTE):
                if note["number"] > looks[0]["number"] and note["epoch"] == epoch:
                    notes.append(note)
            yield {**looks[-1]["alarm"], "epoch": epoch, "notes": notes}


def _say_alarm(alarm: Line) -> str:
    """Return the sentences about an alarm, for use in a template."""
    return " ".join(rendered_lines(pack_texts()["panel"]["alarm"], {"one": alarm}))


def _last_changes(baseline: Line, looks: Sequence[Line]) -> dict[str, Line]:
    """Return for each changed limit the entry of the last look that shows the change."""
    changed: dict[str, Line] = {}
    for look in looks:
        for name, entry in _changes(baseline, look).items():
            changed[name] = {**entry, "look": look["look"]}
    return changed


def evidence_pack_of_panel(purpose: str, folder: Path, *, as_page: bool) -> str:
    """Return an evidence pack: answers to a committee's questions from the ledger and its runs.

    Args:
        purpose: the name of the pack, one of `PACKS` in `report/evidence_packs.py`.
        folder: the panel's folder.
        as_page: return an HTML page instead of Markdown.

    Raises:
        PrerequisiteError: The ledger was changed, or a run that the ledger names has no result.
    """
    history = Ledger(folder).intact_history()
    section = (
        load_mapping(folder / PANEL_FILE, needs=f"`{MONITOR_SECTION}:`").get(MONITOR_SECTION) or {}
    )
    change = section.get("change") or {}
    plan: dict[str, Any] = {"change": change.get("description")}
    # A policy that cannot be read, or that is not the baseline's policy, is left out of the plan.
    with suppress(ConfigError):
        if change:
            policy = load_policy(Path(change["policy"]))
            if policy.sha256 == (history.baseline or {}).get("policy_sha256"):
                plan["policy"] = policy
                plan["locked_at"] = policy.locked_at
    writer = PanelPackWriter(history, plan)
    runs = [folder / run for run in writer.runs]
    pack = pack_of_panel(purpose, writer.render_sentences, runs)
    if as_page:
        return pack_page(pack)
    return pack_markdown(pack)
