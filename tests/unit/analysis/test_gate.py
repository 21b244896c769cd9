"""A policy held against results: each limit is kept, broken, or the sample is too small to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.gate import BenchmarkOutcome, GateResult, evaluate_policy
from eval_factory.analysis.gate_groups import difference_in_group
from eval_factory.analysis.gate_policy import LIMITS, load_policy
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import (
    Floor,
    JudgeCounts,
    Judgements,
    JuryReport,
    PairAgreement,
    RubricReport,
    RubricVotes,
    Score,
    Stats,
)
from eval_factory.core.rundir import RunDir
from eval_factory.report.reader import load_result
from facts import naming, says
from stored_results import PROVENANCE, instance, result, right_or_wrong, written


def held(
    tmp_path: Path, benchmarks: Mapping[str, Any], new: Sequence[Path], old: Sequence[Path] = ()
) -> GateResult:
    path = tmp_path / "policy.yml"
    path.write_text(yaml.safe_dump({"version": 1, "benchmarks": dict(benchmarks)}, sort_keys=False))
    return evaluate_policy(load_policy(path), new, old)


def only(found: GateResult) -> BenchmarkOutcome:
    (one,) = found.benchmarks
    return one


def pairs(
    tmp_path: Path, both: int, lost: int, won: int, neither: int = 0
) -> tuple[list[Path], list[Path]]:
    """Candidate and baseline, right on so many instances both, the baseline alone, the candidate alone."""
    new = "1" * both + "0" * lost + "1" * won + "0" * neither
    old = "1" * (both + lost) + "0" * (won + neither)
    return [right_or_wrong(tmp_path / "new", new)], [right_or_wrong(tmp_path / "old", old)]


@pytest.mark.parametrize(
    ("lost", "won", "outcome", "code"),
    [(10, 10, "pass", 0), (40, 4, "fail", 1), (20, 8, "inconclusive", 1)],
)
def test_a_drop_is_held_by_the_paired_interval(
    tmp_path: Path, lost: int, won: int, outcome: str, code: int
) -> None:
    """20 balanced discordant pairs among 200, and a margin of ten points: not worse by more."""
    sides = pairs(tmp_path, 200 - lost - won, lost, won)
    found = held(tmp_path, {"pubmed_qa": {"max_drop": 0.1}}, *sides)
    assert (found.outcome, found.exit_code) == (outcome, code)
    (check,) = only(found).checks
    assert (check.limit, check.outcome, check.allowed, check.group) == (
        "max_drop",
        outcome,
        0.1,
        None,
    )
    assert check.observed == pytest.approx((won - lost) / 200)
    assert check.ci_low is not None
    assert check.ci_high is not None
    assert check.ci_low < (won - lost) / 200 < check.ci_high
    assert ("shows differences of" in check.message) is (outcome == "inconclusive")


@pytest.mark.parametrize(
    ("limit", "guard", "outcome", "allowed", "said"),
    [
        (0.5, None, "pass", 0.3, ", 0.3 of the baseline's 0.6"),
        (0.01, 0.61, "fail", 0.006, ", 0.006 of the baseline's 0.6"),
        (
            0.01,
            0.6,
            "pass",
            None,
            "does not apply: the baseline's score 0.6 is not below relative_guard",
        ),
        (
            0.01,
            0.55,
            "pass",
            None,
            "does not apply: the baseline's score 0.6 is not below relative_guard",
        ),
    ],
)
def test_a_relative_drop_is_a_share_of_the_baselines_score_and_counts_only_below_its_guard(
    tmp_path: Path,
    limit: float,
    guard: float | None,
    outcome: str,
    allowed: float | None,
    said: str,
) -> None:
    sides = pairs(tmp_path, 200, 40, 0, 160)  # the baseline has 240 of 400, the candidate 200
    limits = {"max_relative_drop": limit, "relative_guard_below": guard}
    (check,) = only(held(tmp_path, {"pubmed_qa": limits}, *sides)).checks
    assert (check.limit, check.outcome) == ("max_relative_drop", outcome)
    assert check.allowed == (allowed and pytest.approx(allowed))
    assert said in check.message


def test_where_lower_is_better_a_rise_is_the_drop(tmp_path: Path) -> None:
    sides = pairs(tmp_path, 300, 5, 95)
    limits = {"max_drop": 0.05}
    assert (
        held(tmp_path, {"pubmed_qa": {**limits, "direction": "lower_is_better"}}, *sides).outcome
        == "fail"
    )
    assert held(tmp_path, {"pubmed_qa": limits}, *sides).outcome == "pass"


def test_each_limit_is_checked(tmp_path: Path) -> None:
    limits = dict.fromkeys(LIMITS, 0.5)
    checks = only(held(tmp_path, {"pubmed_qa": limits}, *pairs(tmp_path, 20, 2, 2))).checks
    assert sorted(check.limit for check in checks) == sorted(LIMITS)


@pytest.mark.parametrize("value", ["1", "0"])
def test_the_baselines_own_answers_pass_every_limit_of_a_drop(tmp_path: Path, value: str) -> None:
    """A copy of 30 instances is within no limit below 0.11 by its interval alone."""
    sides = (
        [right_or_wrong(tmp_path / "new", value * 30)],
        [right_or_wrong(tmp_path / "old", value * 30)],
    )
    for limits in (
        {"max_drop": 0},
        {"max_drop": 0.01},
        {"max_relative_drop": 0},
        {"max_relative_drop": 0.01},
    ):
        (check,) = only(held(tmp_path, {"pubmed_qa": limits}, *sides)).checks
        assert check.outcome == "pass"
        says(check.message, "30 pairs", "baseline's own answers", "not worse")


@pytest.mark.parametrize("changed", ["answers", "model"])
@pytest.mark.parametrize("limit", [0, 0.02])
def test_equal_scores_of_a_few_other_answers_show_no_small_margin(
    tmp_path: Path, changed: str, limit: float
) -> None:
    answers: dict[str, Any] = {"completion": "b"} if changed == "answers" else {}
    records = [instance(f"q{number}", 1.0, **answers) for number in range(30)]
    other = replace(PROVENANCE, target="org/other" if changed == "model" else PROVENANCE.target)
    sides = (
        [written(tmp_path / "new", result(records, provenance=other))],
        [right_or_wrong(tmp_path / "old", "1" * 30)],
    )
    assert held(tmp_path, {"pubmed_qa": {"max_drop": limit}}, *sides).outcome == "inconclusive"


@pytest.mark.parametrize("asking", [{"trial": 1}, {"perturbation": "typos"}])
def test_another_answer_to_another_asking_is_a_change(
    tmp_path: Path, asking: dict[str, Any]
) -> None:
    sides = []
    for name in ("new", "old"):
        records = []
        for number in range(30):
            records.append(instance(f"q{number}", 1.0, completion=name, **asking))
            records.append(instance(f"q{number}", 1.0))
        sides.append([written(tmp_path / name, result(records))])
    assert held(tmp_path, {"pubmed_qa": {"max_drop": 0}}, *sides).outcome == "inconclusive"


@given(
    counts=st.tuples(*[st.integers(0, 12)] * 4).filter(any),
    limits=st.lists(st.one_of(st.just(0.0), st.floats(0, 1)), min_size=2, max_size=5),
    kind=st.sampled_from(["max_drop", "max_relative_drop"]),
    direction=st.sampled_from(["higher_is_better", "lower_is_better"]),
)
@example(counts=(30, 0, 0, 0), limits=[0.0, 0.01], kind="max_drop", direction="higher_is_better")
@settings(max_examples=12, deadline=None)
def test_a_laxer_limit_is_never_harder_to_pass(
    tmp_path_factory: pytest.TempPathFactory,
    counts: tuple[int, ...],
    limits: list[float],
    kind: str,
    direction: str,
) -> None:
    tmp_path = tmp_path_factory.mktemp("gate")
    sides = pairs(tmp_path, *counts)
    found = [
        held(tmp_path, {"pubmed_qa": {kind: one, "direction": direction}}, *sides)
        for one in sorted(limits)
    ]
    ranks = [["fail", "inconclusive", "pass"].index(only(one).checks[0].outcome) for one in found]
    assert ranks == sorted(ranks)


def test_a_share_of_a_negative_baseline_is_a_drop_of_that_size(tmp_path: Path) -> None:
    """The baseline has -0.5 on 200 instances, the candidate 0.05 less on half of them: a drop of 5 % of the baseline."""

    def side(name: str, drop: float) -> list[Path]:
        records = [instance(f"q{at}", -0.5 - (drop if at % 2 else 0)) for at in range(200)]
        return [written(tmp_path / name, result(records))]

    sides = side("new", 0.05), side("old", 0)
    for limit, outcome in ((0.04, "fail"), (0.05, "inconclusive"), (0.06, "pass")):
        (check,) = only(held(tmp_path, {"pubmed_qa": {"max_relative_drop": limit}}, *sides)).checks
        assert check.outcome == outcome
        assert check.allowed == pytest.approx(limit / 2)
    for guard, outcome in (
        (-0.4, "fail"),
        (-0.5, "pass"),
        (-0.6, "pass"),
    ):  # it counts below its guard alone
        limits = {"max_relative_drop": 0.04, "relative_guard_below": guard}
        assert only(held(tmp_path, {"pubmed_qa": limits}, *sides)).checks[0].outcome == outcome


def scored(folder: Path, value: float, interval: tuple[float, float] | None) -> Path:
    low, high = interval or (None, None)
    score = Score(
        value,
        Stats(40, value, stddev=None, stderr=None, ci_low=low, ci_high=high, ci_method=None),
        "exact_match",
        "test",
        None,
    )
    return written(folder, replace(result([instance("q0", 1.0)]), scores={"exact_match": score}))


@pytest.mark.parametrize(
    ("value", "interval", "outcome"),
    [
        (0.7, (0.6, 0.8), "pass"),
        (0.7, (0.599, 0.8), "inconclusive"),
        (0.5, (0.4, 0.6), "inconclusive"),
        (0.5, (0.4, 0.599), "fail"),
        (0.7, None, "inconclusive"),
        (0.6, None, "inconclusive"),
        (0.59, None, "fail"),
    ],
)
def test_a_least_score_is_held_by_the_scores_interval(
    tmp_path: Path, value: float, interval: tuple[float, float] | None, outcome: str
) -> None:
    found = held(tmp_path, {"pubmed_qa": {"min": 0.6}}, [scored(tmp_path / "new", value, interval)])
    (check,) = only(found).checks
    assert (check.limit, check.outcome, found.outcome) == ("min", outcome, outcome)
    assert (check.observed, check.allowed) == (value, 0.6)


@pytest.mark.parametrize(
    ("own", "policys", "outcome"),
    [
        (None, None, "pass"),
        (True, None, "pass"),
        (False, None, "fail"),
        (False, "higher_is_better", "pass"),
    ],
)
def test_no_least_score_is_held_of_a_metric_where_lower_is_better(
    tmp_path: Path, own: bool | None, policys: str | None, outcome: str
) -> None:
    """Of all instances and of a group alike; what the policy says of the direction is stronger than the metric's own."""
    score = Score(
        0.7,
        Stats(40, 0.7, stddev=None, stderr=None, ci_low=0.65, ci_high=0.8, ci_method=None),
        "exact_match",
        "test",
        None,
        higher_is_better=own,
    )
    made = result([instance("q0", 1.0)], groups={"topic": {"a": {"exact_match": score}}})
    folder = written(tmp_path / "new", replace(made, scores={"exact_match": score}))
    limits = {
        "min": 0.6,
        "groups": {"topic": {"a": {"min": 0.6}}},
        **({"direction": policys} if policys else {}),
    }
    whole, group = only(held(tmp_path, {"pubmed_qa": limits}, [folder])).checks
    assert (whole.outcome, group.outcome) == (outcome, outcome)
    assert ("min has no meaning" in whole.message) is (outcome == "fail")


