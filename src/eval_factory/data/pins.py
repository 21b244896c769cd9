"""Which revisions a run is told to read, with a bundle or without."""

from __future__ import annotations

from eval_factory.data.place import task_sources
from eval_factory.data.sources import load_sources
from eval_factory.mends import pins
from eval_factory.plan import Plan


def variables_of_pins(plan: Plan) -> dict[str, str]:
    """Of files that HELM takes from a branch, and of data sets that it takes at whatever is newest."""
    sources = load_sources()
    task = task_sources(plan, sources)
    files = {sources.url(file.upstream): sources.url(file.url) for file in task.files if file.upstream}
    return pins.variables(files, {dataset.id: dataset.revision for dataset in task.hub if dataset.revision})
