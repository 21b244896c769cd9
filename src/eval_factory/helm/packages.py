"""Which versions of HELM are supported, and what a run imports: looked for before anything is asked.

helm-run is always the one of our own interpreter, so that what this process can import, helm-run can.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from importlib import metadata, util
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm import names
from eval_factory.tasks.run_specs import load_index

HELM = "crfm-helm"
"""HELM's name as a package."""

SUPPORTED_HELM = (names.MEASURED_HELM,)
"""Those that every patch of HELM was checked against."""

NEEDS_PATCHES = names.JURY_RUN_SPECS | {
    "bird_sql", "cleva", "code", "codeinsights_code_efficiency", "codeinsights_correct_code",
    "codeinsights_student_coding", "codeinsights_student_mistake", "czech_bank_qa", "ehr_sql", "ehrshot",
    "medbullets_freetext", "spider",
}  # fmt: skip
"""Run specs that are wrong or unsafe without a patch, which is applied to a supported version only. What stands here is
what the registry of patches says (`helm_plugin/patches/patch_registry.py`); a test compares them."""


def installed_helm() -> str:
    """Raises:
    PackageNotFoundError: HELM is not installed.
    """
    return metadata.version(HELM)


def installed(*parts: str) -> Path | None:
    """A file or folder of the installed HELM, which is not imported; None where it has no such."""
    spec = util.find_spec("helm")
    paths = [Path(folder).joinpath(*parts) for folder in (spec.submodule_search_locations or ())] if spec else []
    return next((path for path in paths if path.exists()), None)


def look_for_packages(task: str, run_spec: str) -> None:
    """HELM itself, in a version that can run this run spec, and what the run spec is known to import.

    Raises:
        PrerequisiteError: one is not installed, or HELM in an unsupported version; with the command that installs it.
    """
    look_for_helm()
    helm = installed_helm()
    # Other run specs run with any version, without patches; helm-run then warns.
    if helm not in SUPPORTED_HELM and run_spec in NEEDS_PATCHES:
        raise PrerequisiteError(
            f"{task} needs HELM ({HELM}) {' or '.join(SUPPORTED_HELM)}; {helm} is installed\n"
            "  eval-factory replaces parts of HELM for this task, and has checked that with these versions only\n"
            f"  {install_command([f'{HELM}=={SUPPORTED_HELM[-1]}'])}\n"
            "  nothing was asked"
        )
    missing = missing_for(run_spec)
    if missing:
        raise PrerequisiteError(not_installed(task, missing) + "\n  nothing was asked")


def look_for_helm() -> None:
    """Raises:
    PrerequisiteError: HELM is not installed beside this program.
    """
    try:
        installed_helm()
    except metadata.PackageNotFoundError:
        raise PrerequisiteError(
            f"HELM ({HELM}) is not installed in the environment of eval-factory, {sys.prefix}\n"
            f"  {install_command([f'{HELM}=={SUPPORTED_HELM[-1]}'])}"
        ) from None


def missing_for(run_spec: str) -> list[str]:
    """Modules that a run spec imports in any case and that cannot be found here."""
    known = load_index().run_specs.get(run_spec)
    return [module for module in (known.packages if known else ()) if util.find_spec(module) is None]


def not_installed(task: str, modules: Iterable[str]) -> str:
    """That modules are missing, and the command that installs them."""
    modules = list(modules)
    known = load_index().packages
    named = "a package" if len(modules) == 1 else "packages"
    are = "is" if len(modules) == 1 else "are"
    command = install_command(known.get(module, module) for module in modules)
    unknown = [module for module in modules if module not in known]
    hint = f"\n  if no package is called {' or '.join(unknown)}, look for the one that holds this module"
    message = f"HELM needs {named} for {task} that {are} not installed: {', '.join(modules)}\n  {command}"
    return message + hint if unknown else message


def install_command(requirements: Iterable[str]) -> str:
    """For a shell: installs into the environment of this interpreter, which may have no pip of its own (uv, uvx)."""
    wanted = sorted(set(requirements))
    if util.find_spec("pip") is not None:
        return shlex.join([sys.executable, "-m", "pip", "install", *wanted])
    return shlex.join(["uv", "pip", "install", "--python", sys.executable, *wanted])


_MODULE = re.compile(r"No module named '([\w.]+)'|dependency ([\w.-]+) is not installed|needs (torch)")


def module_named_in(message: str) -> str | None:
    """The module that an exception says is missing, by its first name."""
    found = _MODULE.search(message)
    return next((name for name in found.groups() if name), "").partition(".")[0] if found else None