def test_a_metrics_own_direction_decides_what_a_drop_is(tmp_path: Path) -> None:
    sides = []
    for name, value in (("new", 0.4), ("old", 0.1)):
        score = Score(
            value,
            Stats.without_interval(40, value),
            "error_rate",
            "test",
            None,
            False,
            (0, 1),
        )
        records = [
            instance(f"q{number}", float(number < 40 * value), "error_rate") for number in range(40)
        ]
        made = result(records, scores=("error_rate",))
        sides.append([written(tmp_path / name, replace(made, scores={"error_rate": score}))])
    (check,) = only(held(tmp_path, {"pubmed_qa": {"max_drop": 0.05}}, *sides)).checks
    assert check.outcome == "fail"
    assert check.observed == pytest.approx(0.3)


LOCKED = datetime(2026, 11, 22, 6, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("began", "runs", "note"),
    [
        (
            "2026-11-22T06:29:59Z",
            1,
            "the run started (2026-11-22T06:29:59Z) before the policy was locked (2026-11-22T06:30",
        ),
        ("2026-11-22T06:30:00Z", 1, None),
        (
            "2026-11-22T06:30:00Z",
            2,
            "2 runs made this result; only the last is known to have started after the lock",
        ),
        (None, 1, "the result does not say when its run started"),
    ],
)
def test_a_run_begun_before_the_lock_is_noted(
    tmp_path: Path, began: str | None, runs: int, note: str | None
) -> None:
    made = result([instance("q0", 1.0)], provenance=replace(PROVENANCE, started_at=began))
    folder = written(tmp_path / "new", replace(made, usage=replace(made.usage, runs=runs)))
    other = right_or_wrong(tmp_path / "other", "11", task="medec")  # not in the policy: no note
    path = tmp_path / "policy.yml"
    path.write_text("version: 1\nbenchmarks: {pubmed_qa: {min: 0.1}, head_qa: {min: 0.1}}")
    policy = load_policy(path)
    found = evaluate_policy(replace(policy, locked_at=LOCKED), [folder, other])
    assert found.locked_at == LOCKED
    assert [one.startswith(f"pubmed_qa: {note}") for one in found.notes] == ([True] if note else [])
    assert evaluate_policy(policy, [folder, other]).notes == ()


