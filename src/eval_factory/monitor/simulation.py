"""Simulates which drops a panel finds, and how many runs its baseline needs.

A year is one simulated panel with all its looks, one look a week. The years of a simulation differ
only in their random numbers. A limit is the greatest permitted drop of one score, and a unit is a
group of instances of one source. Answers of a unit move together as `LimitBaseline.sigma`
indicates. A drop sets random answers to the worst value. The score of only one limit drops, so the
alarm is raised when the e-value of this limit alone reaches (number of limits) / alpha. The
measured runs of a baseline are used, and further runs are drawn at random. With more measured runs,
the advice on the number of runs may change; it is therefore computed again for each longer
baseline.

As in `detector.py`, `(B, n)` is the shape of an array: B runs of n instances. The functions are
pure: they read no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval_factory.monitor.detector import Array, EDetectors, LimitBaseline, Units, sigma_of

DROPS = (0.05, 0.1, 0.2)  # the simulated drops, as shares of the scale
SIMULATED_REPEATS = (5, 10, 20, 40, 80)  # the simulated numbers of runs of a baseline, ascending
FLIP_RATES = (0.02, 0.1, 0.3)  # the assumed shares of answers that differ between two runs
RUNS_ASSUMED = 40  # the number of runs of an invented baseline, before anything was asked
RELIABLE_SHARE = 0.97
"""A drop is found reliably if this share of simulated years finds the drop.

The aim is 95 % of all years; the share in 200 simulated years can err by 1.5 %.
"""
YEARS = 200  # the number of simulated years for one drop
FIRST_YEARS = 60  # the number of years that are simulated first, to save time
MIN_SHARE_OF_FIRST = 0.8
"""If a smaller share of the first years finds a drop, the other years are not simulated."""
MAX_GRADES = 11
"""The greatest number of grades, the distinct values of simulated answers.

