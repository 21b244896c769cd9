"""A baseline and the looks after it, tested in their order: what the ledger says, and `verify` makes again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eval_factory.core.errors import ConfigError
from eval_factory.monitor.detector import Baseline, ChangeDetector, EDetector, alarm_level, mean_of
from eval_factory.monitor.measured import STATED, Asked, Scaled
from eval_factory.monitor.panel import CHANGED, Limit, PanelSection

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
    def of(cls, section: PanelSection) -> Rules:
        return cls(float(section.alpha), section.looks, section.seed, tuple(sorted(section.alarm_on)))

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
        given = [values.get(key) for key in self.keys]
        found = np.array([np.nan if value is None else value for value in given])
        present = [value for value in given if value is not None]
        e = self.detector.look(found)
        self.totals.append(float(np.mean(present)) if present else float("nan"))
        changed = self.change.look(self.totals[-1] if present else self.baseline.mean)
        of_limit = {
            "name": self.limit.name,
            "value": self.scale.score(self.totals[-1]) if present else None,
            "missing": len(given) - len(present),
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
                "name": one.limit.name,
                "task": one.limit.task,
                "field": one.limit.field,
                "value": one.limit.value,
                "metric": one.scale.metric,
                "max_drop": one.limit.max_drop,
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
        e = mean_of([one["e"] for one in limits])
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