def test_a_candidate_that_is_its_own_baseline_is_a_mistake(tmp_path: Path) -> None:
    new, old = pairs(tmp_path, 20, 0, 0)
    (tmp_path / "link").symlink_to(new[0])
    with pytest.raises(
        ConfigError, match=naming("is both the candidate", "pubmed_qa", "own folder")
    ):
        held(tmp_path, {"pubmed_qa": {"max_drop": 0.5}}, new, [tmp_path / "link"])
    assert held(tmp_path, {"pubmed_qa": {"max_drop": 0.5}}, new, old).outcome == "pass"


@pytest.mark.parametrize(
    ("interval", "limits", "counted", "outcome", "code"),
    [
        ((0.5, 0.8), {}, "inconclusive", "inconclusive", 1),
        ((0.5, 0.8), {"on_inconclusive": "pass"}, "pass", "pass", 0),
        ((0.5, 0.8), {"tier": "advisory"}, "pass", "pass", 0),
        ((0.05, 0.2), {"tier": "critical", "on_inconclusive": "pass"}, "fail", "fail", 1),
        ((0.05, 0.2), {"tier": "supporting", "on_inconclusive": "pass"}, "fail", "fail", 1),
        ((0.05, 0.2), {"tier": "advisory"}, "pass", "pass", 0),
    ],
)
def test_what_a_failure_and_what_is_inconclusive_counts(
    tmp_path: Path,
    interval: tuple[float, float],
    limits: dict[str, str],
    counted: str,
    outcome: str,
    code: int,
) -> None:
    candidate = scored(tmp_path / "new", sum(interval) / 2, interval)
    found = held(tmp_path, {"pubmed_qa": {"min": 0.6, **limits}}, [candidate])
    assert only(found).outcome == ("fail" if interval[1] < 0.6 else "inconclusive")
    assert (only(found).counted_as, found.outcome, found.exit_code) == (counted, outcome, code)


