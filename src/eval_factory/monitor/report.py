"""What a panel's ledger says: on one screen, as a page, and in evidence packs.

The page is one offline file with the verdict, the course of each score, and what was done about
alarms. Its plots show the baseline that holds and the looks since; earlier ones have a row each.
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

from eval_factory.analysis.gate import load_policy
from eval_factory.analysis.paper import evidence_of_panel
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.tables import Table, screen
from eval_factory.core.tables import html as in_html
from eval_factory.monitor.course import HARM, SHARES, STATED, Rules
from eval_factory.monitor.detector import alarm_level
from eval_factory.monitor.ledger import CHANGE, LOOK, NOT_MADE, NOTE, History, Ledger, Line
from eval_factory.monitor.panel import CHANGED, PANEL_FILE
from eval_factory.report import drawing
from eval_factory.report.drawing import FONT_SIZE, Colour, Drawing, Shape, svg
from eval_factory.report.page.document import pack_page, tables_page
from eval_factory.report.papers import pack_markdown, rendered, texts
from eval_factory.report.plots import Axis, axis_of

SHOWN_NOTES = 5


def status_lines(name: str, history: History) -> list[str]:
    """Of a whole panel: baseline, limits with their last look, alarm, what goes on, notes."""
    baseline = history.baseline
    looks = history.looks
    lines = history.lines
    if baseline is None:
        return [f"{name}: no baseline yet"]
    runs = counted(len(baseline["repeats"]), "run")
    model = baseline["target"]["model"]
    found = [
        f"{name}: {state_of(history)}",
        f"baseline of {baseline['at']}: {runs} of {model} ({baseline['why']})",
    ]
    found += screen(limits_table(baseline, looks))
    if looks:
        found += [evidence_of(baseline, looks[-1]), *watched_lines(baseline, looks[-1])]
    if history.begun is not None:
        found.append(
            f"look {history.begun['look']} was started at {history.begun['at']} and has not ended"
        )
    changes = history.of_kind(CHANGE)
    notes = history.of_kind(NOTE)[-SHOWN_NOTES:]
    found += [
        f"change {one['change']}, {one['at']}: {one['new']['model']}: {one['outcome']}"
        for one in changes
    ]
    found += [f"note of {one['by']}, {one['at']}: {one['text']}" for one in notes]
    return [*found, f"last line of the ledger: {len(lines)}, {history.head}"]


def state_of(history: History) -> str:
    """In a few words."""
    baseline = history.baseline
    looks = history.looks
    if baseline is None or not looks:
        return "baseline made, no look yet"
    made = (
        f"{len(looks)} of {counted(baseline['looks'], 'look')} made, the last at {looks[-1]['at']}"
    )
    if history.alarm is None:
        return f"in control; {made}"
    return f"ALARM: {alarm_words(baseline, history.alarm)}; {made}"


def alarm_words(baseline: Line, alarm: Line) -> str:
    """`pubmed_qa is 8.1 points worse, since about look 20 (alarm of look 23)`."""
    since = f", since about look {alarm['since']}" if alarm["since"] is not None else ""
    of_look = f" (alarm of look {alarm['look']})"
    if alarm["what"] != HARM:
        return f"{alarm['what']}: {', '.join(alarm['names'])} changed{since}{of_look}"
    scales = {one["name"]: one["scale"] for one in baseline["limits"]}
    drops = [
        f"{name} is {drop_words(scales[name], alarm['drops'][name])} worse"
        for name in alarm["names"]
    ]
    return ", ".join(drops) + since + of_look


def drop_words(scale: Sequence[float], drop: float | None) -> str:
    """Of shares in points."""
    if drop is None:
        return "an unknown amount"
    return (
        f"{formats.points(drop)} points" if list(scale) == [0, 1] else formats.significant(drop, 3)
    )


def limits_table(baseline: Line, looks: Sequence[Line]) -> Table:
    """A row each limit: its baseline, what it may lose, the last look."""
    last = {one["name"]: one for one in looks[-1]["limits"]} if looks else {}
    rows = []
    for one in baseline["limits"]:
        now = last.get(one["name"])
        size = str(one["instances"])
        cells = [
            formats.percent(one["flip_rate"]),
            formats.short(one["baseline"]),
            formats.short(one["max_drop"]),
        ]
        cells += (
            [formats.short(now["value"], missing="-"), formats.significant(now["e"], 3)]
            if now
            else ["-", "-"]
        )
        rows.append([one["name"], size, *cells])
    return Table(("limit", "n", "flips", "baseline", "max_drop", "last look", "e-value"), rows, 6)


def evidence_of(baseline: Line, last: Line) -> str:
    needed = 1 / baseline["harm_alpha"]
    return (
        f"evidence of a drop beyond a limit: {formats.significant(last['e'], 3)}; "
        f"an alarm at {needed:g}"
    )


def watched_lines(baseline: Line, last: Line) -> Iterator[str]:
    """What is watched beside the scores, before and now, and what seems to have changed."""
    then = baseline["watched"]
    now = last["watched"]
    shares = [
        f"{name} {formats.percent(now[name])} (baseline {formats.percent(then[name])})"
        for name in SHARES
    ]
    yield f"of the answers: {', '.join(shares)}"
    length, of_baseline = (formats.decimals(one["length"], 1) for one in (now, then))
    latency, before = (formats.seconds(one["latency"], missing="-") for one in (now, then))
    yield (
        f"mean length {length} words (baseline {of_baseline}); median latency {latency} "
        f"(baseline {before})"
    )
    if now[STATED] != then[STATED]:
        models = [", ".join(one[STATED]) or "none" for one in (now, then)]
        yield f"THE ANSWERS NAME ANOTHER MODEL: {models[0]} (baseline {models[1]})"
    level = alarm_level(len(last["changed"]), baseline["alpha"])
    for name, one in last["changed"].items():
        if one["e"] >= level:
            yield (
                f"something changed in {name}, since about look {one['since']} "
                "(for the better or the worse)"
            )


def power_lines(baseline: Line) -> Iterator[str]:
    """What such a panel can find, and how many runs its baseline needs."""
    flips = {one["name"]: one["flip_rate"] for one in baseline["limits"]}
    has = len(baseline["repeats"])
    most = 0
    lacking = []
    for name, one in baseline["power"].items():
        flip = formats.percent(flips[name])
        yield f"{name}: {flip} of its answers flip between two runs; found: {_finds(one['finds'])}"
        most = max(most, one["needed"] or 0)
        if one["needed"] is None:
            lacking.append(f"{name} ({formats.points(one['drop'])} points)")
    if left_out := [
        f"{one['left_out']} of {one['name']}" for one in baseline["limits"] if one["left_out"]
    ]:
        yield f"left out, for a run of the baseline has no value of them: {', '.join(left_out)}"
    if lacking:
        yield (
            f"not found in 95 % of panels however long the baseline is: {', '.join(lacking)}: "
            "take a larger `size`"
        )
    if most > has:
        yield (
            f"the baseline needs {counted(most, 'run')} "
            f"to find 10 points in 95 % of panels, and it has {has}: set"
            f" baseline.repeats to {most} before the first look; the runs that are there are kept"
        )
    elif most:
        yield f"the {counted(has, 'run')} of the baseline are enough: {most} are needed"


def _finds(found: Sequence[Mapping[str, Any]]) -> str:
    """`5 points in 41 % of panels, 10 points in 98 % (after 5 looks)`."""
    words = []
    for one in found:
        after = "" if one["weeks"] is None else f" (after {counted(one['weeks'], 'look')})"
        words.append(
            f"{formats.points(one['drop'])} points in {formats.percent(one['share'], 0)}{after}"
        )
    return ", ".join(words)


def assumed_lines(found: Mapping[float, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Before anything is asked: what such a panel finds, by how many answers flip."""
    yield (
        "\n# what the panel finds by its last look, of a drop after two fifths of them; "
        "80 % right answers assumed"
    )
    for rate, each in found.items():
        yield (
            f"#   where {formats.percent(rate, 0)} of the answers flip between two runs: "
            f"{_finds(each)}"
        )


