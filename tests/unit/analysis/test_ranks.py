"""Holm's correction against statsmodels, and ranks from the pairs that are shown to differ."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from eval_factory.analysis.ranks import holm, rank_intervals


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_statsmodels(p_values: list[float]) -> None:
    with patch("gc.collect"):  # statsmodels calls it each time, which takes as long as all of the rest
        expected = list(multipletests(p_values, method="holm")[1])
    assert holm(p_values) == pytest.approx(expected)


def test_holm_by_hand_and_what_is_not_known_counts_too() -> None:
    assert holm([0.03, 0.01]) == pytest.approx([0.03, 0.02])
    assert holm([0.03, None, 0.01]) == [pytest.approx(0.06), None, pytest.approx(0.03)]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("shown", "ranks"),
    [
        ([], [(1, 3), (1, 3), (1, 3)]),
        ([(0, 1), (0, 2), (1, 2)], [(1, 1), (2, 2), (3, 3)]),
        ([(2, 0)], [(2, 3), (1, 3), (1, 2)]),
        ([(2, 0), (2, 1)], [(2, 3), (2, 3), (1, 1)]),
    ],
)
def test_a_rank_counts_who_is_shown_to_be_better_and_worse(
    shown: list[tuple[int, int]], ranks: list[tuple[int, int]]
) -> None:
    assert rank_intervals(3, shown) == ranks