@pytest.mark.parametrize(
    ("changes", "limits", "words"),
    [
        ({"reportable": False}, {"min": 0.1}, "is not reportable: too few instances have a score"),
        ({}, {"min": 0.1, "metric": "f1"}, "the candidate has no score f1; it has exact_match"),
        (
            {},
            {"max_drop": 0.1, "min": 0.1, "groups": {"topic": {"a": {"min": 0.1}}}},
            "has no groups by topic",
        ),
        (
            {"values": "1111"},
            {"max_drop": 0.5},
            "baseline (A) and candidate (B) cannot be compared: A and B asked different instances: 1",
        ),
    ],
)
def test_what_shows_nothing_fails_even_where_inconclusive_passes(
    tmp_path: Path, changes: dict[str, Any], limits: dict[str, Any], words: str
) -> None:
    new = [right_or_wrong(tmp_path / "new", **{"values": "11110", **changes})]
    old = [right_or_wrong(tmp_path / "old", "11110")]
    found = held(tmp_path, {"pubmed_qa": {**limits, "on_inconclusive": "pass"}}, new, old)
    assert found.outcome == "fail"
    assert words in only(found).checks[-1].message


def test_a_missing_candidate_or_baseline_fails(tmp_path: Path) -> None:
    new, old = pairs(tmp_path, 20, 0, 0)
    other = [right_or_wrong(tmp_path / "other", "1111", task="medec")]
    limits = {"max_drop": 0.5, "on_inconclusive": "pass"}
    found = held(tmp_path, {"pubmed_qa": limits}, new, other)
    assert found.outcome == "fail"
    says(only(found).checks[0].message, "no baseline")
    found = held(tmp_path, {"pubmed_qa": limits}, other, old)
    assert found.outcome == "fail"
    says(only(found).checks[0].message, "no candidate")
    assert found.not_in_policy == ("medec",)


