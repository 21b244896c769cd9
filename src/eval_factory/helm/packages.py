"""What a run imports: looked for before anything is asked, and what to do where it is not there.

helm-run is always the one of our own interpreter, so that what this process can import, helm-run can.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from importlib import metadata, util

from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm.names import MEASURED_HELM
from eval_factory.tasks.run_specs import load_index

HELM = "crfm-helm"


def look_for_packages(task: str, run_spec: str) -> None:
    """HELM itself, and what this run spec of HELM's is known to import.

    Raises:
        PrerequisiteError: one is not installed; with the command that installs it.
    """
    look_for_helm()
    missing = missing_for(run_spec)
    if missing:
        raise PrerequisiteError(not_installed(task, missing) + "\n  nothing was asked")


def look_for_helm() -> None:
    """Raises:
    PrerequisiteError: HELM is not installed beside this program.
    """
    try:
        metadata.version(HELM)
    except metadata.PackageNotFoundError:
        raise PrerequisiteError(
            f"HELM ({HELM}) is not installed in the environment of eval-factory, {sys.prefix}\n"
            f"  {install_command([f'{HELM}=={MEASURED_HELM}'])}"
        ) from None


def missing_for(run_spec: str) -> list[str]:
    """Modules that a run spec imports in any case and that cannot be found here."""
    told = load_index().run_specs.get(run_spec)
    return [module for module in (told.packages if told else ()) if util.find_spec(module) is None]


def not_installed(task: str, modules: Iterable[str]) -> str:
    """That modules are missing, and the command that installs them."""
    modules = list(modules)
    known = load_index().packages
    named = "a package" if len(modules) == 1 else "packages"
    are = "is" if len(modules) == 1 else "are"
    command = install_command(known.get(module, module) for module in modules)
    unknown = [module for module in modules if module not in known]
    hint = f"\n  if no package is called {' or '.join(unknown)}, look for the one that holds this module"
    said = f"HELM needs {named} for {task} that {are} not installed: {', '.join(modules)}\n  {command}"
    return said + hint if unknown else said


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