If a baseline has more distinct values, they are rounded to 11 evenly spaced grades.
"""
UNIT_CORRELATION = 0.3
"""The assumed correlation of answers in a unit that drop, or that flip between invented runs."""
MAX_SIMULATED_INSTANCES = 2000  # the greatest number of simulated instances of a limit
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
    alarm_e = len(baselines) / alpha
    findings = []
    for index, baseline in enumerate(baselines):
        findings.append(_findings(baseline, alarm_e, YEARS, seed=[0, index]))
    return findings


def hardest_findings(findings: Sequence[Sequence[DropFinding]]) -> list[DropFinding]:
    """Return for each drop the finding of the limit that finds this drop in the fewest years.

    The panel finds a drop at least as often as this limit, whichever limit's score drops.

    Args:
        findings: for each limit, its findings of the same drops.
    """

    def ease(finding: DropFinding) -> tuple[float, float]:
        """Return a key that sorts by the share of years, and equal shares by the latest alarm."""
        # The number of weeks depends on the share: with equal shares, it is None for all or none.
        return finding.share, -(finding.weeks or 0)

    hardest = []
    for findings_of_drop in zip(*findings, strict=True):  # those of all limits about one drop
        hardest.append(min(findings_of_drop, key=ease))
    return hardest


def needed_repeats(
    baselines: Sequence[LimitBaseline], alpha: float, seed: int = 0
) -> list[NeededRuns]:
    """Return for each limit how many runs its baseline needs, by simulation.

    The limit has to find a drop of 10 points of the scale in 95 % of the years. If `max_drop` plus
    5 points is more than 10 points, it has to find a drop of that size. The tried numbers are the
    number of existing runs, and the greater numbers in `SIMULATED_REPEATS`.

    A longer baseline may need more runs than five runs suggest: a source whose answers can fail
    together may not have failed in the five runs. So call this function again for each longer
    baseline.
    """
    alarm_e = len(baselines) / alpha
    needed = []
    for index, baseline in enumerate(baselines):
        needed.append(_needed_runs(baseline, alarm_e, seed=[seed, index]))
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
    alarm_e = len(units) / alpha
    years = YEARS // 2  # fewer years than for a measured baseline: the answers are assumed anyway
    by_flip_rate = {}
    for flip_rate in FLIP_RATES:
        rng = np.random.default_rng(0)
        findings = []
        for labels, max_drop in distinct.values():
            runs = _invented_runs(labels, flip_rate, accuracy, rng)
            baseline = LimitBaseline(runs, labels, max_drop, looks)
            # No run of the simulated baselines is an invented run: all are drawn.
            counts = _RunCounts(total=repeats, measured=0)
            findings.append(_findings(baseline, alarm_e, years, seed=[0], counts=counts))
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
    # No strength solves it if the flip rate is too high: 1e-6 then stands for a great strength.
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
    # The first units, up to `MAX_SIMULATED_INSTANCES` instances; at least one unit.
    max_instances = max(MAX_SIMULATED_INSTANCES, int(units.sizes[0]))
    instances_so_far = units.sizes.cumsum()  # of each unit and the units before it
    is_in_part = instances_so_far[units.numbers] <= max_instances
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
    alarm_e: float,
    years: int,
    *,
    seed: list[int],
    counts: _RunCounts | None = None,
) -> list[DropFinding]:
    """Return how a limit finds each of `DROPS`.

    Args:
        baseline: The baseline of the limit.
        alarm_e: The e-value that raises an alarm.
        years: The number of simulated years.
        seed: The seed of the random numbers, as numpy accepts it: a list of integers.
        counts: The numbers of runs of the simulated baselines; by default, the measured runs alone.
    """
    baseline = _simulated_part(baseline)
    rng = np.random.default_rng(seed)
    if counts is None:
        measured_runs = len(baseline.values)
        counts = _RunCounts(total=measured_runs, measured=measured_runs)
    weeks_by_drop = _weeks_until_alarm(
        baseline, counts, DROPS, alarm_e=alarm_e, years=years, rng=rng
    )
    return [_finding(drop, weeks) for drop, weeks in zip(DROPS, weeks_by_drop, strict=True)]


def _needed_runs(baseline: LimitBaseline, alarm_e: float, *, seed: list[int]) -> NeededRuns:
    """Return how many runs the baseline of a limit needs.

    `alarm_e` and `seed` are as in `_findings`.
    """
    baseline = _simulated_part(baseline)
    drop = max(0.1, baseline.max_drop + 0.05)
    measured_runs = len(baseline.values)
    more_repeats = [count for count in SIMULATED_REPEATS if count > measured_runs]
    for repeats in (measured_runs, *more_repeats):
        rng = np.random.default_rng([*seed, repeats])
        counts = _RunCounts(total=repeats, measured=measured_runs)
        (weeks,) = _weeks_until_alarm(
            baseline, counts, [drop], alarm_e=alarm_e, years=FIRST_YEARS, rng=rng
        )
        if np.isfinite(weeks).mean() >= MIN_SHARE_OF_FIRST:
            (weeks_of_other_years,) = _weeks_until_alarm(
                baseline, counts, [drop], alarm_e=alarm_e, years=YEARS - FIRST_YEARS, rng=rng
            )
            weeks = np.append(weeks, weeks_of_other_years)
        finding = _finding(drop, weeks)
        if finding.share >= RELIABLE_SHARE:
            return NeededRuns(repeats, finding)
    # No number of runs is enough: `finding` is that with the most runs.
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
    *,
    alarm_e: float,
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
    detectors_before_drop = EDetectors(runs, answers.units, baseline.max_drop, baseline.looks)
    looks_before_drop = baseline.looks * 19 // 52  # the drop begins at look 20 of 52
    for look in range(looks_before_drop):
        if look < looks_before_drop - SIMULATED_BEFORE_DROP:
            detectors_before_drop.lose_all()
        else:
            detectors_before_drop.add_look(answers.draw())
    weeks_by_drop: list[Array] = []
    for drop in drops:
        weeks = np.full(years, np.inf)
        without_alarm: Array = np.arange(years)  # the years that had no alarm yet
        detectors = detectors_before_drop.for_panels(without_alarm)
        for week in range(1, baseline.looks - looks_before_drop + 1):
            has_alarm = detectors.add_look(answers.draw(without_alarm, drop)) >= alarm_e
            weeks[without_alarm[has_alarm]] = week
            without_alarm = without_alarm[~has_alarm]
            detectors = detectors.for_panels(~has_alarm)
            if not len(without_alarm):
                break
        weeks_by_drop.append(weeks)
    return weeks_by_drop


class SimulatedAnswers:
    """Random answers of simulated panels that resemble a baseline; each year is one panel.

    A grade is a distinct value of an answer, such as 0 and 1.

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
        grades = np.unique(np.append(baseline.values, [0.0, 1.0]))
        if len(grades) > MAX_GRADES:
            grades = np.linspace(0, 1, MAX_GRADES)
        self._grades = grades
        nearest = np.abs(baseline.values[..., None] - grades).argmin(axis=-1)
        self.measured: Array = grades[nearest]
        """The runs of the baseline, rounded to the grades: (B, n)."""
        # how often an instance has each grade: (n, grades)
        grade_counts = (nearest[..., None] == np.arange(len(grades))).sum(axis=0)
        weights = self._weights_of_grades(baseline, grade_counts)
        # the probabilities of each instance's grades: (years, n, grades)
        probabilities = rng.standard_gamma(np.broadcast_to(weights, (years, *weights.shape)))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        self._move_means(probabilities, baseline)
        true_values = probabilities @ grades  # the expected value of each instance: (years, n)
        self._means = true_values.mean(axis=-1)  # the true mean of each year: (years,)
        # the cumulative probabilities of all grades but the last: (years, n, grades - 1)
        self._cumulative = probabilities.cumsum(axis=-1)[..., :-1]
        self._correlation = self._estimated_correlation(baseline)

    def _weights_of_grades(self, baseline: LimitBaseline, grade_counts: Array) -> Array:
        """Return how many runs count for each grade of an instance: (n, grades).

        These are the runs of the instance itself, and M further runs, which are divided among the
        grades as the runs of all instances are.

        Args:
            baseline: The measured baseline.
            grade_counts: How often each instance has each grade: (n, grades).
        """
        runs, count = baseline.values.shape
        # the shares of the grades over all instances, with the added instance: (grades,)
        shares = grade_counts.sum(axis=0) + runs / 2 * np.isin(self._grades, [0.0, 1.0])
        shares /= shares.sum()
        mean = shares @ self._grades
        variance = float(shares @ (self._grades - mean) ** 2)  # of all answers
        instance_variances = baseline.values.var(axis=0, ddof=1)
        added_variance = runs / (runs - 1) / 4  # of the added instance
        mean_variance = float(instance_variances.sum() + added_variance) / (count + 1)
        # The mean variance of an instance is the share M / (M + 1) of the variance of all answers.
        # So M = 1 / (1 / share - 1); the limit of 0.001 avoids a division by 0 or less.
        share = mean_variance / variance
        m = 1 / max(1 / share - 1, 0.001)
        return np.asarray(m * shares + grade_counts)

    def _estimated_correlation(self, baseline: LimitBaseline) -> float:
        """Return the correlation of the answers inside a unit.

        The variance of the units' sums exceeds the variance that independent instances would have.
        The relative excess is the excess divided by the variance of independent instances. The
        estimate is the relative excess of the measured runs, divided by the relative excess of runs
        that are drawn with a correlation of 1.
        """
        runs, count = baseline.values.shape
        variance = baseline.values.var(axis=0, ddof=1).sum()
        # The lower limit of the variances protects a test. An estimate does not need it.
        sigma = float(sigma_of(baseline.values, self.units, min_variance_share=0.0))
        # v of `sigma_of`, times the square of t(.975, nu) / 1.96
        widened_variance = runs * (count * sigma) ** 2
        variance_of_sums = widened_variance - self.units.sizes.mean() / 2  # without the term m/2
        excess = variance_of_sums - variance
        self._correlation = 1.0  # for `draw` below; `__init__` then stores the estimate
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
        do not show this. The probability p of a grade x is replaced by p exp(t x), divided by the
        sum of p exp(t x) over the grades. The random t of a year moves instances whose answers
        vary; an instance that is always right stays right.

        Args:
            probabilities: The probabilities of the grades, (years, n, grades); changed in place.
            baseline: The measured baseline.
        """
        runs, count = baseline.values.shape
        means = probabilities @ self._grades
        squares = probabilities @ np.square(self._grades)
        variance = float((squares - np.square(means)).mean())  # the mean variance of an instance
        unit_variances = self.units.totals(baseline.values).var(axis=0, ddof=1)
        measured_variance = unit_variances.sum() / runs / count**2  # of the baseline's mean
        missing_variance = max(0.0, float(measured_variance - means.mean(axis=-1).var()))
        moves = self._rng.normal(0, np.sqrt(missing_variance), len(probabilities))
        t = moves[:, None] / variance  # moves the mean of a year by about `moves`
        probabilities *= np.exp(t * self._grades)[:, None]
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
        # the number of cumulative probabilities below the random number
        grade_indexes = (uniforms[..., None] > cumulative).sum(axis=-1)
        answers = self._grades[grade_indexes]
        if drop:
            # The mean falls by `drop` if an answer falls to 0 with the probability drop / mean.
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
