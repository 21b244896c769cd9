#!/usr/bin/env python3
"""Measures how often a monitor gives a false alarm in a year, and how often it finds a drop.

    python benchmarks/monitor_alarms.py [--years 1000]

A monitor asks a panel of questions every week (a look), and compares the answers with those of a
baseline, which has several runs. A row of the table is a panel. It has 100 instances, an accuracy
of 0.8 and r 10 %, unless its name states something else: r is the share of instances whose answers
differ between two runs. The probabilities that instances are answered right have a beta
distribution. Instances may be in clusters (`fives`, `twenties`): which answers differ is then
correlated within a cluster, with 0.3, or with 0.9 if there are few clusters.

The columns are, in per cent of the years:

- False alarms: of an unchanged model with a `max_drop` of 0 and of 2 points, and of a model that is
  worse by just 2 points. The baseline has five runs, or B runs.
- `found`: the years that find a drop of 10 points in one task from week 20 on. The baseline begins
  with five runs. It gets as many further runs as the program recommends, until the program says
  that they are enough (`B recommended`; in brackets: how many of 20 baselines got that number;
  `none`: the program says that no number is enough). `weeks` is the median time until the alarm.

A second table shows how often the line "something changed" appears if nothing has changed. The exit
code is 1 if more than 5 % of the years have a false alarm, or if less than 95 % find the drop.
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

LOOKS = 52  # the number of looks in a year
ALPHA = 0.05  # the permitted probability of a false alarm in a year
CHUNK = 100  # the number of years that are simulated at the same time
BASELINES = 20  # the number of baselines for each row of `power`
FIRST_RUNS = 5  # the number of runs with which a baseline begins
UNEQUAL = (20, 10, *[5] * 10, *[1] * 20)


class Panel(NamedTuple):
    """A panel. A unit is a cluster of instances, or an instance that is in no cluster."""

    sizes: Sequence[int] = (1,) * 100  # the number of instances in each unit
    flips: float = 0.1  # the share of instances whose answers differ between two runs
    accuracy: float = 0.8
    correlation: float = 0.0  # the correlation within a unit of which answers differ between runs
    repeats: int = 5  # the number of runs of the baseline
    rated: bool = False  # True if a wrong answer has one of the four ratings below the best
    missing: float = 0.0  # the share of instances without a value at a look
    tasks: int = 1
    failing: int = 0  # the number of units that can fail as a whole: the first units
    failure: float = 0.1  # the share of the runs and looks in which such a unit fails
    part: float = 1.0  # the share of a unit's instances that are wrong if the unit fails


def rows() -> Iterator[tuple[str, Panel]]:
    """Yield (name, panel) of each row."""
    for count in (100, 300):
        for size in (1, 5):
            for flips in (0.02, 0.1, 0.3):
                # With an accuracy of 0.97, at most 6 % of the answers can differ.
                for accuracy in (0.5, 0.8, 0.97) if flips <= 0.05 else (0.5, 0.8):
                    clusters = " in fives" if size > 1 else ""
                    name = f"{count}{clusters}, r {100 * flips:.0f} %, accuracy {accuracy}"
                    sizes = (size,) * (count // size)
                    yield name, Panel(sizes, flips, accuracy, 0.3 if size > 1 else 0.0)
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
    """Yield the rows with units that fail as a whole.

    The instances of all other units are always answered right, unless the name states a share.
    """
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
    """The answers of one task in many panels with the same properties, which are drawn at once.

    The letter n in shapes is the number of instances of a panel.
    """

    def __init__(self, panel: Panel, count: int, rng: np.random.Generator) -> None:
        """Draw, for `count` panels, the probability that each instance is answered right."""
        self.units = Units(np.repeat(np.arange(len(panel.sizes)), panel.sizes))
        self._rng = rng
        self._panel = panel
        number_in_unit = np.concatenate([np.arange(size) for size in panel.sizes])
        size_of_unit = np.array(panel.sizes)[self.units.numbers]
        # True for the instances that are answered wrong if their unit fails as a whole
        self._can_fail = (self.units.numbers < panel.failing) & (
            number_in_unit < panel.part * size_of_unit
        )
        # With equal probabilities p, the answers of two runs would differ in 2 p (1 - p) of the
        # instances. This share is 2 p (1 - p) w / (w + 1) if the probabilities have a beta
        # distribution with the mean p and the weight w (the sum of its two parameters). Find the
        # weight for which the share is `flips`.
        surplus = 2 * panel.accuracy * (1 - panel.accuracy) - panel.flips
        shape = (count, sum(panel.sizes))
        self._chance: Any = np.full(shape, panel.accuracy)
        if surplus > 1e-9:
            weight = panel.flips / surplus
            self._chance = rng.beta(panel.accuracy * weight, (1 - panel.accuracy) * weight, shape)

    def draw(self, panels: Any, fall: float = 0.0) -> Any:
        """Draw the values of a run of some panels, in the shape (panels, n).

        Args:
            panels: the numbers of the panels.
            fall: the amount by which the expected mean value of each panel is lower than before.
        """
        # the difference between the value of a right answer and the mean value of a wrong answer
        worth = 0.625 if self._panel.rated else 1.0
        chance = self._chance[panels] * (
            1 - fall / worth / self._chance[panels].mean(axis=1, keepdims=True)
        )
        # An instance is answered right if its random number is below its probability.
        number = self._rng.random(chance.shape)
        if self._panel.correlation:
            common = self._rng.random((len(chance), len(self.units.sizes)))[:, self.units.numbers]
            is_common = self._rng.random(number.shape) < self._panel.correlation**0.5
            number = np.where(is_common, common, number)
        if self._panel.failing:
            fails = self._rng.random((len(chance), len(self.units.sizes))) < self._panel.failure
            number = np.where(fails[:, self.units.numbers] & self._can_fail, 1.0, number)
        if not self._panel.rated:
            return (number < chance).astype(float)
        # The four ratings of wrong answers, 3/4, 2/4, 1/4 and 0, are equally likely.
        rest = (number - chance) / np.maximum(1 - chance, 1e-12)
        return np.where(rest < 0, 1.0, (3 - np.floor(4 * np.clip(rest, 0, 0.999))) / 4)

    def runs(self, count: int) -> Any:
        """Draw runs of the first panel, in the shape (count, n)."""
        return np.concatenate([self.draw([0]) for _ in range(count)])

    def repeated(self, count: int) -> Answers:
        """Return `count` copies of the first panel, for as many years."""
        copies = Answers(self._panel, count, self._rng)
        copies._chance = np.repeat(self._chance[:1], count, axis=0)
        return copies

    def look(self, panels: Any, fall: float) -> Any:
        """Draw the values of a look; nan for a missing value. The arguments are those of `draw`."""
        values = self.draw(panels, fall)
        return np.where(self._rng.random(values.shape) < self._panel.missing, np.nan, values)


class _Fall(NamedTuple):
    """A drop of the mean value of tasks."""

    size: float
    start: int = 1  # the first look with the drop
    alone: bool = False  # True if only the first task drops

    def at(self, look: int, task: int) -> float:
        """Return the drop of a task at a look."""
        if look < self.start or (self.alone and task):
            return 0.0
        return self.size


def alarms_after(tasks: Sequence[Answers], runs: Any, max_drop: float, fall: _Fall) -> Any:
    """Return each year's look with the first alarm; 0 if there is no alarm.

    Args:
        tasks: the answers of each task; a panel is a year.
        runs: the runs of the baseline of each task, in the shape (years, B, n).
        max_drop: the greatest permitted drop.
        fall: the real drop.
    """
    detectors = []
    for task, baseline in zip(tasks, runs, strict=True):
        detectors.append(EDetectors(baseline, task.units, max_drop, LOOKS))
    first = np.zeros(len(runs[0]), int)
    quiet_years: Any = np.arange(len(first))  # the years without an alarm so far
    for look in range(1, LOOKS + 1):
        evidence = []
        for number, (detector, task) in enumerate(zip(detectors, tasks, strict=True)):
            evidence.append(detector.add_look(task.look(quiet_years, fall.at(look, number))))
        has_alarm = np.mean(evidence, axis=0) >= 1 / ALPHA
        first[quiet_years[has_alarm]] = look
        if has_alarm.any():
            quiet_years = quiet_years[~has_alarm]
            detectors = [detector.for_panels(~has_alarm) for detector in detectors]
        if not len(quiet_years):
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
    """Simulate years, and return each year's look with the first alarm; 0 if there is no alarm.

    Args:
        panel: the panel.
        years: the number of years.
        max_drop: the greatest permitted drop.
        fall: the real drop.
        start: the first look with the drop.
        alone: True if only the first task drops.
        seed: the seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    first_looks = []
    for begin in range(0, years, CHUNK):
        count = min(CHUNK, years - begin)
        tasks = [Answers(panel, count, rng) for _ in range(panel.tasks)]
        all_panels = np.arange(count)
        runs = []
        for task in tasks:
            runs_of_task = [task.draw(all_panels) for _ in range(panel.repeats)]
            runs.append(np.stack(runs_of_task, axis=1))
        first_looks.append(alarms_after(tasks, runs, max_drop, _Fall(fall, start, alone)))
    return np.concatenate(first_looks)


