"""Measures each asking of a panel, and tests after each look whether the model became worse.

The looks after a baseline are tested in their order. The ledger stores the results of the tests;
`eval-factory monitor verify` computes them again.
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
    reasons_against,
    values_of,
)
from eval_factory.core import formats
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line, open_regular, parse_json, write_atomic
from eval_factory.monitor import detector
from eval_factory.monitor.detector import Baseline, ChangeDetector, EDetector, alarm_level
from eval_factory.monitor.ledger import Line
from eval_factory.monitor.panel import CHANGED, Limit
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.intervals import PROPORTION
from eval_factory.scoring.methods import STATISTICS_VERSION

HARM = "harm"  # the kind of an alarm on a drop beyond a limit
VALUES = "values.json"
"""The file with the measurement of an asking; the ledger has its hash.

A look reads the measurements of earlier askings from these files, and needs no earlier run.
"""
SHARES = ("refused", "unreadable", "empty", "failed")  # figures that are shares of the answers
STATED = "stated"  # the watched figure with the names of the models that answers state
WHOLE_UNIT_SINCE = 2  # the first version of the statistics with a `whole_unit`
FIGURES_VERSION = 3
"""The version of the figures in a ledger.

Version 1 has no range of looks and no counts of differing answers. Each version simulates
differently which drops a panel finds.
"""
_MAX_NAMED = 12  # the maximum number of names in a message
_Fields = dict[str, Any]  # fields of a line of the ledger, or of an entry in a line


@dataclass(frozen=True)
class Scaled:
    """The scale that converts a limit's score into a value from 0 (worst) to 1 (best), and back."""

    metric: str  # the score's name in the result
    low: float
    high: float
    higher_is_better: bool

    def value(self, score: float) -> float:
        """Return the value from 0 to 1 of a score; a score outside of the scale gets 0 or 1."""
        share = min(max((score - self.low) / (self.high - self.low), 0.0), 1.0)
        if self.higher_is_better:
            return share
        return 1 - share

    def score(self, value: float) -> float:
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
    """Limit -> instance -> value from 0 (worst) to 1 (best); None if the instance has no value."""
    clusters: Mapping[str, Mapping[str, str]]
    """Limit -> instance -> its source; only for tasks that declare sources."""
    watched: _Fields  # the watched figures, such as the mean length of the answers
    scales: Mapping[str, Scaled]  # limit -> scale
    answers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Task -> instance -> a hash of its answers."""


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
    stored = {}
    records = {}
    for name in tasks_of(limits):
        stored[name] = load(folder / name)
        records[name] = list(stored[name].result.instances)
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
    return PanelMeasurement(values, clusters, _watched(stored, records), scales, answers)


def _scaled_values(instances: InstanceValues, scale: Scaled) -> dict[str, float | None]:
    """Return instance -> value from 0 to 1; None if the instance has no value."""
    values: dict[str, float | None] = {}
    for key in sorted(instances.all_keys):
        values[key] = None
        if key in instances.means:
            values[key] = scale.value(instances.means[key])
    return values


def _answer_hashes(records: Sequence[InstanceRecord]) -> dict[str, str]:
    """Return instance -> a hash of its answers; instances with a failed request are left out."""
    texts: dict[str, list[str]] = {}
    failed = set()
    for record in records:
        if record.error is not None or record.completion is None:
            failed.add(record.id)
        else:
            texts.setdefault(record.id, []).append(record.completion)
    digests = {}
    for key, answers in sorted(texts.items()):
        if key not in failed:
            text = "\0".join(answers).encode("utf-8", "surrogatepass")
            digests[key] = hashlib.sha256(text).hexdigest()[:16]
    return digests


def tasks_of(limits: Sequence[Limit]) -> list[str]:
    """Return the tasks of the limits, each once, in their order."""
    return list(dict.fromkeys(limit.task for limit in limits))


def _limit_values(
    limit: Limit, stored: StoredResult, records: Sequence[InstanceRecord]
) -> tuple[InstanceValues, Scaled]:
    """Return the values of a limit's instances, and the scale of its metric.

    Raises:
        ConfigError: The metric or the group is absent, or the scale does not fit (`_scale_of`).
    """
    result = stored.result
    name = limit.metric or result.main_metric
    score = result.scores.get(name)
    if score is None:
        raise ConfigError(
            f"{limit.name}: there is no score {name}; there are {', '.join(result.scores)}"
        )
    group = records
    if limit.field is not None:
        group = [record for record in records if record.group(limit.field) == limit.value]
    instances = values_of(group, score)
    if not instances.means:
        raise ConfigError(
            f"{limit.name}: no instance of the sample belongs to it; {_choices(limit, records)}"
        )
    return instances, _scale_of(limit, name, score, instances)


def _choices(limit: Limit, records: Sequence[InstanceRecord]) -> str:
    """Return the fields, or the values of the field, that a limit may name, as a text."""
    if limit.field is None:
        return "no answer has a value of its metric"
    values = {record.group(limit.field) for record in records} - {None}
    if values:
        names = formats.first_of(sorted(map(str, values)), _MAX_NAMED)
        return f"its values of {limit.field}: {names}"
    fields = sorted(set(chain.from_iterable(record.categories for record in records)))
    return f"its fields: {formats.first_of(fields, _MAX_NAMED) or 'none'}"


def _scale_of(limit: Limit, label: str, score: Score, instances: InstanceValues) -> Scaled:
    """Return the scale of a limit's metric.

    Raises:
        ConfigError: The metric has no lowest or highest value, or `max_drop` is not smaller than
            the length of the scale.
    """
    # A metric without a known scale is accepted if all its values are from 0 to 1.
    low, high = score.scale or PROPORTION
    if instances.lowest:  # each case of a rubric has a lowest score of its own
        low = min(low, *instances.lowest.values())
    outside = [value for value in instances.means.values() if not low <= value <= high]
    if (score.scale is None and outside) or low >= high:
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
    return Scaled(label, low, high, score.higher_is_better is not False)


def _watched(
    stored: Mapping[str, StoredResult], records: Mapping[str, Sequence[InstanceRecord]]
) -> _Fields:
    """Return the watched figures over all answers of an asking.

    `length` is the mean length of an answer in words, `latency` the median time in seconds.
    """
    counts = []
    stated: set[str] = set()
    for asking in stored.values():
        counts.append(asking.result.validity.instances)
        model = asking.result.provenance.endpoints.get(MODEL_ROLE)
        if model is not None:
            stated.update(model.stated_models)
    lengths = []
    seconds = []
    for record in chain.from_iterable(records.values()):
        if record.error is None:
            lengths.append(len((record.completion or "").split()))
        if record.latency_s is not None:
            seconds.append(record.latency_s)
    total: Counter[str] = Counter()
    for run in counts:
        for name in ("requested", *SHARES):
            total[name] += getattr(run, name)
    figures: _Fields = dict.fromkeys(SHARES, 0.0)
    if total["requested"]:
        for name in SHARES:
            figures[name] = total[name] / total["requested"]
    figures["length"] = 0.0
    if lengths:
        figures["length"] = statistics.fmean(lengths)
    figures["latency"] = None
    if seconds:
        figures["latency"] = statistics.median(seconds)
    figures[STATED] = sorted(stated)
    return figures


def write_values(folder: Path, measurement: PanelMeasurement) -> str:
    """Write a measurement into the asking's folder, and return the file's SHA-256."""
    text = json_line(asdict(measurement)) + "\n"
    write_atomic(folder / VALUES, text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_values(folder: Path, sha256: str) -> PanelMeasurement:
    """Return the stored measurement of an asking.

    Raises:
        PrerequisiteError: The file cannot be read, or its hash is not that in the ledger.
    """
    path = folder / VALUES
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
    scales = {name: Scaled(**scale) for name, scale in document["scales"].items()}
    return PanelMeasurement(
        document["limits"],
        document["clusters"],
        document["watched"],
        scales,
        document.get("answers", {}),
    )


def runs_of(folder: Path, panel_folder: Path, limits: Sequence[Limit]) -> list[dict[str, str]]:
    """Return the ledger's entries for the runs of an asking.

    An entry has the name of the task, the run's folder inside the panel's folder, and the SHA-256
    of the run's file of checksums.
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


