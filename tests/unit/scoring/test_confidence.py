"""Calibration, risk and coverage, against loops written from their definitions."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from eval_factory.scoring.confidence import (
    Answer,
    ConfidenceOfAnswers,
    area_under_risk,
    brier_parts,
    groups_of,
    interval_of_error,
    probability_of,
    risk_at,
    squared_error,
)


def answers(*pairs: tuple[float, float]) -> list[Answer]:
    return [Answer(sure, right, number) for number, (sure, right) in enumerate(pairs)]


def drawn(count: int, gap: float, seed: int = 0) -> list[Answer]:
    """Right with the stated confidence less a gap."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    sure = [chance.choice((0.5, 0.6, 0.7, 0.8, 0.9)) for _ in range(count)]
    return answers(*((one, float(chance.random() < one - gap)) for one in sure))


def test_groups_hold_equally_many_and_never_part_equal_confidences() -> None:
    whole = answers(*((number / 100, 1.0) for number in range(100)))
    assert [len(group) for group in groups_of(whole)] == [10] * 10
    assert len(groups_of(answers(*[(0.9, 1.0)] * 50))) == 1
    few = answers(*[(0.1, 0.0)] * 2, *[(0.9, 1.0)] * 40)
    assert sum(map(len, groups_of(few))) == 42
    for group in groups_of(drawn(200, 0.0)):
        assert len({one.sure for one in group}) == 1
    assert min(map(len, groups_of(answers(*((number / 17, 1.0) for number in range(17)))))) >= 5


def test_the_squared_error_is_that_of_pairs_in_a_group() -> None:
    """The mean over pairs of different answers of the product of their gaps: what J. Broecker's estimate is."""
    for group in groups_of(drawn(120, 0.2)):
        gaps = [one.sure - one.right for one in group]
        pairs = [a * b for i, a in enumerate(gaps) for j, b in enumerate(gaps) if i != j]
        assert squared_error([group]) == pytest.approx(statistics.fmean(pairs))


def test_the_estimate_has_no_bias_where_the_plain_one_has() -> None:
    samples = [groups_of(drawn(60, 0.0, seed)) for seed in range(300)]
    plain = statistics.fmean(
        sum(len(group) * statistics.fmean(one.sure - one.right for one in group) ** 2 for group in groups) / 60
        for groups in samples
    )
    estimates = [squared_error(groups) for groups in samples]
    noise = statistics.stdev(estimates) / math.sqrt(len(estimates))
    assert abs(statistics.fmean(estimates)) < 4 * noise
    assert plain > 10 * noise


def test_the_interval_holds_a_true_error_and_is_no_point_at_the_ceiling() -> None:
    held = sum(
        low <= 0.2 <= high
        for low, high in (interval_of_error(groups_of(drawn(150, 0.2, seed)), 200) for seed in range(60))
    )
    assert held >= 52
    low, high = interval_of_error(groups_of(answers(*[(0.95, 1.0)] * 100)))
    assert low < 0.05 < high


def test_an_interval_of_few_sources_is_wider() -> None:
    alone = drawn(120, 0.2)
    shared = [one._replace(source=min(number // 10, 6)) for number, one in enumerate(alone)]
    widths = [high - low for low, high in (interval_of_error(groups_of(sample)) for sample in (alone, shared))]
    assert widths[0] < widths[1]


def test_the_parts_of_the_brier_score_give_it() -> None:
    sample = drawn(2000, 0.1)
    reliability, resolution, uncertainty = brier_parts(groups_of(sample))
    brier = statistics.fmean((one.sure - one.right) ** 2 for one in sample)
    assert reliability - resolution + uncertainty == pytest.approx(brier, abs=0.002)
    assert reliability == pytest.approx(0.01, abs=0.006)


def test_risk_by_coverage_counts_the_surest_first_and_ties_in_any_order() -> None:
    sample = answers((0.9, 1.0), (0.8, 0.0), (0.8, 1.0), (0.1, 0.0))
    assert risk_at(sample, 0.25) == (0.25, 0.0)
    assert risk_at(sample, 0.5) == (0.5, 0.25)
    assert risk_at(sample, 1.0) == (1.0, 0.5)
    assert area_under_risk(sample) == pytest.approx((0 + 0.25 + 1 / 3 + 0.5) / 4)
    assert area_under_risk(sample[::-1]) == area_under_risk(sample)


@pytest.mark.parametrize(
    ("label", "tokens", "found"),
    [
        ("B", [("B", -0.5)], math.exp(-0.5)),
        ("B", [(" B", -0.5), (".", -3.0)], math.exp(-0.5)),
        ("B", [("B", -9.0), (" or", -1.0), (" B", -0.5)], math.exp(-0.5)),  # the last one is the answer
        ("maybe", [("may", -0.5), ("be", -0.25), ("!", -7.0)], math.exp(-0.75)),
        ("C", [("B", -0.5)], None), ("B", [], None), ("", [("B", -0.5)], None),
    ],
)  # fmt: skip
def test_the_probability_of_a_label_is_that_of_its_tokens(
    label: str, tokens: list[tuple[str, float]], found: float | None
) -> None:
    assert probability_of(label, tokens) == (None if found is None else pytest.approx(found))


def test_too_few_answers_say_nothing_and_what_was_not_read_is_counted() -> None:
    part = ConfidenceOfAnswers("stated", known={("a", 0): 0.9, ("b", 0): None, ("c", 0): None, ("gone", 0): 0.5})
    found = part.report({("a", 0): 1.0, ("b", 0): 0.0, ("c", 0): 1.0}, lambda _units: None)
    assert (found.questions, found.unread, found.mean) == (1, 2, None)
