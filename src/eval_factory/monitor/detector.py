"""Tests whether a panel became worse than allowed, or changed at all.

A panel is a fixed sample of instances. The panel is asked B times as a baseline, and then once at
each look. A limit is the greatest permitted drop of one score (`panel.Limit`). Instances of one
source, such as a patient's note, form a unit. The number of looks after a baseline is limited
(`LimitBaseline.looks`); the error rate of an alarm applies to all these looks together.

In this module, `(B, n)` is the shape of an array: B runs of n instances. U is the number of units.
`...` stands for any dimensions before the named dimensions.

`EDetectors` bets that the mean has fallen by more than `max_drop`. The wealth that the bets win is
the evidence, an e-value: as long as the mean has not fallen so far, a stake is not expected to grow
(J. Ville, Etude critique de la notion de collectif, 1939). The method is the e-detector of Shiryaev
and Roberts with a budget (J. Shin, A. Ramdas and A. Rinaldo, arXiv:2203.03532). The bets are those
on means of bounded values of I. Waudby-Smith and A. Ramdas, JRSS B 86:1-27, 2024.

The baseline's mean may be k standard errors too high by chance. The evidence is therefore computed
for several k, and multiplied by a weight for each k; the smallest product is the evidence of the
look. The test assumes that the baseline's mean is about normal, with the standard error
`LimitBaseline.sigma`. docs/monitor.md states the other assumptions; benchmarks/monitor_alarms.py
counts false alarms. The functions are pure: they read no files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eval_factory.scoring.intervals import FEW_SOURCES, LARGE_SOURCE

Array = NDArray[Any]
BET_FRACTIONS = np.array([0.9, 0.6, 0.35, 0.2, 0.1, 0.05])
"""The values of g in `EDetectors`: the share of its stake that a bet can lose by one unit."""
Z_GRID = np.arange(17) / 4
"""The values of k, from 0 to 4: by how many standard errors the baseline's mean is too high."""
TILTS = np.array([0.75, 1.5, 2.5])  # the values of t in `mixture_weights`
ROUNDING_LOSS = 1.29  # explained in `mixture_weights`


def mixture_weights(k_values: Array) -> Array:
    """Return the weight of the evidence at each k in `k_values`.

        A_k = mean over the tilts t of exp(t k - t^2 / 2) / ROUNDING_LOSS

    If k is drawn from the standard normal distribution, the mean of exp(t k - t^2 / 2) is 1. But
    the k of a panel is limited to 0 to 4, and rounded up to the next value in `Z_GRID`. This makes
    the mean weight too large; the division by `ROUNDING_LOSS` compensates for that. Without the
    rounding up, 1.07 would be enough.
    """
    exponents = np.outer(k_values, TILTS) - np.square(TILTS) / 2  # a row per k, a column per t
    means_over_tilts = np.exp(exponents).mean(axis=1)
    return np.asarray(means_over_tilts / ROUNDING_LOSS)


MIXTURE_WEIGHTS = mixture_weights(Z_GRID)
"""The weight of each k in `Z_GRID`. One panel in 30,000 has a k above 4."""
MIN_VARIANCE_SHARE = 0.5
"""The least variance of a unit of several instances, as a share of a reference variance.

The reference is the variance that the unit would have if all its answers had changed together in
one of the baseline's runs (`sigma_of`). The share is from 0 to 1. With 1 instead of .5, a panel of
30 units of five instances would find a drop of 10 points in 19 % of years instead of 99 %.
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
    min_variance_share: float = MIN_VARIANCE_SHARE  # see `MIN_VARIANCE_SHARE`

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
        return float(sigma_of(self.values, Units(self.units), self.min_variance_share))

    @property
    def flip_rate(self) -> float:
        """The expected mean square of the difference between the values of two runs.

        This is twice the mean variance of an instance. For values 0 and 1, it is the share of
        instances whose value differs. For other values, the number is smaller: a difference of half
        the scale counts as a quarter.
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
        # `reduceat` adds up the values from the start of each unit to the start of the next unit.
        return np.asarray(np.add.reduceat(values[..., self._order], self._starts, axis=-1))


