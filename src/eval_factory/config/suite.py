"""A suite: evaluations x targets x variants of parameters, each of them an ordinary run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from eval_factory.config.evaluation import Request
from eval_factory.config.run_executor import slurm_of
from eval_factory.config.serve_model import problems_of_serve, serve_of, served_target
from eval_factory.config.suite_cells import Combination, combinations, document_of, limit_group_of
from eval_factory.config.suite_layers import SuiteLayer, SuiteSources, read_layers
from eval_factory.config.suite_parts import merged, normal_form
from eval_factory.config.suite_shape import TOP, UNKNOWN_KEY, problems_of_shape, problems_of_values
from eval_factory.core.budget import Budget
from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import SuiteDir, suite_dir
from eval_factory.tasks.framework import Framework, load_framework

MOST_USUAL_PROCESSES = 8
"""About 130 MB each."""


@dataclass(frozen=True)
class Cell:
    """One evaluation of one target."""

    target: str
    evaluation: str
    document: Mapping[str, Any]
    """The run config: `config` and `target`, with an absolute `output_dir`."""
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.target}/{self.evaluation}"

    @property
    def request(self) -> Request:
        return Request(document=self.document)


@dataclass(frozen=True)
class Suite:
    """All cells, in the order in which they are run: evaluation by evaluation, target by target."""

    folder: SuiteDir
    cells: tuple[Cell, ...]
    budget: Budget
    """Of all cells together."""
    max_processes: int
    """Cells that run at once: bounds memory, for each is a helm-run."""
    max_attempts: int
    """How often a cell is begun in one invocation where another attempt can help."""
    max_outage_s: float
    """How long the cells of an endpoint that is gone are kept waiting."""
    limit_groups: Mapping[str, str]
    """Target -> name of the limits that it shares; targets with the same URL have the same name."""
    document: Mapping[str, Any]
    """The suite as it is run, `extends` and presets resolved: what suite_config.yml holds."""
    executor: str
    """`local` or `slurm`."""
    slurm: Mapping[str, Mapping[str, Any]]
    """Target -> what its cells ask of Slurm: every key of `SlurmSection`."""
    serve: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Target whose servers are started for its cells -> every key of `ServeSection`, in a job with `LAUNCH`."""


def usual_processes() -> int:
    """Of a suite that does not say: while some ask, which costs little, others load data and score."""
    return min(2 * (os.cpu_count() or 1), MOST_USUAL_PROCESSES)


def build_suite(
    path: Path | None,
    *,
    document: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    env: Mapping[str, str],
) -> Suite:
    """Merge preset, extended files, the file, flags and overrides; check what is said; make the cells.

    What a cell's task has to say to its run config, `workflows/suite/checked_cells.py` finds.

    Args:
        path: the YAML file; None where flags say it all.
        document: what a file would hold, in its place.
        flags: dotted path (`suite.params.limit_samples`) -> value.

    Raises:
        ConfigError: with every problem that was found.
    """
    framework = load_framework()
    problems: list[str] = []
    layers = read_layers(SuiteSources(path, document, flags or {}, tuple(overrides)), env, problems)
    of_sound_shape = [layer for layer in layers if not _shape_problems(layer, problems)]
    for layer in of_sound_shape:
        problems += _with_origin(layer, problems_of_values(layer.tree, framework))
    section = merged([(layer, normal_form(layer, framework, problems)) for layer in of_sound_shape])
    if problems:
        raise ConfigError(problems)
    problems += _missing(section, env)
    left = [] if problems else combinations(_with_served(section, framework), problems)
    if problems:
        raise ConfigError([f"{path}: {problem}" if path else problem for problem in problems])
    return _suite(section, left, framework)


def _shape_problems(layer: SuiteLayer, problems: list[str]) -> bool:
    """Whether nothing more can be said about a layer: unknown keys keep no other mistake from being found."""
    found = list(problems_of_shape(layer.tree))
    problems += _with_origin(layer, iter(found))
    return any(not problem.startswith(UNKNOWN_KEY) for problem in found)


def _with_origin(layer: SuiteLayer, problems: Iterator[str]) -> Iterator[str]:
    for problem in problems:
        yield f"{layer.begin}{problem}"


def _missing(section: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[str]:
    """What all layers together do not say."""
    if not section.get("output_dir"):
        yield f"{TOP}.output_dir: is missing; write it in the suite or give --output_dir"
    if not section.get("evaluations"):
        yield f"{TOP}.evaluations: is missing; it lists tasks ('eval-factory ls' shows them), or choose a preset"
    if not section.get("targets"):
        yield f"{TOP}.targets: is missing; it lists models: a name, and api_endpoint with url and model_id"
    for entry in section.get("evaluations") or []:
        if not entry.get("type"):
            yield f"{TOP}.evaluations: {entry['name']} has no `type`, the task ('eval-factory ls' lists them)"
    for target in section.get("targets") or []:
        endpoint = target.get("api_endpoint") or {}
        for key in ("model_id",) if target.get("serve") else ("url", "model_id"):
            if endpoint.get(key) is None:
                yield f"{TOP}.targets: {target['name']} has no api_endpoint.{key}"
        if target.get("serve"):
            yield from problems_of_serve(target, f"{TOP}.targets: {target['name']}", env)


def _with_served(section: Mapping[str, Any], framework: Framework) -> dict[str, Any]:
    """With the URLs of what is served; the suite's own file does not say them."""
    return {**section, "targets": [served_target(one, framework.defaults.serve) for one in section["targets"]]}


def _suite(section: dict[str, Any], left: Sequence[Combination], framework: Framework) -> Suite:
    folder = suite_dir(Path(section["output_dir"]))
    cells = []
    for one in left:
        own = folder.cell(one.target["name"], one.name)
        cells.append(Cell(one.target["name"], one.name, document_of(one, section, own, framework), own))
    said = {key: value for key, value in section.items() if value is not None}
    whole = {**framework.defaults.suite, **said}
    whole["slurm"] = slurm_of(framework.defaults.suite["slurm"], section.get("slurm"))
    return Suite(
        folder=folder,
        cells=tuple(cells),
        budget=Budget(**{one.name: whole[one.name] for one in fields(Budget)}),
        max_processes=whole["max_processes"] or usual_processes(),
        max_attempts=whole["max_attempts"],
        max_outage_s=float(whole["max_outage_s"]),
        limit_groups={target["name"]: limit_group_of(target) for target in section["targets"]},
        serve={
            target["name"]: serve_of(framework.defaults.serve, target["serve"])
            for target in section["targets"]
            if target.get("serve")
        },
        executor=whole["executor"],
        slurm={target["name"]: slurm_of(whole["slurm"], target.get("slurm")) for target in section["targets"]},
        document={TOP: whole},
    )
