"""Tests of what the project promises about itself: README, lock, wheel."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys
import zipfile
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from scripts.readme_hook import for_an_index
from scripts.slurm import cluster
from scripts.update_readme import PAGES

from facts import says


def test_the_readme_is_short_in_both_directions(root: Path) -> None:
    lines = (root / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 120
    first_screen = lines[: lines.index("## A first real run")]
    assert len(first_screen) <= 40
    assert sum("eval-factory " in line for line in first_screen if not line.startswith(" ")) >= 2


def test_on_an_index_every_link_of_the_readme_leads_to_the_published_repository(root: Path) -> None:
    text = (root / "README.md").read_text("utf-8")
    published = for_an_index(text, "https://host.example/project", "1.2")
    paths = re.findall(r"\]\(https://host\.example/project/(?:blob|raw)/v1\.2/([^)#]+)", published)
    assert "docs/tutorial.md" in paths
    assert [path for path in paths if not (root / path).exists()] == []
    assert "![" in published
    for address in ("https://host.example/project", ""):
        assert re.findall(r"\]\((?!https?:)", for_an_index(text, address, "1.2")) == []


def test_the_usage_of_the_slurm_cluster_has_a_line_for_each_command() -> None:
    source = inspect.getsource(cluster.main)
    commands = set(re.findall(r'case \["([a-z-]+)"', source))
    lines = [line.split() for line in str(cluster.__doc__).splitlines()]
    shown = {words[1] for words in lines if words and words[0] == "scripts/slurm/cluster.py"}
    assert commands == shown | {"env"}  # `env` is shown within a command of the shell
    assert '    . "$(scripts/slurm/cluster.py env)" ' in str(cluster.__doc__)


def test_tests_without_the_package_end_with_one_line(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribution(name: str) -> object:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(root / "tests" / "conftest.py"))
    message = str(ended.value)
    says(message, "eval-factory-helm", "make_dev_venv")
    assert "\n" not in message


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str, root: Path) -> None:
    assert PAGES[name]() == (root / name).read_text("utf-8"), "run scripts/update_readme.py"


LOCKS = tuple(f"requirements{kind}.lock" for kind in ("", "-dev", "-docs", "-lint", "-mutants"))


def packages_of(lock: Path) -> dict[str, list[str]]:
    """`name==version` -> the hashes that follow; any other kind of line fails."""
    found: dict[str, list[str]] = {}
    for line in lock.read_text("utf-8").splitlines():
        package = re.fullmatch(r"([a-z0-9._-]+==[^\s;]+)( ; [^\\]+)? \\", line)
        file = re.fullmatch(r"    --hash=(sha256:[0-9a-f]{64})(?: \\)?", line)
        assert package or file, line
        if package:
            found[package[1]] = []
        elif file:
            found[list(found)[-1]].append(file[1])
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_exact_has_hashes_and_names_no_address(name: str, root: Path) -> None:
    packages = packages_of(root / name)
    assert packages
    assert all(packages.values()), packages


def test_a_run_needs_no_torch_and_no_tools_of_tests(root: Path) -> None:
    run = packages_of(root / LOCKS[0])
    tests = packages_of(root / LOCKS[1])
    assert "crfm-helm==0.5.16" in run
    assert not [
        package
        for package in run
        if re.match(r"torch|transformers|nvidia|pytest|openai|types-|hypothesis", package)
    ]
    assert {"pytest", "pytest-xdist", "openai", "hypothesis"} <= {
        package.partition("==")[0] for package in tests
    }
    assert not {package.partition("==")[0] for package in run} & {
        package.partition("==")[0] for package in tests
    }


def test_framework_yml_is_found_in_a_wheel(root: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    assert (tmp_path / "site" / "eval_factory" / "py.typed").is_file()
    finished = subprocess.run(
        [sys.executable, "-m", "eval_factory", "ls"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout.splitlines()[0] == "helm:", finished.stderr
    where = "import eval_factory.tasks.framework as f; print(f.framework_path())"
    found = subprocess.run(
        [sys.executable, "-c", where],
        env={"PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(tmp_path / "site" / "eval_factory" / "framework.yml")


def test_every_test_that_a_promise_names_is_there(root: Path) -> None:
    text = (root / "SECURITY.md").read_text("utf-8")
    named = set(re.findall(r"tests/[\w/]+\.py", text))
    assert len(named) > 20
    assert {name for name in named if not (root / name).is_file()} == set()
    _, *promises = text.partition("## What is not promised")[0].split("\n- **")
    assert len(promises) > 15
    assert all("`tests/" in promise.partition("\n## ")[0] for promise in promises)
