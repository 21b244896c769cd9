"""A limit of time counts the work inside its blocks alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eval_factory.core.this_process import OutOfTime, TimeLimit


def ticking(*times: float) -> Iterator[float]:
    return iter(times)


def test_time_between_two_blocks_does_not_count() -> None:
    clock = ticking(0.0, 2.0, 100.0, 103.0)
    limit = TimeLimit(5.0, clock.__next__)
    with limit:
        pass
    assert limit.spent == 2.0
    with limit:
        pass
    assert limit.spent == 5.0


def test_what_is_spent_to_the_end_is_allowed_and_more_is_not() -> None:
    clock = ticking(10.0, 11.0, 12.0, 12.5, 13.0)
    limit = TimeLimit(2.0, clock.__next__)
    with limit:
        limit.check()
        limit.check()
        assert limit.spent == 2.0
        with pytest.raises(OutOfTime):
            limit.check()
    assert limit.spent == 3.0
