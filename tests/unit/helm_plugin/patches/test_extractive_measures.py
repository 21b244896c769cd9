"""The figures of Newsroom's paper, and those of the package that HELM would take."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_factory.helm_plugin.patches.lighter import extract_statistics, fragments

TOKENS = st.lists(st.sampled_from("abcAB."), max_size=14)


@pytest.mark.parametrize(
    ("summary", "source", "expected"),
    [
        ("the cat", "a cat sat on the cat", [2]),
        ("the cat sat", "the dog saw the cat", [2]),
        ("x x y", "x x x y", [2, 1]),  # the run of three begins inside one of two
        ("a b a b", "b a", [1, 2, 1]),
        ("a b c", "a b d c", [2, 1]),
        ("q", "a b", []),
        ("", "a", []),
        ("a", "", []),
    ],
)
def test_fragments(summary: str, source: str, expected: list[int]) -> None:
    assert list(fragments(summary.split(), source.split())) == expected


def test_the_statistics_of_a_summary() -> None:
    found = extract_statistics(
        ["The", "cat", "sat", "down", "."], [*"abcde", "the", "CAT", "x", "sat", "."]
    )
    assert found == {"coverage": 4 / 5, "density": (4 + 1 + 1) / 5, "compression": 10 / 5}
    for source in ("", "a b"):
        assert extract_statistics([], source.split()) == {
            "coverage": 0,
            "density": 0,
            "compression": 0,
        }


@given(TOKENS, TOKENS)
@settings(deadline=None)
def test_a_copy_is_covered_and_nothing_is_covered_twice(
    summary: list[str], source: list[str]
) -> None:
    lengths = list(fragments(summary, source))
    assert sum(lengths) == sum(token in source for token in summary)
    assert all(0 < length <= len(source) for length in lengths)
    assert list(fragments(source, source)) == ([len(source)] if source else [])
