"""A jury's metric: its scale, its lowest marks, HELM's own value beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eval_factory.core.results import Stats
from eval_factory.scoring.agreement import Ratings
from eval_factory.scoring.jury import (
    missing_instances,
    scores_with_helm_defaults,
    with_lowest_ratings,
)
from eval_factory.scoring.scores import MetricValues, helm_mean, is_judged
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.jury_form import JuryForm
from unit.scoring.test_scores import key

VALUES = {key(0): 4.0, key(1): 5.0, key(2): 3.0}
METRIC = MetricValues("jury@valid", "jury", helm_mean(VALUES), values=VALUES, split="valid")


@pytest.mark.parametrize(
    ("name", "jury", "judged"),
    [
        ("jury", "jury", True),
        ("jury.corrected", "jury", True),
        ("em", "jury", False),
        ("jury", None, False),
    ],
)
def test_a_jurys_metric_and_its_corrected_one_are_judged(
    name: str, jury: str | None, judged: bool
) -> None:
    assert is_judged(replace(METRIC, name=name), jury) is judged


def test_an_answer_that_says_nothing_gets_the_lowest_mark() -> None:
    """Empty or filtered; one of another metric's instances gets none. The mean is then not HELM's."""
    tally = Tally(empty={key(1), key(9)}, filtered={key(2)})
    found = with_lowest_ratings(METRIC, tally)
    assert found.values == {key(0): 4.0, key(1): 1.0, key(2): 1.0}
    assert (found.helm_mean, found.scale) == (None, (1.0, 5.0))
    assert VALUES[key(1)] == 5.0


def test_a_benchmarks_own_scale_and_lowest_mark() -> None:
    tally = Tally(empty={key(1)}, ratings=Ratings(form=JuryForm((-2, 0, 7))))
    found = with_lowest_ratings(METRIC, tally)
    assert (found.values[key(1)], found.scale) == (-2.0, (-2.0, 7.0))
    assert with_lowest_ratings(METRIC, replace(tally, empty=set())).scale == (-2.0, 7.0)


def test_where_helm_gave_the_lowest_mark_its_mean_stays() -> None:
    low = replace(METRIC, values={**VALUES, key(1): 1.0}, helm_mean=8 / 3)
    assert with_lowest_ratings(low, Tally(empty={key(1)})) == replace(low, scale=(1.0, 5.0))
    assert with_lowest_ratings(METRIC, Tally()) == replace(METRIC, scale=(1.0, 5.0))


@pytest.mark.parametrize("of", ["failed", "unjudged", "empty", "filtered"])
def test_helms_own_value_stands_beside_where_it_holds_a_default(of: str) -> None:
    tally = Tally(**{of: {key(0)}})  # type: ignore[arg-type]
    found = scores_with_helm_defaults([METRIC], "jury", tally)
    assert list(found) == ["jury@valid.helm"]
    score = found["jury@valid.helm"]
    assert (score.value, score.stats, score.split) == (
        4.0,
        Stats.without_interval(3, 4.0),
        "valid",
    )


def test_helms_own_value_is_not_repeated() -> None:
    tally = Tally(failed={key(0)})
    without = [replace(METRIC, helm_mean=None)]
    assert (
        scores_with_helm_defaults([METRIC], "jury", Tally())
        == scores_with_helm_defaults([METRIC], "other", tally)
        == {}
    )
    assert scores_with_helm_defaults(without, "jury", tally) == {}


def test_a_failed_answer_is_no_mark_of_a_jurys() -> None:
    tally = Tally(failed={key(0)}, unjudged={key(1)})
    assert missing_instances(METRIC, "jury", tally, failed_as_zero=True) == (
        {key(0), key(1)},
        False,
    )
    for as_zero in (True, False):
        assert missing_instances(METRIC, "other", tally, failed_as_zero=as_zero) == (
            {key(0)},
            as_zero,
        )
