"""Tests whether a panel became worse than allowed, or changed at all.

The error rate of an alarm applies to all looks together, so users may look as often as they like.
A panel is a fixed sample of instances, asked B times as a baseline and then once at each look.

`EDetectors` bets that the mean has fallen by more than `max_drop`. As long as the mean has not
fallen so far, the stake is not expected to grow (J. Ville, Etude critique de la notion de
collectif, 1939). The method is the e-detector of Shiryaev and Roberts with a budget (J. Shin,
A. Ramdas and A. Rinaldo, arXiv:2203.03532). The bets are those on means of bounded values of
I. Waudby-Smith and A. Ramdas, JRSS B 86:1-27, 2024.

The baseline's mean may be too high by chance. The evidence is therefore computed for means that are
k standard errors too high, for several k, and weighted; the smallest weighted evidence counts. The
test assumes that the baseline's mean is about normal, with the standard error `Baseline.sigma`.
docs/monitor.md states the other assumptions; benchmarks/monitor_alarms.py counts false alarms.
The functions are pure: they read no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eval_factory.scoring.intervals import FEW_SOURCES, LARGE_SOURCE

Array = NDArray[Any]
BET_FRACTIONS = np.array([0.9, 0.6, 0.35, 0.2, 0.1, 0.05])
"""The share of its stake that each bet would lose at the worst possible look."""
Z_GRID = np.arange(17) / 4  # k: the number of standard errors by which the baseline is too good
TILTS = np.array([0.75, 1.5, 2.5])  # the values of t in `mixture_weights`
ROUNDING_LOSS = 1.29  # explained in `mixture_weights`


def mixture_weights(z: Array) -> Array:
    """Return the weight of the evidence at each k in `z`.

        A_k = mean over the tilts t of exp(t k - t^2 / 2) / ROUNDING_LOSS

    If k is drawn from the standard normal distribution, the mean of exp(t k - t^2 / 2) is 1. The
    true k of a panel is rounded up to the next value in `Z_GRID`; `ROUNDING_LOSS` compensates for
    that. Without rounding, 1.07 would be enough.
    """
    likelihood_ratios = np.exp(np.outer(z, TILTS) - np.square(TILTS) / 2)
    return np.asarray(likelihood_ratios.mean(axis=1) / ROUNDING_LOSS)


MIXTURE_WEIGHTS = mixture_weights(Z_GRID)
"""The weight of each k in `Z_GRID`. One panel in 30,000 has a k above 4."""
WHOLE_UNIT = 0.5
"""The lower limit of a unit's variance, as a share; `sigma_of` explains it.

With 1 instead of .5, a panel of 30 units of five instances would find a drop of 10 points in 19 %
of years instead of 99 %.
"""
POWERS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])  # the values of c in `ChangeDetector`
SINCE_WITHIN = 20.0
"""The width of the range of looks in which a drop may have begun.

The range contains each look whose stake grew to at least a twentieth of the largest stake. For five
simulated panels, the drop began in this range in 94 to 100 % of alarms.
"""
MAX_E_VALUE = 1e250  # larger evidence is set to this number, so that it stays finite


@dataclass(frozen=True, eq=False)
class Baseline:
    """The values of one limit of a panel before the first look."""

    values: Array  # (B, n): runs, instances; from 0 (worst) to 1 (best)
    units: Array  # (n,): a whole number for each instance, equal for instances of one cluster
    max_drop: float  # the greatest permitted drop of the mean, from 0 to 1
    looks: int  # the greatest number of looks
    whole_unit: float | None = None  # the parameter of `sigma_of`; None means `WHOLE_UNIT`

    def __post_init__(self) -> None:
        """Round and check the values.

        Raises ValueError if an array has a wrong shape, or a value is missing or out of range.
        """
        object.__setattr__(self, "values", np.round(np.asarray(self.values, float), 12))
        object.__setattr__(self, "units", np.asarray(self.units))
        if self.values.ndim != 2 or self.values.shape[0] < 2 or not self.values.shape[1]:
            raise ValueError("a baseline needs at least two runs of at least one instance")
        if not ((self.values >= 0) & (self.values <= 1)).all():
            raise ValueError("a baseline's values must be numbers from 0 to 1, and none is missing")
        if self.units.shape != self.values.shape[1:]:
            raise ValueError("each instance of a baseline must have one unit")
        if not 0 <= self.max_drop <= 1 or self.looks < 1:
            raise ValueError("max_drop must be from 0 to 1, and there must be at least one look")

    @property
    def mean(self) -> float:
        """The mean over runs and instances."""
        return float(self.values.mean())

    @cached_property
    def sigma(self) -> float:
        """The standard error of `mean`, from the differences between the runs (`sigma_of`)."""
        return float(sigma_of(self.values, Units(self.units), self.whole_unit))

    @property
    def flip_rate(self) -> float:
        """The expected mean square of the difference between the values of two runs.

        For values 0 and 1, this is the share of instances whose value differs. For other values,
        the number is smaller: a difference of half the scale counts as a quarter.
        """
        return float(2 * self.values.var(axis=0, ddof=1).mean())


class Units:
    """The units of a panel; the instances of a unit belong together."""

    def __init__(self, labels: ArrayLike) -> None:
        """Number the units; instances with equal labels are one unit."""
        self.of: Array
        """The number of each instance's unit, from 0: (n,)."""
        self.sizes: Array
        """The number of instances of each unit: (U,)."""
        _, self.of, self.sizes = np.unique(
            np.asarray(labels), return_inverse=True, return_counts=True
        )
        self._order = np.argsort(self.of, kind="stable")
        self._starts = np.cumsum(self.sizes) - self.sizes

    def totals(self, values: Array) -> Array:
        """Return each unit's sum: (..., U), for values (..., n)."""
        return np.asarray(np.add.reduceat(values[..., self._order], self._starts, axis=-1))


