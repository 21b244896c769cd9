"""HELM's programs, and how each is started."""

from __future__ import annotations

import re
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


_OF_A_SCRIPT = (
    r"#.*|import re|import sys|if __name__ == .__main__.:|(el)?if sys\.argv\[0\]\.endswith\([^()]*\):"
    r"|sys\.argv\[0\] = (re\.sub\(.*, sys\.argv\[0\]\)|sys\.argv\[0\]\[:-?\d+\])|sys\.exit\(main\(\)\)|"
)
"""A line of a console script as pip or uv write it, beside its import; compiled at its first use."""


def only_calls_main(program: Program) -> bool:
    """Whether a program calls its module's `main` and nothing else; a script may be somebody's own, with more in it."""
    if len(program) > 1:
        return True
    script = Path(program[0])
    imported = f"from {MODULES[script.name]} import main"
    try:
        lines = [line.strip() for line in script.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return False
    return imported in lines and all(line == imported or re.fullmatch(_OF_A_SCRIPT, line) for line in lines)
