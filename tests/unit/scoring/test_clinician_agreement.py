"""Agreement of raters who rated different parts, and of judges with them; the measures have tests of their own."""

from __future__ import annotations

import pytest

from eval_factory.scoring.clinician_agreement import agreement_among, agreement_with, consensus, place_of
from eval_factory.scoring.krippendorff_alpha import ordinal_alpha
from eval_factory.scoring.rater_agreement import gwet_ac1, icc_agreement, weighted_kappa

FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)


def test_raters_who_rated_different_parts() -> None:
    units = [{"a": 1.0, "b": 2.0, "c": 2.0}, {"a": 4.0, "b": 5.0, "c": 3.0}, {"a": 3.0, "b": 3.0}, {"a": 5.0}]
    found = agreement_among(units, FIVE)
    assert found.n == 3
    assert found.icc == icc_agreement([[1, 2, 2], [4, 5, 3]])
    kappas = [
        weighted_kappa([(1, 2), (4, 5), (3, 3)]),
        weighted_kappa([(1, 2), (4, 3)]),
        weighted_kappa([(2, 2), (5, 3)]),
    ]
    assert found.weighted_kappa == pytest.approx(sum(one or 0 for one in kappas) / 3)
    assert found.alpha == ordinal_alpha([[0, 1, 1], [3, 4, 2], [2, 2]])
    assert found.ac1 == gwet_ac1([[0, 1, 1], [3, 4, 2], [2, 2]], 5)


def test_ratings_that_are_all_the_same_have_no_kappa() -> None:
    found = agreement_among([{"a": 1.0, "b": 1.0}] * 3, (0.0, 1.0))
    assert (found.n, found.alpha, found.icc, found.weighted_kappa, found.ac1) == (3, None, None, None, 1.0)


def test_a_judge_with_the_mean_and_with_the_majority() -> None:
    found = agreement_with([(5.0, [4.0, 5.0]), (2.0, [1.0]), (3.0, [3.0, 3.0])], FIVE)
    assert found.n == 3
    pairs = [(5.0, 4.5), (2.0, 1.0), (3.0, 3.0)]
    assert (found.icc, found.weighted_kappa) == (icc_agreement(pairs), weighted_kappa(pairs))
    assert found.alpha == ordinal_alpha([(4, 3), (1, 0), (2, 2)])  # 4.5 is as near to 4, and takes the lower
    yes_no = agreement_with([(1.0, [1.0, 1.0, 0.0]), (1.0, [0.0]), (0.0, [1.0, 0.0])], (0.0, 1.0))
    assert yes_no.n == 2  # of the last one half say so
    assert yes_no.ac1 == gwet_ac1([(1, 1), (1, 0)], 2)


def test_consensus_and_places() -> None:
    assert [consensus(given, (0.0, 1.0)) for given in ([1, 0, 0], [1, 1, 0], [1, 0])] == [0.0, 1.0, None]
    assert consensus([1, 2], FIVE) == 1.5
    assert [place_of(value, FIVE) for value in (1.0, 4.4, 4.5, 4.6, 9.0)] == [0, 3, 3, 4, 4]
