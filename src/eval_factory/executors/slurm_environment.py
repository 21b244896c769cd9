"""Passes environment variables, with the keys, from the submitter to the tasks of a wave.

A wave is a job array of Slurm. Keys are the credentials that its tasks need for their endpoints. A
file passes the keys to the tasks, and is deleted after the end of the wave.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path

from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.executors.process import ALLOWED_VARIABLES

_NODE_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "TEMP",
        "TMP",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "SYSTEMROOT",
    }
)
"""Variables that a task does not get from the submitter.

The node sets them, or the user's `prologue` lines in the batch script do.
"""


def write_environment(path: Path, env: Mapping[str, str], secrets: Iterable[str]) -> None:
    """Write the environment variables for the tasks into a file that only this user can read.

    The file gets the allowed variables of `env` without `_NODE_VARIABLES`, and the variables with
    the names in `secrets`.
    """
    names = {*(ALLOWED_VARIABLES - _NODE_VARIABLES), *secrets}
    passed_on = {name: value for name, value in env.items() if name in names}
    write_atomic(
        path,
        json.dumps({"secrets": sorted(set(secrets) & passed_on.keys()), "values": passed_on}),
        mode=PRIVATE,
    )


def add_stored_environment(path: Path, env: MutableMapping[str, str]) -> None:
    """Add to `env` the variables in the file that `write_environment` wrote.

    A secret replaces a variable of the same name in `env`. Other variables of `env` are not
    replaced, for the node or the batch script has set them.

    Raises:
        FileNotFoundError: the file was deleted, because the wave has ended or was cancelled.
    """
    stored = parse_json(path.read_text(encoding="utf-8"))
    for name, value in stored["values"].items():
        if name in stored["secrets"] or name not in env:
            env[name] = value