def sigma_of(values: Array, units: Units, whole_unit: float | None = None) -> Array:
    """Return the standard error of the mean over runs and instances: (...), for values (..., B, n).

    The standard error is widened as an interval by Student's t is:

        v = sum over the units of s_u^2 + m/2,    sigma = t(.975, nu) / 1.96 * sqrt(v / B) / n

    s_u^2 is the variance of a unit's sum over the runs. m is the mean size of the units; without
    the term m/2, a baseline whose runs do not differ would count as exact. The degrees of freedom
    are nu = (B - 1) v^2 / (sum of s_u^4 + (m/2)^2) (F. E. Satterthwaite, Biometrics Bulletin
    2:110-114, 1946), but at least 4, and at most the degrees for units whose s_u is proportional to
    their size.

    A unit may fail as a whole, in a share of runs so small that the B runs do not show it. So s_u^2
    has a lower limit. If the whole unit changed in one of the B runs, s_u^2 would be (size)^2 / B.
    The lower limit for units of several instances is the share `whole_unit` of this variance
    (`WHOLE_UNIT` by default). If there are few effective units, or if one unit has over 30 % of the
    instances, the lower limit is the complete variance, for each unit. Without the first limit, 8
    to 38 % of panels with a unit of 25 in 100 instances that fails in one of ten runs gave a false
    alarm in a year at `max_drop` 0. Without the second limit, 16 % of panels with one unit of 80
    and 20 units of 1 gave a false alarm (benchmarks/monitor_alarms.py).
    """
    from scipy.special import stdtrit  # imported here, because this import is slow

    runs, count = values.shape[-2:]
    variances = units.totals(values).var(axis=-2, ddof=1)
    squares = np.square(units.sizes.astype(float))
    share = whole_unit
    if share is None:
        share = WHOLE_UNIT
    floor = np.where(units.sizes > 1, share * squares, 0.0)
    if count**2 / squares.sum() < FEW_SOURCES or units.sizes.max() > LARGE_SOURCE * count:
        floor = squares
    variances = np.maximum(variances, floor / runs)
    prior = units.sizes.mean() / 2
    variance = variances.sum(axis=-1) + prior
    degrees = np.maximum(
        4.0, (runs - 1) * variance**2 / (np.square(variances).sum(axis=-1) + prior**2)
    )
    degrees = np.minimum(degrees, (runs - 1) * squares.sum() ** 2 / np.square(squares).sum())
    return np.asarray(stdtrit(degrees, 0.975) / 1.96 * np.sqrt(variance / runs) / count)


