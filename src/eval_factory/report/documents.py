"""The result as plain documents: evaluation_config.yaml, results.yml, run_config.yml, JSON lines. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import Any

import yaml

from eval_factory.core.results import (
    SCHEMA_VERSION,
    AskedEndpoint,
    InstanceRecord,
    Provenance,
    Score,
    Scores,
    SpentByRole,
    TaskResult,
    Usage,
)

EVALUATION_CONFIG_SCHEMA = "evaluation_config.schema.json"
RESULTS_SCHEMA = "results.schema.json"


def evaluation_config(result: TaskResult, config: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The standardised result; `config` holds `config` and `target` as run, redacted."""
    return {
        "schema_version": SCHEMA_VERSION,
        "status": result.status,
        "command": command,
        "config": config["config"],
        "target": config["target"],
        "results": _results(result, origin=True),
        "main_metric": result.main_metric,
        "validity": {
            "reportable": result.reportable,
            "coverage": result.validity.coverage,
            "not_reportable": list(result.validity.not_reportable),
            "instances": asdict(result.validity.instances),
            "judges": {name: asdict(counts) for name, counts in result.validity.judges.items()},
            "judgements": None if result.validity.judgements is None else asdict(result.validity.judgements),
            "jury": None if result.validity.jury is None else asdict(result.validity.jury),
            "bounds": {name: list(limits) for name, limits in result.validity.bounds.items()},
            "floors": {name: asdict(floor) for name, floor in result.validity.floors.items()},
            "main_split": result.validity.main_split,
            "splits": dict(result.validity.splits),
            "failures": [asdict(failure) for failure in result.validity.failures],
            "notes": list(result.validity.notes),
        },
        "usage": usage(result.usage),
        "provenance": _provenance(result.provenance),
    }


def _provenance(record: Provenance) -> dict[str, Any]:
    return {
        **asdict(record),
        "patches": None if record.patches is None else list(record.patches),
        "endpoints": {role: _endpoint(endpoint) for role, endpoint in record.endpoints.items()},
    }


def _endpoint(record: AskedEndpoint) -> dict[str, Any]:
    prompts = record.prompt_sha256
    lists = {"sampling": list(record.sampling), "prompt_sha256": None if prompts is None else list(prompts)}
    return {**asdict(record), **lists}


def usage(record: Usage) -> dict[str, Any]:
    """At the top the figures of this run; then those of this run and of all runs, in sum and by role."""
    return {
        **asdict(record.this_run.total),
        "wall_s": record.wall_s,
        "this_run": _spent(record.this_run),
        "all_runs": {"runs": record.runs, **_spent(record.all_runs)},
    }


def _spent(spent: SpentByRole) -> dict[str, Any]:
    return {**asdict(spent.total), "roles": {role: asdict(one) for role, one in spent.roles.items()}}


def results_yml(result: TaskResult, config: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The same in EvalFactory's own shape."""
    return {
        "git_hash": result.provenance.git_hash or "",
        "command": command,
        "config": config["config"],
        "target": config["target"],
        "results": _results(result, origin=False),
    }


def run_config(config: Mapping[str, Any], command: str, framework_name: str, pkg_name: str) -> dict[str, Any]:
    """The full merged configuration that is run."""
    return {
        "command": command,
        "framework_name": framework_name,
        "pkg_name": pkg_name,
        "config": config["config"],
        "target": config["target"],
    }


def _results(result: TaskResult, *, origin: bool) -> dict[str, Any]:
    """`origin`: each score says of which metric, split and perturbation it is, as EvalFactory's shape cannot."""
    groups = {
        field: {"groups": {value: {"metrics": _metrics(scores, origin=origin)} for value, scores in by_value.items()}}
        for field, by_value in result.groups.items()
    }
    metrics = _metrics(result.scores, origin=origin)
    return {
        "tasks": {result.task: {"metrics": metrics}},
        "groups": {result.task: {"metrics": metrics, "groups": groups}},
    }


def _metrics(scores: Scores, *, origin: bool) -> dict[str, Any]:
    return {"score": {"scores": {name: _score(score, origin=origin) for name, score in scores.items()}}}


def _score(score: Score, *, origin: bool) -> dict[str, Any]:
    stats = {name: value for name, value in asdict(score.stats).items() if value is not None}
    where = {"metric": score.metric, "split": score.split, "perturbation": score.perturbation} if origin else {}
    return {"value": score.value, "stats": stats, **where}


def instance_line(record: InstanceRecord) -> dict[str, Any]:
    """One line of instances.jsonl."""
    return {
        "id": record.id,
        "split": record.split,
        "sub_split": record.sub_split,
        "trial": record.trial,
        "perturbation": record.perturbation,
        "prompt": record.prompt,
        "references": list(record.references),
        **{f"extra.{name}": value for name, value in record.categories.items()},
    }


def result_line(record: InstanceRecord) -> dict[str, Any]:
    """One line of results.jsonl."""
    return {
        "id": record.id,
        "split": record.split,
        "trial": record.trial,
        "perturbation": record.perturbation,
        "completion": record.completion,
        "metrics": dict(record.metrics),
        "finish_reason": record.finish_reason,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "latency_s": record.latency_s,
        "cached": record.cached,
        "error": record.error,
        **({"judges": dict(record.judges)} if record.judges else {}),
        **({"unjudged": True} if record.unjudged else {}),
        **({"injection": list(record.injection)} if record.injection else {}),
        **({"signs": list(record.signs)} if record.signs else {}),
    }


class _Dumper(yaml.SafeDumper):
    """Writes every value in full: no anchors, so that any reader of YAML takes it."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class asks per value
        return True


def to_yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def schema(name: str) -> dict[str, Any]:
    """A JSON Schema that comes with the package."""
    text = (resources.files("eval_factory.report") / "schemas" / name).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def check(document: Mapping[str, Any], schema_name: str) -> None:
    """Raises `jsonschema.ValidationError` where a document is not of its schema: a defect of ours."""
    import jsonschema  # imported here: `--dry_run` checks nothing

    jsonschema.validate(document, schema(schema_name))