def false_alarms(panel: Panel, years: int) -> list[float]:
    """Return the share of years with a false alarm, in three situations.

    The situations are: unchanged, with a `max_drop` of 0 and of 2 points; and worse by 2 points,
    with a `max_drop` of 2 points.
    """
    shares = []
    for max_drop, fall in ((0.0, 0.0), (0.02, 0.0), (0.02, 0.02)):
        has_alarm = first_alarms(panel, years, max_drop, fall) > 0
        shares.append(float(has_alarm.mean()))
    return shares


def advised(panel: Panel, seed: int) -> tuple[list[Answers], list[Any] | None]:
    """Draw a panel with a baseline that has as many runs as the program recommends.

    Returns:
        The tasks of the panel; and the runs of each task's baseline, or None if the program says
        that no number of runs is enough.
    """
    tasks = []
    for number in range(panel.tasks):
        tasks.append(Answers(panel, 1, np.random.default_rng([seed, number])))
    runs = [task.runs(FIRST_RUNS) for task in tasks]
    while True:
        limits = []
        for task, runs_of_task in zip(tasks, runs, strict=True):
            limits.append(LimitBaseline(runs_of_task, task.units.numbers, 0.02, LOOKS))
        needed = [recommendation.repeats for recommendation in needed_repeats(limits, ALPHA, seed)]
        if None in needed:
            return tasks, None
        lacking = max(repeats or 0 for repeats in needed) - len(runs[0])
        if lacking <= 0:
            return tasks, runs
        longer_runs = []
        for task, runs_of_task in zip(tasks, runs, strict=True):
            longer_runs.append(np.concatenate([runs_of_task, task.runs(lacking)]))
        runs = longer_runs


