"""Partially pools the figures of agreement of several parts of the items, such as categories.

A figure of a small part moves towards the figures of the other parts. All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np

from eval_factory.scoring.agreement_figures import AgreementPart, Figure, Figures

MIN_POOLED = 3  # the smallest number of categories for an estimate of their spread
_Z = statistics.NormalDist().inv_cdf(0.975)  # half the width of a 95 % interval, in standard errors
# the lowest possible value of a figure; 0 for the figures not listed here (the highest is 1)
_LOWEST = {"kappa": -1.0, "ac1": -1.0, "bias": -1.0}


def partial_pooling(values: Sequence[float], errors: Sequence[float]) -> list[tuple[float, float]]:
    """Return the posterior mean and standard deviation of each of three groups or more.

    The model is the normal hierarchical model with a flat prior of the standard deviation between
    groups. The posterior is summed over a grid of this standard deviation (A. Gelman et al.,
    Bayesian Data Analysis, 3rd edition, 2013, section 5.4, equations 5.17 to 5.21; the prior: A.
    Gelman, Bayesian Analysis 1:515-534, 2006). The mean of a group with a large standard error
    moves far towards the means of the other groups.

    Args:
        values: the observed value of each group.
        errors: the standard errors of the values, each above 0.
    """
    value = np.array(values)
    variance = np.array(errors) ** 2
    # One row for each standard deviation of the grid; in the arrays below, one column per group.
    # The grid ends at ten times the observed spread, where the posterior is almost 0.
    largest_deviation = 10 * max(float(np.std(values)), *errors)
    grid = np.linspace(0.0, largest_deviation, 2_001)[:, None]
    variance_between = grid**2
    # the mean that the groups have in common, and its variance, for each row of the grid
    precision = 1 / (variance + variance_between)
    common_variance = 1 / precision.sum(axis=1, keepdims=True)
    common_mean = (value * precision).sum(axis=1, keepdims=True) * common_variance
    # the posterior of the standard deviation between groups: a weight for each row
    terms = np.log(precision) - (value - common_mean) ** 2 * precision
    log_posterior = (np.log(common_variance) + terms.sum(axis=1, keepdims=True)) / 2
    # Subtracting the maximum protects `exp` from an overflow, and cancels in the quotient.
    relative = np.exp(log_posterior - log_posterior.max())
    posterior = relative / relative.sum()
    # the posterior mean of each group and its variance, for each row: a group's own value has the
    # weight `own_share`, and the common mean has the rest
    own_share = variance_between * precision
    mean = own_share * value + (1 - own_share) * common_mean
    variance_of_mean = own_share * variance + (1 - own_share) ** 2 * common_variance
    # The mean and the standard deviation over the grid. The variance is the mean of the rows'
    # variances plus the variance of the rows' means (the law of total variance).
    pooled_mean = (posterior * mean).sum(axis=0)
    variance_on_grid = variance_of_mean + (mean - pooled_mean) ** 2
    deviation = np.sqrt((posterior * variance_on_grid).sum(axis=0))
    return list(zip(pooled_mean.tolist(), deviation.tolist(), strict=True))


def with_pooled_figures(parts: Mapping[str, AgreementPart]) -> dict[str, AgreementPart]:
    """Return the parts with partially pooled figures.

    A figure is pooled over the parts in which it has an interval, if there are at least
    `MIN_POOLED` such parts.
    """
    pooled_parts = dict(parts)
    figure_names = [field_of_figures.name for field_of_figures in fields(Figures)]
    for rater, figure_name in product(("judge", "physicians"), figure_names):
        with_interval = {}
        for name, part in parts.items():
            figure = _figure_of(part, rater, figure_name)
            if figure.ci_low is None or figure.ci_high is None:
                continue
            if figure.ci_high > figure.ci_low:  # pooling needs a standard error above 0
                with_interval[name] = figure
        if len(with_interval) < MIN_POOLED:
            continue
        lowest = _LOWEST.get(figure_name, 0.0)
        for name, pooled_figure in _pooled_figures(with_interval, lowest):
            part = pooled_parts[name]
            changed_figure: dict[str, Any] = {figure_name: pooled_figure}
            figures = replace(getattr(part, rater), **changed_figure)
            pooled_parts[name] = replace(part, **{rater: figures})
    return pooled_parts


def _figure_of(part: AgreementPart, rater: str, figure_name: str) -> Figure:
    """Return a figure of a part; an undefined figure if the part has no figures of the rater.

    Args:
        part: the part.
        rater: `judge` or `physicians`, a field of the part.
        figure_name: the name of a field of `Figures`.
    """
    figures = getattr(part, rater)
    if figures is None:
        return Figure(None)
    figure: Figure = getattr(figures, figure_name)
    return figure


def _pooled_figures(figures: Mapping[str, Figure], lowest: float) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the pooled figure of each part.

    Args:
        figures: dict from the name of a part to its figure, which has an interval.
        lowest: the lowest possible value of the figure.
    """
    values: list[Any] = []
    errors = []
    for figure in figures.values():
        values.append(figure.value)
        errors.append((figure.ci_high - figure.ci_low) / 2 / _Z)  # type: ignore[operator]
    for name, (value, deviation) in zip(figures, partial_pooling(values, errors), strict=True):
        low = max(lowest, value - _Z * deviation)
        high = min(1.0, value + _Z * deviation)
        yield name, Figure(value, low, high)
