"""A port that is free now, and whether it is our server that has it later."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below those that systems give to connections of their own, so that none takes it between now and its use."""
MOST_TRIES = 200
TOKEN = "EVAL_FACTORY_SERVER"  # noqa: S105 - the name of a variable
"""By which the processes of a server are known again: they inherit it."""
_LISTENS = "0A"


def free_port() -> int:
    """
    Raises:
        PrerequisiteError: none was found.
    """
    chosen = random.SystemRandom()
    for _ in range(MOST_TRIES):
        port = chosen.randint(FIRST_PORT, LAST_PORT)
        if is_free(port):
            return port
    raise PrerequisiteError(
        f"no free port was found from {FIRST_PORT} to {LAST_PORT} for a model's server\n  end what listens there"
    )


def is_free(port: int) -> bool:
    """On this machine's own address and on all of its addresses: a server may choose either."""
    try:
        for host in ("127.0.0.1", ""):
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are over do not count
                one.bind((host, port))
    except OSError:
        return False
    return True


def is_somebody_elses(port: int, token: str, proc: Path = Path("/proc")) -> bool:
    """Whether a port that answers is known to be another program's. False where the system does not say.

    Args:
        token: what the server's processes have in their environment as TOKEN.
    """
    listeners = list(_listeners(port, proc))
    if not listeners:
        return False
    own = os.getuid()
    inodes = {inode for uid, inode in listeners if uid == own}
    if not inodes:
        return all(uid != 0 for uid, _ in listeners)  # root's may pass on to a container that is ours
    marked = f"{TOKEN}={token}".encode()
    environments = list(_environments(inodes, proc))
    return bool(environments) and all(marked not in one.split(b"\0") for one in environments)


def _listeners(port: int, proc: Path) -> Iterator[tuple[int, str]]:
    """(user, inode of the socket)."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield int(fields[7]), fields[9]


def _environments(inodes: set[str], proc: Path) -> Iterator[bytes]:
    """Of the processes that have one of the sockets open."""
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for process in proc.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            if any(str(one.readlink()) in sockets for one in (process / "fd").iterdir()):
                yield (process / "environ").read_bytes()
        except OSError:
            continue