class ShiryaevRobertsWealth:
    """The wealth of a player who divides a stake of 1 equally over all looks.

    At each look the player adds 1/looks of the stake to the wealth that is already in the game. A
    change at any look therefore meets money that lost nothing before (A. N. Shiryaev, 1963; S. W.
    Roberts, 1966). Several bets are played side by side, each with its own wealth.
    """

    def __init__(self, looks: int) -> None:
        """Start with a stake of 1 for this number of looks."""
        self.looks = looks
        self._bet: Array = np.zeros(())  # the wealth in the game: (..., bets)
        self._logs: list[Array] = []  # the logarithms of the factors of each look

    @property
    def seen(self) -> int:
        """The number of looks so far."""
        return len(self._logs)

    def look(self, logs: Array) -> Array:
        """Multiply the wealth by this look's factors, and return its mean over the bets: (...).

        Args:
            logs: the logarithms of the factors: (..., bets).

        Raises:
            ValueError: All looks that the stake is for were made.
        """
        if self.seen == self.looks:
            raise ValueError(f"the baseline is for {self.looks} looks: start another baseline")
        self._logs.append(logs)
        with np.errstate(over="ignore"):  # an infinite wealth is set to the maximum
            self._bet = np.minimum((self._bet + 1 / self.looks) * np.exp(logs), MAX_E_VALUE)
        # The second summand is the part of the stake that is kept for later looks.
        return np.asarray(self._bet.mean(axis=-1) + (self.looks - self.seen) / self.looks)

    def grown(self) -> Array:
        """Return how much the stake of each look has grown: (seen, ...).

        This is the logarithm of the mean over the bets.
        """
        # The stake of a look is multiplied by the factors of this look and of all later looks.
        log_growth = np.cumsum(np.array(self._logs)[::-1], axis=0)[::-1]
        # Subtract the maximum before `exp`, so that no number overflows.
        top = log_growth.max(axis=-1, keepdims=True)
        return np.asarray(np.log(np.exp(log_growth - top).mean(axis=-1)) + top[..., 0])

    def of(self, rows: Array) -> ShiryaevRobertsWealth:
        """Return a copy with these rows alone."""
        copy = ShiryaevRobertsWealth(self.looks)
        copy._bet = self._bet  # before the first look, a single 0 without rows
        if self.seen:
            copy._bet = self._bet[rows]
        for log in self._logs:
            copy._logs.append(log[rows])
        return copy


class EDetectors:
    """An `EDetector` for each of many panels with the same units; simulations need many panels.

        h   = max_drop + k sigma
        L   = the greatest of the units' sums of (1 - b + h), so that F stays above 0
        F   = product over units of (1 + g/L * sum over the unit of (b - x - h))
        E_k = mean over g of the wealth of `ShiryaevRobertsWealth` with the factors F
        e   = min over k of E_k A_k

    b is the mean of an instance in the baseline, x its value at the look; g is from
    `BET_FRACTIONS`, k from `Z_GRID` and A_k from `MIXTURE_WEIGHTS`. F is a product of factors over
    independent units. As long as the mean has not fallen by more than h, each factor has an
    expectation of at most 1, and so has F.
    """

    def __init__(
        self,
        values: Array,
        units: Units,
        max_drop: float,
        looks: int,
        whole_unit: float | None = None,
    ) -> None:
        """Prepare the detectors.

        Args:
            values: The values of the baselines: (panels, B, n); otherwise as `Baseline.values`.
            units: The units of each panel.
            max_drop: The greatest permitted drop of the mean.
            looks: The greatest number of looks.
            whole_unit: The argument of `sigma_of`.
        """
        self._units = units
        self._share = values.mean(axis=-2)  # b
        self._allowed = max_drop + Z_GRID * sigma_of(values, units, whole_unit)[:, None]  # h
        lost = units.totals(1 - self._share)[:, None] + units.sizes * self._allowed[..., None]
        # L; the lower limit avoids division by 0 if all answers are right and no drop is permitted
        self._scale = np.maximum(lost.max(axis=-1), 1e-9)
        self._stakes = ShiryaevRobertsWealth(looks)
        # the index in `Z_GRID` of the smallest weighted evidence of each panel
        self._least: Array = np.zeros(len(values), int)

    def look(self, values: Array) -> Array:
        """Return e of each panel after this look: (panels,), for values (panels, n).

        NaN, a missing value, counts as the best value, which is never evidence of a drop: an
        endpoint that is down does not show that the model is worse.
        """
        fallen = self._units.totals(self._share - np.where(np.isnan(values), 1.0, values))
        logs = np.empty((len(fallen), len(Z_GRID), len(BET_FRACTIONS)))
        factors = np.empty(fallen.shape)
        for k in range(len(Z_GRID)):
            excess = fallen - self._units.sizes * self._allowed[:, k, None]
            gain = excess / self._scale[:, k, None]
            for g, fraction in enumerate(BET_FRACTIONS.tolist()):
                np.multiply(gain, fraction, out=factors)
                logs[:, k, g] = np.log1p(factors, out=factors).sum(axis=-1)
        evidence = self._stakes.look(logs) * MIXTURE_WEIGHTS
        self._least = evidence.argmin(axis=-1)
        return np.asarray(evidence.min(axis=-1))

    def lose(self) -> None:
        """Count a look at which all wealth in the game is lost.

        Simulations use this for looks long before the drop: it is fast, and it understates how
        often a drop is found.
        """
        self._stakes.look(np.full((len(self._least), len(Z_GRID), len(BET_FRACTIONS)), -np.inf))

    def since(self) -> Array:
        """Return the look, from 1, whose stake has grown most; 0 if none has grown: (panels,)."""
        if not self._stakes.seen:
            return np.zeros_like(self._least)
        return _since(self.grown())

    def grown(self) -> Array:
        """Return the log growth of each look's stake, at the k that counts: (seen, panels)."""
        return self._stakes.grown()[:, np.arange(len(self._least)), self._least]

    def of(self, panels: Array) -> EDetectors:
        """Return an independent copy with these panels alone."""
        copy = object.__new__(EDetectors)
        copy._units = self._units
        copy._stakes = self._stakes.of(panels)
        copy._least = self._least[panels]
        copy._share = self._share[panels]
        copy._allowed = self._allowed[panels]
        copy._scale = self._scale[panels]
        return copy


