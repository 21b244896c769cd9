"""Shows a panel's ledger as lines on the screen, as a page, and in evidence packs.

The page is a single file that works offline. It shows the verdict, a plot of each score, and the
users' notes about alarms. The plots show the current baseline and the looks since; a list shows the
earlier baselines.

A limit of a panel is the greatest permitted drop of a score. Each limit has an e-value at each
look. A large e-value is evidence that the score has dropped by more than permitted. An alarm on a
drop is raised when the mean e-value of the limits reaches 1 / `course.Rules.harm_alpha`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from eval_factory.analysis.gate_policy import load_policy
from eval_factory.analysis.paper import pack_of_panel
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.tables import Table, screen
from eval_factory.core.tables import html as in_html
from eval_factory.monitor.course import HARM, SHARES, STATED, Rules
from eval_factory.monitor.detector import alarm_level
from eval_factory.monitor.ledger import (
    CHANGE,
    LOOK,
    NOT_MADE,
    NOTE,
    History,
    Ledger,
    Line,
    as_read_again,
)
from eval_factory.monitor.panel import CHANGED, PANEL_FILE, SECTION
from eval_factory.monitor.simulation import REPEATS
from eval_factory.report import drawing
from eval_factory.report.drawing import FONT_SIZE, Colour, Drawing, Shape, svg
from eval_factory.report.page.document import pack_page, tables_page
from eval_factory.report.papers import pack_markdown, pack_texts, rendered
from eval_factory.report.plots import Axis, axis_of

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
    baseline = as_read_again(baseline, looks)
    runs = counted(len(baseline["repeats"]), "run")
    model = baseline["target"]["model"]
    lines = [
        f"{name}: {state_of(history)}",
        f"baseline of {baseline['at']}: {runs} of {model} ({baseline['why']})",
    ]
    lines += screen(limits_table(baseline, looks))
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
    entries_of_last_look = {}
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
            cells.append(_e_value(entry["e"]))
        else:
            cells += ["-", "-"]
        rows.append(cells)
    head = ("limit", "n", "flips", "baseline", "max_drop", "last look", "e-value")
    return Table(head, rows, numbers=len(head) - 1)


def evidence_of(baseline: Line, look: Line) -> str:
    """Return a sentence with the mean e-value of a look, and with the level of an alarm."""
    level = 1 / baseline["harm_alpha"]
    return (
        f"evidence of a drop beyond a limit: {_e_value(look['e'])} "
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
    yield evidence_of(baseline, look)
    differing = differing_words(look)
    if differing is not None:
        yield differing
    yield from _figure_lines(baseline, look)
    yield from _change_lines(baseline, look)


def _figure_lines(baseline: Line, look: Line) -> Iterator[str]:
    """Yield lines about the watched figures of a look that are numbers."""
    figures_before = baseline["watched"]
    figures = look["watched"]
    shares = []
    for name in SHARES:
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


def _change_lines(baseline: Line, look: Line) -> Iterator[str]:
    """Yield lines about other models that the answers name, and about changed scores."""
    models = look["watched"][STATED]
    models_before = baseline["watched"][STATED]
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
    """Yield lines about the drops that a panel can find, and the runs that its baseline needs."""
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
            f"even with a baseline of {max(REPEATS)} runs, fewer than 95 % of such panels find "
            f"these drops: {', '.join(never_enough)}; set a larger `size`"
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

    An example is `5 points in 41 %, 10 points in 98 % (after 5 looks)`.
    """
    texts = []
    for finding in findings:
        share = formats.percent(finding["share"], digits=0)
        text = f"{formats.points(finding['drop'])} points in {share}"
        if finding["weeks"] is not None:
            text += f" (after {counted(finding['weeks'], 'look')})"
        texts.append(text)
    return ", ".join(texts)