def sigma_of(values: Array, units: Units, min_variance_share: float = MIN_VARIANCE_SHARE) -> Array:
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
    be (size)^2 / B. For units of several instances, the lower limit is `min_variance_share` times
    this variance. If there are few effective units, or if a unit has over 30 % of the instances,
    the lower limit of each unit is the complete variance.

    benchmarks/monitor_alarms.py counted false alarms without these limits. With the share 0, 8 to
    38 % of panels with a unit of 25 in 100 instances that fails in one of ten runs gave a false
    alarm in a year at `max_drop` 0. Without the complete variance, 16 % of panels with a unit of
    80 and 20 units of 1 gave a false alarm.
    """
    from scipy.special import stdtrit  # imported here, because this import is slow

    runs, count = values.shape[-2:]
    squared_sizes = np.square(units.sizes.astype(float))
    effective_units = count**2 / squared_sizes.sum()
    if effective_units < FEW_SOURCES or units.sizes.max() > LARGE_SOURCE * count:
        min_variances = squared_sizes / runs
    else:
        min_variances = np.where(units.sizes > 1, min_variance_share * squared_sizes, 0.0) / runs
    measured_variances = units.totals(values).var(axis=-2, ddof=1)
    variances = np.maximum(measured_variances, min_variances)  # s_u^2
    half_size = units.sizes.mean() / 2  # m/2
    variance = variances.sum(axis=-1) + half_size  # v
    degrees = (runs - 1) * variance**2 / (np.square(variances).sum(axis=-1) + half_size**2)  # nu
    # If s_u is proportional to the size of the unit, s_u^2 is proportional to the squared size.
    max_degrees = (runs - 1) * squared_sizes.sum() ** 2 / np.square(squared_sizes).sum()
    degrees = np.minimum(np.maximum(4.0, degrees), max_degrees)
    widening = stdtrit(degrees, 0.975) / 1.96
    return np.asarray(widening * np.sqrt(variance / runs) / count)


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
            stake_of_look = 1 / self.looks
            wealth = (self._in_game + stake_of_look) * np.exp(log_factors)
            self._in_game = np.minimum(wealth, MAX_E_VALUE)
        # The stakes of later looks are not in the game yet: they count, and have not changed.
        stakes_of_later_looks = (self.looks - self.looks_made) / self.looks
        return np.asarray(self._in_game.mean(axis=-1) + stakes_of_later_looks)

    def log_growth(self) -> Array:
        """Return how much the stake of each look has grown: (looks made, ...).

        The growth is the logarithm of the mean over the bets.
        """
        # The stake of a look is multiplied by the factors of this look and of all later looks. So
        # the logarithms are added up from the last look backwards; [::-1] reverses the order.
        last_look_first = np.array(self._log_factors)[::-1]
        log_growth_of_bets = np.cumsum(last_look_first, axis=0)[::-1]
        # Subtract the maximum before `exp`, so that no number overflows; add it again at the end.
        maximum = log_growth_of_bets.max(axis=-1, keepdims=True)
        mean_growth = np.exp(log_growth_of_bets - maximum).mean(axis=-1)
        return np.asarray(np.log(mean_growth) + maximum[..., 0])

    def for_panels(self, panels: Array) -> ShiryaevRobertsWealth:
        """Return a copy with the wealth of these panels alone: (panels, ..., bets).

        `panels` has the indexes of these panels, or True or False for each panel.
        """
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
        L   = the greatest of the units' sums of (1 - b + h)
        F   = product over units of (1 + g/L * sum over the unit of (b - x - h))
        E_k = mean over g of the wealth of `ShiryaevRobertsWealth` with the factors F
        e   = min over k of E_k A_k

    b is the mean value of an instance in the baseline, and x is the instance's value at the look. g
    is from `BET_FRACTIONS`, k from `Z_GRID` and A_k from `MIXTURE_WEIGHTS`. F is a product of
    factors over independent units. Because of L, each factor is at least 1 - g, even if all values
    of the unit are the best value, x = 1. As long as the mean has not fallen by more than h, each
    factor has an expectation of at most 1, and so has F.
    """

    def __init__(
        self,
        values: Array,
        units: Units,
        max_drop: float,
        looks: int,
        min_variance_share: float = MIN_VARIANCE_SHARE,
    ) -> None:
        """Prepare the test of each panel.

        Args:
            values: The values of the baselines, from 0 (worst) to 1 (best): (panels, B, n).
            units: The units of each panel.
            max_drop: The greatest permitted drop of the mean.
            looks: The greatest number of looks.
            min_variance_share: The least variance of a unit, as in `MIN_VARIANCE_SHARE`.
        """
        self._units = units
        self._means = values.mean(axis=-2)  # b
        self._tolerated = (
            max_drop + Z_GRID * sigma_of(values, units, min_variance_share)[:, None]
        )  # h
        # the units' sums of 1 - b + h: (panels, k, U)
        sums = units.totals(1 - self._means)[:, None] + units.sizes * self._tolerated[..., None]
        # L: (panels, k); the lower limit avoids division by 0 if all answers are right and no drop
        # is permitted
        self._greatest_sum = np.maximum(sums.max(axis=-1), 1e-9)
        self._wealth = ShiryaevRobertsWealth(looks)
        self._k_of_e: Array = np.zeros(len(values), int)
        """The index in `Z_GRID` of the k with the smallest E_k A_k: (panels,)."""

    def add_look(self, values: Array) -> Array:
        """Return e of each panel after the next look: (panels,), for values (panels, n).

        NaN, a missing value, counts as the best value, which is never evidence of a drop: an
        endpoint that is down does not show that the model is worse.
        """
        filled_values = np.where(np.isnan(values), 1.0, values)  # x
        drops = self._units.totals(self._means - filled_values)  # sums of b - x: (panels, U)
        # the logarithms of F: (panels, k, g)
        log_factors = np.empty((len(drops), len(Z_GRID), len(BET_FRACTIONS)))
        buffer = np.empty(drops.shape)  # used again for each bet, because new arrays are slow
        for k in range(len(Z_GRID)):
            excess = drops - self._units.sizes * self._tolerated[:, k, None]  # sums of b - x - h
            gain = excess / self._greatest_sum[:, k, None]
            for g, fraction in enumerate(BET_FRACTIONS.tolist()):
                # log F is the sum over the units of log(1 + fraction * gain).
                np.multiply(gain, fraction, out=buffer)
                np.log1p(buffer, out=buffer)
                log_factors[:, k, g] = buffer.sum(axis=-1)
        evidence = self._wealth.add_look(log_factors) * MIXTURE_WEIGHTS  # E_k A_k: (panels, k)
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
        """Return an independent copy with these panels alone.

        `panels` has the indexes of these panels, or True or False for each panel.
        """
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
            units=Units(baseline.units),
            max_drop=baseline.max_drop,
            looks=baseline.looks,
            min_variance_share=baseline.min_variance_share,
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
        # The bets of the first row win if p is small, those of the second row if p is large.
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
