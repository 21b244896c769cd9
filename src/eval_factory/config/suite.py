"""Builds a suite from its file.

A suite runs each evaluation with each variant of its parameters on each target. Each such
combination is a cell, and a cell is an ordinary run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from eval_factory.config import suite_layers
from eval_factory.config.evaluation import RunRequest, task_named
from eval_factory.config.merge import leaves_by_path, with_defaults
from eval_factory.config.model_problems import UNKNOWN_KEY, problems_with
from eval_factory.config.rules import WAITS_IN_JOB, prescribed_judges_by_role
from eval_factory.config.suite_layers import (
    KEYS_PASSED_TO_CELLS,
    SUITE_KEY,
    name_with_variant,
    overlaid,
)
from eval_factory.config.suite_model import SuiteSection, problems_of_serve, served_target
from eval_factory.config.value_types import DEMO_URLS, urls_in
from eval_factory.core.budget import Budget
from eval_factory.core.enums import LOCAL, CellRecord
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.core.rundir import SuiteDir, suite_dir
from eval_factory.core.urls import base_of
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.tasks.framework import BENCHMARK_KEY, Framework, load_framework
from eval_factory.tasks.upstreams import HELM, UPSTREAMS


@dataclass(frozen=True)
class Combination:
    """A combination of an evaluation, a variant and a target: three entries of the suite."""

    evaluation: Mapping[str, Any]
    variant: Mapping[str, Any]
    target: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the evaluation, together with the name of the variant."""
        return name_with_variant(self.evaluation["name"], self.variant)

    @property
    def description(self) -> str:
        """The combination as error messages describe it."""
        return f"{self.evaluation['name']} with variant {self.variant['name']}"

    def fits(self, pattern: Mapping[str, Any]) -> bool:
        """Return True if all keys of an entry of `include` or `exclude` match this combination.

        The keys are `evaluation`, `target` and `variant`. A missing key matches every name.
        """
        for key, names in self.names_by_key().items():
            name_pattern = pattern.get(key) or "*"
            if not any(fnmatchcase(name, name_pattern) for name in names):
                return False
        return True

    def names_by_key(self) -> dict[str, tuple[str, ...]]:
        """Return a dict from each key of a pattern to the names that the key may match.

        `evaluation` may match the name of the evaluation without or with the variant.
        """
        return {
            "evaluation": (self.evaluation["name"], self.name),
            "target": (self.target["name"],),
            "variant": (self.variant["name"],),
        }

    def fits_any(self, patterns: Sequence[Mapping[str, Any]]) -> bool:
        """Return True if at least one of the patterns matches."""
        return any(self.fits(pattern) for pattern in patterns)


def selected_combinations(section: Mapping[str, Any], problems: list[str]) -> list[Combination]:
    """Return the combinations to run, in the order of their runs.

    Args:
        section: the merged section of the suite, whose `include` and `exclude` select combinations.
        problems: the list to which wrong patterns and clashes of names are added.
    """
    variants = section.get("variants") or [{"name": suite_layers.DEFAULT_VARIANT}]
    triples = product(section["evaluations"], variants, section["targets"])
    candidates = [
        Combination(evaluation, variant, target) for evaluation, variant, target in triples
    ]
    include = section.get("include") or []
    exclude = section.get("exclude") or []
    problems += _useless_patterns(include, f"{SUITE_KEY}.include", candidates)
    problems += _useless_patterns(exclude, f"{SUITE_KEY}.exclude", candidates)
    selected = []
    for combination in candidates:
        is_included = not include or combination.fits_any(include)
        if is_included and not combination.fits_any(exclude):
            selected.append(combination)
    if not selected and not problems:
        problems.append(
            f"{SUITE_KEY}: `include` and `exclude` leave no cell (there are {len(candidates)} "
            "without these keys)"
        )
    problems += _clashes(selected)
    return selected


