"""A stored result -> the aggregate record and the samples of Every Eval Ever, and where its files lie."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.core.results import FailureCause, InstanceRecord, JudgeCounts, Score
from eval_factory.report.exports.every_eval_ever import (
    Publisher,
    aggregate_record,
    samples_of,
    write_records,
)
from eval_factory.report.reader import StoredResult
from facts import says
from unit.report.exports import test_stored_facts as facts
from unit.report.exports.test_stored_facts import (
    ANSWER,
    PROMPT,
    REFERENCE,
    imported_of,
    not_reportable,
    stored_of,
    with_scores,
)

WHO = Publisher("A Hospital", "third_party")
NOW = 1_795_000_000.9
SCHEMA = json.loads(Path(__file__).with_name("every_eval_ever.schema.json").read_text("utf-8"))
"""The published schemas' required fields, types and enumerations; narrower: a field that is never written is not allowed."""


def check(document: dict[str, Any], definition: str) -> None:
    jsonschema.validate(document, {**SCHEMA, "$ref": f"#/definitions/{definition}"})


def record_of(stored: StoredResult, publisher: Publisher = WHO) -> dict[str, Any]:
    record = aggregate_record(stored, publisher, now=NOW)
    check(record, "aggregate")
    return record


def only_score(stored: StoredResult) -> dict[str, Any]:
    score: dict[str, Any]
    (score,) = record_of(stored)["evaluation_results"]
    return score


def with_provenance(stored: StoredResult, **changes: Any) -> StoredResult:
    return replace(
        stored,
        result=replace(stored.result, provenance=replace(stored.result.provenance, **changes)),
    )


def test_a_public_result_is_written_with_its_samples(tmp_path: Path) -> None:
    stored = stored_of("pubmed_qa")
    record_file, samples_file = write_records(stored, tmp_path / "o", WHO, now=NOW)
    folder = tmp_path / "o" / "data" / "pubmed_qa" / "org" / "model"
    assert record_file.parent == samples_file.parent == folder
    assert samples_file.name == f"{record_file.stem}_samples.jsonl"
    record = json.loads(record_file.read_text("utf-8"))
    lines = samples_file.read_text("utf-8").splitlines()
    assert record["detailed_evaluation_results"] == {
        "format": "jsonl",
        "file_path": samples_file.relative_to(tmp_path / "o").as_posix(),
        "hash_algorithm": "sha256",
        "checksum": hashlib.sha256(samples_file.read_bytes()).hexdigest(),
        "total_rows": 4,
    }
    for line in map(json.loads, lines):
        check(line, "instance")
        assert line["evaluation_id"] == record["evaluation_id"]
        assert line["model_id"] == record["model_info"]["id"] == "org/model"
        assert (
            line["evaluation_result_id"] == record["evaluation_results"][0]["evaluation_result_id"]
        )
    assert [line["evaluation"]["score"] for line in map(json.loads, lines)] == [1.0, 0.0, 1.0, 0.0]


def test_the_same_result_is_the_same_file(tmp_path: Path) -> None:
    first = write_records(stored_of("pubmed_qa"), tmp_path / "o", WHO, now=NOW)
    elsewhere = replace(stored_of("pubmed_qa"), folder=Path("/another"))
    assert write_records(elsewhere, tmp_path / "o", WHO, now=NOW + 100) == first
    assert len([path for path in (tmp_path / "o").rglob("*") if path.is_file()]) == 2


@pytest.mark.parametrize(
    ("task", "extra"),
    [
        ("ehrshot", {}),
        ("shc_bmt_med", {}),
        ("custom.mine", {}),
        ("pubmed_qa", {"data_path": "/home/doe"}),
    ],
)
def test_no_text_of_private_data_is_in_any_file(
    task: str, extra: dict[str, Any], tmp_path: Path
) -> None:
    stored = stored_of(task, extra=extra)
    cause = FailureCause("model", 1, f"HTTP 400: bad prompt {PROMPT}", None)
    stored = not_reportable(stored, "too few", causes=(cause,))
    score = replace(stored.result.scores["exact_match"], higher_is_better=True)
    (written,) = write_records(with_scores(stored, exact_match=score), tmp_path / "o", WHO, now=NOW)
    (only,) = [path for path in (tmp_path / "o").rglob("*") if path.is_file()]
    assert only == written
    text = written.read_text("utf-8")
    for secret in (
        PROMPT,
        ANSWER,
        REFERENCE,
        facts.CATEGORY,
        "it is gout",
        "id0",
        "/home/doe",
        "HTTP 400",
    ):
        assert secret not in text, secret
    assert "detailed_evaluation_results" not in text
    assert json.loads(text)["evaluation_results"][0]["score_details"]["score"] == 0.5


