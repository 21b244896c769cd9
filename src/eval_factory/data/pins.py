"""Which revisions a run is told to read, with a bundle or without."""

from __future__ import annotations

from eval_factory.core.helm_run_settings import Pins
from eval_factory.data.hub import UNKNOWN_REVISION
from eval_factory.data.place import task_sources
from eval_factory.data.sources import load_sources
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan


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
    pinned = {dataset.id: dataset.revision for dataset in task_sources(plan, load_sources()).hub if not dataset.script}
    notes = []
    for dataset in output.hub_datasets(plan.rundir.helm):
        revision = pinned.get(dataset.id)
        if revision is None or dataset.revision == revision:
            continue
        known = "an unknown revision" if dataset.revision == UNKNOWN_REVISION else f"revision {dataset.revision}"
        notes.append(f"{dataset.id} was read at {known}, not at the pinned {revision}: scores may not compare")
    return notes
