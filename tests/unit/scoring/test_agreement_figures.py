"""The figures of agreement: the same as other libraries', and intervals by hand."""

from __future__ import annotations

import math
from itertools import chain, permutations, product, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from judge_coverage import coverage
from sklearn.metrics import cohen_kappa_score, f1_score, recall_score

from eval_factory.scoring import agreement_figures
from eval_factory.scoring.agreement import gwet_ac1, weighted_kappa
from eval_factory.scoring.agreement_figures import Figure, agreement_of
from eval_factory.scoring.judge_calibration import calibration_of
from labelled_items import item, judge_and_physicians


@given(some.lists(some.integers(0, 9), min_size=4, max_size=4).filter(lambda one: sum(one) > 0))
def test_agreement_is_that_of_other_libraries(counts: list[int]) -> None:
    kinds = [(1, 1), (1, 0), (0, 1), (0, 0)]
    pairs = list(chain.from_iterable(map(repeat, kinds, counts)))
    one, other = zip(*pairs, strict=True)
    f1, kappa, ac1 = map(float, agreement_of(np.array(counts, float)))
    assert ac1 == pytest.approx(gwet_ac1(pairs, 2))
    if len({*one, *other}) == 1:
        assert (math.isnan(f1), math.isnan(kappa)) == (True, True), (
            "with one kind there is nothing to agree about"
        )
        return
    assert f1 == pytest.approx(
        f1_score(other, one, average="macro", labels=[0, 1], zero_division=0.0)
    )
    assert kappa == pytest.approx(cohen_kappa_score(one, other)) == weighted_kappa(pairs)


ITEMS = [
    item("a", [True, True, False], True),
    item("a", [True, False], False),
    item("b", [False, False], False),
    item("c", [True, True], True),
    item("c", [True], True),
    item("d", [False, True], True),
    item("e", [True, True], False),
    item("f", [False, False], True),
]


def test_pairs_of_the_judge_and_ordered_pairs_of_physicians() -> None:
    judge, physicians = judge_and_physicians(calibration_of(ITEMS).total)
    pairs = []
    for one in ITEMS:
        pairs += [(one.judged, label) for label in one.labels]
    ordered = list(chain.from_iterable(permutations(one.labels, 2) for one in ITEMS))
    for found, expected in ((judge, pairs), (physicians, ordered)):
        said, label = zip(*expected, strict=True)
        assert found["f1_macro"].value == pytest.approx(f1_score(label, said, average="macro"))
        assert found["kappa"].value == pytest.approx(cohen_kappa_score(label, said))
        assert found["ac1"].value == pytest.approx(gwet_ac1(expected, 2))
        assert found["sensitivity"].value == pytest.approx(recall_score(label, said))
        assert found["specificity"].value == pytest.approx(
            recall_score(label, said, pos_label=False)
        )
    assert judge["bias"].value == pytest.approx(
        5 / 8 - (2 / 3 + 1 / 2 + 0 + 1 + 1 + 1 / 2 + 1 + 0) / 8
    )


def test_an_interval_is_the_jackknife_of_conversations_with_pseudo_clusters() -> None:
    """By hand: each conversation has one item with two labels, so that the pseudo-clusters hold
    1.5 pairs of each kind.
    """
    items = [item(number, [number % 3 > 0, number % 4 > 0], number % 5 > 0) for number in range(30)]
    found = calibration_of(items).total.judge
    kinds = ((1, 1), (1, 0), (0, 1), (0, 0))
    rows = [
        [sum((one.judged, label) == kind for label in one.labels) for kind in kinds]
        for one in items
    ]
    table = np.vstack([np.array(rows, float), 1.5 * np.eye(4)])
    left_out = np.array([agreement_of(table.sum(axis=0) - row)[0] for row in table])
    spread = math.sqrt((len(table) - 1) * left_out.var())
    center = agreement_of(table.sum(axis=0))[0]
    assert found is not None
    assert found.f1_macro.ci_low == pytest.approx(center - 2.0452296 * spread)  # t of 29 degrees
    assert found.f1_macro.ci_high == pytest.approx(center + 2.0452296 * spread)


def test_labels_of_one_conversation_are_not_independent() -> None:
    """With each item eight times, the interval stays nearly as wide as that of conversations."""
    rng = np.random.default_rng(5)
    single = [
        item(number, [rng.random() < 0.7, rng.random() < 0.7], rng.random() < 0.7)
        for number in range(40)
    ]
    for figure in ("f1_macro", "kappa", "ac1", "sensitivity", "specificity", "bias"):
        alone, often = (
            getattr(calibration_of(items).total.judge, figure)
            for items in (single, [one for one, _ in product(single, range(8))])
        )
        assert often.value == pytest.approx(alone.value)
        assert 0.8 < (often.ci_high - often.ci_low) / (alone.ci_high - alone.ci_low) < 1.5


def test_few_conversations_have_no_interval() -> None:
    found = calibration_of([item("a", [True, False], True), *[item("b", [True, True], True)] * 20])
    assert [(one.ci_low, one.ci_high) for one in vars(found.total.judge).values()] == [
        (None, None)
    ] * 6
    assert (found.gap.ci_low, found.always) == (None, True)
    five = calibration_of([item(number, [True, number > 1], number > 2) for number in range(5)])
    assert five.gap.ci_low is not None


def test_what_is_not_defined_has_no_figure() -> None:
    found = calibration_of([item(number, [True, True], True) for number in range(20)])
    judge, _ = judge_and_physicians(found.total)
    assert [name for name, figure in judge.items() if figure.value is None] == [
        "f1_macro",
        "kappa",
        "specificity",
    ]
    assert (judge["ac1"].value, judge["sensitivity"].value, judge["bias"].value) == (1, 1, 0)
    assert found.gap == Figure(None)
    strict = calibration_of([item(number, [True, True], False) for number in range(20)])
    assert (strict.always, strict.total.judge.bias.ci_low) == (False, -1), "on the scale of -1 to 1"  # type: ignore[union-attr]
    assert calibration_of(ITEMS).always is None


def test_the_difference_leaves_out_both_tables_of_a_conversation() -> None:
    """By hand: an item with three labels has three pairs and six ordered ones; a pseudo-cluster has
    2.25 and 4.5.
    """
    items = [
        item(number, [number % 3 > 0, number % 4 > 0, number % 7 > 0], number % 5 > 0)
        for number in range(30)
    ]
    pairs = [
        ([(one.judged, label) for label in one.labels], list(permutations(one.labels, 2)))
        for one in items
    ]
    kinds = ((1, 1), (1, 0), (0, 1), (0, 0))
    rows = [
        [sum(both == kind for both in side) for side, kind in product(sides, kinds)]
        for sides in pairs
    ]
    table = np.vstack([np.array(rows, float), np.diag([2.25] * 4 + [4.5] * 4)])
    left_out = table.sum(axis=0) - table
    apart = agreement_of(left_out[:, :4])[:, 0] - agreement_of(left_out[:, 4:])[:, 0]
    half = 2.0452296 * math.sqrt((len(table) - 1) * apart.var())
    gap = calibration_of(items).gap
    assert gap.ci_low is not None
    assert gap.ci_high == pytest.approx(gap.ci_low + 2 * half)


def test_the_simulation_would_show_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pseudo-clusters, rare faults and a judge near the ceiling: far from 95 %."""
    monkeypatch.setattr(agreement_figures, "PSEUDO_SIZE_FACTOR", 1e-9)
    assert coverage("rare faults, judge near the ceiling", 40)["judge.kappa"] < 0.5