def _clashes(selected: Sequence[Combination]) -> list[str]:
    """Return a problem for each combination whose folder an earlier combination already has."""
    first_in_folder: dict[tuple[str, str], Combination] = {}
    clashes = []
    for combination in selected:
        folder = (combination.target["name"].lower(), combination.name.lower())
        namesake = first_in_folder.setdefault(folder, combination)
        if namesake is not combination:
            clashes.append(
                f"{SUITE_KEY}: {namesake.description} and {combination.description} "
                f"would have the same folder, {combination.name!r}; give one of them another name"
            )
    # If several targets have the same clash, report the clash once.
    return list(dict.fromkeys(clashes))


def _useless_patterns(
    patterns: Sequence[Mapping[str, Any]], path: str, candidates: Sequence[Combination]
) -> Iterator[str]:
    """Yield a problem for each pattern that matches no combination, with similar names.

    `path` is the path of the list of patterns in the suite.
    """
    for number, pattern in enumerate(patterns):
        if any(combination.fits(pattern) for combination in candidates):
            continue
        names_by_key: dict[str, list[str]] = {"evaluation": [], "target": [], "variant": []}
        for combination in candidates:
            for key, names in combination.names_by_key().items():
                names_by_key[key] += names
        hints = ""
        for key, known_names in names_by_key.items():
            name_pattern = pattern.get(key)
            if name_pattern and name_pattern not in known_names:
                hints += did_you_mean(name_pattern, known_names)
        yield f"{path}[{number}]: fits no cell{hints}"


def _judges_of(
    combination: Combination, params: Mapping[str, Any], judges: Sequence[Any], framework: Framework
) -> list[Any]:
    """Return the judges of the suite that the cell's task asks.

    A task with a jury asks all judges. Another task asks only judges whose roles HELM prescribes. A
    custom benchmark may have no jury; it then asks no judges.

    Args:
        combination: the combination of the cell.
        params: the parameters of the cell.
        judges: the judges of the suite.
        framework: all tasks.
    """
    extra = params.get("extra") or {}
    upstream = UPSTREAMS.get(str(extra.get("upstream")), HELM)
    # The problems are ignored here: the check of the cell reports the problems of the task.
    task = task_named(combination.evaluation["type"], framework, problems=[], upstream=upstream)
    if task is None:
        return []
    if not task.helm.judges:
        roles = prescribed_judges_by_role(task.helm.prescribed_judges)
        chosen: list[Any] = []
        for judge in judges:
            if isinstance(judge, Mapping) and judge.get("name") in roles:
                chosen.append(judge)
        return chosen
    path = extra.get(BENCHMARK_KEY)
    if BENCHMARK_KEY not in task.helm.parameters or path is None:
        return list(judges)
    try:
        has_jury = load_benchmark(Path(path)).has_jury
    except ConfigError:
        # The check of the cell reports the problems of the benchmark.
        return []
    if not has_jury:
        return []
    return list(judges)


def limit_group_of(target: Mapping[str, Any]) -> str:
    """Return the name of a target's limit group: the targets that share limits of requests.

    The name is the target's `limit_group`, or else it is made from the target's URLs. If the suite
    starts the target's server, no other target is in the group.
    """
    if target.get("serve"):
        return f"server of {target['name']}"
    if target.get("limit_group"):
        return str(target["limit_group"])
    groups = map(group_of_url, urls_in(target["api_endpoint"]["url"]))
    return ", ".join(sorted(groups))


def group_of_url(url: str) -> str:
    """Return a name that is equal for all ways to write the URL of an endpoint.

    The URL may be the base URL or the full URL, with or without a query or a final slash.
    """
    if url in DEMO_URLS:
        return url
    parts = urlsplit(base_of(url))
    return f"{parts.netloc.lower()}{parts.path}"


class CellParameter(NamedTuple):
    """The value of a parameter of a cell, and the entry of the suite that sets the value."""

    set_by: str  # such as `target small`
    value: Any


