"""Finds an upstream's installation, its version, and the packages that a run of it imports.

crfm-helm lies beside eval-factory, medhelm in an environment of its own: both install the import
name `helm`. What HEIM's metrics of pictures import lies in a third one, with a crfm-helm of its
own. So what is installed is looked for in the environment that helm-run will have, before
anything is asked, and never by importing it here.
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
from eval_factory.core.helm_run_settings import HEIM_HOME, MEDHELM_HOME
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import HEIM, HELM, MEDHELM, UPSTREAMS, Upstream

if TYPE_CHECKING:
    from eval_factory.plan.run_plan import Plan  # imports pydantic, which no helm-run needs

HOMES = {MEDHELM.name: MEDHELM_HOME, HEIM.name: HEIM_HOME}
"""The variable that names the folder of each environment."""
SHARED_MODULE = "torch"  # what every metric of pictures that says something of them lies beside
STARTER = Path(__file__).resolve().parents[1] / "helm_plugin" / "start_in_environment.py"


@dataclass(frozen=True)
class Environment:
    """The environment of one upstream."""

    upstream: Upstream
    python: str  # the interpreter that runs it
    # the folders that it imports from; None: those of this process
    search: tuple[str, ...] | None = None

    def version_of(self, package: str) -> str | None:
        """The installed version of a package; None if it is not installed there."""
        for distribution in self.distributions(package):
            return distribution.version
        return None

    def distributions(self, package: str | None = None) -> Iterable[metadata.Distribution]:
        """All that are installed there, or those of a name."""
        search = self.search
        if search is None:
            search = tuple(sys.path)
        return metadata.distributions(name=package, path=list(search))

    def has_module(self, name: str) -> bool:
        """Look for a module that is in no package, without importing it."""
        return self._spec_of(name) is not None

    def _spec_of(self, name: str) -> ModuleSpec | None:
        if self.search is None:
            return util.find_spec(name)
        return PathFinder.find_spec(name, list(self.search))

    def helm_path(self, *parts: str) -> Path | None:
        """A file or folder of the installed HELM, which is not imported; None if it has no such."""
        spec = self._spec_of("helm")
        if spec is None:
            return None
        for folder in spec.submodule_search_locations or ():
            path = Path(folder).joinpath(*parts)
            if path.exists():
                return path
        return None

    def program(self, module: str, script: str) -> list[str]:
        """The beginning of a command line of one of HELM's programs: never another one on PATH."""
        if self.search is not None:
            return [self.python, str(STARTER), module]
        beside = Path(self.python).parent / script
        if beside.is_file():
            return [str(beside)]
        return [self.python, "-m", module]


def environment_of(upstream: Upstream) -> Environment:
    """The environment of an upstream; one that is not installed has no version."""
    if upstream is HELM:
        return Environment(HELM, sys.executable)
    home = home_of(upstream)
    return Environment(
        upstream,
        str(home / "bin" / "python"),
        tuple(map(str, home.glob("lib/python3*/site-packages"))),
    )


def environment_of_run(upstream: Upstream, run_spec: str) -> Environment:
    """Return the environment of a run's helm-run: HEIM's, if it is installed, where answers are
    pictures.
    """
    if upstream is HELM and _makes_images(run_spec):
        apart = environment_of(HEIM)
        if apart.version_of(HEIM.package) == HEIM.version:
            return replace(apart, upstream=HELM)
    return environment_of(upstream)


def environment_of_plan(plan: Plan) -> Environment:
    """The environment of a plan's helm-run."""
    return environment_of_run(plan.upstream, plan.evaluation.task.helm.run_spec)


def _makes_images(run_spec: str) -> bool:
    indexed = load_index(HELM).run_specs.get(run_spec)
    return indexed is not None and indexed.makes_images


def home_of(upstream: Upstream) -> Path:
    """The folder of an environment of its own, which a variable may name."""
    if named := os.environ.get(HOMES[upstream.name]):
        return Path(os.path.abspath(os.path.expanduser(named)))
    configured = Path(os.environ.get("XDG_DATA_HOME", ""))
    data = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    return data / "eval-factory" / f"{upstream.name}-{upstream.version}"


