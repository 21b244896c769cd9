"""What a panel can find, and how often its baseline must be asked for that: by simulated years. Needs numpy.

What an instance answers is drawn from its own runs and, as if it had been asked M times more, from those of all
instances (T. S. Ferguson, Annals of Statistics 1:209-230, 1973; of right and wrong answers it is the beta-binomial
model): one that was right in all of five runs may still be wrong in one of ten. M is such that two runs differ as often
as they did. One instance more, right in half of its runs, is added to the estimates: no panel never changes.

In a unit answers move together as far as `Baseline.sigma` says. A drop turns answers into the worst one, at random. One
limit falls, the others stay: alarm when its e alone reaches their number / alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval_factory.monitor.detector import Array, Baseline, EDetectors, Units

DROPS = (0.05, 0.1, 0.2)
REPEATS = (5, 10, 20, 40)
FLIP_RATES = (0.02, 0.1, 0.3)
ENOUGH = 0.97  # of simulated years, for 95 % of all: 200 years can err by 1.5 %
YEARS, FIRST = 200, 60  # where the first find a drop in less than 80 %, the others are not simulated: not enough
LEVELS = 11  # of values that a simulated answer can have; more are rounded to so many, evenly apart
TOGETHER = 0.3  # the correlation in a unit with which answers fall, which no baseline knows
MAX_SIMULATED = 2000  # instances
RUN_IN = 6  # looks before the drop that are simulated; what was put on before them counts as lost


@dataclass(frozen=True)
class Found:
    drop: float  # of the scale
    share: float  # of the years, those with an alarm between the drop and the last look
    weeks: int | None
    """The median number of looks that it takes, 1 where the first one after the drop shows it; None: most find none."""


@dataclass(frozen=True)
class Needed:
    repeats: int | None  # the fewest runs in a baseline that find the drop; None: 40 are not enough
    found: Found  # with so many, or with the most


def what_it_finds(limits: Sequence[Baseline], alpha: float) -> list[list[Found]]:
    """Of each limit what it finds of each of `DROPS`, with as many runs as its baseline has.

    The drop is there from look 20 of 52, and at the same part of another number of looks. One that is no greater than
    `max_drop` is none to be found.
    """
    return [_finds(limit, len(limits) / alpha, YEARS, [0, at]) for at, limit in enumerate(limits)]


def hardest(found: Sequence[Sequence[Found]]) -> list[Found]:
    """Of each drop what the limit that finds it least often says: what a panel finds whichever limit it is."""
    return [min(each, key=lambda one: (one.share, -(one.weeks or 0))) for each in zip(*found, strict=True)]


def needed_repeats(limits: Sequence[Baseline], alpha: float, seed: int = 0) -> list[Needed]:
    """Of each limit how many runs its baseline needs, of `REPEATS` and those that it has, to find a drop of 10 points
    of the scale, or of 5 more than `max_drop` where that is more, in 95 % of the years."""
    return [_needed(limit, len(limits) / alpha, [seed, at]) for at, limit in enumerate(limits)]


def assumed(
    units: Sequence[Array], max_drops: Sequence[float], repeats: int, looks: int, alpha: float, accuracy: float = 0.8
) -> dict[float, list[Found]]:
    """Before anything is asked: by the share of answers that flip between two runs (`FLIP_RATES`), what the hardest
    limit finds, of right and wrong answers. In clusters they are taken to flip with a correlation of 0.3.
    `units`: of each limit, as `Baseline.units`; `repeats`: runs of the baseline."""
    from scipy.special import betaincinv  # imported here, as in `sigma_of`

    pairs, found = list(zip(units, max_drops, strict=True)), {}
    alike = {(*sorted(Units(labels).sizes.tolist()), most): (labels, most) for labels, most in pairs}
    for rate in FLIP_RATES:
        rng, each = np.random.default_rng(0), []
        more = rate / max(2 * accuracy * (1 - accuracy) - rate, 1e-6)
        for labels, max_drop in alike.values():
            parts = (np.arange(len(labels)) + 0.5) / len(labels)
            chances = rng.permutation(betaincinv(accuracy * more, (1 - accuracy) * more, parts))
            runs = np.stack([_together(rng, Units(labels), TOGETHER, 1)[0] >= 1 - chances for _ in range(max(REPEATS))])
            limit = Baseline(runs, labels, max_drop, looks)
            each.append(_finds(limit, len(units) / alpha, YEARS // 2, [0], repeats))
        found[rate] = hardest(each)
    return found


def _smaller(limit: Baseline) -> Baseline:
    """Of a large panel a part, in whole units: it finds less, and more would take gigabytes."""
    units = Units(limit.units)
    kept = units.sizes.cumsum()[units.of] <= max(MAX_SIMULATED, int(units.sizes[0]))
    return limit if kept.all() else Baseline(limit.values[:, kept], limit.units[kept], limit.max_drop, limit.looks)


def _finds(limit: Baseline, level: float, years: int, seed: list[int], repeats: int | None = None) -> list[Found]:
    limit, rng = _smaller(limit), np.random.default_rng(seed)
    weeks = _weeks_until(limit, repeats or len(limit.values), DROPS, level, years, rng)
    return [_found(drop, each) for drop, each in zip(DROPS, weeks, strict=True)]


def _needed(limit: Baseline, level: float, seed: list[int]) -> Needed:
    limit, drop = _smaller(limit), max(0.1, limit.max_drop + 0.05)
    for repeats in sorted({*REPEATS, len(limit.values)}):
        rng = np.random.default_rng([*seed, repeats])
        weeks = _weeks_until(limit, repeats, [drop], level, FIRST, rng)[0]
        if np.isfinite(weeks).mean() >= 0.8:
            weeks = np.append(weeks, _weeks_until(limit, repeats, [drop], level, YEARS - FIRST, rng)[0])
        found = _found(drop, weeks)
        if found.share >= ENOUGH:
            return Needed(repeats, found)
    return Needed(None, found)


def _found(drop: float, weeks: Array) -> Found:
    share, middle = float(np.isfinite(weeks).mean()), float(np.sort(weeks)[len(weeks) // 2])
    return Found(drop, share, int(middle) if np.isfinite(middle) else None)


def _weeks_until(
    limit: Baseline, repeats: int, drops: Sequence[float], level: float, years: int, rng: np.random.Generator
) -> list[Array]:
    """Of each drop, (years,): the looks from it to the alarm, inf where there is none."""
    answers = Answers(limit, years, rng)
    runs = np.stack([answers.draw() for _ in range(repeats)], axis=1)
    start = EDetectors(runs, answers.units, limit.max_drop, limit.looks)
    before, found = limit.looks * 19 // 52, list[Array]()
    for look in range(before):
        if look < before - RUN_IN:
            start.lose()
        else:
            start.look(answers.draw())
    for drop in drops:
        still: Array = np.arange(years)
        weeks, detector = np.full(years, np.inf), start.of(still)
        for week in range(1, limit.looks - before + 1):
            alarm = detector.look(answers.draw(still, drop)) >= level
            weeks[still[alarm]] = week
            still, detector = still[~alarm], detector.of(~alarm)
            if not len(still):
                break
        found.append(weeks)
    return found


class Answers:
    """Of simulated panels that are like a baseline, in years side by side."""

    def __init__(self, like: Baseline, years: int, rng: np.random.Generator) -> None:
        self.units, self._rng = Units(like.units), rng
        runs, count = like.values.shape
        known = np.unique(np.append(like.values, [0.0, 1.0]))
        self._levels = known if len(known) <= LEVELS else np.linspace(0, 1, LEVELS)
        seen = np.abs(like.values[..., None] - self._levels).argmin(axis=-1)
        counts = (seen[..., None] == np.arange(len(self._levels))).sum(axis=0)
        pool = counts.sum(axis=0) + runs / 2 * np.isin(self._levels, [0.0, 1.0])
        pool /= pool.sum()
        own, spread = like.values.var(axis=0, ddof=1), float(pool @ (self._levels - pool @ self._levels) ** 2)
        flips = float(own.sum() + runs / (runs - 1) / 4) / (count + 1) / spread
        more = 1 / max(1 / flips - 1, 0.001)
        parts = rng.standard_gamma(np.broadcast_to(more * pool + counts, (years, count, len(self._levels))))
        parts /= parts.sum(axis=-1, keepdims=True)
        self._mean = (parts @ self._levels).mean(axis=-1)
        self._below = parts.cumsum(axis=-1)[..., :-1]
        self._correlation = 1.0
        # by how much more the totals of units vary than if all were independent: of the runs, of these with all in one
        apart = runs * (count * like.sigma) ** 2 - self.units.sizes.mean() / 2 - own.sum()
        drawn = np.stack([self.draw() for _ in range(5)])
        alone = drawn.var(axis=0, ddof=1).sum()
        whole = (self.units.totals(drawn).var(axis=0, ddof=1).sum() - alone) / max(alone, 1e-9)
        self._correlation = min(1.0, max(0.0, apart / (own.sum() + 0.5) / whole)) if whole > 0 else 0.0

    def draw(self, which: Array | None = None, drop: float = 0.0) -> Array:
        """A look of these years: (years, n). `drop`: by how much the mean has fallen; to 0 where it was less."""
        mean, below = (self._mean, self._below) if which is None else (self._mean[which], self._below[which])
        at = _together(self._rng, self.units, self._correlation, len(mean))
        found = self._levels[(at[..., None] > below).sum(axis=-1)]
        if drop:
            fallen = _together(self._rng, self.units, TOGETHER, len(mean)) < (drop / np.maximum(mean, 1e-9))[:, None]
            found[fallen] = 0.0
        return np.asarray(found)


def _together(rng: np.random.Generator, units: Units, correlation: float, years: int) -> Array:
    """(years, n): uniform; two of a unit are the same with a chance of the correlation."""
    alone = rng.random((years, len(units.of)))
    if not correlation or len(units.sizes) == len(units.of):
        return alone
    common = rng.random((years, len(units.sizes)))[:, units.of]
    return np.asarray(np.where(rng.random(alone.shape) < np.sqrt(correlation), common, alone))
