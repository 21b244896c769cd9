"""Tests whether a panel became worse than allowed, or changed at all.

The error rate of an alarm applies to all looks together, however many of them are made. A baseline
has a greatest number of looks (`LimitBaseline.looks`).

A panel is a fixed sample of instances, asked B times as a baseline and then once at each look.
In this module, `(B, n)` is the shape of an array: B runs of n instances. U is the number of units.
`...` stands for any dimensions before the named dimensions.

`EDetectors` bets that the mean has fallen by more than `max_drop`. As long as the mean has not
fallen so far, the stake is not expected to grow (J. Ville, Etude critique de la notion de
collectif, 1939). The method is the e-detector of Shiryaev and Roberts with a budget (J. Shin,
A. Ramdas and A. Rinaldo, arXiv:2203.03532). The bets are those on means of bounded values of
I. Waudby-Smith and A. Ramdas, JRSS B 86:1-27, 2024.

The baseline's mean may be k standard errors too high by chance. The evidence is therefore computed
for several k, and multiplied by a weight for each k; the smallest product is the evidence of the
look. The test assumes that the baseline's mean is about normal, with the standard error
`LimitBaseline.sigma`. docs/monitor.md states the other assumptions; benchmarks/monitor_alarms.py
counts false alarms. The functions are pure: they read no files.
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
Z_GRID = np.arange(17) / 4
"""The values of k, from 0 to 4: by how many standard errors the baseline's mean is too high."""
TILTS = np.array([0.75, 1.5, 2.5])  # the values of t in `mixture_weights`
ROUNDING_LOSS = 1.29  # explained in `mixture_weights`


def mixture_weights(z: Array) -> Array:
    """Return the weight of the evidence at each k in `z`.

        A_k = mean over the tilts t of exp(t k - t^2 / 2) / ROUNDING_LOSS

    If k is drawn from the standard normal distribution, the mean of exp(t k - t^2 / 2) is 1. The
    true k of a panel is rounded up to the next value in `Z_GRID`, which makes the weight too large;
    the division by `ROUNDING_LOSS` compensates for that. Without rounding, 1.07 would be enough.
    """
    likelihood_ratios = np.exp(np.outer(z, TILTS) - np.square(TILTS) / 2)
    return np.asarray(likelihood_ratios.mean(axis=1) / ROUNDING_LOSS)


MIXTURE_WEIGHTS = mixture_weights(Z_GRID)
"""The weight of each k in `Z_GRID`. One panel in 30,000 has a k above 4."""
WHOLE_UNIT = 0.5
"""The parameter `whole_unit` of `sigma_of`.

With 1 instead of .5, a panel of 30 units of five instances would find a drop of 10 points in 19 %
of years instead of 99 %.
"""
POWERS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])  # the values of c in `ChangeDetector`
SINCE_WITHIN = 20.0
"""The width of the range of looks in which a drop may have begun.

The range contains each look whose stake grew to at least a twentieth of the largest stake. For five
simulated panels, the drop began in this range in 94 to 100 % of alarms.
"""
DECIMALS = 12  # values are rounded to this number of decimals, against errors of floating point
MAX_E_VALUE = 1e250  # larger e-values are set to this number, so that they stay finite


@dataclass(frozen=True, eq=False)
class LimitBaseline:
    """The values of one limit of a panel before the first look."""

    values: Array  # (B, n), from 0 (worst) to 1 (best)
    units: Array  # (n,): an integer for each instance, equal for the instances of a unit
    max_drop: float  # the greatest permitted drop of the mean, from 0 to 1
    looks: int  # the greatest number of looks
    whole_unit: float = WHOLE_UNIT  # the parameter of `sigma_of`

    def __post_init__(self) -> None:
        """Round and check the values.

        Raises ValueError if an array has a wrong shape, or a value is missing or out of range.
        """
        object.__setattr__(self, "values", np.round(np.asarray(self.values, float), DECIMALS))
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
        self.numbers: Array
        """The number of each instance's unit, from 0: (n,)."""
        self.sizes: Array
        """The number of instances of each unit: (U,)."""
        _, self.numbers, self.sizes = np.unique(
            np.asarray(labels), return_inverse=True, return_counts=True
        )
        # the indexes of the instances, unit by unit, and where each unit starts in this order
        self._order = np.argsort(self.numbers, kind="stable")
        self._starts = np.cumsum(self.sizes) - self.sizes

    def totals(self, values: Array) -> Array:
        """Return the sum of the values of each unit: (..., U), for values (..., n)."""
        return np.asarray(np.add.reduceat(values[..., self._order], self._starts, axis=-1))


