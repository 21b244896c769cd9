"""Tests after each look at a model whether the model became worse.

A panel is a fixed sample of questions of one or more tasks. An asking asks all of them once, and
has a run folder for each task. The first askings are the repeats of the baseline (messages call
them runs of the baseline); each later asking is a look. A limit is the greatest permitted drop of
the score of a task, or of a group in a task. A watched figure is another number about the answers,
such as their mean length. `alarm_on` names the changes, such as of watched figures, that raise an
alarm too.

The looks after a baseline are tested in their order. The course of a panel is the state of its
tests after these looks (`PanelTests`). The ledger stores the results of the tests; `eval-factory
monitor verify` computes them again.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from eval_factory.core.errors import ConfigError
from eval_factory.monitor import detector, simulation
from eval_factory.monitor.detector import (
    Array,
    ChangeDetector,
    EDetector,
    LimitBaseline,
    alarm_level,
)
from eval_factory.monitor.ledger import Line
from eval_factory.monitor.measurement import (
    STATED_MODELS,
    Load,
    PanelMeasurement,
    measure,
    read_values,
)
from eval_factory.monitor.panel import ANY_CHANGE, Limit
from eval_factory.report.reader import load_result
from eval_factory.scoring.methods import STATISTICS_VERSION

HARM = "harm"  # the kind of an alarm on a drop beyond a limit
MIN_VARIANCE_SHARE_SINCE = 2
"""The first version of the statistics with `detector.MIN_VARIANCE_SHARE`; before, it was 0."""
FIGURES_VERSION = 3
"""The version of all figures in the ledger's lines: of scores, drops, tests and watched figures.

Version 1 has no range of looks and no counts of differing answers. Each version simulates
differently which drops a panel finds.
"""
_Fields = dict[str, Any]  # fields of a line of the ledger, or of an entry in a line


@dataclass(frozen=True)
class Rules:
    """The rules of an alarm, which are fixed with the baseline."""

    alpha: float  # the error rate of the panel: the probability of a false alarm over all looks
    looks: int  # the greatest number of looks
    seed: int  # the seed of the sample, and of the random numbers in the tests of changes
    alarm_on: tuple[str, ...]
    """The names of changes that raise an alarm too, such as `latency`; sorted."""
    statistics: int = STATISTICS_VERSION
    """The version of the statistics that made the baseline; all its looks use this version."""
    figures_version: int = FIGURES_VERSION
    """The version of the figures in the ledger's lines of the baseline and its looks."""

    @classmethod
    def of(cls, source: Mapping[str, Any]) -> Rules:
        """Return the rules of a panel.

        Args:
            source: the panel's section of the configuration, or the ledger's line of a baseline.
                A baseline without version numbers has version 1.
        """
        statistics = STATISTICS_VERSION
        figures_version = FIGURES_VERSION
        if "repeats" in source:  # the line of a baseline
            statistics = source.get("statistics", 1)
            figures_version = source.get("figures_version", 1)
        return cls(
            alpha=float(source["alpha"]),
            looks=source["looks"],
            seed=source["seed"],
            alarm_on=tuple(sorted(source["alarm_on"])),
            statistics=statistics,
            figures_version=figures_version,
        )

    @property
    def min_variance_share(self) -> float:
        """The least variance of a unit of several instances, as in `detector.MIN_VARIANCE_SHARE`.

        With 0, only a panel with few or very unequal units has a least variance (`sigma_of`).
        """
        if self.statistics < MIN_VARIANCE_SHARE_SINCE:
            return 0.0
        return detector.MIN_VARIANCE_SHARE

    @property
    def harm_alpha(self) -> float:
        """The error rate of alarms on drops beyond a limit.

        This is `alpha`, or half of `alpha` if `alarm_on` has names.
        """
        if self.alarm_on:
            return self.alpha / 2
        return self.alpha

    @property
    def other_alpha(self) -> float:
        """The error rate of alarms on each name in `alarm_on`; not used without such names."""
        if self.alarm_on:
            return self.alpha / 2 / len(self.alarm_on)
        return self.alpha

    def seed_of(self, name: str) -> int:
        """Return the seed of the test of a limit or a watched figure, an integer of 32 bits."""
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).hexdigest()
        return int(digest[:8], 16)


