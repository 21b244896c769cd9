"""Tests of what judges say of criteria, and the scores made of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import draft, plan
from eval_factory.core.results import JudgeCounts, Judgements, PairAgreement, Score, Stats
from eval_factory.helm import names, output
from eval_factory.helm.command import deployment_of
from eval_factory.scoring import rubric
from eval_factory.scoring.groups import Groups
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.reportable import reasons_against_reporting
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.rubric_case import Criterion
from facts import says
from known import near, there

GOOD = Criterion("good", 8, ("axis:accuracy", "urgent"))
SMALL = Criterion("small", 2, ("axis:completeness",))
BAD = Criterion("bad", -5, ("axis:accuracy",))
CRITERIA = (GOOD, SMALL, BAD)
METRIC = MetricValues("rubric_score", "rubric_score", None)


def key(name: str) -> InstanceKey:
    return name, 0, None


def case(*votes: Mapping[str, bool | None]) -> rubric.JudgedCase:
    return rubric.JudgedCase(CRITERIA, votes)


def by_one(*met: bool | None) -> rubric.JudgedCase:
    return case(*({"a": one} for one in met))


FAILED = rubric.JudgedCase(CRITERIA, None)


def test_the_score_is_the_majoritys_and_each_judge_has_its_own() -> None:
    found = case(
        {"a": True, "b": True, "c": False},
        {"a": False, "b": True, "c": None},
        {"a": False, "b": None, "c": False},
    )
    assert (found.shares(), found.score()) == ([1.0, 0.5, 0.0], near(0.9))
    assert [found.score_by(judge) for judge in "abcd"] == [near(0.8), None, None, None]
    assert found.bounds() == (near(0.8), near(1.0)), "c may yet decide the second; not the third"


def score(value: float, low: float | None, high: float | None) -> Stats:
    return Stats(3, value, stddev=0.1, stderr=0.1, ci_low=low, ci_high=high, ci_method="x")


def test_a_benchmarks_score_is_clipped() -> None:
    for (value, *ends), (clipped, *expected) in (
        ((-0.2, -0.5, 0.1), (0.0, 0.0, 0.1)),
        ((0.9, 0.8, 1.2), (0.9, 0.8, 1.0)),
        ((0.5, None, None), (0.5, None, None)),
    ):
        found = rubric.clipped(METRIC.make_score(value, score(value, *ends)))
        assert (found.value, found.stats.mean) == (clipped, clipped)
        assert [found.stats.ci_low, found.stats.ci_high] == expected


def test_bounds_count_open_criteria_both_ways_and_are_clipped() -> None:
    cases = {
        key("x"): by_one(True, True, False),
        key("y"): by_one(True, None, None),
        key("z"): FAILED,
    }
    assert rubric.bounds_over_criteria(cases) == (near((1 + 0.3 - 0.5) / 3), 1.0)
    assert rubric.bounds_over_criteria({key("z"): by_one(False, False, True)}) == (0.0, 0.0)
    assert rubric.bounds_over_criteria({key("z"): rubric.JudgedCase((BAD,), None)}) is None


def test_scores_by_tag_are_of_the_criteria_with_it() -> None:
    cases = {
        key("x"): by_one(True, None, False),
        key("y"): by_one(True, True, True),
        key("z"): FAILED,
    }
    found = rubric.scores_by_tag(METRIC, cases)
    assert found.keys() == {"axis", "tag"}
    accuracy = found["axis"]["accuracy"]["rubric_score"]
    assert (accuracy.stats.count, accuracy.value) == (2, near((1 + 3 / 8) / 2))
    assert found["axis"]["completeness"]["rubric_score"].stats.count == 1
    assert found["tag"]["urgent"]["rubric_score"].value == 1.0
    as_zero = rubric.scores_by_tag(METRIC, cases, failed_as_zero=True)["axis"]["accuracy"][
        "rubric_score"
    ]
    assert (as_zero.stats.count, as_zero.value) == (3, near((1 + 3 / 8) / 3)), (
        "the answer that did not come, too"
    )
    two = rubric.scores_by_tag(
        METRIC, {key("x"): by_one(False, True, True), key("y"): by_one(False, True, True)}
    )
    assert two["axis"]["accuracy"]["rubric_score"].value == 0.0, "clipped"
    assert two["axis"]["completeness"]["rubric_score"].value == 1.0


def test_the_least_score_of_a_case_and_of_its_criteria_with_a_tag() -> None:
    criteria = (
        Criterion("good", 4, ("a",)),
        Criterion("bad", -6, ("a", "b")),
        Criterion("fine", 2, ("c",)),
    )
    case = rubric.JudgedCase(criteria, None)
    assert (case.lowest_score(), *(case.lowest_score(tag) for tag in "abc")) == (
        -1.0,
        -1.5,
        0.0,
        0.0,
    )


def test_the_field_of_a_tag() -> None:
    tags = {
        "axis:x": ("axis", "x"),
        "x": ("tag", "x"),
        ":x": ("tag", ":x"),
        "x:": ("tag", "x:"),
        "a:b:c": ("a", "b:c"),
    }
    assert {tag: rubric.field_of(tag) for tag in tags} == tags


def test_the_report_counts_what_judges_said() -> None:
    cases = {
        key("x"): case({"a": True, "b": True}, {"a": True, "b": False}, {"a": False, "b": False}),
        key("y"): case({"a": True, "b": None}, {"a": False, "b": False}, {"a": None, "b": None}),
        key("z"): FAILED,
    }
    found = rubric.report_of(cases, ["a", "b"])
    whole = found.criteria
    assert (whole.asked, whole.met, whole.not_met, whole.tied, whole.unjudged, whole.score) == (
        6,
        2,
        2,
        1,
        1,
        None,
    )
    one = found.judges["a"]
    two = found.judges["b"]
    assert (one.asked, one.met, one.not_met, one.tied, one.unjudged, one.score) == (
        6,
        3,
        2,
        0,
        1,
        near(1.0),
    )
    assert (two.met, two.not_met, two.unjudged, two.score) == (1, 3, 2, near(0.8))
    assert (found.agreement, found.unanimous) == ({"a/b": PairAgreement(4, 0.75, near(0.5))}, 0.75)
    assert found.krippendorff_alpha == near(1 - 7 * 2 / (2 * 3 * 5))


RUBRICS = [
    {"criterion": "good", "points": 8, "tags": ["axis:accuracy"]},
    {"criterion": "bad", "points": -4, "tags": ["theme:care"]},
]
MET = {"criteria_met": True, "explanation": "so"}
NOT = {"criteria_met": False, "explanation": "no"}
BROKEN = {"error": "HTTP 500: broken"}
Said = dict[str, dict[str, Any]]


def state(name: str, *said: Said, failed: bool = False) -> output.RequestState:
    return output.RequestState.model_validate(
        {
            "instance": {
                "id": name,
                "input": {"text": "?"},
                "split": "test",
                "extra_data": {"rubrics": RUBRICS, "tags": ["theme:care", "urgent"]},
            },
            "train_trial_index": 0,
            "request": {},
            "result": {
                "success": not failed,
                "error": "HTTP 500" if failed else None,
                "completions": [{"text": "x"}],
            },
            "annotations": {"rubric": {"criteria": list(said)}},
        }
    )


def test_tags_of_a_case_are_fields_of_it(two: rubric.RubricTally) -> None:
    assert two.tag_fields_of(key("x")) == {"theme": "care", "tag": "urgent"}
    two.cases[key("x")] = replace(
        two.cases[key("x")], tags=("theme:care", "theme:fever", "one", "two")
    )
    assert two.tag_fields_of(key("x")) == {"theme": "care, fever", "tag": "one, two"}


def tally_of(*judges: str) -> rubric.RubricTally:
    return rubric.RubricTally("rubric_score", judges, dict.fromkeys(judges))


@pytest.fixture
def two() -> rubric.RubricTally:
    """One case with a criterion that nobody judged, one with a tie, one that failed, one that is whole."""
    made = tally_of("a", "b")
    made.see(key("x"), state("x", {"a": MET, "b": BROKEN}, {"a": BROKEN, "b": {}}))
    made.see(key("y"), state("y", {"a": MET, "b": NOT}, {"a": NOT, "b": NOT}))
    made.see(key("z"), state("z", failed=True))
    add_whole(made, "w")
    return made


def add_whole(to: rubric.RubricTally, *cases: str) -> None:
    for name in cases:
        to.see(key(name), state(name, {"a": MET, "b": MET}, {"a": NOT, "b": NOT}))


def test_its_judges_are_those_of_the_metric(tmp_path: Path) -> None:
    made = plan({"config.type": "healthbench", "target.api_endpoint.model_id": "openai/gpt-4.1"})
    arguments = {"metric_name": "m", "judges": {"gpt": deployment_of(made.judges[0]), "other": "d"}}
    spec = {"class_name": names.RUBRIC_METRIC_CLASS, "args": arguments}
    run_spec = output.StoredRunSpec.model_validate(
        {"name": "x", "metric_specs": [{"class_name": "other"}, spec]}
    )
    found = there(rubric.RubricTally.of(made, output.HelmRun(tmp_path, run_spec, [])))
    assert (found.metric, found.judges, found.families) == (
        "m",
        ("gpt", "other"),
        {"gpt": True, "other": None},
    )


def test_what_it_tells_the_tally(two: rubric.RubricTally) -> None:
    tally = Tally()
    metrics = [MetricValues(name, name, None) for name in ("rubric_score", "other")]
    two.count(draft(tally=tally, metrics=metrics))
    assert [one.lowest for one in metrics] == [dict.fromkeys(map(key, "xyzw"), -0.5), None]
    assert tally.unjudged == tally.unscored_cases == {key("x")}
    assert tally.judges == {"a": JudgeCounts(6, 5, 1, None), "b": JudgeCounts(6, 4, 2, None)}
    assert sorted((cause.role, cause.count) for cause in tally.causes.listed()) == [
        ("a", 1),
        ("b", 1),
        ("b", 1),
    ]
    assert {field: list(by) for field, by in tally.members.items()} == {
        "theme": ["care"],
        "tag": ["urgent"],
    }
    assert len(tally.members["theme"]["care"]) == 4
    found = draft()
    two.report(found)
    assert found.judgements == Judgements(16, 9)


def test_the_published_score_takes_the_place_of_the_mean(two: rubric.RubricTally) -> None:
    mean = Score(-0.25, Stats.without_interval(2, -0.25), "rubric_score", scale=(0, 1))
    found = draft(scores={"rubric_score": mean})
    without = draft()
    for one in (found, without):
        two.publish(one)
    assert found.scores["rubric_score"].value == 0.0
    assert found.scores["rubric_score.unclipped"] == replace(
        mean, metric="rubric_score.unclipped", scale=None
    )
    # Of x: b may make a tie of the first, and nobody judged the second. Of z nothing is known.
    assert found.bounds == {
        "rubric_score": (near((0.0 + 0.5 - 0.5 + 1) / 4), near((1 + 0.5 + 1 + 1) / 4))
    }
    assert without.scores == {}


def test_notes(two: rubric.RubricTally) -> None:
    raw = Score(-0.25, Stats.without_interval(2, -0.25))
    notes = list(two.notes({"rubric_score.unclipped": raw}))
    for note, (importance, begins) in zip(
        notes,
        (
            (Importance.INCOMPLETE, "1 of 6 criteria are unjudged: their 1 cases have no score"),
            (Importance.DOUBTFUL, "the judges are divided equally on 1 of 6 criteria"),
            (Importance.DOUBTFUL, "the cases' mean is -0.2500"),
        ),
        strict=True,
    ):
        assert (note.importance, note.text.startswith(begins)) == (importance, True)
    whole = tally_of("a")
    whole.see(key("w"), state("w", {"a": MET}, {"a": NOT}))
    assert list(whole.notes({"rubric_score.unclipped": replace(raw, value=0.0)})) == []


def against(of: rubric.RubricTally, most: float) -> list[str]:
    found = draft(plan=plan({"config.params.extra.max_judge_failures": most}))
    of.count(found)
    of.report(found)
    return list(reasons_against_reporting(found))


def test_a_judge_that_leaves_too_much_makes_it_not_reportable(two: rubric.RubricTally) -> None:
    (said,) = against(two, 0.2)
    says(said, "judge b", "2 of 6 criteria", "max_judge_failures is 0.2")
    assert against(two, 2 / 6) == against(tally_of("a"), 0.0) == []
    assert len(against(two, 0.1)) == 2


def grouped(
    of: rubric.RubricTally, groups: Groups, metric: MetricValues | None = METRIC, **known: Any
) -> Groups:
    made = draft(groups=groups, main_values=metric, **known)
    of.group(made)
    return made.groups


def test_groups_of_criteria_stand_beside_those_of_cases(two: rubric.RubricTally) -> None:
    add_whole(two, *"0123456")
    low = Score(-0.5, Stats.without_interval(2, -0.5))
    found = grouped(two, Groups({"theme": {"care": {"rubric_score": low}}}, {"x": [1]}))
    assert found.scores["theme"]["care"]["rubric_score"].value == 0.0
    assert set(found.scores) == {"theme", "axis"}, "negative points alone make no score"
    accuracy = found.scores["axis"]["accuracy"]["rubric_score"]
    assert (accuracy.stats.count, accuracy.value) == (10, near((8 + 0.5 + 1) / 10))
    assert found.hidden == {"x": [1]}
    assert grouped(two, Groups(), None).scores == {}
    as_zero = grouped(two, Groups(), missing_as_zero=True).scores["axis"]["accuracy"][
        "rubric_score"
    ]
    assert as_zero.stats.count == 11, "one failed"


def test_a_group_of_criteria_in_fewer_than_ten_cases_is_counted_and_not_shown(
    two: rubric.RubricTally,
) -> None:
    add_whole(two, *"012345")
    found = grouped(two, Groups())
    assert (found.scores, found.hidden) == ({}, {"axis": [9]})
    (note,) = found.notes()
    says(note.text, "too few", "by axis")
    beside = grouped(two, Groups({}, {"axis": [3]}))
    assert beside.hidden == {"axis": [3], "criterion_axis": [9]}


def test_the_line_of_a_case(two: rubric.RubricTally) -> None:
    one, other = two.criteria_in(state("y", {"a": MET, "b": NOT}, {"a": NOT, "b": NOT}))
    assert one == {
        **RUBRICS[0],
        "verdict": "tied",
        "judges": {"a": MET, "b": NOT},
        "agreement": 0.0,
    }
    assert (other["verdict"], other["agreement"]) == ("not met", 1.0)
    one, other = two.criteria_in(state("x", {"a": MET, "b": BROKEN}, {"a": BROKEN}))
    assert one == {**RUBRICS[0], "verdict": "met", "judges": {"a": MET, "b": BROKEN}}
    assert other["verdict"] == "unjudged"
    assert [two.scores_by_judge(key(name)) for name in "yx"] == [{"a": 1.0, "b": 0.0}, {}]
    assert rubric.report_of(two.cases, two.judges).criteria.unjudged == 1


def test_a_judge_that_says_the_same_of_twenty_criteria_is_named() -> None:
    votes = [{"a": True, "b": number % 2 == 0, "c": None} for number in range(20)]
    cases = {key("x"): rubric.JudgedCase((GOOD,) * 20, tuple(votes))}
    assert rubric.report_of(cases, ("a", "b", "c")).constant == ("a",)
    few = {key("x"): rubric.JudgedCase((GOOD,) * 19, tuple(votes[:19]))}
    assert rubric.report_of(few, ("a", "b", "c")).constant == ()
    told = rubric.RubricTally("rubric_score", ("a", "b"), {}, cases)
    says(next(told.notes({})).text, "judge a", "20 criteria met")
