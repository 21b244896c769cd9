"""What a model answered as a program, executed where it can do no harm: without keys, network, files or time of ours.

Each answer has a process of its own (`confined_worker.py`), in a sandbox of bubblewrap's where that works. Before
anything is executed a trial finds out what such a process still could do, and the result says so.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eval_factory.helm_plugin.patches import confined_worker, execution_record

START_LIMIT_S = 60.0
END_LIMIT_S = 5.0
LONGEST_ANSWER = 64_000_000
PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
"""Of the environment."""
SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/nix/store",
)  # fmt: skip
"""What programs and compilers are made of."""
BUBBLEWRAP = "bwrap"


class NotConfinedError(Exception):
    """The process that executes answers did not start, or did not end as it has to."""


@dataclass(frozen=True)
class Confinement:
    """How answers are executed on this machine."""

    sandbox: str | None
    """The program that makes a sandbox around the process."""
    locks: tuple[str, ...]
    """Of the kernel's, that are shut."""
    still_can: tuple[str, ...]
    """What the trial could do there, and should not."""

    @property
    def by(self) -> list[str]:
        own = "a process of its own without keys, with limits of time, memory and file size"
        return [own, *(["bubblewrap"] if self.sandbox else []), *self.locks]


@cache
def confinement() -> Confinement:
    """Found out by trial, once: bubblewrap may be there and not be permitted.

    Raises:
        NotConfinedError: not even a plain process starts.
    """
    for sandbox in (shutil.which(BUBBLEWRAP), None):
        try:
            return _tried(sandbox)
        except NotConfinedError:
            if sandbox is None:
                raise
    raise NotConfinedError("unreachable")


def _tried(sandbox: str | None) -> Confinement:
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.NamedTemporaryFile() as outside:
        question = {"kind": "trial", "port": server.getsockname()[1], "outside": outside.name, "pid": os.getpid()}
        with throw_away_folder() as folder:
            found = _asked(sandbox, question, folder, 2 * confined_worker.PROBE_S)
    return Confinement(sandbox, tuple(found["locks"]), tuple(name for name, can in found["can"].items() if can))


def ask(question: Mapping[str, Any], folder: Path, seconds: float) -> Any:
    """The worker's answer; `folder` is the only one that can be written to.

    Raises:
        NotConfinedError: there was none.
    """
    return _asked(confinement().sandbox, question, folder, seconds)


def ask_or_none(question: Mapping[str, Any], folder: Path, seconds: float) -> Any:
    """The same; None where the answer itself ended the process that executed it, which is counted.

    Raises:
        NotConfinedError: it was not the answer: nothing can be executed here any more.
    """
    try:
        return ask(question, folder, seconds)
    except NotConfinedError:
        _tried(confinement().sandbox)
        execution_record.count(execution_record.ENDED)
        return None


@contextmanager
def throw_away_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="eval-factory-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def _asked(sandbox: str | None, question: Mapping[str, Any], folder: Path, seconds: float) -> Any:
    readable = _readable()
    # A scenario of HELM's raises this limit: its data hold such numbers.
    digits = sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else None
    settings = {"path": _import_path(), "readable": readable, "folder": str(folder), "int_digits": digits}
    worker = [os.path.realpath(sys.executable), "-I", "-S", confined_worker.__file__, json.dumps(settings)]
    argv = [*_sandboxed(sandbox, readable, folder), *worker] if sandbox else worker
    try:
        done = subprocess.run(
            argv, input=json.dumps(question).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=_environment(folder), cwd=folder, timeout=START_LIMIT_S + seconds + END_LIMIT_S, check=True,
        )  # fmt: skip
        return json.loads(done.stdout[:LONGEST_ANSWER])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NotConfinedError(f"the process that executes answers failed: {type(error).__name__}") from None


def _environment(folder: Path) -> dict[str, str]:
    ours = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    return {**ours, **alone, "TMPDIR": str(folder), "HOME": str(folder), "LANG": "C.UTF-8"}


def _import_path() -> list[str]:
    """Absolute, because the worker has another working directory; without folders that hold more than packages."""
    home = Path.home()
    places = [Path(place).absolute() for place in sys.path if place]
    return [str(place) for place in places if place.exists() and place != home and place not in home.parents]


def _readable() -> list[str]:
    prefixes = {os.path.realpath(sys.base_prefix), sys.base_prefix, sys.prefix} - {"/"}
    libraries = [place for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place.startswith("/")]
    places = dict.fromkeys([*SYSTEM, *sorted(prefixes), *_import_path(), *libraries])
    return [place for place in places if Path(place).exists()]


def _sandboxed(sandbox: str, readable: list[str], folder: Path) -> list[str]:
    bound = [argument for place in readable for argument in ("--ro-bind", place, place)]
    return [
        sandbox, "--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev",
        "--tmpfs", "/tmp", *bound, "--bind", str(folder), str(folder), "--chdir", str(folder), "--",  # noqa: S108 - its own
    ]  # fmt: skip
