"""Patches are applied where they were checked, and only there; what cannot be applied is left out or stops the run."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import SKIPPED_PATCHES_VARIABLE
from eval_factory.helm.environments import installed_upstream
from eval_factory.helm_plugin.patches import patch_registry
from eval_factory.helm_plugin.patches.patch_registry import (
    PLUGIN_PACKAGE,
    Patch,
    Stage,
    apply_patches,
)
from eval_factory.tasks.upstreams import HELM
from facts import naming

GENERAL = "helm.common.general:ensure_file_downloaded"
done: list[str] = []


class Made:
    """A module of patches that tell when they are applied."""

    def __getattr__(self, name: str) -> Any:
        def applied() -> bool | None:
            done.append(name)
            if name.startswith("broken"):
                raise AttributeError("module 'helm'\nhas no attribute 'that'")
            return False if name.startswith("needless") else None

        return applied


@pytest.fixture(autouse=True)
def _nothing_applied_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    done.clear()
    monkeypatch.setattr(patch_registry, "_applied", [])
    monkeypatch.setitem(sys.modules, f"{PLUGIN_PACKAGE}.made", Made())
    monkeypatch.setattr(sys, "argv", ["helm-run", "--run-entries", "medec:model=m"])
    monkeypatch.delenv(SKIPPED_PATCHES_VARIABLE, raising=False)


def patch(name: str = "one", **given: Any) -> Patch:
    return Patch(f"made:{name}", "a patch of this test", **given)


def names() -> list[str]:
    return [made.name for made in patch_registry._applied]


def test_each_is_applied_once_in_its_stage() -> None:
    made = (
        patch("a"),
        patch("b", stage=Stage.SCORING),
        patch("c", run_specs=frozenset({"medec"})),
        patch("needless"),
    )
    other = patch("d", run_specs=frozenset({"pubmed_qa"}))
    for _ in range(2):
        apply_patches(Stage.START, (*made, other))
    assert done[:3] == ["a", "c", "needless"]
    assert names() == ["a", "c"]
    assert done.count("a") == 1
    apply_patches(Stage.SCORING, made)
    assert names() == ["a", "c", "b"]


@pytest.mark.parametrize("without", ["all", "a", "other,a"])
def test_what_only_makes_helm_quicker_is_left_out_by_name(
    without: str, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setenv(SKIPPED_PATCHES_VARIABLE, without)
    apply_patches(Stage.START, (patch("a", only_speed=True), patch("b")))
    assert names() == ["b"]
    apply_patches(Stage.START, (patch("all"),))  # no other patch can be left out
    assert names() == ["b", "all"]
    assert capsys.readouterr().err == ""


def test_one_that_breaks_breaks_the_run() -> None:
    with pytest.raises(AttributeError):
        apply_patches(Stage.START, (patch("broken"),))


def test_another_helm_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        patch_registry, "installed_upstream", lambda: replace(HELM, version="0.5.99")
    )
    apply_patches(Stage.LOGGING, (patch("a", stage=Stage.LOGGING),))
    with pytest.raises(
        PrerequisiteError,
        match=naming("crfm-helm 0.5.99", "supported: crfm-helm 0.5.16."),
    ):
        apply_patches(Stage.START, (patch("b"),))
    assert done == ["a"]


@pytest.mark.parametrize(
    ("target", "changed"),
    [
        (GENERAL, None),
        ("helm.common.general", None),
        ("helm.common.no_such_module", "helm.common.no_such_module"),
        ("helm.no_such_package.module:name", "helm.no_such_package.module"),
        ("no_such_package:name", None),
    ],
)
def test_a_target_has_to_be_there(target: str, changed: str | None) -> None:
    made = (patch("a", targets=(GENERAL, target), stage=Stage.SCORING),)
    with (
        nullcontext()
        if changed is None
        else pytest.raises(PrerequisiteError, match=f"patched: {changed} differ")
    ):
        apply_patches(Stage.START, made)
    apply_patches(
        Stage.START, (patch("b", targets=(target,), run_specs=frozenset({"pubmed_qa"})),)
    )  # of another run


def test_a_file_of_helm_that_was_edited_is_not_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(installed_upstream())
    known = {here: {**patch_registry.CHECKED_FILES[here], "helm.common.general": "0" * 64}}
    monkeypatch.setattr(patch_registry, "CHECKED_FILES", known)
    for target in (GENERAL, "helm.common.general"):
        with pytest.raises(
            PrerequisiteError, match=rf"helm\.common\.general differ from the published {here}"
        ):
            apply_patches(Stage.START, (patch(targets=(target,)),))
    assert done == []


def test_what_was_applied_is_named() -> None:
    made = (patch("a"), patch("b", run_specs=frozenset({"medec", "aci_bench"}), erratum="e"))
    apply_patches(Stage.START, made)
    assert patch_registry.applied_patch_names() == ["a", "b"]
