"""Finds the installed version of an upstream, and the packages that its runs import.

An upstream is a published version of HELM: the package crfm-helm or the package medhelm. There are
up to three environments. crfm-helm is installed in eval-factory's own environment.
medhelm has another environment, because both packages install the import name `helm`. The packages
for HEIM's metrics of pictures are in a third environment, with a second crfm-helm.

This module therefore looks for packages in the environment of the future helm-run, before any
request is sent, and never imports them into this process.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata, util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HEIM_HOME_VARIABLE, MEDHELM_HOME_VARIABLE
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import HEIM, HELM, MEDHELM, UPSTREAMS, Upstream

if TYPE_CHECKING:
    # not imported at run time: the module imports pydantic, which helm-run does not need
    from eval_factory.plan.run_plan import Plan

HOME_VARIABLES = {MEDHELM.name: MEDHELM_HOME_VARIABLE, HEIM.name: HEIM_HOME_VARIABLE}
"""From each upstream with a separate environment to the variable with the environment's folder."""
MODULE_OF_PICTURE_METRICS = "torch"  # every metric of pictures needs this module
STARTER = Path(__file__).resolve().parents[1] / "helm_plugin" / "start_in_environment.py"
"""The script with which the interpreter of another environment starts one of HELM's programs."""


@dataclass(frozen=True)
class Environment:
    """The Python environment for an upstream. The upstream need not be installed."""

    upstream: Upstream
    python: str  # the path of the interpreter
    # the folders from which modules are imported; None: those of this process
    search: tuple[str, ...] | None = None

    def version_of(self, package: str) -> str | None:
        """Return the installed version of a package; None if the package is not installed."""
        # If several versions are installed, Python imports the first.
        for distribution in self.distributions(package):
            return distribution.version
        return None

    def distributions(self, package: str | None = None) -> Iterable[metadata.Distribution]:
        """Return the installed distributions: all of them, or only those of one package."""
        search = self.search
        if search is None:
            search = tuple(sys.path)
        return metadata.distributions(name=package, path=list(search))

    def has_module(self, name: str) -> bool:
        """Return True if a top-level module is installed, without importing it."""
        return self._spec_of(name) is not None

    def _spec_of(self, name: str) -> ModuleSpec | None:
        """Return the spec of a top-level module, without importing it; None if not installed."""
        if self.search is None:
            return util.find_spec(name)
        return PathFinder.find_spec(name, list(self.search))

    def helm_path(self, *parts: str) -> Path | None:
        """Return the path of a file or folder of the installed HELM, without importing HELM.

        `parts` is the path below the folder of the package `helm`. Return None if the file or
        folder does not exist, or if HELM is not installed.
        """
        spec = self._spec_of("helm")
        if spec is None:
            return None
        for folder in spec.submodule_search_locations or ():
            path = Path(folder).joinpath(*parts)
            if path.exists():
                return path
        return None

    def program(self, module: str, script: str) -> list[str]:
        """Return the beginning of a command line that runs one of HELM's programs.

        The program is that of this environment, never another program on PATH.

        Args:
            module: the module of the program.
            script: the name of the program's script.
        """
        is_separate = self.search is not None  # eval-factory is not installed there
        if is_separate:
            return [self.python, str(STARTER), module]
        script_path = Path(self.python).parent / script
        if script_path.is_file():
            return [str(script_path)]
        return [self.python, "-m", module]


def environment_of(upstream: Upstream) -> Environment:
    """Return the environment for an upstream. The upstream need not be installed."""
    if upstream is HELM:
        return Environment(HELM, python=sys.executable)
    home = environment_folder_of(upstream)
    return Environment(
        upstream,
        python=str(home / "bin" / "python"),
        search=tuple(map(str, home.glob("lib/python3*/site-packages"))),
    )


def environment_of_run(upstream: Upstream, run_spec: str) -> Environment:
    """Return the environment in which helm-run runs.

    If the answers are pictures and HEIM's environment is installed, return that environment. Else
    return the upstream's environment.
    """
    if upstream is HELM and _makes_images(run_spec):
        heim = environment_of(HEIM)
        if heim.version_of(HEIM.package) == HEIM.version:
            return replace(heim, upstream=HELM)  # HEIM's package is crfm-helm too
    return environment_of(upstream)


def environment_of_plan(plan: Plan) -> Environment:
    """Return the environment in which the helm-run of a plan runs."""
    return environment_of_run(plan.upstream, plan.evaluation.task.helm.run_spec)


def _makes_images(run_spec: str) -> bool:
    """Return True if the answers of a run spec are pictures."""
    indexed = load_index(HELM).run_specs.get(run_spec)
    return indexed is not None and indexed.makes_images


def environment_folder_of(upstream: Upstream) -> Path:
    """Return the folder of the environment of medhelm or HEIM.

    A variable (`HOME_VARIABLES`) may name the folder. Without the variable, the folder is in the
    user's data folder by the XDG Base Directory Specification.
    """
    configured_home = os.environ.get(HOME_VARIABLES[upstream.name])
    if configured_home:
        return Path(os.path.abspath(os.path.expanduser(configured_home)))
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():  # the specification ignores relative paths
        data = Path.home() / ".local" / "share"
    return data / "eval-factory" / f"{upstream.name}-{upstream.version}"


