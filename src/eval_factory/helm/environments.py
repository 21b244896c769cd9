"""Where an upstream is installed: crfm-helm beside eval-factory, medhelm in an environment of its own.

Both install the import name `helm`. So what is installed is looked for in the environment that helm-run will have, and
never by importing it here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata, util
from importlib.machinery import PathFinder
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import MEDHELM_HOME
from eval_factory.tasks.upstreams import HELM, MEDHELM, UPSTREAMS, Upstream

STARTER = Path(__file__).resolve().parents[1] / "helm_plugin" / "start_in_environment.py"


@dataclass(frozen=True)
class Environment:
    """Where one upstream is."""

    upstream: Upstream
    python: str  # the interpreter that runs it
    search: tuple[str, ...] | None = None  # the folders that it imports from; None: those of this process

    def version_of(self, package: str) -> str | None:
        """None: it is not installed there."""
        found = next(iter(self.distributions(package)), None)
        return None if found is None else found.version

    def distributions(self, package: str | None = None) -> Iterable[metadata.Distribution]:
        """All that are installed there, or those of a name."""
        return metadata.distributions(name=package, path=list(sys.path if self.search is None else self.search))

    def has_module(self, name: str) -> bool:
        """Whether it can be imported there. `name`: of a module that is in no package."""
        found = util.find_spec(name) if self.search is None else PathFinder.find_spec(name, list(self.search))
        return found is not None

    def helms(self, *parts: str) -> Path | None:
        """A file or folder of the installed HELM, which is not imported; None where it has no such."""
        spec = util.find_spec("helm") if self.search is None else PathFinder.find_spec("helm", list(self.search))
        paths = [Path(folder).joinpath(*parts) for folder in (spec.submodule_search_locations or ())] if spec else []
        return next((path for path in paths if path.exists()), None)

    def program(self, module: str, script: str) -> list[str]:
        """What a command line of one of HELM's programs begins with: never another one on PATH."""
        if self.search is not None:
            return [self.python, str(STARTER), module]
        beside = Path(self.python).parent / script
        return [str(beside)] if beside.is_file() else [self.python, "-m", module]


def environment_of(upstream: Upstream) -> Environment:
    """Of one that may not be installed: it then has no version."""
    if upstream is HELM:
        return Environment(HELM, sys.executable)
    home = home_of(upstream)
    return Environment(upstream, str(home / "bin" / "python"), tuple(map(str, home.glob("lib/python3*/site-packages"))))


def home_of(upstream: Upstream) -> Path:
    """The folder of an environment of its own, which EVAL_FACTORY_MEDHELM may name."""
    if named := os.environ.get(MEDHELM_HOME):
        return Path(os.path.abspath(os.path.expanduser(named)))
    configured = Path(os.environ.get("XDG_DATA_HOME", ""))
    data = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    return data / "eval-factory" / f"{upstream.name}-{upstream.version}"


def installed_upstream() -> Upstream:
    """The one whose HELM this very process imports, in the version that is there: inside helm-run, that which is run.

    Raises:
        PrerequisiteError: neither is installed here.
    """
    for folder in sys.path:  # the first is what is imported, where both can be found
        for one in UPSTREAMS.values():
            version = Environment(one, sys.executable, (folder,)).version_of(one.package)
            if version is not None:
                return replace(one, version=version)
    raise PrerequisiteError(f"HELM ({HELM.package} or {MEDHELM.package}) is not installed in {sys.prefix}")
