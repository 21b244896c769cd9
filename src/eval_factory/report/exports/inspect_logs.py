"""Exports a result as an evaluation log of Inspect (`inspect_ai`).

The log has version 2 of Inspect's JSON format, as the classes of `inspect_ai.log` 0.3.285 read it.
In this format, a sample is identified by its id and its epoch, the number of a trial counted from
1. A sample with an error has no score. An input is a text or a list of messages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.enums import MODEL_ROLE, RunStatus
from eval_factory.core.finish_reasons import facts_of_finish_reason
from eval_factory.core.results import InstanceRecord, Spent
from eval_factory.core.safe_files import write_atomic
from eval_factory.report.documents import without_nulls
from eval_factory.report.exports.stored_facts import (
    may_export_texts,
    model_id,
    reasons_against_reporting,
    result_digest,
    sampling_of,
    scorer_of,
)
from eval_factory.report.reader import StoredResult

OUR_PACKAGE = "eval-factory-helm"
NOT_PUBLIC = "[left out: the benchmark's data are not public; --with_texts exports them]"
_ID_LENGTH = 22  # the number of characters of Inspect's own ids
_INSPECT_ROLES = {"developer": "system"}  # dict from a turn's role to Inspect's, if they differ


def write_inspect_log(stored: StoredResult, folder: Path, *, with_texts: bool) -> Path:
    """Write the log of a result into a folder, and return the path of the file.

    The same result always gives the same file. `with_texts` exports prompts and answers even if the
    benchmark's data are not public.
    """
    digest = result_digest(stored)
    # A log must have a time. If the time is unknown, use one that is clearly not the time of a run.
    created = stored.result.provenance.started_at or "1970-01-01T00:00:00Z"
    # As in Inspect, the name of the file has the time (with its zone), the task and an id.
    # `2026-11-28T10:00:00Z` and `pubmed_qa` become `2026-11-28T10-00-00-00-00-pubmed-qa`.
    name = f"{created.replace('Z', '+00-00')}_{stored.result.task}"
    name = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")
    path = folder / f"{name}_{digest[:_ID_LENGTH]}.json"
    log = inspect_log(stored, created=created, with_texts=with_texts or may_export_texts(stored))
    write_atomic(path, json.dumps(log, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def inspect_log(stored: StoredResult, *, created: str, with_texts: bool) -> dict[str, Any]:
    """Return the document of the log.

    The log of an incomplete run has the status `error`, with the reason. `created` is the time of
    the run in ISO 8601.
    """
    result = stored.result
    model = model_id(stored)
    samples = []
    completed = 0
    for record in result.instances:
        sample = _sample(stored, record, model, with_texts=with_texts)
        if "error" not in sample:
            completed += 1
        samples.append(sample)
    program = "helm"  # the program that asked the model
    if result.provenance.imported is not None:
        program = result.provenance.imported.program
    sampling = sampling_of(stored)
    generate_config: dict[str, Any] = {}
    for name in ("temperature", "top_p", "max_tokens"):
        if name in sampling:
            generate_config[name] = sampling[name]
    status = "success"
    error = {}
    if result.status != RunStatus.COMPLETE:
        status = "error"
        error = {
            "error": _error_record(reasons_against_reporting(stored) or "the run is not complete")
        }
    return {
        "version": 2,
        "status": status,
        "eval": _eval_section(stored, samples, generate_config, created),
        # Inspect reads the sections in this order, and its function `evals_df` needs all of them.
        "plan": {
            "name": "plan",
            "steps": [{"solver": f"{program}/{stored.result.task}", "params": {}}],
            "config": generate_config,
        },
        "results": {
            "total_samples": len(samples),
            "completed_samples": completed,
            "scores": list(_score_records(stored)),
        },
        "stats": _stats_section(stored, model),
        **error,
        "samples": samples,
    }


def _stats_section(stored: StoredResult, model: str) -> dict[str, Any]:
    """Return the log's section `stats`: times, and tokens of the model and of the judges."""
    provenance = stored.result.provenance
    by_model = {}
    by_role = {}
    for role, spent in stored.result.usage.this_run.roles.items():
        if role == MODEL_ROLE:
            by_model[model] = _token_counts(spent)
        else:
            by_role[role] = _token_counts(spent)
    return {
        "started_at": provenance.started_at or "",
        "completed_at": provenance.ended_at or "",
        "model_usage": by_model,
        "role_usage": by_role,
    }


