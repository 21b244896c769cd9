"""HELM's output files, read and checked at the border, as records with our names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from eval_factory.errors import HelmError
from eval_factory.helm import names

BOOKKEEPING_PREFIXES = ("num_", "finish_reason_", "training_", "inference_", "batch_size", "max_prob", "logprob")
BOOKKEEPING = frozenset({"predicted_index", "prompt_truncated", "perplexity", "bits_per_byte"})
"""Statistics of the run, not of the answers: none of them is a score."""

COMPUTED_ON_PERTURBED = "perturbed"
_SPLITS_BY_WEIGHT = ("test", "valid", "train")


class _Loose(BaseModel):
    # A scenario may number its instances: ids become text.
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


class Perturbation(_Loose):
    name: str
    computed_on: str = COMPUTED_ON_PERTURBED


class MetricName(_Loose):
    """The name of a statistic with the context it was computed in."""

    name: str
    split: str | None = None
    sub_split: str | None = None
    perturbation: Perturbation | None = None


class Stat(_Loose):
    name: MetricName
    count: int
    sum: float = 0.0
    mean: float | None = None


class PerInstanceStats(_Loose):
    instance_id: str
    train_trial_index: int
    perturbation: Perturbation | None = None
    stats: list[Stat]


class _Text(_Loose):
    text: str = ""


class Reference(_Loose):
    output: _Text
    tags: list[str] = []


class Instance(_Loose):
    id: str
    input: _Text
    references: list[Reference] = []
    split: str | None = None
    sub_split: str | None = None
    perturbation: Perturbation | None = None
    extra_data: dict[str, Any] | None = None


class Completion(_Loose):
    text: str
    finish_reason: dict[str, Any] | None = None


class Result(_Loose):
    success: bool
    cached: bool = False
    completions: list[Completion] = []
    error: str | None = None


class RequestState(_Loose):
    instance: Instance
    train_trial_index: int
    request: dict[str, Any]
    result: Result | None = None
    annotations: dict[str, Any] | None = None


class _ScenarioState(_Loose):
    request_states: list[RequestState]


class _MetricSpec(_Loose):
    class_name: str
    args: dict[str, Any] = {}


class RunSpec(_Loose):
    name: str
    metric_specs: list[_MetricSpec] = []


@dataclass(frozen=True)
class Jury:
    """What HELM's jury metric of a run is called, and where its judges' annotations are."""

    metric: str
    annotation: str
    judges: tuple[str, ...]


@dataclass(frozen=True)
class HelmRun:
    """One finished run folder."""

    run_spec: RunSpec
    request_states: list[RequestState]
    stats: list[Stat]
    per_instance_stats: list[PerInstanceStats]

    @property
    def jury(self) -> Jury | None:
        for spec in self.run_spec.metric_specs:
            if spec.class_name.endswith(names.JURY_METRIC_CLASS_SUFFIX):
                return Jury(
                    spec.args["metric_name"], spec.args["scenario_name"], tuple(spec.args["annotator_models"])
                )
        return None

    @property
    def is_perturbed(self) -> bool:
        """Whether any instance was perturbed. HELM writes 'worst case' statistics all the same; they repeat the plain
        ones then."""
        return any(entry.perturbation is not None for entry in self.per_instance_stats)

    @property
    def main_split(self) -> str | None:
        """`test` where the run has it, else `valid`, else whatever there is."""
        splits = {stat.name.split for stat in self.stats if stat.name.split}
        return next((split for split in _SPLITS_BY_WEIGHT if split in splits), next(iter(sorted(splits)), None))


def read_run(folder: Path) -> HelmRun:
    """Read a run folder.

    Raises:
        HelmError: a file is missing or has another form than HELM 0.5.16's.
    """
    state = _read(folder / names.SCENARIO_STATE_FILE, _ScenarioState)
    return HelmRun(
        run_spec=_read(folder / names.RUN_SPEC_FILE, RunSpec),
        request_states=state.request_states,
        stats=_read(folder / names.STATS_FILE, list[Stat]),
        per_instance_stats=_read(folder / names.PER_INSTANCE_STATS_FILE, list[PerInstanceStats]),
    )


def _read(path: Path, shape: Any) -> Any:
    try:
        return TypeAdapter(shape).validate_python(json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        reason: object = error
        if isinstance(error, ValidationError):  # its own text would quote the data
            first = error.errors(include_input=False)[0]
            reason = f"{error.error_count()} unexpected values, the first at {first['loc']}: {first['msg']}"
        raise HelmError(f"HELM's output {path} cannot be read: {reason}") from error


def is_score(name: str) -> bool:
    """Whether a HELM statistic says something about the answers' quality."""
    return name not in BOOKKEEPING and not name.startswith(BOOKKEEPING_PREFIXES)


def score_label(name: MetricName, main_split: str | None) -> str:
    """`metric`, `metric@split` or `metric@split+perturbation`: one label per context, so none overwrites another."""
    if name.perturbation is None:
        return name.name if name.split == main_split else f"{name.name}@{name.split}"
    suffix = name.perturbation.name
    if name.perturbation.computed_on != COMPUTED_ON_PERTURBED:
        suffix += f".{name.perturbation.computed_on}"
    return f"{name.name}@{name.split}+{suffix}"


def scenario_folder(helm_dir: Path, scenario: str) -> Path:
    """Where HELM keeps a scenario's data."""
    return helm_dir / names.SCENARIOS_FOLDER / scenario


def scenario_files(helm_dir: Path, scenario: str) -> list[Path]:
    """The data files that a scenario read."""
    found = scenario_folder(helm_dir, scenario).rglob("*")
    return sorted(path for path in found if path.is_file() and path.suffix != ".lock")


def judgement_of(annotations: Mapping[str, Any] | None, jury: Jury, judge: str) -> Mapping[str, Any] | None:
    """A judge's scores for one answer; None where it gave none that HELM could read."""
    found = (annotations or {}).get(jury.annotation, {}).get(judge)
    return found if isinstance(found, Mapping) and found else None
