"""Pins the data of a run to revisions, and compares what a finished run read with the pins.

A pin fixes the URL of a file or the revision of a data set. Without it, HELM reads the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from eval_factory.core.helm_run_settings import Pins
from eval_factory.data.hub import UNKNOWN_REVISION
from eval_factory.data.run_data import task_sources
from eval_factory.data.sources import load_sources
from eval_factory.helm import names, output
from eval_factory.plan.run_plan import Plan

# matches the hash of a commit in a URL: exactly 40 hexadecimal digits, so that the first digits of
# a SHA-256 are not matched
_COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")


def pins_of(*plans: Plan) -> Pins | None:
    """Return the pinned URLs and revisions of the data that these runs read.

    Without the pins, HELM would read the newest version of these data. Returns None if there is
    nothing to pin.
    """
    sources = load_sources()
    tasks = [task_sources(plan, sources) for plan in plans]
    files = {}
    datasets = {}
    for task in tasks:
        for file in task.files:
            if file.upstream:  # HELM reads the file from a branch
                files[sources.url(str(file.upstream))] = sources.url(file.url)
        for dataset in task.hub:
            if dataset.revision:
                datasets[dataset.id] = dataset.revision
    if not files and not datasets:
        return None
    return Pins(files, datasets)


class UnpinnedData(NamedTuple):
    """A data set or file that a finished run did not read as it is pinned."""

    name: str
    pinned: str  # the pinned revision or SHA-256
    read: str  # the revision or SHA-256 that was read


def notes_on_revisions(plan: Plan) -> list[str]:
    """Return a note for each data set of the Hub that a finished run read at another revision.

    Raises:
        HelmError: the record of the data sets cannot be read.
    """
    notes = []
    for data in _other_revisions(plan):
        revision = f"revision {data.read}"
        if data.read == UNKNOWN_REVISION:
            revision = "an unknown revision"
        notes.append(
            f"{data.name} was read at {revision}, not at the pinned {data.pinned}: "
            "scores may not be comparable"
        )
    return notes


def _other_revisions(plan: Plan) -> Iterator[UnpinnedData]:
    """Yield each data set that was not read at its pinned revision.

    Data sets with a loading script are left out: the cache does not record their revision.
    """
    pinned_revisions = {}
    for dataset in task_sources(plan, load_sources()).hub:
        if not dataset.script:
            pinned_revisions[dataset.id] = dataset.revision
    for dataset_read in output.read_run_record(plan.rundir.helm).datasets:
        pinned = pinned_revisions.get(dataset_read.id)
        if pinned is not None and dataset_read.revision != pinned:
            yield UnpinnedData(dataset_read.id, pinned, dataset_read.revision)


def differences_from_pinned(plan: Plan, files: Mapping[str, str]) -> Iterator[UnpinnedData]:
    """Yield the data of a finished run that differ from the pinned data.

    Args:
        plan: the plan of the finished run.
        files: the SHA-256 of each file that was read, by name, as in the provenance.

    Raises:
        HelmError: the record of the data sets cannot be read.
    """
    yield from _other_revisions(plan)
    # A file that the run did not read has no hash in `files`, and counts as equal.
    task = task_sources(plan, load_sources())
    for file in task.files:
        name = f"{names.SCENARIOS_FOLDER}/{task.scenario}/{file.path}"
        if file.sha256 is not None and files.get(name, file.sha256) != file.sha256:
            yield UnpinnedData(name, file.sha256, files[name])


def revisions_of(plan: Plan, files: Mapping[str, str]) -> dict[str, str]:
    """Return the commit of each file, folder or data set that a finished run read, by its name.

    Data whose commit is unknown are left out. The commit of a file comes from its URL; a file whose
    content differs from the table of sources is left out.

    Args:
        plan: the plan of the finished run.
        files: the SHA-256 of each file that was read, by name, as in the provenance.

    Raises:
        HelmError: the record of the data sets cannot be read.
    """
    revisions = {}
    for dataset in output.read_run_record(plan.rundir.helm).datasets:
        if dataset.revision != UNKNOWN_REVISION:
            revisions[f"hub:{dataset.id}"] = dataset.revision
    task = task_sources(plan, load_sources())
    folder = f"{names.SCENARIOS_FOLDER}/{task.scenario}"
    # The run read one part of the task's files, such as the files of one language. The folder may
    # also have files of other parts, such as from a bundle of an earlier version.
    for file in (*task.files, *task.other_parts):
        name = f"{folder}/{file.path}"
        commit = _COMMIT.search(file.url)
        if commit and name in files and file.sha256 in (None, files[name]):
            revisions[name] = commit[0]
    # A task with a listing reads a folder of text files, all from one URL.
    commit = _COMMIT.search(task.listing.files) if task.listing else None
    if commit and any(name.startswith(f"{folder}/") for name in files):
        revisions[folder] = commit[0]
    return revisions