WIDTH = 480.0
LEFT = 62.0
RIGHT = 408.0
TOP = 32.0
LOWEST = 184.0
BOTTOM = 202.0
"""Of a plot: narrower than others, so that its letters are read on a phone; its edges; the
lowest value.
"""
FEWEST = 10
MAX_NUMBERED = 8
"""A plot has room for so many looks at least; so many lines in it have a number at their end."""
# e-values beyond are drawn at a plot's edge
LEAST = 1e-3
MOST = 1e5
_STYLE = """
.plot-box { max-width: 40rem; } #evidence table { width: auto; } h3 + p { break-after: avoid; }
@media print { details::details-content { content-visibility: visible; block-size: auto; } }
"""
_FIGURES = {name: (name, formats.percent) for name in SHARES} | {
    "length": ("mean length, words", lambda value: formats.decimals(value, 1)),
    "latency": ("median latency", formats.seconds),
}


def monitor_page(name: str, history: History) -> str:
    """`name`: of the panel's folder."""
    from markupsafe import Markup

    def markup(
        found: Table | Drawing,
    ) -> Markup:  # tables and SVG are ours, and escape what is in them
        return Markup(in_html(found) if isinstance(found, Table) else svg(found))  # noqa: S704

    epoch = None if history.baseline is None else _Epoch(history, history.baseline, history.looks)
    return tables_page(
        "panel.html.j2",
        _STYLE,
        name=one_line(name),
        head=history.head,
        lines=history.lines,
        epoch=epoch,
        history=History,
        edge_of=edge_of,
        named=_named,
        markup=markup,
        one_line=one_line,
        formats=formats,
        most_numbered=MAX_NUMBERED,
        state_of=state_of,
        alarm_words=alarm_words,
        evidence_of=evidence_of,
        limits_table=limits_table,
        power_lines=power_lines,
    )


