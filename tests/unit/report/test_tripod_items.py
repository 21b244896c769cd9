"""The checklist's items: all 49 of its table, in order."""

from __future__ import annotations

from eval_factory.report.tripod_items import ITEMS

LETTERS = {3: "ab", 5: "abcde", 6: "abcde", 7: "abcde", 8: "abc", 9: "ab", 14: "abcdef", 16: "abcd", 19: "abcdefg"}


def test_the_numbers_are_those_of_the_table() -> None:
    expected = [f"{number}{letter}" for number in range(1, 20) for letter in LETTERS.get(number, [""])]
    assert list(ITEMS) == expected
    assert len(expected) == 49


def test_topics_are_short_and_different() -> None:
    assert len(set(ITEMS.values())) == len(ITEMS)
    assert all(0 < len(topic) < 100 for topic in ITEMS.values())
