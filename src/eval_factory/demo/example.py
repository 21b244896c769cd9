"""Writes the packaged example benchmarks, and hashes the file of the packaged sample benchmark."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError

_FOLDER = "new_benchmark"  # the packaged folder of the examples, relative to this file's folder
EXAMPLE_KINDS = ("choice", "jury", "rubric")  # the names of the examples, and of their folders


def write_example(folder: Path, kind: str = "choice") -> list[Path]:
    """Write the files of an example benchmark into a new or empty folder.

    Args:
        folder: the folder; it is created if it does not exist.
        kind: the name of the example, one of `EXAMPLE_KINDS`.

    Returns:
        The paths of the written files.

    Raises:
        ConfigError: the folder is not empty, or its path is a file.
        PrerequisiteError: the folder cannot be created, listed or written to.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; name a folder that is new or empty")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(
                f"{folder}: is not empty, and nothing is overwritten; "
                "name a folder that is new or empty"
            )
        packaged = (resources.files(__package__) / _FOLDER / kind).iterdir()
        written = []
        for source in sorted(packaged, key=lambda item: item.name):
            target = folder / source.name
            target.write_bytes(source.read_bytes())
            written.append(target)
        return written
    except OSError as error:
        raise PrerequisiteError(
            f"{folder}: cannot be written to: {error.strerror or error}"
        ) from error


# run spec of HELM -> the packaged file that it reads, relative to this file's folder
PACKAGED_TABLES = {"sample_medical_qa": "sample/data.csv"}


def packaged_data_hashes(run_spec: str) -> dict[str, str]:
    """Return the SHA-256 of the packaged file that a run spec reads, as `{name: SHA-256}`.

    The dict is empty if the run spec reads no packaged file.
    """
    table = PACKAGED_TABLES.get(run_spec)
    if table is None:
        return {}
    # Imported here, because `--help` needs only `EXAMPLE_KINDS` from this module and must start
    # quickly.
    from eval_factory.core.results import PACKAGE_PREFIX

    content = (resources.files(__package__) / table).read_bytes()
    return {f"{PACKAGE_PREFIX}demo/{table}": hashlib.sha256(content).hexdigest()}
