"""Writes the page of a panel: an HTML file with the verdict, a plot of each score, and the notes.

The page is a single file that works offline. The plots show the current baseline and the looks
since; a list shows the earlier baselines. A score is drawn with its limit, the greatest permitted
drop of the score. The e-values of the limits, the evidence of a drop, are drawn in another plot
(`report.py` explains e-values). A `Line` is a line of the panel's ledger as a dict, or an entry in
a line; `course.PanelTests` describes its keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.tables import Table
from eval_factory.core.tables import html as in_html
from eval_factory.monitor.course import HARM, Rules
from eval_factory.monitor.ledger import LOOK, NOT_MADE, History, Line, baseline_as_read_again
from eval_factory.monitor.measurement import ANSWER_SHARES
from eval_factory.monitor.panel import ANY_CHANGE
from eval_factory.monitor.report import (
    alarm_words,
    differing_words,
    drops_rarely_found,
    e_value_text,
    evidence_sentence,
    limits_out_of_reach,
    limits_table,
    model_and_score_change_lines,
    power_lines,
    state_of,
)
from eval_factory.report import drawing
from eval_factory.report.drawing import FONT_SIZE, Colour, Drawing, Shape, svg
from eval_factory.report.page.document import tables_page
from eval_factory.report.plots import Axis, axis_of

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
# The rules of CSS that only this page needs.
_STYLE = """
.plot-box { max-width: 40rem; } #evidence table { width: auto; } h3 + p { break-after: avoid; }
@media print { details::details-content { content-visibility: visible; block-size: auto; } }
"""


def _one_decimal(value: float) -> str:
    """Return a figure with one decimal."""
    return formats.decimals(value, digits=1)


_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    **{name: (name, formats.percent) for name in ANSWER_SHARES},
    "length": ("mean length, words", _one_decimal),
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
        baseline = baseline_as_read_again(history.baseline, history.looks)
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
        look_label=_look_label,
        markup=markup,
        one_line=one_line,
        formats=formats,
        most_numbered=MAX_NUMBERED,
        state_of=state_of,
        alarm_words=alarm_words,
        evidence_sentence=evidence_sentence,
        differing_words=differing_words,
        limits_table=limits_table,
        power_lines=power_lines,
    )


def edge_of(limit: Line) -> float:
    """Return the worst score that a limit permits."""
    if limit["higher_is_better"]:
        return float(limit["baseline"] - limit["max_drop"])
    return float(limit["baseline"] + limit["max_drop"])


def _look_label(look: Line) -> str:
    """Return the number and the date of a look."""
    return f"{look['look']}, {look['at'][:10]}"


def _log(e: float) -> float:
    """Return the decimal logarithm of an e-value, limited to the drawn range."""
    return math.log10(min(max(e, MIN_DRAWN), MAX_DRAWN))


@dataclass(frozen=True)
class _Epoch:
    """A baseline and the looks after it; `epoch` in a line of the ledger is its number."""

    history: History
    baseline: Line
    looks: Sequence[Line]  # the looks that were made

    @cached_property
    def numbered_looks(self) -> list[Line]:
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
            lines += model_and_score_change_lines(self.baseline, self.looks[-1])
        lines += limits_out_of_reach(self.baseline)
        lines += drops_rarely_found(self.baseline)
        lines += self.beyond_limits()
        if self.numbered_looks and self.numbered_looks[-1]["kind"] == NOT_MADE:
            last = self.numbered_looks[-1]
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
        for look in self.numbered_looks:
            entry = entries.get(look["look"])
            if entry is not None:
                cells = self._cells(entry, limit["baseline"])
            else:
                cells = ["not made", *["-"] * (len(head) - 2)]
            rows.append([_look_label(look), *cells])
        return Table(head, rows, number_columns=len(head) - 1)

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
            cells.append(e_value_text(test_entry["e"]))
            since = test_entry["since"]
            cells.append("-" if since is None else str(since))
        return cells

    @property
    def e_value_table(self) -> Table:
        """The table of the mean e-values, and of the e-values of watched figures in `alarm_on`."""
        names = list(self.looks[-1]["figures"])
        rows = []
        for look in self.looks:
            cells = [_look_label(look), e_value_text(look["e"])]
            for name in names:
                cells.append(e_value_text(look["figures"][name]["e"]))
            rows.append(cells)
        head = ["look", "mean e-value"]
        for name in names:
            head.append(f"{name}: e-value")
        return Table(tuple(head), rows, number_columns=len(head) - 1)

    @property
    def watched_table(self) -> Table:
        """The table of the watched figures, over all answers."""
        head = ("of all answers", "baseline", "last look", "smallest", "largest")
        rows = []
        for key, (label, format_figure) in _FIGURES.items():
            cells = [label]
            figures_of_looks = [look["watched"][key] for look in self.looks]
            last = figures_of_looks[-1] if figures_of_looks else None
            present = [figure for figure in figures_of_looks if figure is not None]
            smallest = min(present, default=None)
            largest = max(present, default=None)
            for figure in (self.baseline["watched"][key], last, smallest, largest):
                cells.append("-" if figure is None else format_figure(figure))
            rows.append(cells)
        return Table(head, rows, number_columns=len(head) - 1)

    def score_plot(self, limit: Line) -> Drawing:
        """Return a plot of each look's score, with the baseline and the limit."""
        baseline = limit["baseline"]
        edge = edge_of(limit)
        low = baseline - 2 * limit["sigma"]
        high = baseline + 2 * limit["sigma"]
        scores = {}
        for number, entry in self.entries_of(limit["name"]).items():
            scores[number] = entry["value"]
        axis = axis_of([*scores.values(), low, high, edge], LOWEST, TOP)
        alarm = self.history.alarm
        if alarm is not None:  # mark the alarm only in the plots of its limits
            concerns_limit = alarm["what"] in (HARM, ANY_CHANGE) and limit["name"] in alarm["names"]
            if not concerns_limit:
                alarm = None
        plot = _Plot(self, axis, alarm)
        band_top = plot.y_of(high)
        band_height = plot.y_of(low) - band_top
        plot.shapes.append(drawing.rect(LEFT, band_top, RIGHT - LEFT, band_height, "grid"))
        plot.draw_frame({tick: f"{tick:.6g}" for tick in axis.ticks()})
        plot.draw_level(baseline, "ink")
        plot.draw_level(edge, "second")
        plot.write_end_labels([(baseline, "baseline"), (edge, "limit")])
        plot.draw_line(scores, limit["metric"])
        return plot.finished_drawing(f"{limit['name']}: {limit['metric']} of each look")

    def e_value_plot(self) -> Drawing:
        """Return a plot of the e-values of each limit, with their mean."""
        level = self.alarm_at
        mean_by_look = {look["look"]: look["e"] for look in self.looks}
        values = [1.0, level, *mean_by_look.values()]
        by_limit: dict[str, dict[int, float]] = {}  # the e-values of each limit's looks
        for limit in self.baseline["limits"]:
            name = limit["name"]
            by_limit[name] = {}
            for number, entry in self.entries_of(name).items():
                by_limit[name][number] = entry["e"]
            values += by_limit[name].values()
        logs = list(map(_log, values))
        # the least distance from the highest value to the end of the axis, in decimal logarithms
        space = 0.2
        highest = min(math.ceil(max(logs) + space), _log(MAX_DRAWN))
        axis = Axis(math.floor(min(logs)), highest, LOWEST, TOP)
        alarm = self.history.alarm
        if alarm is not None and alarm["what"] != HARM:  # this plot shows evidence of a drop only
            alarm = None
        plot = _Plot(self, axis, alarm, is_log=True)
        ticks = {}
        for power in range(int(axis.low), int(axis.high) + 1):
            ticks[10.0**power] = f"{10.0**power:,.6g}"
        plot.draw_frame(ticks)
        plot.draw_level(level, "second")
        plot.shapes.append(
            drawing.text_shape(LEFT + 5, plot.y_of(level) - 5, f"alarm at {level:g}")
        )
        for name, by_look in by_limit.items():
            plot.draw_line(by_look, name, "faint")
        plot.draw_line(mean_by_look, "mean e-value")
        if 1 < len(by_limit) <= MAX_NUMBERED:
            labels = []
            for number, by_look in enumerate(by_limit.values(), start=1):
                labels.append((list(by_look.values())[-1], str(number)))
            plot.write_end_labels(labels)
        return plot.finished_drawing("Evidence of a drop beyond a limit")


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
        first = int(self.epoch.numbered_looks[0]["look"])
        last = int(self.epoch.numbered_looks[-1]["look"])
        share = (number - first) / max(MIN_LOOKS_DRAWN - 1, last - first)
        return LEFT + LOOK_MARGIN + (RIGHT - LEFT - 2 * LOOK_MARGIN) * share

    def y_of(self, value: float) -> float:
        """Return the vertical position of a value."""
        if self.is_log:
            return self.axis.x(_log(value))
        return self.axis.x(value)

    def draw_frame(self, ticks: Mapping[float, str]) -> None:
        """Draw the axes, the grid, the looks that were not made, and the alarm."""
        for value, label in ticks.items():
            y = self.y_of(value)
            self.shapes.append(drawing.line(LEFT, y, RIGHT, y, "grid"))
            self.shapes.append(drawing.text_shape(LEFT - 6, y + FONT_SIZE / 3, label, "end"))
        self.shapes.append(drawing.line(LEFT, BOTTOM, RIGHT, BOTTOM))
        self.shapes.append(drawing.text_shape((LEFT + RIGHT) / 2, BOTTOM + 38, "look", "middle"))
        step = 1 + len(self.epoch.numbered_looks) // MAX_LOOK_NUMBERS
        for look in self.epoch.numbered_looks:
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

    def draw_level(self, value: float, colour: Colour) -> None:
        """Draw a horizontal line at a value; a line in the colour `second` is dashed."""
        y = self.y_of(value)
        is_dashed = colour == "second"
        self.shapes.append(drawing.line(LEFT, y, RIGHT, y, colour, width=1.5, dashed=is_dashed))

    def draw_line(
        self, values: Mapping[int, float | None], name: str, colour: Colour = "data"
    ) -> None:
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
        numbers = [look["look"] for look in self.epoch.numbered_looks]
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
            value_text = e_value_text(value) if self.is_log else formats.score(value)
            title = one_line(f"look {_look_label(look)}: {name} {value_text}")
            if is_main and self.alarm is not None and look["look"] == self.alarm["look"]:
                # the corners of a diamond
                corners = ((x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y))
                self.shapes.append(drawing.polygon(corners, "second", title))
            else:
                radius = 4 if is_main else 2.5
                self.shapes.append(drawing.circle(x, y, radius, colour, title))

    def _sign(self, look: Line, sign: str, explanation: str) -> None:
        """Write a sign above the horizontal axis; the explanation appears under the pointer."""
        title = one_line(f"look {_look_label(look)}: {explanation}")
        self.shapes.append(
            drawing.text_shape(self.x_of(look["look"]), BOTTOM - 6, sign, "middle", title=title)
        )

    def write_end_labels(self, labels: Sequence[tuple[float, str]]) -> None:
        """Write labels at the right edge, at their values; labels do not overlap.

        A label is a value with a text.
        """
        y = math.inf
        for value, text in sorted(labels):  # from the lowest label upwards
            y = min(y - FONT_SIZE, self.y_of(value))
            self.shapes.append(drawing.text_shape(RIGHT + 6, y + FONT_SIZE / 3, text))

    def finished_drawing(self, title: str) -> Drawing:
        """Return the finished drawing."""
        description = "The tables of this page contain the figures of this plot."
        return Drawing(
            one_line(title),
            description,
            height=BOTTOM + 46,
            shapes=tuple(self.shapes),
            width=WIDTH,
        )