def edge_of(limit: Line) -> float:
    """The score beyond which it is too much worse."""
    return float(limit["baseline"] + limit["max_drop"] * (-1 if limit["higher_is_better"] else 1))


def _named(look: Line) -> str:
    return f"{look['look']}, {look['at'][:10]}"


def _e_value(e: float) -> str:
    return formats.significant(e, 3)


def _log(e: float) -> float:
    return math.log10(min(max(e, LEAST), MOST))


@dataclass(frozen=True)
class _Epoch:
    """A baseline and what came after it."""

    history: History
    baseline: Line
    looks: Sequence[Line]

    @cached_property
    def numbered(self) -> list[Line]:
        """The looks that were made and those that were not, in their order."""
        later = self.history.lines[int(self.baseline["number"]) :]
        return sorted(
            (one for one in later if one["kind"] in (LOOK, NOT_MADE)),
            key=lambda one: int(one["look"]),
        )

    @property
    def rules(self) -> Rules:
        return Rules.of(self.baseline)

    @property
    def alarm_at(self) -> float:
        return 1 / self.rules.harm_alpha

    @cached_property
    def warnings(self) -> list[str]:
        """What is no alarm, and should be known all the same."""
        found = list(watched_lines(self.baseline, self.looks[-1]))[2:] if self.looks else []
        found += self.beyond_limits()
        if self.numbered and self.numbered[-1]["kind"] == NOT_MADE:
            found.append(
                f"look {self.numbered[-1]['look']} was not made: {self.numbered[-1]['reason']}"
            )
        if (begun := self.history.begun) is not None:
            found.append(f"look {begun['look']} was started at {begun['at']} and has not ended")
        if len(self.looks) >= self.baseline["looks"]:
            found.append("all looks are made: the next one needs a new baseline")
        return found

    def beyond_limits(self) -> list[str]:
        """A line for each limit that the score of the last look lies beyond, alarm or not."""
        lines = []
        last = {one["name"]: one["value"] for one in self.looks[-1]["limits"]} if self.looks else {}
        for limit in self.baseline["limits"]:
            value = last.get(limit["name"])
            edge = edge_of(limit)
            if value is None:
                continue
            is_beyond = value < edge if limit["higher_is_better"] else value > edge
            if is_beyond:
                side = "below" if limit["higher_is_better"] else "above"
                lines.append(
                    f"the last look of {limit['name']} is {side} its limit: "
                    f"{formats.short(value)}, the limit is {formats.short(edge)}"
                )
        return lines

    def found(self, name: str) -> dict[int, Line]:
        """Look -> what it says of a limit, and of its change."""
        found: dict[int, Line] = {}
        for look in self.looks:
            for limit in look["limits"]:
                if limit["name"] == name:
                    found[look["look"]] = {**limit, "change": look["changed"][name]}
        return found

    def rows_of(self, limit: Line) -> Table:
        found = self.found(limit["name"])
        rows = []
        for look in self.numbered:
            cells = ["not made", *["-"] * 6]
            if (one := found.get(look["look"])) is not None:
                than = None if one["value"] is None else one["value"] - limit["baseline"]
                cells = [
                    formats.score(one["value"], missing="none"),
                    formats.score(than, sign="+", missing="-"),
                ]
                cells.append(str(one["missing"]))
                for of in (one, one["change"]):
                    cells += [_e_value(of["e"]), "-" if of["since"] is None else str(of["since"])]
            rows.append([_named(look), *cells])
        head = (
            "look",
            "score",
            "less baseline",
            "missing",
            "e-value",
            "drop since",
            "change: e-value",
            "change since",
        )
        return Table(head, rows, 7)

    @property
    def evidence(self) -> Table:
        """The mean e-value, and those of watched figures that may be an alarm."""
        names = list(self.looks[-1]["figures"])
        every = [
            (_named(one), one["e"], *(one["figures"][name]["e"] for name in names))
            for one in self.looks
        ]
        rows = [[look, *map(_e_value, found)] for look, *found in every]
        return Table(
            ("look", "mean e-value", *(f"{name}: e-value" for name in names)), rows, 1 + len(names)
        )

    @property
    def watched(self) -> Table:
        rows = []
        for key, (name, shown) in _FIGURES.items():
            every = [one["watched"][key] for one in self.looks] or [None]
            known = [one for one in every if one is not None]
            values = (
                self.baseline["watched"][key],
                every[-1],
                min(known, default=None),
                max(known, default=None),
            )
            rows.append([name, *("-" if value is None else shown(value) for value in values)])
        return Table(("of all answers", "baseline", "last look", "smallest", "largest"), rows, 4)

    def course(self, limit: Line) -> Drawing:
        """The score of each look, beside the baseline and the limit."""
        mean = limit["baseline"]
        edge = edge_of(limit)
        alarm = self.history.alarm
        low = mean - 2 * limit["sigma"]
        high = mean + 2 * limit["sigma"]
        values = {look: one["value"] for look, one in self.found(limit["name"]).items()}
        y = axis_of([*values.values(), low, high, edge], LOWEST, TOP)
        is_named = (
            alarm is not None
            and alarm["what"] in (HARM, CHANGED)
            and limit["name"] in alarm["names"]
        )
        plot = _Plot(self, y, alarm if is_named else None)
        plot.shapes.append(
            drawing.rect(LEFT, y.x(high), RIGHT - LEFT, y.x(low) - y.x(high), "grid")
        )
        plot.frame({tick: f"{tick:.6g}" for tick in y.ticks()})
        plot.level(mean, "ink")
        plot.level(edge, "second")
        plot.ends([(mean, "baseline"), (edge, "limit")])
        plot.line(values, limit["metric"])
        return plot.drawing(f"{limit['name']}: {limit['metric']} of each look")

    def e_values(self) -> Drawing:
        """Of each limit, with their mean."""
        names = [one["name"] for one in self.baseline["limits"]]
        alarm = self.history.alarm
        level = self.alarm_at
        each = [{look: one["e"] for look, one in self.found(name).items()} for name in names]
        mean = {one["look"]: one["e"] for one in self.looks}
        values = [1.0, level, *mean.values()]
        for by_look in each:
            values += by_look.values()
        logs = list(map(_log, values))
        y = Axis(math.floor(min(logs)), min(math.ceil(max(logs) + 0.2), _log(MOST)), LOWEST, TOP)
        plot = _Plot(
            self, y, alarm if alarm is not None and alarm["what"] == HARM else None, is_log=True
        )
        plot.frame(
            {10.0**power: f"{10.0**power:,.6g}" for power in range(int(y.low), int(y.high) + 1)}
        )
        plot.level(level, "second")
        plot.shapes.append(drawing.words(LEFT + 5, plot.at(level) - 5, f"alarm at {level:g}"))
        for name, found in zip(names, each, strict=True):
            plot.line(found, name, "faint")
        plot.line(mean, "mean e-value")
        if 1 < len(each) <= MAX_NUMBERED:
            plot.ends(
                [([*found.values()][-1], str(place)) for place, found in enumerate(each, start=1)]
            )
        return plot.drawing("Evidence of a drop beyond a limit")


