"""Exports a result as records of the community schema Every Eval Ever, version 0.3.0.

The schema is at github.com/evaleval/every_eval_ever. The community's collection expects a record at
`data/<task>/<developer>/<model>/<uuid>.json`, with the file of the record's samples next to it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.errors import ConfigError
from eval_factory.core.results import MODEL_ROLE, InstanceRecord, Score
from eval_factory.core.safe_files import atomic_file, json_line, write_atomic
from eval_factory.report.documents import without_nulls
from eval_factory.report.exports import stored_facts
from eval_factory.report.inner_hosts import is_public_platform
from eval_factory.report.reader import StoredResult

SOURCE_NAME = "eval-factory"
_SCHEMA_VERSION = "0.3.0"


def samples_of(stored: StoredResult, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a sample for each instance of the main score with an answer and a finite value.

    The schema does not allow samples without a score. Instances of other splits and perturbations,
    such as questions that were asked again, do not belong to the main score. `record` is the dict
    that `aggregate_record` returned.
    """
    name = stored.result.main_metric
    score = stored.result.scores[name]
    for instance in stored.result.instances:
        if not score.covers(instance):
            continue
        value = instance.metrics.get(name)
        completion = instance.completion
        if value is None or completion is None or not math.isfinite(value):
            continue
        yield {
            "schema_version": _SCHEMA_VERSION,
            "evaluation_id": record["evaluation_id"],
            "model_id": record["model_info"]["id"],
            "evaluation_name": stored.result.task,
            "evaluation_result_id": f"{stored.result.task}/{name}",
            **_sample(
                instance, completion, scorer=stored_facts.scorer_of(stored, score.metric or name)
            ),
            "evaluation": {"score": value, "is_correct": _is_best(value, score)},
        }


def _is_best(value: float, score: Score) -> bool:
    """Return True if an instance's value is the best possible value of a score.

    The schema requires that each sample is right or wrong: only the best value is right. If the
    score's scale is not known, the values from 1 on are the best. If the scale is not known and
    lower values are better, no value is the best.
    """
    if score.higher_is_better is False:
        return score.scale is not None and value <= score.scale[0]
    if score.scale is None:
        return value >= 1.0
    return value >= score.scale[1]