def test_no_baseline_for_a_drop_and_two_results_of_one_task_are_mistakes(tmp_path: Path) -> None:
    new, old = pairs(tmp_path, 20, 0, 0)
    with pytest.raises(ConfigError, match=naming("a drop", "--baseline DIR")):
        held(tmp_path, {"pubmed_qa": {"max_drop": 0.5}}, new)
    with pytest.raises(ConfigError, match=naming("two candidates", "pubmed_qa")):
        held(tmp_path, {"pubmed_qa": {"min": 0.5}}, [*new, *old])
    assert held(tmp_path, {"pubmed_qa": {"min": 0.1}}, [*new, *new]).outcome == "inconclusive"


def test_a_result_that_was_moved_aside_is_no_candidate(tmp_path: Path) -> None:
    """A run of another configuration moves it there, and may end before it has a result of its own."""
    folder = right_or_wrong(tmp_path / "new", "1" * 40)
    RunDir(folder).archive([RunDir(folder).evaluation_config])
    (aside,) = folder.glob("*/evaluation_config.yaml")
    assert "set-aside" in aside.parent.name
    RunDir(folder).marker.write_text("")
    with pytest.raises(PrerequisiteError, match="there is no result"):
        held(tmp_path, {"pubmed_qa": {"min": 0.1}}, [folder])


def grouped(folder: Path, values: Mapping[str, str]) -> Path:
    records = []
    for topic, answers in values.items():
        for number, value in enumerate(answers):
            categories = {"topic": topic}
            records.append(instance(f"{topic}{number}", float(value), categories=categories))
    score = Score(
        0.5,
        Stats(9, 0.5, stddev=None, stderr=None, ci_low=0.4, ci_high=0.6, ci_method=None),
        "exact_match",
        "test",
        None,
    )
    groups = {"topic": {topic: {"exact_match": score} for topic in values}}
    return written(folder, result(records, groups=groups))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"a": {"min": 0.3}}, [("topic=a", "min", "pass")]),
        ({"a": {"min": 0.7}}, [("topic=a", "min", "fail")]),
        (
            {"*": {"max_drop": 0.2}},
            [("topic=a", "max_drop", "pass"), ("topic=b", "max_drop", "fail")],
        ),
        (
            {"b": {"max_drop": 0.9}, "*": {"max_drop": 0.2}},
            [("topic=b", "max_drop", "pass"), ("topic=a", "max_drop", "pass")],
        ),
        ({"c": {"max_drop": 0.2}}, [("topic=c", "result", "fail")]),
    ],
)
def test_groups_have_limits_of_their_own(
    tmp_path: Path, limits: dict[str, Any], expected: list[Any]
) -> None:
    old = [grouped(tmp_path / "old", {"a": "1" * 60, "b": "1" * 60})]
    new = [grouped(tmp_path / "new", {"a": "1" * 60, "b": "0" * 40 + "1" * 20})]
    found = held(tmp_path, {"pubmed_qa": {"groups": {"topic": limits}}}, new, old)
    assert [(check.group, check.limit, check.outcome) for check in only(found).checks] == expected


