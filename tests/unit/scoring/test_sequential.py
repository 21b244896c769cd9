"""`extra.stop_when`: intervals that hold at all looks together, and what each look says of the rule."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import pytest
import stop_when_coverage as simulation
from scipy import stats

from builders import draft, plan
from eval_factory.core.budget import Cost
from eval_factory.core.errors import ConfigError
from eval_factory.core.results import Floor, Spent, SpentByRole, StoppedEarly, Usage
from eval_factory.helm.output import DrawnSample, RequestState
from eval_factory.scoring.intervals import describe, interval_of_mean
from eval_factory.scoring.scores import MetricValues, score_of
from eval_factory.scoring.sequential import Looks, bias_of_stopping, look_sizes_up_to
from facts import naming, says

STOP = "config.params.extra.stop_when"
NINE_OF_TEN = [0.0 if at % 10 == 3 else 1.0 for at in range(400)]


def test_looks_double_up_to_all() -> None:
    assert look_sizes_up_to(50, 400) == (50, 100, 200, 400)
    assert look_sizes_up_to(50, 401) == (50, 100, 200, 400, 401)
    assert look_sizes_up_to(50, 50) == look_sizes_up_to(60, 50) == (50,)
    for first, most in ((50, 400), (50, 1273), (10, 9999)):
        assert len(look_sizes_up_to(first, most)) == math.ceil(math.log2(most / first)) + 1


def test_an_interval_may_miss_in_its_share_of_the_samples_alone() -> None:
    """Each formula written out, at 2.5 % / 4 on a side."""
    side = 0.025 / 4
    right = 45
    count = 50
    found = describe([1.0] * right + [0.0] * (count - right), looks=4)
    assert found.ci_method == "clopper-pearson-of-4-looks"
    low = cast(float, found.ci_low)
    high = cast(float, found.ci_high)
    at_least = sum(
        math.comb(count, k) * low**k * (1 - low) ** (count - k) for k in range(right, count + 1)
    )
    at_most = sum(
        math.comb(count, k) * high**k * (1 - high) ** (count - k) for k in range(right + 1)
    )
    assert [at_least, at_most] == pytest.approx([side, side])
    alike = describe([1.0] * count, looks=4)
    assert (alike.ci_low, alike.ci_high) == pytest.approx((side ** (1 / count), 1.0))
    graded = [0.25] * 20 + [0.5] * 20 + [1.0] * 10
    beside = [*graded, 0.0, 1.0]  # a value at each end of the scale
    mean = sum(beside) / 52
    variance = sum((one - sum(beside) / 52) ** 2 for one in beside) / 51
    reach = stats.t.isf(side, 49) * math.sqrt(variance / 52)
    made = interval_of_mean(graded, each_side=side)
    assert (made.low, made.high) == pytest.approx((mean - reach, mean + reach))
    pairs = [str(at // 2) for at in range(count)]
    for values in ([1.0] * right + [0.0] * 5, graded):
        one, several = (describe(values, clusters=pairs, looks=looks) for looks in (1, 4))
        assert cast(float, several.ci_low) < cast(float, one.ci_low)
        assert several.ci_method == f"{one.ci_method}-of-4-looks"


@pytest.mark.parametrize("name", list(simulation.POPULATIONS))
def test_a_run_that_is_stopped_holds_the_truth(name: str) -> None:
    """Of 200 at 95 %, fewer than one series in 100 covers less than 91 %."""
    found = simulation.measured(name, 200, 3, betting=False)
    assert found["ours"].worst >= 0.91
    assert found["ours"].stopped >= found["ours"].worst


def test_one_interval_after_several_looks_does_not_and_betting_asks_more() -> None:
    """So the simulation would show a mistake."""
    found = simulation.measured("0/1, 90% right", 200, 3)
    assert found["one look"].worst < 0.9
    assert found["betting"].worst >= 0.95
    assert found["ours"].asked < found["betting"].asked


def looked(
    asked: int, of: int = 400, values: Any = NINE_OF_TEN, others: Any = (), **known: Any
) -> StoppedEarly:
    """Return what is found when so many of these values are there."""
    rule = {
        f"{STOP}.{name}": known.pop(name)
        for name in [*known]
        if name in ("half_width", "beats_floor", "alpha")
    }
    if others:
        rule[f"{STOP}.differs_from"] = "/other"
    made = plan({**rule, "config.params.limit_samples": known.pop("limit", None)})
    stop = made.evaluation.stop_when
    assert stop is not None
    looks = Looks(
        made,
        stop,
        DrawnSample(asked=asked, of=of),
        {f"id{at}": one for at, one in enumerate(others)},
    )
    keys = [(f"id{at}", 0, None) for at in range(asked)]
    for key in keys:
        looks.see(key, cast(RequestState, None))
    metric = MetricValues(
        "exact_match", "exact_match", None, values=dict(zip(keys, values, strict=False))
    )
    metric = replace(metric, looks=len(looks.sizes), **known.pop("metric", {}))
    score = score_of(metric, set(), failed_as_zero=False) if metric.values else None
    scores = {} if score is None else {"exact_match": score}
    of_draft = draft(main="exact_match", main_values=metric, scores=scores, **known)
    looks.weigh(of_draft)
    found = of_draft.stopped_early
    assert found is not None
    if score is not None and not others and found.rule["alpha"] == 0.05:
        last = found.looks[-1]
        assert (last.value, last.ci_low, last.ci_high) == (
            score.value,
            score.stats.ci_low,
            score.stats.ci_high,
        )
    assert [note for note in of_draft.notes.texts() if "of a sample" in note] == (
        [
            f"the score is of a sample: {asked} of {of} instances, drawn at random with seed 0 (stop_when)"
        ]
        if asked < of
        else []
    )
    return found


def test_each_look_is_of_the_first_instances() -> None:
    found = looked(200, half_width=0.06)
    assert [look.n for look in found.looks] == [50, 100, 200]
    assert [look.value for look in found.looks] == pytest.approx([0.9] * 3)
    halves = [(cast(float, look.ci_high) - cast(float, look.ci_low)) / 2 for look in found.looks]
    assert halves[1] > 0.06 >= halves[2]
    assert (found.holds, found.stopped, found.rule_text) == (True, True, "half_width 0.06")
    assert not looked(100, half_width=0.06).holds
    assert not looked(200, half_width=0.06, alpha=0.001).holds


def test_a_rule_that_holds_when_all_are_asked_has_stopped_nothing() -> None:
    for of, limit in ((400, 200), (200, None)):
        found = looked(200, of, half_width=0.06, limit=limit)
        assert (found.holds, found.stopped, found.saved_requests) == (True, False, 0)


@pytest.mark.parametrize(
    ("floor", "holds"),
    [
        (Floor("always A", 0.7, 50, {}), True),
        (Floor("always A", 0.8, 50, {}), False),
        (None, False),
        (Floor("empty", 0.1, 50, {}, assumed=True), False),
        (Floor("a", 0.96, 50, {}, lower_is_better=True), False),
        (Floor("a", 0.99, 50, {}, lower_is_better=True), True),
    ],
)
def test_the_floor_is_beaten_by_the_whole_interval(floor: Floor | None, holds: bool) -> None:
    floors = {} if floor is None else {"exact_match": floor}
    assert looked(50, beats_floor=True, floors=floors).holds is holds


def test_a_difference_is_of_the_instances_that_both_have() -> None:
    same = [float(at % 2) for at in range(400)]
    found = looked(50, values=same, others=same)
    assert (found.looks[0].value, found.holds) == (0.0, False)
    better = looked(100, others=same[:80])
    assert better.looks[-1].value == pytest.approx(sum(NINE_OF_TEN[:80]) / 80 - 0.5)
    assert better.holds
    assert cast(float, better.looks[-1].ci_low) > 0
    assert looked(100, values=same, others=NINE_OF_TEN).holds


def test_what_no_interval_can_be_of_is_refused() -> None:
    keys = {(f"id{at}", 0, None): 1 for at in range(50)}
    with pytest.raises(ConfigError, match=naming("exact_match", "not a mean")):
        looked(50, half_width=0.1, metric={"helm_mean": 0.123, "counts": keys})
    with pytest.raises(ConfigError, match=naming("no known ends")):
        looked(50, values=[7.0, 8.0] * 25, others=[7.0] * 50)


def test_nothing_is_known_of_no_values() -> None:
    found = looked(50, values=[], half_width=0.1)
    assert (found.looks[0].value, found.looks[0].ci_low, found.holds) == (None, None, False)


@pytest.mark.parametrize(("unpriced", "cost"), [(0, 6.0), (1, None)])
def test_what_is_saved(unpriced: int, cost: float | None) -> None:
    """Two requests an instance (a judge), half of them paid for in the last look."""
    known = Cost(value=2.0, source="you", priced_requests=200, unpriced_requests=unpriced)
    this_run, all_runs = (
        SpentByRole(
            Spent(
                requests=100,
                cached=kept,
                retries=0,
                prompt_tokens=1,
                completion_tokens=1,
                latency_p50_s=None,
                latency_p95_s=None,
                cost=known,
            ),
            {},
        )
        for kept in (100, 0)
    )
    usage = Usage(this_run, all_runs, 2, 1.0)
    found = looked(100, half_width=0.1, usage=usage)
    assert (found.saved_requests, found.saved_cost) == (600, cost)


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        ({"beats_floor": True}, ["score", "2 to 5 points", "interval"]),
        ({"differs_from": "/other"}, ["difference", "interval"]),
        ({"half_width": 0.06}, []),
    ],
)
def test_a_score_that_stopped_a_run_is_said_to_be_too_good(
    rule: dict[str, Any], facts: list[str]
) -> None:
    stop = plan({f"{STOP}.{name}": value for name, value in rule.items()}).evaluation.stop_when
    assert stop is not None
    told = bias_of_stopping(stop)
    assert (told is None) is (not facts)
    says(told or "", *facts)
