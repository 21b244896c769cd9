"""A judge's marks on a scale beside physicians': the same as the plain formulas, and what too little shows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from eval_factory.scoring.agreement import gwet_ac1, weighted_kappa
from eval_factory.scoring.agreement_figures import Figure, rating_agreement
from eval_factory.scoring.judge_calibration import calibration_of
from eval_factory.tasks.physician_labels import LabelledItem
from known import near, there

MARKS = [1.0, 2.0, 3.0, 4.0, 5.0]


def drawn(count: int, higher: float = 0.0, category: str | None = None) -> list[LabelledItem]:
    """Two physicians and a judge about the same truth; `higher`: the judge's marks."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(count):
        truth = rng.uniform(1, 5)
        one, two, judged = (
            float(np.clip(round(truth + rng.normal(more, 0.6)), 1, 5)) for more in (0, 0, higher)
        )
        found.append(LabelledItem(f"c{number}", judged, (one, two), ("anna", "ben"), category))
    return found


def pairs_of(items: Sequence[LabelledItem]) -> list[tuple[float, float]]:
    """The judge's rating with each person's."""
    pairs: list[tuple[float, float]] = []
    for item in items:
        pairs += [(item.judged, rating) for rating in item.labels]
    return pairs


def test_the_figures_are_those_of_the_plain_formulas() -> None:
    items = drawn(60, 0.4)
    found = calibration_of(items, MARKS)
    pairs = pairs_of(items)
    judge = there(found.total.judge)
    physicians = there(found.total.physicians)
    assert judge.kappa.value == near(there(weighted_kappa(pairs)))
    assert judge.ac1.value == near(
        there(gwet_ac1([list(map(int, pair)) for pair in pairs], len(MARKS)))
    )
    both = [item.labels for item in items]
    two = [*both, *(one[::-1] for one in both)]
    assert physicians.kappa.value == near(there(weighted_kappa(two)))  # type: ignore[arg-type]
    assert judge.bias.value == near(
        np.mean([item.judged - np.mean(item.labels) for item in items]) / 4
    )
    assert (judge.f1_macro, judge.sensitivity, judge.specificity) == (
        Figure(None),
        Figure(None),
        Figure(None),
    )
    assert (found.conversations, found.physicians, found.total.labels, found.marks) == (
        60,
        2,
        120,
        tuple(MARKS),
    )


def test_a_judge_that_rates_higher_is_shown_and_its_intervals_hold_the_figures() -> None:
    found = calibration_of(drawn(100, 0.8), MARKS)
    judge = there(found.total.judge)
    assert there(judge.bias.ci_low) > 0.05
    for figure in (judge.kappa, judge.ac1, found.gap):
        assert there(figure.ci_low) < there(figure.value) < there(figure.ci_high)
    assert there(found.gap.value) == near(
        there(judge.kappa.value) - there(there(found.total.physicians).kappa.value)
    )
    assert there(found.gap.value) < 0


@pytest.mark.simulation
def test_the_kappa_interval_holds_the_population() -> None:
    """Of 200 samples of 60 in nearly all; with fewer, or conversations left out by item, in far fewer."""
    rng = np.random.default_rng(5)
    held = 0
    many = drawn(20_000, 0.4)
    truth = there(weighted_kappa(pairs_of(many)))
    for _ in range(200):
        some = [many[at] for at in rng.integers(0, len(many), 60)]
        sample = [
            LabelledItem(str(at), one.judged, one.labels, one.physicians)
            for at, one in enumerate(some)
        ]
        kappa = there(calibration_of(sample, MARKS).total.judge).kappa
        if there(kappa.ci_low) <= truth <= there(kappa.ci_high):
            held += 1
    assert 180 <= held <= 199


def test_one_physician_and_few_items_show_little() -> None:
    alone = [
        LabelledItem(item.conversation, item.judged, item.labels[:1], ("anna",))
        for item in drawn(20)
    ]
    found = calibration_of(alone, MARKS)
    assert (found.total.physicians, found.gap) == (None, Figure(None))
    assert there(found.total.judge).kappa.value is not None
    one = calibration_of(alone[:1], MARKS)
    assert there(one.total.judge).bias.ci_low is None
    small = calibration_of(
        [*drawn(9, category="few"), *drawn(10, category="enough")], MARKS
    ).categories
    assert (small["few"].judge, small["few"].items) == (None, 9)
    assert small["enough"].judge is not None


@pytest.mark.parametrize("marks", [[0.0, 1.0], [1.0, 2.0, 4.0]])
def test_agreement_of_tables(marks: list[float]) -> None:
    """Unequal steps weigh by their distance, not by their number."""
    rng = np.random.default_rng(1)
    table = rng.integers(1, 9, (len(marks), len(marks)))
    pairs: list[tuple[float, float]] = []
    for (row, first), (column, second) in product(enumerate(marks), repeat=2):
        pairs += [(first, second)] * table[row, column]
    _, kappa, ac1 = rating_agreement(table[::-1, ::-1].reshape(-1).astype(float), marks)
    assert kappa == near(there(weighted_kappa(pairs)))
    assert ac1 == near(
        there(
            gwet_ac1([[marks.index(one), marks.index(other)] for one, other in pairs], len(marks))
        )
    )