@pytest.mark.parametrize(
    ("changes", "group", "n", "difference"),
    [
        ({"categories": {"topic": "heart"}}, ("topic", "heart"), 5, -0.6),
        ({"categories": {"topic": 7}}, ("topic", "7"), 5, -0.6),
        ({"sub_split": "MS"}, ("sub_split", "MS"), 5, -0.6),
        ({"categories": {"topic": "heart"}}, ("topic", "lung"), 0, None),
        ({"categories": {"topic": "heart"}}, ("other", "heart"), 0, None),
        ({"categories": {"topic": "heart"}}, ("sub_split", "None"), 0, None),
    ],
)
def test_only_the_groups_instances_are_paired(
    tmp_path: Path,
    changes: dict[str, Any],
    group: tuple[str, str],
    n: int,
    difference: float | None,
) -> None:
    """Ten instances, of which `changes` hold for the first five; b is wrong on the first three."""
    a, b = (
        load_result(
            written(
                tmp_path / name,
                result(
                    [
                        instance(f"q{at}", float(at >= wrong), **(changes if at < 5 else {}))
                        for at in range(10)
                    ]
                ),
            )
        )
        for name, wrong in (("a", 0), ("b", 3))
    )
    (comparison,) = compare([a.folder, b.folder]).comparisons
    assert comparison.paired.difference == pytest.approx(-0.3)
    found = difference_in_group(a, b, comparison, group)
    assert (found.n if found else 0) == n
    assert (found and found.difference) == (difference and pytest.approx(difference))


@pytest.mark.parametrize(
    ("least", "outcomes"),
    [(0.8, ["pass", "pass", "pass"]), (0.9, ["fail", "pass", "fail"])],
)
def test_coverage_is_held_of_all_and_of_groups(
    tmp_path: Path, least: float, outcomes: list[str]
) -> None:
    """Of topic b 16 of 20 answers came and were judged."""
    folder = grouped(tmp_path / "new", {"a": "1" * 20, "b": "1" * 20})
    made = load_result(folder).result
    records = list(made.instances)
    for at in range(20, 23):
        records[at] = replace(records[at], error="HTTP 500", metrics={}, completion=None)
    records[23] = replace(records[23], unjudged=True, metrics={})
    counts = replace(made.validity.instances, requested=40, scored=32)
    validity = replace(made.validity, instances=counts)
    new = written(tmp_path / "gaps", replace(made, instances=records, validity=validity))
    limits = {"min_coverage": least}
    policy = {"pubmed_qa": {**limits, "groups": {"topic": {"*": limits}}}}
    checks = only(held(tmp_path, policy, [new])).checks
    assert [check.observed for check in checks] == [0.8, 1.0, 0.8]
    assert [check.outcome for check in checks] == outcomes
    assert {check.limit for check in checks} == {"min_coverage"}


BY_CHANCE = {"a/b": PairAgreement(48, 0.604, 0.214)}
"""Of two judges who decide by the toss of a coin."""


def on_scale(folder: Path, answers: str, **validity: Any) -> Path:
    """A result of right and wrong answers whose score says that it goes from 0 to 1."""
    stored = load_result(right_or_wrong(folder / "first", answers)).result
    scores = {}
    for name, score in stored.scores.items():
        stats = replace(score.stats, ci_low=score.value - 0.1, ci_high=score.value + 0.1)
        scores[name] = replace(score, scale=(0.0, 1.0), stats=stats)
    made = replace(stored, scores=scores, validity=replace(stored.validity, **validity))
    return written(folder / "second", made)


