"""The contracts of `[tool.importlinter]` in pyproject.toml hold, and each of them can fail."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "eval_factory"
CONFIG = PACKAGE.parents[1] / "pyproject.toml"
LAYERS = "A package imports only from packages below it"
PLUGIN = "No other package imports the code that runs inside helm-run"
HELM = "HELM itself is imported only inside helm-run"
RECORDS = "Reports and analysis read records"
ANALYSIS = "Analysis compares scores"
EXECUTORS = "Executors know nothing of HELM"
CIRCLES = "import each other in a circle"
CONTRACTS = (LAYERS, PLUGIN, HELM, RECORDS, ANALYSIS, EXECUTORS, CIRCLES)


def lint(source: Path) -> tuple[int, str]:
    """Check the package of a folder against the contracts; return exit code and output."""
    finished = subprocess.run(
        [
            str(Path(sys.executable).parent / "lint-imports"),
            "--no-cache",
            "--no-logo",
            "--config",
            str(CONFIG),
        ],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "COLUMNS": "200"},
        cwd=source,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return finished.returncode, " ".join((finished.stdout + finished.stderr).split())


def test_the_contracts_hold() -> None:
    code, text = lint(PACKAGE.parent)
    assert code == 0, text
    assert f"{len(CONTRACTS)} kept, 0 broken" in text


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, to be spoilt."""
    return shutil.copytree(
        PACKAGE, tmp_path / "eval_factory", ignore=shutil.ignore_patterns("__pycache__")
    )


SPOILT = {
    LAYERS: [
        ("demo.server", "config.merge"),
        ("tasks.errata", "plan.preflight"),
        ("plan.preflight", "helm.names"),
    ],
    PLUGIN: [("workflows.resume", "helm_plugin.client"), ("cli.main", "helm_plugin.client")],
    HELM: [("scoring.scores", ".helm"), ("helm.names", ".helm"), ("demo.server", ".helm")],
    RECORDS: [
        ("report.documents", "data.bundle"),
        ("report.summary", "helm.output"),
        ("analysis.compare", "endpoint.servers"),
    ],
    ANALYSIS: [("analysis.compare", "scoring.collect")],
    EXECUTORS: [("executors.progress", "config.load"), ("executors.progress", "helm.names")],
}
"""Contract -> what it forbids: module, and what it imports; HELM itself with a dot."""
ALLOWED = [("analysis.compare", "scoring.intervals"), ("core.errors", "config.merge")]
"""Pure statistics; and a type alone."""


def test_each_contract_can_fail(copy: Path) -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {}\n"
    later = "def later() -> None:\n    import {}\n"
    spoilt = list(chain.from_iterable(SPOILT.values()))
    circle = ("executors.process", "executors.runs")
    for module, imported in [*ALLOWED, *spoilt, circle]:
        with (copy / f"{module.replace('.', '/')}.py").open("a", encoding="utf-8") as file:
            form = typed if (module, imported) == ALLOWED[-1] else later
            file.write(
                form.format(
                    f"eval_factory.{imported}" if imported[0] != "." else "helm.common.request"
                )
            )
    (copy / "attic").mkdir()
    (copy / "attic" / "__init__.py").touch()
    code, text = lint(copy.parent)
    assert code == 1
    assert f"{LAYERS}, and every package has its place BROKEN" in text
    assert "import each other in a circle BROKEN" in text
    assert ".runs" in text
    told = text.partition("Broken contracts")[2].replace("-> helm ", "-> eval_factory..helm ")
    assert [name for name in CONTRACTS if name not in told] == []
    assert [
        pair for pair in spoilt if " -> ".join(f"eval_factory.{one}" for one in pair) not in told
    ] == []
    assert [
        pair for pair in ALLOWED if " -> ".join(f"eval_factory.{one}" for one in pair) in told
    ] == []


def test_a_class_variable_says_what_it_is() -> None:
    """On Python 3.10, pydantic cannot read a class with a plain `ClassVar`, and CI runs on one version alone."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "ClassVar":
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


def too_large(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            end = node.end_lineno or node.lineno
            lines = end - node.lineno + 1
            if lines > 60:
                found.append(f"{node.name}: {lines} lines")
    return found


def test_no_function_is_too_large_to_be_seen_at_once() -> None:
    """How often one branches is ruff's matter."""
    found = {path.name: too_large(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {name: functions for name, functions in found.items() if functions} == {}
    assert too_large("def long():\n" + "    pass\n" * 60) == ["long: 61 lines"]