class EDetector:
    """The evidence that one limit of a panel is broken: `EDetectors` of a single panel."""

    def __init__(self, baseline: Baseline) -> None:
        self._detectors = EDetectors(
            baseline.values[None],
            Units(baseline.units),
            baseline.max_drop,
            baseline.looks,
            baseline.whole_unit,
        )

    def look(self, values: ArrayLike) -> float:
        """Return e after this look, a finite number above 0.

        Args:
            values: The values of the instances, from 0 to 1; NaN if missing: (n,).
        """
        return float(self._detectors.look(np.round(np.asarray(values, float), 12)[None])[0])

    @property
    def since(self) -> int | None:
        """The look, from 1, at which the drop most likely began.

        None before the first look, and if there is no evidence of a drop.
        """
        return int(self._detectors.since()[0]) or None

    @property
    def since_range(self) -> tuple[int, int] | None:
        """The first and the last look at which the drop may have begun; None without evidence.

        `SINCE_WITHIN` determines the width of the range.
        """
        return _range_of(self._detectors.grown()[:, 0])


class ChangeDetector:
    """A test whether a task's totals changed since the baseline, for the better or the worse.

    The test is a conformal test martingale (V. Vovk, Statistical Science 36:595-611, 2021). As long
    as nothing changes, the runs of the baseline and the looks could have come in any order. The
    rank of a look among all totals before it, with ties broken at random, is then uniform and
    independent of the earlier ranks; the wealth of bets against this is a martingale. With p the
    rank divided by the number of totals, the bets are c p^(c-1) and c (1-p)^(c-1), for c from
    `POWERS`. The wealth is that of `ShiryaevRobertsWealth`.

    A martingale reaches 1 / alpha with a probability of at most alpha. The martingales of several
    tasks use different histories, so their mean may not be a martingale; Bonferroni's correction is
    valid (`alarm_level`).
    """

    def __init__(self, baseline_totals: ArrayLike, looks: int, seed: int) -> None:
        """Prepare the test.

        Args:
            baseline_totals: The sum or the mean of each run's values: (B,).
            looks: The greatest number of looks.
            seed: The seed of the random numbers that break ties.
        """
        self._known = np.asarray(baseline_totals, float)  # the totals of all runs and looks so far
        self._stakes = ShiryaevRobertsWealth(looks)
        self._random = np.random.default_rng(seed)

    def look(self, total: float) -> float:
        """Return the martingale after this look, a finite number above 0.

        Raises:
            ValueError: All looks were made.
        """
        totals = np.append(self._known, total)
        ties = np.abs(totals - total) < 1e-9  # the new total is a tie with itself
        rank = ((totals < total) & ~ties).sum() + self._random.uniform(1e-9, 1 - 1e-9) * ties.sum()
        p = np.array([[rank / len(totals)], [1 - rank / len(totals)]])
        value = self._stakes.look((np.log(POWERS) + (POWERS - 1) * np.log(p)).ravel())
        self._known = totals
        return float(value)

    @property
    def since(self) -> int | None:
        """The look at which a change most likely began, as in `EDetector.since`."""
        if not self._stakes.seen:
            return None
        return int(_since(self._stakes.grown())) or None

    @property
    def since_range(self) -> tuple[int, int] | None:
        """The first and the last look at which the change may have begun; None without evidence."""
        return _range_of(self._stakes.grown())