def _eval_section(
    stored: StoredResult,
    samples: Sequence[Mapping[str, Any]],
    generate_config: Mapping[str, Any],
    created: str,
) -> dict[str, Any]:
    """Return the log's section `eval`: task, data, model and versions."""
    result = stored.result
    provenance = result.provenance
    digest = result_digest(stored)
    # The samples of several trials have the same id.
    sample_ids = list(dict.fromkeys(sample["id"] for sample in samples))
    packages = {
        OUR_PACKAGE: provenance.eval_factory,
        provenance.helm_package: provenance.helm,
    }
    imported = provenance.imported
    if imported is not None:
        packages[imported.program] = imported.version
    metadata = {
        "main_metric": result.main_metric,
        "reportable": result.reportable,
        "not_reportable": reasons_against_reporting(stored) or None,
        "notes": list(result.validity.notes),
        "run_identity": provenance.run_identity,
    }
    return {
        "eval_id": digest[:_ID_LENGTH],
        "run_id": digest[_ID_LENGTH : 2 * _ID_LENGTH],  # another part, so that the ids differ
        "task_id": provenance.run_identity[:_ID_LENGTH],
        "created": created,
        "task": result.task,
        "model": model_id(stored),
        "dataset": {
            "name": result.task,
            "samples": len(sample_ids),
            "sample_ids": sample_ids,
        },
        "model_generate_config": generate_config,
        "config": {"epochs": max((sample["epoch"] for sample in samples), default=1)},
        "packages": without_nulls(packages),
        "metadata": without_nulls(metadata),
    }


def _score_records(stored: StoredResult) -> Iterator[dict[str, Any]]:
    """Yield the scores, the main score first: Inspect shows the first score of a log."""
    main = stored.result.main_metric
    scores = stored.result.scores
    # `False` is sorted before `True`: the main score comes first, the others keep their order.
    for name in sorted(scores, key=lambda name: name != main):
        stats = scores[name].stats
        metrics = {}
        for label, value in (
            ("mean", scores[name].value),
            ("stderr", stats.stderr),
            ("ci_low", stats.ci_low),
            ("ci_high", stats.ci_high),
        ):
            if value is not None and math.isfinite(value):
                metrics[label] = {"name": label, "value": value}
        yield {
            "name": name,
            "scorer": scorer_of(stored, scores[name].metric or name),
            "scored_samples": stats.count,
            "metrics": metrics,
        }


def _sample(
    stored: StoredResult, instance: InstanceRecord, model: str, *, with_texts: bool
) -> dict[str, Any]:
    """Return the sample of one instance, in one trial and perturbation.

    A sample without an answer has an error, and neither messages nor scores.
    """
    question = _question_fields(instance, with_texts=with_texts)
    if instance.error is not None or instance.completion is None:
        return {**question, "scores": {}, "error": _error_record(instance.error or "no answer")}
    completion = _text_or_placeholder(instance.completion, with_texts=with_texts)
    answer = {"role": "assistant", "content": completion, "source": "generate", "model": model}
    tokens = _token_counts(instance)
    prompt_messages = _messages(instance, with_texts=with_texts)
    if not prompt_messages:
        prompt = _text_or_placeholder(instance.prompt, with_texts=with_texts)
        prompt_messages = [{"role": "user", "content": prompt}]
    judge_fields = _judge_fields(instance, with_texts=with_texts)
    scores = {}
    for name in stored.result.scores:
        # The label of a score on another split, such as `exact_match@valid`, is no metric.
        value = instance.metrics.get(name)
        if value is not None and math.isfinite(value):
            scores[name] = {"value": value, "answer": completion, **judge_fields}
    stop_reason = facts_of_finish_reason(instance.finish_reason).inspect or "unknown"
    return {
        **question,
        "messages": [*prompt_messages, answer],
        "output": {
            "model": model,
            "choices": [{"message": answer, "stop_reason": stop_reason}],
            "usage": tokens,
            **without_nulls({"time": instance.latency_s}),
        },
        "scores": scores,
        "model_usage": {model: tokens},
        **without_nulls({"total_time": instance.latency_s}),
    }