def cell_parameters(
    combination: Combination, section: Mapping[str, Any]
) -> dict[str, CellParameter]:
    """Return the parameters of a cell by their dotted paths, without parameters that are null.

    Args:
        combination: the combination of the cell.
        section: the merged section of the suite.
    """
    # Later entries overwrite earlier entries.
    entries = {
        "suite": section,
        f"evaluation {combination.evaluation['name']}": combination.evaluation,
        f"target {combination.target['name']}": combination.target,
        f"variant {combination.variant['name']}": combination.variant,
    }
    parameters: dict[str, CellParameter] = {}
    for set_by, entry in entries.items():
        for path, value in leaves_by_path(entry.get("params") or {}).items():
            parameters[".".join(path)] = CellParameter(set_by, value)
    # Nulls are only removed now, because a null cancels the value of an earlier entry.
    return {key: parameter for key, parameter in parameters.items() if parameter.value is not None}


@dataclass(frozen=True)
class Cell(CellRecord):
    """A cell of the suite: one run.

    Attributes:
        document: the run config of the cell: `config` and `target`, with an absolute `output_dir`.
        folder: the output folder of the cell.
    """

    document: Mapping[str, Any]
    folder: Path

    @property
    def request(self) -> RunRequest:
        """The cell's run config as a request."""
        return RunRequest(document=self.document)


@dataclass(frozen=True)
class ReusedCell(CellRecord):
    """A cell of the suite's table that is not run: a finished result is copied instead.

    Attributes:
        source: the folder of the finished result.
        folder: the folder within the suite's folder to which the result is copied.
    """

    source: Path
    folder: Path


@dataclass(frozen=True)
class Suite:
    """A suite whose layers were read, merged and checked.

    Attributes:
        folder: the output folder of the suite.
        cells: all cells in the order of their runs: evaluation by evaluation, target by target.
        budget: the maximum cost, tokens, requests and time of all cells together.
        max_processes: the maximum number of cells that run at the same time. Each cell is a
            helm-run, which takes memory.
        max_attempts: the maximum number of attempts of a cell in one invocation. A further attempt
            is only made if it can help.
        max_outage_s: the seconds for which cells wait for an endpoint that no longer answers.
        limit_groups: a dict from the name of each target to the name of its limit group.
        document: the content of suite_config.yml: the suite with all defaults, after the preset and
            the files of `extends` were merged.
        executor: the executor of the cells.
        slurm: a dict from the name of each target to its `SlurmSection` with all defaults.
        serve: a dict from the name of a target to its `ServeSection` with all defaults, for the
            targets whose servers the suite starts. In a Slurm job, the section also has the key
            `suite_model.LAUNCH_KEY`: the command that starts a server.
        reused: the finished results that the table shows together with the cells.
    """

    folder: SuiteDir
    cells: tuple[Cell, ...]
    budget: Budget
    max_processes: int
    max_attempts: int
    max_outage_s: float
    limit_groups: Mapping[str, str]
    document: Mapping[str, Any]
    executor: str
    slurm: Mapping[str, Mapping[str, Any]]
    serve: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reused: tuple[ReusedCell, ...] = ()


def build_suite(
    path: Path | None,
    *,
    document: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    env: Mapping[str, str],
) -> Suite:
    """Merge the layers of a suite, check all values, and return the suite with its cells.

    The layers are the preset, the extended files, the file itself, the flags and the overrides. The
    run configs of the cells are checked later (`workflows/suite/planned_cells.py`).

    Args:
        path: the suite's file; None if there is no file.
        document: the content of the suite's file as a mapping, in place of a file.
        flags: a dict from the dotted path of a value to the value.
        overrides: the texts `path=value` of the command line.
        env: the environment variables.

    Raises:
        ConfigError: the suite is wrong; the error holds every problem.
    """
    framework = load_framework()
    problems: list[str] = []
    file_or_document = path if document is None else document
    layers = suite_layers.read_layers(
        file_or_document, flags or {}, tuple(overrides), env, problems
    )
    section = _merged_section(layers, framework, problems)
    if problems:
        raise ConfigError(problems)
    problems += _missing(section, env)
    problems += _waits_in_job(section, framework)
    selected = []
    if not problems:
        # A server that the suite starts has a URL in the run configs of the cells. The suite's own
        # document stays without the URL.
        targets = [served_target(target, framework.defaults.serve) for target in section["targets"]]
        selected = selected_combinations({**section, "targets": targets}, problems)
        problems += _reused_twice(section, selected)
    if problems:
        raise ConfigError([f"{path}: {problem}" if path else problem for problem in problems])
    return _suite(section, selected, framework)


