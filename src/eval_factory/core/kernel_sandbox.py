"""What a process can give up for good, asked of Linux itself: nothing has to be installed, and no right is needed.

Standard library only, for the process that executes what a model answered. Each function says whether the kernel did
it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
"""The same numbers on every architecture."""
LANDLOCK_VERSION_ASKED, RULE_PATH_BENEATH = 1, 1
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
RIGHTS_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
RIGHTS_SINCE = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
TCP_SINCE, SCOPES_SINCE = 4, 6
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

LOAD, EQUAL, AT_LEAST, HAS_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
X32 = 0x40000000
CLONE_THREAD = 0x00010000

# Architecture -> its mark, and the numbers of the calls.
_ARCHITECTURES = {
    "x86_64": (
        0xC000003E,
        {"socket": 41, "ptrace": 101, "kill": 62, "tkill": 200, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
         "process_vm_readv": 310, "process_vm_writev": 311, "clone": 56, "fork": 57, "vfork": 58},
    ),
    "aarch64": (
        0xC00000B7,
        {"socket": 198, "ptrace": 117, "kill": 129, "tkill": 130, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
         "process_vm_readv": 270, "process_vm_writev": 271, "clone": 220},
    ),
}  # fmt: skip
_EVERYWHERE = {"pidfd_send_signal": 424, "io_uring_setup": 425, "clone3": 435}
_FORKS = ("clone", "fork", "vfork", "clone3")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int = 0, pointer: object = 0) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return bool(_libc().prctl(option, ctypes.c_ulong(value), pointer, 0, 0) == 0)


def keep_memory_private() -> bool:
    """No other process of the same user may read this one's memory and environment (but root's may)."""
    return _prctl(PR_SET_DUMPABLE, 0)


def end_with_parent() -> bool:
    """Of the thread that started this process, strictly: it waits for the answer."""
    return _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def limit(*, memory: int, file_size: int, cpu_s: int, open_files: int) -> None:
    """Bytes, seconds and numbers; never above what holds already."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_AS: memory,
    }
    for what, most in wanted.items():
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # macOS does not know all of them
            resource.setrlimit(what, (least, least))


def give_up_privileges() -> None:
    """Nothing that is executed gains a right, and root has none of its own."""
    if not _prctl(PR_SET_NO_NEW_PRIVS, 1):
        return
    header = struct.pack("Ii", 0x20080522, 0)
    _libc().capset(header, bytes(24))


def restrict_files(readable: Iterable[str], writable: Iterable[str], *, tcp: bool = False) -> bool:
    """Landlock: other files cannot be opened, other processes not looked into; from Linux 6.7 on no TCP, from 6.12 on
    no signals to others.

    Args:
        tcp: whether connections are allowed all the same.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = _libc()
    version = libc.syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION_ASKED)
    if version < 1:
        return False
    rights = max(known for since, known in RIGHTS_SINCE.items() if since <= version)
    ports = 0b11 if version >= TCP_SINCE and not tcp else 0
    scopes = 0b11 if version >= SCOPES_SINCE else 0
    attributes = struct.pack("QQQ", rights, ports, scopes)
    known = 8 + 8 * (version >= TCP_SINCE) + 8 * (version >= SCOPES_SINCE)
    ruleset = libc.syscall(LANDLOCK_CREATE, attributes, known, 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(libc, ruleset, path, EXECUTE | READ_FILE | READ_DIR)
        for path in (*writable, *DEVICES):
            _allow(libc, ruleset, path, rights)
        return bool(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not there: nothing to allow
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= RIGHTS_OF_FILES
        libc.syscall(LANDLOCK_ADD, ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def refuse_calls(*, forks: bool) -> bool:
    """seccomp: no sockets, no signals to others, no looking into others; without `forks` no new processes either.

    Threads are allowed. A program of another architecture (32 bits) is refused every call.
    """
    known = _ARCHITECTURES.get(platform.machine())
    if known is None or not sys.platform.startswith("linux"):
        return False
    mark, numbers = known[0], known[1] | _EVERYWHERE
    lines = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 1, 0, mark),
        (RETURN, 0, 0, REFUSE | EPERM),
        (LOAD, 0, 0, NUMBER_AT),
        (AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, REFUSE | EPERM),
    ]
    for name, number in numbers.items():
        if name not in _FORKS:
            lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | EPERM)]
    if not forks:
        for name in _FORKS:
            if name == "clone3":  # its flags cannot be seen here; the C library then takes clone
                lines += [(EQUAL, 0, 1, numbers[name]), (RETURN, 0, 0, REFUSE | ENOSYS)]
            elif name in numbers and name != "clone":
                lines += [(EQUAL, 0, 1, numbers[name]), (RETURN, 0, 0, REFUSE | EPERM)]
        lines += [
            (EQUAL, 0, 3, numbers["clone"]),
            (LOAD, 0, 0, FIRST_ARGUMENT_AT),
            (HAS_BIT, 1, 0, CLONE_THREAD),
            (RETURN, 0, 0, REFUSE | EPERM),
        ]
    lines.append((RETURN, 0, 0, ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    pointer = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(program))
    return _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer)
