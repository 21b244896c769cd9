"""Measures an asking of a panel from the results of its runs, and stores the measurement in a file.

An asking asks all questions of the panel once, and has a run folder for each task. This module also
lists the runs of an asking for the ledger, and states why the runs of two askings may not be
compared.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from eval_factory.analysis.comparison_reasons import (
    InstanceValues,
    Side,
    reasons_against_pair,
    values_of,
)
from eval_factory.core import formats
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line, open_regular, parse_json, write_atomic
from eval_factory.monitor.ledger import Line
from eval_factory.monitor.panel import Limit
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.intervals import PROPORTION

VALUES_FILE = "values.json"
"""The file with the measurement of an asking; the ledger has the hash of the file.

The tests of a look read the measurements of earlier askings from these files. Earlier runs are
measured again only if another version of the answer reader read the answers of a run.
"""
ANSWER_SHARES = ("refused", "unreadable", "empty", "failed")
"""The watched figures that are shares of the answers."""
STATED_MODELS = "stated"  # the watched figure with the names of the models that answers state
_MAX_NAMED = 12  # the maximum number of names in a message
_HASH_DIGITS = 16  # the digits of the hash of an answer: enough to notice that answers differ
_Figures = dict[str, Any]  # the watched figures, by their names


@dataclass(frozen=True)
class Scale:
    """The scale that converts a limit's score into a value from 0 (worst) to 1 (best), and back."""

    metric: str  # the score's name in the result
    low: float
    high: float
    higher_is_better: bool

    def value_of(self, score: float) -> float:
        """Return the value from 0 to 1 of a score; a score outside of the scale gets 0 or 1."""
        share = min(max((score - self.low) / (self.high - self.low), 0.0), 1.0)
        if self.higher_is_better:
            return share
        return 1 - share

    def score_of(self, value: float) -> float:
        """Return the score of a value from 0 to 1."""
        share = value
        if not self.higher_is_better:
            share = 1 - value
        return self.low + (self.high - self.low) * share

    @property
    def width(self) -> float:
        """The length of the scale, in the metric's own unit."""
        return self.high - self.low


