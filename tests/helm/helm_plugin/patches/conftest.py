from __future__ import annotations

from typing import Any

import pytest

from eval_factory.helm_plugin.patches.patch_registry import patch_named
from patching import ApplyPatch, owners


@pytest.fixture
def apply_patch(monkeypatch: pytest.MonkeyPatch) -> ApplyPatch:
    """Applies a patch by its name; after the test HELM's own is put back."""

    def apply(name: str) -> Any:
        patch = patch_named(name)
        for owner, attribute in owners(patch):
            monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
        return patch.apply()

    return apply