def sigma_of(values: Array, units: Units, whole_unit: float = WHOLE_UNIT) -> Array:
    """Return the standard error of the mean over runs and instances: (...), for values (..., B, n).

    The standard error is widened as an interval by Student's t is:

        v = sum over the units of s_u^2 + m/2,    sigma = t(.975, nu) / 1.96 * sqrt(v / B) / n

    s_u^2 is the variance of a unit's sum over the runs. m is the mean size of the units; without
    the term m/2, a baseline whose runs do not differ would count as exact. The degrees of freedom
    are nu = (B - 1) v^2 / (sum of s_u^4 + (m/2)^2) (F. E. Satterthwaite, Biometrics Bulletin
    2:110-114, 1946). nu is at least 4, and at most the degrees for units whose s_u is proportional
    to their size.

    All answers of a unit may fail together, in a share of runs so small that the B runs do not show
    it. So s_u^2 has a lower limit. If a unit changed completely in one of the B runs, s_u^2 would
    be (size)^2 / B. For units of several instances, the lower limit is the share `whole_unit` of
    this variance. If there are few effective units, or if a unit has over 30 % of the instances,
    the lower limit of each unit is the complete variance.

    benchmarks/monitor_alarms.py counted false alarms without these limits. Without the share, 8 to
    38 % of panels with a unit of 25 in 100 instances that fails in one of ten runs gave a false
    alarm in a year at `max_drop` 0. Without the complete variance, 16 % of panels with a unit of
    80 and 20 units of 1 gave a false alarm.
    """
    from scipy.special import stdtrit  # imported here, because this import is slow

    runs, count = values.shape[-2:]
    squares = np.square(units.sizes.astype(float))
    effective_units = count**2 / squares.sum()
    if effective_units < FEW_SOURCES or units.sizes.max() > LARGE_SOURCE * count:
        min_variances = squares / runs
    else:
        min_variances = np.where(units.sizes > 1, whole_unit * squares, 0.0) / runs
    variances = np.maximum(units.totals(values).var(axis=-2, ddof=1), min_variances)  # s_u^2
    half_size = units.sizes.mean() / 2  # m/2
    variance = variances.sum(axis=-1) + half_size  # v
    degrees = (runs - 1) * variance**2 / (np.square(variances).sum(axis=-1) + half_size**2)
    max_degrees = (runs - 1) * squares.sum() ** 2 / np.square(squares).sum()
    degrees = np.minimum(np.maximum(4.0, degrees), max_degrees)
    return np.asarray(stdtrit(degrees, 0.975) / 1.96 * np.sqrt(variance / runs) / count)


class ShiryaevRobertsWealth:
    """The wealth of a player who divides a stake of 1 equally over all looks.

    At each look the player adds 1/looks of the stake, the stake of this look, to the wealth that is
    already in the game. A change at any look therefore meets money that lost nothing before (A. N.
    Shiryaev, 1963; S. W. Roberts, 1966). Several bets are played side by side, each with its own
    wealth. A bet multiplies its wealth by a factor at each look.
    """

    def __init__(self, looks: int) -> None:
        """Start with a stake of 1 for this number of looks."""
        self.looks = looks
        self._in_game: Array = np.zeros(())  # the wealth in the game: (..., bets)
        self._log_factors: list[Array] = []  # for each look, the logarithms of the bets' factors

    @property
    def looks_made(self) -> int:
        """The number of looks so far."""
        return len(self._log_factors)

    def add_look(self, log_factors: Array) -> Array:
        """Play the next look, and return the mean wealth of the bets: (...).

        Args:
            log_factors: the logarithms of the bets' factors: (..., bets).

        Raises:
            ValueError: All looks that the stake is for were made.
        """
        if self.looks_made == self.looks:
            raise ValueError(f"the baseline is for {self.looks} looks: start another baseline")
        self._log_factors.append(log_factors)
        with np.errstate(over="ignore"):  # an infinite wealth is set to the maximum
            wealth = (self._in_game + 1 / self.looks) * np.exp(log_factors)
            self._in_game = np.minimum(wealth, MAX_E_VALUE)
        stakes_of_later_looks = (self.looks - self.looks_made) / self.looks
        return np.asarray(self._in_game.mean(axis=-1) + stakes_of_later_looks)

    def log_growth(self) -> Array:
        """Return how much the stake of each look has grown: (looks made, ...).

        The growth is the logarithm of the mean over the bets.
        """
        # The stake of a look is multiplied by the factors of this look and of all later looks.
        growth_of_bets = np.cumsum(np.array(self._log_factors)[::-1], axis=0)[::-1]
        # Subtract the maximum before `exp`, so that no number overflows.
        maximum = growth_of_bets.max(axis=-1, keepdims=True)
        return np.asarray(np.log(np.exp(growth_of_bets - maximum).mean(axis=-1)) + maximum[..., 0])

    def for_panels(self, panels: Array) -> ShiryaevRobertsWealth:
        """Return a copy with the wealth of these panels alone: (panels, ..., bets)."""
        copy = ShiryaevRobertsWealth(self.looks)
        copy._in_game = self._in_game
        if self.looks_made:  # before the first look, all panels share a single 0
            copy._in_game = self._in_game[panels]
        for log_factors in self._log_factors:
            copy._log_factors.append(log_factors[panels])
        return copy