@dataclass(frozen=True)
class PanelMeasurement:
    """The values of one asking of the panel."""

    limits: Mapping[str, Mapping[str, float | None]]
    """For each limit, a dict from its instances to their values.

    A value is from 0 (worst) to 1 (best); None if the instance has no value.
    """
    clusters: Mapping[str, Mapping[str, str]]
    """For each limit whose task declares sources, a dict from its instances to their sources."""
    watched: _Figures  # the watched figures, such as the mean length of the answers
    scales: Mapping[str, Scale]  # the scale of each limit
    answers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each task, a dict from its instances to hashes of their answers."""


Load = Callable[[Path | str], StoredResult]


def measure(folder: Path, limits: Sequence[Limit], load: Load = load_result) -> PanelMeasurement:
    """Return the values of one asking.

    Args:
        folder: the folder of the asked target, with a run folder for each task.
        limits: the limits of the panel.
        load: reads the result in a run folder.

    Raises:
        PrerequisiteError: A run has no result.
        ConfigError: A limit's metric or group is absent, or its metric has no lowest or no highest
            value.
    """
    stored = {}  # task -> its result
    records = {}  # task -> the records of its instances
    for task in tasks_of(limits):
        stored[task] = load(folder / task)
        records[task] = list(stored[task].result.instances)
    values = {}
    clusters = {}
    scales = {}
    problems = []
    for limit in limits:
        try:
            instances, scale = _limit_values(limit, stored[limit.task], records[limit.task])
        except ConfigError as error:
            problems += error.problems
            continue
        values[limit.name] = _scaled_values(instances, scale)
        scales[limit.name] = scale
        if instances.clusters:
            clusters[limit.name] = dict(sorted(instances.clusters.items()))
    if problems:
        raise ConfigError(problems)
    answers = {}
    for task, records_of_task in records.items():
        answers[task] = _answer_hashes(records_of_task)
    return PanelMeasurement(
        limits=values,
        clusters=clusters,
        watched=_watched_figures(stored, records),
        scales=scales,
        answers=answers,
    )


def _scaled_values(instances: InstanceValues, scale: Scale) -> dict[str, float | None]:
    """Return the value of each instance, from 0 to 1; None if the instance has no value."""
    values: dict[str, float | None] = {}
    for instance in sorted(instances.all_keys):  # also the instances without a value
        values[instance] = None
        if instance in instances.means:
            values[instance] = scale.value_of(instances.means[instance])
    return values


def _answer_hashes(records: Sequence[InstanceRecord]) -> dict[str, str]:
    """Return a hash of the answers of each instance; instances with a failed request are left out.

    An instance has a record for each trial and perturbation; these records have the same id.
    """
    answers_of: dict[str, list[str]] = {}
    failed = set()
    for record in records:
        if record.error is not None or record.completion is None:
            failed.add(record.id)
        else:
            answers_of.setdefault(record.id, []).append(record.completion)
    digests = {}
    for instance, answers in sorted(answers_of.items()):
        if instance not in failed:
            # An answer may contain half of a surrogate pair, which UTF-8 cannot encode.
            text = "\0".join(answers).encode("utf-8", "surrogatepass")
            digests[instance] = hashlib.sha256(text).hexdigest()[:_HASH_DIGITS]
    return digests


def tasks_of(limits: Sequence[Limit]) -> list[str]:
    """Return the tasks of the limits, each once, in their order."""
    return list(dict.fromkeys(limit.task for limit in limits))


def _limit_values(
    limit: Limit, stored: StoredResult, records: Sequence[InstanceRecord]
) -> tuple[InstanceValues, Scale]:
    """Return the values of a limit's instances, and the scale of its metric.

    Raises:
        ConfigError: The metric or the group is absent, or the scale does not fit (`_scale_of`).
    """
    result = stored.result
    metric_name = limit.metric or result.main_metric
    score = result.scores.get(metric_name)
    if score is None:
        raise ConfigError(
            f"{limit.name}: there is no score {metric_name}; there are {', '.join(result.scores)}"
        )
    group = records
    if limit.field is not None:
        group = [record for record in records if record.group_value(limit.field) == limit.value]
    instances = values_of(group, score)
    if not instances.means:
        raise ConfigError(
            f"{limit.name}: no instance of the sample belongs to it; "
            f"{_existing_groups(limit, records)}"
        )
    return instances, _scale_of(limit, metric_name, score, instances)


def _existing_groups(limit: Limit, records: Sequence[InstanceRecord]) -> str:
    """Return a text for a message about a limit without instances.

    The text lists the values of the limit's field. If no instance has the field, the text lists the
    fields of the instances.
    """
    if limit.field is None:  # the limit is for the complete task
        return "no answer has a value of its metric"
    values = {record.group_value(limit.field) for record in records}
    values.discard(None)  # of a record without the field
    if values:
        names = formats.first_of(sorted(map(str, values)), _MAX_NAMED)
        return f"its values of {limit.field}: {names}"
    fields = sorted(set(chain.from_iterable(record.categories for record in records)))
    return f"its fields: {formats.first_of(fields, _MAX_NAMED) or 'none'}"


def _scale_of(limit: Limit, metric_name: str, score: Score, instances: InstanceValues) -> Scale:
    """Return the scale of a limit's score, whose name in the result is `metric_name`.

    Raises:
        ConfigError: The metric has no lowest or highest value, or `max_drop` is not smaller than
            the length of the scale.
    """
    # A metric without a known scale is accepted if all its values are from 0 to 1.
    low, high = score.scale or PROPORTION
    if instances.lowest:  # each case of a rubric has a lowest score of its own
        low = min(low, *instances.lowest.values())
    outside = [value for value in instances.means.values() if not low <= value <= high]
    has_unknown_scale = score.scale is None and bool(outside)
    if has_unknown_scale or low >= high:
        raise ConfigError(
            f"{limit.name}: the test needs a score with a lowest and a highest value, and "
            f"{score.metric} has no such scale"
        )
    if limit.max_drop >= high - low:
        raise ConfigError(
            f"{limit.name}: max_drop {limit.max_drop:g} is as large as the scale, {low:g} to "
            f"{high:g}: no score can drop by more; set a smaller max_drop"
        )
    # If it is unknown whether higher is better (None), higher counts as better.
    return Scale(metric_name, low, high, higher_is_better=score.higher_is_better is not False)


def _watched_figures(
    stored: Mapping[str, StoredResult], records: Mapping[str, Sequence[InstanceRecord]]
) -> _Figures:
    """Return the watched figures over all answers of an asking.

    `length` is the mean length of an answer in words, `latency` the median time in seconds.
    """
    total: Counter[str] = Counter()  # the numbers of instances over all runs
    stated: set[str] = set()
    for run in stored.values():
        for name in ("requested", *ANSWER_SHARES):
            total[name] += getattr(run.result.validity.instances, name)
        model = run.result.provenance.endpoints.get(MODEL_ROLE)
        if model is not None:
            stated.update(model.stated_models)
    figures: _Figures = dict.fromkeys(ANSWER_SHARES, 0.0)
    if total["requested"]:
        for name in ANSWER_SHARES:
            figures[name] = total[name] / total["requested"]
    lengths = []
    seconds = []
    for record in chain.from_iterable(records.values()):
        if record.error is None:
            answer = record.completion or ""  # None counts as an empty answer
            lengths.append(len(answer.split()))
        if record.latency_s is not None:
            seconds.append(record.latency_s)
    figures["length"] = 0.0
    if lengths:
        figures["length"] = statistics.fmean(lengths)
    figures["latency"] = None
    if seconds:
        figures["latency"] = statistics.median(seconds)
    figures[STATED_MODELS] = sorted(stated)
    return figures


def write_values(folder: Path, measurement: PanelMeasurement) -> str:
    """Write a measurement into the asking's folder, and return the file's SHA-256."""
    text = json_line(asdict(measurement)) + "\n"
    write_atomic(folder / VALUES_FILE, text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_values(folder: Path, sha256: str) -> PanelMeasurement:
    """Return the stored measurement of an asking.

    Raises:
        PrerequisiteError: The file cannot be read, or its hash is not that in the ledger.
    """
    path = folder / VALUES_FILE
    try:
        with open_regular(path, folder) as file:
            content = file.read()
    except OSError as error:
        raise PrerequisiteError(
            f"{path}: cannot be read: {error.strerror or error}; restore the file from a copy"
        ) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PrerequisiteError(
            f"{path}: was changed: its hash is not that in the ledger; restore the file from a copy"
        )
    document = parse_json(content)
    scales = {name: Scale(**scale) for name, scale in document["scales"].items()}
    return PanelMeasurement(
        limits=document["limits"],
        clusters=document["clusters"],
        watched=document["watched"],
        scales=scales,
        answers=document.get("answers", {}),  # earlier versions of this program stored no answers
    )


def run_entries_of(
    folder: Path, panel_folder: Path, limits: Sequence[Limit]
) -> list[dict[str, str]]:
    """Return the ledger's entries for the runs of an asking.

    An entry has the name of the task, the run's folder inside the panel's folder, and the SHA-256
    of the run's file of checksums.

    Args:
        folder: the folder of the asked target, with a run folder for each task.
        panel_folder: the panel's folder.
        limits: the panel's limits, which name the tasks.
    """
    runs = []
    for task in tasks_of(limits):
        runs.append(
            {
                "task": task,
                "folder": (folder / task).relative_to(panel_folder).as_posix(),
                "sha256": sha256_of(RunDir(folder / task).checksums, panel_folder),
            }
        )
    return runs


def run_folders_of(folder: Path, lines: Sequence[Line]) -> list[Path]:
    """Return the folders of all runs of these baselines and looks."""
    folders: list[Path] = []
    for line in lines:
        for asking in line.get("repeats", [line]):  # A look is one asking.
            for run in asking["runs"]:
                folders.append(folder / run["folder"])
    return folders


def reasons_not_to_compare(
    before: Path, after: Path, limits: Sequence[Limit], load: Load = load_result
) -> Iterator[str]:
    """Yield the reasons why a look's answers may not be compared with the baseline's answers.

    The reasons are differences in prompts, data, judges or versions of HELM.

    Args:
        before: The folder of the target in the baseline.
        after: The folder of the target in the look.
        limits: The panel's limits, which name the tasks.
        load: Reads a run's result.
    """
    for task in tasks_of(limits):
        sides = []
        for label, folder in (("the baseline", before), ("the look", after)):
            stored = load(folder / task)
            score = stored.result.scores[stored.result.main_metric]
            sides.append(
                Side(
                    label,
                    stored,
                    values_of(stored.result.instances, score),
                    stored.result.main_metric,
                )
            )
        for reason in reasons_against_pair(*sides):
            yield f"{task}: {reason.message}"
