from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pytest

from eval_factory.helm_plugin.patches.registry import PATCHES, Patch
from unit.data.invented import Origin

ApplyPatch = Callable[[str], Any]


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


def owners(patch: Patch) -> Iterator[tuple[Any, str]]:
    """Of each attribute that a patch replaces in HELM: where it stands, and its name."""
    for target in patch.helm_targets:
        module, _, attribute = target.partition(":")
        if attribute:
            *path, name = attribute.split(".")
            yield reduce(getattr, path, importlib.import_module(module)), name


@pytest.fixture
def apply_patch(monkeypatch: pytest.MonkeyPatch) -> ApplyPatch:
    """Applies a patch by its name; after the test HELM's own is put back."""

    def apply(name: str) -> Any:
        (patch,) = (patch for patch in PATCHES if patch.name == name)
        for owner, attribute in owners(patch):
            monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
        return patch.load()()

    return apply