def alarm_level(count: int, alpha: float) -> float:
    """Return the level at which one of `count` martingales raises an alarm (Bonferroni)."""
    return count / alpha


def _range_of(grown: Array) -> tuple[int, int] | None:
    """Return the first and the last look, from 1, whose stake grew nearly as much as the largest.

    Return None if no stake has grown.

    Args:
        grown: the log growth of each look's stake: (seen,).
    """
    if grown.max() <= 0:
        return None
    likely = np.flatnonzero(grown >= grown.max() - np.log(SINCE_WITHIN)) + 1
    return int(likely[0]), int(likely[-1])


def _since(grown: Array) -> Array:
    """Return the look whose stake grew most, from 1; 0 if none grew: (...), for (seen, ...)."""
    return np.asarray(np.where(grown.max(axis=0) > 0, grown.argmax(axis=0) + 1, 0))


# The rest of this module simulates years of a panel: a year is one panel with all its looks, one
# look a week. The simulation shows which drops the panel can find, and how many runs its baseline
# needs. Answers of a unit move together as `Baseline.sigma`
# indicates. A drop sets random answers to the worst value. Only one limit drops, so the alarm is
# raised when the e of this limit alone reaches (number of limits) / alpha. The measured runs of a
# baseline are used, and further runs are drawn at random. With more measured runs, the advice on
# the number of runs may change; it is therefore computed again for each longer baseline.

DROPS = (0.05, 0.1, 0.2)  # the simulated drops, as shares of the scale
REPEATS = (5, 10, 20, 40, 80)  # the simulated numbers of runs of a baseline, ascending
FLIP_RATES = (0.02, 0.1, 0.3)  # the assumed shares of answers that differ between two runs
RUNS_ASSUMED = 40  # the number of runs of an invented baseline, before anything was asked
ENOUGH = 0.97
"""A drop is found reliably if this share of simulated years finds the drop.

The aim is 95 % of all years; the share in 200 simulated years can err by 1.5 %.
"""
YEARS = 200  # the number of simulated years for one drop
FIRST = 60
"""If less than 80 % of the first 60 years find a drop, the other years are not simulated."""
LEVELS = 11
"""The greatest number of distinct simulated values; more are rounded to 11 evenly spaced values."""
TOGETHER = 0.3
"""The assumed correlation with which answers of a unit drop; a baseline does not show this."""
MAX_SIMULATED = 2000  # in instances
RUN_IN = 6
"""The number of looks before the drop that are simulated; earlier wealth counts as lost."""


@dataclass(frozen=True)
class DropFinding:
    """A simulated drop: how often and how soon a panel finds it."""

    drop: float  # a share of the scale
    share: float  # the share of years with an alarm between the drop and the last look
    weeks: int | None
    """The median number of looks, one a week, from the drop to the alarm.

    1 if the first look after the drop raises the alarm; None if most years have no alarm.
    """


@dataclass(frozen=True)
class Needed:
    """The number of runs that a baseline needs."""

    # the smallest number of runs that is enough; None if 80 runs are not enough
    repeats: int | None
    # the finding with `repeats` runs; if `repeats` is None, the finding with the most runs
    finding: DropFinding


def simulated_findings(limits: Sequence[Baseline], alpha: float) -> list[list[DropFinding]]:
    """Return for each limit how it finds each of `DROPS`, with its baseline's number of runs.

    The simulated drop begins at look 20 of 52; for another number of looks, at the same fraction of
    the looks. A drop of at most `max_drop` is permitted, so it raises only false alarms.
    """
    level = len(limits) / alpha
    return [_finds(limit, level, YEARS, [0, index]) for index, limit in enumerate(limits)]


def hardest_findings(findings: Sequence[Sequence[DropFinding]]) -> list[DropFinding]:
    """Return for each drop the finding of the limit that finds this drop in the fewest years.

    The panel finds the drop at least as often as this, whichever limit drops.

    Args:
        findings: for each limit, its findings of the same drops.
    """
    # Among limits with the same share, the one with the latest alarm is the hardest.
    hardest = []
    for findings_of_drop in zip(*findings, strict=True):
        hardest.append(
            min(findings_of_drop, key=lambda finding: (finding.share, -(finding.weeks or 0)))
        )
    return hardest


