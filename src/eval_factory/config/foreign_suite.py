"""Combines several run configs, converted from another program's file, into one suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from eval_factory.config.foreign_file import Tree, without_empty
from eval_factory.config.load import nest_paths
from eval_factory.config.merge import leaves_by_path


def suite_document(
    runs: Sequence[Tree], names: Sequence[str], executor_keys: Tree, serve: Tree | None
) -> Tree:
    """Return the suite whose cells are exactly these runs.

    Parameters that all runs share are written once.

    Args:
        runs: the run configs.
        names: the name of each run's evaluation.
        executor_keys: the suite's `executor` and `slurm`.
        serve: the server of every target; None if there is no server.
    """
    params_by_run = []  # for each run, a dict from the dotted path of a parameter to its value
    for run in runs:
        values = leaves_by_path(run["config"].get("params", {}))
        params_by_run.append({".".join(path): value for path, value in values.items()})
    shared = {}
    for key, value in params_by_run[0].items():
        if all(key in params and params[key] == value for params in params_by_run):
            shared[key] = value
    endpoints = [run["target"]["api_endpoint"] for run in runs]
    distinct_endpoints: list[Tree] = []
    for endpoint in endpoints:
        if endpoint not in distinct_endpoints:
            distinct_endpoints.append(endpoint)
    target_names = distinct_names(["model"] * len(distinct_endpoints))
    targets = dict(zip(target_names, distinct_endpoints, strict=True))
    evaluations: list[Any] = []
    excluded = []
    for run, name, params, own_endpoint in zip(runs, names, params_by_run, endpoints, strict=True):
        task = run["config"]["type"]
        own_params = nest_paths({key: params[key] for key in params if key not in shared})
        if own_params:
            evaluations.append({"type": task, "name": name, "params": own_params})
        elif name != task:
            evaluations.append({"type": task, "name": name})
        else:
            evaluations.append(task)
        # A suite combines each evaluation with each target. Exclude the cells that are not runs.
        for target, endpoint in targets.items():
            if endpoint != own_endpoint:
                excluded.append({"evaluation": name, "target": target})
    suite = {
        **executor_keys,
        "params": nest_paths(shared),
        "evaluations": evaluations,
        "targets": [
            without_empty({"name": name, "api_endpoint": endpoint, "serve": serve or {}})
            for name, endpoint in targets.items()
        ],
        "exclude": excluded,
    }
    return without_empty(suite)


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number added to each repeated name: `medec`, `medec-2`."""
    distinct_names = []
    counts: Counter[str] = Counter()  # a name -> the number of its occurrences so far
    for name in names:
        counts[name] += 1
        if counts[name] == 1:
            distinct_names.append(name)
        else:
            distinct_names.append(f"{name}-{counts[name]}")
    return distinct_names
