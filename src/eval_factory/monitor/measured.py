"""What the runs of one asking of a panel say: a value for each instance of each limit, and figures beside them.

They stand in `values.json` in the asking's folder, whose hash is in the ledger: a look needs no earlier run.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval_factory.analysis.comparison_reasons import InstanceValues, Side, reasons_against, values_of
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line, open_regular, write_atomic
from eval_factory.monitor.panel import Limit
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.intervals import PROPORTION

VALUES = "values.json"
SHARES = ("refused", "unreadable", "empty", "failed")  # figures that are shares of the answers
STATED = "stated"
_MAX_NAMED = 12
_Figures = dict[str, Any]


@dataclass(frozen=True)
class Scaled:
    """How a limit's score becomes a value from 0 to 1."""

    metric: str  # the score's name in the result
    low: float
    high: float
    higher_is_better: bool

    def value(self, score: float) -> float:
        share = min(max((score - self.low) / (self.high - self.low), 0.0), 1.0)
        return share if self.higher_is_better else 1 - share

    def score(self, value: float) -> float:
        return self.low + (self.high - self.low) * (value if self.higher_is_better else 1 - value)

    @property
    def width(self) -> float:
        """What 1 is in the metric's own unit."""
        return self.high - self.low


@dataclass(frozen=True)
class Asked:
    """One asking of the panel, measured."""

    limits: Mapping[str, Mapping[str, float | None]]
    """Limit -> instance -> its value from 0, the worst, to 1, the best; None where it has none."""
    clusters: Mapping[str, Mapping[str, str]]
    """Limit -> instance -> what it shares its source with, where the task declares such."""
    watched: _Figures
    scales: Mapping[str, Scaled]


def measure(folder: Path, limits: Sequence[Limit]) -> Asked:
    """Read the runs in the folder of an asking's target.

    Raises:
        ConfigError: a limit's metric or group is not there, or has no scale with two ends.
        PrerequisiteError: a run has no result.
    """
    stored = {name: load_result(folder / name) for name in tasks_of(limits)}
    records = {name: list(one.result.instances) for name, one in stored.items()}
    values, clusters, scales, problems = {}, {}, {}, []
    for limit in limits:
        try:
            found, scale = _of_limit(limit, stored[limit.task], records[limit.task])
        except ConfigError as error:
            problems += error.problems
            continue
        values[limit.name] = {
            key: scale.value(found.values[key]) if key in found.values else None for key in sorted(found.keys)
        }
        scales[limit.name] = scale
        if found.clusters:
            clusters[limit.name] = dict(sorted(found.clusters.items()))
    if problems:
        raise ConfigError(problems)
    return Asked(values, clusters, _watched(stored, records), scales)


def tasks_of(limits: Sequence[Limit]) -> list[str]:
    return list(dict.fromkeys(one.task for one in limits))


def _of_limit(limit: Limit, stored: StoredResult, records: Sequence[InstanceRecord]) -> tuple[InstanceValues, Scaled]:
    result = stored.result
    name = limit.metric or result.main_metric
    score = result.scores.get(name)
    if score is None:
        raise ConfigError(f"{limit.name}: there is no score {name}; there are {', '.join(result.scores)}")
    members = [one for one in records if limit.field is None or one.group(limit.field) == limit.value]
    found = values_of(members, score)
    if not found.values:
        raise ConfigError(f"{limit.name}: no instance of the sample has a value in it; {_known(limit, records)}")
    return found, _scale_of(limit, name, score, found)


def _known(limit: Limit, records: Sequence[InstanceRecord]) -> str:
    """What a limit may name."""
    if limit.field is None:
        return "its answers have none"
    values = {one.group(limit.field) for one in records} - {None}
    if values:
        return f"its values of {limit.field}: {formats.first_of(sorted(map(str, values)), _MAX_NAMED)}"
    fields = sorted({name for one in records for name in one.categories})
    return f"its fields: {formats.first_of(fields, _MAX_NAMED) or 'none'}"


def _scale_of(limit: Limit, label: str, score: Score, found: InstanceValues) -> Scaled:
    low, high = score.scale or PROPORTION
    if found.lowest:  # of a rubric: each case has a least score of its own
        low = min(low, *found.lowest.values())
    outside = [value for value in found.values.values() if not low <= value <= high]
    if (score.scale is None and outside) or low >= high:
        raise ConfigError(f"{limit.name}: the score {score.metric} has no scale with two ends, which the test needs")
    if limit.max_drop >= high - low:
        raise ConfigError(f"{limit.name}: max_drop {limit.max_drop:g} is the whole scale, {low:g} to {high:g}")
    return Scaled(label, low, high, score.higher_is_better is not False)


def _watched(stored: Mapping[str, StoredResult], records: Mapping[str, Sequence[InstanceRecord]]) -> _Figures:
    """Of all answers of the panel together."""
    counts = [one.result.validity.instances for one in stored.values()]
    asked = sum(one.requested for one in counts)
    every = [record for of_task in records.values() for record in of_task]
    lengths = [len((record.completion or "").split()) for record in every if record.error is None]
    seconds = [record.latency_s for record in every if record.latency_s is not None]
    models = [one.result.provenance.endpoints.get(MODEL_ROLE) for one in stored.values()]
    figures: _Figures = {name: sum(getattr(one, name) for one in counts) / asked if asked else 0.0 for name in SHARES}
    figures["length"] = statistics.fmean(lengths) if lengths else 0.0
    figures["latency"] = statistics.median(seconds) if seconds else None
    figures[STATED] = sorted({name for model in models if model is not None for name in model.stated_models})
    return figures


def write_values(folder: Path, asked: Asked) -> str:
    """Into the asking's folder; returns the file's hash."""
    text = json_line(asdict(asked)) + "\n"
    write_atomic(folder / VALUES, text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_values(folder: Path, sha256: str) -> Asked:
    """What was measured. Raises PrerequisiteError: it is not there, or is another file."""
    path = folder / VALUES
    try:
        with open_regular(path, folder) as file:
            content = file.read()
    except OSError as error:
        raise PrerequisiteError(f"{path}: cannot be read: {error.strerror or error}; put it back from a copy") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PrerequisiteError(f"{path}: was changed: it is not what the ledger says; put it back from a copy")
    document = json.loads(content)
    scales = {name: Scaled(**scale) for name, scale in document["scales"].items()}
    return Asked(document["limits"], document["clusters"], document["watched"], scales)


def runs_of(folder: Path, panel_folder: Path, limits: Sequence[Limit]) -> list[dict[str, str]]:
    """As the ledger has them: of each run of a target its task, folder and the hash of its checksums."""
    return [
        {
            "task": task,
            "folder": (folder / task).relative_to(panel_folder).as_posix(),
            "sha256": sha256_of(RunDir(folder / task).checksums, panel_folder),
        }
        for task in tasks_of(limits)
    ]


def differences(before: Path, after: Path, limits: Sequence[Limit]) -> Iterator[str]:
    """Why the answers of a look may not be held against the baseline: other prompts, data, judges, versions of HELM.
    `before`, `after`: the folders of the target in the two askings."""
    for task in tasks_of(limits):
        sides = []
        for label, folder in (("the baseline", before), ("the look", after)):
            stored = load_result(folder / task)
            score = stored.result.scores[stored.result.main_metric]
            sides.append(Side(label, stored, values_of(stored.result.instances, score)))
        yield from (f"{task}: {reason.message}" for reason in reasons_against(*sides))
