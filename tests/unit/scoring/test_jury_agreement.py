"""The jury report on ratings whose figures are known."""

from __future__ import annotations

import pytest

from eval_factory.scoring.jury_agreement import Ratings, family_of


def ratings(**by_judge: list[int | None]) -> Ratings:
    """One criterion; one rating an instance, None where the judge failed."""
    made = Ratings()
    for judge, given in by_judge.items():
        for number, rating in enumerate(given):
            made.add(judge, (f"id{number}", 0, None), {} if rating is None else {"accuracy": rating})
    return made


def test_means_and_leave_one_out() -> None:
    report = ratings(a=[1, 3, 5], b=[5, 5, 5], c=[3, None, None]).report()
    assert report.means == {"a": 3.0, "b": 5.0, "c": 3.0}
    assert report.leave_one_out == {"a": (4 + 5 + 5) / 3, "b": (2 + 3 + 5) / 3, "c": (3 + 4 + 5) / 3}


def test_agreement_is_whole() -> None:
    report = ratings(a=[1, 3, 5, 2], b=[1, 3, 5, 2]).report()
    assert report.krippendorff_alpha == pytest.approx(1.0)
    assert report.weighted_kappa == {"a/b": pytest.approx(1.0)}


def test_krippendorffs_example() -> None:
    """K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011): 0.815 for ordinal data, 0.849 for interval."""
    report = ratings(
        a=[1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        b=[1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        c=[None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        d=[1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ).report()
    assert report.krippendorff_alpha == pytest.approx(0.815, abs=0.0005)


def test_agreement_is_below_chance() -> None:
    report = ratings(a=[1, 5, 1, 5], b=[5, 1, 5, 1]).report()
    assert report.krippendorff_alpha is not None
    assert report.krippendorff_alpha < 0
    assert report.weighted_kappa == {"a/b": pytest.approx(-1.0)}


def test_cohens_example_by_hand() -> None:
    """Quadratic weights on (1,1), (2,3), (3,3), (5,4): observed 2/16/4; expected over all 16 pairs 74/16/16."""
    report = ratings(a=[1, 2, 3, 5], b=[1, 3, 3, 4]).report()
    assert report.weighted_kappa["a/b"] == pytest.approx(
        1 - (2 / 4) / (sum((x - y) ** 2 for x in (1, 2, 3, 5) for y in (1, 3, 3, 4)) / 16)
    )


def test_what_is_not_defined_is_absent() -> None:
    assert ratings(a=[3, 4]).report().krippendorff_alpha is None
    assert ratings(a=[3, 4]).report().leave_one_out == {"a": None}
    report = ratings(a=[4, 4], b=[4, 4]).report()
    assert report.krippendorff_alpha is None
    assert report.weighted_kappa == {"a/b": None}
    apart = ratings(a=[1, None], b=[None, 5]).report()
    assert apart.weighted_kappa == {"a/b": None}
    assert ratings().report().means == {}


def test_means_of_an_instance() -> None:
    made = Ratings()
    made.add("a", ("x", 0, None), {"accuracy": 4, "clarity": 5})
    assert made.means_of(("x", 0, None)) == {"a": 4.5}
    assert made.means_of(("y", 0, None)) == {}


@pytest.mark.parametrize(
    ("model_id", "family"),
    [
        ("gpt-4o-2024-05-13", "gpt"),
        ("openai/o3-mini", "gpt"),
        ("o1", "gpt"),
        ("meta/llama-3.3-70b-instruct", "llama"),
        ("us.anthropic.claude-3-7-sonnet", "claude"),
        ("google/medgemma-27b", "gemini"),
        ("microsoft/phi-4", "phi"),
        ("Qwen/QwQ-32B", "qwen"),
        ("my-own-model", None),
        ("graph-o1x", None),
    ],
)
def test_families(model_id: str, family: str | None) -> None:
    assert family_of(model_id) == family


def test_without_the_only_judge_nothing_is_left() -> None:
    made = ratings(a=[4, 5])
    made.rate_lowest(("id9", 0, None))
    assert made.report().leave_one_out == {"a": None}