def differences(
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
        for reason in reasons_against(*sides):
            yield f"{task}: {reason.message}"


@dataclass(frozen=True)
class Rules:
    """The rules of an alarm, which are fixed with the baseline."""

    alpha: float  # the error rate of the panel: the probability of a false alarm over all looks
    looks: int  # the greatest number of looks
    seed: int
    alarm_on: tuple[str, ...]  # the other changes that raise an alarm, such as `latency`; sorted
    statistics: int = STATISTICS_VERSION
    """The version of the statistics that made the baseline; its looks use this version, too."""
    figures_version: int = FIGURES_VERSION
    """The version of the figures in the ledger's lines since that baseline."""

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
            float(source["alpha"]),
            source["looks"],
            source["seed"],
            tuple(sorted(source["alarm_on"])),
            statistics,
            figures_version,
        )

    @property
    def whole_unit(self) -> float | None:
        """The argument `whole_unit` of the detector: 0 for version 1, None for the default."""
        if self.statistics < WHOLE_UNIT_SINCE:
            return 0.0
        return None

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
        """The error rate of alarms on each name in `alarm_on`."""
        if self.alarm_on:
            return self.alpha / 2 / len(self.alarm_on)
        return self.alpha

    def seed_of(self, name: str) -> int:
        """Return the seed of the test with this name."""
        return int(hashlib.sha256(f"{self.seed} {name}".encode()).hexdigest()[:8], 16)


