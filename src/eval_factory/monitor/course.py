"""Measures each asking of a panel, and tests after each look whether the model became worse.

A panel is a fixed sample of questions of one or more tasks. An asking asks all of them once, and
has a run folder for each task. The first askings are the repeats of the baseline (messages call
them runs of the baseline); each later asking is a look. A limit is the greatest permitted drop of
the score of a task, or of a group in a task.

The looks after a baseline are tested in their order. The course of a panel is the state of its
tests after these looks (`PanelTests`). The ledger stores the results of the tests; `eval-factory
monitor verify` computes them again.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from eval_factory.analysis.comparison_reasons import (
    InstanceValues,
    Side,
    reasons_against_pair,
    values_of,
)
from eval_factory.core import formats
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line, open_regular, parse_json, write_atomic
from eval_factory.monitor import detector, simulation
from eval_factory.monitor.detector import (
    Array,
    ChangeDetector,
    EDetector,
    LimitBaseline,
    alarm_level,
)
from eval_factory.monitor.ledger import Line
from eval_factory.monitor.panel import ANY_CHANGE, Limit
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.intervals import PROPORTION
from eval_factory.scoring.methods import STATISTICS_VERSION

HARM = "harm"  # the kind of an alarm on a drop beyond a limit
VALUES_FILE = "values.json"
"""The file with the measurement of an asking; the ledger has the hash of the file.

The tests of a look read the measurements of earlier askings from these files. Earlier runs are
measured again only if another version of the answer reader read the answers of a run.
"""
ANSWER_SHARES = ("refused", "unreadable", "empty", "failed")
"""The watched figures that are shares of the answers."""
STATED_MODELS = "stated"  # the watched figure with the names of the models that answers state
WHOLE_UNIT_SINCE = 2
"""The first version of the statistics with the parameter `whole_unit` of `detector.sigma_of`."""
FIGURES_VERSION = 3
"""The version of the figures in a ledger.

Version 1 has no range of looks and no counts of differing answers. Each version simulates
differently which drops a panel finds.
"""
_MAX_NAMED = 12  # the maximum number of names in a message
_HASH_DIGITS = 16  # the digits of the hash of an answer: enough to notice that answers differ
_Fields = dict[str, Any]  # fields of a line of the ledger, or of an entry in a line


@dataclass(frozen=True)
class Scale:
    """The scale that converts a limit's score into a value from 0 (worst) to 1 (best), and back."""

    metric: str  # the score's name in the result
    low: float
    high: float
    higher_is_better: bool

    def value_of(self, score: float) -> float:
        """Return the value from 0 to 1 of a score; a score outside of the scale gets 0 or 1."""
        share = min(max((score - self.low) / (self.high - self.low), 0.0), 1.0)
        if self.higher_is_better:
            return share
        return 1 - share

    def score_of(self, value: float) -> float:
        """Return the score of a value from 0 to 1."""
        share = value
        if not self.higher_is_better:
            share = 1 - value
        return self.low + (self.high - self.low) * share

    @property
    def width(self) -> float:
        """The length of the scale, in the metric's own unit."""
        return self.high - self.low


