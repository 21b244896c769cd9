"""What of the submitter's environment a task gets: by a file that only its user can read, and that goes away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path

from eval_factory.config.serve_model import variables_of
from eval_factory.config.suite import Suite
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import write_atomic
from eval_factory.executors.environment import ALLOWED
from eval_factory.plan.credentials import CREDENTIALS_VARIABLE
from eval_factory.workflows.context import HUB_TOKEN
from eval_factory.workflows.suite.planned_cells import PlannedCell

OF_THE_MACHINE = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP", "PYTHONPATH", "VIRTUAL_ENV",
        "CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SYSTEMROOT",
    }
)  # fmt: skip
"""The node, and the lines before the evaluation, say these themselves."""


def secrets_of(cells: Iterable[PlannedCell]) -> set[str]:
    """Names of variables that a cell reads, and that may be secret."""
    names = {HUB_TOKEN, CREDENTIALS_VARIABLE}
    for planned in cells:
        evaluation = planned.plan.evaluation
        names |= {*evaluation.key_names(), *evaluation.setting_names()}
        for endpoint in planned.plan.endpoints:
            names |= {*endpoint.key_names, *endpoint.secret_variables}
    return names


def named_by_servers(suite: Suite) -> set[str]:
    """Names of variables that the servers of models get."""
    return {name for serve in suite.serve.values() for name in variables_of(serve)}


def write_environment(path: Path, env: Mapping[str, str], secrets: Iterable[str]) -> None:
    names = {*(ALLOWED - OF_THE_MACHINE), *secrets}
    kept = {name: value for name, value in env.items() if name in names}
    write_atomic(path, json.dumps({"secrets": sorted(set(secrets) & kept.keys()), "values": kept}), mode=PRIVATE)


def take_environment(path: Path, env: MutableMapping[str, str]) -> None:
    """Keys are the submitter's; of settings, what the node or the lines before the evaluation say comes first.

    Raises:
        FileNotFoundError: the wave has ended, or was cancelled.
    """
    kept = json.loads(path.read_text(encoding="utf-8"))
    for name, value in kept["values"].items():
        if name in kept["secrets"] or name not in env:
            env[name] = value
