"""Tests of what makes a judge this one, and passports that a run refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.judge_passports import (
    PASSPORT,
    check_passport,
    items_as_lines,
    judge_sha256,
    pairs_as_lines,
    passport_of,
    prompt_hashes,
)
from eval_factory.tasks.physician_labels import LabelledItems, LabelledPairs
from facts import naming

PAIRS = [
    LabelledPairs(0, "b", (1, 2, 3, 4)),
    LabelledPairs(1, None, (0, 0, 0, 1)),
    LabelledPairs(1, "a", (5, 0, 0, 0)),
]


def planned(folder: Path, **judge: Any) -> Plan:
    judges = [
        {"name": "gpt", "model_id": "judge/one", **judge},
        {"name": "other", "model_id": "judge/two"},
    ]
    extra = {
        "config.params.extra.judges": judges,
        "config.params.extra.judge_passport": str(folder),
    }
    return plan({"config.type": "healthbench", **extra})


def written(folder: Path, of: Plan, **changes: Any) -> Path:
    asked = {"judge_sha256": judge_sha256(of.judges[0], 1), "model": "judge/one"}
    document = {
        "schema_version": 1,
        "judge": "gpt-somewhere",
        "date": "2026-11-27",
        "asked": asked,
        "categories": {"a": {}, "b": {}},
        "pairs": pairs_as_lines(PAIRS, ["a", "b"]),
        "says_met": 0.7,
        "usual_lengths": [10, 99.5],
    }
    (folder / PASSPORT).write_text(to_yaml({**document, **changes}))
    return folder


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    found = passport_of(planned(tmp_path), written(tmp_path, planned(tmp_path)))
    assert (found.judge, found.date, found.says_met, found.usual_lengths) == (
        "gpt",
        "2026-11-27",
        0.7,
        (10, 99.5),
    )
    assert list(found.pairs) == PAIRS
    assert (found.items, found.bias) == ([], None), "a passport of the first version"
    items = [LabelledItems(0, "b", True, 2, 1, 3), LabelledItems(1, None, False, 3, 0, 1)]
    newer = {
        "items": items_as_lines(items, ["a", "b"]),
        "figures": {"judge": {"bias": {"value": 0.01, "ci_low": -0.02, "ci_high": 0.03}}},
    }
    found = passport_of(planned(tmp_path), written(tmp_path, planned(tmp_path), **newer))
    assert (found.items, found.bias) == (items, (0.01, -0.02, 0.03))
    assert (
        passport_of(
            planned(tmp_path), written(tmp_path, planned(tmp_path), usual_lengths=None)
        ).usual_lengths
        is None
    )


def test_a_judge_is_model_sampling_prompt_and_criteria_at_once_not_where_it_is(
    tmp_path: Path,
) -> None:
    own = planned(tmp_path).judges[0]
    same = [
        replace(own, url="https://elsewhere.example/v1"),
        replace(own, key_names=("X",)),
        replace(own, parallelism=1),
    ]
    assert {judge_sha256(judge, 1) for judge in same} == {judge_sha256(own, 1)}
    others = [
        planned(tmp_path, **given).judges[0]
        for given in (
            {"model_id": "judge/three"},
            {"temperature": 0.5},
            {"top_p": 0.5},
            {"max_tokens": 7},
        )
    ]
    others.append(replace(own, sees_images=True))
    others.append(replace(own, structured=True))
    hashes = {judge_sha256(judge, at_once) for judge, at_once in product((own, *others), (1, 5))}
    assert len(hashes) == 14
    by_schema = others[-1]
    assert (len(prompt_hashes(own, 1)), len(prompt_hashes(own, 5))) == (1, 2)
    assert prompt_hashes(own, 1) < prompt_hashes(own, 5)
    assert not prompt_hashes(own, 5) & prompt_hashes(by_schema, 5)


def with_bias(value: Any, ci_low: Any, ci_high: Any) -> dict[str, Any]:
    bias = {"value": value, "ci_low": ci_low, "ci_high": ci_high}
    return {"figures": {"judge": {"bias": bias}}}


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 1.0},
        {"schema_version": "1"},
        {"judge": " "},
        {"judge": "gpt\nanother"},
        {"date": "yesterday"},
        {"date": "2026-13-01"},
        {"date": "2026-11-27\nx"},
        {"pairs": ["0 1 1_0 2 3 4"]},
        {"pairs": ["0 1 \N{ARABIC-INDIC DIGIT ONE} 2 3 4"]},
        {"pairs": ["0 1 +1 2 3 4"]},
        {"pairs": ["00 1 1 2 3 4"]},
        {"pairs": [f"0 1 {10**400} 2 3 4"]},
        {"items": ["0 1 1 2 1 3", "0 1 1 2 1 4"]},
        {"items": [f"0 1 1 2 1 {10**400}"]},
        {"usual_lengths": [10, 5]},
        with_bias(5, -0.02, 0.03),
        with_bias(0.01, 0.5, 0.6),
        with_bias(0.01, -0.6, -0.5),
        with_bias("0.01", -0.02, 0.03),
        with_bias(True, -0.02, 1.03),
    ],
)
def test_a_passport_that_contradicts_itself_is_refused(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    of = planned(tmp_path)
    written(tmp_path, of, **changes)
    with pytest.raises(ConfigError, match=PASSPORT):
        check_passport(of)


def test_a_passports_model_is_the_one_that_its_hash_is_of(tmp_path: Path) -> None:
    of = planned(tmp_path)
    asked = {"judge_sha256": judge_sha256(of.judges[0], 1), "model": "judge/three"}
    written(tmp_path, of, asked=asked)
    with pytest.raises(ConfigError, match="judge/three"):
        check_passport(of)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"asked": {"judge_sha256": "ab" * 32, "model": "judge/nine"}},
            "is the passport of another judge (judge/nine); this run asks gpt",
        ),
        (
            {"asked": None},
            "does not state how gpt-somewhere was asked: 'calibrate' read the judge's decisions",
        ),
        ({"pairs": ["0 1 2"]}, "is not as 'calibrate' writes it"),
        ({"pairs": ["0 9 1 2 3 4"]}, "is not as 'calibrate' writes it"),
        ({"items": ["0 1 1 2"]}, "is not as 'calibrate' writes it"),
        ({"pairs": 7}, "is not as 'calibrate' writes it"),
        ({"pairs": ["0 -1 1 2 3 4"]}, "is not as 'calibrate' writes it"),
        ({"pairs": ["0 1 -1 2 3 4"]}, "is not as 'calibrate' writes it"),
        ({"pairs": ["0 1 0 0 0 0"]}, "is not as 'calibrate' writes it"),
        ({"pairs": ["0 1 1 2 3 4", "0 1 4 3 2 1"]}, "is not as 'calibrate' writes it"),
        ({"pairs": []}, "is not as 'calibrate' writes it"),
        ({"schema_version": 3}, "is not as 'calibrate' writes it"),
        ({"schema_version": True}, "is not as 'calibrate' writes it"),
        ({"judge": ["gpt"]}, "is not as 'calibrate' writes it"),
        ({"judge": ""}, "is not as 'calibrate' writes it"),
        ({"asked": {"judge_sha256": "ab"}}, "is not as 'calibrate' writes it"),
        ({"asked": "gpt"}, "is not as 'calibrate' writes it"),
        ({"asked": {"judge_sha256": "ab" * 32, "model": 7}}, "is not as 'calibrate' writes it"),
        ({"says_met": 1.5}, "is not as 'calibrate' writes it"),
        ({"usual_lengths": [-1, 2]}, "is not as 'calibrate' writes it"),
        ({"usual_lengths": ["x"]}, "is not as 'calibrate' writes it"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    of = planned(tmp_path)
    written(tmp_path, of, **changes)
    with pytest.raises(ConfigError) as raised:
        check_passport(of)
    assert message in str(raised.value)


def test_a_passport_that_is_not_there_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=naming("eval-factory calibrate --judges-from")):
        check_passport(planned(tmp_path / "none"))
    check_passport(plan())


def test_a_task_without_a_rubric_takes_none(tmp_path: Path) -> None:
    for task in ("pubmed_qa", "medication_qa"):
        with pytest.raises(
            ConfigError, match=naming("judge_passport: ", "a passport", "leave it out")
        ):
            plan({"config.type": task, "config.params.extra.judge_passport": str(tmp_path)})
    with pytest.raises(ConfigError, match=naming("probe_judges: ", "pubmed_qa", "by judges")):
        plan({"config.params.extra.probe_judges": True})