def _question_fields(instance: InstanceRecord, *, with_texts: bool) -> dict[str, Any]:
    """Return the fields of a sample that do not depend on the answer.

    These are the id, the input, the target, the choices and the metadata.
    """
    sample_id = instance.id
    if instance.perturbation is not None:
        sample_id = f"{instance.id}+{instance.perturbation}"
    right_answers = []
    choices = []
    for reference in instance.references:
        if "correct" in reference["tags"]:
            right_answers.append(_text_or_placeholder(reference["text"], with_texts=with_texts))
        if with_texts:
            choices.append(reference["text"])
    target: str | list[str] = right_answers
    if len(right_answers) == 1:
        target = right_answers[0]
    prompt: str | list[dict[str, str]] = _messages(instance, with_texts=with_texts)
    if not prompt:
        prompt = _text_or_placeholder(instance.prompt, with_texts=with_texts)
    question: dict[str, Any] = {
        "id": sample_id,
        "epoch": instance.trial + 1,
        "input": prompt,
        "target": target,
    }
    # References are choices only if some of them are right and some are wrong.
    if len(choices) > len(right_answers) > 0:
        question["choices"] = choices
    facts = {
        "split": instance.split,
        "perturbation": instance.perturbation,
        "cluster": instance.cluster,
    }
    question["metadata"] = {**without_nulls(facts), **instance.categories}
    return question


def _messages(instance: InstanceRecord, *, with_texts: bool) -> list[dict[str, str]]:
    """Return the turns of the prompt as messages; an empty list if the prompt is one text."""
    messages = []
    for turn in instance.turns:
        role = _INSPECT_ROLES.get(turn["role"], turn["role"])
        content = _text_or_placeholder(turn["content"], with_texts=with_texts)
        messages.append({"role": role, "content": content})
    return messages


def _text_or_placeholder(text: str, *, with_texts: bool) -> str:
    """Return the text, or `NOT_PUBLIC` if the export must not have texts."""
    if with_texts:
        return text
    return NOT_PUBLIC


def _judge_fields(instance: InstanceRecord, *, with_texts: bool) -> dict[str, Any]:
    """Return the fields of a score that have the judges' ratings and explanations."""
    ratings = {}
    if instance.judges:
        ratings = {"judges": dict(instance.judges)}
    if instance.judgements or instance.criteria:
        explanations: Mapping[str, Any] = {
            "judgements": dict(instance.judgements),
            "criteria": list(instance.criteria),
        }
        text = json.dumps(explanations, ensure_ascii=False)
        explanation = _text_or_placeholder(text, with_texts=with_texts)
        return {"explanation": explanation, "metadata": ratings}
    if ratings:
        return {"metadata": ratings}
    return {}


def _token_counts(spent: Spent | InstanceRecord) -> dict[str, Any]:
    """Return the numbers of tokens with Inspect's keys; unknown numbers count as 0."""
    prompt = spent.prompt_tokens or 0
    completion = spent.completion_tokens or 0
    return {
        "input_tokens": prompt,
        "output_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _error_record(message: str) -> dict[str, str]:
    """Return an error with Inspect's keys, without a traceback."""
    return {"message": message, "traceback": "", "traceback_ansi": ""}