@pytest.mark.parametrize(
    ("limits", "outcome", "noted"),
    [
        ({"min": 0.0}, "inconclusive", "no score could break min"),
        ({"min": -1.0}, "inconclusive", "no score could break min"),
        ({"max_drop": 0.8}, "inconclusive", "no score could break max_drop"),
        ({"max_relative_drop": 1.0}, "inconclusive", "no score could break max_relative_drop"),
        ({"min": 0.0, "min_coverage": 0.5}, "pass", "no score could break min"),
        ({"min": 0.0, "on_inconclusive": "pass"}, "pass", "no score could break min"),
        ({"min": 0.1, "tier": "advisory"}, "pass", "every benchmark is advisory"),
        ({"min": 0.1}, "pass", None),
        ({"max_drop": 0.79}, "pass", None),
    ],
)
def test_limits_that_no_score_can_break_show_nothing(
    tmp_path: Path, limits: dict[str, Any], outcome: str, noted: str | None
) -> None:
    """The baseline has 0.8, and the worst score is 0."""
    new = on_scale(tmp_path / "new", "1" * 31 + "0" * 9)
    old = on_scale(tmp_path / "old", "1" * 32 + "0" * 8)
    found = held(tmp_path, {"pubmed_qa": limits}, [new], [old])
    assert found.outcome == outcome
    assert found.exit_code == (outcome != "pass")
    assert [noted in note for note in found.notes if noted] == [True] * bool(noted)
    assert bool(found.notes) is bool(noted)


def test_what_speaks_against_a_score_is_noted_though_it_keeps_every_limit(tmp_path: Path) -> None:
    floor = Floor("always A", 0.5, 40, {"always A": 0.5})
    new = on_scale(tmp_path / "new", "10" * 20, floors={"exact_match": floor})
    old = on_scale(tmp_path / "old", "110" * 13 + "1")
    limits = {"min": 0.1, "max_drop": 0.5}
    found = held(tmp_path, {"pubmed_qa": limits}, [new], [old])
    assert found.outcome == "pass"
    (note,) = found.notes
    says(note, "pubmed_qa", "the candidate's score", "no better than")


@pytest.mark.parametrize(
    ("jury", "rubric", "outcome"),
    [
        (JuryReport({}, 0.7, {}, {}, agreement_p=0.001), None, "pass"),
        (JuryReport({}, 0.7, {}, {}, agreement_p=0.2), None, "fail"),
        (JuryReport({}, 0.5, {}, {}, agreement_p=0.001), None, "fail"),
        (JuryReport({}, 0.7, {}, {}), None, "pass"),  # of an earlier version: nobody knows
        (JuryReport({}, None, {}, {}), None, "fail"),
        (None, RubricReport(RubricVotes(9, 9, 0, 0), {}, {}, 0.7), "pass"),
        (None, RubricReport(RubricVotes(9, 9, 0, 0), {}, {}, 0.7, constant=("gpt",)), "fail"),
        (JuryReport({}, 0.7, {}, {}, agreement_p=0.001, constant=("gpt",)), None, "fail"),
        (None, RubricReport(RubricVotes(9, 9, 0, 0), {}, BY_CHANCE, 0.7), "fail"),
        (None, None, "fail"),
    ],
)
def test_the_agreement_of_judges_is_held(
    tmp_path: Path, jury: JuryReport | None, rubric: RubricReport | None, outcome: str
) -> None:
    made = result([instance("q0", 1.0)])
    validity = replace(made.validity, jury=jury, rubric=rubric)
    new = written(tmp_path / "new", replace(made, validity=validity))
    policy = {"pubmed_qa": {"min_judge_agreement": 0.7}}
    (check,) = only(held(tmp_path, policy, [new])).checks
    assert (check.limit, check.outcome) == ("min_judge_agreement", outcome)