class EDetectors:
    """The evidence of many panels with the same units; simulations need many panels.

        h   = max_drop + k sigma
        L   = the greatest of the units' sums of (1 - b + h), so that F stays above 0
        F   = product over units of (1 + g/L * sum over the unit of (b - x - h))
        E_k = mean over g of the wealth of `ShiryaevRobertsWealth` with the factors F
        e   = min over k of E_k A_k

    b is the mean value of an instance in the baseline, and x is the instance's value at the look.
    g is from `BET_FRACTIONS`, k from `Z_GRID` and A_k from `MIXTURE_WEIGHTS`. F is a product of
    factors over independent units. As long as the mean has not fallen by more than h, each factor
    has an expectation of at most 1, and so has F.
    """

    def __init__(
        self,
        values: Array,
        units: Units,
        max_drop: float,
        looks: int,
        whole_unit: float = WHOLE_UNIT,
    ) -> None:
        """Prepare the test of each panel.

        Args:
            values: The values of the baselines, from 0 (worst) to 1 (best): (panels, B, n).
            units: The units of each panel.
            max_drop: The greatest permitted drop of the mean.
            looks: The greatest number of looks.
            whole_unit: The parameter of `sigma_of`.
        """
        self._units = units
        self._means = values.mean(axis=-2)  # b
        self._tolerated = max_drop + Z_GRID * sigma_of(values, units, whole_unit)[:, None]  # h
        sums = units.totals(1 - self._means)[:, None] + units.sizes * self._tolerated[..., None]
        # L; the lower limit avoids division by 0 if all answers are right and no drop is permitted
        self._greatest_sum = np.maximum(sums.max(axis=-1), 1e-9)
        self._wealth = ShiryaevRobertsWealth(looks)
        self._k_of_e: Array = np.zeros(len(values), int)
        """The index in `Z_GRID` of the k with the smallest E_k A_k: (panels,)."""

    def add_look(self, values: Array) -> Array:
        """Return e of each panel after the next look: (panels,), for values (panels, n).

        NaN, a missing value, counts as the best value, which is never evidence of a drop: an
        endpoint that is down does not show that the model is worse.
        """
        drops = self._units.totals(self._means - np.where(np.isnan(values), 1.0, values))
        log_factors = np.empty((len(drops), len(Z_GRID), len(BET_FRACTIONS)))
        buffer = np.empty(drops.shape)  # used again for each bet, because new arrays are slow
        for k in range(len(Z_GRID)):
            excess = drops - self._units.sizes * self._tolerated[:, k, None]
            gain = excess / self._greatest_sum[:, k, None]
            for g, fraction in enumerate(BET_FRACTIONS.tolist()):
                np.multiply(gain, fraction, out=buffer)
                np.log1p(buffer, out=buffer)
                log_factors[:, k, g] = buffer.sum(axis=-1)
        evidence = self._wealth.add_look(log_factors) * MIXTURE_WEIGHTS
        self._k_of_e = evidence.argmin(axis=-1)
        return np.asarray(evidence.min(axis=-1))

    def lose_all(self) -> None:
        """Count a look at which all wealth in the game is lost.

        Simulations use this for looks long before the drop: it is fast, and it understates how
        often a drop is found.
        """
        shape = (len(self._k_of_e), len(Z_GRID), len(BET_FRACTIONS))
        self._wealth.add_look(np.full(shape, -np.inf))  # the logarithm of the factor 0

    def since(self) -> Array:
        """Return the look, from 1, whose stake has grown most; 0 if none has grown: (panels,)."""
        if not self._wealth.looks_made:
            return np.zeros_like(self._k_of_e)
        return _most_grown(self.log_growth())

    def log_growth(self) -> Array:
        """Return the log growth of each look's stake, for the k of e: (looks made, panels)."""
        panels = np.arange(len(self._k_of_e))
        return self._wealth.log_growth()[:, panels, self._k_of_e]

    def for_panels(self, panels: Array) -> EDetectors:
        """Return an independent copy with these panels alone."""
        copy = object.__new__(EDetectors)  # without `__init__`, which would compute all again
        copy._units = self._units
        copy._wealth = self._wealth.for_panels(panels)
        copy._k_of_e = self._k_of_e[panels]
        copy._means = self._means[panels]
        copy._tolerated = self._tolerated[panels]
        copy._greatest_sum = self._greatest_sum[panels]
        return copy