def _merged_section(
    layers: Sequence[suite_layers.SuiteLayer], framework: Framework, problems: list[str]
) -> dict[str, Any]:
    """Check each layer, and return the merged section `suite`.

    Args:
        layers: the layers, the weakest first. A layer with a wrong structure is not merged.
        framework: all tasks and defaults.
        problems: the list to which the problems of the layers are added.
    """
    # Each check is made of all layers before the next check, so the problems are in this order.
    well_formed = []
    for layer in layers:
        # These problems do not concern the content of `params` and of endpoints.
        structure_problems = list(problems_with(layer.tree, SUITE_KEY, SuiteSection))
        problems += [f"{layer.message_prefix}{problem}" for problem in structure_problems]
        # Unknown keys do not prevent the other checks.
        if all(problem.startswith(UNKNOWN_KEY) for problem in structure_problems):
            well_formed.append(layer)
    for layer in well_formed:
        value_problems = suite_layers.problems_of_values(layer.tree, framework)
        problems += [f"{layer.message_prefix}{problem}" for problem in value_problems]
    normalized = []
    for layer in well_formed:
        normalized.append((layer, suite_layers.normal_form(layer, framework, problems)))
    return suite_layers.merged_section(normalized)


def _missing(section: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each required key that the section lacks, and the problems of servers."""
    if not section.get("output_dir"):
        yield f"{SUITE_KEY}.output_dir: is missing; write it in the suite or give --output_dir"
    if not section.get("evaluations"):
        yield (
            f"{SUITE_KEY}.evaluations: is missing; it lists tasks ('eval-factory ls' shows them), "
            "or choose a preset"
        )
    if not section.get("targets"):
        yield (
            f"{SUITE_KEY}.targets: is missing; it lists models: "
            "a name, and api_endpoint with url and model_id"
        )
    for entry in section.get("evaluations") or []:
        if not entry.get("type"):
            yield (
                f"{SUITE_KEY}.evaluations: {entry['name']} "
                "has no `type`, the task ('eval-factory ls' lists them)"
            )
    for target in section.get("targets") or []:
        endpoint = target.get("api_endpoint") or {}
        needed_keys = ["url", "model_id"]
        if target.get("serve"):
            needed_keys = ["model_id"]  # The suite knows the URL of a server that it starts.
        for key in needed_keys:
            if endpoint.get(key) is None:
                yield f"{SUITE_KEY}.targets: {target['name']} has no api_endpoint.{key}"
        if target.get("serve"):
            yield from problems_of_serve(target, f"{SUITE_KEY}.targets: {target['name']}", env)


def _waits_in_job(section: Mapping[str, Any], framework: Framework) -> Iterator[str]:
    """Yield a problem for each target whose jobs would only wait for batches."""
    executor = section.get("executor") or framework.defaults.suite["executor"]
    if executor == LOCAL:
        return
    for target in section.get("targets") or []:
        if (target.get("api_endpoint") or {}).get("batch"):
            yield f"{SUITE_KEY}.targets: {target['name']}: {WAITS_IN_JOB}"


def goes_by_batch(document: Mapping[str, Any]) -> bool:
    """Return True if a run config sends requests by batch to its target or to a judge."""
    endpoints = [document["target"]["api_endpoint"]]
    extra = document["config"]["params"].get("extra") or {}
    endpoints.extend(extra.get("judges") or [])
    return any(endpoint.get("batch") for endpoint in endpoints)


def _reused_twice(section: Mapping[str, Any], selected: Sequence[Combination]) -> Iterator[str]:
    """Yield a problem for each reused result if the table already has a cell of the same name."""
    names_in_table = {
        (combination.target["name"].lower(), combination.name.lower()) for combination in selected
    }
    for number, entry in enumerate(section.get("reuse") or []):
        names = (entry["target"].lower(), entry["evaluation"].lower())
        if names in names_in_table:
            yield (
                f"{SUITE_KEY}.reuse[{number}]: {entry['target']}/{entry['evaluation']} is already "
                "in the table; choose another `evaluation`, or leave out the other run by `exclude`"
            )
        names_in_table.add(names)


def _reused(section: Mapping[str, Any], folder: SuiteDir) -> Iterator[ReusedCell]:
    """Yield a cell for each finished result that the suite reuses."""
    for entry in section.get("reuse") or []:
        target = entry["target"]
        evaluation = entry["evaluation"]
        yield ReusedCell(
            target,
            evaluation,
            source=Path(entry["folder"]),
            folder=folder.cell_folder(target, evaluation),
        )


def _cell(
    section: Mapping[str, Any], combination: Combination, folder: SuiteDir, framework: Framework
) -> Cell:
    """Return the cell of a combination, with the run config of its run."""
    params: Any = {}
    weakest_first = (section, combination.evaluation, combination.target, combination.variant)
    for entry in weakest_first:
        params = overlaid(params, stronger=entry.get("params") or {})
    passed = {}
    for name in KEYS_PASSED_TO_CELLS:
        value = section.get(name)
        if name == "judges" and value:
            value = _judges_of(combination, params, value, framework)
        if value:
            passed[name] = value
    if passed:
        # A key in the parameters of the cell is stronger than the same key of the suite.
        params = overlaid({"extra": deepcopy(passed)}, stronger=params)
    cell_folder = folder.cell_folder(combination.target["name"], combination.name)
    config = {
        "type": combination.evaluation["type"],
        "output_dir": str(cell_folder),
        "params": params,
    }
    endpoint = deepcopy(combination.target["api_endpoint"])
    document = {"config": config, "target": {"api_endpoint": endpoint}}
    return Cell(combination.target["name"], combination.name, document, folder=cell_folder)


MAX_PROCESSES = 8
"""The default maximum number of cells that run at the same time. A cell takes about 130 MB."""
MAX_WAITING = 32
"""The default maximum if cells wait for batches. A cell that waits takes about 100 MB."""


def _default_processes(cells: Sequence[Cell]) -> int:
    """Return the default number of cells that run at the same time."""
    # Use two processes for each core: a cell that waits for answers needs little CPU time, while
    # other cells load data and compute scores.
    cores = os.cpu_count() or 1
    processes = min(2 * cores, MAX_PROCESSES)
    if any(goes_by_batch(cell.document) for cell in cells):
        # A cell that waits for a batch needs no CPU time, and must not delay another cell's batch.
        processes = max(processes, min(len(cells), MAX_WAITING))
    return processes


def _suite(section: dict[str, Any], selected: Sequence[Combination], framework: Framework) -> Suite:
    """Return the suite of a merged and checked section."""
    folder = suite_dir(Path(section["output_dir"]))
    cells = [_cell(section, combination, folder, framework) for combination in selected]
    settings = with_defaults(framework.defaults.suite, section)
    settings["slurm"] = with_defaults(framework.defaults.suite["slurm"], section.get("slurm"))
    budget_keys = [budget_field.name for budget_field in fields(Budget)]
    budget = Budget(**{key: settings[key] for key in budget_keys})
    return Suite(
        folder=folder,
        cells=tuple(cells),
        budget=budget,
        max_processes=settings["max_processes"] or _default_processes(cells),
        max_attempts=settings["max_attempts"],
        max_outage_s=float(settings["max_outage_s"]),
        limit_groups={target["name"]: limit_group_of(target) for target in section["targets"]},
        serve={
            target["name"]: with_defaults(framework.defaults.serve, target["serve"])
            for target in section["targets"]
            if target.get("serve")
        },
        executor=settings["executor"],
        slurm={
            target["name"]: with_defaults(settings["slurm"], target.get("slurm"))
            for target in section["targets"]
        },
        document={SUITE_KEY: settings},
        reused=tuple(_reused(section, folder)),
    )
