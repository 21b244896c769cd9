"""Pairs of two results (a metric's values by instance), and reasons why they cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis.comparison_reasons import (
    ACCEPTABLE_REASONS,
    Side,
    reasons_against_pair,
    reasons_against_result,
    values_of,
)
from eval_factory.core.results import DEMO, ImportedFrom, InstanceRecord, Score, TaskResult
from eval_factory.report.reader import StoredResult
from eval_factory.scoring.methods import STATISTICS_VERSION
from facts import each_says, says
from stored_results import CONFIG, JUDGE, MODEL, PROVENANCE, instance, result


def score(label: str = "exact_match") -> Score:
    return result([], [label]).scores[label]


def test_values_are_means_over_trials_and_an_instance_that_failed_in_one_has_none() -> None:
    found = values_of(
        [
            instance("a", 1.0),
            instance("a", 0.0, trial=1),
            instance("b", 1.0),
            instance("b", None, trial=1),
            instance("c", None),
            instance("d", 1.0),
        ],
        score(),
    )
    assert (found.means, found.failed, found.unscored, found.clusters) == (
        {"a": 0.5, "d": 1.0},
        {"b", "c"},
        set(),
        {},
    )
    assert found.all_keys == {"a", "b", "c", "d"}
    answered = [instance(name, 1.0, metric="other", unjudged=name == "b") for name in "abc"]
    found = values_of([*answered, instance("c", None, trial=1)], score())
    assert (found.failed, found.unscored) == ({"a", "b", "c"}, {"a"}), (
        "was answered, and the metric says nothing of it"
    )


def test_other_splits_and_perturbations_are_other_scores() -> None:
    records = [
        instance("a", 1.0),
        instance("b", 1.0, split="valid"),
        instance("a", 0.0, perturbation="typos"),
        instance("n", 0.0, split=""),
    ]
    assert values_of(records, score()).means == {"a": 1.0}
    assert values_of(records, score("exact_match@valid")).means == {"b": 1.0}
    typos = Score(0.0, score().stats, "exact_match", "test", "typos")
    assert values_of(records, typos).means == {"a": 0.0}
    assert values_of(records, Score(0.0, score().stats, "exact_match")).means == {"n": 0.0}


FOUR = [instance(f"q{number}", 1.0) for number in range(4)]


def side(label: str, records: list[InstanceRecord] | None = None, **changes: Any) -> Side:
    config: Mapping[str, Any] = changes.pop("config", CONFIG)
    made: TaskResult = result(FOUR if records is None else records, **changes)
    stored = StoredResult(made, Path(label), "helm-run", config["config"], config["target"])
    return Side(label, stored, values_of(made.instances, made.scores["exact_match"]), "exact_match")


def provenance(**changes: Any) -> dict[str, Any]:
    return {"provenance": replace(PROVENANCE, **changes)}


def configured(adapter: Mapping[str, Any] | None = None, **extra: Any) -> dict[str, Any]:
    config = deepcopy(CONFIG)
    config["config"]["params"]["extra"].update(extra)
    config["target"]["api_endpoint"]["adapter_config"].update(adapter or {})
    return {"config": config}


JUDGED = {"model": MODEL, "one": JUDGE}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "task": ({}, {"task": "medec"}, "A and B are of different tasks: pubmed_qa and medec"),
    "prompts": (
        {},
        {"records": [*FOUR[:3], replace(FOUR[3], prompt="Say yes. What is q3?")]},
        "A and B were asked in different words: 1 of 4 prompts differ",
    ),
    "data": (
        {},
        provenance(dataset_files={"scenarios/x/test.json": "f" * 64}),
        "A and B were made with different data: scenarios/x/test.json",
    ),
    "errata": (
        {},
        provenance(errata_version=4),
        "different lists of known defects: errata 3 and 4",
    ),
    "helm": ({}, provenance(helm="0.5.17"), "different versions of HELM: 0.5.16 and 0.5.17"),
    "judges": (
        provenance(endpoints=JUDGED),
        provenance(endpoints={**JUDGED, "one": replace(JUDGE, model="judge/two")}),
        "A and B were rated by different judges, or with different prompts: one",
    ),
    "settings": ({}, configured(on_failure="zero"), "on_failure exclude and zero"),
    "instances": ({}, {"records": FOUR[:3]}, "1 are in A alone, 0 in B alone"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_is_a_reason_of_its_own(name: str) -> None:
    first, second, message = OTHERS[name]
    (reason,) = reasons_against_pair(side("A", **first), side("B", **second))
    assert reason.name == name
    assert message in reason.message
    (turned,) = reasons_against_pair(side("B", **second), side("A", **first))
    assert turned.name == name
    assert name in ACCEPTABLE_REASONS


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("prompts", {}, configured({"custom_system_prompt": "Be brief."})),
        ("prompts", {}, provenance(prompts_sha256="d" * 64)),
        ("judges", provenance(endpoints=JUDGED), provenance(endpoints={"model": MODEL})),
        (
            "judges",
            provenance(endpoints=JUDGED),
            provenance(endpoints={**JUDGED, "one": replace(JUDGE, prompt_sha256=("e",))}),
        ),
        (
            "judges",
            provenance(endpoints=JUDGED),
            provenance(endpoints={**JUDGED, "one": replace(JUDGE, stated_models={"x": 1})}),
        ),
        ("judges", configured(judges_see_images=False), configured(judges_see_images=True)),
        ("data", {}, provenance(dataset_files={})),
    ],
)
def test_other_ways_to_differ(name: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    assert [
        reason.name for reason in reasons_against_pair(side("A", **first), side("B", **second))
    ] == [name]


def test_demos_are_compared_with_each_other_and_with_no_model() -> None:
    validity = replace(result(FOUR).validity, not_reportable=(DEMO,))
    demo: dict[str, Any] = {"validity": validity, "reportable": False}
    assert list(reasons_against_result(side("A", **demo))) == []
    assert list(reasons_against_pair(side("A", **demo), side("B", **demo))) == []
    model = side("B")
    (reason,) = reasons_against_pair(side("A", **demo), model)
    assert reason.name == "reportable"
    (reason,) = reasons_against_pair(model, side("A", **demo))
    assert reason.name == "reportable"
    imported = replace(PROVENANCE, imported=ImportedFrom("inspect_ai", "1", {}, ()))
    foreign = side("B", provenance=imported)
    names = [reason.name for reason in reasons_against_pair(side("A", **demo), foreign)]
    assert names == ["reportable", "program"]


def test_what_may_differ() -> None:
    """Another model, other places of the same data, another sample's hash of prompts beside the reason `instances`."""
    other = provenance(
        target="org/other",
        dataset_files={"elsewhere/test.json": "a" * 64},
        endpoints={"model": replace(MODEL, model="org/other", stated_models={"x": 4})},
    )
    assert (
        list(
            reasons_against_pair(
                side("A", **provenance(endpoints={"model": MODEL})), side("B", **other)
            )
        )
        == []
    )
    fewer = side("B", FOUR[:3], **provenance(prompts_sha256="d" * 64))
    assert [reason.name for reason in reasons_against_pair(side("A"), fewer)] == ["instances"]
    unset = {"config": {"config": {"params": None}, "target": {}}}
    null = {
        "config": {
            "config": {"params": {"extra": {"on_failure": None}}},
            "target": {"api_endpoint": None},
        }
    }
    for config in (unset, null):
        assert list(reasons_against_pair(side("A"), side("B", **config))) == []


