"""Exports a result as an entry of `.eval_results/` on the Hugging Face Hub.

The format is documented at huggingface.co/docs/hub/eval-results.
"""

from __future__ import annotations

import math

import yaml

from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.report.documents import without_nulls
from eval_factory.report.exports.stored_facts import (
    PUBLIC,
    access_of,
    hub_dataset,
    reasons_against_reporting,
    refuse_demo,
    task_of,
)
from eval_factory.report.paper_facts import DATA_PART_PARAMS
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.framework import Task


def hub_entry(stored: StoredResult, *, task_id: str, allow_not_reportable: bool) -> str:
    """Return the YAML text of the entry, which has the main score only.

    Args:
        stored: The result.
        task_id: The id that the data set on the Hub has for this evaluation; not the name of
            eval-factory's task.
        allow_not_reportable: Export a score even if it must not be reported; the notes of the
            entry then state the reason.

    Raises:
        ConfigError: The data are not a public data set of the Hub, or the main score is missing or
            not a finite number.
        NotReportableError: The score must not be reported, or comes from the demo endpoint.
    """
    refuse_demo(stored)
    task = task_of(stored)
    access = access_of(stored)
    if task is None or access != PUBLIC:
        raise ConfigError(
            f"{stored.folder}: the data of {stored.result.task} are {access}: only results of "
            "benchmarks with public data go to the Hugging Face Hub\n"
            "  'eval-factory export eee' exports the scores alone, without any text"
        )
    dataset_id = hub_dataset(task)
    if dataset_id is None:
        raise ConfigError(
            f"{stored.folder}: the data of {task.name} are not a data set of the Hugging Face Hub "
            f"({task.about.source}), and the Hub stores results for its own data sets only\n"
            "  'eval-factory export eee' accepts every benchmark"
        )
    reason = reasons_against_reporting(stored)
    if reason and not allow_not_reportable:
        raise NotReportableError(
            f"{stored.folder}: the score may not be reported: {reason}\n"
            "  correct that and run again, or give --allow_not_reportable: the notes of the entry "
            "then say that the score may not be reported"
        )
    result = stored.result
    score = result.scores.get(result.main_metric)
    if score is None or not math.isfinite(score.value):
        raise ConfigError(f"{stored.folder}: there is no score {result.main_metric} to export")
    revision = result.provenance.dataset_revisions.get(f"hub:{dataset_id}")
    dataset = without_nulls({"id": dataset_id, "task_id": task_id, "revision": revision})
    entry = {
        "dataset": dataset,
        "value": score.value,
        "notes": _hub_notes(stored, task, reason, revision),
    }
    return yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=120)


def _hub_notes(stored: StoredResult, task: Task, not_reportable: str, revision: str | None) -> str:
    """Return the notes of the entry: program, interval, instances, and the evaluated data.

    Args:
        stored: The result.
        task: The task of the result.
        not_reportable: Why the score must not be reported; empty if it may be reported.
        revision: The revision of the data that the run read; None if it is unknown.
    """
    result = stored.result
    provenance = result.provenance
    stats = result.scores[result.main_metric].stats
    program = (
        f"{result.main_metric} by {provenance.helm_name} {provenance.helm}, run by eval-factory "
        f"{provenance.eval_factory}"
    )
    if provenance.imported is not None:
        program = (
            f"{result.main_metric} of a run of {provenance.imported.source}, imported by "
            f"eval-factory {provenance.eval_factory}"
        )
    notes = [program]
    if stats.ci_low is not None and stats.ci_high is not None:
        notes.append(
            f"95 % interval {formats.short(stats.ci_low)} to {formats.short(stats.ci_high)}"
        )
    of_benchmark = ""
    if task.about.instances is not None:
        of_benchmark = f" (the benchmark has {task.about.instances})"
    notes.append(f"{result.validity.instances.scored} instances scored{of_benchmark}")
    # The entry itself states the revision that the run read, if this revision is known. A revision
    # that the task pins is not stated: the run may have read other data.
    if revision is None:
        notes.append("at an unknown revision of the data")
    for name in DATA_PART_PARAMS:
        if name in stored.extra:
            notes.append(f"{name}: {stored.extra[name]}")
    if not_reportable:
        notes.append(f"NOT REPORTABLE: {not_reportable}")
    return "; ".join(notes)
