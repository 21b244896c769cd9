"""Reads the list of HELM patches, and applies the patches that a run needs.

`patches.yaml` lists the patches in the order in which they are applied: what each patch replaces,
in which HELM distributions, and for which run specs. No file of HELM is edited, and a run imports
only the patches that the run needs. Before a patch is applied, this module checks that HELM's files
are the files with which the patch was tested (`checked_files.json`, made by
`scripts/checked_helm_files.py`). Checking the version is not enough, because an edited copy of HELM
has the same version.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import SKIPPED_PATCHES_VARIABLE, HelmRunSettings
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.helm import names
from eval_factory.helm.environments import installed_upstream
from eval_factory.tasks.upstreams import UPSTREAMS, Upstream

PLUGIN_PACKAGE = "eval_factory.helm_plugin"


class Stage(Enum):
    """The point in a helm-run at which a patch is applied."""

    LOGGING = "logging"  # while helm-run sets up its log, before it reads its own configuration
    START = "start"  # when the plug-in is loaded, before run specs are made
    IMPORTED = "imported"
    """After the import of a run's scenario, metrics and annotators, before any of them is used."""
    SCORING = "scoring"
    """After the answers have arrived. All modules that patches change are imported by then."""


@dataclass(frozen=True)
class Patch:
    """A patch: a function that replaces an attribute of HELM, or several `targets`."""

    function: str  # `module:name`, with the module's path below `eval_factory.helm_plugin`
    about: str  # the effect of the patch; docs/errata.md shows this text after the patch's name
    replaces: str | None = None
    """The `module:attribute` that is replaced. The function gets the attribute's value, and returns
    the new value. None: the function gets no argument, replaces the targets itself, and returns
    False if a replacement is not needed, for example because a package is installed.
    """
    is_replacement: bool = False  # True if the function itself is the new value of `replaces`
    targets: tuple[str, ...] = ()
    """The attributes that the function replaces itself: `module:attribute`, or a complete `module`.
    Targets outside HELM are listed, but their files are not checked.
    """
    stage: Stage = Stage.START
    # The patch is applied if the run asks one of these run specs. None: in every run.
    run_specs: frozenset[str] | None = None
    also_if_unknown: bool = False  # True to apply the patch also if the run specs are unknown
    when: str | None = None
    """The patch is applied only if this field of `HelmRunSettings` is set. In the stage IMPORTED:
    only if this module is imported.
    """
    erratum: str | None = None  # the entry of tasks/errata.yml to which the patch belongs
    upstreams: tuple[str, ...] = tuple(UPSTREAMS)
    """The upstreams that need the patch. An upstream is missing here if it lacks the targets, or if
    it has corrected the defect.
    """
    only_speed: bool = False
    """True if the patch changes no byte of the output. `EVAL_FACTORY_WITHOUT` may then turn off the
    patch.
    """

    @property
    def name(self) -> str:
        """The name of the patch in `EVAL_FACTORY_WITHOUT` and in a result's provenance."""
        return self.function.partition(":")[2]

    @property
    def helm_targets(self) -> tuple[str, ...]:
        """The targets that are part of HELM."""
        targets = self.targets if self.replaces is None else (self.replaces,)
        return tuple(target for target in targets if target.startswith("helm."))

    def is_needed(self, run_specs: set[str], env: Mapping[str, str]) -> bool:
        """Return True if a helm-run needs the patch.

        Args:
            run_specs: the run specs of the helm-run; empty if they are unknown.
            env: the environment variables, which hold the settings.
        """
        if self.when is not None and self.stage is Stage.IMPORTED:
            if self.when not in sys.modules:  # A patch must not cause an import.
                return False
        elif self.when is not None:
            settings = HelmRunSettings.from_environment(env)
            if getattr(settings, self.when) is None:
                return False
        return self.is_meant_for(run_specs)

    def is_meant_for(self, run_specs: set[str]) -> bool:
        """Return True if the patch is meant for one of the run specs.

        `run_specs` is empty if the run specs are unknown. `also_if_unknown` then decides, unless
        the patch is meant for all run specs.
        """
        if self.run_specs is None:
            return True
        if not run_specs:
            return self.also_if_unknown
        return bool(self.run_specs & run_specs)

    def load(self) -> Callable[..., Any]:
        """Import and return the patch's function."""
        function: Callable[..., Any] = pkgutil.resolve_name(f"{PLUGIN_PACKAGE}.{self.function}")
        return function

    def apply(self) -> bool:
        """Apply the patch. Return True, or False if no replacement was needed."""
        if self.replaces is None:
            return self.load()() is not False
        owner, name = owner_of(self.replaces)
        new_value = self.load()
        if not self.is_replacement:
            make_replacement = new_value
            new_value = make_replacement(getattr(owner, name))
        setattr(owner, name, new_value)
        return True