def installed_upstream() -> Upstream:
    """Return the upstream whose HELM this process imports, with the installed version.

    Inside helm-run, the result is the upstream of the run.

    Raises:
        PrerequisiteError: no upstream is installed in this environment.
    """
    for folder in sys.path:  # Python imports HELM from the first folder that has it
        for upstream in UPSTREAMS.values():
            environment = Environment(upstream, python=sys.executable, search=(folder,))
            version = environment.version_of(upstream.package)
            if version is not None:
                return replace(upstream, version=version)
    raise PrerequisiteError(
        f"HELM ({HELM.package} or {MEDHELM.package}) is not installed in {sys.prefix}"
    )


def require_packages(
    task: str, run_spec: str, upstream: Upstream, *, only_generate: bool = False
) -> None:
    """Check that HELM and the packages of a run spec are installed.

    HELM has to have exactly the supported version, because eval-factory replaces parts of it.

    Args:
        task: the name of the task, for messages.
        run_spec: the name of HELM's run spec.
        upstream: the upstream that runs the run spec.
        only_generate: whether scoring is left out, so that its packages are not needed.

    Raises:
        PrerequisiteError: a package is not installed, or HELM has another version. The message
            names the command that installs the missing package or version.
    """
    require_helm(upstream)
    environment = environment_of_run(upstream, run_spec)
    version = environment.version_of(upstream.package)
    if version != upstream.version:
        raise PrerequisiteError(
            f"{task} needs HELM ({upstream.package}) {upstream.version}; {version} is installed\n"
            "  eval-factory replaces parts of HELM, and was only tested with the version that it "
            "needs\n"
            f"  {how_to_install(upstream)}\n"
            "  nothing was asked"
        )
    if only_generate:
        return
    missing = missing_for(run_spec, environment)
    if _makes_images(run_spec):
        if not environment.has_module(MODULE_OF_PICTURE_METRICS):
            raise PrerequisiteError(_no_metrics_of_pictures(task, missing))
        # `picture_metrics` reports the metrics that need other missing packages.
    elif missing:
        raise PrerequisiteError(
            f"{missing_modules_message(task, missing, environment)}\n  nothing was asked"
        )


def _no_metrics_of_pictures(task: str, missing: Iterable[str]) -> str:
    """Return the message for an environment without packages for metrics of pictures."""
    return (
        f"{task}: HELM's metrics of pictures need packages that are not installed: "
        f"{', '.join(missing) or MODULE_OF_PICTURE_METRICS}\n"
        f"  {how_to_install(HEIM)}\n"
        "  or make the pictures now, and score them where these packages are: "
        "config.params.extra.only_generate: true\n"
        "  nothing was asked"
    )


def require_helm(upstream: Upstream) -> Environment:
    """Check that an upstream is installed, and return its environment.

    Raises:
        PrerequisiteError: the upstream is not installed in its environment.
    """
    environment = environment_of(upstream)
    if environment.version_of(upstream.package) is None:
        if upstream is HELM:
            folder = f"the environment of eval-factory, {sys.prefix}"
        else:
            folder = str(environment_folder_of(upstream))
        raise PrerequisiteError(
            f"HELM ({upstream.package}) is not installed in {folder}\n  {how_to_install(upstream)}"
        )
    return environment


def how_to_install(upstream: Upstream) -> str:
    """Return the command that installs an upstream in the supported version.

    For an upstream with its own environment, a remark about the environment's folder follows.
    """
    if upstream is HELM:
        return install_command([f"{HELM.package}=={HELM.version}"], sys.executable)
    return (
        f"eval-factory upstream install {upstream.name}   ({HOME_VARIABLES[upstream.name]} "
        "names an environment that is elsewhere)"
    )


def missing_for(run_spec: str, environment: Environment) -> list[str]:
    """Return the modules that a run spec always imports, and that the environment does not have.

    The result is empty if the run spec is not in eval-factory's index of run specs.
    """
    entry = load_index(environment.upstream).run_specs.get(run_spec)
    if entry is None:
        return []
    return [module for module in entry.packages if not environment.has_module(module)]


def missing_modules_message(task: str, modules: Iterable[str], environment: Environment) -> str:
    """Return the message that modules are missing, with the command that installs packages."""
    modules = list(modules)
    packages = load_index(environment.upstream).packages
    command = install_command(
        (packages.get(module, module) for module in modules), environment.python
    )
    subject = f"packages for {task} that are"
    if len(modules) == 1:
        subject = f"a package for {task} that is"
    message = f"HELM needs {subject} not installed: {', '.join(modules)}\n  {command}"
    unknown = [module for module in modules if module not in packages]
    if unknown:
        message += (
            f"\n  if no package is called {' or '.join(unknown)}, "
            "look for the package that holds this module"
        )
    return message


def install_command(requirements: Iterable[str], python: str) -> str:
    """Return the shell command that installs packages into an interpreter's environment.

    If the interpreter is that of this process, and has no pip, the command uses uv.

    Args:
        requirements: the packages in pip's form, such as `sacrebleu~=2.2`.
        python: the path of the interpreter.
    """
    packages = sorted(set(requirements))
    if python != sys.executable or util.find_spec("pip") is not None:
        return shlex.join([python, "-m", "pip", "install", *packages])
    return shlex.join(["uv", "pip", "install", "--python", python, *packages])


# "No module named 'spacy.util'", "dependency pandas is not installed", "needs torch"
_MODULE = re.compile(
    r"No module named '([\w.]+)'|dependency ([\w.-]+) is not installed|needs (torch)"
)


def module_named_in(message: str) -> str | None:
    """Return the top-level name of the missing module that an error message names.

    Return None if the message names no missing module.
    """
    match = _MODULE.search(message)
    if match is None:
        return None
    name: str = next(filter(None, match.groups()))  # one group of the pattern matched
    return name.partition(".")[0]
