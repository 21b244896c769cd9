"""Tests of what looks come to, in their order: figures, alarms, who is blamed since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.monitor.course import PanelTests, Rules
from eval_factory.monitor.measurement import PanelMeasurement, Scale
from eval_factory.monitor.panel import Limit
from facts import naming

KEYS = [f"id{number:03}" for number in range(80)]
PLAIN = {
    "refused": 0.0,
    "unreadable": 0.0,
    "empty": 0.0,
    "failed": 0.0,
    "length": 5.0,
    "latency": 0.5,
    "stated": ["m"],
}
SHARE = Scale("exact_match", 0.0, 1.0, True)
MARKS = Scale("jury_score", 1.0, 5.0, True)
ERRORS = Scale("error_rate", 0.0, 1.0, False)


def limit(name: str, max_drop: float = 0.02) -> Limit:
    return Limit(name, name, None, max_drop)


def asked(
    right: float | dict[str, float],
    missing: Sequence[str] = (),
    scale: Scale = SHARE,
    **watched: Any,
) -> PanelMeasurement:
    """Values of each limit: a share of its instances is right, the first ones."""
    shares = right if isinstance(right, dict) else {"a": right}
    values = {
        name: {
            key: None if key in missing else float(number < share * len(KEYS))
            for number, key in enumerate(KEYS)
        }
        for name, share in shares.items()
    }
    return PanelMeasurement(values, {}, {**PLAIN, **watched}, dict.fromkeys(shares, scale))


def course(
    *limits: Limit,
    alarm_on: Sequence[str] = (),
    looks: int = 12,
    scale: Scale = SHARE,
    alpha: float = 0.05,
) -> PanelTests:
    of = limits or (limit("a"),)
    runs = [
        asked({one.name: share for one in of}, scale=scale)
        for share in (0.8, 0.8125, 0.8, 0.7875, 0.8)
    ]
    return PanelTests(Rules(alpha, looks, 0, tuple(alarm_on)), of, runs)


def test_the_baseline_is_said_in_the_metrics_unit() -> None:
    (said,) = course(limit("a", 0.4), scale=MARKS).baseline_entries()["limits"]
    assert said["baseline"] == pytest.approx(1 + 4 * 0.8)
    assert said["scale"] == [1.0, 5.0]
    assert 0.01 < said["sigma"] < 0.2
    (fewer,) = course(scale=ERRORS).baseline_entries()["limits"]
    assert fewer["baseline"] == pytest.approx(0.2)
    assert fewer["sigma"] == pytest.approx(said["sigma"] / 4)


def test_a_steady_model_is_in_control() -> None:
    found = course()
    looks = [found.add_look(number, asked(0.8)) for number in range(1, 13)]
    assert [one["alarm"] for one in looks] == [None] * 12
    assert max(one["e"] for one in looks) < 1


def test_a_drop_is_an_alarm_that_names_it_and_stays() -> None:
    found = course(limit("a"), limit("b"))
    for number in (2, 4, 5):  # looks that were not made have numbers too
        assert found.add_look(number, asked({"a": 0.8, "b": 0.8}))["alarm"] is None
    alarms = [found.add_look(number, asked({"a": 0.8, "b": 0.4}))["alarm"] for number in (7, 8, 9)]
    first = next(one for one in alarms if one is not None)
    assert (first["what"], first["names"], first["since"]) == ("harm", ["b"], 7)
    assert first["drops"] == {"b": pytest.approx(0.4)}
    again = found.add_look(10, asked({"a": 0.8, "b": 0.8}))["alarm"]
    assert (again["look"], again["since"]) == (first["look"], 7)
    assert again["drops"]["b"] < 0.4  # of all looks since


def test_less_than_the_limit_is_no_alarm() -> None:
    found = course(limit("a", 0.3))
    assert [found.add_look(number, asked(0.55))["alarm"] for number in range(1, 13)] == [None] * 12


def test_where_lower_is_better_more_is_worse() -> None:
    found = course(scale=ERRORS)
    look = [found.add_look(number, asked(0.4, scale=ERRORS)) for number in (1, 2, 3)][-1]
    assert look["limits"][0]["value"] == pytest.approx(0.6)
    assert look["alarm"]["drops"]["a"] == pytest.approx(0.4)


def test_answers_that_did_not_come_are_no_drop() -> None:
    found = course()
    look = [found.add_look(number, asked(0.8, missing=KEYS[:60])) for number in (1, 2, 3)][-1]
    assert look["alarm"] is None
    assert look["limits"][0]["missing"] == 60
    assert look["limits"][0]["value"] == pytest.approx(4 / 20)
    nothing = found.add_look(4, asked(0.8, missing=KEYS))
    assert nothing["limits"][0]["value"] is None
    assert nothing["alarm"] is None


def test_what_lacks_a_value_in_a_run_of_the_baseline_is_left_out() -> None:
    runs = [asked(0.8), asked(0.8, missing=KEYS[:5])]
    (said,) = PanelTests(Rules(0.05, 5, 0, ()), [limit("a")], runs).baseline_entries()["limits"]
    assert (said["instances"], said["left_out"]) == (75, 5)
    with pytest.raises(ConfigError, match=naming("a: 1 of")):
        PanelTests(Rules(0.05, 5, 0, ()), [limit("a")], [asked(0.8), asked(0.8, missing=KEYS[1:])])


def test_units_are_the_sources_that_instances_share() -> None:
    def run() -> PanelMeasurement:
        one = asked(0.8)
        return PanelMeasurement(
            one.limits, {"a": {key: key[:4] for key in KEYS}}, one.watched, one.scales
        )

    (said,) = PanelTests(Rules(0.05, 5, 0, ()), [limit("a")], [run(), run()]).baseline_entries()[
        "limits"
    ]
    assert said["units"] == 8


def test_a_change_for_the_better_is_an_alarm_only_where_it_is_asked_for() -> None:
    for alarm_on in ((), ("changed",)):
        found = course(alarm_on=alarm_on, looks=30)
        for number in range(1, 16):
            found.add_look(number, asked(0.8 + 0.0125 * (number % 3 - 1)))
        last = [found.add_look(number, asked(1.0)) for number in range(16, 31)][-1]
        assert last["changed"]["a"]["e"] > 40
        assert (last["alarm"] or {}).get("what") == (alarm_on[0] if alarm_on else None)
    assert last["alarm"]["since"] in range(14, 19)


def test_alpha_is_divided_only_where_something_else_is_an_alarm_too() -> None:
    assert Rules(0.05, 52, 0, ()).harm_alpha == 0.05
    both = Rules(0.05, 52, 0, ("changed", "length"))
    assert both.harm_alpha == 0.025
    assert both.other_alpha == pytest.approx(0.0125)
    assert both.harm_alpha + 2 * both.other_alpha == pytest.approx(0.05)


def test_a_watched_figure_is_an_alarm_where_it_is_asked_for() -> None:
    for alarm_on in ((), ("length",)):
        found = course(alarm_on=alarm_on, looks=40)
        for number in range(1, 21):
            found.add_look(number, asked(0.8, length=5.0 + number % 4 / 10))
        last = [found.add_look(number, asked(0.8, length=9.0)) for number in range(21, 41)][-1]
        assert (last["alarm"] or {}).get("names") == (["length"] if alarm_on else None)


def test_another_stated_model_is_an_alarm_at_once_where_it_is_asked_for() -> None:
    found = course(alarm_on=["stated"])
    assert found.add_look(1, asked(0.8))["alarm"] is None
    assert found.add_look(2, asked(0.8, stated=[]))["alarm"] is None
    alarm = found.add_look(3, asked(0.8, stated=["m", "n"]))["alarm"]
    assert (alarm["what"], alarm["since"], alarm["look"]) == ("stated", 3, 3)
    assert course().add_look(1, asked(0.8, stated=["n"]))["alarm"] is None


def test_the_same_looks_give_the_same_figures() -> None:
    first = course()
    second = course()
    for number in range(1, 6):
        assert first.add_look(number, asked(0.7)) == second.add_look(number, asked(0.7))


def test_a_baseline_of_before_goes_on_with_its_own_test() -> None:
    """Its ledger names no version of the statistics, and its sigma has no least variance of units."""
    line: dict[str, Any] = {"alpha": 0.05, "looks": 5, "seed": 0, "alarm_on": [], "repeats": []}
    of_sources = [replace(asked(0.8), clusters={"a": {key: key[:4] for key in KEYS}})] * 3
    before = PanelTests(Rules.of(line), [limit("a")], of_sources).baseline_entries()
    now = PanelTests(
        Rules.of({**line, "statistics": 2}), [limit("a")], of_sources
    ).baseline_entries()
    assert "statistics" not in before
    assert now["statistics"] == 2
    assert before["limits"][0]["sigma"] < now["limits"][0]["sigma"] / 2


def test_the_evidence_of_a_panel_is_the_mean_of_its_limits() -> None:
    found = course(limit("a"), limit("b"), limit("c"))
    for number in (1, 2):
        look = found.add_look(number, asked({"a": 0.5, "b": 0.8, "c": 0.8}))
    each = {one["name"]: one["e"] for one in look["limits"]}
    assert each["a"] > 10 * each["b"]
    assert look["e"] == pytest.approx(sum(each.values()) / 3)


def test_a_drop_that_is_allowed_is_a_share_of_the_scale() -> None:
    """Two points of the scale from 0 to 1 are 0.08 of that from 1 to 5."""
    shares = course(limit("a", 0.02)).add_look(1, asked(0.7))
    marks = course(limit("a", 0.08), scale=MARKS).add_look(1, asked(0.7, scale=MARKS))
    assert marks["limits"][0]["e"] == pytest.approx(shares["limits"][0]["e"])
    assert course(limit("a", 0.08)).add_look(1, asked(0.7))["e"] < shares["e"]


def test_an_alarm_says_between_which_looks_the_drop_began() -> None:
    found = course(looks=40)
    for number in range(1, 20):
        found.add_look(number, asked(0.8 - 0.0125 * (number % 2)))
    alarms = [found.add_look(number, asked(0.725))["alarm"] for number in range(20, 41)]
    alarm = next(one for one in alarms if one is not None)
    first, last = alarm["since_range"]
    assert first <= 20 <= last <= alarm["look"]
    assert first <= alarm["since"] <= last
    assert last - first < 15
    assert alarms[-1]["since_range"] == [first, last]


def test_looks_that_were_not_made_are_no_part_of_a_range() -> None:
    found = course()
    for number in (2, 4, 5):
        found.add_look(number, asked(0.8))
    look = found.add_look(7, asked(0.2))
    first, last = look["alarm"]["since_range"]
    assert first in (2, 4, 5, 7)
    assert last == 7
    assert look["limits"][0]["since_range"] == [first, last]


def test_answers_that_are_others_than_in_the_first_run_are_counted() -> None:
    def run(*texts: str) -> PanelMeasurement:
        hashes = {key: text for key, text in zip(KEYS, texts, strict=False) if text}
        return replace(asked(0.8), answers={"a": hashes})

    found = PanelTests(
        Rules(0.05, 5, 0, ()), [limit("a")], [run("x", "y", "z"), run("u", "v", "w")]
    )
    look = found.add_look(1, run("x", "v", "w", "u"))
    assert look["differ"] == {"answers": 2, "of": 3}
    assert found.add_look(2, run("x", "", "z"))["differ"] == {"answers": 0, "of": 2}


def test_a_ledger_of_before_goes_on_with_its_own_figures() -> None:
    line: dict[str, Any] = {"alpha": 0.05, "looks": 5, "seed": 0, "alarm_on": [], "repeats": []}
    before = PanelTests(Rules.of(line), [limit("a")], [asked(0.8)] * 2).add_look(1, asked(0.2))
    now = PanelTests(Rules.of({**line, "figures_version": 2}), [limit("a")], [asked(0.8)] * 2)
    assert "differ" not in before
    assert "since_range" not in before["limits"][0] | before["alarm"]
    assert now.add_look(1, asked(0.2)).keys() - before.keys() == {"differ"}


def test_every_limit_that_is_broken_is_named() -> None:
    found = course(limit("a"), limit("b"), limit("c"))
    alarms = []
    for number in range(1, 6):
        look = found.add_look(number, asked({"a": 0.3, "b": 0.4, "c": 0.8}))
        alarms.append(look["alarm"])
    first = next(alarm for alarm in alarms if alarm is not None)
    assert first["names"] == ["a", "b"]


def test_a_drop_is_said_in_the_metrics_unit() -> None:
    found = course(limit("a", 0.08), scale=MARKS)
    alarms = [found.add_look(number, asked(0.4, scale=MARKS))["alarm"] for number in (1, 2, 3)]
    assert alarms[-1]["drops"] == {"a": pytest.approx(4 * 0.4)}


def test_of_several_limits_a_change_takes_more_evidence() -> None:
    """Half of alpha is for changes: of one limit an alarm takes 40, of two 80."""
    found = course(limit("a"), limit("b"), alarm_on=["changed"])
    dates = {"since": 3, "since_range": [2, 4]}
    steady = {"e": 1.0, "since": None, "since_range": None}
    assert found._change_alarm(5, {"a": {"e": 79.0, **dates}, "b": steady}) is None
    alarm = found._change_alarm(5, {"a": {"e": 81.0, **dates}, "b": steady})
    assert alarm == {"what": "changed", "look": 5, "names": ["a"], **dates}