class EDetector:
    """The evidence that one limit of a panel is broken: `EDetectors` of a single panel."""

    def __init__(self, baseline: LimitBaseline) -> None:
        self._detectors = EDetectors(
            baseline.values[None],  # [None] adds the dimension of the panels
            Units(baseline.units),
            baseline.max_drop,
            baseline.looks,
            baseline.whole_unit,
        )

    def add_look(self, values: ArrayLike) -> float:
        """Return e after the next look, a finite number above 0.

        Args:
            values: The values of the instances, from 0 to 1; NaN if missing: (n,).
        """
        rounded = np.round(np.asarray(values, float), DECIMALS)
        return float(self._detectors.add_look(rounded[None])[0])

    @property
    def since(self) -> int | None:
        """The look, from 1, at which the drop most likely began.

        None before the first look, and if there is no evidence of a drop.
        """
        return int(self._detectors.since()[0]) or None  # 0 means that no stake has grown

    @property
    def since_range(self) -> tuple[int, int] | None:
        """The first and the last look at which the drop may have begun; None without evidence.

        `SINCE_WITHIN` determines the width of the range.
        """
        return _range_of_looks(self._detectors.log_growth()[:, 0])


class ChangeDetector:
    """A test whether a total changed since the baseline, for the better or the worse.

    A total is the sum or the mean of the values of a run or a look. The test is a conformal test
    martingale (V. Vovk, Statistical Science 36:595-611, 2021). As long as nothing changes, the runs
    of the baseline and the looks could have come in any order. The rank of a look's total among all
    totals so far is then uniform, and independent of the earlier ranks; ties are broken at random.
    With p the rank divided by the number of totals, the factors of the bets against this are
    c p^(c-1) and c (1-p)^(c-1), for c from `POWERS`. Their wealth (`ShiryaevRobertsWealth`) is a
    martingale.

    A martingale reaches 1 / alpha with a probability of at most alpha. The martingales of several
    tasks use different histories, so their mean may not be a martingale; Bonferroni's correction is
    valid (`alarm_level`).
    """

    def __init__(self, baseline_totals: ArrayLike, looks: int, seed: int) -> None:
        """Prepare the test.

        Args:
            baseline_totals: The total of each run of the baseline: (B,).
            looks: The greatest number of looks.
            seed: The seed of the random numbers that break ties.
        """
        self._totals = np.asarray(baseline_totals, float)  # of all runs and looks so far
        self._wealth = ShiryaevRobertsWealth(looks)
        self._random = np.random.default_rng(seed)

    def add_look(self, total: float) -> float:
        """Return the martingale after the next look, a finite number above 0.

        Raises:
            ValueError: All looks were made.
        """
        totals = np.append(self._totals, total)
        is_tied = np.abs(totals - total) < 1e-9  # also True for the new total itself
        lower = (totals < total) & ~is_tied
        # The rank is a fraction, chosen at random within the ties; the limits exclude p = 0 and 1.
        rank = lower.sum() + self._random.uniform(1e-9, 1 - 1e-9) * is_tied.sum()
        p = rank / len(totals)
        p_and_complement = np.array([[p], [1 - p]])
        log_factors = np.log(POWERS) + (POWERS - 1) * np.log(p_and_complement)
        martingale = self._wealth.add_look(log_factors.ravel())
        self._totals = totals  # only now: `add_look` may raise
        return float(martingale)

    @property
    def since(self) -> int | None:
        """The look, from 1, at which a change most likely began.

        None before the first look, and if there is no evidence of a change.
        """
        if not self._wealth.looks_made:
            return None
        return int(_most_grown(self._wealth.log_growth())) or None  # 0: no stake has grown

    @property
    def since_range(self) -> tuple[int, int] | None:
        """The first and the last look at which the change may have begun; None without evidence."""
        return _range_of_looks(self._wealth.log_growth())


def alarm_level(alpha: float, *, tests: int = 1) -> float:
    """Return the e-value at which one of several tests of changes raises an alarm (Bonferroni).

    Args:
        alpha: the error rate of all these tests together.
        tests: the number of these tests.
    """
    return tests / alpha


def _range_of_looks(log_growth: Array) -> tuple[int, int] | None:
    """Return the first and the last look, from 1, whose stake grew nearly as much as the largest.

    Return None if no stake has grown. `SINCE_WITHIN` states what is nearly as much.

    Args:
        log_growth: the log growth of each look's stake: (looks made,).
    """
    if log_growth.max() <= 0:
        return None
    likely = np.flatnonzero(log_growth >= log_growth.max() - np.log(SINCE_WITHIN))
    return int(likely[0]) + 1, int(likely[-1]) + 1  # looks are counted from 1


def _most_grown(log_growth: Array) -> Array:
    """Return the look, from 1, whose stake grew most; 0 if no stake grew.

    Args:
        log_growth: the log growth of each look's stake: (looks made, ...). The result is (...).
    """
    look = log_growth.argmax(axis=0) + 1
    return np.asarray(np.where(log_growth.max(axis=0) > 0, look, 0))