def test_coverage_of_a_judged_group_is_of_its_judgements(tmp_path: Path) -> None:
    """Two judges: one mark of six is missing; an empty answer needs none, and has its marks."""
    of_heart: dict[str, Any] = {"categories": {"topic": "heart"}}
    records = [
        instance("q0", 4.0, judges={"a": 4.0, "b": 4.0}, **of_heart),
        instance("q1", 4.0, judges={"a": 4.0}, **of_heart),
        instance("q2", 1.0, **{**of_heart, "completion": " "}),
        instance("q3", 1.0, judges={"a": 1.0, "b": 1.0}, **{**of_heart, "completion": " "}),
    ]
    score = Score(
        0.5,
        Stats(9, 0.5, stddev=None, stderr=None, ci_low=0.4, ci_high=0.6, ci_method=None),
        "exact_match",
        "test",
        None,
    )
    made = result(records, groups={"topic": {"heart": {"exact_match": score}}})
    judges = {"a": JudgeCounts(2, 2, 0), "b": JudgeCounts(2, 1, 1)}
    validity = replace(made.validity, judges=judges, judgements=Judgements(4, 3))
    new = written(tmp_path / "new", replace(made, validity=validity))
    policy = {"pubmed_qa": {"groups": {"topic": {"heart": {"min_coverage": 0.9}}}}}
    (check,) = only(held(tmp_path, policy, [new])).checks
    assert (check.observed, check.outcome) == (5 / 6, "fail")


def test_nothing_is_covered_of_a_group_without_an_instance(tmp_path: Path) -> None:
    score = Score(
        1.0,
        Stats(9, 1.0, stddev=None, stderr=None, ci_low=0.4, ci_high=1.0, ci_method=None),
        "exact_match",
        "test",
        None,
    )
    made = result([instance("q0", 1.0)], groups={"topic": {"heart": {"exact_match": score}}})
    policy = {"pubmed_qa": {"groups": {"topic": {"heart": {"min_coverage": 0.5}}}}}
    (check,) = only(held(tmp_path, policy, [written(tmp_path / "new", made)])).checks
    assert (check.observed, check.outcome) == (0.0, "fail")


def test_coverage_of_a_rubrics_group_is_of_its_decisions(tmp_path: Path) -> None:
    """Two judges and two criteria: one decision of four is missing."""
    decided = {"criteria_met": True, "explanation": "so"}
    criterion = {"criterion": "says when", "points": 1, "tags": [], "verdict": "met"}
    criteria = [
        {**criterion, "judges": {"a": decided, "b": decided}},
        {**criterion, "judges": {"a": decided, "b": {"error": "no verdict"}}},
    ]
    record = instance("q0", 1.0, criteria=criteria, categories={"topic": "heart"})
    score = Score(
        1.0,
        Stats(9, 1.0, stddev=None, stderr=None, ci_low=0.4, ci_high=1.0, ci_method=None),
        "exact_match",
        "test",
        None,
    )
    made = result([record], groups={"topic": {"heart": {"exact_match": score}}})
    judges = {"a": JudgeCounts(2, 2, 0), "b": JudgeCounts(2, 1, 1)}
    validity = replace(made.validity, judges=judges, judgements=Judgements(4, 3))
    new = written(tmp_path / "new", replace(made, validity=validity))
    policy = {"pubmed_qa": {"groups": {"topic": {"heart": {"min_coverage": 0.75}}}}}
    (check,) = only(held(tmp_path, policy, [new])).checks
    assert (check.observed, check.outcome) == (0.75, "pass")


@pytest.mark.parametrize(("reader", "outcome"), [(1, "fail"), (2, "pass")])
def test_results_that_two_rules_read_are_not_held_against_each_other(
    tmp_path: Path, reader: int, outcome: str
) -> None:
    """Without the answers neither can be read again: a drop of the metric is not shown."""
    metric = "exact_match.lenient"
    folders = []
    for name, version in (("new", 2), ("old", reader)):
        records = [instance(f"q{number}", 1.0, metric) for number in range(40)]
        provenance = replace(PROVENANCE, reader_version=version)
        made = result(records, (metric,), provenance=provenance)
        folders.append(written(tmp_path / name, made))
    found = held(tmp_path, {"pubmed_qa": {"max_drop": 0.1}}, folders[:1], folders[1:])
    (check,) = only(found).checks
    assert (found.outcome, check.outcome) == (outcome, outcome)
    assert ("versions 1 and 2" in check.message) is (reader == 1)