def test_samples_of_an_earlier_export_do_not_stay_beside_a_record_without(tmp_path: Path) -> None:
    stored = stored_of("pubmed_qa")
    _, samples = write_records(stored, tmp_path / "o", WHO, now=NOW)
    private = replace(stored, config={"params": {"extra": {"data_path": "/mine"}}})
    write_records(private, tmp_path / "o", WHO, now=NOW)
    assert not samples.exists()
    other = replace(stored.result.scores["exact_match"], higher_is_better=True)
    without = replace(stored, result=replace(stored.result, scores={"other": other}))
    assert len(write_records(without, tmp_path / "o", WHO, now=NOW)) == 1


def test_what_the_record_says_of_the_run() -> None:
    record = record_of(stored_of("pubmed_qa"))
    assert record["schema_version"] == "0.3.0"
    assert record["retrieved_timestamp"] == "1795000000"
    assert record["evaluation_id"].startswith("pubmed_qa/org/model/")
    assert record["source_metadata"] == {
        "source_name": "eval-factory",
        "source_type": "evaluation_run",
        "source_organization_name": "A Hospital",
        "evaluator_relationship": "third_party",
    }
    assert (record["eval_library"]["name"], record["eval_library"]["version"]) == ("helm", "0.5.16")
    assert record["model_info"] == {
        "name": "org/model",
        "id": "org/model",
        "developer": "org",
        "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
    }


def test_the_record_of_an_imported_result_names_its_program() -> None:
    record = record_of(imported_of("pubmed_qa"))
    library = record["eval_library"]
    assert (library["name"], library["version"]) == ("inspect_ai", "0.3.2")
    config = record["evaluation_results"][0]["metric_config"]
    assert config["metric_id"] == "inspect_ai.exact_match"
    attribution = samples(imported_of("pubmed_qa"))[0]["answer_attribution"][0]
    assert attribution["extraction_method"] == "inspect_ai.exact_match"


@pytest.mark.parametrize(
    ("host", "is_named"),
    [
        ("api.openai.com", True),
        ("openrouter.ai:443", True),
        ("llm-3.ward.hospital.internal:8000", False),
        ("10.1.2.3:8000", False),
        ("gpu07", False),
        ("models.hospital.org", False),
        ("notopenai.com", False),
        ("our-openai.openai.azure.com", False),
        ("openai.com.hospital.org", False),
    ],
)
def test_only_a_public_platform_is_named(host: str, is_named: bool) -> None:
    stored = stored_of("pubmed_qa")
    provenance = stored.result.provenance
    asked = {role: replace(one, host=host) for role, one in provenance.endpoints.items()}
    result = replace(stored.result, provenance=replace(provenance, endpoints=asked))
    record = record_of(replace(stored, result=result))
    assert ("inference_platform" in record["model_info"]) == is_named
    assert (host in json.dumps(record)) == is_named


def test_a_score_with_all_that_is_known_of_it() -> None:
    stored = stored_of("pubmed_qa")
    known = replace(
        stored.result.scores["exact_match"], higher_is_better=True, scale=(0.0, 1.0), unit="share"
    )
    score = only_score(with_scores(stored, exact_match=known))
    assert score["metric_config"] == {
        "metric_id": "helm.exact_match",
        "metric_name": "exact_match",
        "metric_unit": "share",
        "lower_is_better": False,
        "score_type": "continuous",
        "min_score": 0.0,
        "max_score": 1.0,
    }
    assert score["score_details"]["score"] == 0.5
    stats = known.stats
    assert score["score_details"]["uncertainty"] == {
        "num_samples": 4,
        "standard_error": {"value": stats.stderr},
        "standard_deviation": stats.stddev,
        "confidence_interval": {
            "lower": stats.ci_low,
            "upper": stats.ci_high,
            "confidence_level": 0.95,
            "method": stats.ci_method,
        },
    }
    details = score["score_details"]["details"]
    assert (details["reportable"], details["main_metric"], details["bounds"]) == (
        "true",
        "true",
        "0.5 .. 0.5",
    )
    assert "not_reportable" not in details
    assert score["generation_config"] == {"generation_args": {"temperature": 0.5, "max_tokens": 9}}
    assert score["source_data"]["url"] == ["https://github.com/pubmedqa/pubmedqa"]


def test_figures_that_are_not_defined_are_left_out() -> None:
    stored = stored_of("pubmed_qa")
    score = stored.result.scores["exact_match"]
    stats = replace(score.stats, stddev=None, stderr=None, ci_low=None)
    bare = only_score(with_scores(stored, exact_match=replace(score, stats=stats)))
    assert bare["score_details"]["uncertainty"] == {"num_samples": 4}
    assert set(bare["metric_config"]) == {
        "metric_id",
        "metric_name",
        "lower_is_better",
        "metric_unit",
        "score_type",
        "min_score",
        "max_score",
    }