# All that follows simulates years of a panel: a year is one panel with all its looks, one look a
# week. The simulation shows which drops the panel can find, and how many runs its baseline needs.
# Answers of a unit move together as `LimitBaseline.sigma` indicates. A drop sets random answers to
# the worst value. The score of only one limit drops, so the alarm is raised when the e of this
# limit alone reaches (number of limits) / alpha. The measured runs of a baseline are used, and
# further runs are drawn at random. With more measured runs, the advice on the number of runs may
# change; it is therefore computed again for each longer baseline.

DROPS = (0.05, 0.1, 0.2)  # the simulated drops, as shares of the scale
REPEATS = (5, 10, 20, 40, 80)  # the simulated numbers of runs of a baseline, ascending
FLIP_RATES = (0.02, 0.1, 0.3)  # the assumed shares of answers that differ between two runs
RUNS_ASSUMED = 40  # the number of runs of an invented baseline, before anything was asked
ENOUGH = 0.97
"""A drop is found reliably if this share of simulated years finds the drop.

The aim is 95 % of all years; the share in 200 simulated years can err by 1.5 %.
"""
YEARS = 200  # the number of simulated years for one drop
FIRST_YEARS = 60
MIN_SHARE_OF_FIRST = 0.8
"""If a smaller share of the first years finds a drop, the other years are not simulated."""
MAX_LEVELS = 11
"""The greatest number of distinct simulated values; more are rounded to 11 evenly spaced values."""
UNIT_CORRELATION = 0.3
"""The assumed correlation of answers in a unit that drop, or that flip between invented runs."""
MAX_SIMULATED = 2000  # the greatest number of simulated instances of a limit
SIMULATED_BEFORE_DROP = 6
"""The number of simulated looks before the drop; the wealth of earlier looks counts as lost."""


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
class NeededRuns:
    """The number of runs that a baseline needs."""

    # the smallest number of runs that is enough; None if 80 runs are not enough
    repeats: int | None
    # the finding with `repeats` runs; if `repeats` is None, the finding with the most runs
    finding: DropFinding


def simulated_findings(baselines: Sequence[LimitBaseline], alpha: float) -> list[list[DropFinding]]:
    """Return for each limit how it finds each of `DROPS`, with its baseline's number of runs.

    The simulated drop begins at look 20 of 52; for another number of looks, at the same fraction of
    the looks. A drop of at most `max_drop` is permitted, so it raises only false alarms.
    """
    level = len(baselines) / alpha
    findings = []
    for index, baseline in enumerate(baselines):
        findings.append(_findings(baseline, level, YEARS, seed=[0, index]))
    return findings


def hardest_findings(findings: Sequence[Sequence[DropFinding]]) -> list[DropFinding]:
    """Return for each drop the finding of the limit that finds this drop in the fewest years.

    The panel finds a drop at least as often as this limit, whichever limit's score drops.

    Args:
        findings: for each limit, its findings of the same drops.
    """

    def ease(finding: DropFinding) -> tuple[float, float]:
        """Return a key that sorts by the share of years, and equal shares by the latest alarm."""
        return finding.share, -(finding.weeks or 0)

    return [min(findings_of_drop, key=ease) for findings_of_drop in zip(*findings, strict=True)]


def needed_repeats(
    baselines: Sequence[LimitBaseline], alpha: float, seed: int = 0
) -> list[NeededRuns]:
    """Return for each limit how many runs its baseline needs, by simulation.

    The limit has to find a drop of 10 points of the scale in 95 % of the years. If `max_drop` plus
    5 points is more than 10 points, it has to find a drop of that size. The tried numbers are the
    number of existing runs, and the greater numbers in `REPEATS`.

    A longer baseline may need more runs than five runs suggest: a source whose answers can fail
    together may not have failed in the five runs. So call this function again for each longer
    baseline.
    """
    level = len(baselines) / alpha
    needed = []
    for index, baseline in enumerate(baselines):
        needed.append(_needed_runs(baseline, level, seed=[seed, index]))
    return needed


