"""A run's imports are looked for before anything is asked, and the advice is a command that works."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from importlib import metadata

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm import environments
from eval_factory.helm.environments import Environment, environment_of, installed_upstream
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import IndexedRunSpec, RunSpecIndex, load_index
from eval_factory.tasks.upstreams import HELM, MEDHELM
from facts import naming, says

HERE = environment_of(HELM)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> RunSpecIndex:
    wanted = {"needs_two": ("no_such_one", "no_such_two", "json"), "needs_none": ("json",)}
    specs = {name: IndexedRunSpec("m", packages=needed) for name, needed in wanted.items()}
    made = RunSpecIndex("0", (), {"no_such_one": "such-one~=2.0", "json": "json"}, specs)
    monkeypatch.setattr(environments, "load_index", lambda _upstream: made)
    return made


@pytest.mark.usefixtures("index")
def test_what_is_missing() -> None:
    assert environments.missing_for("needs_two", HERE) == ["no_such_one", "no_such_two"]
    assert environments.missing_for("needs_none", HERE) == []
    assert environments.missing_for("of another HELM", HERE) == []
    environments.require_packages("t", "needs_none", HELM)
    with pytest.raises(PrerequisiteError) as caught:
        environments.require_packages("my_task", "needs_two", HELM)
    first, command, hint, last = str(caught.value).splitlines()
    says(first, "packages", "my_task", "no_such_one, no_such_two")
    assert shlex.split(command) == [
        sys.executable,
        "-m",
        "pip",
        "install",
        "no_such_two",
        "such-one~=2.0",
    ]
    says(hint, "no_such_two", "this module")
    assert last == "  nothing was asked"
    first, command = environments.missing_modules_message("t", ["no_such_one"], HERE).splitlines()
    says(first, "a package for t", "no_such_one")
    assert command == f"  {environments.install_command(['such-one~=2.0'], sys.executable)}"


def test_an_environment_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    expected = ["uv", "pip", "install", "--python", sys.executable, "a<3", "b"]
    assert shlex.split(environments.install_command(["b", "a<3", "b"], sys.executable)) == expected


def test_without_helm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Environment, "version_of", lambda _self, _package: None)
    with pytest.raises(PrerequisiteError, match=r"pip install crfm-helm==0\.5\.16"):
        environments.require_packages("t", "pubmed_qa", HELM)
    with pytest.raises(
        PrerequisiteError, match=naming("(medhelm) is not installed", "upstream install medhelm")
    ):
        environments.require_packages("t", "pubmed_qa", MEDHELM)


@pytest.mark.parametrize(
    ("message", "module"),
    [
        ("No module named 'a.b'", "a"),
        ("Optional dependency c-d is not installed. Please", "c-d"),
        ("this metric needs torch", "torch"),
        ("cannot import name 'x'", None),
    ],
)
def test_the_module_that_a_message_names(message: str, module: str | None) -> None:
    assert environments.module_named_in(message) == module


def test_our_own_tasks_need_nothing_beside_what_is_installed() -> None:
    """But CIDEr, which HELM computes of answers about pictures."""
    specs = load_index().run_specs
    asked = {task.helm.run_spec for task in load_framework().evaluations} & specs.keys()
    assert len(asked) > 30
    assert [name for name in asked if specs[name].packages] == ["vqa_rad"]


def test_the_installed_helm_is_supported() -> None:
    assert environments.require_helm(HELM) == HERE
    assert installed_upstream() == HELM
    assert HELM.version == metadata.version("crfm-helm")


@pytest.mark.parametrize("helm", ["0.5.15", "0.5.17"])
def test_another_helm_is_refused(helm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Environment, "version_of", lambda _self, _package: helm)
    with pytest.raises(PrerequisiteError) as caught:
        environments.require_packages("my_task", "pubmed_qa", HELM)
    first, _, command, last = str(caught.value).splitlines()
    says(first, "my_task", "HELM (crfm-helm) 0.5.16", f"{helm} is installed")
    assert command.endswith("pip install crfm-helm==0.5.16")
    assert last == "  nothing was asked"
