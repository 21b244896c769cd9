from __future__ import annotations

import pytest

from eval_factory.workflows.sharding.shard_ends import MOST_STARTS, how_it_ended, is_begun_again, signal_of


@pytest.mark.parametrize(
    ("code", "signal"),
    [(0, None), (1, None), (4, None), (128, None), (130, None), (129, 1), (137, 9), (-9, 9), (-15, 15)],
)
def test_a_signal_is_told_from_an_exit_code(code: int, signal: int | None) -> None:
    assert signal_of(code) == signal


@pytest.mark.parametrize("code", [-9, 137, 130, -11])
def test_a_shard_that_was_killed_is_begun_again_so_often_and_no_more(code: int) -> None:
    assert MOST_STARTS == 3
    assert [is_begun_again(code, starts, said_why=False) for starts in (1, 2, 3, 4)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("code", "said_why"), [(0, False), (1, False), (3, False), (5, False), (-9, True), (137, True)]
)
def test_one_that_ended_by_itself_or_said_why_is_not(code: int, said_why: bool) -> None:
    assert not is_begun_again(code, 1, said_why=said_why)


def test_how_it_ended() -> None:
    assert how_it_ended(-9) == "killed by signal 9"
    assert how_it_ended(137, 3) == "begun 3 times, killed by signal 9"
    assert how_it_ended(5) == "exit code 5"