def assumed_findings(
    units: Sequence[Array],
    max_drops: Sequence[float],
    repeats: int,
    looks: int,
    alpha: float,
    accuracy: float = 0.8,
) -> dict[float, list[DropFinding]]:
    """Return which drops a panel can be expected to find, before anything was asked.

    The simulated answers are right or wrong. Answers of a unit are assumed to flip with a
    correlation of 0.3.

    Args:
        units: The units of each limit, as in `LimitBaseline.units`.
        max_drops: The max_drop of each limit.
        repeats: The number of runs of the baseline.
        looks: The greatest number of looks.
        alpha: The error rate of the panel.
        accuracy: The assumed share of right answers.

    Returns:
        A dict from each of `FLIP_RATES` to the findings of the limit that finds each drop in the
        fewest years.
    """
    # Limits whose units have the same sizes, with the same max_drop, are simulated once.
    distinct = {}
    for labels, max_drop in zip(units, max_drops, strict=True):
        sizes = tuple(sorted(Units(labels).sizes.tolist()))
        key = (*sizes, max_drop)
        distinct[key] = (labels, max_drop)
    level = len(units) / alpha
    by_flip_rate = {}
    for flip_rate in FLIP_RATES:
        rng = np.random.default_rng(0)
        findings = []
        for labels, max_drop in distinct.values():
            runs = _invented_runs(labels, flip_rate, accuracy, rng)
            baseline = LimitBaseline(runs, labels, max_drop, looks)
            # No run of the simulated baselines is an invented run: all are drawn.
            counts = _RunCounts(total=repeats, measured=0)
            findings.append(_findings(baseline, level, YEARS // 2, seed=[0], counts=counts))
        by_flip_rate[flip_rate] = hardest_findings(findings)
    return by_flip_rate


def _invented_runs(
    labels: Array, flip_rate: float, accuracy: float, rng: np.random.Generator
) -> Array:
    """Return invented right and wrong answers of many runs: (`RUNS_ASSUMED`, n).

    Args:
        labels: The unit of each instance: (n,).
        flip_rate: The mean probability that two runs of an instance differ.
        accuracy: The mean chance of a right answer.
        rng: The generator of random numbers.
    """
    from scipy.special import betaincinv  # imported here, because this import is slow

    # The chances of a right answer follow a beta distribution with the mean `accuracy`. `strength`
    # is the sum of its two parameters. It solves the equation
    #     flip_rate = 2 accuracy (1 - accuracy) strength / (strength + 1).
    strength = flip_rate / max(2 * accuracy * (1 - accuracy) - flip_rate, 1e-6)
    # The chances of the instances are evenly spaced quantiles, in a random order.
    quantiles = (np.arange(len(labels)) + 0.5) / len(labels)
    chances = rng.permutation(betaincinv(accuracy * strength, (1 - accuracy) * strength, quantiles))
    runs = []
    for _ in range(RUNS_ASSUMED):
        uniforms = _correlated_uniforms(rng, Units(labels), UNIT_CORRELATION, years=1)[0]
        # Great numbers become right answers, as in `SimulatedAnswers.draw`.
        runs.append(uniforms >= 1 - chances)
    return np.stack(runs)


def _simulated_part(baseline: LimitBaseline) -> LimitBaseline:
    """Return a part of a large baseline, with complete units, to save memory.

    The part finds drops less often than all instances; the simulation errs on the safe side.
    """
    units = Units(baseline.units)
    # The first units, up to `MAX_SIMULATED` instances; at least one unit.
    max_instances = max(MAX_SIMULATED, int(units.sizes[0]))
    is_in_part = units.sizes.cumsum()[units.numbers] <= max_instances
    if is_in_part.all():
        return baseline
    values = baseline.values[:, is_in_part]
    return LimitBaseline(values, baseline.units[is_in_part], baseline.max_drop, baseline.looks)


@dataclass(frozen=True)
class _RunCounts:
    """The numbers of runs of a simulated baseline."""

    total: int
    measured: int  # the number of measured runs; all further runs are drawn at random


def _findings(
    baseline: LimitBaseline,
    level: float,
    years: int,
    *,
    seed: list[int],
    counts: _RunCounts | None = None,
) -> list[DropFinding]:
    """Return how a limit finds each of `DROPS`.

    Args:
        baseline: The baseline of the limit.
        level: The e-value that raises an alarm.
        years: The number of simulated years.
        seed: The seed of the random numbers.
        counts: The numbers of runs of the simulated baselines; by default, the measured runs alone.
    """
    baseline = _simulated_part(baseline)
    rng = np.random.default_rng(seed)
    if counts is None:
        measured = len(baseline.values)
        counts = _RunCounts(total=measured, measured=measured)
    weeks_by_drop = _weeks_until_alarm(baseline, counts, DROPS, level, years, rng)
    return [_finding(drop, weeks) for drop, weeks in zip(DROPS, weeks_by_drop, strict=True)]


def _needed_runs(baseline: LimitBaseline, level: float, *, seed: list[int]) -> NeededRuns:
    """Return how many runs the baseline of a limit needs.

    `level` is the e-value that raises an alarm.
    """
    baseline = _simulated_part(baseline)
    drop = max(0.1, baseline.max_drop + 0.05)
    measured = len(baseline.values)
    for repeats in (measured, *(count for count in REPEATS if count > measured)):
        rng = np.random.default_rng([*seed, repeats])
        counts = _RunCounts(total=repeats, measured=measured)
        weeks = _weeks_until_alarm(baseline, counts, [drop], level, FIRST_YEARS, rng)[0]
        if np.isfinite(weeks).mean() >= MIN_SHARE_OF_FIRST:
            more_years = YEARS - FIRST_YEARS
            more = _weeks_until_alarm(baseline, counts, [drop], level, more_years, rng)[0]
            weeks = np.append(weeks, more)
        finding = _finding(drop, weeks)
        if finding.share >= ENOUGH:
            return NeededRuns(repeats, finding)
    return NeededRuns(repeats=None, finding=finding)


def _finding(drop: float, weeks: Array) -> DropFinding:
    """Return the finding of a drop.

    `weeks` are the numbers of looks from the drop to the alarm: (years,). The number is inf for a
    year without an alarm.
    """
    share = float(np.isfinite(weeks).mean())
    median = float(np.sort(weeks)[len(weeks) // 2])
    return DropFinding(drop, share, int(median) if np.isfinite(median) else None)


def _weeks_until_alarm(
    baseline: LimitBaseline,
    counts: _RunCounts,
    drops: Sequence[float],
    level: float,
    years: int,
    rng: np.random.Generator,
) -> list[Array]:
    """Return for each drop the number of looks from the drop to the alarm of each year: (years,).

    The number is inf for a year without an alarm. For the parameters see `_findings`.
    """
    answers = SimulatedAnswers(baseline, years, rng)
    measured = answers.measured[: counts.measured]
    runs = np.empty((years, counts.total, len(answers.units.numbers)))
    runs[:, : len(measured)] = measured
    for run in range(len(measured), counts.total):
        runs[:, run] = answers.draw()
    before_drop = EDetectors(runs, answers.units, baseline.max_drop, baseline.looks)
    looks_before_drop = baseline.looks * 19 // 52  # the drop begins at look 20 of 52
    for look in range(looks_before_drop):
        if look < looks_before_drop - SIMULATED_BEFORE_DROP:
            before_drop.lose_all()
        else:
            before_drop.add_look(answers.draw())
    weeks_by_drop: list[Array] = []
    for drop in drops:
        weeks = np.full(years, np.inf)
        without_alarm: Array = np.arange(years)  # the years that had no alarm yet
        detectors = before_drop.for_panels(without_alarm)
        for week in range(1, baseline.looks - looks_before_drop + 1):
            has_alarm = detectors.add_look(answers.draw(without_alarm, drop)) >= level
            weeks[without_alarm[has_alarm]] = week
            without_alarm = without_alarm[~has_alarm]
            detectors = detectors.for_panels(~has_alarm)
            if not len(without_alarm):
                break
        weeks_by_drop.append(weeks)
    return weeks_by_drop


class SimulatedAnswers:
    """Random answers of simulated panels that resemble a baseline; each year is one panel.

    A level is a distinct value of an answer, such as 0 and 1.

    An instance's answer is drawn from its own runs and, with the weight of M further runs, from the
    runs of all instances (T. S. Ferguson, Annals of Statistics 1:209-230, 1973; for right and wrong
    answers, this is the beta-binomial model). So an instance that was right in five of five runs
    may be wrong in one of ten. M is chosen so that two simulated runs differ as often as two
    measured runs. For the estimates, an instance that is right in half of its runs is added, so
    that no simulated panel is constant.
    """

    def __init__(self, baseline: LimitBaseline, years: int, rng: np.random.Generator) -> None:
        """Estimate the distribution of each instance's answers from a baseline.

        Args:
            baseline: The baseline that the panels resemble.
            years: The number of simulated panels.
            rng: The generator of random numbers.
        """
        self.units = Units(baseline.units)
        self._rng = rng
        levels = np.unique(np.append(baseline.values, [0.0, 1.0]))
        if len(levels) > MAX_LEVELS:
            levels = np.linspace(0, 1, MAX_LEVELS)
        self._levels = levels
        nearest = np.abs(baseline.values[..., None] - levels).argmin(axis=-1)
        self.measured: Array = levels[nearest]
        """The runs of the baseline, rounded to the levels: (B, n)."""
        # how often an instance has each level: (n, levels)
        level_counts = (nearest[..., None] == np.arange(len(levels))).sum(axis=0)
        weights = self._weights_of_levels(baseline, level_counts)
        # the probabilities of each instance's levels: (years, n, levels)
        probabilities = rng.standard_gamma(np.broadcast_to(weights, (years, *weights.shape)))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        self._move_means(probabilities, baseline)
        self._means = (probabilities @ levels).mean(axis=-1)  # the true mean of each year: (years,)
        # the cumulative probabilities of all levels but the last: (years, n, levels - 1)
        self._cumulative = probabilities.cumsum(axis=-1)[..., :-1]
        self._correlation = self._estimated_correlation(baseline)

    def _weights_of_levels(self, baseline: LimitBaseline, level_counts: Array) -> Array:
        """Return how many runs of an instance count for each level: (n, levels).

        These are the runs of the instance itself, and M runs of all instances.

        Args:
            baseline: The measured baseline.
            level_counts: How often each instance has each level: (n, levels).
        """
        runs, count = baseline.values.shape
        # the shares of the levels over all instances, with the added instance: (levels,)
        shares = level_counts.sum(axis=0) + runs / 2 * np.isin(self._levels, [0.0, 1.0])
        shares /= shares.sum()
        variance = float(shares @ (self._levels - shares @ self._levels) ** 2)  # of all answers
        instance_variances = baseline.values.var(axis=0, ddof=1)
        added_variance = runs / (runs - 1) / 4  # of the added instance
        mean_variance = float(instance_variances.sum() + added_variance) / (count + 1)
        # The mean variance of an instance is the share M / (M + 1) of the variance of all answers.
        share = mean_variance / variance
        m = 1 / max(1 / share - 1, 0.001)
        return np.asarray(m * shares + level_counts)

    def _estimated_correlation(self, baseline: LimitBaseline) -> float:
        """Return the correlation of the answers inside a unit.

        The variance of the units' sums exceeds the variance that independent instances would have.
        The relative excess is the excess divided by the variance of independent instances. The
        estimate is the relative excess of the measured runs, divided by the relative excess of runs
        that are drawn with a correlation of 1.
        """
        runs, count = baseline.values.shape
        variance = baseline.values.var(axis=0, ddof=1).sum()
        # `whole_unit` raises the variances to protect a test. An estimate does not need it.
        sigma = float(sigma_of(baseline.values, self.units, whole_unit=0.0))
        # v of `sigma_of`, times the square of t(.975, nu) / 1.96
        widened_variance = runs * (count * sigma) ** 2
        excess = widened_variance - self.units.sizes.mean() / 2 - variance
        self._correlation = 1.0  # used by `draw`
        drawn = np.stack([self.draw() for _ in range(5)])
        drawn_variance = drawn.var(axis=0, ddof=1).sum()
        drawn_excess = self.units.totals(drawn).var(axis=0, ddof=1).sum() - drawn_variance
        if drawn_excess <= 0:
            return 0.0
        greatest_relative_excess = drawn_excess / max(drawn_variance, 1e-9)
        # + 0.5 avoids a division by 0 if the runs do not differ
        correlation = excess / (variance + 0.5) / greatest_relative_excess
        return float(min(1.0, max(0.0, correlation)))

    def _move_means(self, probabilities: Array, baseline: LimitBaseline) -> None:
        """Move the true means of the years, so that they vary as much as the baseline's runs show.

        All instances of the baseline may have been lucky together; the runs of each instance alone
        do not show this. The probability p of a level x is replaced by p exp(t x), divided by the
        sum of p exp(t x) over the levels. The random t of a year moves instances whose answers
        vary; an instance that is always right stays right.

        Args:
            probabilities: The probabilities of the levels, (years, n, levels); changed in place.
            baseline: The measured baseline.
        """
        runs, count = baseline.values.shape
        means = probabilities @ self._levels
        squares = probabilities @ np.square(self._levels)
        variance = float((squares - np.square(means)).mean())  # the mean variance of an instance
        unit_variances = self.units.totals(baseline.values).var(axis=0, ddof=1)
        measured_variance = unit_variances.sum() / runs / count**2  # of the baseline's mean
        missing_variance = max(0.0, float(measured_variance - means.mean(axis=-1).var()))
        moves = self._rng.normal(0, np.sqrt(missing_variance), len(probabilities))
        t = moves[:, None] / variance  # moves the mean of a year by about `moves`
        probabilities *= np.exp(t * self._levels)[:, None]
        probabilities /= probabilities.sum(axis=-1, keepdims=True)

    def draw(self, years: Array | None = None, drop: float = 0.0) -> Array:
        """Return random answers of one look: (years, n).

        Args:
            years: The years to draw answers for; all by default.
            drop: The drop of the mean; a mean that is lower than the drop falls to 0.
        """
        means = self._means
        cumulative = self._cumulative
        if years is not None:
            means = means[years]
            cumulative = cumulative[years]
        uniforms = _correlated_uniforms(self._rng, self.units, self._correlation, len(means))
        level_indexes = (uniforms[..., None] > cumulative).sum(axis=-1)
        answers = self._levels[level_indexes]
        if drop:
            chance = (drop / np.maximum(means, 1e-9))[:, None]
            drop_uniforms = _correlated_uniforms(
                self._rng, self.units, UNIT_CORRELATION, len(means)
            )
            answers[drop_uniforms < chance] = 0.0
        return np.asarray(answers)


def _correlated_uniforms(
    rng: np.random.Generator, units: Units, correlation: float, years: int
) -> Array:
    """Return uniform random numbers from 0 to 1: (years, n).

    Two numbers of a unit are equal with a probability of `correlation`.
    """
    independent = rng.random((years, len(units.numbers)))
    if not correlation or len(units.sizes) == len(units.numbers):  # each unit is one instance
        return independent
    common = rng.random((years, len(units.sizes)))[:, units.numbers]
    # Two instances of a unit both take its number with the probability sqrt(correlation)^2.
    takes_common = rng.random(independent.shape) < np.sqrt(correlation)
    return np.asarray(np.where(takes_common, common, independent))