class _LimitTests:
    """The tests of one limit, look after look."""

    def __init__(self, limit: Limit, rules: Rules, repeats: Sequence[PanelMeasurement]) -> None:
        """Prepare the tests from the askings of the baseline.

        Raises:
            ConfigError: Fewer than two instances have a value in every run of the baseline.
        """
        self.limit = limit
        self._rules = rules
        self.scale = repeats[0].scales[limit.name]
        self._means: list[float] = []  # the mean value of each look; NaN without any value
        # for each run of the baseline, a dict from its instances to their values
        runs = [repeat.limits[limit.name] for repeat in repeats]
        all_instances = sorted(set().union(*runs))
        self.instances: list[str] = []  # the ids of the instances with a value in every run
        for instance in all_instances:
            values_of_runs = [run.get(instance) for run in runs]  # None without a value
            if None not in values_of_runs:
                self.instances.append(instance)
        self.left_out = len(all_instances) - len(self.instances)  # without a value in a run
        if len(self.instances) < 2:
            raise ConfigError(
                f"{limit.name}: {len(self.instances)} of its instances have a value in every run "
                "of the baseline"
            )
        values = []
        for run in runs:
            values.append([run[instance] for instance in self.instances])
        self.baseline = LimitBaseline(
            values=np.array(values, dtype=float),
            units=self._units(repeats[0].clusters.get(limit.name, {})),
            max_drop=limit.max_drop / self.scale.width,
            looks=rules.looks,
            min_variance_share=rules.min_variance_share,
        )
        self._drop_detector = EDetector(self.baseline)
        self._change_detector = ChangeDetector(
            self.baseline.values.mean(axis=1), rules.looks, rules.seed_of(limit.name)
        )

    def _units(self, clusters: Mapping[str, str]) -> Array:
        """Return the number of each instance's unit; instances of one source are a unit.

        `clusters` is a dict from an instance to its source.
        """
        unit_of_source: dict[str, int] = {}
        units = []
        for instance in self.instances:
            # An instance without a source is a unit of its own; no source begins with a null.
            source = clusters.get(instance, f"\0{instance}")
            next_unit = len(unit_of_source)
            units.append(unit_of_source.setdefault(source, next_unit))
        return np.array(units)

    def add_look(
        self, value_of_instance: Mapping[str, float | None], look_numbers: Sequence[int]
    ) -> tuple[_Fields, _Fields]:
        """Test the next look.

        Args:
            value_of_instance: The values of the instances in this look.
            look_numbers: The numbers of the looks so far; the last is that of this look.

        Returns:
            The ledger's entries for the test of the limit, and for the test of any change. In both
            entries, `e` is the evidence (an e-value); the fields of `DATES` state when the drop or
            the change began.
        """
        # None becomes NaN.
        values = np.array([value_of_instance.get(instance) for instance in self.instances], float)
        present = values[~np.isnan(values)]
        score = None
        mean = math.nan
        mean_for_change = self.baseline.mean  # without any value, assume that nothing changed
        if len(present):
            mean = float(present.mean())
            mean_for_change = mean
            score = self.scale.score_of(mean)
        self._means.append(mean)
        e_of_drop = self._drop_detector.add_look(values)
        e_of_change = self._change_detector.add_look(mean_for_change)
        limit_entry = {
            "name": self.limit.name,
            "value": score,
            "missing": len(values) - len(present),
            "e": e_of_drop,
            **dates_of(self._drop_detector, look_numbers, self._rules),
        }
        change_entry = {
            "e": e_of_change,
            **dates_of(self._change_detector, look_numbers, self._rules),
        }
        return limit_entry, change_entry

    def drop_since(self, look_numbers: Sequence[int], since: int | None) -> float | None:
        """Return the drop of the mean since a look, in the metric's own unit.

        Return None if `since` is None, or if no look since then has a value.

        Args:
            look_numbers: The numbers of the looks so far.
            since: The number of the first look that counts.
        """
        if since is None:
            return None
        later = []
        for number, mean in zip(look_numbers, self._means, strict=True):
            if number >= since and not math.isnan(mean):
                later.append(mean)
        if not later:
            return None
        return (self.baseline.mean - float(np.mean(later))) * self.scale.width


