#!/usr/bin/env python3
"""Measures how often a panel that is looked at every week gives a false alarm in a year, and how
often it finds a drop.

    python benchmarks/monitor_alarms.py [--years 1000]

A row is a panel of 100 instances, r 10 %, accuracy 0.8, where its name says nothing else: their
chances to be right are beta-distributed so that two runs differ in a share r of them; in clusters
(fives, twenties) with a correlation of 0.3, with 0.9 where there are few. False alarms: unchanged
with `max_drop` 0 and 2 points, and down by just 2 points, after five runs of the baseline or B.
Power: one task 10 points worse from week 20, after as many runs as the program recommends: it sees
five runs of a baseline, which gets as many more as it says, until it says that they are enough.
In brackets how many of 20 baselines got that number; `none`: it says that no number is enough.
Weeks is the median. Then the line that says "something changed", where nothing does.
Exits 1 if more than 5 % of the years have a false alarm, or less than 95 % find the drop.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from eval_factory.monitor.detector import (
    ChangeDetector,
    EDetectors,
    LimitBaseline,
    Units,
    alarm_level,
)
from eval_factory.monitor.simulation import needed_repeats

LOOKS = 52
ALPHA = 0.05
CHUNK = 100
BASELINES = 20
FIRST_RUNS = 5
UNEQUAL = (20, 10, *[5] * 10, *[1] * 20)


class Panel(NamedTuple):
    sizes: Sequence[int] = (1,) * 100
    flips: float = 0.1
    accuracy: float = 0.8
    correlation: float = 0.0
    """The correlation, within a unit, of which answers differ between runs."""
    repeats: int = 5
    rated: bool = False
    """A wrong answer is one of four ratings below the best."""
    missing: float = 0.0
    tasks: int = 1
    failing: int = 0
    """So many units, the first ones, fail as a whole."""
    failure: float = 0.1
    """The share of the runs and looks in which they fail."""
    part: float = 1.0
    """This share of a unit's instances is wrong then."""


