"""Instances of a stored result -> samples of Every Eval Ever: prompts, references and answers, one line each."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from eval_factory.core.results import InstanceRecord, Score
from eval_factory.report.exports.every_eval_ever_schema import SCHEMA_VERSION
from eval_factory.report.reader import StoredResult

CORRECT = "correct"
"""HELM's tag of a reference that is right."""


def result_id(stored: StoredResult, metric: str) -> str:
    """Leads from a sample to the score that it is part of."""
    return f"{stored.result.task}/{metric}"


def samples_of(stored: StoredResult, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One for each instance that has the main metric; the schema has no sample without a score."""
    name = stored.result.main_metric
    score = stored.result.scores[name]
    for instance in stored.result.instances:
        value = instance.metrics.get(name)
        if value is None or instance.completion is None or not math.isfinite(value):
            continue
        yield {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": record["evaluation_id"],
            "model_id": record["model_info"]["id"],
            "evaluation_name": stored.result.task,
            "evaluation_result_id": result_id(stored, name),
            **_sample(instance, score.metric or name),
            "evaluation": {"score": value, "is_correct": _is_best(value, score)},
        }


def _is_best(value: float, score: Score) -> bool:
    """The schema wants right or wrong of every sample: right is the best value that there is, 1 where none is known."""
    if score.higher_is_better is False:
        return score.scale is not None and value <= score.scale[0]
    return value >= (score.scale[1] if score.scale else 1.0)


def _sample(instance: InstanceRecord, metric: str) -> dict[str, Any]:
    right = [reference["text"] for reference in instance.references if CORRECT in reference["tags"]]
    options = [reference["text"] for reference in instance.references]
    completion = instance.completion or ""
    sample: dict[str, Any] = {
        "sample_id": instance.id if not instance.trial else f"{instance.id}#{instance.trial}",
        "sample_hash": _hash_of(instance.prompt, right),
        "interaction_type": "single_turn",
        "input": {"raw": instance.prompt, "reference": right},
        "output": {"raw": [completion]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": completion,
                "extraction_method": f"helm.{metric}",
                "is_terminal": True,
            }
        ],
        "metadata": {"split": instance.split, **_finish(instance)},
    }
    if len(options) > len(right) > 0:
        sample["input"]["choices"] = options
    tokens = instance.prompt_tokens, instance.completion_tokens
    if tokens[0] is not None and tokens[1] is not None:
        counted = {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": tokens[0] + tokens[1]}
        sample["token_usage"] = counted
    if instance.latency_s is not None:
        sample["performance"] = {"latency_ms": round(instance.latency_s * 1000, 3)}
    return sample


def _finish(instance: InstanceRecord) -> dict[str, str]:
    return {} if instance.finish_reason is None else {"finish_reason": instance.finish_reason}


def _hash_of(prompt: str, references: list[str]) -> str:
    """As the schema's own converters make it, so that samples of several programs are found to be the same."""
    text = json.dumps({"raw": prompt, "reference": references}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
