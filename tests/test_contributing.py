"""What newcomers and releases go by: CONTRIBUTING, CHANGELOG, CITATION, the steps of a release."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

import eval_factory
from test_development import sessions_and_test_folders

KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def versions_of(changelog: str) -> list[str]:
    """`Unreleased` and the versions, as they stand; a heading of another form fails."""
    found = []
    for line in changelog.splitlines():
        if line.startswith("## "):
            heading = re.fullmatch(r"## \[(?:(Unreleased)\]|(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d)", line)
            assert heading, line
            found.append(heading[1] or heading[2])
        elif line.startswith("### "):
            assert line.removeprefix("### ") in KINDS, line
    return found


def is_in_order(versions: list[str], package: str) -> bool:
    """The newest version is the package's, or none was released yet; Unreleased comes first, the others descend."""
    released = [version for version in versions if version != "Unreleased"]
    descending = sorted(set(released), key=Version, reverse=True) == released
    return versions[:1] == ["Unreleased"] and descending and released[:1] in ([], [package])


def test_the_changelogs_newest_version_is_the_packages(root: Path) -> None:
    assert is_in_order(versions_of((root / "CHANGELOG.md").read_text("utf-8")), eval_factory.__version__)


@pytest.mark.parametrize(
    ("headings", "package", "sound"),
    [
        ("## [Unreleased]", "0.1.0", True),
        ("## [Unreleased]\n### Added\n## [0.10.0] - 2027-01-31\n## [0.9.0] - 2026-12-01", "0.10.0", True),
        ("## [Unreleased]\n## [0.1.0] - 2027-01-31", "0.2.0", False),
        ("## [0.1.0] - 2027-01-31", "0.1.0", False),
        ("## [Unreleased]\n## [0.1.0] - 2027-01-31\n## [0.2.0] - 2027-02-28", "0.1.0", False),
        ("## [Unreleased]\n## [0.1.0] - 2027-01-31\n## [0.1.0] - 2027-01-30", "0.1.0", False),
        ("", "0.1.0", False),
    ],
)
def test_another_order_of_versions_is_found(headings: str, package: str, sound: bool) -> None:
    assert is_in_order(versions_of(headings), package) is sound


@pytest.mark.parametrize("line", ["## 0.1.0", "## [0.1.0]", "## [0.1] - 2027-01-31", "### New"])
def test_a_heading_of_another_form_is_found(line: str) -> None:
    with pytest.raises(AssertionError):
        versions_of(line)


def test_the_citation_is_of_this_version_and_of_the_form_1_2_0(root: Path) -> None:
    """The keys that the Citation File Format asks for, and the facts that others state too."""
    cited: dict[str, Any] = yaml.safe_load((root / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert cited["version"] == eval_factory.__version__
    pyproject = (root / "pyproject.toml").read_text("utf-8")
    assert f'license = "{cited["license"]}"' in pyproject
    assert all(set(author) == {"name"} and author["name"] for author in cited["authors"])
    (helm,) = cited["references"]
    assert f'"crfm-helm=={helm["version"]}"' in pyproject
    assert {"type", "title", "authors"} <= set(helm)


def test_what_contributing_names_is_there(root: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(r"`((?:docs|scripts|tests|src)/[\w./-]+)`", text)) - {
        "src/eval_factory/ROOM/NAME.py", "tests/unit/ROOM/test_NAME.py",  # the pattern of a module's test
    }  # fmt: skip
    links = {link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link}
    assert len(named) > 20
    assert [path for path in sorted(named | links) if not (root / path).exists()] == []
    for name, file in {
        "NOT_ON_IT": "tests/unit/tasks/test_medhelm_leaderboard.py",
        "_RULES": "src/eval_factory/scoring/corrections.py",
        "NEEDS_PATCHES": "src/eval_factory/helm/versions.py",
        "SignIn": "src/eval_factory/endpoint/sign_in.py",
        "OAuthSignIn": "src/eval_factory/endpoint/sign_in.py",
        "EndpointSettings": "src/eval_factory/endpoint/endpoint_settings.py",
        "Executor": "src/eval_factory/executors/base.py",
        "run_helm": "src/eval_factory/workflows/helm_run.py",
    }.items():
        assert f"`{name}`" in text
        assert re.search(rf"^(class |def )?{name}\b", (root / file).read_text("utf-8"), re.M), name


def test_contributing_lists_the_rooms_in_their_order(root: Path) -> None:
    pyproject = (root / "pyproject.toml").read_text("utf-8").partition("layers = [")[2].partition("]")[0]
    layers = [name for name in re.findall(r'^    "\(?(\w+)\)?",', pyproject, re.M) if name != "engine"]
    paragraph = (
        (root / "CONTRIBUTING.md").read_text("utf-8").partition("A room imports only from")[2].partition("\n\n")[0]
    )
    assert re.findall(r"`(\w+)`", paragraph) == layers


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/development.md"])
def test_sessions_that_are_named_are_there(name: str, root: Path) -> None:
    sessions, _ = sessions_and_test_folders(root)
    text = (root / name).read_text("utf-8")
    called = re.findall(r"nox -s ([a-z\d. -]+)", text)
    named = {word.partition("-3.")[0] for call in called for word in call.partition(" -- ")[0].split()} - {"--"}
    assert len(named) > 2
    assert named <= sessions


def test_a_release_names_every_place_of_the_version(root: Path) -> None:
    steps = (root / "docs" / "development.md").read_text("utf-8").partition("## A release")[2].partition("\n## ")[0]
    for place in ("src/eval_factory/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        assert f"`{place}`" in steps
