"""Runs untrusted programs in a sandbox made by bubblewrap (`bwrap`), which needs no root rights.

Namespaces hide all other processes, the network, System V shared memory, and all files that are not
allowed. System calls are refused (with seccomp) if namespaces do not confine them, or if they could
use memory beyond the limits. If root runs eval-factory, the programs run as the user nobody,
because namespaces do not prevent root from writing to `/proc` and `/sys`.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from eval_factory.core.errors import PrerequisiteError

_SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/nix/store",
)
"""The system folders that programs and compilers need."""
_HIDDEN_OF_PROC = (
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
)
"""Files in /proc about the machine or all its processes, which namespaces do not hide."""
_ROOT = 0  # the id of the user root
_NOBODY = 65534  # the id of the user and group nobody, which own no files
_RIGHTS_TO_BECOME_NOBODY = ("SETUID", "SETGID", "SETPCAP")
# the exit code for a program that exceeded its time, as of the command `timeout`
TIMED_OUT_EXIT_CODE = 124
_MAX_OUTPUT = 16_000_000  # the limit of standard output and standard error, in bytes
_MAX_REASON = 300  # the number of last characters of a program's message that an error shows

# The instructions and constants of seccomp-bpf. A filter loads the number of the system call,
# compares it, and returns an error or allows the call.
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_HAS_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERROR = 0x00050000
_EPERM = 1
_ENOSYS = 38
_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_FIRST_ARGUMENT_AT = 16
_X32 = 0x40000000  # the numbers of the system calls of 32-bit programs on x86_64 begin here (x32)
_CLONE_THREAD = 0x00010000
_CLONE_NEWUSER = 0x10000000
_UNIX = 1  # the family of Unix sockets
_FAMILIES = (2, 10, 16)  # allowed families of sockets (in addition to Unix): IPv4, IPv6, netlink
# system calls that have the same number on all architectures
_EVERYWHERE = {"io_uring_setup": 425, "clone3": 435, "pidfd_getfd": 438, "memfd_secret": 447}


class _Architecture(NamedTuple):
    """The numbers of an architecture in seccomp."""

    identifier: int
    calls: Mapping[str, int]  # name of a filtered system call -> its number


_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000003E,
        {
            "shmget": 29,
            "msgget": 68,
            "semget": 64,
            "mq_open": 240,
            "socket": 41,
            "memfd_create": 319,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "bpf": 321,
            "ptrace": 101,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "syslog": 103,
            "perf_event_open": 298,
            "userfaultfd": 323,
            "unshare": 272,
            "setns": 308,
            "clone": 56,
            "fork": 57,
            "vfork": 58,
        },
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        {
            "shmget": 194,
            "msgget": 186,
            "semget": 190,
            "mq_open": 180,
            "socket": 198,
            "memfd_create": 279,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "bpf": 280,
            "ptrace": 117,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "syslog": 116,
            "perf_event_open": 241,
            "userfaultfd": 282,
            "unshare": 97,
            "setns": 268,
            "clone": 220,
        },
    ),
}


@dataclass(frozen=True)
class Allowed:
    """The permissions of a program, in addition to computing and writing to its folder."""

    readable: Sequence[str] = ()  # readable files and folders, in addition to the system's
    processes: bool = False  # True if the program may start other programs
    network: bool = False  # True if the program may make connections


@dataclass(frozen=True)
class EndedProgram:
    """A program that has ended."""

    # 128 + N if signal N ended the program, as in a shell; `TIMED_OUT_EXIT_CODE` if the program
    # exceeded its time
    returncode: int
    output: bytes  # standard output, at most `_MAX_OUTPUT` bytes
    errors: bytes = b""  # standard error, at most `_MAX_OUTPUT` bytes


def run(
    argv: Sequence[str],
    folder: Path,
    allowed: Allowed = Allowed(),
    *,
    env: Mapping[str, str],
    seconds: float,
    standard_input: bytes = b"",
) -> EndedProgram:
    """Run a program in a new sandbox, and wait until it ends.

    Args:
        argv: the program and its arguments.
        folder: the only folder that the program can write to; it is also the working directory.
        allowed: the permissions of the program.
        env: the complete environment of the program.
        seconds: the time limit, after which the program is killed.
        standard_input: the program's standard input.

    Raises:
        PrerequisiteError: bubblewrap is not installed, or does not support this machine.
    """
    folder = folder.resolve()
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
        tempfile.TemporaryFile() as refused,
    ):
        for file, content in ((stdin, standard_input), (refused, refused_calls(allowed))):
            file.write(content)
            file.seek(0)
        sandbox = _sandbox(folder, allowed, refused.fileno())
        with _owned_by_program(folder):
            program = subprocess.Popen(
                [*sandbox, *argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=dict(env),
                pass_fds=[refused.fileno()],
            )
            try:
                returncode = program.wait(seconds)
            except subprocess.TimeoutExpired:
                returncode = TIMED_OUT_EXIT_CODE
            finally:  # ends a program that still runs: after its time, or after an exception here
                program.kill()
                program.wait()
        stdout.seek(0)
        stderr.seek(0)
        return EndedProgram(returncode, stdout.read(_MAX_OUTPUT), stderr.read(_MAX_OUTPUT))


def _sandbox(folder: Path, allowed: Allowed, refused: int) -> list[str]:
    """Return bubblewrap's command line, without the program to run at its end.

    Args:
        folder: the folder that the program can write to.
        allowed: the permissions of the program.
        refused: the descriptor of a file with the seccomp filter.
    """
    network = [] if allowed.network else ["--unshare-net"]
    namespaces = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    return [
        _program("bwrap", "bubblewrap"),
        *_identity(),
        *namespaces,
        *network,
        "--die-with-parent",
        "--new-session",
        *("--seccomp", str(refused)),
        *_proc(),
        *("--dev", "/dev"),
        *_mounted([*_SYSTEM, *allowed.readable]),
        *_folders_above([str(folder)]),
        *("--bind", str(folder), str(folder)),
        *("--chdir", str(folder)),
        # The root folder and /dev are in memory, which no limit counts: make both read-only.
        *("--remount-ro", "/dev"),
        *("--remount-ro", "/"),
        "--",
        *_becoming_nobody(),
    ]


def _is_root() -> bool:
    return os.geteuid() == _ROOT


def _identity() -> list[str]:
    """Return bubblewrap's arguments for the program's user and rights.

    An ordinary user's program gets a user namespace, without any rights outside. Root's program
    keeps the rights that it needs to become nobody, and `setpriv` then drops these rights.
    """
    if not _is_root():
        return ["--unshare-user", "--cap-drop", "ALL"]
    arguments = ["--cap-drop", "ALL"]
    for right in _RIGHTS_TO_BECOME_NOBODY:
        arguments += ["--cap-add", f"CAP_{right}"]
    return arguments


def _becoming_nobody() -> list[str]:
    """Return the command line that starts a program as nobody; empty if the user is not root."""
    if not _is_root():
        return []
    return [
        _program("setpriv", "util-linux"),
        f"--reuid={_NOBODY}",
        f"--regid={_NOBODY}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--",
    ]


@contextmanager
def _owned_by_program(folder: Path) -> Iterator[None]:
    """Make the user nobody the owner of the folder inside the context, if the user is root."""
    if not _is_root():
        yield
        return
    _change_owner(folder, _NOBODY)
    # bubblewrap has lost root's right to enter every folder, so it enters as the group root: give
    # this group the right to enter.
    folder.chmod(folder.stat().st_mode | stat.S_IXGRP)
    try:
        yield
    finally:
        _change_owner(folder, _ROOT)


def _change_owner(folder: Path, owner: int) -> None:
    """Change the owner of a folder and of everything in the folder, without following links."""
    change = [_program("chown", "coreutils"), "--recursive", "--no-dereference", f"{owner}:0"]
    subprocess.run([*change, "--", str(folder)], check=False, capture_output=True)


def delete_folder(folder: Path) -> None:
    """Delete a folder in which an untrusted program ran, with any number of nested folders."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # deep folders, before Python 3.13
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def _proc() -> list[str]:
    """Return bubblewrap's arguments for a read-only `/proc` without `_HIDDEN_OF_PROC`."""
    arguments = ["--proc", "/proc"]
    for name in _HIDDEN_OF_PROC:
        path = f"/proc/{name}"
        if Path(path).exists():
            arguments += ["--ro-bind", "/dev/null", path]
    return [*arguments, "--remount-ro", "/proc"]


