"""How far raters agree: alpha, intraclass correlation, kappa, AC1."""

from __future__ import annotations

import math
from itertools import chain

import krippendorff
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from eval_factory.scoring import agreement
from known import near

Table = list[list[int | None]]
"""A row a rater, a column a unit; None where the rater gave none."""


def units_of(table: Table) -> list[list[int]]:
    return [
        [rating for rating in column if rating is not None] for column in zip(*table, strict=True)
    ]


def by_the_package(table: Table) -> float:
    numbers = [[math.nan if rating is None else float(rating) for rating in row] for row in table]
    return float(krippendorff.alpha(numbers, level_of_measurement="ordinal"))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    raters = draw(st.integers(2, 5))
    units = draw(st.integers(1, 12))
    scale = draw(st.sampled_from([(1, 2), (1, 2, 3, 4, 5), (-3, 0, 7, 100)]))
    rating = st.none() | st.sampled_from(scale)
    row = st.lists(rating, min_size=units, max_size=units)
    return draw(st.lists(row, min_size=raters, max_size=raters))


@given(tables())
def test_it_is_the_packages_on_any_table_and_none_where_it_is_not_defined(table: Table) -> None:
    rated = [unit for unit in units_of(table) if len(unit) > 1]
    alpha = agreement.ordinal_alpha(units_of(table))
    if len(set(chain.from_iterable(rated))) < 2:
        assert alpha is None
    else:
        assert alpha == near(by_the_package(table), rel=1e-9, abs=1e-9)


def test_krippendorffs_example() -> None:
    """K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011): 0.815 for ordinal data."""
    table: Table = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    alpha = agreement.ordinal_alpha(units_of(table))
    assert (type(alpha), alpha) == (float, near(0.815, abs=0.0005))


SHROUT_FLEISS = (
    (9, 2, 5, 8),
    (6, 1, 3, 2),
    (8, 4, 6, 8),
    (7, 1, 2, 6),
    (10, 5, 6, 9),
    (6, 2, 4, 7),
)
"""Shrout and Fleiss 1979, table 2: six targets, four judges. Their ICC(2,1) is .29."""


def test_icc_as_published_of_perfect_agreement_of_a_bias_and_of_nothing() -> None:
    assert agreement.icc_agreement(SHROUT_FLEISS) == near(0.2897638, abs=1e-7)
    assert agreement.icc_agreement([(1, 1), (2, 2), (5, 5)]) == near(1.0)
    # 13/3 / (13/3 + 1/2)
    assert agreement.icc_agreement([(1, 2), (2, 3), (5, 6)]) == near(0.896551724)
    for nothing in ([(3, 3), (3, 3)], [(3, 4)], [(3,), (4,)], list[tuple[int, ...]]()):
        assert agreement.icc_agreement(nothing) is None


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=40))
def test_weighted_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    found = agreement.weighted_kappa(pairs)
    if len({*first, *second}) == 1:
        assert found is None
    else:
        expected = cohen_kappa_score(first, second, weights="quadratic", labels=[1, 2, 3, 4, 5])
        assert found == near(expected, abs=1e-9)


def test_agreement_by_chance_alone_is_zero_exactly() -> None:
    assert agreement.weighted_kappa([(1, 3), (2, 3), (4, 3)] * 7) == 0.0


def test_ac1_by_hand() -> None:
    """Two raters, 10 things: both yes 8 times, one yes and one no twice. p_a = .8, pi_yes = .9, p_e = 2 x .9 x .1."""
    units = [(1, 1)] * 8 + [(1, 0)] * 2
    assert agreement.gwet_ac1(units, 2) == near((0.8 - 0.18) / (1 - 0.18))
    assert agreement.weighted_kappa(units) == near(0.0)  # the paradox that AC1 was made for


def test_ac1_with_missing_ratings_and_three_raters() -> None:
    units = [(1, 1, 2), (2, 2), (3,), (), (1, 1, 1)]
    observed = (1 / 3 + 1 + 1) / 3
    shares = ((2 / 3 + 0 + 0 + 1) / 4, (1 / 3 + 1) / 4, 1 / 4)
    chance = sum(share * (1 - share) for share in shares) / 2
    assert agreement.gwet_ac1(units, 3) == near((observed - chance) / (1 - chance))
    assert agreement.gwet_ac1(units, 5) != near((observed - chance) / (1 - chance))
    assert (
        agreement.gwet_ac1([(1,), (2,)], 2)
        is agreement.gwet_ac1([], 2)
        is agreement.gwet_ac1([(1, 1)], 1)
        is None
    )


FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)


def test_raters_who_rated_different_parts() -> None:
    units = [
        {"a": 1.0, "b": 2.0, "c": 2.0},
        {"a": 4.0, "b": 5.0, "c": 3.0},
        {"a": 3.0, "b": 3.0},
        {"a": 5.0},
    ]
    found = agreement.agreement_among_raters(units, FIVE)
    assert found.n == 3
    assert found.icc == agreement.icc_agreement([[1, 2, 2], [4, 5, 3]])
    pairs = [(1, 2), (4, 5), (3, 3)], [(1, 2), (4, 3)], [(2, 2), (5, 3)]
    kappas = [agreement.weighted_kappa(one) for one in pairs]
    assert found.weighted_kappa == near(sum(one or 0 for one in kappas) / 3)
    assert found.alpha == agreement.ordinal_alpha([[0, 1, 1], [3, 4, 2], [2, 2]])
    assert found.ac1 == agreement.gwet_ac1([[0, 1, 1], [3, 4, 2], [2, 2]], 5)


def test_a_judge_with_the_mean_and_with_the_majority() -> None:
    found = agreement.agreement_of_judge_with_people(
        [(5.0, [4.0, 5.0]), (2.0, [1.0]), (3.0, [3.0, 3.0])], FIVE
    )
    assert found.n == 3
    pairs = [(5.0, 4.5), (2.0, 1.0), (3.0, 3.0)]
    assert (found.icc, found.weighted_kappa) == (
        agreement.icc_agreement(pairs),
        agreement.weighted_kappa(pairs),
    )
    # 4.5 is as near to 4, and takes the lower
    assert found.alpha == agreement.ordinal_alpha([(4, 3), (1, 0), (2, 2)])
    yes_no = agreement.agreement_of_judge_with_people(
        [(1.0, [1.0, 1.0, 0.0]), (1.0, [0.0]), (0.0, [1.0, 0.0])], (0.0, 1.0)
    )
    assert yes_no.n == 2  # of the last one half say so
    assert yes_no.ac1 == agreement.gwet_ac1([(1, 1), (1, 0)], 2)


def test_consensus_and_places() -> None:
    assert [agreement.consensus(given, (0.0, 1.0)) for given in ([1, 0, 0], [1, 1, 0], [1, 0])] == [
        0.0,
        1.0,
        None,
    ]
    assert agreement.consensus([1, 2], FIVE) == 1.5
    assert [agreement.index_of_nearest(value, FIVE) for value in (1.0, 4.4, 4.5, 4.6, 9.0)] == [
        0,
        3,
        3,
        4,
        4,
    ]
