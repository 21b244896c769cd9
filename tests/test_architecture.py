"""The contracts of `[tool.importlinter]` in pyproject.toml hold, and each of them can fail; no module name is used twice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "eval_factory"
CONFIG = PACKAGE.parents[1] / "pyproject.toml"
LAYERS = "A room imports only from rooms below it"
PLUGIN = "What runs inside helm-run is imported by nobody else"
HELM = "HELM itself is imported only inside helm-run"
RECORDS = "Reports and analysis see records"
ANALYSIS = "Analysis compares what was scored"
EXECUTORS = "What starts processes knows nothing of HELM"
CONTRACTS = (LAYERS, PLUGIN, HELM, RECORDS, ANALYSIS, EXECUTORS)


@dataclass(frozen=True)
class Linted:
    """How `lint-imports` ended, and what it printed, without line breaks."""

    code: int
    text: str

    def broken(self) -> set[str]:
        """The contracts that do not hold, by the beginning of their names."""
        found = {name: re.search(f"{name}.*?(KEPT|BROKEN)", self.text) for name in CONTRACTS}
        assert all(found.values()), self.text
        return {name for name, state in found.items() if state and state[1] == "BROKEN"}


def lint(source: Path) -> Linted:
    """The contracts of pyproject.toml, held against the package `eval_factory` in this folder."""
    finished = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo", "--config", str(CONFIG)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "COLUMNS": "200"}, cwd=source,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Linted(finished.returncode, " ".join((finished.stdout + finished.stderr).split()))


def test_the_contracts_hold() -> None:
    linted = lint(PACKAGE.parent)
    assert linted.code == 0, linted.text
    assert linted.broken() == set()
    assert f"{len(CONTRACTS)} kept, 0 broken" in linted.text


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, to be spoilt."""
    return shutil.copytree(PACKAGE, tmp_path / "eval_factory", ignore=shutil.ignore_patterns("__pycache__"))


LAZY = "def later() -> None:\n    "
TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
SPOILT = {
    "upwards": ("demo/server.py", "import eval_factory.config.merge", LAYERS),
    "upwards, in a function": ("tasks/errata.py", f"{LAZY}import eval_factory.plan.preflight", LAYERS),
    "upwards, from the package": ("plan/preflight.py", "from eval_factory.helm import names", LAYERS),
    "a room without a place": ("attic/__init__.py", "", LAYERS),
    "the plug-in": ("workflows/resume.py", "import eval_factory.helm_plugin.client", PLUGIN),
    "the plug-in, in a function": ("cli/main.py", f"{LAZY}from eval_factory.helm_plugin import client", PLUGIN),
    "HELM": ("scoring/scores.py", "import helm.common.request", HELM),
    "HELM, in a function": ("helm/names.py", f"{LAZY}from helm.benchmark import runner", HELM),
    "HELM, in the embedded endpoint": ("demo/server.py", "import helm", HELM),
    "a report that reads data": ("report/documents.py", "import eval_factory.data.bundle", RECORDS),
    "a report that reads HELM's files": ("report/screen.py", f"{LAZY}import eval_factory.helm.output", RECORDS),
    "an analysis that asks": ("analysis/compare.py", "import eval_factory.endpoint.transport", RECORDS),
    "an analysis that scores": ("analysis/compare.py", f"{LAZY}import eval_factory.scoring.collect", ANALYSIS),
    "an analysis with pure statistics": ("analysis/compare.py", "import eval_factory.scoring.intervals", None),
    "an executor that reads configurations": ("executors/progress.py", "import eval_factory.config.load", EXECUTORS),
    "an executor that knows HELM": ("executors/progress.py", "import eval_factory.helm.names", EXECUTORS),
    "only a type": ("core/errors.py", f"{TYPED}from eval_factory.config.merge import merge", None),
}


@pytest.mark.parametrize("case", SPOILT)
def test_each_contract_can_fail(case: str, copy: Path) -> None:
    name, line, contract = SPOILT[case]
    file = copy / name
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    file.write_text(f"{file.read_text('utf-8') if file.exists() else ''}\n{line}\n", "utf-8")
    linted = lint(copy.parent)
    assert linted.broken() == ({contract} if contract else set())
    assert linted.code == bool(contract), linted.text
