"""A baseline and the looks after it, tested in their order: what the ledger says, and verifying makes again."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eval_factory.core.errors import ConfigError, EvalFactoryError
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line
from eval_factory.monitor.detector import Baseline, ChangeDetector, EDetector, alarm_level
from eval_factory.monitor.ledger import BASELINE, CHANGE, LOOK, History, Ledger, Line
from eval_factory.monitor.measured import STATED, Asked, Scaled, measure, read_values
from eval_factory.monitor.panel import CHANGED, Limit, digest_of
from eval_factory.report.checksums import ChecksumsError, read_checksums
from eval_factory.report.reader import load_result

HARM = "harm"
_Fields = dict[str, Any]


@dataclass(frozen=True)
class Rules:
    """What an alarm is, fixed with the baseline."""

    alpha: float
    looks: int
    seed: int
    alarm_on: tuple[str, ...]

    @classmethod
    def of(cls, source: Mapping[str, Any]) -> Rules:
        """`source`: a panel's section, or the ledger's line of a baseline."""
        alarm_on = tuple(sorted(source["alarm_on"]))
        return cls(float(source["alpha"]), source["looks"], source["seed"], alarm_on)

    @property
    def harm_alpha(self) -> float:
        """All of it for drops beyond a limit, unless there is an alarm on something else too: then half."""
        return self.alpha / 2 if self.alarm_on else self.alpha

    @property
    def other_alpha(self) -> float:
        """Of each name in `alarm_on`."""
        return self.alpha / 2 / len(self.alarm_on) if self.alarm_on else self.alpha


@dataclass
class _Stream:
    """One limit, look after look."""

    limit: Limit
    scale: Scaled
    keys: Sequence[str]  # its instances: those with a value in every run of the baseline
    left_out: int
    baseline: Baseline
    detector: EDetector
    change: ChangeDetector
    totals: list[float] = field(default_factory=list)

    def add(self, values: Mapping[str, float | None], numbers: Sequence[int]) -> tuple[_Fields, _Fields]:
        """What the ledger says of the limit, and of its change; `numbers`: of the looks, this one the last."""
        found = np.array([values.get(key) for key in self.keys], float)  # None becomes NaN
        present = found[~np.isnan(found)]
        self.totals.append(float(present.mean()) if len(present) else math.nan)
        e, changed = (
            self.detector.look(found),
            self.change.look(self.totals[-1] if len(present) else self.baseline.mean),
        )
        of_limit = {
            "name": self.limit.name,
            "value": self.scale.score(self.totals[-1]) if len(present) else None,
            "missing": len(found) - len(present),
            "e": e,
            "since": _look(numbers, self.detector.since),
        }
        return of_limit, {"e": changed, "since": _look(numbers, self.change.since)}

    def drop_since(self, numbers: Sequence[int], since: int | None) -> float | None:
        """How much worse it is from that look on, in the metric's own unit."""
        made = zip(numbers, self.totals, strict=True)
        later = [total for number, total in made if since is not None and number >= since and not math.isnan(total)]
        return (self.baseline.mean - float(np.mean(later))) * self.scale.width if later else None


def _look(numbers: Sequence[int], nth: int | None) -> int | None:
    return None if nth is None else numbers[nth - 1]