DATES = ("since", "since_range")  # the fields that `dates_of` returns


def dates_of(
    test: EDetector | ChangeDetector, look_numbers: Sequence[int], rules: Rules
) -> dict[str, Any]:
    """Return when a change began, in numbers of looks; the keys are those of `DATES`.

    `since` is the most likely look, and `since_range` has the first and the last likely look. Both
    are None if there is no evidence of a change. Version 1 of the figures has no range.

    A test counts the looks that were made, from 1. `look_numbers` has the number of each of these
    looks, because looks that were not made have numbers too.
    """
    dates: dict[str, Any] = {"since": None}
    if test.since is not None:
        dates["since"] = look_numbers[test.since - 1]
    if rules.figures_version > 1:
        dates["since_range"] = None
        if test.since_range is not None:
            first, last = test.since_range
            dates["since_range"] = [look_numbers[first - 1], look_numbers[last - 1]]
    return dates


class PanelTests:
    """The tests of a panel: of its limits and its watched figures, look by look."""

    def __init__(
        self, rules: Rules, limits: Sequence[Limit], repeats: Sequence[PanelMeasurement]
    ) -> None:
        """Prepare the tests from the askings of the baseline.

        Raises:
            ConfigError: A limit has too few instances.
        """
        self.rules = rules
        self.look_numbers: list[int] = []
        """The numbers of the looks that were made."""
        self._alarm: _Fields | None = None  # the first alarm; all later looks have it too
        self._repeats = repeats
        self.limit_tests = [_LimitTests(limit, rules, repeats) for limit in limits]
        self._figure_tests: dict[str, ChangeDetector] = {}
        for name in rules.alarm_on:
            if name not in (ANY_CHANGE, STATED_MODELS):
                figures = [_figure_as_number(name, repeat) for repeat in repeats]
                test = ChangeDetector(figures, rules.looks, rules.seed_of(name))
                self._figure_tests[name] = test

    def baseline_entries(self) -> _Fields:
        """Return the ledger's entries for the baseline.

        `limits` has an entry for each limit (`_baseline_entry`). `watched` has the means of the
        watched figures, and the models that the answers state.
        """
        watched: _Fields = {}
        for name in self._repeats[0].watched:
            if name != STATED_MODELS:
                watched[name] = self._mean_of(name)
        watched[STATED_MODELS] = sorted(self._stated_models())
        line: _Fields = {
            "limits": [_baseline_entry(test) for test in self.limit_tests],
            "watched": watched,
        }
        if self.rules.statistics > 1:  # lines of version 1 have no number of the version
            line["statistics"] = self.rules.statistics
        return line

    def _mean_of(self, name: str) -> float:
        """Return the mean of a watched figure over the baseline's runs; 0 without any value."""
        figures = []
        for repeat in self._repeats:
            if repeat.watched[name] is not None:
                figures.append(repeat.watched[name])
        return float(np.mean(figures or [0.0]))

    def _stated_models(self) -> set[str]:
        """Return the models that the baseline's answers state."""
        return set(chain.from_iterable(repeat.watched[STATED_MODELS] for repeat in self._repeats))

    def add_look(self, number: int, measurement: PanelMeasurement) -> _Fields:
        """Test the next look, and return the ledger's entries for this look.

        `limits` has the entries of the tests of the limits, and `e` is the mean of their e-values.
        `changed` is a dict from a limit to the entry of its test of any change. `figures` is a dict
        from a watched figure in `alarm_on` to the entry of its test. `watched` has all watched
        figures. `alarm` is None, or a dict: `what` is the kind of the alarm, `look` the look that
        raised it, `names` what it is about, and `since` when the drop or change began. An alarm on
        a drop also has `drops`, a dict from a limit to its drop.
        """
        self.look_numbers.append(number)
        limits = []
        changed = {}
        for limit_test in self.limit_tests:
            values = measurement.limits.get(limit_test.limit.name, {})
            limit_entry, change_entry = limit_test.add_look(values, self.look_numbers)
            limits.append(limit_entry)
            changed[limit_test.limit.name] = change_entry
        # A mean of e-values is an e-value, even if the limits depend on each other (V. Vovk,
        # R. Wang, Annals of Statistics 49:1736-1754, 2021). As long as no limit is broken, the mean
        # reaches 1 / alpha at any look with a probability of at most alpha.
        e = statistics.fmean(limit["e"] for limit in limits)
        figures = {}
        for name, test in self._figure_tests.items():
            evidence = test.add_look(_figure_as_number(name, measurement))
            figures[name] = {"e": evidence, **dates_of(test, self.look_numbers, self.rules)}
        if self._alarm is None:  # otherwise, the first alarm lasts until the next baseline
            self._alarm = (
                self._harm_alarm(number, limits, e)
                or self._change_alarm(number, changed)
                or self._watched_alarm(number, figures, measurement)
            )
        if self._alarm is not None and self._alarm["what"] == HARM:
            # The drops are computed again at each look, from all looks since the alarm's `since`.
            self._alarm = {**self._alarm, "drops": self._drops(self._alarm)}
        line = {
            "limits": limits,
            "e": e,
            "alarm": self._alarm,
            "changed": changed,
            "figures": figures,
            "watched": measurement.watched,
        }
        if self.rules.figures_version > 1:
            line["differ"] = self._differing_answers(measurement)
        return line

    def _differing_answers(self, measurement: PanelMeasurement) -> dict[str, int]:
        """Count the answers that differ from those of the baseline's first run.

        `of` is the number of answers that both the look and the first run have.
        """
        first = self._repeats[0].answers
        counts = {"answers": 0, "of": 0}
        for task, answers in measurement.answers.items():
            answers_before = first.get(task, {})
            for key in answers.keys() & answers_before.keys():
                counts["of"] += 1
                if answers[key] != answers_before[key]:
                    counts["answers"] += 1
        return counts

    def _drops(self, alarm: _Fields) -> dict[str, float | None]:
        """Return the drop of each limit that the alarm names, since the alarm's `since`."""
        drops = {}
        for test in self.limit_tests:
            if test.limit.name in alarm["names"]:
                drops[test.limit.name] = test.drop_since(self.look_numbers, alarm["since"])
        return drops

    def _harm_alarm(self, number: int, limits: Sequence[_Fields], e: float) -> _Fields | None:
        """Return the alarm on a drop beyond a limit; None if this look raises no such alarm."""
        level = 1 / self.rules.harm_alpha
        if e < level:
            return None
        worst = max(limits, key=lambda limit: float(limit["e"]))
        # If the mean of the e-values reaches the level, the greatest e-value does too. `min` is for
        # a mean that was rounded up: the alarm needs at least one name.
        level = min(level, worst["e"])
        names = [limit["name"] for limit in limits if limit["e"] >= level]
        return {"what": HARM, "look": number, "names": names, **_dates_in(worst)}

    def _change_alarm(self, number: int, changed: Mapping[str, _Fields]) -> _Fields | None:
        """Return the alarm on any change of a limit's score; None without such an alarm."""
        if ANY_CHANGE not in self.rules.alarm_on:
            return None
        level = alarm_level(self.rules.other_alpha, tests=len(changed))
        names = [name for name, change in changed.items() if change["e"] >= level]
        if not names:
            return None
        return {"what": ANY_CHANGE, "look": number, "names": names, **_dates_in(changed[names[0]])}

    def _watched_alarm(
        self, number: int, figures: Mapping[str, _Fields], measurement: PanelMeasurement
    ) -> _Fields | None:
        """Return the alarm on a watched figure or on a new model name.

        Return None if this look raises no such alarm.
        """
        for name, figure in figures.items():
            if figure["e"] >= alarm_level(self.rules.other_alpha):
                return {"what": name, "look": number, "names": [name], **_dates_in(figure)}
        if STATED_MODELS not in self.rules.alarm_on:
            return None
        if self._stated_models().issuperset(measurement.watched[STATED_MODELS]):
            return None
        return {"what": STATED_MODELS, "look": number, "names": [STATED_MODELS], "since": number}


