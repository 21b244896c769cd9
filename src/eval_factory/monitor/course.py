"""What the runs of each asking of a panel say, and the looks tested in their order after the
baseline: what the ledger says, and verifying makes again.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
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
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.nouns import MODEL_ROLE
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

HARM = "harm"
VALUES = "values.json"  # of an asking, whose hash is in the ledger: a look needs no earlier run
SHARES = ("refused", "unreadable", "empty", "failed")  # figures that are shares of the answers
STATED = "stated"
WHOLE_UNIT_SINCE = 2  # version of the statistics
_MAX_NAMED = 12
_Fields = dict[str, Any]


@dataclass(frozen=True)
class Scaled:
    """How a limit's score becomes a value from 0 to 1."""

    metric: str  # the score's name in the result
    low: float
    high: float
    higher_is_better: bool

    def value(self, score: float) -> float:
        share = min(max((score - self.low) / (self.high - self.low), 0.0), 1.0)
        return share if self.higher_is_better else 1 - share

    def score(self, value: float) -> float:
        return self.low + (self.high - self.low) * (value if self.higher_is_better else 1 - value)

    @property
    def width(self) -> float:
        """What 1 is in the metric's own unit."""
        return self.high - self.low


@dataclass(frozen=True)
class Asked:
    """One asking of the panel, measured."""

    limits: Mapping[str, Mapping[str, float | None]]
    """Limit -> instance -> its value from 0, the worst, to 1, the best; None where it has none."""
    clusters: Mapping[str, Mapping[str, str]]
    """Limit -> instance -> what it shares its source with, where the task declares such."""
    watched: _Fields
    scales: Mapping[str, Scaled]


Load = Callable[[Path | str], StoredResult]


def measure(folder: Path, limits: Sequence[Limit], load: Load = load_result) -> Asked:
    """Read the runs in the folder of an asking's target; `load` reads a run's result.

    Raises PrerequisiteError: a run has no result; ConfigError: a limit's metric or group is not
    there, or has no scale with two ends.
    """
    stored = {name: load(folder / name) for name in tasks_of(limits)}
    records = {name: list(one.result.instances) for name, one in stored.items()}
    found = {}
    problems = []
    for limit in limits:
        try:
            found[limit.name] = _of_limit(limit, stored[limit.task], records[limit.task])
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    values = {
        name: {
            key: scale.value(of.values[key]) if key in of.values else None
            for key in sorted(of.keys)
        }
        for name, (of, scale) in found.items()
    }
    clusters = {
        name: dict(sorted(of.clusters.items())) for name, (of, _) in found.items() if of.clusters
    }
    return Asked(
        values,
        clusters,
        _watched(stored, records),
        {name: scale for name, (_, scale) in found.items()},
    )


def tasks_of(limits: Sequence[Limit]) -> list[str]:
    return list(dict.fromkeys(one.task for one in limits))


def _of_limit(
    limit: Limit, stored: StoredResult, records: Sequence[InstanceRecord]
) -> tuple[InstanceValues, Scaled]:
    result = stored.result
    name = limit.metric or result.main_metric
    score = result.scores.get(name)
    if score is None:
        raise ConfigError(
            f"{limit.name}: there is no score {name}; there are {', '.join(result.scores)}"
        )
    found = values_of(
        (one for one in records if limit.field is None or one.group(limit.field) == limit.value),
        score,
    )
    if not found.values:
        raise ConfigError(
            f"{limit.name}: no instance of the sample has a value in it; {_known(limit, records)}"
        )
    return found, _scale_of(limit, name, score, found)


def _known(limit: Limit, records: Sequence[InstanceRecord]) -> str:
    """What a limit may name."""
    if limit.field is None:
        return "its answers have none"
    values = {one.group(limit.field) for one in records} - {None}
    if values:
        return (
            f"its values of {limit.field}: {formats.first_of(sorted(map(str, values)), _MAX_NAMED)}"
        )
    fields = sorted(set(chain.from_iterable(record.categories for record in records)))
    return f"its fields: {formats.first_of(fields, _MAX_NAMED) or 'none'}"


def _scale_of(limit: Limit, label: str, score: Score, found: InstanceValues) -> Scaled:
    low, high = score.scale or PROPORTION
    if found.lowest:  # of a rubric: each case has a least score of its own
        low = min(low, *found.lowest.values())
    outside = [value for value in found.values.values() if not low <= value <= high]
    if (score.scale is None and outside) or low >= high:
        raise ConfigError(
            f"{limit.name}: the score {score.metric} "
            "has no scale with two ends, which the test needs"
        )
    if limit.max_drop >= high - low:
        raise ConfigError(
            f"{limit.name}: max_drop {limit.max_drop:g} is the whole scale, {low:g} to {high:g}"
        )
    return Scaled(label, low, high, score.higher_is_better is not False)


