"""Reports which upstreams are installed, and installs an upstream in an environment of its own.

If an installation fails, no environment is left. The module can also download the packages for an
installation on a machine without a network.
"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TextIO

from eval_factory.core.errors import ConfigError, PrerequisiteError, did_you_mean
from eval_factory.core.rundir import PRIVATE_FOLDER, is_running
from eval_factory.executors.process import child_environment, run_captured
from eval_factory.helm.environments import (
    HOME_VARIABLES,
    environment_folder_of,
    environment_of,
    how_to_install,
)
from eval_factory.tasks.upstreams import HEIM, HELM, MEDHELM, UPSTREAMS_WITH_HEIM, Upstream

LOCKS = {MEDHELM.name: "medhelm.lock", HEIM.name: "heim.lock"}
"""The lock files with exact versions and hashes; scripts/lock.sh writes them."""
SIZES = {MEDHELM.name: "760 MB", HEIM.name: "6.3 GB"}
"""The size of each environment on Linux and x86, where torch includes CUDA, for a message."""
TIME_LIMIT_S = 3600.0  # the maximum duration of one command, such as pip, in seconds
TAIL_LINES = 12  # the number of last lines of a failed command's output that an error shows


@dataclass(frozen=True)
class UpstreamState:
    """The supported and the installed version of one upstream."""

    name: str
    package: str
    supported: str  # the version that this eval-factory runs
    installed: str | None  # None if the upstream is not installed
    place: str  # the folder of the upstream's environment

    @property
    def works(self) -> bool:
        """True if the installed version is the supported version."""
        return self.installed == self.supported


def upstream_states() -> list[UpstreamState]:
    """Return the states of all upstreams, HELM first."""
    states = []
    for upstream in UPSTREAMS_WITH_HEIM.values():
        place = sys.prefix if upstream is HELM else str(environment_folder_of(upstream))
        version = environment_of(upstream).version_of(upstream.package)
        states.append(
            UpstreamState(
                upstream.name,
                upstream.package,
                supported=upstream.version,
                installed=version,
                place=place,
            )
        )
    return states


def upstream_named(name: str) -> Upstream:
    """Return the upstream with this name. Raises ConfigError if no upstream has the name."""
    if name not in UPSTREAMS_WITH_HEIM:
        names = ", ".join(UPSTREAMS_WITH_HEIM)
        raise ConfigError(
            f"there is no upstream {name!r}{did_you_mean(name, list(UPSTREAMS_WITH_HEIM))}; "
            f"there are: {names}"
        )
    return UPSTREAMS_WITH_HEIM[name]


def install(
    upstream: Upstream, *, wheels: Path | None, env: Mapping[str, str], screen: TextIO
) -> Path:
    """Create the environment of an upstream with the Python of this program, and return its folder.

    An existing environment with the supported version is not changed.

    Args:
        upstream: The upstream to install.
        wheels: The folder, filled by `download`, from which all packages are installed; None: the
            packages are downloaded.
        env: The environment variables.
        screen: The stream for progress.

    Raises:
        ConfigError: The upstream has no environment of its own, or the folder contains other files.
        PrerequisiteError: Python cannot create an environment, or a package is unavailable.
    """
    if upstream is HELM:
        raise ConfigError(
            f"{HELM.package} belongs into the environment of eval-factory\n  {how_to_install(HELM)}"
        )
    home = environment_folder_of(upstream)
    if environment_of(upstream).version_of(upstream.package) == upstream.version:
        screen.write(f"{upstream} is installed already in {home}\n")
        return home
    is_empty_folder = home.is_dir() and not any(home.iterdir())
    if home.exists() and not is_empty_folder:
        raise ConfigError(
            f"{home}: exists and has no {upstream}; nothing is overwritten: "
            f"remove this path, or set {HOME_VARIABLES[upstream.name]} to"
            " a folder that is new or empty"
        )
    home.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    size = SIZES[upstream.name]
    screen.write(f"installing {upstream} and its dependencies, about {size}, in {home} ...\n")
    screen.flush()
    _remove_leftovers(home)
    prefix = f"{_temporary_prefix(home)}{os.getpid()}."  # read by `_remove_leftovers`
    with tempfile.TemporaryDirectory(prefix=prefix, dir=home.parent) as name:
        environment = Path(name) / home.name
        _run_command([sys.executable, "-m", "venv", str(environment)], env)
        if wheels is None:
            _run_pip(environment, upstream, ["install", "--no-compile", "--require-hashes"], env)
        else:
            _run_pip(
                environment,
                upstream,
                ["install", "--no-compile", "--no-index", "--find-links", str(wheels.absolute())],
                env,
            )
        _replace_paths(environment, home)
        environment.replace(home)
    return home


def _remove_leftovers(home: Path) -> None:
    """Delete the temporary folders of killed installations next to the environment."""
    prefix = _temporary_prefix(home)
    for folder in home.parent.glob(f"{glob.escape(prefix)}*"):
        process_id = folder.name.removeprefix(prefix).partition(".")[0]
        if folder.is_dir() and not folder.is_symlink() and not _is_running_process(process_id):
            shutil.rmtree(folder)


def _temporary_prefix(home: Path) -> str:
    """Return the prefix of the names of temporary folders for this environment."""
    return f".{home.name}."


def _is_running_process(process_id: str) -> bool:
    """Return True if a process with this ID is running.

    Returns False for a text that is not a number: earlier versions named their folders in another
    way.
    """
    return process_id.isascii() and process_id.isdigit() and is_running(int(process_id))


def _replace_paths(environment: Path, home: Path) -> None:
    """Replace the temporary path of an environment by its final path `home` in all scripts.

    The first line of a script names the Python of the environment by its absolute path.
    """
    temporary_path = os.fsencode(environment)
    for file in [environment / "pyvenv.cfg", *(environment / "bin").iterdir()]:
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        is_text = b"\0" not in content
        if is_text and temporary_path in content:
            file.write_bytes(content.replace(temporary_path, os.fsencode(home)))


def download(upstream: Upstream, wheels: Path, *, env: Mapping[str, str], screen: TextIO) -> None:
    """Download all packages of the upstream's environment as wheels to the folder `wheels`.

    The wheels are for a machine without a network that has the same Python and operating system.

    Raises:
        ConfigError: The upstream has no environment of its own.
        PrerequisiteError: A package is unavailable.
    """
    if upstream is HELM:
        raise ConfigError(
            f"{HELM.package} belongs into the environment of eval-factory\n  {how_to_install(HELM)}"
        )
    screen.write(f"downloading {upstream} and its dependencies to {wheels} ...\n")
    screen.flush()
    with tempfile.TemporaryDirectory() as name:
        _run_command([sys.executable, "-m", "venv", name], env)
        _run_pip(
            Path(name),
            upstream,
            ["wheel", "--wheel-dir", str(wheels.absolute()), "--require-hashes"],
            env,
        )


def _run_pip(
    environment: Path, upstream: Upstream, arguments: Sequence[str], env: Mapping[str, str]
) -> None:
    """Run pip on the packages of the upstream's lock file.

    pip does not add the packages that these packages require: medhelm itself would require torch.
    The hashes of the lock file are only checked with `--require-hashes`. Wheels in a folder are
    matched by version alone, because `download` builds some wheels, whose hashes are not listed.
    """
    lines = (
        (resources.files("eval_factory.helm") / LOCKS[upstream.name])
        .read_text(encoding="utf-8")
        .splitlines(keepends=True)
    )
    if "--require-hashes" not in arguments:
        # A backslash at the end of a requirement continues it with the lines of its hashes. The
        # hashes and the backslashes are left out.
        requirements = [line for line in lines if not line.startswith("    --hash")]
        lines = [line.replace("\\\n", "\n") for line in requirements]
    lock = environment / LOCKS[upstream.name]
    lock.write_text("".join(lines), encoding="utf-8")
    pip = [
        str(environment / "bin" / "python"),
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
    ]
    _run_command([*pip, *arguments, "--no-deps", "-r", str(lock)], env)


def _run_command(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Run a command. If the command fails, raise PrerequisiteError with the end of its output."""
    pip_settings = []
    for name in env:
        if name.startswith("PIP_"):
            pip_settings.append(name)
    # The packages in the user's PYTHONPATH must not be mixed with those of the new environment.
    child_env = {**child_environment(env, pip_settings, extra={}), "PYTHONPATH": ""}
    ended = run_captured(argv, child_env, TIME_LIMIT_S)
    if ended.returncode != 0:
        printed = []
        for line in (*ended.stdout.splitlines(), *ended.stderr.splitlines()):
            if line.strip():
                printed.append(line)
        lines = "\n".join(f"  | {line}" for line in printed[-TAIL_LINES:])
        raise PrerequisiteError(
            f"{shlex.join(argv[:4])} ... ended with {ended.returncode}; nothing was installed\n"
            f"{lines}"
        )
