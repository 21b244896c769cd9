"""What holds the work on the project together: sessions, hooks, exceptions to rules, release checks, links of the docs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from scripts.check_release import content_problems, metadata_problems

from test_project import packages_of


def sessions_and_test_folders(root: Path) -> tuple[set[str], set[str]]:
    """noxfile.py's sessions, and the folders whose tests some of them run; read, for nox is not among the tests' tools."""
    tree = ast.parse((root / "noxfile.py").read_text("utf-8"))
    sessions = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(mark) == "nox.session" for mark in node.decorator_list)
    }
    (folders,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TESTS"
    )
    return sessions | set(folders), set(folders.values())


def test_every_folder_of_tests_has_a_session(root: Path) -> None:
    _, folders = sessions_and_test_folders(root)
    kept = {path.relative_to(root).parts[1] for path in (root / "tests").rglob("*/test_*.py")}
    assert {"unit", "integration", "faults"} <= kept
    assert {f"tests/{name}" for name in kept if not name.endswith(".py")} <= folders


def test_ci_calls_sessions_that_there_are_and_all_tests(root: Path) -> None:
    script = (root / ".ci" / "run").read_text("utf-8")
    named = {name for called in re.findall(r"--sessions ([a-z ]+)", script) for name in called.split()}
    sessions, _ = sessions_and_test_folders(root)
    assert {"lint", "types", "docs", "coverage", "build", "quickstart"} <= named <= sessions
    assert "bash scripts/test.sh\n" in script


def test_hooks_are_the_locked_tools_and_download_nothing(root: Path) -> None:
    config = yaml.safe_load((root / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = {hook["id"]: hook for hook in config["repos"][0]["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format"}
    locked = {package.partition("==")[0] for package in packages_of(root / "requirements-lint.lock")}
    assert {"mypy", "nox", "pre-commit", "ruff"} <= locked
    for hook in hooks.values():
        folder, _, tool = hook["entry"].split()[0].rpartition("/")
        assert folder == ".venv-lint/bin"
        assert tool in locked
        assert hook["language"] == "unsupported"  # pre-commit's word for a program that is there already


def test_every_path_that_pyproject_names_is_there(root: Path) -> None:
    """An exception from a rule, or a module to mutate, that was renamed would be forgotten."""
    named = re.findall(r'"((?:src|tests|scripts)/[^"*]*)[*]*"', (root / "pyproject.toml").read_text("utf-8"))
    assert len(named) > 15
    assert [name for name in named if not (root / name).exists()] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Metadata-Version: 2.4\nName: x\nVersion: 1\nDescription-Content-Type: text/markdown\n\n# A page\n", None),
        ("Metadata-Version: 2.4\nName: x\nVersion: 1\nDescription-Content-Type: text/markdown\n\n", "no description"),
        ("Metadata-Version: 2.4\nName: x\nVersion: 1\n\n# A page\n", "no description"),
        ("Metadata-Version: 2.4\nName: x\nVersion: one\n\n# A page\n", "'one' is invalid"),
        ("Metadata-Version: 2.4\nName: x\nVersion: 1\nRequires-Dist: a b\n\n# A page\n", "'a b' is invalid"),
    ],
)
def test_what_an_index_would_refuse_is_found(text: str, problem: str | None) -> None:
    found = metadata_problems(text.encode())
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_what_a_wheel_lacks_or_has_too_many_of_is_found() -> None:
    names = {"p/a.py", "p-1.dist-info/RECORD"}
    assert content_problems(names, {"p/a.py"}) == []
    assert content_problems(names, {"p/a.py", "p/b.py"}) == ["the wheel lacks p/b.py"]
    assert content_problems({*names, "tests/x.py"}, {"p/a.py"}) == ["the wheel holds tests/x.py, too"]


PAGES = sorted(path.name for path in (Path(__file__).resolve().parents[1] / "docs").glob("*.md"))


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name: str, root: Path) -> None:
    text = (root / "docs" / name).read_text("utf-8")
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link} - {""}
    assert [link for link in links if not (root / "docs" / link).exists()] == []
    named = set(re.findall(r"`((?:docs|scripts|tests|benchmarks|src)/[\w./-]+)`", text))
    assert [path for path in named if not (root / path).exists()] == []


WRITTEN_BY_A_RUN = {
    "run_config.yml",
    "results.yml",
    "report.md",
    "evaluation_config.yaml",
    "eval_factory_metrics.json",
    "leaderboard.json",
    "judges.yaml",
    "logging.yaml",
    "model_deployments.yaml",
    "model_metadata.yaml",
    ".own_data.json",
    ".run_state.json",
}
FOLDERS_OF_A_RUN = ("model_configs/", "responses/", "helm/runs/", "helm/set_aside/", "results.set-aside-")


def optional_rooms(root: Path) -> set[str]:
    """Rooms that have their place among the layers before they are there: `"(analysis)"` in pyproject.toml."""
    return {f"{name}/" for name in re.findall(r'^    "\((\w+)\)",', (root / "pyproject.toml").read_text("utf-8"), re.M)}


@pytest.mark.parametrize("name", ["design.md", "glossary.md"])
def test_every_file_that_the_design_names_is_there(name: str, root: Path) -> None:
    """Relative to the root or to the package; a bare basename of the package leads nobody to the file."""
    named = set(
        re.findall(r"`([\w./-]+(?:/|\.(?:py|yml|yaml|json|j2|sh|md)))`", (root / "docs" / name).read_text("utf-8"))
    )
    own = {path for path in named if path not in WRITTEN_BY_A_RUN and not path.startswith(FOLDERS_OF_A_RUN)}
    assert len(own) > 20
    places = (root, root / "src" / "eval_factory")
    missing = {path for path in own if not any((place / path).exists() for place in places)}
    assert missing <= optional_rooms(root)


def test_the_design_has_every_room(root: Path) -> None:
    """A line each, in the order of the layers."""
    text = (root / "docs" / "design.md").read_text("utf-8").partition("## Where to look")[0]
    layers = re.findall(
        r'^    "\(?(\w+)\)?",', (root / "pyproject.toml").read_text("utf-8").partition("layers = [")[2], re.M
    )
    package = root / "src" / "eval_factory"
    rooms = [
        name
        for name in layers
        if name != "engine" and ((package / name).is_dir() or (package / f"{name}.py").is_file())
    ]
    assert re.findall(r"^\| `(\w+)(?:/|\.py)` \|", text, re.M) == rooms


def test_the_map_that_the_readme_leads_to_names_every_page(root: Path) -> None:
    named = (root / "docs" / "README.md").read_text("utf-8")
    assert "(docs/README.md)" in (root / "README.md").read_text("utf-8")
    assert [name for name in PAGES if name != "README.md" and f"]({name})" not in named] == []
