"""The score of a case, and what several judges make of it."""

from __future__ import annotations

import pytest

from eval_factory.tasks import rubric_case
from eval_factory.tasks.rubric_case import Criterion, case_bounds, case_score, conversation_text

GOOD = Criterion("good", 8)
SMALL = Criterion("small", 2)
BAD = Criterion("bad", -5, ("axis:safety",))
ALL = (GOOD, SMALL, BAD)


@pytest.mark.parametrize(
    ("met", "score"),
    [
        ([1, 1, 0], 1.0),
        ([1, 0, 0], 0.8),
        ([0, 1, 0], 0.2),
        ([1, 0, 1], 0.3),
        ([0, 0, 1], -0.5),
        ([0.5, 0, 0], 0.4),
        ([0, 0, 0], 0.0),
        ([1, None, 0], None),
        ([None, None, None], None),
    ],
)
def test_a_case_scores_points_met_of_the_positive_points(
    met: list[float | None], score: float | None
) -> None:
    assert case_score(ALL, met) == (None if score is None else pytest.approx(score))


def test_bounds_count_what_is_open_both_ways() -> None:
    assert case_bounds(ALL, [(1, 1), (0, 1), (0, 1)]) == pytest.approx((0.3, 1.0))
    assert case_bounds(ALL, [(0, 1)] * 3) == pytest.approx((-0.5, 1.0))
    assert case_bounds(ALL, [(1, 1), (1, 1), (1, 1)]) == pytest.approx((0.5, 0.5))
    assert rubric_case.positive_points(ALL) == 10
    assert (case_score([BAD], [0.0]), case_bounds([BAD], [(0.0, 1.0)])) == (None, None), (
        "no positive points"
    )


@pytest.mark.parametrize(
    ("decisions", "share", "span"),
    [
        ([True], 1.0, (1.0, 1.0)),
        ([False], 0.0, (0.0, 0.0)),
        ([None], None, (0.0, 1.0)),
        ([], None, (0.0, 1.0)),
        ([True, False], 0.5, (0.5, 0.5)),
        ([True, False, None], 0.5, (0.0, 1.0)),
        ([True, True, None], 1.0, (1.0, 1.0)),
        ([False, False, None], 0.0, (0.0, 0.0)),
        ([True, None, None], 1.0, (0.0, 1.0)),
        ([True, None], 1.0, (0.5, 1.0)),
    ],
)
def test_the_majority_decides(
    decisions: list[bool | None], share: float | None, span: tuple[float, float]
) -> None:
    assert rubric_case.share_by_majority(decisions) == share
    assert rubric_case.range_by_majority(decisions) == span


def test_a_conversation_as_text() -> None:
    alone = {"role": "user", "content": "Hello?"}
    assert conversation_text([alone]) == "Hello?"
    assert (
        conversation_text([{"role": "system", "content": "Be brief."}, alone])
        == "system: Be brief.\n\nuser: Hello?"
    )
    assert conversation_text([{"role": "system", "content": "x"}]) == "system: x"


def test_what_stays_with_an_instance() -> None:
    case = rubric_case.RubricCase(
        "a", ({"role": "user", "content": "x"},), (BAD,), "ref", "note 1", ("theme:x",), "canary"
    )
    assert case.extra_data() == {
        "rubrics": [{"criterion": "bad", "points": -5, "tags": ["axis:safety"]}],
        "tags": ["theme:x"],
        "cluster": "note 1",
        "canary": "canary",
    }
    assert Criterion.from_dict(case.extra_data()["rubrics"][0]) == BAD
    assert rubric_case.RubricCase("a", (), (BAD,)).extra_data().keys() == {"rubrics", "tags"}