def failing(count: int) -> list[InstanceRecord]:
    return [*FOUR[count:], *(instance(f"f{number}", None) for number in range(count))]


def scored(records: list[InstanceRecord], *not_reportable: str) -> TaskResult:
    made = result(records)
    counts = replace(made.validity.instances, failed=sum(bool(record.error) for record in records))
    return replace(
        made, validity=replace(made.validity, instances=counts, not_reportable=not_reportable)
    )


def own_reasons(made: TaskResult, **changes: Any) -> list[tuple[str, str]]:
    config = changes.pop("config", CONFIG)
    stored = StoredResult(
        replace(made, **changes), Path("x"), "helm-run", config["config"], config["target"]
    )
    told = reasons_against_result(
        Side("A", stored, values_of([], made.scores["exact_match"]), "exact_match")
    )
    return [(reason.name, reason.message) for reason in told]


def test_too_little_coverage_is_a_reason() -> None:
    assert own_reasons(scored(failing(2))) == []  # half is just enough here
    ((name, message),) = own_reasons(scored(failing(3)), reportable=False)
    assert name == "coverage"
    says(message, "25.0 %", "50.0 % are needed")
    strict = {"config": {**CONFIG, "config": {"type": "x"}}}
    assert [name for name, _ in own_reasons(scored(failing(1)), **strict)] == ["coverage"]
    assert own_reasons(scored(FOUR), **strict) == []


