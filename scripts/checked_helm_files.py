#!/usr/bin/env python3
"""Writes src/eval_factory/helm_plugin/patches/checked_files.json: hashes of HELM's patched files.

The files are those of the modules in which patches replace something.

Run this script when a new version of HELM is supported. `git diff` then shows which files changed;
check each patch of these files. With the Python of medhelm's environment and PYTHONPATH=src, the
script writes the hashes of medhelm's files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from itertools import chain
from pathlib import Path

from eval_factory.helm.environments import installed_upstream
from eval_factory.helm_plugin.patches.patch_registry import PATCHES

FILE = (
    Path(__file__).resolve().parents[1] / "src/eval_factory/helm_plugin/patches/checked_files.json"
)


def checked_files() -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each module's file, by the installed upstream and the module."""
    upstream = installed_upstream()
    patches = [patch for patch in PATCHES if upstream.name in patch.upstreams]
    targets = chain.from_iterable(patch.helm_targets for patch in patches)
    modules = sorted({target.partition(":")[0] for target in targets})
    hashes = {}
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise SystemExit(f"HELM has no module {module}")
        hashes[module] = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    return {str(upstream): hashes}


if __name__ == "__main__":
    FILE.write_text(
        json.dumps(json.loads(FILE.read_text("utf-8")) | checked_files(), indent=2) + "\n",
        encoding="utf-8",
    )