class Course:
    """
    Raises ConfigError: a limit has too few instances, or a max_drop that is its whole scale.
    """

    def __init__(self, rules: Rules, limits: Sequence[Limit], repeats: Sequence[Asked]) -> None:
        self.rules = rules
        self.numbers: list[int] = []
        """Of the looks that were made."""
        self._alarm: _Fields | None = None
        self._repeats = repeats
        self.streams = [self._stream(limit) for limit in limits]
        names = [name for name in rules.alarm_on if name not in (CHANGED, STATED)]
        self._figures = {
            name: ChangeDetector([one.watched[name] or 0.0 for one in repeats], rules.looks, self._seed(name))
            for name in names
        }

    def _seed(self, name: str) -> int:
        return int(hashlib.sha256(f"{self.rules.seed} {name}".encode()).hexdigest()[:8], 16)

    def _stream(self, limit: Limit) -> _Stream:
        runs = [one.limits[limit.name] for one in self._repeats]
        asked = sorted(set().union(*runs))
        keys = [key for key in asked if all(run.get(key) is not None for run in runs)]
        if len(keys) < 2:
            raise ConfigError(f"{limit.name}: {len(keys)} of its instances have a value in every run of the baseline")
        of = self._repeats[0].clusters.get(limit.name, {})
        sources = [of.get(key, f"\0{key}") for key in keys]
        units = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        scale = self._repeats[0].scales[limit.name]
        baseline = Baseline(
            values=np.array([[run[key] for key in keys] for run in runs], dtype=float),
            units=np.array([units[source] for source in sources]),
            max_drop=limit.max_drop / scale.width,
            looks=self.rules.looks,
        )
        change = ChangeDetector(list(baseline.values.mean(axis=1)), self.rules.looks, self._seed(limit.name))
        return _Stream(limit, scale, keys, len(asked) - len(keys), baseline, EDetector(baseline), change)

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
            name: float(np.mean([one.watched[name] for one in self._repeats if one.watched[name] is not None] or [0.0]))
            for name in self._repeats[0].watched
            if name != STATED
        }
        stated = sorted({name for one in self._repeats for name in one.watched[STATED]})
        return {"limits": limits, "watched": {**shares, STATED: stated}}

    def look(self, number: int, asked: Asked) -> _Fields:
        """Test the next look; what the ledger says of it."""
        self.numbers.append(number)
        found = [one.add(asked.limits.get(one.limit.name, {}), self.numbers) for one in self.streams]
        limits = [of_limit for of_limit, _ in found]
        changed = {one["name"]: change for one, change in found}
        # a mean of e-values is one, however limits depend on each other (V. Vovk, R. Wang, Annals of Statistics
        # 49:1736-1754, 2021): it reaches 1 / alpha at any look with a chance of alpha at most, while no limit is broken
        e = statistics.fmean(one["e"] for one in limits)
        figures = {
            name: {"e": detector.look(asked.watched[name] or 0.0), "since": _look(self.numbers, detector.since)}
            for name, detector in self._figures.items()
        }
        self._alarm = self._alarm or self._alarm_of(number, limits, e, changed, figures, asked)
        if self._alarm is not None and self._alarm["what"] == HARM:
            of = {one.limit.name: one for one in self.streams}
            drops = {name: of[name].drop_since(self.numbers, self._alarm["since"]) for name in self._alarm["names"]}
            self._alarm = {**self._alarm, "drops": drops}
        return {
            "limits": limits, "e": e, "alarm": self._alarm, "changed": changed, "figures": figures,
            "watched": asked.watched,
        }  # fmt: skip

    def _alarm_of(
        self, number: int, limits: Sequence[_Fields], e: float, changed: Mapping[str, _Fields],
        figures: Mapping[str, _Fields], asked: Asked,
    ) -> _Fields | None:  # fmt: skip
        """Of the first look that has one."""
        if e >= 1 / self.rules.harm_alpha:
            least = min(1 / self.rules.harm_alpha, max(one["e"] for one in limits))
            beyond = [one for one in limits if one["e"] >= least]
            worst = max(beyond, key=lambda one: float(one["e"]))
            return {"what": HARM, "look": number, "names": [one["name"] for one in beyond], "since": worst["since"]}
        if CHANGED in self.rules.alarm_on:
            names = [
                name for name, one in changed.items() if one["e"] >= alarm_level(len(changed), self.rules.other_alpha)
            ]
            if names:
                return {"what": CHANGED, "look": number, "names": names, "since": changed[names[0]]["since"]}
        for name, one in figures.items():
            if one["e"] >= alarm_level(1, self.rules.other_alpha):
                return {"what": name, "look": number, "names": [name], "since": one["since"]}
        known = {model for one in self._repeats for model in one.watched[STATED]}
        if STATED in self.rules.alarm_on and not known.issuperset(asked.watched[STATED]):
            return {"what": STATED, "look": number, "names": [STATED], "since": number}
        return None


def course_of(baseline: Line, folder: Path, looks: Sequence[Line] = ()) -> Course:
    """Of what was measured: as it stands after these looks."""
    repeats = [read_values(folder / one["folder"], one["values"]) for one in baseline["repeats"]]
    course = Course(Rules.of(baseline), limits_of(baseline), repeats)
    for line in looks:
        course.look(line["look"], read_values(folder / line["folder"], line["values"]))
    return course