class _Stream:
    """The tests of one limit, look after look."""

    def __init__(self, limit: Limit, rules: Rules, repeats: Sequence[PanelMeasurement]) -> None:
        """Prepare the tests from the askings of the baseline.

        Raises:
            ConfigError: Fewer than two instances have a value in every run of the baseline.
        """
        self.limit = limit
        self._rules = rules
        self.scale = repeats[0].scales[limit.name]
        self.totals = list[float]()  # the mean value of each look; NaN without any value
        # for each run of the baseline: instance -> value
        runs = [repeat.limits[limit.name] for repeat in repeats]
        instances = sorted(set().union(*runs))
        self.keys = []
        for key in instances:
            if None not in [run.get(key) for run in runs]:
                self.keys.append(key)
        self.left_out = len(instances) - len(self.keys)
        if len(self.keys) < 2:
            few = f"{len(self.keys)} of its instances have a value in every run of the baseline"
            raise ConfigError(f"{limit.name}: {few}")
        clusters = repeats[0].clusters.get(limit.name, {})
        unit_of_source: dict[str, int] = {}
        units = []
        for key in self.keys:
            # An instance without a source is a unit of its own; no source begins with a null.
            source = clusters.get(key, f"\0{key}")
            units.append(unit_of_source.setdefault(source, len(unit_of_source)))
        values = []
        for run in runs:
            values.append([run[key] for key in self.keys])
        self.baseline = Baseline(
            values=np.array(values, dtype=float),
            units=np.array(units),
            max_drop=limit.max_drop / self.scale.width,
            looks=rules.looks,
            whole_unit=rules.whole_unit,
        )
        self.detector = EDetector(self.baseline)
        self.change = ChangeDetector(
            self.baseline.values.mean(axis=1), rules.looks, rules.seed_of(limit.name)
        )

    def add(
        self, values: Mapping[str, float | None], numbers: Sequence[int]
    ) -> tuple[_Fields, _Fields]:
        """Test the next look's values.

        Args:
            values: Instance -> its value in this look.
            numbers: The numbers of the looks so far; the last number is that of this look.

        Returns:
            The ledger's entries for the test of the limit, and for the test of any change.
        """
        answers = np.array([values.get(key) for key in self.keys], float)  # None becomes NaN
        present = answers[~np.isnan(answers)]
        score = None
        mean = math.nan
        mean_for_change = self.baseline.mean  # without any value, assume that nothing changed
        if len(present):
            mean = float(present.mean())
            mean_for_change = mean
            score = self.scale.score(mean)
        self.totals.append(mean)
        e = self.detector.look(answers)
        changed = self.change.look(mean_for_change)
        limit_entry = {
            "name": self.limit.name,
            "value": score,
            "missing": len(answers) - len(present),
            "e": e,
            **dates_of(self.detector, numbers, self._rules),
        }
        return limit_entry, {"e": changed, **dates_of(self.change, numbers, self._rules)}

    def drop_since(self, numbers: Sequence[int], since: int | None) -> float | None:
        """Return the drop of the mean since a look, in the metric's own unit.

        Return None if `since` is None, or if no look since then has a value.
        """
        if since is None:
            return None
        later = []
        for number, total in zip(numbers, self.totals, strict=True):
            if number >= since and not math.isnan(total):
                later.append(total)
        if not later:
            return None
        return (self.baseline.mean - float(np.mean(later))) * self.scale.width


