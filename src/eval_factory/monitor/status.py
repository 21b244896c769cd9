"""What a panel's ledger says on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eval_factory.core import formats
from eval_factory.core.formats import counted
from eval_factory.core.tables import Table, screen
from eval_factory.monitor.course import HARM
from eval_factory.monitor.detector import alarm_level
from eval_factory.monitor.ledger import CHANGE, NOTE, History, Line
from eval_factory.monitor.measured import SHARES, STATED

SHOWN_NOTES = 5


def status_lines(name: str, history: History) -> list[str]:
    """Of a whole panel: baseline, limits with their last look, alarm, what goes on, notes."""
    baseline, looks, lines = history.baseline, history.looks, history.lines
    if baseline is None:
        return [f"{name}: no baseline yet"]
    runs, model = counted(len(baseline["repeats"]), "run"), baseline["target"]["model"]
    found = [f"{name}: {state_of(history)}", f"baseline of {baseline['at']}: {runs} of {model} ({baseline['why']})"]
    found += screen(limits_table(baseline, looks))
    if looks:
        found += [evidence_of(baseline, looks[-1]), *watched_lines(baseline, looks[-1])]
    if history.begun is not None:
        found.append(f"look {history.begun['look']} was begun at {history.begun['at']} and has not ended")
    changes, notes = history.of_kind(CHANGE), history.of_kind(NOTE)[-SHOWN_NOTES:]
    found += [f"change {one['change']}, {one['at']}: {one['new']['model']}: {one['outcome']}" for one in changes]
    found += [f"note of {one['by']}, {one['at']}: {one['text']}" for one in notes]
    return [*found, f"last line of the ledger: {len(lines)}, {history.head}"]


def state_of(history: History) -> str:
    """In a few words."""
    baseline, looks = history.baseline, history.looks
    if baseline is None or not looks:
        return "baseline made, no look yet"
    made = f"{len(looks)} of {counted(baseline['looks'], 'look')} made, the last at {looks[-1]['at']}"
    return f"{'in control' if history.alarm is None else f'ALARM: {alarm_words(baseline, history.alarm)}'}; {made}"


def alarm_words(baseline: Line, alarm: Line) -> str:
    """`pubmed_qa is 8.1 points worse, since about look 20 (alarm of look 23)`."""
    since = f", since about look {alarm['since']}" if alarm["since"] is not None else ""
    of_look = f" (alarm of look {alarm['look']})"
    if alarm["what"] != HARM:
        return f"{alarm['what']}: {', '.join(alarm['names'])} changed{since}{of_look}"
    scales = {one["name"]: one["scale"] for one in baseline["limits"]}
    drops = [f"{name} is {drop_words(scales[name], alarm['drops'][name])} worse" for name in alarm["names"]]
    return ", ".join(drops) + since + of_look


def drop_words(scale: Sequence[float], drop: float | None) -> str:
    """Of shares in points."""
    if drop is None:
        return "an unknown amount"
    return f"{formats.points(drop)} points" if list(scale) == [0, 1] else formats.significant(drop, 3)


def limits_table(baseline: Line, looks: Sequence[Line]) -> Table:
    """A row each limit: its baseline, what it may lose, the last look."""
    last = {one["name"]: one for one in looks[-1]["limits"]} if looks else {}
    rows = []
    for one in baseline["limits"]:
        now = last.get(one["name"])
        rows.append(
            [
                one["name"],
                str(one["instances"]),
                formats.percent(one["flip_rate"]),
                formats.short(one["baseline"]),
                formats.short(one["max_drop"]),
                formats.short(now["value"], missing="-") if now else "-",
                formats.significant(now["e"], 3) if now else "-",
            ]
        )
    head = ("limit", "n", "flips", "baseline", "max_drop", "last look", "e-value")
    return Table(head, rows, 6)


def evidence_of(baseline: Line, last: Line) -> str:
    needed = 1 / baseline["harm_alpha"]
    return f"evidence of a drop beyond a limit: {formats.significant(last['e'], 3)}; an alarm at {needed:g}"


def watched_lines(baseline: Line, last: Line) -> Iterator[str]:
    """What is watched beside the scores, before and now, and what seems to have changed."""
    then, now = baseline["watched"], last["watched"]
    shares = [f"{name} {formats.percent(now[name])} (baseline {formats.percent(then[name])})" for name in SHARES]
    yield f"of the answers: {', '.join(shares)}"
    length = f"{formats.decimals(now['length'], 1)} words (baseline {formats.decimals(then['length'], 1)})"
    latency = (
        f"{formats.seconds(now['latency'], missing='-')} (baseline {formats.seconds(then['latency'], missing='-')})"
    )
    yield f"mean length {length}; median latency {latency}"
    if now[STATED] != then[STATED]:
        models = [", ".join(one[STATED]) or "none" for one in (now, then)]
        yield f"THE ANSWERS NAME ANOTHER MODEL: {models[0]} (baseline {models[1]})"
    level = alarm_level(len(last["changed"]), baseline["alpha"])
    for name, one in last["changed"].items():
        if one["e"] >= level:
            yield f"something changed in {name}, since about look {one['since']} (for the better or the worse)"


def power_lines(baseline: Line) -> Iterator[str]:
    """What such a panel can find, and how many runs its baseline needs."""
    flips = {one["name"]: one["flip_rate"] for one in baseline["limits"]}
    has, most, lacking = len(baseline["repeats"]), 0, []
    for name, one in baseline["power"].items():
        flip = formats.percent(flips[name])
        yield f"{name}: {flip} of its answers flip between two runs; found: {_finds(one['finds'])}"
        most = max(most, one["needed"] or 0)
        if one["needed"] is None:
            lacking.append(f"{name} ({formats.points(one['drop'])} points)")
    if left_out := [f"{one['left_out']} of {one['name']}" for one in baseline["limits"] if one["left_out"]]:
        yield f"left out, for a run of the baseline has no value of them: {', '.join(left_out)}"
    if lacking:
        yield f"not found in 95 % of panels however long the baseline is: {', '.join(lacking)}: take a larger `size`"
    if most > has:
        yield (
            f"the baseline needs {counted(most, 'run')} to find 10 points in 95 % of panels, and it has {has}: set"
            f" baseline.repeats to {most} before the first look; the runs that are there are kept"
        )
    elif most:
        yield f"the {counted(has, 'run')} of the baseline are enough: {most} are needed"


def _finds(found: Sequence[Mapping[str, Any]]) -> str:
    """`5 points in 41 % of panels, 10 points in 98 % (after 5 looks)`."""
    words = []
    for one in found:
        after = "" if one["weeks"] is None else f" (after {counted(one['weeks'], 'look')})"
        words.append(f"{formats.points(one['drop'])} points in {formats.percent(one['share'], 0)}{after}")
    return ", ".join(words)


def assumed_lines(found: Mapping[float, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Before anything is asked: what such a panel finds, by how many answers flip."""
    yield "\n# what the panel finds by its last look, of a drop after two fifths of them; 80 % right answers assumed"
    for rate, each in found.items():
        yield f"#   where {formats.percent(rate, 0)} of the answers flip between two runs: {_finds(each)}"