@pytest.mark.parametrize(
    ("value", "is_in"), [(1.0, True), (5.0, True), (0.99, False), (5.01, False)]
)
def test_a_scale_that_does_not_hold_the_score_is_left_out(value: float, is_in: bool) -> None:
    stored = stored_of("pubmed_qa")
    score = replace(stored.result.scores["exact_match"], value=value, scale=(1.0, 5.0))
    assert (
        "max_score" in only_score(with_scores(stored, exact_match=score))["metric_config"]
    ) is is_in


def test_metrics_of_unknown_direction_are_left_out_but_for_the_main_one() -> None:
    stored = stored_of("pubmed_qa")
    score = replace(stored.result.scores["exact_match"], higher_is_better=None)
    worse = replace(score, higher_is_better=False)
    infinite = replace(score, value=float("inf"), higher_is_better=True)
    record = record_of(with_scores(stored, wer=worse, odd=score, endless=infinite))
    metrics = [one["metric_config"] for one in record["evaluation_results"]]
    assert {one["metric_name"]: one["lower_is_better"] for one in metrics} == {
        "exact_match": False,
        "wer": True,
    }
    stored = stored_of("helm:mmlu")
    unknown = {
        name: replace(score, higher_is_better=None) for name, score in stored.result.scores.items()
    }
    with pytest.raises(ConfigError, match="higher score"):
        aggregate_record(with_scores(stored, **unknown), WHO, now=NOW)


def test_a_result_that_may_not_be_reported_says_so_and_judges_are_named_by_their_models() -> None:
    details = only_score(not_reportable(stored_of("pubmed_qa"), "for a reason"))["score_details"][
        "details"
    ]
    assert details["reportable"] == "false"
    says(details["not_reportable"], "for a reason", "4 of 4 instances")
    stored = stored_of("pubmed_qa")
    judges = {name: JudgeCounts(4, 4, 0) for name in ("gpt", "claude")}
    stored = replace(
        stored,
        result=replace(stored.result, validity=replace(stored.result.validity, judges=judges)),
    )
    asked = {"model": facts.ASKED, "gpt": replace(facts.ASKED, model="openai/gpt-4o")}
    stored = with_provenance(stored, endpoints=asked)
    assert only_score(stored)["score_details"]["details"]["judges"] == "claude, openai/gpt-4o"


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (({"temperature": 0.0}, {"temperature": 1.0}), {}),
        ((), {}),
        (
            ({"temperature": "hot", "top_p": 0.5, "max_completion_tokens": 7},),
            {"top_p": 0.5, "max_tokens": 7},
        ),
        (({"max_tokens": 1, "top_p": float("nan")},), {"max_tokens": 1}),
    ],
)
def test_generation_that_all_requests_had(
    sampling: tuple[dict[str, Any], ...], expected: dict[str, Any]
) -> None:
    stored = with_provenance(
        stored_of("pubmed_qa"), endpoints={"model": replace(facts.ASKED, sampling=sampling)}
    )
    assert only_score(stored)["generation_config"] == {"generation_args": expected}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("head_qa", {"source_type": "hf_dataset", "hf_repo": "dvilares/head_qa"}),
        ("pubmed_qa", {"source_type": "url", "url": ["https://github.com/pubmedqa/pubmedqa"]}),
        ("sample_medical_qa", {"source_type": "other"}),
        ("ehrshot", {"source_type": "other"}),
    ],
)
def test_where_the_data_are_from(task: str, expected: dict[str, Any]) -> None:
    source = only_score(stored_of(task))["source_data"]
    assert source.pop("dataset_name") == task
    source.pop("additional_details", None)
    assert source == expected


@pytest.mark.parametrize(
    ("model", "developer", "folder", "whole"),
    [
        ("org/model:v1", None, "pubmed_qa/org/model_v1", "org/model:v1"),
        ("a/b/c", None, "pubmed_qa/a/b_c", "a/b/c"),
        ("gpt-4", "openai", "pubmed_qa/openai/gpt-4", "openai/gpt-4"),
        ("azure/gpt-4", "openai", "pubmed_qa/openai/gpt-4", "openai/gpt-4"),
        ("../x", None, "pubmed_qa/_/x", "../x"),
        ("data/..", None, "pubmed_qa/data_/_", "data/.."),
    ],
)
def test_files_lie_by_developer_and_model(
    model: str, developer: str | None, folder: str, whole: str, tmp_path: Path
) -> None:
    stored = stored_of("pubmed_qa", model=model)
    file = write_records(stored, tmp_path / "o", replace(WHO, developer=developer), now=NOW)[0]
    assert file.parent == tmp_path / "o" / "data" / folder
    assert json.loads(file.read_text("utf-8"))["model_info"]["id"] == whole