def rows() -> Iterator[tuple[str, Panel]]:
    for count in (100, 300):
        for size in (1, 5):
            for flips in (0.02, 0.1, 0.3):
                for accuracy in (0.5, 0.8, 0.97) if flips <= 0.05 else (0.5, 0.8):
                    name = (
                        f"{count}{' in fives' if size > 1 else ''}, r {100 * flips:.0f} "
                        f"%, accuracy {accuracy}"
                    )
                    yield (
                        name,
                        Panel((size,) * (count // size), flips, accuracy, 0.3 if size > 1 else 0.0),
                    )
    yield "20, 10, ten fives, 20 alone", Panel(UNEQUAL, correlation=0.3)
    yield "20, 10, ten fives, 20 alone, r 30 %", Panel(UNEQUAL, 0.3, correlation=0.3)
    yield "80, 20 alone, r 30 %", Panel((80, *[1] * 20), 0.3, correlation=0.9)
    yield "5 twenties, r 30 %", Panel((20,) * 5, 0.3, correlation=0.9)
    yield "8 twenties, r 30 %", Panel((20,) * 8, 0.3, correlation=0.9)
    yield "20 alone, r 30 %", Panel((1,) * 20, 0.3)
    yield "ratings 1 to 5", Panel(rated=True)
    yield "ratings, fives, r 30 %", Panel((5,) * 20, 0.3, correlation=0.3, rated=True)
    yield "all right", Panel(flips=0.0, accuracy=1.0)
    yield "999 of 1,000 right", Panel(flips=0.001998, accuracy=0.999)
    yield "r 30 %, B 2", Panel(flips=0.3, repeats=2)
    yield "r 30 %, B 10", Panel(flips=0.3, repeats=10)
    yield "r 30 %, B 20", Panel(flips=0.3, repeats=20)
    yield "5 % missing", Panel(missing=0.05)
    yield "five tasks", Panel(tasks=5)
    yield "five tasks, fives, r 30 %", Panel((5,) * 20, 0.3, correlation=0.3, tasks=5)
    yield from failing_rows()


def failing_rows() -> Iterator[tuple[str, Panel]]:
    """Sources that fail as a whole, beside others that are always right where nothing is said."""
    alone = Panel((25, *[1] * 75), 0.0, 1.0, failing=1)
    for repeats in (5, 10, 20):
        yield f"25 of 100 fail as a whole in 10 %, B {repeats}", alone._replace(repeats=repeats)
    yield "25 of 100 fail as a whole in 5 %, B 10", alone._replace(failure=0.05, repeats=10)
    yield "30 of 100 fail as a whole in 10 %, B 5", alone._replace(sizes=(30, *[1] * 70))
    yield "45 of 150 fail as a whole in 10 %, B 5", alone._replace(sizes=(45, *[1] * 105))
    two = Panel((25, 25, *[1] * 50), 0.095, 0.95, failing=2)
    for repeats in (5, 10):
        yield (
            f"two of 25 fail as a whole in 10 %, the rest 95 % right, B {repeats}",
            two._replace(repeats=repeats),
        )
    three = Panel((25, 25, 25, *[1] * 75), 0.0, 1.0, failing=3, part=0.8)
    yield "three of 25 in 150, 80 % of each fail as a whole in 10 %, B 5", three
    fives = Panel((25, *[5] * 15), 0.0, 1.0, failing=1, failure=0.15)
    yield "25 fail as a whole in 15 %, beside fifteen of 5, B 5", fives


ROWS = dict(rows())


class Answers:
    """The answers of one task of so many panels, side by side."""

    def __init__(self, panel: Panel, count: int, rng: np.random.Generator) -> None:
        self.units = Units(np.repeat(np.arange(len(panel.sizes)), panel.sizes))
        self._rng = rng
        self._panel = panel
        within = np.concatenate([np.arange(size) for size in panel.sizes])
        large = np.array(panel.sizes)[self.units.numbers]
        self._fails_in = (self.units.numbers < panel.failing) & (within < panel.part * large)
        apart = 2 * panel.accuracy * (1 - panel.accuracy) - panel.flips
        shape = (count, sum(panel.sizes))
        self._chance: Any = np.full(shape, panel.accuracy)
        if apart > 1e-9:
            more = panel.flips / apart
            self._chance = rng.beta(panel.accuracy * more, (1 - panel.accuracy) * more, shape)

    def draw(self, which: Any, fall: float = 0.0) -> Any:
        """Return the scores of the panels `which`, in the shape (which, n), down in each one's mean
        by just `fall`.
        """
        worth = 0.625 if self._panel.rated else 1.0  # the best answer's, over another one's
        chance = self._chance[which] * (
            1 - fall / worth / self._chance[which].mean(axis=1, keepdims=True)
        )
        at = self._rng.random(chance.shape)
        if self._panel.correlation:
            common = self._rng.random((len(chance), len(self.units.sizes)))[:, self.units.numbers]
            at = np.where(self._rng.random(at.shape) < self._panel.correlation**0.5, common, at)
        if self._panel.failing:
            fails = self._rng.random((len(chance), len(self.units.sizes))) < self._panel.failure
            at = np.where(fails[:, self.units.numbers] & self._fails_in, 1.0, at)
        if not self._panel.rated:
            return (at < chance).astype(float)
        rest = (at - chance) / np.maximum(1 - chance, 1e-12)
        return np.where(rest < 0, 1.0, (3 - np.floor(4 * np.clip(rest, 0, 0.999))) / 4)

    def runs(self, count: int) -> Any:
        """Return the runs of the first panel: (count, n)."""
        return np.concatenate([self.draw([0]) for _ in range(count)])

    def repeated(self, count: int) -> Answers:
        """The first panel, in so many years side by side."""
        found = Answers(self._panel, count, self._rng)
        found._chance = np.repeat(self._chance[:1], count, axis=0)
        return found

    def look(self, which: Any, fall: float) -> Any:
        found = self.draw(which, fall)
        return np.where(self._rng.random(found.shape) < self._panel.missing, np.nan, found)


class _Fall(NamedTuple):
    size: float
    start: int = 1  # the look from which on it is there
    alone: bool = False  # only the first task falls

    def at(self, look: int, task: int) -> float:
        if look < self.start or (self.alone and task):
            return 0.0
        return self.size


def alarms_after(tasks: Sequence[Answers], runs: Any, max_drop: float, fall: _Fall) -> Any:
    """Return each year's look with the first alarm, 0 if there is none; `runs`: each task's runs
    of its baseline, (years, B, n).
    """
    detectors = [
        EDetectors(each, one.units, max_drop, LOOKS) for each, one in zip(runs, tasks, strict=True)
    ]
    first = np.zeros(len(runs[0]), int)
    still: Any = np.arange(len(first))
    for look in range(1, LOOKS + 1):
        evidence = []
        for at, (detector, task) in enumerate(zip(detectors, tasks, strict=True)):
            evidence.append(detector.add_look(task.look(still, fall.at(look, at))))
        alarm = np.mean(evidence, axis=0) >= 1 / ALPHA
        first[still[alarm]] = look
        if alarm.any():
            still = still[~alarm]
            detectors = [one.for_panels(~alarm) for one in detectors]
        if not len(still):
            break
    return first


def first_alarms(
    panel: Panel,
    years: int,
    max_drop: float,
    fall: float,
    start: int = 1,
    alone: bool = False,
    seed: int = 1,
) -> Any:
    """Return each year's look with the first alarm, 0 if there is none.

    Args:
        start: the look from which on all tasks are down by `fall`, or the first one `alone`.
    """
    rng = np.random.default_rng(seed)
    found = []
    for begin in range(0, years, CHUNK):
        count = min(CHUNK, years - begin)
        tasks = [Answers(panel, count, rng) for _ in range(panel.tasks)]
        every = np.arange(count)
        runs = [np.stack([one.draw(every) for _ in range(panel.repeats)], axis=1) for one in tasks]
        falls = _Fall(fall, start, alone)
        found.append(alarms_after(tasks, runs, max_drop, falls))
    return np.concatenate(found)


def false_alarms(panel: Panel, years: int) -> list[float]:
    """A year: unchanged with `max_drop` 0 and 2 points, and down by just 2 points."""
    return [
        float((first_alarms(panel, years, *each) > 0).mean())
        for each in ((0.0, 0.0), (0.02, 0.0), (0.02, 0.02))
    ]


def advised(panel: Panel, seed: int) -> tuple[list[Answers], list[Any] | None]:
    """The tasks of one panel, and of each the runs of its baseline when the program says that they
    are enough; None if it says that no number is.
    """
    tasks = [Answers(panel, 1, np.random.default_rng([seed, at])) for at in range(panel.tasks)]
    runs = [one.runs(FIRST_RUNS) for one in tasks]
    while True:
        limits = [
            LimitBaseline(each, one.units.numbers, 0.02, LOOKS)
            for each, one in zip(runs, tasks, strict=True)
        ]
        needed = [one.repeats for one in needed_repeats(limits, ALPHA, seed)]
        if None in needed:
            return tasks, None
        lacking = max(one or 0 for one in needed) - len(runs[0])
        if lacking <= 0:
            return tasks, runs
        runs = [
            np.concatenate([each, one.runs(lacking)]) for each, one in zip(runs, tasks, strict=True)
        ]


@cache
def power(panel: Panel, years: int) -> tuple[Counter[int | None], float, float]:
    """Return how many runs baselines had in the end, the share of the years after them that find a
    drop of 10 points, and their median week. nan: there are none.
    """
    counts = Counter[int | None]()
    found = list[Any]()
    for seed in range(BASELINES):
        tasks, runs = advised(panel, seed)
        if runs is None:
            counts[None] += 1
            continue
        counts[len(runs[0])] += 1
        of_each = max(1, years // BASELINES)
        many = [one.repeated(of_each) for one in tasks]
        baselines = [np.repeat(each[None], of_each, axis=0) for each in runs]
        found.append(alarms_after(many, baselines, 0.02, _Fall(0.1, 20, alone=True)))
    if not found:
        return counts, float("nan"), float("nan")
    first = np.concatenate(found)
    weeks = np.sort(np.where(first >= 20, first - 19, LOOKS + 1))
    return counts, float((first >= 20).mean()), float(weeks[len(weeks) // 2])


def changes(panel: Panel, years: int) -> float:
    """Return the share of years without a change that have an alarm of the line that says so."""
    rng = np.random.default_rng(3)
    alarms = 0
    tasks = [Answers(panel, years, rng) for _ in range(panel.tasks)]
    every = np.arange(years)
    totals = [
        np.array([one.draw(every).sum(axis=1) for _ in range(panel.repeats + LOOKS)])
        for one in tasks
    ]
    for year in range(years):
        lines = [ChangeDetector(one[: panel.repeats, year], LOOKS, seed=year) for one in totals]
        weeks = np.array([one[panel.repeats :, year] for one in totals]).T.tolist()
        alarms += any(
            max([line.add_look(total) for line, total in zip(lines, week, strict=True)])
            >= alarm_level(ALPHA, tests=len(lines))
            for week in weeks
        )
    return alarms / years


CHANGES = (
    "100, r 10 %, accuracy 0.8",
    "100 in fives, r 30 %, accuracy 0.8",
    "999 of 1,000 right",
    "r 30 %, B 2",
    "ratings 1 to 5",
    "five tasks",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--years", type=int, default=1000)
    parser.add_argument("--power-only", action="store_true", help="no false alarms")
    parser.add_argument("--rows", default="", help="only rows whose name contains this text")
    arguments = parser.parse_args()
    years = arguments.years
    wrong = list[str]()
    columns = ["B recommended", "found", "weeks"]
    if not arguments.power_only:
        columns = ["unchanged, 0", "unchanged, 2 points", "down by 2", *columns]
    print(f"| panel | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    chosen = {name: panel for name, panel in ROWS.items() if arguments.rows in name}
    for name, panel in chosen.items():
        alarms = [] if arguments.power_only else false_alarms(panel, years)
        # the baseline of what is found has its own number of runs
        counts, share, weeks = power(panel._replace(repeats=FIRST_RUNS), 2 * years)
        advice = ", ".join(
            f"{'none' if runs is None else runs} ({counts[runs]})"
            for runs in sorted(counts, key=lambda runs: runs or 99)
        )
        shown = "".join(f"{100 * one:.1f} | " for one in alarms)
        found = "- | -" if set(counts) == {None} else f"{100 * share:.1f} | {weeks:.0f}"
        print(f"| {name} | {shown}{advice} | {found} |", flush=True)
        if max(alarms, default=0.0) > 0.05 or share < 0.95:
            wrong.append(name)
    print("\n| something changed, where nothing does | alarms |\n|---|---|")
    for name in CHANGES:
        if name not in chosen:
            continue
        share = changes(ROWS[name], years)
        print(f"| {name} | {100 * share:.1f} |", flush=True)
        if share > 0.05:
            wrong.append(name)
    print("\nNot held:" if wrong else "\nAll held.", *wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
