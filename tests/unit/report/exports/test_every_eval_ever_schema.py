"""The vendored facts of Every Eval Ever refuse what the published schema refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eval_factory.report.every_eval_ever import _RELATIONSHIPS, _SCHEMA_VERSION, Publisher, check_record, write_records
from unit.report.exports.test_stored_facts import stored_of


@pytest.fixture
def record(tmp_path: Path) -> dict[str, Any]:
    file, _ = write_records(stored_of("pubmed_qa"), tmp_path / "o", Publisher("x"), now=1.0)
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def changed(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """`value` at a path; None takes the field away."""
    new = copy.deepcopy(record)
    *parents, last = path.split(".")
    place: Any = new
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return new


SCORE = "evaluation_results.0"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((name, None) for name in ("schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata")),
        *((name, None) for name in ("model_info", "eval_library", "evaluation_results")),
        ("schema_version", "0.2.0"),
        ("surplus", "x"),
        ("evaluation_results", []),
        ("source_metadata.source_type", "hearsay"),
        ("source_metadata.evaluator_relationship", "self"),
        (f"{SCORE}.metric_config.lower_is_better", None),
        (f"{SCORE}.metric_config.score_type", "levels"),
        (f"{SCORE}.metric_config.min_score", None),
        (f"{SCORE}.score_details.score", "0.5"),
        (f"{SCORE}.score_details.uncertainty.num_samples", 1.5),
        (f"{SCORE}.source_data.source_type", "hf_dataset"),
        (f"{SCORE}.generation_config.generation_args.max_tokens", 0),
        ("detailed_evaluation_results.file_path", "samples.jsonl"),
    ],
)
def test_what_the_schema_refuses(path: str, value: Any, record: dict[str, Any]) -> None:
    check_record(record, "aggregate")
    with pytest.raises(jsonschema.ValidationError):
        check_record(changed(record, path, value), "aggregate")


def test_version_and_relationships_are_the_published_ones(record: dict[str, Any]) -> None:
    assert record["schema_version"] == _SCHEMA_VERSION == "0.3.0"
    for relationship in _RELATIONSHIPS:
        check_record(changed(record, "source_metadata.evaluator_relationship", relationship), "aggregate")