@dataclass(frozen=True)
class _Plot:
    """What is drawn over the looks of an epoch."""

    epoch: _Epoch
    y: Axis
    alarm: Line | None  # to be marked
    is_log: bool = False
    shapes: list[Shape] = field(default_factory=list)

    def x(self, look: int) -> float:
        numbers: list[int] = [one["look"] for one in self.epoch.numbered]
        return (
            LEFT
            + 14
            + (RIGHT - LEFT - 28) * (look - numbers[0]) / max(FEWEST - 1, numbers[-1] - numbers[0])
        )

    def at(self, value: float) -> float:
        return self.y.x(_log(value) if self.is_log else value)

    def frame(self, ticks: Mapping[float, str]) -> None:
        for value, shown in ticks.items():
            self.shapes.append(drawing.line(LEFT, self.at(value), RIGHT, self.at(value), "grid"))
            self.shapes.append(
                drawing.words(LEFT - 6, self.at(value) + FONT_SIZE / 3, shown, "end")
            )
        self.shapes.append(drawing.line(LEFT, BOTTOM, RIGHT, BOTTOM))
        self.shapes.append(drawing.words((LEFT + RIGHT) / 2, BOTTOM + 38, "look", "middle"))
        step = 1 + len(self.epoch.numbered) // 15
        for one in self.epoch.numbered:
            if one["look"] % step == 0:
                self.shapes.append(
                    drawing.words(self.x(one["look"]), BOTTOM + 18, str(one["look"]), "middle")
                )
            if one["kind"] == NOT_MADE:
                self._sign(one, "x", f"not made: {one['reason']}")
        for key, name, side in (("since", "since", -4), ("look", "alarm", 4)):
            if self.alarm is not None and self.alarm[key] is not None:
                x = self.x(self.alarm[key])
                self.shapes.append(drawing.line(x, TOP - 20, x, BOTTOM, "ink", dashed=side < 0))
                self.shapes.append(
                    drawing.words(x + side, TOP - 11, name, "end" if side < 0 else "start")
                )

    def level(self, value: float, colour: Colour) -> None:
        y = self.at(value)
        self.shapes.append(drawing.line(LEFT, y, RIGHT, y, colour, 1.5, dashed=colour == "second"))

    def line(self, values: Mapping[int, float | None], name: str, colour: Colour = "data") -> None:
        """Broken where a look was not made, or has no value."""
        made = {
            look: (self.x(look), self.at(value))
            for look, value in values.items()
            if value is not None
        }
        is_main = colour == "data"
        for a, b in pairwise(one["look"] for one in self.epoch.numbered):
            if a in made and b in made:
                self.shapes.append(drawing.line(*made[a], *made[b], colour, 2 if is_main else 1))
        for one in self.epoch.looks:
            value = values[one["look"]]
            if value is None:
                self._sign(one, "?", f"{name} none")
                continue
            x, y = made[one["look"]]
            shown = _e_value(value) if self.is_log else formats.score(value)
            title = one_line(f"look {_named(one)}: {name} {shown}")
            if is_main and self.alarm is not None and one["look"] == self.alarm["look"]:
                self.shapes.append(
                    drawing.polygon(
                        ((x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)), "second", title
                    )
                )
            else:
                self.shapes.append(drawing.circle(x, y, 4 if is_main else 2.5, colour, title))

    def _sign(self, look: Line, sign: str, why: str) -> None:
        title = one_line(f"look {_named(look)}: {why}")
        self.shapes.append(
            drawing.words(self.x(look["look"]), BOTTOM - 6, sign, "middle", title=title)
        )

    def ends(self, labels: Sequence[tuple[float, str]]) -> None:
        """Words at the right edge, none over another."""
        above = math.inf
        for value, text in sorted(labels):
            above = min(above - FONT_SIZE, self.at(value))
            self.shapes.append(drawing.words(RIGHT + 6, above + FONT_SIZE / 3, text))

    def drawing(self, title: str) -> Drawing:
        words = "Its figures are in the tables of this page."
        return Drawing(one_line(title), words, BOTTOM + 46, tuple(self.shapes), WIDTH)