def assumed_lines(by_flip_rate: Mapping[float, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
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


WIDTH = 480.0
"""The width of a plot. It is smaller than that of other plots, for legible letters on a phone."""
# Positions in a plot, in CSS pixels from its upper left corner.
LEFT = 62.0  # the left end of the horizontal axis
RIGHT = 408.0  # the right end of the horizontal axis
TOP = 32.0  # the highest value
LOWEST = 184.0  # the lowest value
BOTTOM = 202.0  # the horizontal axis, below the lowest value
LOOK_MARGIN = 14.0  # from an end of the horizontal axis to the first or the last look
MIN_LOOKS_DRAWN = 10
"""The width of a plot is enough for at least this number of looks."""
MAX_LOOK_NUMBERS = 15  # the greatest number of looks with a number at the horizontal axis
MAX_NUMBERED = 8
"""Up to this number of lines in a plot, each line has a number at its end."""
# Smaller and greater e-values are drawn at the edge of a plot.
MIN_DRAWN = 1e-3
MAX_DRAWN = 1e5
_STYLE = """
.plot-box { max-width: 40rem; } #evidence table { width: auto; } h3 + p { break-after: avoid; }
@media print { details::details-content { content-visibility: visible; block-size: auto; } }
"""
_FIGURES = {name: (name, formats.percent) for name in SHARES} | {
    "length": ("mean length, words", lambda value: formats.decimals(value, digits=1)),
    "latency": ("median latency", formats.seconds),
}
"""Dict from a watched figure to its label in a table and the function that formats the figure."""


def monitor_page(name: str, history: History) -> str:
    """Return the HTML page of a panel; `name` is the name of its folder."""
    from markupsafe import Markup

    def markup(content: Table | Drawing) -> Markup:
        """Return a table or a drawing as HTML."""
        # This program makes the tables and drawings, and escapes the text in them.
        if isinstance(content, Table):
            return Markup(in_html(content))  # noqa: S704
        return Markup(svg(content))  # noqa: S704

    epoch = None
    if history.baseline is not None:
        baseline = as_read_again(history.baseline, history.looks)
        epoch = _Epoch(history, baseline, history.looks)
    return tables_page(
        "panel.html.j2",
        _STYLE,
        name=one_line(name),
        head=history.head,
        lines=history.lines,
        epoch=epoch,
        history=History,  # the class: the template makes histories of earlier lines
        edge_of=edge_of,
        named=_named,
        markup=markup,
        one_line=one_line,
        formats=formats,
        most_numbered=MAX_NUMBERED,
        state_of=state_of,
        alarm_words=alarm_words,
        evidence_of=evidence_of,
        differing_words=differing_words,
        limits_table=limits_table,
        power_lines=power_lines,
    )


def edge_of(limit: Line) -> float:
    """Return the worst score that a limit permits."""
    if limit["higher_is_better"]:
        return float(limit["baseline"] - limit["max_drop"])
    return float(limit["baseline"] + limit["max_drop"])


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


def _named(look: Line) -> str:
    """Return the number and the date of a look."""
    return f"{look['look']}, {look['at'][:10]}"


def _e_value(e: float) -> str:
    """Return an e-value with three significant digits."""
    return formats.significant(e, _E_VALUE_DIGITS)


def _log(e: float) -> float:
    """Return the decimal logarithm of an e-value, limited to the drawn range."""
    return math.log10(min(max(e, MIN_DRAWN), MAX_DRAWN))


@dataclass(frozen=True)
class _Epoch:
    """A baseline and the looks after it."""

    history: History
    baseline: Line
    looks: Sequence[Line]

    @cached_property
    def numbered(self) -> list[Line]:
        """All looks of the epoch in their order, including the looks that were not made."""
        # Numbers of lines begin at 1, so the slice begins after the baseline.
        later = self.history.lines[int(self.baseline["number"]) :]
        looks = [line for line in later if line["kind"] in (LOOK, NOT_MADE)]
        return sorted(looks, key=lambda look: int(look["look"]))

    @property
    def rules(self) -> Rules:
        """The rules of an alarm."""
        return Rules.of(self.baseline)

    @property
    def alarm_at(self) -> float:
        """The mean e-value that raises an alarm."""
        return 1 / self.rules.harm_alpha

    @cached_property
    def warnings(self) -> list[str]:
        """The lines about facts that are not an alarm, but that the user should know."""
        lines: list[str] = []
        if self.looks:
            lines += _change_lines(self.baseline, self.looks[-1])
        lines += limits_out_of_reach(self.baseline)
        lines += drops_rarely_found(self.baseline)
        lines += self.beyond_limits()
        if self.numbered and self.numbered[-1]["kind"] == NOT_MADE:
            last = self.numbered[-1]
            lines.append(f"look {last['look']} was not made: {last['reason']}")
        begun = self.history.begun
        if begun is not None:
            lines.append(f"look {begun['look']} was started at {begun['at']} and has not ended")
        if len(self.looks) >= self.baseline["looks"]:
            lines.append(
                "all looks are made: the next look needs a new baseline (--new_baseline WHY)"
            )
        return lines

    def beyond_limits(self) -> list[str]:
        """Return a line for each limit whose last score is worse than permitted, alarm or not."""
        lines: list[str] = []
        if not self.looks:
            return lines
        scores = {limit["name"]: limit["value"] for limit in self.looks[-1]["limits"]}
        for limit in self.baseline["limits"]:
            score = scores.get(limit["name"])
            if score is None:
                continue
            edge = edge_of(limit)
            if limit["higher_is_better"] and score < edge:
                direction = "below"
            elif not limit["higher_is_better"] and score > edge:
                direction = "above"
            else:
                continue
            lines.append(
                f"the last look of {limit['name']} is {direction} its limit: "
                f"{formats.short(score)}, the limit is {formats.short(edge)}"
            )
        return lines

    def entries_of(self, name: str) -> dict[int, Line]:
        """Return the entries of a limit, by the number of the look.

        The key `change` of an entry has the entry of the test whether the score changed in any
        direction.
        """
        entries: dict[int, Line] = {}
        for look in self.looks:
            for limit in look["limits"]:
                if limit["name"] == name:
                    entries[look["look"]] = {**limit, "change": look["changed"][name]}
        return entries

    def limit_table(self, limit: Line) -> Table:
        """Return the table of a limit, with a row for each look."""
        head = (
            "look",
            "score",
            "less baseline",  # the difference: the score minus the baseline
            "missing",
            "e-value",
            "drop since",
            "change: e-value",
            "change since",
        )
        entries = self.entries_of(limit["name"])
        rows = []
        for look in self.numbered:
            entry = entries.get(look["look"])
            if entry is not None:
                cells = self._cells(entry, limit["baseline"])
            else:
                cells = ["not made", *["-"] * (len(head) - 2)]
            rows.append([_named(look), *cells])
        return Table(head, rows, numbers=len(head) - 1)

    @staticmethod
    def _cells(entry: Line, baseline: float) -> list[str]:
        """Return the cells of a look in the table of a limit, after the cell with the look's name.

        `baseline` is the score of the baseline.
        """
        difference = None
        if entry["value"] is not None:
            difference = entry["value"] - baseline
        cells = [
            formats.score(entry["value"], missing="none"),
            formats.score(difference, sign="+", missing="-"),
            str(entry["missing"]),
        ]
        for test_entry in (entry, entry["change"]):
            cells.append(_e_value(test_entry["e"]))
            since = test_entry["since"]
            cells.append("-" if since is None else str(since))
        return cells

    @property
    def e_value_table(self) -> Table:
        """The table of the mean e-values, and of the e-values of watched figures in `alarm_on`."""
        names = list(self.looks[-1]["figures"])
        rows = []
        for look in self.looks:
            cells = [_named(look), _e_value(look["e"])]
            for name in names:
                cells.append(_e_value(look["figures"][name]["e"]))
            rows.append(cells)
        head = ["look", "mean e-value"]
        for name in names:
            head.append(f"{name}: e-value")
        return Table(tuple(head), rows, numbers=len(head) - 1)

    @property
    def watched_table(self) -> Table:
        """The table of the watched figures, over all answers."""
        head = ("of all answers", "baseline", "last look", "smallest", "largest")
        rows = []
        for key, (label, format_figure) in _FIGURES.items():
            cells = [label]
            of_looks = [look["watched"][key] for look in self.looks]
            last = of_looks[-1] if of_looks else None
            present = [figure for figure in of_looks if figure is not None]
            smallest = min(present, default=None)
            largest = max(present, default=None)
            for figure in (self.baseline["watched"][key], last, smallest, largest):
                cells.append("-" if figure is None else format_figure(figure))
            rows.append(cells)
        return Table(head, rows, numbers=len(head) - 1)

    def score_plot(self, limit: Line) -> Drawing:
        """Return a plot of each look's score, with the baseline and the limit."""
        mean = limit["baseline"]
        edge = edge_of(limit)
        low = mean - 2 * limit["sigma"]
        high = mean + 2 * limit["sigma"]
        scores = {}
        for number, entry in self.entries_of(limit["name"]).items():
            scores[number] = entry["value"]
        axis = axis_of([*scores.values(), low, high, edge], LOWEST, TOP)
        alarm = self.history.alarm
        if alarm is not None:  # mark the alarm only in the plots of its limits
            concerns_limit = alarm["what"] in (HARM, CHANGED) and limit["name"] in alarm["names"]
            if not concerns_limit:
                alarm = None
        plot = _Plot(self, axis, alarm)
        band_top = plot.y_of(high)
        band_height = plot.y_of(low) - band_top
        plot.shapes.append(drawing.rect(LEFT, band_top, RIGHT - LEFT, band_height, "grid"))
        plot.frame({tick: f"{tick:.6g}" for tick in axis.ticks()})
        plot.level(mean, "ink")
        plot.level(edge, "second")
        plot.ends([(mean, "baseline"), (edge, "limit")])
        plot.line(scores, limit["metric"])
        return plot.drawing(f"{limit['name']}: {limit['metric']} of each look")

    def e_value_plot(self) -> Drawing:
        """Return a plot of the e-values of each limit, with their mean."""
        level = self.alarm_at
        mean = {look["look"]: look["e"] for look in self.looks}
        values = [1.0, level, *mean.values()]
        by_limit: dict[str, dict[int, float]] = {}  # the e-values of each limit's looks
        for limit in self.baseline["limits"]:
            name = limit["name"]
            by_limit[name] = {}
            for number, entry in self.entries_of(name).items():
                by_limit[name][number] = entry["e"]
            values += by_limit[name].values()
        logs = list(map(_log, values))
        space = 0.2  # the least distance from the highest value to the end of the axis
        highest = min(math.ceil(max(logs) + space), _log(MAX_DRAWN))
        axis = Axis(math.floor(min(logs)), highest, LOWEST, TOP)
        alarm = self.history.alarm
        if alarm is not None and alarm["what"] != HARM:  # this plot shows evidence of a drop only
            alarm = None
        plot = _Plot(self, axis, alarm, is_log=True)
        ticks = {}
        for power in range(int(axis.low), int(axis.high) + 1):
            ticks[10.0**power] = f"{10.0**power:,.6g}"
        plot.frame(ticks)
        plot.level(level, "second")
        plot.shapes.append(
            drawing.text_shape(LEFT + 5, plot.y_of(level) - 5, f"alarm at {level:g}")
        )
        for name, by_look in by_limit.items():
            plot.line(by_look, name, "faint")
        plot.line(mean, "mean e-value")
        if 1 < len(by_limit) <= MAX_NUMBERED:
            labels = []
            for number, by_look in enumerate(by_limit.values(), start=1):
                labels.append((list(by_look.values())[-1], str(number)))
            plot.ends(labels)
        return plot.drawing("Evidence of a drop beyond a limit")


@dataclass(frozen=True)
class _Plot:
    """A plot over the looks of an epoch."""

    epoch: _Epoch
    axis: Axis  # the vertical axis; its method `x` returns the position of a value on the axis
    alarm: Line | None  # the alarm to mark in the plot
    is_log: bool = False  # True if the vertical axis is logarithmic
    shapes: list[Shape] = field(default_factory=list)

    def x_of(self, number: int) -> float:
        """Return the horizontal position of the look with this number."""
        first = int(self.epoch.numbered[0]["look"])
        last = int(self.epoch.numbered[-1]["look"])
        share = (number - first) / max(MIN_LOOKS_DRAWN - 1, last - first)
        return LEFT + LOOK_MARGIN + (RIGHT - LEFT - 2 * LOOK_MARGIN) * share

    def y_of(self, value: float) -> float:
        """Return the vertical position of a value."""
        if self.is_log:
            return self.axis.x(_log(value))
        return self.axis.x(value)

    def frame(self, ticks: Mapping[float, str]) -> None:
        """Draw the axes, the grid, the looks that were not made, and the alarm."""
        for value, label in ticks.items():
            y = self.y_of(value)
            self.shapes.append(drawing.line(LEFT, y, RIGHT, y, "grid"))
            self.shapes.append(drawing.text_shape(LEFT - 6, y + FONT_SIZE / 3, label, "end"))
        self.shapes.append(drawing.line(LEFT, BOTTOM, RIGHT, BOTTOM))
        self.shapes.append(drawing.text_shape((LEFT + RIGHT) / 2, BOTTOM + 38, "look", "middle"))
        step = 1 + len(self.epoch.numbered) // MAX_LOOK_NUMBERS
        for look in self.epoch.numbered:
            number = look["look"]
            if number % step == 0:
                x = self.x_of(number)
                self.shapes.append(drawing.text_shape(x, BOTTOM + 18, str(number), "middle"))
            if look["kind"] == NOT_MADE:
                self._sign(look, "x", f"not made: {look['reason']}")
        if self.alarm is None:
            return
        if self.alarm["since"] is not None:
            x = self.x_of(self.alarm["since"])
            self.shapes.append(drawing.line(x, TOP - 20, x, BOTTOM, "ink", dashed=True))
            self.shapes.append(drawing.text_shape(x - 4, TOP - 11, "since", "end"))
        if self.alarm["look"] is not None:
            x = self.x_of(self.alarm["look"])
            self.shapes.append(drawing.line(x, TOP - 20, x, BOTTOM, "ink", dashed=False))
            self.shapes.append(drawing.text_shape(x + 4, TOP - 11, "alarm", "start"))

    def level(self, value: float, colour: Colour) -> None:
        """Draw a horizontal line at a value; a line in the colour `second` is dashed."""
        y = self.y_of(value)
        is_dashed = colour == "second"
        self.shapes.append(drawing.line(LEFT, y, RIGHT, y, colour, width=1.5, dashed=is_dashed))

    def line(self, values: Mapping[int, float | None], name: str, colour: Colour = "data") -> None:
        """Draw the values of the looks as a line with a point for each look.

        The line is interrupted if a look was not made, or has no value. The point of the look that
        raised the alarm has another form.

        Args:
            values: The values by the number of the look.
            name: The name of the values.
            colour: The colour; a line in the colour `data` is thicker than others.
        """
        points = {}
        for number, value in values.items():
            if value is not None:
                points[number] = (self.x_of(number), self.y_of(value))
        is_main = colour == "data"
        numbers = [look["look"] for look in self.epoch.numbered]
        for number, next_number in pairwise(numbers):
            if number in points and next_number in points:
                ends = (*points[number], *points[next_number])
                self.shapes.append(drawing.line(*ends, colour, width=2 if is_main else 1))
        for look in self.epoch.looks:
            value = values[look["look"]]
            if value is None:
                self._sign(look, "?", f"{name} none")
                continue
            x, y = points[look["look"]]
            value_text = _e_value(value) if self.is_log else formats.score(value)
            title = one_line(f"look {_named(look)}: {name} {value_text}")
            if is_main and self.alarm is not None and look["look"] == self.alarm["look"]:
                corners = ((x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y))
                self.shapes.append(drawing.polygon(corners, "second", title))
            else:
                radius = 4 if is_main else 2.5
                self.shapes.append(drawing.circle(x, y, radius, colour, title))

    def _sign(self, look: Line, sign: str, explanation: str) -> None:
        """Write a sign above the horizontal axis; the explanation appears under the pointer."""
        title = one_line(f"look {_named(look)}: {explanation}")
        self.shapes.append(
            drawing.text_shape(self.x_of(look["look"]), BOTTOM - 6, sign, "middle", title=title)
        )

    def ends(self, labels: Sequence[tuple[float, str]]) -> None:
        """Write labels at the right edge, at their values; labels do not overlap.

        A label is a value with a text.
        """
        y = math.inf
        for value, text in sorted(labels):  # from the lowest label upwards
            y = min(y - FONT_SIZE, self.y_of(value))
            self.shapes.append(drawing.text_shape(RIGHT + 6, y + FONT_SIZE / 3, text))

    def drawing(self, title: str) -> Drawing:
        """Return the finished drawing."""
        description = "The tables of this page contain the figures of this plot."
        return Drawing(one_line(title), description, BOTTOM + 46, tuple(self.shapes), WIDTH)


class LedgerWriter:
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
        epoch = history.epoch
        self._last = looks[-1] if looks else baseline
        self._history = history
        alarms = list(self._alarms())
        changed = _last_changes(baseline, looks)
        stated = None  # if they differ: the models that the last look and the baseline state
        if looks:
            models = (self._last.get("watched") or {}).get("stated")
            models_before = (baseline.get("watched") or {}).get("stated")
            if models != models_before:
                stated = (models, models_before)
        needs_attention = any(alarm["epoch"] == epoch for alarm in alarms) or changed or stated
        self._values = {
            **plan,
            "lines": history.lines,
            "head": history.head,
            "last": self._last,
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
            "say": lambda name: "\n".join(self.render_sentences(pack_texts()["panel"][name])),
            "say_alarm": lambda alarm: " ".join(
                rendered(pack_texts()["panel"]["alarm"], {"one": alarm})
            ),
        }

    def render_sentences(self, template: str) -> list[str]:
        """Return the sentences of a template, filled in with the values."""
        return rendered(template, self._values)

    @property
    def runs(self) -> list[str]:
        """The run folders of the last look; without a look, of the baseline's last repeat.

        The paths are relative to the panel's folder.
        """
        asking = self._last
        repeats = self._last.get("repeats")  # only a baseline has repeats
        if repeats:
            asking = repeats[-1]
        return [run["folder"] for run in asking.get("runs", ())]

    def _alarms(self) -> Iterator[Line]:
        """Yield each alarm as the last look with this alarm states it.

        The key `notes` has the notes that were written since the first look with this alarm, until
        the next baseline.
        """
        looks_by_alarm: dict[tuple[int, str], list[Line]] = {}  # by epoch and kind of the alarm
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


def _last_changes(baseline: Line, looks: Sequence[Line]) -> dict[str, Line]:
    """Return for each changed limit the entry of the last look that shows the change."""
    changed: dict[str, Line] = {}
    for look in looks:
        for name, entry in _changes(baseline, look).items():
            changed[name] = {**entry, "look": look["look"]}
    return changed


def evidence_for(purpose: str, folder: Path, *, as_page: bool) -> str:
    """Return an evidence pack: answers to a committee's questions from the ledger and its runs.

    Args:
        purpose: the name of the pack, one of `PACKS` in `report/papers.py`.
        folder: the panel's folder.
        as_page: return an HTML page instead of Markdown.

    Raises:
        PrerequisiteError: The ledger was changed, or a run that the ledger names has no result.
    """
    history = Ledger(folder).intact_history()
    section = load_mapping(folder / PANEL_FILE, f"`{SECTION}:`").get(SECTION) or {}
    change = section.get("change") or {}
    plan: dict[str, Any] = {"change": change.get("description")}
    # A policy that cannot be read, or that is not the baseline's policy, is left out of the plan.
    with suppress(ConfigError):
        if change:
            policy = load_policy(Path(change["policy"]))
            if policy.sha256 == (history.baseline or {}).get("policy_sha256"):
                plan["policy"] = policy
                plan["locked_at"] = policy.locked_at
    writer = LedgerWriter(history, plan)
    runs = [folder / run for run in writer.runs]
    pack = pack_of_panel(purpose, writer.render_sentences, runs)
    if as_page:
        return pack_page(pack)
    return pack_markdown(pack)