def owner_of(target: str) -> tuple[Any, str]:
    """Return the owner of a target's attribute (a module or a class), and the attribute's name."""
    module, _, attribute = target.partition(":")
    path, _, name = attribute.rpartition(".")  # `path` is empty for an attribute of the module.
    return pkgutil.resolve_name(f"{module}:{path}"), name


def _patch(entry: Mapping[str, Any]) -> Patch:
    """Return the patch that an entry of `patches.yaml` describes."""
    specs = entry.get("run_specs")
    if specs == "of juries":  # short for all run specs whose answers a jury of models scores
        specs = names.JURY_RUN_SPECS
    typed = {
        "targets": tuple(entry.get("targets", ())),
        "upstreams": tuple(entry.get("upstreams", UPSTREAMS)),
        "stage": Stage(entry.get("stage", "start")),
        "run_specs": None if specs is None else frozenset(specs),
    }
    return Patch(**{**entry, **typed})  # `typed` replaces the entry's plain values.


_FOLDER = resources.files("eval_factory.helm_plugin.patches")
PATCHES = tuple(map(_patch, parse_own_text((_FOLDER / "patches.yaml").read_text(encoding="utf-8"))))
"""All patches, in the order in which they are applied."""
CHECKED_FILES: dict[str, dict[str, str]] = json.loads(
    (_FOLDER / "checked_files.json").read_text(encoding="utf-8")
)
"""An upstream with its version -> each module with targets -> the SHA-256 of the module's file."""


def patch_named(name: str) -> Patch:
    """Return the patch of this name. Raises StopIteration if there is no patch of this name."""
    return next(patch for patch in PATCHES if patch.name == name)


_applied: list[Patch] = []  # the patches that this process has applied so far


def apply_patches(stage: Stage, patches: tuple[Patch, ...] = PATCHES) -> None:
    """Apply all patches of a stage that this helm-run needs and that are not applied yet.

    Raises:
        PrerequisiteError: in the stage START, HELM has an unsupported version, or a file with a
            target differs from the published file.
    """
    helm = installed_upstream()
    run_specs = names.asked_run_specs(sys.argv)
    turned_off = set(os.environ.get(SKIPPED_PATCHES_VARIABLE, "").split(","))
    candidates = []
    for patch in patches:
        is_turned_off = patch.only_speed and bool(turned_off & {"all", patch.name})
        if helm.name in patch.upstreams and not is_turned_off:
            candidates.append(patch)
    if stage is Stage.START:
        # Check the targets of all stages now, before any request is sent.
        _refuse_another_helm(helm, [patch for patch in candidates if patch.is_meant_for(run_specs)])
    for patch in candidates:
        is_due = patch.stage is stage and patch not in _applied
        if is_due and patch.is_needed(run_specs, os.environ):
            was_applied = patch.apply()  # False if no replacement was needed
            if was_applied:
                _applied.append(patch)


def _refuse_another_helm(helm: Upstream, patches: Iterable[Patch]) -> None:
    """Raise PrerequisiteError unless the installed HELM is the one that the patches were tested
    with.
    """
    if helm != UPSTREAMS[helm.name]:
        raise PrerequisiteError(
            f"{helm} is installed; supported: {UPSTREAMS[helm.name]}. No request was sent"
        )
    targets = chain.from_iterable(patch.helm_targets for patch in patches)
    modules = {target.partition(":")[0] for target in targets}
    changed = sorted(module for module in modules if not is_as_checked(module, helm))
    if changed:
        reason = (
            f"{', '.join(changed)} differ from the published {helm}, "
            "and this run replaces parts of them"
        )
        raise PrerequisiteError(f"HELM cannot be patched: {reason}. No request was sent")


def is_as_checked(module: str, helm: Upstream) -> bool:
    """Return True if the installed module's file is the file that the patches were tested with."""
    (root,) = importlib.import_module("helm").__path__
    _helm, *parts = module.split(".")
    path = Path(root, *parts)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    try:
        data = file.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == CHECKED_FILES[str(helm)].get(module)


def applied_patch_names() -> list[str]:
    """Return the names of all patches applied so far, for the result's provenance."""
    return [patch.name for patch in _applied]