def installed_upstream() -> Upstream:
    """The upstream whose HELM this very process imports, in the installed version: inside helm-run,
    the one that is run.

    Raises:
        PrerequisiteError: neither is installed here.
    """
    for folder in sys.path:  # the first is what is imported, where both can be found
        for upstream in UPSTREAMS.values():
            environment = Environment(upstream, sys.executable, (folder,))
            version = environment.version_of(upstream.package)
            if version is not None:
                return replace(upstream, version=version)
    raise PrerequisiteError(
        f"HELM ({HELM.package} or {MEDHELM.package}) is not installed in {sys.prefix}"
    )


def look_for_packages(
    task: str, run_spec: str, upstream: Upstream, *, only_generate: bool = False
) -> None:
    """HELM itself, in the version whose parts are replaced, and what the run spec is known to
    import.

    Args:
        task: as messages name it.
        run_spec: the name of HELM's run spec.
        upstream: the HELM that runs it.
        only_generate: metrics of pictures are left out, and with them what they import.

    Raises:
        PrerequisiteError: one is not installed, or HELM in another version; with the command that
            installs it.
    """
    look_for_helm(upstream)
    environment = environment_of_run(upstream, run_spec)
    version = environment.version_of(upstream.package)
    if version != upstream.version:
        raise PrerequisiteError(
            f"{task} needs HELM ({upstream.package}) {upstream.version}; {version} is installed\n"
            "  eval-factory replaces parts of HELM, and has checked that with this version only\n"
            f"  {how_to_install(upstream)}\n"
            "  nothing was asked"
        )
    if only_generate:
        return
    missing = missing_for(run_spec, environment)
    if _makes_images(run_spec):
        if not environment.has_module(SHARED_MODULE):
            raise PrerequisiteError(_no_metrics_of_pictures(task, missing))
        missing = []  # their metrics are left out, and named
    if missing:
        raise PrerequisiteError(f"{not_installed(task, missing, environment)}\n  nothing was asked")


def _no_metrics_of_pictures(task: str, missing: Iterable[str]) -> str:
    return (
        f"{task}: HELM's metrics of pictures need packages that are not installed: "
        f"{', '.join(missing) or SHARED_MODULE}\n"
        f"  {how_to_install(HEIM)}\n"
        "  or make the pictures now, and score them where these packages are: "
        "config.params.extra.only_generate: true\n"
        "  nothing was asked"
    )


def look_for_helm(upstream: Upstream) -> Environment:
    """Return an upstream's environment.

    Raises:
        PrerequisiteError: it is not installed where it should be.
    """
    environment = environment_of(upstream)
    if environment.version_of(upstream.package) is None:
        if upstream is HELM:
            place = f"the environment of eval-factory, {sys.prefix}"
        else:
            place = str(home_of(upstream))
        raise PrerequisiteError(
            f"HELM ({upstream.package}) is not installed in {place}\n  {how_to_install(upstream)}"
        )
    return environment


def how_to_install(upstream: Upstream) -> str:
    """The next step of whoever has it not, or in another version."""
    if upstream is HELM:
        return install_command([f"{HELM.package}=={HELM.version}"], sys.executable)
    return (
        f"eval-factory upstream install {upstream.name}   ({HOMES[upstream.name]} "
        "names an environment that is elsewhere)"
    )


def missing_for(run_spec: str, environment: Environment) -> list[str]:
    """Modules that a run spec imports in any case and that cannot be found there."""
    entry = load_index(environment.upstream).run_specs.get(run_spec)
    if entry is None:
        return []
    return [module for module in entry.packages if not environment.has_module(module)]


def not_installed(task: str, modules: Iterable[str], environment: Environment) -> str:
    """A message that modules are missing, with the command that installs them."""
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
            "look for the one that holds this module"
        )
    return message


def install_command(requirements: Iterable[str], python: str) -> str:
    """Return the shell command that installs requirements into the environment of an interpreter,
    which may have no pip of its own (uv, uvx).

    Args:
        requirements: as pip takes them: `sacrebleu~=2.2`.
        python: the path of the interpreter.
    """
    wanted = sorted(set(requirements))
    if python != sys.executable or util.find_spec("pip") is not None:
        return shlex.join([python, "-m", "pip", "install", *wanted])
    return shlex.join(["uv", "pip", "install", "--python", python, *wanted])


_MODULE = re.compile(
    r"No module named '([\w.]+)'|dependency ([\w.-]+) is not installed|needs (torch)"
)


def module_named_in(message: str) -> str | None:
    """The module that an exception says is missing, by its first name."""
    match = _MODULE.search(message)
    if match is None:
        return None
    for name in match.groups():
        if name:
            return str(name).partition(".")[0]
    return ""
