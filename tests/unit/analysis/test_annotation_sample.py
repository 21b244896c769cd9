"""Strata, their shares, and what is drawn of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from eval_factory.analysis import annotation_sheets as sheets
from eval_factory.analysis.annotation_sheets import (
    Candidate,
    draw_answers,
    rater_order,
    sample_of_draw,
    score_ranges_of,
    strata_of,
)
from eval_factory.core.annotations import AnswerKey, RatedQuestion, rated_question_of
from eval_factory.core.errors import ConfigError
from facts import naming
from stored_results import instance
from unit.core.test_rated_answers import scored

DRAW = sheets.DrawSettings(20, 0, ("1", "2"), "identity")


def candidates(*values: float, group: str = "") -> list[Candidate]:
    return [
        Candidate(AnswerKey(f"{group}{place:03}", 0), value, group)
        for place, value in enumerate(values)
    ]


def sizes(strata: list[sheets.AnswerStratum]) -> dict[str, int]:
    return {one.name: len(one.answers) for one in strata}


def test_few_values_are_strata_and_many_are_quarters() -> None:
    assert score_ranges_of([1, 0, 0, 1, 0.5, 0.2]) == [(0, 0), (0.2, 0.2), (0.5, 0.5), (1, 1)]
    assert score_ranges_of(range(8)) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert score_ranges_of([0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]) == [
        (0, 0),
        (1, 2),
        (3, 5),
    ]  # quarters of zeros are one
    assert sizes(strata_of(candidates(*range(40)), 20)) == {
        "0 to 9": 10,
        "10 to 19": 10,
        "20 to 29": 10,
        "30 to 39": 10,
    }


def test_groups_part_the_scores_and_rare_ones_are_others() -> None:
    found = strata_of(
        candidates(0, 0, 1, 1, 1, group="a") + candidates(0, 0, 0, 1, 1, group="b"), 10
    )
    assert sizes(found) == {"0, a": 2, "0, b": 3, "1, a": 3, "1, b": 2}
    many = list(
        chain.from_iterable(
            candidates(*[1.0] * (20 - ord(group) % 32), group=group) for group in "abcdefgh"
        )
    )
    assert list(sizes(strata_of(many, 100))) == [
        "1, a",
        "1, b",
        "1, c",
        "1, d",
        "1, e",
        "1, f",
        "1, others",
    ]


def test_strata_that_a_sample_cannot_hold_are_put_together() -> None:
    of_three = candidates(*[0.0] * 10, *[1.0] * 3, *[2.0] * 20)
    assert sizes(strata_of(of_three, 6)) == {"0": 10, "1": 3, "2": 20}
    assert sizes(strata_of(of_three, 5)) == {"0; 1": 13, "2": 20}
    assert sizes(strata_of(of_three, 3)) == {"0; 1; 2": 33}
    # one answer alone is no stratum
    assert sizes(strata_of(candidates(0, 1, 1, 1), 4)) == {"0; 1": 4}
    assert sizes(strata_of(candidates(1.0), 4)) == {"1": 1}
    with pytest.raises(ConfigError, match=naming("--n 1", "2 answers")):
        strata_of(of_three, 1)


@pytest.mark.parametrize(
    ("of", "count", "shares"),
    [
        ([10, 30, 60], 10, [2, 3, 5]),
        ([10, 30, 60], 100, [10, 30, 60]),
        ([10, 30, 60], 200, [10, 30, 60]),
        ([50, 50], 7, [3, 4]),
        ([1, 99], 10, [1, 9]),
        ([100, 3, 3], 6, [2, 2, 2]),
        ([0, 20], 5, [0, 5]),
        ([33, 33, 34], 10, [3, 3, 4]),
    ],
)
def test_shares(of: list[int], count: int, shares: list[int]) -> None:
    found = sheets.counts_to_draw(of, count)
    assert sorted(found) == sorted(shares)
    assert all(given <= size for given, size in zip(found, of, strict=True))


def test_every_answer_of_a_stratum_has_the_same_chance() -> None:
    strata = strata_of(candidates(*[0.0] * 10, *[1.0] * 30), 8)
    times: Counter[str] = Counter()
    for seed in range(400):
        found = draw_answers(strata, (), sheets.DrawSettings(8, seed, ("1",), "x"))
        assert Counter((place, chance) for _, place, chance in found) == {(0, 0.2): 2, (1, 0.2): 6}
        times.update(key.id for key, _, _ in found)
    assert len(times) == 40
    # 80 of 400, give or take four standard deviations
    assert all(45 < count < 120 for count in times.values())


def test_what_is_rated_is_not_drawn_again() -> None:
    strata = strata_of(candidates(*[0.0] * 10, *[1.0] * 30), 8)
    first = {key for key, _, _ in draw_answers(strata, (), DRAW)}
    assert first == {key for key, _, _ in draw_answers(strata, (), DRAW)}
    assert first.isdisjoint(key for key, _, _ in draw_answers(strata, first, DRAW))
    everything = set(chain.from_iterable(one.answers for one in strata))
    with pytest.raises(ConfigError, match=naming("is rated")):
        draw_answers(strata, everything, DRAW)
    last = next(iter(everything))
    assert [
        key for key, _, chance in draw_answers(strata, everything - {last}, DRAW) if chance == 1
    ] == [last]


def asked() -> RatedQuestion:
    record = instance("q", 1.0)
    return rated_question_of(scored(record, "exact_match", (0, 1)), [record], None, frozenset())


def test_codes_say_nothing_and_each_rater_has_an_order_of_its_own() -> None:
    records = [instance(f"q{one}", 1.0) for one in range(30)]
    strata = strata_of([Candidate(AnswerKey(one.id, 0), 1.0) for one in records], 10)
    chosen = [(asked().shown_answer(one), 0, 0.5) for one in records[:10]]
    sample = sample_of_draw(asked(), strata, chosen, DRAW)
    assert sample == sample_of_draw(asked(), strata, chosen, DRAW)
    assert sample.id != sample_of_draw(asked(), strata, chosen[:9], DRAW).id
    codes = [one.code for one in sample.answers]
    assert (len(set(codes)), len(sample.stratum_of)) == (10, 30)
    assert all(code.isalpha() and not set("aeiouy") & set(code) for code in [*codes, sample.id])
    assert sample.answers[3].shown_sha256 == asked().sha256_of(records[3])
    orders = {tuple(rater_order(codes, sample.id, rater)) for rater in "123"}
    assert len(orders) == 3
    assert all(sorted(one) == sorted(codes) for one in orders)
    assert rater_order(codes, sample.id, "1") == rater_order(codes[::-1], sample.id, "1")