def needed_repeats(limits: Sequence[Baseline], alpha: float, seed: int = 0) -> list[Needed]:
    """Return for each limit how many runs its baseline needs, by simulation.

    The runs have to find a drop of 10 points of the scale in 95 % of the years; if `max_drop` plus
    5 points is more, a drop of this size. The tried numbers are the number of existing runs, and
    the greater numbers in `REPEATS`.

    A longer baseline may need more runs than five runs suggest: a source that can fail as a whole
    may not have failed in the five runs. So call this function again for each longer baseline.
    """
    level = len(limits) / alpha
    return [_needed(limit, level, [seed, index]) for index, limit in enumerate(limits)]


def assumed_findings(
    units: Sequence[Array],
    max_drops: Sequence[float],
    repeats: int,
    looks: int,
    alpha: float,
    accuracy: float = 0.8,
) -> dict[float, list[DropFinding]]:
    """Return which drops a panel can be expected to find, before anything was asked.

    The simulated answers are right or wrong. Answers of a cluster are assumed to flip with a
    correlation of 0.3.

    Args:
        units: The units of each limit, as in `Baseline.units`.
        max_drops: The max_drop of each limit.
        repeats: The number of runs of the baseline.
        looks: The greatest number of looks.
        alpha: The error rate of the panel.
        accuracy: The assumed share of right answers.

    Returns:
        Share of answers that flip between two runs (`FLIP_RATES`) -> the findings of the limit that
        finds each drop in the fewest years.
    """
    from scipy.special import betaincinv  # imported here, because this import is slow

    # Limits whose units have the same sizes, with the same max_drop, are simulated once.
    distinct = {}
    for labels, max_drop in zip(units, max_drops, strict=True):
        sizes = tuple(sorted(Units(labels).sizes.tolist()))
        key = (*sizes, max_drop)
        distinct[key] = (labels, max_drop)
    by_flip_rate = {}
    for rate in FLIP_RATES:
        rng = np.random.default_rng(0)
        findings = []
        # The chances of a right answer follow a beta distribution with the mean `accuracy` and this
        # strength. Two runs of an instance then differ with a mean probability of `rate`.
        strength = rate / max(2 * accuracy * (1 - accuracy) - rate, 1e-6)
        for labels, max_drop in distinct.values():
            # Each instance has its own chance of a right answer: the quantiles of the distribution
            # at evenly spaced `parts`, in a random order.
            parts = (np.arange(len(labels)) + 0.5) / len(labels)
            chances = rng.permutation(
                betaincinv(accuracy * strength, (1 - accuracy) * strength, parts)
            )
            runs = []
            for _ in range(RUNS_ASSUMED):
                runs.append(_together(rng, Units(labels), TOGETHER, 1)[0] >= 1 - chances)
            baseline = Baseline(np.stack(runs), labels, max_drop, looks)
            level = len(units) / alpha
            # measured=0: no run of the simulated baselines is a measured run, all are drawn.
            findings.append(_finds(baseline, level, YEARS // 2, [0], _Runs(repeats, measured=0)))
        by_flip_rate[rate] = hardest_findings(findings)
    return by_flip_rate


def _smaller(limit: Baseline) -> Baseline:
    """Return a part of a large panel, with complete units, to save memory.

    The part finds drops less often than the panel; the simulation errs on the safe side.
    """
    units = Units(limit.units)
    # The first units, up to `MAX_SIMULATED` instances; at least one unit.
    is_in_part = units.sizes.cumsum()[units.of] <= max(MAX_SIMULATED, int(units.sizes[0]))
    if is_in_part.all():
        return limit
    values = limit.values[:, is_in_part]
    return Baseline(values, limit.units[is_in_part], limit.max_drop, limit.looks)


def _finds(
    limit: Baseline,
    level: float,
    years: int,
    seed: list[int],
    runs: _Runs | None = None,
) -> list[DropFinding]:
    """Return how a limit finds each of `DROPS`.

    Args:
        limit: The baseline of the limit.
        level: The e-value that raises an alarm.
        years: The number of simulated years.
        seed: The seed of the random numbers.
        runs: The numbers of runs of the simulated baselines; by default, the measured runs alone.
    """
    limit = _smaller(limit)
    rng = np.random.default_rng(seed)
    if runs is None:
        runs = _Runs(len(limit.values), len(limit.values))
    weeks_by_drop = _weeks_until(limit, runs, DROPS, level, years, rng)
    return [_finding(drop, weeks) for drop, weeks in zip(DROPS, weeks_by_drop, strict=True)]


def _needed(limit: Baseline, level: float, seed: list[int]) -> Needed:
    """Return how many runs the baseline of a limit needs.

    `level` is the e-value that raises an alarm.
    """
    limit = _smaller(limit)
    drop = max(0.1, limit.max_drop + 0.05)
    measured = len(limit.values)
    for repeats in (measured, *(count for count in REPEATS if count > measured)):
        rng = np.random.default_rng([*seed, repeats])
        runs = _Runs(repeats, measured)
        weeks = _weeks_until(limit, runs, [drop], level, FIRST, rng)[0]
        if np.isfinite(weeks).mean() >= 0.8:  # `FIRST` explains this limit
            later = _weeks_until(limit, runs, [drop], level, YEARS - FIRST, rng)[0]
            weeks = np.append(weeks, later)
        finding = _finding(drop, weeks)
        if finding.share >= ENOUGH:
            return Needed(repeats, finding)
    return Needed(None, finding)


def _finding(drop: float, weeks: Array) -> DropFinding:
    """Return the finding of a drop.

    `weeks` are the numbers of looks from the drop to the alarm, one for each simulated year; inf
    for a year without an alarm.
    """
    share = float(np.isfinite(weeks).mean())
    median = float(np.sort(weeks)[len(weeks) // 2])
    return DropFinding(drop, share, int(median) if np.isfinite(median) else None)


@dataclass(frozen=True)
class _Runs:
    """The numbers of runs of a simulated baseline."""

    count: int  # the number of all runs
    measured: int  # the number of measured runs; the other runs are drawn at random


def _weeks_until(
    limit: Baseline,
    baseline_runs: _Runs,
    drops: Sequence[float],
    level: float,
    years: int,
    rng: np.random.Generator,
) -> list[Array]:
    """Return for each drop the number of looks from the drop to the alarm: (years,) each.

    The number is inf for a year without an alarm.
    """
    answers = Answers(limit, years, rng)
    measured = answers.measured[: baseline_runs.measured]
    runs = np.empty((years, baseline_runs.count, len(answers.units.of)))
    runs[:, : len(measured)] = measured
    for run in range(len(measured), baseline_runs.count):
        runs[:, run] = answers.draw()
    start = EDetectors(runs, answers.units, limit.max_drop, limit.looks)
    # the number of looks before the drop: 19 of 52
    before = limit.looks * 19 // 52
    by_drop = list[Array]()
    for look in range(before):
        if look < before - RUN_IN:
            start.lose()
        else:
            start.look(answers.draw())
    for drop in drops:
        without_alarm: Array = np.arange(years)
        weeks = np.full(years, np.inf)
        detector = start.of(without_alarm)
        for week in range(1, limit.looks - before + 1):
            alarm = detector.look(answers.draw(without_alarm, drop)) >= level
            weeks[without_alarm[alarm]] = week
            without_alarm = without_alarm[~alarm]
            detector = detector.of(~alarm)
            if not len(without_alarm):
                break
        by_drop.append(weeks)
    return by_drop


class Answers:
    """Random answers of simulated panels that resemble a baseline; each year is one panel.

    An instance's answer is drawn from its own runs and, with the weight of M further runs, from the
    runs of all instances (T. S. Ferguson, Annals of Statistics 1:209-230, 1973; for right and wrong
    answers, this is the beta-binomial model). So an instance that was right in five of five runs
    may be wrong in one of ten. M is chosen so that two simulated runs differ as often as two
    measured runs. For the estimates, an instance that is right in half of its runs is added, so
    that no simulated panel is constant.
    """

    def __init__(self, like: Baseline, years: int, rng: np.random.Generator) -> None:
        """Estimate the distribution of each instance's answers from a baseline.

        Args:
            like: The baseline that the panels resemble.
            years: The number of simulated panels.
            rng: The generator of random numbers.
        """
        self.units = Units(like.units)
        self._rng = rng
        runs, count = like.values.shape
        distinct = np.unique(np.append(like.values, [0.0, 1.0]))
        self._levels = distinct if len(distinct) <= LEVELS else np.linspace(0, 1, LEVELS)
        nearest = np.abs(like.values[..., None] - self._levels).argmin(axis=-1)
        self.measured: Array = self._levels[nearest]
        """The runs of the baseline, rounded to the levels: (B, n)."""
        # counts: how often an instance has each level, (n, levels); pool: the shares of the levels
        # over all instances, with the added instance, (levels,)
        counts = (nearest[..., None] == np.arange(len(self._levels))).sum(axis=0)
        pool = counts.sum(axis=0) + runs / 2 * np.isin(self._levels, [0.0, 1.0])
        pool /= pool.sum()
        spread_of_instance = like.values.var(axis=0, ddof=1)
        spread = float(pool @ (self._levels - pool @ self._levels) ** 2)
        # The mean variance of an instance, as a share of the variance over all answers, is
        # M / (M + 1). `prior` is M. The added instance has the variance runs / (runs - 1) / 4.
        flips = float(spread_of_instance.sum() + runs / (runs - 1) / 4) / (count + 1) / spread
        prior = 1 / max(1 / flips - 1, 0.001)
        # the probabilities of each instance's levels: (years, n, levels)
        parts = rng.standard_gamma(
            np.broadcast_to(prior * pool + counts, (years, count, len(self._levels)))
        )
        parts /= parts.sum(axis=-1, keepdims=True)
        self._move_means(parts, like)
        self._mean = (parts @ self._levels).mean(axis=-1)
        self._below = parts.cumsum(axis=-1)[..., :-1]  # the cumulative probabilities of the levels
        self._correlation = 1.0  # for `draw` below: units change as a whole
        # Estimate the correlation inside units: the excess of the units' variance over that of
        # independent instances in the runs, divided by the excess if units change as a whole.
        # The lower limit of a unit's variance protects a test, but is not an estimate: it is 0.
        sigma = float(sigma_of(like.values, self.units, whole_unit=0.0))
        excess = (
            runs * (count * sigma) ** 2 - self.units.sizes.mean() / 2 - spread_of_instance.sum()
        )
        drawn = np.stack([self.draw() for _ in range(5)])
        independent = drawn.var(axis=0, ddof=1).sum()
        drawn_excess = self.units.totals(drawn).var(axis=0, ddof=1).sum() - independent
        greatest_excess = drawn_excess / max(independent, 1e-9)
        self._correlation = 0.0
        if greatest_excess > 0:
            share = excess / (spread_of_instance.sum() + 0.5) / greatest_excess
            self._correlation = min(1.0, max(0.0, share))

    def _move_means(self, parts: Array, like: Baseline) -> None:
        """Move the true means of the years, so that they vary as much as the baseline's runs show.

        All instances of the baseline may have been lucky together; the runs of each instance alone
        do not show this. The probability p of a level x becomes p exp(t x), divided by the sum of
        these over the levels. The random t of a year moves instances whose answers vary; an
        instance that is always right stays right.

        Args:
            parts: The probabilities of the levels, (years, n, levels); changed in place.
            like: The measured baseline.
        """
        runs, count = like.values.shape
        means = parts @ self._levels
        spread = float((parts @ np.square(self._levels) - np.square(means)).mean())
        run_variance = self.units.totals(like.values).var(axis=0, ddof=1).sum() / runs / count**2
        missing_variance = max(0.0, float(run_variance - means.mean(axis=-1).var()))
        moves = self._rng.normal(0, np.sqrt(missing_variance), len(parts))
        parts *= np.exp(moves[:, None] / spread * self._levels)[:, None]
        parts /= parts.sum(axis=-1, keepdims=True)

    def draw(self, years: Array | None = None, drop: float = 0.0) -> Array:
        """Return random answers of one look: (years, n).

        Args:
            years: The years to draw answers for; all by default.
            drop: The drop of the mean; a mean that is lower than the drop falls to 0.
        """
        mean = self._mean
        below = self._below
        if years is not None:
            mean = mean[years]
            below = below[years]
        level = _together(self._rng, self.units, self._correlation, len(mean))
        answers = self._levels[(level[..., None] > below).sum(axis=-1)]
        if drop:
            chance = (drop / np.maximum(mean, 1e-9))[:, None]
            fallen = _together(self._rng, self.units, TOGETHER, len(mean)) < chance
            answers[fallen] = 0.0
        return np.asarray(answers)


def _together(rng: np.random.Generator, units: Units, correlation: float, years: int) -> Array:
    """Return uniform random numbers: (years, n).

    Two numbers of a unit are equal with a probability of `correlation`.
    """
    independent = rng.random((years, len(units.of)))
    if not correlation or len(units.sizes) == len(units.of):
        return independent
    common = rng.random((years, len(units.sizes)))[:, units.of]
    takes_common = rng.random(independent.shape) < np.sqrt(correlation)
    return np.asarray(np.where(takes_common, common, independent))