def _watched(
    stored: Mapping[str, StoredResult], records: Mapping[str, Sequence[InstanceRecord]]
) -> _Fields:
    """Of all answers of the panel together."""
    counts = [one.result.validity.instances for one in stored.values()]
    asked = sum(one.requested for one in counts)
    lengths = []
    seconds = []
    for record in chain.from_iterable(records.values()):
        if record.error is None:
            lengths.append(len((record.completion or "").split()))
        if record.latency_s is not None:
            seconds.append(record.latency_s)
    models = [one.result.provenance.endpoints.get(MODEL_ROLE) for one in stored.values()]
    figures: _Fields = {
        name: sum(getattr(one, name) for one in counts) / asked if asked else 0.0 for name in SHARES
    }
    figures["length"] = statistics.fmean(lengths) if lengths else 0.0
    figures["latency"] = statistics.median(seconds) if seconds else None
    stated = (model.stated_models for model in models if model is not None)
    figures[STATED] = sorted(set(chain.from_iterable(stated)))
    return figures


def write_values(folder: Path, asked: Asked) -> str:
    """Into the asking's folder; returns the file's hash."""
    text = json_line(asdict(asked)) + "\n"
    write_atomic(folder / VALUES, text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_values(folder: Path, sha256: str) -> Asked:
    """What was measured. Raises PrerequisiteError: it is not there, or is another file."""
    path = folder / VALUES
    try:
        with open_regular(path, folder) as file:
            content = file.read()
    except OSError as error:
        raise PrerequisiteError(
            f"{path}: cannot be read: {error.strerror or error}; put it back from a copy"
        ) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PrerequisiteError(
            f"{path}: was changed: it is not what the ledger says; put it back from a copy"
        )
    document = parse_json(content)
    scales = {name: Scaled(**scale) for name, scale in document["scales"].items()}
    return Asked(document["limits"], document["clusters"], document["watched"], scales)


def runs_of(folder: Path, panel_folder: Path, limits: Sequence[Limit]) -> list[dict[str, str]]:
    """As the ledger has them: of each run of a target its task, folder and the hash of its
    checksums.
    """
    return [
        {
            "task": task,
            "folder": (folder / task).relative_to(panel_folder).as_posix(),
            "sha256": sha256_of(RunDir(folder / task).checksums, panel_folder),
        }
        for task in tasks_of(limits)
    ]


def differences(
    before: Path, after: Path, limits: Sequence[Limit], load: Load = load_result
) -> Iterator[str]:
    """Why the answers of a look may not be held against the baseline: other prompts, data, judges,
    versions of HELM. `before`, `after`: the folders of the target in the two askings.
    """
    for task in tasks_of(limits):
        sides = []
        for label, folder in (("the baseline", before), ("the look", after)):
            stored = load(folder / task)
            score = stored.result.scores[stored.result.main_metric]
            sides.append(Side(label, stored, values_of(stored.result.instances, score)))
        yield from (f"{task}: {reason.message}" for reason in reasons_against(*sides))


@dataclass(frozen=True)
class Rules:
    """What an alarm is, fixed with the baseline."""

    alpha: float
    looks: int
    seed: int
    alarm_on: tuple[str, ...]
    statistics: int = STATISTICS_VERSION
    """The version of the statistics with which the baseline was made: its looks go on with it."""

    @classmethod
    def of(cls, source: Mapping[str, Any]) -> Rules:
        """`source`: a panel's section, or the ledger's line of a baseline. A baseline that names no
        version of the statistics has the first.
        """
        statistics = STATISTICS_VERSION
        if "repeats" in source:
            statistics = source.get("statistics", 1)
        return cls(
            float(source["alpha"]),
            source["looks"],
            source["seed"],
            tuple(sorted(source["alarm_on"])),
            statistics,
        )

    @property
    def whole_unit(self) -> float | None:
        """The detector's least variance of a unit; the first version had none."""
        return 0.0 if self.statistics < WHOLE_UNIT_SINCE else None

    @property
    def harm_alpha(self) -> float:
        """All of it for drops beyond a limit, unless there is an alarm on something else too:
        then half.
        """
        return self.alpha / 2 if self.alarm_on else self.alpha

    @property
    def other_alpha(self) -> float:
        """Of each name in `alarm_on`."""
        return self.alpha / 2 / len(self.alarm_on) if self.alarm_on else self.alpha

    def seed_of(self, name: str) -> int:
        return int(hashlib.sha256(f"{self.seed} {name}".encode()).hexdigest()[:8], 16)


class _Stream:
    """One limit, look after look. Raises ConfigError: fewer than two instances have a value in
    every baseline run.
    """

    def __init__(self, limit: Limit, rules: Rules, repeats: Sequence[Asked]) -> None:
        self.limit = limit
        self.scale = repeats[0].scales[limit.name]
        self.totals = list[float]()
        runs = [one.limits[limit.name] for one in repeats]
        asked = sorted(set().union(*runs))
        self.keys = [key for key in asked if all(run.get(key) is not None for run in runs)]
        self.left_out = len(asked) - len(self.keys)
        if len(self.keys) < 2:
            few = f"{len(self.keys)} of its instances have a value in every run of the baseline"
            raise ConfigError(f"{limit.name}: {few}")
        of = repeats[0].clusters.get(limit.name, {})
        sources = [of.get(key, f"\0{key}") for key in self.keys]
        units = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        self.baseline = Baseline(
            values=np.array([[run[key] for key in self.keys] for run in runs], dtype=float),
            units=np.array([units[source] for source in sources]),
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
        """What the ledger says of the limit, and of its change; `numbers`: of the looks, this
        one the last.
        """
        found = np.array([values.get(key) for key in self.keys], float)  # None becomes NaN
        present = found[~np.isnan(found)]
        total = float(present.mean()) if len(present) else None
        self.totals.append(math.nan if total is None else total)
        e = self.detector.look(found)
        changed = self.change.look(self.baseline.mean if total is None else total)
        of_limit = {
            "name": self.limit.name,
            "value": None if total is None else self.scale.score(total),
            "missing": len(found) - len(present),
            "e": e,
            "since": _look(numbers, self.detector.since),
        }
        return of_limit, {"e": changed, "since": _look(numbers, self.change.since)}

    def drop_since(self, numbers: Sequence[int], since: int | None) -> float | None:
        """How much worse it is from that look on, in the metric's own unit."""
        made = zip(numbers, self.totals, strict=True)
        later = [
            total
            for number, total in made
            if since is not None and number >= since and not math.isnan(total)
        ]
        return (self.baseline.mean - float(np.mean(later))) * self.scale.width if later else None


def _look(numbers: Sequence[int], nth: int | None) -> int | None:
    return None if nth is None else numbers[nth - 1]


class Course:
    """Raises ConfigError: a limit has too few instances, or a max_drop that is its whole scale."""

    def __init__(self, rules: Rules, limits: Sequence[Limit], repeats: Sequence[Asked]) -> None:
        self.rules = rules
        self.numbers: list[int] = []
        """Of the looks that were made."""
        self._alarm: _Fields | None = None
        self._repeats = repeats
        self.streams = [_Stream(limit, rules, repeats) for limit in limits]
        names = [name for name in rules.alarm_on if name not in (CHANGED, STATED)]
        self._figures = {
            name: ChangeDetector(
                [one.watched[name] or 0.0 for one in repeats], rules.looks, rules.seed_of(name)
            )
            for name in names
        }

    def of_baseline(self) -> _Fields:
        """What the ledger says of the baseline."""
        limits = [
            {
                **asdict(one.limit),
                "metric": one.scale.metric,
                "scale": [one.scale.low, one.scale.high],
                "higher_is_better": one.scale.higher_is_better,
                "instances": len(one.keys),
                "units": len(set(one.baseline.units.tolist())),
                "left_out": one.left_out,
                "baseline": one.scale.score(one.baseline.mean),
                "sigma": one.baseline.sigma * one.scale.width,
                "flip_rate": one.baseline.flip_rate,
            }
            for one in self.streams
        ]
        shares = {
            name: float(
                np.mean(
                    [one.watched[name] for one in self._repeats if one.watched[name] is not None]
                    or [0.0]
                )
            )
            for name in self._repeats[0].watched
            if name != STATED
        }
        stated = sorted(self._stated_models())
        line: _Fields = {"limits": limits, "watched": {**shares, STATED: stated}}
        if self.rules.statistics > 1:  # the first version was not written down
            line["statistics"] = self.rules.statistics
        return line

    def _stated_models(self) -> set[str]:
        """The models that the baseline's answers state."""
        return set(chain.from_iterable(one.watched[STATED] for one in self._repeats))

    def look(self, number: int, asked: Asked) -> _Fields:
        """Test the next look; what the ledger says of it."""
        self.numbers.append(number)
        found = [
            one.add(asked.limits.get(one.limit.name, {}), self.numbers) for one in self.streams
        ]
        limits = [of_limit for of_limit, _ in found]
        changed = {one["name"]: change for one, change in found}
        # a mean of e-values is one, however limits depend on each other (V. Vovk, R. Wang, Annals
        # of Statistics 49:1736-1754, 2021): it reaches 1 / alpha at any look with a chance of alpha
        # at most, while no limit is broken
        e = statistics.fmean(one["e"] for one in limits)
        figures = {
            name: {
                "e": detector.look(asked.watched[name] or 0.0),
                "since": _look(self.numbers, detector.since),
            }
            for name, detector in self._figures.items()
        }
        self._alarm = self._alarm or self._alarm_of(number, limits, e, changed, figures, asked)
        if self._alarm is not None and self._alarm["what"] == HARM:
            of = {one.limit.name: one for one in self.streams}
            drops = {
                name: of[name].drop_since(self.numbers, self._alarm["since"])
                for name in self._alarm["names"]
            }
            self._alarm = {**self._alarm, "drops": drops}
        return {
            "limits": limits,
            "e": e,
            "alarm": self._alarm,
            "changed": changed,
            "figures": figures,
            "watched": asked.watched,
        }

    def _alarm_of(
        self,
        number: int,
        limits: Sequence[_Fields],
        e: float,
        changed: Mapping[str, _Fields],
        figures: Mapping[str, _Fields],
        asked: Asked,
    ) -> _Fields | None:
        """Of the first look that has one."""
        if e >= 1 / self.rules.harm_alpha:
            least = min(1 / self.rules.harm_alpha, max(one["e"] for one in limits))
            beyond = [one for one in limits if one["e"] >= least]
            worst = max(beyond, key=lambda one: float(one["e"]))
            return {
                "what": HARM,
                "look": number,
                "names": [one["name"] for one in beyond],
                "since": worst["since"],
            }
        if CHANGED in self.rules.alarm_on:
            level = alarm_level(len(changed), self.rules.other_alpha)
            if names := [name for name, one in changed.items() if one["e"] >= level]:
                return {
                    "what": CHANGED,
                    "look": number,
                    "names": names,
                    "since": changed[names[0]]["since"],
                }
        for name, one in figures.items():
            if one["e"] >= alarm_level(1, self.rules.other_alpha):
                return {"what": name, "look": number, "names": [name], "since": one["since"]}
        known = self._stated_models()
        if STATED in self.rules.alarm_on and not known.issuperset(asked.watched[STATED]):
            return {"what": STATED, "look": number, "names": [STATED], "since": number}
        return None


def course_of(
    baseline: Line, folder: Path, looks: Sequence[Line] = (), load: Load = load_result
) -> Course:
    """What was measured, as it stands after these looks. `load`: what reads the runs' results where
    another rule read their answers than reads them now; else the values are those of their files.
    """
    limits = limits_of(baseline)

    def asked(part: Line) -> Asked:
        if load is load_result:
            return read_values(folder / part["folder"], part["values"])
        return measure((folder / part["runs"][0]["folder"]).parent, limits, load)

    course = Course(Rules.of(baseline), limits, [asked(repeat) for repeat in baseline["repeats"]])
    for line in looks:
        course.look(line["look"], asked(line))
    return course


def run_folders_of(folder: Path, lines: Sequence[Line]) -> list[Path]:
    """The folders of all runs of a baseline and of looks."""
    folders: list[Path] = []
    for part in chain.from_iterable(line.get("repeats", [line]) for line in lines):
        folders.extend(folder / run["folder"] for run in part["runs"])
    return folders


def limits_of(baseline: Line) -> list[Limit]:
    return [
        Limit(**{each.name: one[each.name] for each in fields(Limit)}) for one in baseline["limits"]
    ]


def power_of(course: Course) -> dict[str, Any]:
    """Of each limit what the panel finds, and how many runs its baseline needs; by simulation."""
    baselines = [one.baseline for one in course.streams]
    finds = detector.what_it_finds(baselines, course.rules.harm_alpha)
    needed = detector.needed_repeats(baselines, course.rules.harm_alpha)
    return {
        one.limit.name: {
            "finds": [asdict(drop) for drop in each],
            "needed": need.repeats,
            "drop": need.found.drop,
        }
        for one, each, need in zip(course.streams, finds, needed, strict=True)
    }
