"""A module imports only from stages to its left and from the ground floor; run/ and helm/ do not know each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "eval_factory"
GROUND = {"causes", "errors", "foreign_text", "jsonl", "notes", "secrets", "rundir", "results"}
LEFT_TO_RIGHT = [
    "config", "plan", "keys", "helm", "demo", "mends", "engine", "run", "data", "own_data", "data_notes", "stats", "scores", "jury", "errata", "corrections", "provenance", "seen", "usage", "collect", "report", "resume", "failures", "logs", "preview", "prepare", "pipeline", "leaderboard", "cli",
]  # fmt: skip
NEVER = {("run", "helm"), ("helm", "run"), ("run", "engine"), ("run", "config"), ("run", "plan"), ("demo", "config")}
ENTRY = {"__init__", "__main__"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "eval_factory":
                names = [f"eval_factory.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("eval_factory.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_left(path: Path) -> None:
    room = room_of(path)
    for target in imported_rooms(path) - {room} - GROUND:
        assert room not in GROUND, f"the ground floor imports {target}"
        if room in ENTRY:
            continue
        assert (room, target) not in NEVER, f"{room} must not know {target}"
        assert LEFT_TO_RIGHT.index(target) < LEFT_TO_RIGHT.index(room), f"{room} imports {target}, to its right"


def test_every_room_is_known() -> None:
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - ENTRY
    assert rooms == GROUND | set(LEFT_TO_RIGHT)


def test_helm_itself_is_imported_only_inside_helm_run() -> None:
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        if any(module.split(".")[0] == "helm" for module in modules):
            assert room_of(path) in ("engine", "mends", "demo"), path
