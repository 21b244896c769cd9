"""The metrics of CHAI's card: the elements of its schema, the run's own numbers, nulls for what nobody knows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from described_runs import CONFIG, TARGET, hostile, of_a_jury, plain
from eval_factory.core.results import TaskResult
from eval_factory.report.papers import CHAI as NAMESPACE
from eval_factory.report.papers import forms, model_card

UNKNOWN = forms()["model_card"]["unknown"]

KINDS = ["UsefulnessUsabilityEfficacy", "FairnessEquity", "SafetyReliability"]
PARTS = [
    "MetricGoal", "Results", "Interpretation", "TestType", "TestingDataDescription",
    "ValidationProcessAndJustification",
]  # fmt: skip
"""In the order of the schema's sequence, each needed."""


def parsed(made: TaskResult) -> ET.Element:
    return ET.fromstring(model_card(made, CONFIG, TARGET))  # noqa: S314 - our own text


def name(element: ET.Element) -> str:
    space, _, local = element.tag.removeprefix("{").partition("}")
    assert space == NAMESPACE
    return local


def text(made: TaskResult, kind: int, part: str) -> str:
    return parsed(made)[kind][PARTS.index(part)].text or ""


def results(made: TaskResult, kind: int) -> dict[str, Any]:
    found = parsed(made)[kind][1]
    return {one[0].text or "": json.loads(one[1].text or "") for one in found}


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_it_has_the_elements_of_the_schema_in_their_order(made: Callable[[], TaskResult]) -> None:
    root = parsed(made())
    assert name(root) == "KeyMetrics"
    assert [name(kind) for kind in root] == KINDS
    for kind in root:
        assert [name(part) for part in kind] == PARTS
        assert all((part.text or "").strip() for part in kind if name(part) != "Results")
        assert len(kind[1]) >= 1
        assert all([name(part) for part in found] == ["Label", "ValueJson"] for found in kind[1])


def test_scores_with_their_intervals() -> None:
    assert results(plain(), 0) == {
        "exact_match": {
            "kind": "estimate_ci", "estimate": 0.7368, "lower": 0.5121, "upper": 0.8819, "level": 95, "unit": "share",
        }
    }  # fmt: skip
    made = plain()
    score = made.scores["exact_match"]
    bare = replace(score, unit=None, stats=replace(score.stats, ci_low=None))
    other = replace(made, scores={"a": bare, "b": replace(score, value=math.nan)})
    assert results(other, 0) == {"a": {"kind": "single", "value": 0.7368}, "b": {"kind": "single", "value": None}}
    assert results(replace(made, scores={}), 0) == {UNKNOWN: {"kind": "single", "value": None}}


def test_groups_or_that_nothing_is_known() -> None:
    assert results(plain(), 1) == {UNKNOWN: {"kind": "single", "value": None}}
    assert text(plain(), 1, "MetricGoal") == "Not known to eval-factory: the data name no groups."
    assert "nothing was measured of fairness" in text(plain(), 1, "Interpretation")
    made = plain()
    grouped = replace(made, groups={"sex": {"f": dict(made.scores), "m": {}}})
    assert list(results(grouped, 1)) == ["exact_match, sex: f"]
    assert text(grouped, 1, "MetricGoal") == "To compare the groups of instances by sex."
    assert "whether these fields are attributes of patients" in text(grouped, 1, "Interpretation")


def test_counts_of_what_can_be_relied_on() -> None:
    found = {label: value["value"] for label, value in results(plain(), 2).items()}
    assert found == {
        "Instances requested": 20, "Instances scored": 19, "Instances failed": 1, "Instances empty": 2,
        "Instances truncated": 3, "Instances unparsed": 4, "Instances refused": 0, "Instances unjudged": 0,
    }  # fmt: skip
    assert {value["kind"] for value in results(plain(), 2).values()} == {"single"}
    assert "whether answers are safe" in text(plain(), 2, "Interpretation")


def test_data_and_process_are_told_once() -> None:
    assert "20 instances (split test: 20) were asked" in text(plain(), 0, "TestingDataDescription")
    process = text(plain(), 0, "ValidationProcessAndJustification")
    for said in ("org/model", "max_tokens = 1", "Wilson's score interval (ref. 3)", "Ref. 3: E. B. Wilson", "crfm-helm 0.5.16",
                 "Not known to eval-factory: why this benchmark"):  # fmt: skip
        assert said in process
    for kind in (1, 2):
        assert text(plain(), kind, "TestingDataDescription") == "As of UsefulnessUsabilityEfficacy."
        assert text(plain(), kind, "ValidationProcessAndJustification") == "As of UsefulnessUsabilityEfficacy."
    assert "5 of 6 judgements" in text(of_a_jury(), 0, "ValidationProcessAndJustification")


def test_goal_and_interpretation_invent_nothing() -> None:
    assert text(plain(), 0, "MetricGoal") == (
        "To measure exact_match of org/model on pubmed_qa. Not known to eval-factory: the value that has to be reached."
    )
    assert text(of_a_jury(), 0, "Interpretation").startswith(
        "By the limits that were set for the run, this score may not"
    )
    assert "the score; 1 failed" not in text(plain(), 0, "Interpretation")
    assert "1 failed" in text(plain(), 0, "Interpretation")
    assert "temperature 0.7 (leaderboard: 0.0)" in text(plain(), 0, "Interpretation").replace("`", "")


def test_hostile_text_stays_text() -> None:
    card = model_card(hostile(), CONFIG, TARGET)
    assert "<script" not in card
    assert card.replace("\n", "").isprintable()
    assert "\u202e" not in card
    label = parsed(hostile())[0][1][0][0].text or ""
    assert "`@someone`" in label
    assert "`<script>alert(1)</script>`" in label