def limits_of(baseline: Line) -> list[Limit]:
    return [
        Limit(one["name"], one["task"], one["metric"], one["max_drop"], one["field"], one["value"])
        for one in baseline["limits"]
    ]


def verify_panel(folder: Path, head: str | None = None) -> list[str]:
    """What shows that a ledger is not what its runs say: the chain of its lines, the runs' files, every figure again.

    Args:
        head: the hash that a look printed, of a line that has to be in the ledger.

    Raises:
        PrerequisiteError: the ledger cannot be read.
    """
    history = Ledger(folder).read()
    if head is not None and head not in (history.head, *(line.get("previous") for line in history.lines)):
        lost = f"ledger.jsonl: holds no line with the hash {head}: lines were changed, or dropped"
        return [*history.problems, lost]
    if history.problems:  # figures of lines that were changed say nothing
        return list(history.problems)
    limits: list[Limit] = []
    findings = []
    for line in history.lines:
        where = f"line {line['number']}"
        try:
            limits = limits_of(line) if line["kind"] == BASELINE else limits
            findings += [f"{where}: {problem}" for problem in _of_files(folder, line, limits)]
            if line["kind"] == BASELINE:
                findings += [f"{where}, {problem}" for problem in _figures(folder, line, history)]
        except EvalFactoryError as error:
            findings += [f"{where}: {text}" for text in str(error).splitlines()]
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            findings.append(f"{where}: is no line of this version ({type(error).__name__}: {error})")
    return findings


def _of_files(folder: Path, line: Line, limits: Sequence[Limit]) -> Iterator[str]:
    """Of every run that the line is about: its files are what its checksums say, and these what the ledger says."""
    parts = line["repeats"] if line["kind"] == BASELINE else [line] if line["kind"] in (LOOK, CHANGE) else []
    for run in [run for part in parts for run in part["runs"]]:
        rundir = RunDir(folder / run["folder"])
        try:
            if sha256_of(rundir.checksums, folder) != run["sha256"]:
                yield f"{run['folder']}/SHA256SUMS: is not what the ledger says"
                continue
            for name, digest in read_checksums(rundir.checksums).items():
                if sha256_of(rundir.root / name, folder) != digest:
                    yield f"{run['folder']}/{name}: was changed"
        except (OSError, ChecksumsError) as error:
            yield f"{run['folder']}: cannot be read: {getattr(error, 'filename', None) or ''} {error}"
    for part in parts if line["kind"] != CHANGE else []:
        of_target = (folder / part["runs"][0]["folder"]).parent
        if measure(of_target, limits) != read_values(folder / part["folder"], part["values"]):
            yield f"{part['folder']}/values.json: is not what its runs say"


def _figures(folder: Path, baseline: Line, history: History) -> Iterator[str]:
    """Of a baseline and the looks after it, made again of what was measured."""
    course = course_of(baseline, folder)
    if digest_of(baseline["fixed"]) != baseline["panel"]:
        yield "panel: is not the hash of what is fixed"
    made = [baseline, *history.looks_after(baseline)]
    for run in [run for line in made for part in line.get("repeats", [line]) for run in part["runs"]]:
        if load_result(folder / run["folder"]).result.provenance.run_identity != baseline["fixed"]["runs"][run["task"]]:
            yield f"{run['folder']}: is a run of another configuration than the panel's"
    rules = {key: baseline["fixed"][key] for key in ("alpha", "looks", "alarm_on")}
    rules["harm_alpha"] = course.rules.harm_alpha
    yield from _other(baseline, {**_plain(course.of_baseline()), **rules})
    for evidence, line in enumerate(made[1:], start=1):
        asked = read_values(folder / line["folder"], line["values"])
        again = {**_plain(course.look(line["look"], asked)), "evidence": evidence, "panel": baseline["panel"]}
        yield from (f"look {line['look']} (line {line['number']}): {text}" for text in _other(line, again))


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_line(dict(fields)))
    return found


def _other(line: Line, again: Line) -> Iterator[str]:
    for key in again:
        if not _same(line[key], again[key]):
            yield f"{key} is {json.dumps(line[key])[:80]}, and the runs say {json.dumps(again[key])[:80]}"


def _same(one: Any, other: Any) -> bool:
    """To nine digits: another processor rounds in another way."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-9 * max(1.0, abs(one), abs(other))
    return bool(one == other)
