"""Applies the patches of the registry inside helm-run, each guarded, and keeps which were applied.

A patch is applied to a version of HELM that it was checked against, where its targets are there and the files that
define them are those of that version (`checked_files.json`, made by `scripts/checked_helm_files.py`): a copy of HELM
that somebody edited, or installed from its repository, has the same version and may be something else.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from functools import cache, reduce
from importlib import resources, util
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names
from eval_factory.helm.packages import SUPPORTED_HELM, installed_helm
from eval_factory.helm_plugin.patches.patch_registry import PATCHES, Otherwise, Patch, Stage

CHECKED_FILES = "checked_files.json"

_applied: list[Patch] = []
_left_out: dict[str, str] = {}
"""Name -> why it could not be applied."""


def apply_patches(stage: Stage, patches: tuple[Patch, ...] = PATCHES) -> None:
    """All of a stage that this helm-run asks for; a second time only those that were not applied yet.

    Raises:
        PrerequisiteError: one cannot be applied that the run may not go on without.
    """
    helm = installed_helm()
    asked = names.asked_run_specs(sys.argv)
    without = HelmRunSettings.from_environment(os.environ).without
    for patch in patches:
        if patch.stage is not stage or patch in _applied or patch.name in _left_out:
            continue
        chosen = not (patch.only_speed and without & {"all", patch.name})
        if chosen and patch.is_asked_for(asked, sys.argv, os.environ):
            _apply(patch, helm)


def _apply(patch: Patch, helm: str) -> None:
    reason = objection(patch, helm)
    if reason is not None and patch.otherwise is Otherwise.FAIL:
        raise PrerequisiteError(
            f"HELM cannot be patched for this run ({patch.name}): {reason}; supported: HELM"
            f" {' or '.join(SUPPORTED_HELM)} as it was published. Nothing was asked"
        )
    if reason is None:
        try:
            if patch.load()() is not False:
                _applied.append(patch)
        except Exception as error:  # whatever this Python, or another package, does here
            if patch.otherwise is Otherwise.FAIL:
                raise
            reason = f"{type(error).__name__}: {one_line(str(error))}"
    if reason is not None:
        _left_out[patch.name] = reason
        print(f"warning: going on without {patch.name}: {reason}", file=sys.stderr)


def objection(patch: Patch, helm: str) -> str | None:
    """Why a patch may not be applied to the HELM that is installed; None where it may."""
    if patch.versions is None:
        return None
    if helm not in patch.versions:
        return f"HELM {helm} is installed"
    problems = (_problem_of(target, helm) for target in patch.helm_targets)
    return next((problem for problem in problems if problem is not None), None)


def _problem_of(target: str, helm: str) -> str | None:
    """Why a target is not the one that is known."""
    module, _, attribute = target.partition(":")
    try:
        spec = util.find_spec(module)
        owner = importlib.import_module(module) if attribute and spec is not None else None
    except ModuleNotFoundError as error:
        # One of another package is no matter of HELM's version: the patch, or HELM, says what is missing.
        is_helms = (error.name or "").partition(".")[0] == "helm"
        return f"HELM has no module {error.name}" if is_helms else None
    except Exception:  # neither is what else such a package raises while HELM imports it
        return None
    if spec is None:
        return f"HELM has no module {module}"
    if _is_changed(module, Path(spec.origin or ""), helm):
        return f"{module} is not as in HELM {helm}"
    try:
        reduce(getattr, attribute.split(".") if attribute else (), owner)
    except AttributeError:
        return f"HELM has no {attribute} in {module}"
    return None


def _is_changed(module: str, file: Path, helm: str) -> bool:
    known = _checked_files().get(helm, {}).get(module)
    try:
        return known is not None and hashlib.sha256(file.read_bytes()).hexdigest() != known
    except OSError:  # HELM in an archive
        return False


@cache
def _checked_files() -> dict[str, dict[str, str]]:
    """Version of HELM -> module with targets -> SHA-256 of its file."""
    text = (resources.files("eval_factory.helm_plugin.patches") / CHECKED_FILES).read_text(encoding="utf-8")
    loaded: dict[str, dict[str, str]] = json.loads(text)
    return loaded


def warning() -> str | None:
    """What a user should know of patches that could not be applied."""
    helm = installed_helm()
    if helm not in SUPPORTED_HELM:
        supported = " and ".join(SUPPORTED_HELM)
        return f"HELM {helm} is installed; {supported} is supported: it is run without patches"
    if _left_out:
        return "HELM is run without " + "; ".join(f"{name} ({reason})" for name, reason in _left_out.items())
    return None


def write_down(file: Path) -> None:
    """Which were applied so far, and for which run specs, for the result's provenance."""
    applied: list[dict[str, Any]] = [
        {
            "name": patch.name,
            "run_specs": None if patch.run_specs is None else sorted(patch.run_specs),
            "erratum": patch.erratum,
        }
        for patch in _applied
    ]
    write_atomic(file, json.dumps({"applied": applied, "left_out": _left_out}, indent=2) + "\n")
