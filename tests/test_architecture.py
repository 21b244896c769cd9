"""The contracts of `[tool.importlinter]` in pyproject.toml hold, and each of them can fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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


def lint(source: Path) -> tuple[int, str]:
    """The contracts of pyproject.toml, held against the package `eval_factory` in this folder: exit code and output, on a line."""
    finished = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo", "--config", str(CONFIG)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "COLUMNS": "200"}, cwd=source,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return finished.returncode, " ".join((finished.stdout + finished.stderr).split())


def test_the_contracts_hold() -> None:
    code, text = lint(PACKAGE.parent)
    assert code == 0, text
    assert f"{len(CONTRACTS)} kept, 0 broken" in text


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, to be spoilt."""
    return shutil.copytree(PACKAGE, tmp_path / "eval_factory", ignore=shutil.ignore_patterns("__pycache__"))


SPOILT = {
    LAYERS: [("demo.server", "config.merge"), ("tasks.errata", "plan.preflight"), ("plan.preflight", "helm.names")],
    PLUGIN: [("workflows.resume", "helm_plugin.client"), ("cli.main", "helm_plugin.client")],
    HELM: [("scoring.scores", ".helm"), ("helm.names", ".helm"), ("demo.server", ".helm")],
    RECORDS: [("report.documents", "data.bundle"), ("report.screen", "helm.output"), ("analysis.compare", "endpoint.servers")],
    ANALYSIS: [("analysis.compare", "scoring.collect")],
    EXECUTORS: [("executors.progress", "config.load"), ("executors.progress", "helm.names")],
}  # fmt: skip
"""Contract -> what it forbids: module, and what it imports; HELM itself with a dot."""
ALLOWED = [("analysis.compare", "scoring.intervals"), ("core.errors", "config.merge")]
"""Pure statistics; and a type alone."""


@pytest.mark.parametrize(
    "place", ["if True:\n    import {}\n", "def later() -> None:\n    import {}\n"], ids=["at once", "later"]
)
def test_each_contract_can_fail(place: str, copy: Path) -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {}\n"
    for module, imported in [*ALLOWED, *(pair for pairs in SPOILT.values() for pair in pairs)]:
        with (copy / f"{module.replace('.', '/')}.py").open("a", encoding="utf-8") as file:
            form = typed if (module, imported) == ALLOWED[-1] else place
            file.write(form.format(f"eval_factory.{imported}" if imported[0] != "." else "helm.common.request"))
    code, text = lint(copy.parent)
    assert code == 1
    told = text.partition("Broken contracts")[2]
    starts = sorted((told.index(name), name) for name in CONTRACTS)
    ends = [*(start for start, _ in starts[1:]), len(told)]
    for (start, name), end in zip(starts, ends, strict=True):
        found = set(
            re.findall(
                r"eval_factory\.(\S+) -> (?:eval_factory\.)?(\S+) \(l",
                f"{told[start:end]}".replace("-> helm ", "-> .helm (l"),
            )
        )
        assert set(SPOILT[name]) <= found, name
        assert not found & set(ALLOWED)


def test_a_room_has_its_place(copy: Path) -> None:
    (copy / "attic").mkdir()
    (copy / "attic" / "__init__.py").touch()
    code, text = lint(copy.parent)
    assert code == 1
    assert f"{LAYERS}, and every room has its place BROKEN" in text
    assert "5 kept, 1 broken" in text