def _mounted(paths: Sequence[str]) -> list[str]:
    """Return bubblewrap's arguments for read-only files and folders.

    A link inside a mounted folder (such as a project's `.venv`) is also a link in the sandbox, so
    nothing can be mounted at its path. The target of such a link is mounted at the target's path.
    """
    mounts: dict[str, str] = {}  # path in the sandbox -> path outside
    for path in filter(os.path.exists, paths):
        real = os.path.realpath(path)
        mounts[real] = real
        if not any(Path(path).is_relative_to(mount) for mount in mounts):
            mounts[path] = real
    arguments = _folders_above(mounts)
    for mount, real in mounts.items():
        arguments += ["--ro-bind", real, mount]
    return arguments


def _folders_above(paths: Iterable[str]) -> list[str]:
    """Return bubblewrap's arguments for the folders above these paths.

    Every user can enter a folder that is made with `--dir`. Otherwise, bubblewrap would copy the
    permissions of some folders: only root can enter `/root`.
    """
    arguments = []
    for path in paths:
        # from the highest folder to the lowest; the last of the `parents` is `/`, which exists
        for folder in reversed(Path(path).parents[:-1]):
            arguments += ["--dir", str(folder)]
    return arguments


# a shell program that prints `ready` if it can read all paths that are its arguments
_TRIAL = 'for path; do [ -r "$path" ] || { echo "$path cannot be read"; exit 1; }; done; echo ready'


