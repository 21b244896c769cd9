"""Tests of what the lines of a ledger come to."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from eval_factory.core.results import UTC_FORMAT
from eval_factory.monitor.course import limits_of
from eval_factory.monitor.ledger import History, is_older_than
from invented_ledger import Invented, limit, one_limit, rich


def numbered(*kinds: tuple[str, int | None]) -> History:
    """(kind, look)."""
    return History(
        [
            {"number": at, "kind": kind, "look": look, "epoch": 1}
            for at, (kind, look) in enumerate(kinds, 1)
        ]
    )


def test_the_last_baseline_holds_and_the_looks_after_it_are_its_own() -> None:
    history = History(rich().lines)
    first, second = [line for line in history.lines if line["kind"] == "baseline"]
    assert history.baseline is second
    assert history.epoch == 2
    assert [line["look"] for line in history.looks_after(first)] == [1, 2, 3]
    assert [line["look"] for line in history.looks] == [*range(4, 8), *range(9, 18)]
    assert history.alarm is not None
    assert history.alarm["look"] == 16


def test_before_the_first_baseline_there_is_nothing() -> None:
    history = History([])
    assert (history.baseline, history.epoch, history.looks, history.begun, history.alarm) == (
        None,
        0,
        [],
        None,
        None,
    )
    assert history.next_look == 1


@pytest.mark.parametrize(
    ("kinds", "begun", "following"),
    [
        ([("baseline", None), ("begun", 1)], 1, 2),
        ([("baseline", None), ("begun", 1), ("note", None)], 1, 2),
        ([("baseline", None), ("begun", 1), ("look", 1)], None, 2),
        ([("baseline", None), ("begun", 1), ("not_made", 1)], None, 2),
        (
            [
                ("begun", 1),
                ("look", 1),
                ("baseline", None),
                ("begun", 2),
                ("look", 2),
                ("begun", 3),
            ],
            3,
            4,
        ),
    ],
)
def test_a_look_is_begun_until_it_ends(kinds: Any, begun: int | None, following: int) -> None:
    history = numbered(*kinds)
    assert (history.begun or {}).get("look") == begun
    assert history.next_look == following


def test_the_limits_are_those_of_the_baseline() -> None:
    made = Invented()
    made.baseline(
        [limit("a, topic=x", task="a", field="topic", value="x", metric="rating", max_drop=0.3)]
    )
    (found,) = limits_of(made.baseline_line)
    assert vars(found) == {
        "name": "a, topic=x",
        "task": "a",
        "metric": "rating",
        "max_drop": 0.3,
        "field": "topic",
        "value": "x",
    }
    assert History(one_limit(0.8).lines).alarm is None


@pytest.mark.parametrize(("hours", "older"), [(23.9, False), (24.1, True)])
def test_a_look_may_go_on_for_so_many_hours(hours: float, older: bool) -> None:
    at = datetime.now(timezone.utc) - timedelta(hours=hours)
    assert is_older_than({"at": at.strftime(UTC_FORMAT)}, hours=24) is older
