"""What a patch of HELM replaces."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from eval_factory.helm_plugin.patches.patch_registry import Patch

ApplyPatch = Callable[[str], Any]


def owners(patch: Patch) -> Iterator[tuple[Any, str]]:
    """Of each attribute that a patch replaces in HELM: where it stands, and its name."""
    for target in patch.helm_targets:
        module, _, attribute = target.partition(":")
        if attribute:
            *path, name = attribute.split(".")
            yield reduce(getattr, path, importlib.import_module(module)), name