def require_working(why: str, allowed: Allowed = Allowed()) -> None:
    """Check that a sandbox works, by running a small program in it.

    Args:
        why: the reason why a sandbox is needed, as the first line of the error message.
        allowed: the permissions of the programs that will run.

    Raises:
        PrerequisiteError: a sandbox cannot be made; the message names a missing package.
    """
    trial = ["/bin/sh", "-c", _TRIAL, "trial", *filter(os.path.exists, allowed.readable)]
    with tempfile.TemporaryDirectory(prefix="eval-factory-") as folder:
        try:
            ended = run(trial, Path(folder), allowed, env={}, seconds=20.0)
        except PrerequisiteError as error:
            raise PrerequisiteError(f"{why}\n  {error}\n  nothing was asked") from None
    if ended.output != b"ready\n":
        message = (ended.errors or ended.output).decode(errors="replace")
        reason = " ".join(message.split())[-_MAX_REASON:] or f"code {ended.returncode}"
        step = (
            "it needs user namespaces: ask the administrator of this machine or container to "
            "allow them"
        )
        if _is_root():
            step = (
                "the sandbox runs root's programs as the user nobody, which is not possible "
                "here: start eval-factory as an ordinary user, as its image does"
            )
        raise PrerequisiteError(
            f"{why}\n  bubblewrap is installed, but cannot make a sandbox here: {reason}\n"
            f"  {step}\n"
            "  nothing was asked"
        )