@pytest.mark.parametrize("model", ["gpt-4", "/gpt-4", "org/"])
def test_a_model_without_a_developer_needs_one(model: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--developer"):
        write_records(stored_of("pubmed_qa", model=model), tmp_path / "o", WHO, now=NOW)


RECORD = {"evaluation_id": "the run", "model_info": {"id": "org/model"}}


def samples(
    stored: StoredResult, instances: list[InstanceRecord] | None = None, **score: Any
) -> list[dict[str, Any]]:
    result = stored.result
    scores: dict[str, Score] = {"exact_match": replace(result.scores["exact_match"], **score)}
    instances = list(result.instances) if instances is None else instances
    found = list(
        samples_of(
            replace(stored, result=replace(result, scores=scores, instances=instances)), RECORD
        )
    )
    for sample in found:
        check(sample, "instance")
    return found


@pytest.fixture
def stored() -> StoredResult:
    return stored_of("pubmed_qa")


@pytest.fixture
def instance(stored: StoredResult) -> InstanceRecord:
    return next(iter(stored.result.instances))


def test_a_sample_has_all_that_is_known_of_an_instance(stored: StoredResult) -> None:
    first = samples(stored)[0]
    text = json.dumps(
        {"raw": PROMPT, "reference": [REFERENCE]}, sort_keys=True, separators=(",", ":")
    )
    assert first == {
        "schema_version": "0.3.0",
        "evaluation_id": "the run",
        "model_id": "org/model",
        "evaluation_name": "pubmed_qa",
        "evaluation_result_id": "pubmed_qa/exact_match",
        "sample_id": "id0",
        "sample_hash": hashlib.sha256(text.encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": PROMPT, "reference": [REFERENCE], "choices": [REFERENCE, "it is gout"]},
        "output": {"raw": [ANSWER]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": ANSWER,
                "extraction_method": "helm.exact_match",
                "is_terminal": True,
            }
        ],
        "metadata": {"split": "test", "finish_reason": "stop"},
        "token_usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
        "performance": {"latency_ms": 250.0},
        "evaluation": {"score": 1.0, "is_correct": True},
    }


def test_what_is_not_known_of_an_instance_is_left_out(
    stored: StoredResult, instance: InstanceRecord
) -> None:
    bare = replace(
        instance, completion_tokens=None, latency_s=None, finish_reason=None, references=()
    )
    (sample,) = samples(stored, [bare])
    assert not {"token_usage", "performance"} & set(sample)
    assert sample["metadata"] == {"split": "test"}
    assert sample["input"] == {"raw": PROMPT, "reference": []}
    (sample,) = samples(stored, [replace(instance, prompt_tokens=None)])
    assert "token_usage" not in sample
    right, wrong = instance.references
    (sample,) = samples(stored, [replace(instance, references=(right,))])
    assert "choices" not in sample["input"]
    (sample,) = samples(stored, [replace(instance, references=(wrong,))])
    assert sample["input"] == {"raw": PROMPT, "reference": []}


def test_which_instances_are_samples_by_trial(
    stored: StoredResult, instance: InstanceRecord
) -> None:
    left = [
        replace(instance, id="none", metrics={}),
        replace(instance, id="other", metrics={"other": 1.0}),
        replace(instance, id="failed", completion=None),
        replace(instance, id="empty", completion=""),
        replace(instance, id="endless", metrics={"exact_match": float("inf")}),
    ]
    assert [sample["sample_id"] for sample in samples(stored, left)] == ["empty"]
    first, second = samples(stored, [instance, replace(instance, trial=1)])
    assert (first["sample_id"], second["sample_id"]) == ("id0", "id0#1")
    assert "epoch" not in first["metadata"]
    assert second["metadata"]["epoch"] == "2"


def test_samples_are_those_of_the_main_score(
    stored: StoredResult, instance: InstanceRecord
) -> None:
    asked_again = replace(instance, perturbation="repeat_2")
    other_split = replace(instance, id="other", split="valid")
    (sample,) = samples(stored, [instance, asked_again, other_split])
    assert sample["sample_id"] == "id0"


@pytest.mark.parametrize(
    ("value", "score", "right"),
    [
        (1.0, {}, True),
        (0.99, {}, False),
        (5.0, {"scale": (1.0, 5.0)}, True),
        (4.9, {"scale": (1.0, 5.0)}, False),
        (0.0, {"scale": (0.0, 1.0), "higher_is_better": False}, True),
        (0.1, {"scale": (0.0, 1.0), "higher_is_better": False}, False),
        (1.0, {"higher_is_better": False}, False),
    ],
)
def test_right_is_the_best_value_there_is(
    value: float, score: dict[str, Any], right: bool, stored: StoredResult, instance: InstanceRecord
) -> None:
    (sample,) = samples(stored, [replace(instance, metrics={"exact_match": value})], **score)
    assert sample["evaluation"] == {"score": value, "is_correct": right}
