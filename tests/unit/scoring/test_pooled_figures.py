"""Pooled figures: the published example of the model, and which figures are pooled."""

from __future__ import annotations

import numpy as np
import pytest

from eval_factory.scoring.agreement_figures import AgreementPart, Figure, Figures
from eval_factory.scoring.pooled_figures import partial_pooling, with_pooled_figures


def test_the_eight_schools() -> None:
    """The reference is a sum over a grid of the common mean and the deviation between groups.

    The data are those of A. Gelman et al., Bayesian Data Analysis, 3rd edition, table 5.2.
    """
    value = np.array([28, 8, -3, 7, -1, 1, 18, 12])
    error = np.array([15, 10, 16, 11, 9, 11, 10, 18])
    mu, tau = np.meshgrid(np.linspace(-60, 80, 701), np.linspace(1e-3, 150, 1501), indexing="ij")
    both = error**2 + tau[..., None] ** 2
    log = -(np.log(both) + (value - mu[..., None]) ** 2 / both).sum(axis=-1) / 2
    weight = np.exp(log - log.max())[..., None]
    mean = (value * tau[..., None] ** 2 + mu[..., None] * error**2) / both
    middle = (weight * mean).sum(axis=(0, 1)) / weight.sum()
    spread = error**2 * tau[..., None] ** 2 / both + (mean - middle) ** 2
    deviation = np.sqrt((weight * spread).sum(axis=(0, 1)) / weight.sum())
    found = partial_pooling(list(map(float, value)), list(map(float, error)))
    assert [one for one, _ in found] == pytest.approx(middle, rel=0.01)
    assert [one for _, one in found] == pytest.approx(deviation, rel=0.01)


def a_part(bias: float, half: float, judge: bool = True) -> AgreementPart:
    figure = Figure(bias, bias - half, bias + half)
    made = Figures(figure, figure, figure, Figure(None), Figure(0.5), figure)
    return AgreementPart(12, 24, made if judge else None, None)


def test_categories_are_pooled_where_three_have_figures() -> None:
    parts = {
        "a": a_part(0.0, 0.05),
        "b": a_part(0.1, 0.4),
        "c": a_part(0.02, 0.05),
        "d": a_part(0.9, 0.1, judge=False),
    }
    found = with_pooled_figures(parts)
    assert found["d"] == parts["d"], "it is too small for a figure"
    one = found["b"].judge
    assert one is not None
    assert (one.sensitivity, one.specificity) == (Figure(None), Figure(0.5)), (
        "without an interval nothing is pooled"
    )
    expected = partial_pooling([0.0, 0.1, 0.02], [half / 1.959964 for half in (0.05, 0.4, 0.05)])[1]
    assert one.bias.value == pytest.approx(expected[0])
    assert one.bias.ci_low == pytest.approx(expected[0] - 1.959964 * expected[1])
    two = {name: parts[name] for name in ("a", "b", "d")}
    assert with_pooled_figures(two) == two