@cache
def power(panel: Panel, years: int) -> tuple[Counter[int | None], float, float]:
    """Measure how often a drop of 10 points is found with the recommended number of runs.

    Returns:
        The number of baselines by their number of runs (None: no number is enough); the share of
        the years that find the drop; and the median week of the alarm after the drop. The last two
        are nan if no baseline has enough runs.
    """
    counts = Counter[int | None]()
    first_looks = list[Any]()
    years_of_baseline = max(1, years // BASELINES)
    for seed in range(BASELINES):
        tasks, runs = advised(panel, seed)
        if runs is None:
            counts[None] += 1
            continue
        counts[len(runs[0])] += 1
        tasks_by_year = [task.repeated(years_of_baseline) for task in tasks]
        baselines = [np.repeat(of_task[None], years_of_baseline, axis=0) for of_task in runs]
        fall = _Fall(0.1, start=20, alone=True)
        first_looks.append(alarms_after(tasks_by_year, baselines, 0.02, fall))
    if not first_looks:
        return counts, float("nan"), float("nan")
    first = np.concatenate(first_looks)
    is_found = first >= 20  # An earlier alarm would be false.
    weeks = np.sort(np.where(is_found, first - 19, LOOKS + 1))
    return counts, float(is_found.mean()), float(weeks[len(weeks) // 2])


def changes(panel: Panel, years: int) -> float:
    """Return the share of years in which "something changed" appears, although nothing changes."""
    rng = np.random.default_rng(3)
    alarms = 0
    tasks = [Answers(panel, years, rng) for _ in range(panel.tasks)]
    all_years = np.arange(years)
    totals = []  # for each task: the total of each run and look, in the shape (runs, years)
    for task in tasks:
        runs = [task.draw(all_years).sum(axis=1) for _ in range(panel.repeats + LOOKS)]
        totals.append(np.array(runs))
    level = alarm_level(ALPHA, tests=len(tasks))
    for year in range(years):
        detectors = []
        for totals_of_task in totals:
            baseline = totals_of_task[: panel.repeats, year]
            detectors.append(ChangeDetector(baseline, LOOKS, seed=year))
        weeks = np.array([of_task[panel.repeats :, year] for of_task in totals]).T.tolist()
        if _has_alarm(detectors, weeks, level):
            alarms += 1
    return alarms / years


def _has_alarm(
    detectors: Sequence[ChangeDetector], weeks: Sequence[Sequence[float]], level: float
) -> bool:
    """Return True if a detector reaches the level in any week; a week has each task's total."""
    for week in weeks:
        evidence = []
        for detector, total in zip(detectors, week, strict=True):
            evidence.append(detector.add_look(total))
        if max(evidence) >= level:
            return True
    return False


# the rows of the second table
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
        # The baselines of `power` have as many runs as the program recommends, so the number of
        # runs in the row's name does not matter.
        counts, share, weeks = power(panel._replace(repeats=FIRST_RUNS), 2 * years)
        advice = ", ".join(
            f"{'none' if runs is None else runs} ({counts[runs]})"
            for runs in sorted(counts, key=lambda runs: runs or 99)
        )
        shown = "".join(f"{100 * alarm_share:.1f} | " for alarm_share in alarms)
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
