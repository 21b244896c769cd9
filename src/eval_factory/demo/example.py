"""What comes with the package: examples of custom benchmarks, and the sample benchmark's questions."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError

_FOLDER = "new_benchmark"
KINDS = ("choice", "jury", "rubric")
"""Folders of the examples."""


def write_example(folder: Path, *, jury: bool = False, kind: str | None = None) -> list[Path]:
    """Write the files of the example into `folder`, which is made where it is not there.

    Args:
        kind: one of `KINDS`; where it is not given, `jury` says whether it is the jury's or the choice.

    Raises:
        ConfigError: the folder holds something, or is none.
        PrerequisiteError: it cannot be written to.
    """
    import shutil
    from importlib import resources

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; name a folder that is new or empty")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder}: is not empty, and nothing is overwritten; name a folder that is new or empty")
        written = []
        packaged = resources.files(__package__) / _FOLDER / (kind or ("jury" if jury else "choice"))
        for source in sorted(packaged.iterdir(), key=lambda item: item.name):
            target = folder / source.name
            with source.open("rb") as read, target.open("xb") as write:
                shutil.copyfileobj(read, write)
            written.append(target)
        return written
    except OSError as error:
        raise PrerequisiteError(f"{folder}: cannot be written to: {error.strerror or error}") from error


TABLES = {"sample_medical_qa": "sample/data.csv"}
"""HELM's run spec -> the file that it reads, under this room."""


def packaged_data(run_spec: str) -> dict[str, str]:
    """Name -> SHA-256 of what a run spec reads of the package; empty for those that read nothing of it."""
    table = TABLES.get(run_spec)
    if table is None:
        return {}
    from eval_factory.core.results import PACKAGED  # imported here, as `--help` needs KINDS alone

    content = (resources.files(__package__) / table).read_bytes()
    return {f"{PACKAGED}demo/{table}": hashlib.sha256(content).hexdigest()}
