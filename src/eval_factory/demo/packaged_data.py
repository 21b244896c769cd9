"""Data that come with the package: the sample benchmark's questions."""

from __future__ import annotations

import hashlib
from importlib import resources

from eval_factory.core.results import PACKAGED

TABLES = {"sample_medical_qa": "sample/data.csv"}
"""HELM's run spec -> the file that it reads, under this room."""


def packaged_data(run_spec: str) -> dict[str, str]:
    """Name -> SHA-256 of what a run spec reads of the package; empty for those that read nothing of it."""
    table = TABLES.get(run_spec)
    if table is None:
        return {}
    content = (resources.files(__package__) / table).read_bytes()
    return {f"{PACKAGED}demo/{table}": hashlib.sha256(content).hexdigest()}