class LedgerWriter:
    """What a panel's ledger says in evidence packs, and its plan: `change`, what is planned, in
    words; `policy` and `locked_at` of its gate.
    """

    def __init__(self, history: History, plan: Mapping[str, Any]) -> None:
        baseline = history.baseline or {}
        looks = history.looks
        epoch = history.epoch
        self._last = looks[-1] if looks else baseline
        self._history = history
        alarms = list(self._alarms())
        changed = {}  # the last look with evidence of any change
        for look in looks:
            level = alarm_level(len(look["changed"]), baseline["alpha"])
            for name, change in look["changed"].items():
                if change["e"] >= level:
                    changed[name] = {**change, "look": look["look"]}
        named, before = (
            (line.get("watched") or {}).get("stated") for line in (self._last, baseline)
        )
        stated = (named, before) if looks and named != before else None
        is_alarmed = any(one["epoch"] == epoch for one in alarms) or changed or stated
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
            "is_quiet": looks and not is_alarmed,
            "say": lambda name: "\n".join(self.said(texts()["panel"][name])),
            "say_alarm": lambda alarm: " ".join(
                rendered(texts()["panel"]["alarm"], {"one": alarm})
            ),
        }

    def said(self, template: str) -> list[str]:
        return rendered(template, self._values)

    @property
    def runs(self) -> list[str]:
        """Folders below the panel's: of the last look, else of the baseline's last repeat."""
        return [
            run["folder"]
            for run in [self._last, *self._last.get("repeats", ())][-1].get("runs", ())
        ]

    def _alarms(self) -> Iterator[Line]:
        """Each that was raised in an epoch, as its last look says it, with the notes of the
        epoch since.
        """
        raised: dict[tuple[int, str], list[Line]] = {}
        for look in self._history.of_kind(LOOK):
            if look["alarm"]:
                raised.setdefault((look["epoch"], look["alarm"]["what"]), []).append(look)
        for (epoch, _), looks in raised.items():
            since = [
                one for one in self._history.of_kind(NOTE) if one["number"] > looks[0]["number"]
            ]
            notes = [one for one in since if one["epoch"] == epoch]
            yield {**looks[-1]["alarm"], "epoch": epoch, "notes": notes}


def evidence_for(purpose: str, folder: Path, *, as_page: bool) -> str:
    """What a committee asks for (PACKS), answered from the ledger and the last look's runs;
    Markdown, or a page. Raises PrerequisiteError: the ledger was changed; a run that it names has
    no result.
    """
    history = Ledger(folder).intact()
    planned = (load_mapping(folder / PANEL_FILE, "`monitor:`").get("monitor") or {}).get(
        "change"
    ) or {}
    plan: dict[str, Any] = {"change": planned.get("description")}
    # where it cannot be read, or is not the one of the baseline, it is not the plan
    with suppress(ConfigError):
        policy = load_policy(Path(planned["policy"])) if planned else None
        if policy is not None and policy.sha256 == (history.baseline or {}).get("policy_sha256"):
            plan["policy"] = policy
    if "policy" in plan:
        plan["locked_at"] = plan["policy"].locked_at
    panel = LedgerWriter(history, plan)
    pack = evidence_of_panel(purpose, panel.said, [folder / run for run in panel.runs])
    return pack_page(pack) if as_page else pack_markdown(pack)
