"""Instances -> samples of Every Eval Ever."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core.results import InstanceRecord, Score
from eval_factory.report.every_eval_ever import check_record, samples_of
from eval_factory.report.reader import StoredResult
from unit.report.exports.test_stored_facts import ANSWER, PROMPT, REFERENCE, stored_of

RECORD = {"evaluation_id": "the run", "model_info": {"id": "org/model"}}


def samples(stored: StoredResult, instances: list[InstanceRecord] | None = None, **score: Any) -> list[dict[str, Any]]:
    result = stored.result
    scores: dict[str, Score] = {"exact_match": replace(result.scores["exact_match"], **score)}
    instances = list(result.instances) if instances is None else instances
    found = list(samples_of(replace(stored, result=replace(result, scores=scores, instances=instances)), RECORD))
    for sample in found:
        check_record(sample, "instance")
    return found


@pytest.fixture
def stored() -> StoredResult:
    return stored_of("pubmed_qa")


@pytest.fixture
def instance(stored: StoredResult) -> InstanceRecord:
    return next(iter(stored.result.instances))


def test_a_sample_has_all_that_is_known_of_an_instance(stored: StoredResult) -> None:
    first = samples(stored)[0]
    text = json.dumps({"raw": PROMPT, "reference": [REFERENCE]}, sort_keys=True, separators=(",", ":"))
    assert first == {
        "schema_version": "0.3.0", "evaluation_id": "the run", "model_id": "org/model", "evaluation_name": "pubmed_qa",
        "evaluation_result_id": "pubmed_qa/exact_match", "sample_id": "id0",
        "sample_hash": hashlib.sha256(text.encode()).hexdigest(), "interaction_type": "single_turn",
        "input": {"raw": PROMPT, "reference": [REFERENCE], "choices": [REFERENCE, "it is gout"]},
        "output": {"raw": [ANSWER]},
        "answer_attribution": [{
            "turn_idx": 0, "source": "output.raw", "extracted_value": ANSWER, "extraction_method": "helm.exact_match",
            "is_terminal": True,
        }],
        "metadata": {"split": "test", "finish_reason": "stop"},
        "token_usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
        "performance": {"latency_ms": 250.0}, "evaluation": {"score": 1.0, "is_correct": True},
    }  # fmt: skip


def test_what_is_not_known_is_left_out(stored: StoredResult, instance: InstanceRecord) -> None:
    bare = replace(instance, completion_tokens=None, latency_s=None, finish_reason=None, references=())
    (sample,) = samples(stored, [bare])
    assert not {"token_usage", "performance"} & set(sample)
    assert sample["metadata"] == {"split": "test"}
    assert sample["input"] == {"raw": PROMPT, "reference": []}
    (sample,) = samples(stored, [replace(instance, prompt_tokens=None)])
    assert "token_usage" not in sample


def test_one_right_reference_is_no_choice_of_options(stored: StoredResult, instance: InstanceRecord) -> None:
    right, wrong = instance.references
    (sample,) = samples(stored, [replace(instance, references=(right,))])
    assert "choices" not in sample["input"]
    (sample,) = samples(stored, [replace(instance, references=(wrong,))])
    assert sample["input"] == {"raw": PROMPT, "reference": []}


def test_instances_without_a_score_or_an_answer_are_no_samples(stored: StoredResult, instance: InstanceRecord) -> None:
    left = [
        replace(instance, id="none", metrics={}),
        replace(instance, id="other", metrics={"other": 1.0}),
        replace(instance, id="failed", completion=None),
        replace(instance, id="endless", metrics={"exact_match": float("inf")}),
        replace(instance, id="empty", completion=""),
    ]
    assert [sample["sample_id"] for sample in samples(stored, left)] == ["empty"]


def test_trials_are_told_apart(stored: StoredResult, instance: InstanceRecord) -> None:
    assert [one["sample_id"] for one in samples(stored, [instance, replace(instance, trial=1)])] == ["id0", "id0#1"]


@pytest.mark.parametrize(
    ("value", "score", "right"),
    [
        (1.0, {}, True), (0.99, {}, False), (5.0, {"scale": (1.0, 5.0)}, True), (4.9, {"scale": (1.0, 5.0)}, False),
        (0.0, {"scale": (0.0, 1.0), "higher_is_better": False}, True),
        (0.1, {"scale": (0.0, 1.0), "higher_is_better": False}, False), (1.0, {"higher_is_better": False}, False),
    ],
)  # fmt: skip
def test_right_is_the_best_value_there_is(
    value: float, score: dict[str, Any], right: bool, stored: StoredResult, instance: InstanceRecord
) -> None:
    (sample,) = samples(stored, [replace(instance, metrics={"exact_match": value})], **score)
    assert sample["evaluation"] == {"score": value, "is_correct": right}
