"""HELM's programs, and how each is started."""

from __future__ import annotations

import sys
from pathlib import Path


class Program(list[str]):
    """What a command line begins with: one word, or an interpreter and what it runs."""


MODULES = {
    "helm-run": "helm.benchmark.run",
    "helm-summarize": "helm.benchmark.presentation.summarize",
    "helm-server": "helm.benchmark.server",
}


def helm_program(name: str) -> Program:
    """One of HELM's programs, of the environment that eval-factory itself runs in: never another one on PATH."""
    beside = Path(sys.executable).parent / name
    return Program([str(beside)] if beside.is_file() else [sys.executable, "-m", MODULES[name]])
