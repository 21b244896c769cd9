"""A result that was written -> the record that it was written from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.results import (
    InstanceRecord,
    Instances,
    Provenance,
    Score,
    Spent,
    SpentByRole,
    Stats,
    TaskResult,
    Usage,
    Validity,
)
from eval_factory.core.rundir import RunDir
from eval_factory.report import documents

_EXTRA = "extra."


@dataclass(frozen=True)
class StoredResult:
    """One output folder, read."""

    result: TaskResult
    folder: Path
    command: str
    config: Mapping[str, Any]
    target: Mapping[str, Any]


def load_result(folder: Path | str) -> StoredResult:
    """Read an output folder. Instances are read from their files when they are gone through.

    Args:
        folder: the output folder, or its evaluation_config.yaml.

    Raises:
        PrerequisiteError: there is no result, or the file is not one of this version's.
    """
    path = Path(folder)
    rundir = RunDir(path.parent if path.name == "evaluation_config.yaml" else path)
    document = _document(rundir.evaluation_config)
    validity = document["validity"]
    (task,) = document["results"]["tasks"]
    groups = document["results"]["groups"][task].get("groups", {})
    result = TaskResult(
        task=task,
        main_metric=document["main_metric"],
        scores=_scores(document["results"]["tasks"][task]["metrics"]),
        groups={
            field: {value: _scores(group["metrics"]) for value, group in by_value["groups"].items()}
            for field, by_value in groups.items()
        },
        validity=_validity(validity),
        usage=_usage(document["usage"]),
        provenance=_PROVENANCE(document["provenance"]),
        instances=StoredInstances(rundir),
        reportable=validity["reportable"],
        status=document["status"],
        something_to_ask=document["status"] == "partial",
    )
    return StoredResult(result, rundir.root, document["command"], document["config"], document["target"])


@dataclass(frozen=True)
class StoredInstances:
    """The instances of an output folder, read anew each time they are gone through."""

    rundir: RunDir

    def __iter__(self) -> Iterator[InstanceRecord]:
        """
        Raises:
            PrerequisiteError: a file is missing, or the two do not tell of the same instances.
        """
        try:
            with (
                self.rundir.instances.open(encoding="utf-8") as instances,
                self.rundir.results_jsonl.open(encoding="utf-8") as results,
            ):
                for instance, outcome in zip(instances, results, strict=True):
                    yield instance_record(json.loads(instance), json.loads(outcome))
        except (OSError, ValueError, KeyError) as error:
            raise PrerequisiteError(f"{self.rundir.root}: its instances cannot be read: {error}") from error


def instance_record(instance: Mapping[str, Any], outcome: Mapping[str, Any]) -> InstanceRecord:
    """From one line of instances.jsonl and the same line of results.jsonl.

    Raises:
        ValueError: they are of different instances.
        KeyError: something is missing.
    """
    same = ("id", "split", "trial", "perturbation")
    if [instance[name] for name in same] != [outcome[name] for name in same]:
        raise ValueError(f"instances.jsonl and results.jsonl differ at instance {instance['id']}")
    return InstanceRecord(
        id=instance["id"],
        split=instance["split"],
        sub_split=instance["sub_split"],
        trial=instance["trial"],
        perturbation=instance["perturbation"],
        prompt=instance["prompt"],
        references=tuple(instance["references"]),
        categories={name.removeprefix(_EXTRA): value for name, value in instance.items() if name.startswith(_EXTRA)},
        completion=outcome["completion"],
        metrics=outcome["metrics"],
        finish_reason=outcome["finish_reason"],
        prompt_tokens=outcome["prompt_tokens"],
        completion_tokens=outcome["completion_tokens"],
        latency_s=outcome["latency_s"],
        cached=outcome["cached"],
        error=outcome["error"],
        judges=outcome.get("judges", {}),
        unjudged=outcome.get("unjudged", False),
        injection=tuple(outcome.get("injection", ())),
        signs=tuple(outcome.get("signs", ())),
        cluster=outcome.get("cluster"),
    )


def _document(path: Path) -> dict[str, Any]:
    import jsonschema  # takes long to import, and `eval-factory --help` needs none

    try:
        document: dict[str, Any] = parse_own(path.read_text(encoding="utf-8"))
        documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    except FileNotFoundError:
        raise PrerequisiteError(f"{path}: there is no result; it is written when a run ends") from None
    except (OSError, UnicodeDecodeError, YamlError) as error:
        raise PrerequisiteError(f"{path}: cannot be read: {error}") from None
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path))
        raise PrerequisiteError(
            f"{path}: is no result of this version: {where or 'the file'}: {error.message}"
        ) from None
    return document


def _reader_of(kind: type[Any]) -> Callable[[Any], Any]:
    """Takes a document apart into the record, and the records in it."""
    return TypeAdapter(kind).validate_python


_VALIDITY, _PROVENANCE, _SPENT, _INSTANCES = map(_reader_of, (Validity, Provenance, Spent, Instances))
_OF_NO_STATS = dict.fromkeys(("stddev", "stderr", "ci_low", "ci_high", "ci_method"))


def _validity(document: Mapping[str, Any]) -> Validity:
    known = {name: value for name, value in document.items() if name not in ("reportable", "coverage")}
    validity: Validity = _VALIDITY(known)
    return validity


def _scores(metrics: Mapping[str, Any]) -> dict[str, Score]:
    return {name: _score(score) for name, score in metrics["score"]["scores"].items()}


def _score(document: Mapping[str, Any]) -> Score:
    stats = Stats(**{**_OF_NO_STATS, **document["stats"]})
    return Score(document["value"], stats, document["metric"], document["split"], document["perturbation"])


def _usage(document: Mapping[str, Any]) -> Usage:
    return Usage(
        this_run=_spent_by_role(document["this_run"]),
        all_runs=_spent_by_role(document["all_runs"]),
        runs=document["all_runs"]["runs"],
        wall_s=document["wall_s"],
    )


def _spent_by_role(document: Mapping[str, Any]) -> SpentByRole:
    total = {name: value for name, value in document.items() if name not in ("roles", "runs")}
    return SpentByRole(_SPENT(total), {role: _SPENT(spent) for role, spent in document["roles"].items()})
