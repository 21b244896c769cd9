"""Raters' agreement, against published examples and other libraries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from eval_factory.scoring.rater_agreement import gwet_ac1, icc_agreement, weighted_kappa

SHROUT_FLEISS = ((9, 2, 5, 8), (6, 1, 3, 2), (8, 4, 6, 8), (7, 1, 2, 6), (10, 5, 6, 9), (6, 2, 4, 7))
"""Shrout and Fleiss 1979, table 2: six targets, four judges. Their ICC(2,1) is .29."""
PAIRS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=40)


def test_the_published_icc() -> None:
    found = icc_agreement(SHROUT_FLEISS)
    assert found == pytest.approx(0.2897638, abs=1e-7)


def test_icc_of_perfect_agreement_of_a_bias_and_of_nothing() -> None:
    assert icc_agreement([(1, 1), (2, 2), (5, 5)]) == pytest.approx(1.0)
    shifted = icc_agreement([(1, 2), (2, 3), (5, 6)])
    assert shifted is not None
    assert shifted == pytest.approx(0.896551724)  # 13/3 / (13/3 + 1/2)
    assert icc_agreement([(3, 3), (3, 3)]) is None
    assert icc_agreement([(3, 4)]) is None
    assert icc_agreement([(3,), (4,)]) is None
    assert icc_agreement([]) is None


@given(PAIRS)
def test_weighted_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    found = weighted_kappa(pairs)
    if len({*first, *second}) == 1:
        assert found is None
    else:
        expected = cohen_kappa_score(first, second, weights="quadratic", labels=[1, 2, 3, 4, 5])
        assert found == pytest.approx(expected, abs=1e-9)


def test_kappa_of_yes_and_no_has_no_weights() -> None:
    pairs = [(1.0, 1.0)] * 7 + [(1.0, 0.0)] * 2 + [(0.0, 0.0)] * 4 + [(0.0, 1.0)]
    first, second = zip(*pairs, strict=True)
    assert weighted_kappa(pairs) == pytest.approx(cohen_kappa_score(first, second))
    assert weighted_kappa([]) is None


def test_ac1_by_hand() -> None:
    """Two raters, 10 things: both yes 8 times, one yes and one no twice. p_a = .8, pi_yes = .9, p_e = 2 x .9 x .1."""
    units = [(1, 1)] * 8 + [(1, 0)] * 2
    assert gwet_ac1(units, 2) == pytest.approx((0.8 - 0.18) / (1 - 0.18))
    assert weighted_kappa(units) == pytest.approx(0.0)  # the paradox that AC1 was made for


def test_ac1_with_missing_ratings_and_three_raters() -> None:
    units = [(1, 1, 2), (2, 2), (3,), (), (1, 1, 1)]
    agreement = (1 / 3 + 1 + 1) / 3
    shares = ((2 / 3 + 0 + 0 + 1) / 4, (1 / 3 + 1) / 4, 1 / 4)
    chance = sum(share * (1 - share) for share in shares) / 2
    assert gwet_ac1(units, 3) == pytest.approx((agreement - chance) / (1 - chance))
    assert gwet_ac1(units, 5) != pytest.approx((agreement - chance) / (1 - chance))


@pytest.mark.parametrize(("units", "categories"), [([(1,), (2,)], 2), ([], 2), ([(1, 1)], 1)])
def test_no_ac1(units: list[tuple[int, ...]], categories: int) -> None:
    assert gwet_ac1(units, categories) is None