@dataclass(frozen=True)
class PanelMeasurement:
    """The values of one asking of the panel."""

    limits: Mapping[str, Mapping[str, float | None]]
    """For each limit, a dict from its instances to their values.

    A value is from 0 (worst) to 1 (best); None if the instance has no value.
    """
    clusters: Mapping[str, Mapping[str, str]]
    """For each limit whose task declares sources, a dict from its instances to their sources."""
    watched: _Fields  # the watched figures, such as the mean length of the answers
    scales: Mapping[str, Scale]  # the scale of each limit
    answers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each task, a dict from its instances to hashes of their answers."""


Load = Callable[[Path | str], StoredResult]


def measure(folder: Path, limits: Sequence[Limit], load: Load = load_result) -> PanelMeasurement:
    """Return the values of one asking.

    Args:
        folder: the folder of the asked target, with a run folder for each task.
        limits: the limits of the panel.
        load: reads the result in a run folder.

    Raises:
        PrerequisiteError: A run has no result.
        ConfigError: A limit's metric or group is absent, or its metric has no lowest or no highest
            value.
    """
    stored = {}  # task -> its result
    records = {}  # task -> the records of its instances
    for task in tasks_of(limits):
        stored[task] = load(folder / task)
        records[task] = list(stored[task].result.instances)
    values = {}
    clusters = {}
    scales = {}
    problems = []
    for limit in limits:
        try:
            instances, scale = _limit_values(limit, stored[limit.task], records[limit.task])
        except ConfigError as error:
            problems += error.problems
            continue
        values[limit.name] = _scaled_values(instances, scale)
        scales[limit.name] = scale
        if instances.clusters:
            clusters[limit.name] = dict(sorted(instances.clusters.items()))
    if problems:
        raise ConfigError(problems)
    answers = {}
    for task, records_of_task in records.items():
        answers[task] = _answer_hashes(records_of_task)
    return PanelMeasurement(
        limits=values,
        clusters=clusters,
        watched=_watched_figures(stored, records),
        scales=scales,
        answers=answers,
    )


def _scaled_values(instances: InstanceValues, scale: Scale) -> dict[str, float | None]:
    """Return the value of each instance, from 0 to 1; None if the instance has no value."""
    values: dict[str, float | None] = {}
    for instance in sorted(instances.all_keys):  # also the instances without a value
        values[instance] = None
        if instance in instances.means:
            values[instance] = scale.value_of(instances.means[instance])
    return values


def _answer_hashes(records: Sequence[InstanceRecord]) -> dict[str, str]:
    """Return a hash of the answers of each instance; instances with a failed request are left out.

    An instance has a record for each trial and perturbation; these records have the same id.
    """
    answers_of: dict[str, list[str]] = {}
    failed = set()
    for record in records:
        if record.error is not None or record.completion is None:
            failed.add(record.id)
        else:
            answers_of.setdefault(record.id, []).append(record.completion)
    digests = {}
    for instance, answers in sorted(answers_of.items()):
        if instance not in failed:
            # An answer may contain half of a surrogate pair, which UTF-8 cannot encode.
            text = "\0".join(answers).encode("utf-8", "surrogatepass")
            digests[instance] = hashlib.sha256(text).hexdigest()[:_HASH_DIGITS]
    return digests


def tasks_of(limits: Sequence[Limit]) -> list[str]:
    """Return the tasks of the limits, each once, in their order."""
    return list(dict.fromkeys(limit.task for limit in limits))


def _limit_values(
    limit: Limit, stored: StoredResult, records: Sequence[InstanceRecord]
) -> tuple[InstanceValues, Scale]:
    """Return the values of a limit's instances, and the scale of its metric.

    Raises:
        ConfigError: The metric or the group is absent, or the scale does not fit (`_scale_of`).
    """
    result = stored.result
    metric_name = limit.metric or result.main_metric
    score = result.scores.get(metric_name)
    if score is None:
        raise ConfigError(
            f"{limit.name}: there is no score {metric_name}; there are {', '.join(result.scores)}"
        )
    group = records
    if limit.field is not None:
        group = [record for record in records if record.group_value(limit.field) == limit.value]
    instances = values_of(group, score)
    if not instances.means:
        raise ConfigError(
            f"{limit.name}: no instance of the sample belongs to it; "
            f"{_existing_groups(limit, records)}"
        )
    return instances, _scale_of(limit, metric_name, score, instances)


def _existing_groups(limit: Limit, records: Sequence[InstanceRecord]) -> str:
    """Return a text for a message about a limit without instances.

    The text lists the values of the limit's field. If no instance has the field, the text lists the
    fields of the instances.
    """
    if limit.field is None:  # the limit is for the complete task
        return "no answer has a value of its metric"
    values = {record.group_value(limit.field) for record in records} - {
        None
    }  # None: without the field
    if values:
        names = formats.first_of(sorted(map(str, values)), _MAX_NAMED)
        return f"its values of {limit.field}: {names}"
    fields = sorted(set(chain.from_iterable(record.categories for record in records)))
    return f"its fields: {formats.first_of(fields, _MAX_NAMED) or 'none'}"


def _scale_of(limit: Limit, metric_name: str, score: Score, instances: InstanceValues) -> Scale:
    """Return the scale of a limit's score, whose name in the result is `metric_name`.

    Raises:
        ConfigError: The metric has no lowest or highest value, or `max_drop` is not smaller than
            the length of the scale.
    """
    # A metric without a known scale is accepted if all its values are from 0 to 1.
    low, high = score.scale or PROPORTION
    if instances.lowest:  # each case of a rubric has a lowest score of its own
        low = min(low, *instances.lowest.values())
    outside = [value for value in instances.means.values() if not low <= value <= high]
    has_unknown_scale = score.scale is None and bool(outside)
    if has_unknown_scale or low >= high:
        raise ConfigError(
            f"{limit.name}: the test needs a score with a lowest and a highest value, and "
            f"{score.metric} has no such scale"
        )
    if limit.max_drop >= high - low:
        raise ConfigError(
            f"{limit.name}: max_drop {limit.max_drop:g} is as large as the scale, {low:g} to "
            f"{high:g}: no score can drop by more; set a smaller max_drop"
        )
    # If it is unknown whether higher is better (None), higher counts as better.
    return Scale(metric_name, low, high, higher_is_better=score.higher_is_better is not False)


def _watched_figures(
    stored: Mapping[str, StoredResult], records: Mapping[str, Sequence[InstanceRecord]]
) -> _Fields:
    """Return the watched figures over all answers of an asking.

    `length` is the mean length of an answer in words, `latency` the median time in seconds.
    """
    total: Counter[str] = Counter()  # the numbers of instances over all runs
    stated: set[str] = set()
    for run in stored.values():
        for name in ("requested", *ANSWER_SHARES):
            total[name] += getattr(run.result.validity.instances, name)
        model = run.result.provenance.endpoints.get(MODEL_ROLE)
        if model is not None:
            stated.update(model.stated_models)
    figures: _Fields = dict.fromkeys(ANSWER_SHARES, 0.0)
    if total["requested"]:
        for name in ANSWER_SHARES:
            figures[name] = total[name] / total["requested"]
    lengths = []
    seconds = []
    for record in chain.from_iterable(records.values()):
        if record.error is None:
            answer = record.completion or ""  # None counts as an empty answer
            lengths.append(len(answer.split()))
        if record.latency_s is not None:
            seconds.append(record.latency_s)
    figures["length"] = 0.0
    if lengths:
        figures["length"] = statistics.fmean(lengths)
    figures["latency"] = None
    if seconds:
        figures["latency"] = statistics.median(seconds)
    figures[STATED_MODELS] = sorted(stated)
    return figures


def write_values(folder: Path, measurement: PanelMeasurement) -> str:
    """Write a measurement into the asking's folder, and return the file's SHA-256."""
    text = json_line(asdict(measurement)) + "\n"
    write_atomic(folder / VALUES_FILE, text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_values(folder: Path, sha256: str) -> PanelMeasurement:
    """Return the stored measurement of an asking.

    Raises:
        PrerequisiteError: The file cannot be read, or its hash is not that in the ledger.
    """
    path = folder / VALUES_FILE
    try:
        with open_regular(path, folder) as file:
            content = file.read()
    except OSError as error:
        raise PrerequisiteError(
            f"{path}: cannot be read: {error.strerror or error}; restore the file from a copy"
        ) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PrerequisiteError(
            f"{path}: was changed: its hash is not that in the ledger; restore the file from a copy"
        )
    document = parse_json(content)
    scales = {name: Scale(**scale) for name, scale in document["scales"].items()}
    return PanelMeasurement(
        limits=document["limits"],
        clusters=document["clusters"],
        watched=document["watched"],
        scales=scales,
        answers=document.get("answers", {}),  # earlier versions of this program stored no answers
    )


def run_entries_of(
    folder: Path, panel_folder: Path, limits: Sequence[Limit]
) -> list[dict[str, str]]:
    """Return the ledger's entries for the runs of an asking.

    An entry has the name of the task, the run's folder inside the panel's folder, and the SHA-256
    of the run's file of checksums.

    Args:
        folder: the folder of the asked target, with a run folder for each task.
        panel_folder: the panel's folder.
        limits: the panel's limits, which name the tasks.
    """
    runs = []
    for task in tasks_of(limits):
        runs.append(
            {
                "task": task,
                "folder": (folder / task).relative_to(panel_folder).as_posix(),
                "sha256": sha256_of(RunDir(folder / task).checksums, panel_folder),
            }
        )
    return runs


def reasons_not_to_compare(
    before: Path, after: Path, limits: Sequence[Limit], load: Load = load_result
) -> Iterator[str]:
    """Yield the reasons why a look's answers may not be compared with the baseline's answers.

    The reasons are differences in prompts, data, judges or versions of HELM.

    Args:
        before: The folder of the target in the baseline.
        after: The folder of the target in the look.
        limits: The panel's limits, which name the tasks.
        load: Reads a run's result.
    """
    for task in tasks_of(limits):
        sides = []
        for label, folder in (("the baseline", before), ("the look", after)):
            stored = load(folder / task)
            score = stored.result.scores[stored.result.main_metric]
            sides.append(
                Side(
                    label,
                    stored,
                    values_of(stored.result.instances, score),
                    stored.result.main_metric,
                )
            )
        for reason in reasons_against_pair(*sides):
            yield f"{task}: {reason.message}"


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
    def whole_unit(self) -> float:
        """The parameter `whole_unit` of `detector.sigma_of`; 0 has no effect."""
        if self.statistics < WHOLE_UNIT_SINCE:
            return 0.0
        return detector.WHOLE_UNIT

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
            whole_unit=rules.whole_unit,
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


def run_folders_of(folder: Path, lines: Sequence[Line]) -> list[Path]:
    """Return the folders of all runs of these baselines and looks."""
    folders: list[Path] = []
    for line in lines:
        for asking in line.get("repeats", [line]):  # A look is one asking.
            for run in asking["runs"]:
                folders.append(folder / run["folder"])
    return folders


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