def test_what_else_makes_a_result_not_reportable_is_a_reason() -> None:
    unreadable = scored(FOUR, "too many are unreadable\n  set this\n  or that", "and unjudged")
    told = [("reportable", "A is not reportable: too many are unreadable; and unjudged")]
    assert own_reasons(unreadable, reportable=False) == told
    both = scored(failing(3), "too many are unreadable")
    assert [name for name, _ in own_reasons(both, reportable=False)] == ["coverage", "reportable"]
    none = [("reportable", "A is not reportable: there is no main score")]
    assert own_reasons(scored(FOUR), reportable=False) == none


def test_data_of_the_package_count_too() -> None:
    files, other = ({"package:demo/a.csv": digest * 64} for digest in "de")
    recorded, changed, unrecorded = (
        side("A", **provenance(dataset_files=one)) for one in (files, other, {})
    )
    (reason,) = reasons_against_pair(recorded, changed)
    assert reason.message.endswith("different data: package:demo/a.csv")
    many = side("A", **provenance(dataset_files={f"file {number}": "0" for number in range(5)}))
    (reason,) = reasons_against_pair(unrecorded, many)
    says(reason.message, "file 0, file 1", "file 2", "2 more")


def test_a_judges_passport_is_no_data_and_another_one_makes_another_corrected_score() -> None:
    files = {"scenarios/x/test.json": "f" * 64}
    a, same, other = (
        side(name, **provenance(dataset_files={**files, "judge_passport.yaml": digest * 64}))
        for name, digest in (("A", "1"), ("B", "1"), ("C", "2"))
    )
    without = side("D", **provenance(dataset_files=files))
    assert not list(
        chain.from_iterable(reasons_against_pair(a, one) for one in (same, other, without))
    )
    corrected = [
        replace(one, values=replace(one.values, metric="rubric_score.judge_corrected"))
        for one in (a, same, other, without)
    ]
    found = [
        [reason.message for reason in reasons_against_pair(corrected[0], one)]
        for one in corrected[1:]
    ]
    assert found[0] == []
    each_says(
        list(chain.from_iterable(texts for texts in found[1:])),
        ["A and C", "different passports"],
        ["A and D", "different passports"],
    )


def test_scores_corrected_by_labels_and_by_the_truth_are_not_compared() -> None:
    metric = "rubric_score.judge_corrected"
    sides = []
    for name, version in (("A", 1), ("B", 2), ("C", STATISTICS_VERSION)):
        of_version = side(name, **provenance(statistics_version=version))
        sides.append(replace(of_version, values=replace(of_version.values, metric=metric)))
    found = list(reasons_against_pair(*sides[:2]))
    assert [reason.name for reason in found] == ["judges"]
    assert "rescore" in found[0].message
    assert not list(reasons_against_pair(*sides[1:]))


def test_the_lowest_score_of_a_case_is_that_of_the_judges_score_alone() -> None:
    criteria = ({"criterion": "x", "points": 2}, {"criterion": "y", "points": -1})
    record = replace(instance("a", 1.0), criteria=criteria)
    assert values_of([record], score()).lowest == {"a": -0.5}
    metric = "rubric_score.judge_corrected"
    record = replace(record, metrics={metric: 1.3})
    assert values_of([record], replace(score(), metric=metric)).lowest == {}


def test_two_versions_of_the_reader_are_a_reason_for_metrics_that_it_reads() -> None:
    old = side("A", **provenance(reader_version=1))
    new = side("B", **provenance(reader_version=2))
    assert list(reasons_against_pair(old, new)) == []
    read = [replace(one, values=replace(one.values, metric="m.lenient")) for one in (old, new)]
    assert [reason.name for reason in reasons_against_pair(*read)] == ["reader"]
    assert "reader" in ACCEPTABLE_REASONS


def test_two_ways_of_asking_are_never_compared() -> None:
    reasons = list(
        reasons_against_pair(side("A"), side("B", **configured(answer_style="reasoned")))
    )
    assert "answer_style" in [reason.name for reason in reasons]
    assert "answer_style" not in ACCEPTABLE_REASONS
