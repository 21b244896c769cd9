"""The contracts of `[tool.importlinter]` in pyproject.toml hold, and each of them can fail."""

from __future__ import annotations

import ast
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
    assert f"{len(CONTRACTS) + 1} kept, 0 broken" in text


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
    assert f"{len(CONTRACTS)} kept, 1 broken" in text


def test_a_circle_of_modules_is_found(copy: Path) -> None:
    with (copy / "executors" / "progress.py").open("a", encoding="utf-8") as file:
        file.write("def later() -> None:\n    import eval_factory.executors.progress_display\n")
    code, text = lint(copy.parent)
    assert code == 1
    assert "import each other in a circle BROKEN" in text
    assert ".progress_display" in text


BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.comprehension,
)  # fmt: skip


def branches_in(node: ast.AST) -> int:
    """Of a function without those of the functions in it."""
    inside = [one for one in ast.iter_child_nodes(node) if not isinstance(one, (ast.FunctionDef, ast.Lambda))]
    return sum(isinstance(one, BRANCHES) + branches_in(one) for one in inside)


def too_large(source: str) -> list[str]:
    functions = (one for one in ast.walk(ast.parse(source)) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
    sizes = ((one.name, (one.end_lineno or 0) - one.lineno + 1, branches_in(one)) for one in functions)
    return [
        f"{name}: {lines} lines, {branches} branches" for name, lines, branches in sizes if lines > 60 or branches > 15
    ]


def test_no_function_is_too_large_to_be_seen_at_once() -> None:
    found = {path.name: too_large(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {name: functions for name, functions in found.items() if functions} == {}
    assert too_large("def long():\n" + "    pass\n" * 60) == ["long: 61 lines, 0 branches"]
    each = "    x = [1 if y else 2 for y in z]\n"
    assert too_large("def many():\n" + each * 8) == ["many: 9 lines, 16 branches"]
    assert too_large("def not_many():\n    if x:\n        pass\n" + each * 7) == []