def _program(name: str, package: str) -> str:
    """Return the path of a program that is needed for the sandbox.

    Args:
        name: the name of the program.
        package: the package that contains the program, for the error message.

    Raises:
        PrerequisiteError: the program is not installed, or the machine is not supported.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in _ARCHITECTURES:
        raise PrerequisiteError("the sandbox (bubblewrap) needs Linux on x86_64 or aarch64")
    program = shutil.which(name)
    if program is None:
        raise PrerequisiteError(
            f"the program {name} is not installed: its package is {package}"
            f" (Debian, Ubuntu: apt-get install {package}; Fedora: dnf install {package})"
        )
    return program


def refused_calls(allowed: Allowed) -> bytes:
    """Return the seccomp filter: the refused system calls fail with "not permitted".

    Refused are calls for kernel keys, the kernel's log and memory that no limit counts, because
    namespaces do not confine them. The tracing of processes is refused: a program could trace
    bubblewrap's own process in the sandbox, and that process would then not end with its parent.
    Calls that start processes are refused unless they are allowed; threads are always allowed. For
    a program of another architecture (32 bits), all calls are refused.
    """
    # `_program` raises an error for an unknown architecture, so its filter is never used.
    architecture = _ARCHITECTURES.get(platform.machine(), _Architecture(0, {}))
    numbers = {**architecture.calls, **_EVERYWHERE}
    # An instruction is (code, instructions to skip if true, instructions to skip if false, value).
    refuse = (_RETURN, 0, 0, _ERROR | _EPERM)
    instructions = [
        # Refuse the calls of a program of another architecture, ...
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture.identifier),
        refuse,
        # ... and those of a 32-bit program.
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        refuse,
        # A filter cannot read the flags of clone3. After "not implemented", the C library calls
        # clone instead.
        (_EQUAL, 0, 1, numbers.pop("clone3")),
        (_RETURN, 0, 0, _ERROR | _ENOSYS),
    ]
    # A program with network access has no network namespace of its own, and could reach abstract
    # Unix sockets of other programs, such as those of a desktop. Its Unix sockets are refused.
    families = list(_FAMILIES)
    if not allowed.network:
        families.append(_UNIX)
    instructions += _socket_rules(numbers.pop("socket", 0), families, refuse)
    clone = numbers.pop("clone", 0)
    for name, number in numbers.items():  # all calls without a rule of their own
        if not allowed.processes or name not in ("fork", "vfork"):
            instructions += [(_EQUAL, 0, 1, number), refuse]
    # The flags of clone say whether a user namespace, a thread or a process is made.
    clone_rules = [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_HAS_BIT, 0, 1, _CLONE_NEWUSER), refuse]
    if not allowed.processes:
        clone_rules += [(_HAS_BIT, 1, 0, _CLONE_THREAD), refuse]  # a thread skips the refusal
    instructions += [(_EQUAL, 0, len(clone_rules), clone), *clone_rules, (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)


def _socket_rules(
    number: int, families: Sequence[int], refuse: tuple[int, int, int, int]
) -> list[tuple[int, int, int, int]]:
    """Return the part of the filter that allows only some families of sockets.

    A network namespace does not confine all families: a vsock socket reaches the host of a virtual
    machine. The number of the system call is loaded before this part, and again at its end.

    Args:
        number: the number of the system call `socket`.
        families: the allowed families.
        refuse: the instruction that refuses a call.
    """
    rules = [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT)]
    for index, family in enumerate(families):
        # An allowed family skips the rest of the comparisons, and the refusal after them.
        rules.append((_EQUAL, len(families) - index, 0, family))
    rules += [refuse, (_LOAD, 0, 0, _NUMBER_AT)]
    return [(_EQUAL, 0, len(rules), number), *rules]


def environment_without_secrets(folder: Path) -> dict[str, str]:
    """Return the environment for a program that runs in a folder.

    Only the variables that find programs and libraries are copied from this process.
    """
    paths = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    options = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    return {**paths, **options, "TMPDIR": str(folder), "HOME": str(folder), "LANG": "C.UTF-8"}