def _sample(instance: InstanceRecord, completion: str, *, scorer: str) -> dict[str, Any]:
    """Return the fields of a sample that describe its question, answer, tokens and latency.

    `scorer`: the metric with its program, as `scorer_of` returns it.
    """
    right_answers = []
    references = []
    for reference in instance.references:
        references.append(reference["text"])
        if "correct" in reference["tags"]:
            right_answers.append(reference["text"])
    question: dict[str, Any] = {"raw": instance.prompt, "reference": right_answers}
    # The community's converters for other programs hash a question in this form, without choices.
    # Equal questions therefore have equal hashes.
    hashed_text = json.dumps(question, sort_keys=True, separators=(",", ":"))
    # References are choices only if some of them are right and some are wrong.
    if len(references) > len(right_answers) > 0:
        question["choices"] = references
    sample_id = instance.id
    epoch = None
    if instance.trial:  # The first trial has the number 0, and most results have no other trial.
        sample_id = f"{instance.id}#{instance.trial}"
        epoch = str(instance.trial + 1)  # the number of the trial, counted from 1
    sample: dict[str, Any] = {
        "sample_id": sample_id,
        "sample_hash": hashlib.sha256(hashed_text.encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": question,
        "output": {"raw": [completion]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": completion,
                "extraction_method": scorer,
                "is_terminal": True,
            }
        ],
        "metadata": without_nulls(
            {
                "split": instance.split,
                "finish_reason": instance.finish_reason,
                "epoch": epoch,
            }
        ),
    }
    prompt_tokens = instance.prompt_tokens
    completion_tokens = instance.completion_tokens
    if prompt_tokens is not None and completion_tokens is not None:
        sample["token_usage"] = {
            "input_tokens": prompt_tokens,
            "output_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
    if instance.latency_s is not None:
        sample["performance"] = {"latency_ms": round(instance.latency_s * 1000, 3)}
    return sample


@dataclass(frozen=True)
class Publisher:
    """The facts about the publisher of a result, which are not in the output folder."""

    organization: str  # the organization that evaluated the model
    relationship: str = "other"  # the relation of the organization to the model's developer
    # the model's developer; if None, a model id such as `developer/model` names the developer
    developer: str | None = None


def write_records(
    stored: StoredResult, folder: Path, publisher: Publisher, *, now: float
) -> list[Path]:
    """Write the record of a result into a folder, and return the paths of the written files.

    The samples are written too if the task's data are public.

    Args:
        stored: The result.
        folder: The folder of the collection, which has or gets the folder `data`.
        publisher: The facts about the publisher.
        now: The time of the export, in seconds since the epoch.

    Raises:
        ConfigError: The model's developer is not known, or no score can be exported.
    """
    record = aggregate_record(stored, publisher, now=now)
    # The UUID has the form of version 4 but depends on the result alone, so that a second export
    # writes the same file.
    name = uuid.UUID(hex=stored_facts.result_digest(stored)[:32], version=4)
    developer = record["model_info"]["developer"]
    model = record["model_info"]["id"].removeprefix(f"{developer}/")
    folder_names = map(_folder_name, (stored.result.task, developer, model))
    record_folder = folder.joinpath("data", *folder_names)
    record_path = record_folder / f"{name}.json"
    samples_path = record_folder / f"{name}_samples.jsonl"
    written = [record_path]
    rows, digest = _write_samples(stored, record, samples_path)
    if rows:
        written.append(samples_path)
        record["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": samples_path.relative_to(folder).as_posix(),
            "hash_algorithm": "sha256",
            "checksum": digest,
            "total_rows": rows,
        }
    else:  # Remove the samples of an earlier export of the same result.
        samples_path.unlink(missing_ok=True)
    write_atomic(record_path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return written


def _folder_name(text: str) -> str:
    """Return a text as a folder name that every system allows.

    The name is never `data`, so that only the top folder of the records has this name.
    """
    # `helm:mmlu:subject=anatomy` becomes `helm_mmlu_subject_anatomy`.
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip(".") or "_"
    if safe == "data":
        return "data_"
    return safe


def _write_samples(stored: StoredResult, record: Mapping[str, Any], path: Path) -> tuple[int, str]:
    """Write the samples if their texts are public; return their number and the file's SHA-256.

    Nothing is written if the texts are not public, or if the record does not have the main score.
    """
    digest = hashlib.sha256()
    rows = 0
    main = f"{stored.result.task}/{stored.result.main_metric}"
    exported = [score["evaluation_result_id"] for score in record["evaluation_results"]]
    if stored_facts.may_export_texts(stored) and main in exported:
        with atomic_file(path) as lines:
            for sample in samples_of(stored, record):
                line = json_line(sample) + "\n"
                digest.update(line.encode())
                lines.write(line)
                rows += 1
    return rows, digest.hexdigest()


def aggregate_record(stored: StoredResult, publisher: Publisher, *, now: float) -> dict[str, Any]:
    """Return the aggregate record: metrics, numbers and versions, but no texts of the data.

    `now` is the time of the export, in seconds since the epoch. Raises ConfigError if the model's
    developer is not known, or if no score can be exported.
    """
    result = stored.result
    provenance = result.provenance
    model_id = stored_facts.model_id(stored)
    developer, model = _developer_and_model(stored, publisher)
    score_records = []
    for name, score in result.scores.items():
        # The schema requires the direction of a metric. For the main metrics of the tasks in
        # framework.yml, higher is better.
        is_main = name == result.main_metric and stored_facts.task_of(stored) is not None
        if math.isfinite(score.value) and (is_main or score.higher_is_better is not None):
            score_records.append(_score_record(stored, name, score))
    if not score_records:
        raise ConfigError(
            f"{stored.folder}: no score of {result.task} can be exported: each score is not a "
            "finite number, or it is not known whether a higher score is better"
        )
    program = provenance.upstream
    version = provenance.helm or "unknown"
    if provenance.imported is not None:
        program = provenance.imported.program
        version = provenance.imported.version
    platform = {}
    endpoint = provenance.endpoints.get(MODEL_ROLE)
    # The name of any other host may be internal.
    if endpoint is not None and is_public_platform(endpoint.host):
        platform = {"inference_platform": endpoint.host}
    return {
        "schema_version": _SCHEMA_VERSION,
        "evaluation_id": f"{result.task}/{model_id}/{stored_facts.result_digest(stored)[:16]}",
        "retrieved_timestamp": str(int(now)),
        "source_metadata": {
            "source_name": SOURCE_NAME,
            "source_type": "evaluation_run",
            "source_organization_name": publisher.organization,
            "evaluator_relationship": publisher.relationship,
        },
        "eval_library": {
            "name": program,
            "version": version,
            "additional_details": {
                "eval_factory": provenance.eval_factory,
                "run_identity": provenance.run_identity,
            },
        },
        "model_info": {
            "name": model_id,
            "id": f"{developer}/{model}",
            "developer": developer,
            **platform,
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": score_records,
    }


def _developer_and_model(stored: StoredResult, publisher: Publisher) -> tuple[str, str]:
    """Return the developer of the model, and the model's name without the developer.

    Raises ConfigError if the developer is not known.
    """
    model_id = stored_facts.model_id(stored)
    developer, _, model = model_id.partition("/")
    if developer and model:  # The id has the form `developer/model`.
        return publisher.developer or developer, model
    if publisher.developer is None:
        raise ConfigError(
            f"{stored.folder}: the model id {model_id!r} does not say who developed the model\n"
            "  give --developer NAME, as it is called on the Hugging Face Hub"
        )
    return publisher.developer, model_id


def _score_record(stored: StoredResult, name: str, score: Score) -> dict[str, Any]:
    """Return the record of one score, with its metric, uncertainty and settings."""
    config: dict[str, Any] = {
        "metric_id": stored_facts.scorer_of(stored, name),
        "metric_name": name,
        "lower_is_better": score.higher_is_better is False,
    }
    if score.unit is not None:
        config["metric_unit"] = score.unit
    # A score outside of its scale would contradict `min_score` and `max_score`.
    if score.scale is not None and score.scale[0] <= score.value <= score.scale[1]:
        config |= {
            "score_type": "continuous",
            "min_score": score.scale[0],
            "max_score": score.scale[1],
        }
    stats = score.stats
    interval = None
    if stats.ci_low is not None and stats.ci_high is not None:
        interval = {
            "lower": stats.ci_low,
            "upper": stats.ci_high,
            "confidence_level": 0.95,
            "method": stats.ci_method or "unknown",
        }
    stderr = None
    if stats.stderr is not None:
        stderr = {"value": stats.stderr}
    uncertainty = {
        "num_samples": stats.count,
        "standard_error": stderr,
        "standard_deviation": stats.stddev,
        "confidence_interval": interval,
    }
    return {
        "evaluation_result_id": f"{stored.result.task}/{name}",
        "evaluation_name": stored.result.task,
        "source_data": _source_data(stored),
        "metric_config": config,
        "score_details": {
            "score": score.value,
            "details": _score_details(stored, name),
            "uncertainty": without_nulls(uncertainty),
        },
        "generation_config": {"generation_args": _generation_settings(stored)},
    }


def _generation_settings(stored: StoredResult) -> dict[str, Any]:
    """Return those settings of the requests that have a field in the schema."""
    sent = stored_facts.sampling_of(stored)
    if "max_completion_tokens" in sent:
        # Another name of `max_tokens`. If both were sent, `max_tokens` counts.
        sent = {"max_tokens": sent["max_completion_tokens"], **sent}
    settings: dict[str, Any] = {}
    for name in ("temperature", "top_p", "max_tokens"):
        if name in sent:
            settings[name] = sent[name]
    return settings


def _score_details(stored: StoredResult, name: str) -> dict[str, str]:
    """Return the details of a score as texts, as the schema requires.

    The details of each score say whether the result may be reported.
    """
    result = stored.result
    validity = result.validity
    details = {
        "reportable": _true_or_false(result.reportable),
        "status": result.status,
        "main_metric": _true_or_false(name == result.main_metric),
        "instances_requested": str(validity.instances.requested),
        "instances_scored": str(validity.instances.scored),
        "instances_failed": str(validity.instances.failed),
        "data_access": stored_facts.access_of(stored),
        "prompts_sha256": result.provenance.prompts_sha256,
    }
    if not result.reportable:
        details["not_reportable"] = stored_facts.reasons_against_reporting(stored)
    if name in validity.bounds:
        details["bounds"] = " .. ".join(map(str, validity.bounds[name]))
    judge_models = []
    for role in sorted(validity.judges):
        endpoint = result.provenance.endpoints.get(role)
        if endpoint is None:
            judge_models.append(role)
        else:
            judge_models.append(endpoint.model)
    if judge_models:
        details["judges"] = ", ".join(judge_models)
    return details


def _true_or_false(value: bool) -> str:
    """Return `true` or `false`."""
    return str(value).lower()


def _source_data(stored: StoredResult) -> dict[str, Any]:
    """Return the source of the data.

    The source is described only if the data of the task are public. Its address is added if the
    source is the Hugging Face Hub or GitHub.
    """
    task = stored_facts.task_of(stored)
    name = stored.result.task
    address: dict[str, Any] = {"source_type": "other"}
    if task is None or not stored_facts.may_export_texts(stored):
        return {"dataset_name": name, **address}
    dataset_id = stored_facts.hub_dataset(task)
    # `owner/name` of `GitHub owner/name`
    repository = re.fullmatch(r"GitHub ([\w.-]+/[\w.-]+)", task.about.source)
    if dataset_id is not None:
        address = {"source_type": "hf_dataset", "hf_repo": dataset_id}
    elif repository is not None:
        address = {"source_type": "url", "url": [f"https://github.com/{repository[1]}"]}
    return {"dataset_name": name, **address, "additional_details": {"source": task.about.source}}