def _figure_as_number(name: str, measurement: PanelMeasurement) -> float:
    """Return a watched figure; 0 if it is None, as a latency without any answer is."""
    return float(measurement.watched[name] or 0.0)


def _baseline_entry(test: _LimitTests) -> _Fields:
    """Return the ledger's entry for a limit at the baseline."""
    scale = test.scale
    baseline = test.baseline
    return {
        **asdict(test.limit),
        "metric": scale.metric,
        "scale": [scale.low, scale.high],
        "higher_is_better": scale.higher_is_better,
        "instances": len(test.instances),
        "units": len(set(baseline.units.tolist())),
        "left_out": test.left_out,
        "baseline": scale.score_of(baseline.mean),
        "sigma": baseline.sigma * scale.width,
        "flip_rate": baseline.flip_rate,
    }


def _dates_in(figures: _Fields) -> _Fields:
    """Return the fields `since` and `since_range` of an entry, if the entry has them."""
    return {name: figures[name] for name in DATES if name in figures}


def replayed_tests(
    baseline: Line, folder: Path, looks: Sequence[Line] = (), load: Load = load_result
) -> PanelTests:
    """Return the tests after these looks: all looks are tested again.

    Args:
        baseline: The ledger's line of the baseline.
        folder: The panel's folder.
        looks: The ledger's lines of the looks after the baseline.
        load: Reads the result in a run's folder. It is needed if another version of the reader read
            the answers of a run. By default, the stored values are used.
    """
    limits = limits_of(baseline)

    def measurement_of(asking: Line) -> PanelMeasurement:
        """Return the values of an asking: a repeat of the baseline, or a look."""
        if load is load_result:  # the default: no answer has to be read again
            return read_values(folder / asking["folder"], sha256=asking["values"])
        # The parent of a run's folder is the folder of the asked target.
        return measure((folder / asking["runs"][0]["folder"]).parent, limits, load)

    repeats = [measurement_of(repeat) for repeat in baseline["repeats"]]
    tests = PanelTests(Rules.of(baseline), limits, repeats)
    for line in looks:
        tests.add_look(line["look"], measurement_of(line))
    return tests


def limits_of(baseline: Line) -> list[Limit]:
    """Return the limits of a baseline."""
    names = [limit_field.name for limit_field in fields(Limit)]
    limits = []
    for entry in baseline["limits"]:
        limits.append(Limit(**{name: entry[name] for name in names}))
    return limits


def power_of(tests: PanelTests) -> dict[str, Any]:
    """Return for each limit the drops that it finds in simulations.

    A year is one simulated panel with all its looks. `finds` are the simulated drops, with the
    shares of years in which the panel finds them. `needed` is the number of runs that the baseline
    needs to find the drop `drop` reliably; None if no simulated number of runs is enough.
    """
    baselines = [test.baseline for test in tests.limit_tests]
    findings = simulation.simulated_findings(baselines, tests.rules.harm_alpha)
    needed_runs = simulation.needed_repeats(baselines, tests.rules.harm_alpha)
    power = {}
    for test, drops, needed in zip(tests.limit_tests, findings, needed_runs, strict=True):
        power[test.limit.name] = {
            "finds": [asdict(drop) for drop in drops],
            "needed": needed.repeats,
            "drop": needed.finding.drop,
        }
    return power
