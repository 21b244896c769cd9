"""Which revisions a run is told to read, with a bundle or without."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from eval_factory.core.helm_run_settings import Pins
from eval_factory.data.hub import UNKNOWN_REVISION
from eval_factory.data.place import task_sources
from eval_factory.data.sources import SourceFile, load_sources
from eval_factory.helm import names, output
from eval_factory.plan.run_plan import Plan

_COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")


def pins_of(*plans: Plan) -> Pins | None:
    """Of files that HELM takes from a branch, and of data sets that it takes at their newest revision.

    None where there is nothing to pin.
    """
    sources = load_sources()
    tasks = [task_sources(plan, sources) for plan in plans]
    of_branches = [file for task in tasks for file in task.files if file.upstream]
    files = {sources.url(str(file.upstream)): sources.url(file.url) for file in of_branches}
    datasets = {dataset.id: dataset.revision for task in tasks for dataset in task.hub if dataset.revision}
    return Pins(files, datasets) if files or datasets else None


def notes_on_revisions(plan: Plan) -> list[str]:
    """Data sets of the Hub that a finished run read at another revision than the pinned one. Raises HelmError."""
    notes = []
    for name, pinned, read in _other_revisions(plan):
        known = "an unknown revision" if read == UNKNOWN_REVISION else f"revision {read}"
        notes.append(f"{name} was read at {known}, not at the pinned {pinned}: scores may not compare")
    return notes


def _other_revisions(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Data set of the Hub, the pinned revision, the one that was read instead."""
    pinned = {dataset.id: dataset.revision for dataset in task_sources(plan, load_sources()).hub if not dataset.script}
    for dataset in output.hub_datasets(plan.rundir.helm):
        revision = pinned.get(dataset.id)
        if revision is not None and dataset.revision != revision:
            yield dataset.id, revision, dataset.revision


def unlike_pinned(plan: Plan, files: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """What a finished run read that is not what is pinned: its name, and its revision or SHA-256 there and here.

    Args:
        files: name -> SHA-256 of what was read, as in the provenance.

    Raises:
        HelmError: it was not written down in a form that can be read.
    """
    yield from _other_revisions(plan)
    for name, file in _scenario_files(plan):
        if file.sha256 is not None and files.get(name, file.sha256) != file.sha256:
            yield name, file.sha256, files[name]


def revisions_of(plan: Plan, files: Mapping[str, str]) -> dict[str, str]:
    """File, folder or data set of the Hub -> the commit at which a finished run read it, where one is known.

    Of a file the commit in the address that HELM, or our table, names; not where its content is another.

    Args:
        files: name -> SHA-256 of what was read, as in the provenance.

    Raises:
        HelmError: which data sets were read was not written down in a form that can be read.
    """
    found = {
        f"hub:{dataset.id}": dataset.revision
        for dataset in output.hub_datasets(plan.rundir.helm)
        if dataset.revision != UNKNOWN_REVISION
    }
    for name, file in _scenario_files(plan):
        commit = _COMMIT.search(file.url)
        if commit and name in files and file.sha256 in (None, files[name]):
            found[name] = commit[0]
    task = task_sources(plan, load_sources())
    folder = f"{names.SCENARIOS_FOLDER}/{task.scenario}"
    commit = _COMMIT.search(task.listing.files) if task.listing else None
    if commit and any(name.startswith(f"{folder}/") for name in files):
        found[folder] = commit[0]
    return found


def _scenario_files(plan: Plan) -> Iterator[tuple[str, SourceFile]]:
    """By their names in the provenance."""
    task = task_sources(plan, load_sources())
    for file in task.files:
        yield f"{names.SCENARIOS_FOLDER}/{task.scenario}/{file.path}", file