def _number_of_look(numbers: Sequence[int], position: int | None) -> int | None:
    """Return the number of the look at this position, counted from 1.

    Return None if `position` is None. Numbers and positions differ, because some looks with a
    number were not made.
    """
    if position is None:
        return None
    return numbers[position - 1]


DATES = ("since", "since_range")  # the fields that `dates_of` returns


def dates_of(
    detector: EDetector | ChangeDetector, numbers: Sequence[int], rules: Rules
) -> dict[str, Any]:
    """Return when a change began: `since` is the most likely look, `since_range` the range.

    Both are numbers of looks, and None if there is no evidence of a change. Version 1 of the
    figures has no range.
    """
    dates: dict[str, Any] = {"since": _number_of_look(numbers, detector.since)}
    if rules.figures_version > 1:
        dates["since_range"] = None
        bounds = detector.since_range
        if bounds is not None:
            dates["since_range"] = [numbers[end - 1] for end in bounds]
    return dates


class Course:
    """The state of all tests of a panel: the evidence since its baseline, look by look."""

    def __init__(
        self, rules: Rules, limits: Sequence[Limit], repeats: Sequence[PanelMeasurement]
    ) -> None:
        """Prepare the tests from the askings of the baseline.

        Raises:
            ConfigError: A limit has too few instances.
        """
        self.rules = rules
        self.numbers: list[int] = []
        """The numbers of the looks that were made."""
        self._alarm: _Fields | None = None  # the first alarm; all later looks have it too
        self._repeats = repeats
        self.streams = [_Stream(limit, rules, repeats) for limit in limits]
        self._figures: dict[str, ChangeDetector] = {}
        for name in rules.alarm_on:
            if name not in (CHANGED, STATED):
                # A latency is None if no answer has one; it counts as 0 here and in `look`.
                totals = [repeat.watched[name] or 0.0 for repeat in repeats]
                self._figures[name] = ChangeDetector(totals, rules.looks, rules.seed_of(name))

    def of_baseline(self) -> _Fields:
        """Return the ledger's entries for the baseline."""
        watched: _Fields = {}
        for name in self._repeats[0].watched:
            if name != STATED:
                watched[name] = self._mean_of(name)
        watched[STATED] = sorted(self._stated_models())
        line: _Fields = {
            "limits": [_entry_of(stream) for stream in self.streams],
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
        return set(chain.from_iterable(repeat.watched[STATED] for repeat in self._repeats))

    def look(self, number: int, measurement: PanelMeasurement) -> _Fields:
        """Test the next look, and return the ledger's entries for it."""
        self.numbers.append(number)
        limits = []
        changed = {}
        for stream in self.streams:
            values = measurement.limits.get(stream.limit.name, {})
            limit_entry, change_entry = stream.add(values, self.numbers)
            limits.append(limit_entry)
            changed[stream.limit.name] = change_entry
        # A mean of e-values is an e-value, even if the limits depend on each other (V. Vovk,
        # R. Wang, Annals of Statistics 49:1736-1754, 2021). As long as no limit is broken, the mean
        # reaches 1 / alpha at any look with a probability of at most alpha.
        e = statistics.fmean(limit["e"] for limit in limits)
        figures = {}
        for name, test in self._figures.items():
            evidence = test.look(measurement.watched[name] or 0.0)
            figures[name] = {"e": evidence, **dates_of(test, self.numbers, self.rules)}
        if self._alarm is None:
            self._alarm = (
                self._harm_alarm(number, limits, e)
                or self._change_alarm(number, changed)
                or self._watched_alarm(number, figures, measurement)
            )
        if self._alarm is not None and self._alarm["what"] == HARM:
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
        """Return the drop of each limit that the alarm names, since the alarm's first look."""
        streams = {stream.limit.name: stream for stream in self.streams}
        drops = {}
        for name in alarm["names"]:
            drops[name] = streams[name].drop_since(self.numbers, alarm["since"])
        return drops

    def _harm_alarm(self, number: int, limits: Sequence[_Fields], e: float) -> _Fields | None:
        """Return the alarm on a drop beyond a limit; None if this look raises no such alarm."""
        level = 1 / self.rules.harm_alpha
        if e < level:
            return None
        # If the mean of the e-values reaches the level, at least one e-value does too. `min`
        # ensures that rounding of the mean leaves no alarm without a name.
        level = min(level, max(limit["e"] for limit in limits))
        beyond = [limit for limit in limits if limit["e"] >= level]
        worst = max(beyond, key=lambda limit: float(limit["e"]))
        names = [limit["name"] for limit in beyond]
        return {"what": HARM, "look": number, "names": names, **_dates_in(worst)}

    def _change_alarm(self, number: int, changed: Mapping[str, _Fields]) -> _Fields | None:
        """Return the alarm on any change of a limit's score; None without such an alarm."""
        if CHANGED not in self.rules.alarm_on:
            return None
        level = alarm_level(len(changed), self.rules.other_alpha)
        names = [name for name, change in changed.items() if change["e"] >= level]
        if not names:
            return None
        return {"what": CHANGED, "look": number, "names": names, **_dates_in(changed[names[0]])}

    def _watched_alarm(
        self, number: int, figures: Mapping[str, _Fields], measurement: PanelMeasurement
    ) -> _Fields | None:
        """Return the alarm on a watched figure or on a new model name.

        Return None if this look raises no such alarm.
        """
        for name, figure in figures.items():
            if figure["e"] >= alarm_level(1, self.rules.other_alpha):
                return {"what": name, "look": number, "names": [name], **_dates_in(figure)}
        if STATED not in self.rules.alarm_on:
            return None
        if self._stated_models().issuperset(measurement.watched[STATED]):
            return None
        return {"what": STATED, "look": number, "names": [STATED], "since": number}


def _entry_of(stream: _Stream) -> _Fields:
    """Return the ledger's entry for a limit at the baseline."""
    return {
        **asdict(stream.limit),
        "metric": stream.scale.metric,
        "scale": [stream.scale.low, stream.scale.high],
        "higher_is_better": stream.scale.higher_is_better,
        "instances": len(stream.keys),
        "units": len(set(stream.baseline.units.tolist())),
        "left_out": stream.left_out,
        "baseline": stream.scale.score(stream.baseline.mean),
        "sigma": stream.baseline.sigma * stream.scale.width,
        "flip_rate": stream.baseline.flip_rate,
    }


def _dates_in(figures: _Fields) -> _Fields:
    """Return the fields `since` and `since_range` of an entry, if the entry has them."""
    return {name: figures[name] for name in DATES if name in figures}


def course_of(
    baseline: Line, folder: Path, looks: Sequence[Line] = (), load: Load = load_result
) -> Course:
    """Return the state of the tests after these looks.

    Args:
        baseline: The ledger's line of the baseline.
        folder: The panel's folder.
        looks: The ledger's lines of the looks after the baseline.
        load: Reads the runs' results again; needed if an older version of the reader read their
            answers. By default, the stored values are used.
    """
    limits = limits_of(baseline)

    def measured(asking: Line) -> PanelMeasurement:
        """Return the values of a baseline's repeat or of a look."""
        if load is load_result:  # the default: nothing has to be read again
            return read_values(folder / asking["folder"], asking["values"])
        # The parent of a run's folder is the folder of the asked target.
        return measure((folder / asking["runs"][0]["folder"]).parent, limits, load)

    repeats = [measured(repeat) for repeat in baseline["repeats"]]
    course = Course(Rules.of(baseline), limits, repeats)
    for line in looks:
        course.look(line["look"], measured(line))
    return course


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
    names = [field.name for field in fields(Limit)]
    limits = []
    for entry in baseline["limits"]:
        limits.append(Limit(**{name: entry[name] for name in names}))
    return limits


def power_of(course: Course) -> dict[str, Any]:
    """Return limit -> a mapping with the results of simulations.

    `finds` are the simulated drops, with the shares of years in which the panel finds them.
    `needed` is the number of runs that the baseline needs to find the drop `drop` reliably; None if
    no simulated number of runs is enough.
    """
    baselines = [stream.baseline for stream in course.streams]
    finds = detector.simulated_findings(baselines, course.rules.harm_alpha)
    needed = detector.needed_repeats(baselines, course.rules.harm_alpha)
    power = {}
    for stream, drops, need in zip(course.streams, finds, needed, strict=True):
        power[stream.limit.name] = {
            "finds": [asdict(drop) for drop in drops],
            "needed": need.repeats,
            "drop": need.finding.drop,
        }
    return power
